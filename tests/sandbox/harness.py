"""A sandbox in this process: time passes at once, and a receiver keeps what it is sent."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import anyio
import anyio.lowlevel
import httpx2

from app.core.clock import SetClock
from app.sandbox.server import build_sandbox
from app.sandbox.settings import SandboxSettings
from reconcile.instants import SECOND, Duration, Instant, parse_instant
from tests.waiting import PATIENCE_S

START = parse_instant("2026-11-20T10:00:00.123456Z")
URL = "/api/v1/checkout/sessions"
AUTH = {"Authorization": "Bearer sandbox_token_0001"}


class FakeSigner:
    """Signer whose signature is a digest over id, time and body."""

    def sign(self, body: bytes, *, event_id: str, now: Instant) -> list[tuple[str, str]]:
        return [
            ("fake-id", event_id),
            ("fake-time", str(now)),
            ("fake-signature", self.digest(body, event_id, str(now))),
        ]

    @staticmethod
    def digest(body: bytes, event_id: str, now: str) -> str:
        return hashlib.sha256(f"{event_id}.{now}.".encode() + body).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Request that the receiver saw, and its answer."""

    at: Instant
    headers: dict[str, str]
    body: bytes
    status: int

    @property
    def genuine(self) -> bool:
        h = self.headers
        return h["fake-signature"] == FakeSigner.digest(self.body, h["fake-id"], h["fake-time"])

    @property
    def event(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.body, parse_float=Decimal, parse_int=Decimal)
        return said

    @property
    def kind(self) -> str:
        kind: str = self.event["type"]
        return kind.removeprefix("payment.")


@dataclass
class Receiver:
    """Receiver that answers 401 to a wrong signature, else what `answers` says (default 200)."""

    clock: SetClock
    arrivals: list[Arrival] = field(default_factory=list)
    answers: Callable[[int], int | Exception] = lambda _: 200
    headers: dict[str, str] = field(default_factory=dict)

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        seen = Arrival(
            at=self.clock.now(), headers=dict(request.headers), body=request.content, status=0
        )
        answer = self.answers(len(self.arrivals)) if seen.genuine else 401
        status = answer if isinstance(answer, int) else 0
        self.arrivals.append(
            Arrival(at=seen.at, headers=seen.headers, body=seen.body, status=status)
        )
        if isinstance(answer, Exception):
            raise answer
        return httpx2.Response(status, headers=self.headers)


@dataclass(kw_only=True)
class World:
    """A running sandbox, a client of it, and the receiver of its webhooks."""

    clock: SetClock
    receiver: Receiver
    client: httpx2.AsyncClient
    app: Any

    async def open(self, phone: str = "254700000001", **changes: Any) -> httpx2.Response:
        key = changes.pop("key", f"key-{phone}")
        body = session_body(phone, **changes)
        return await self.client.post(URL, json=body, headers={"Idempotency-Key": key})

    async def get(self, path: str) -> Any:
        return (await self.client.get(path)).json()

    async def drained(self) -> None:
        await self.reached(pending_events=0, undelivered=0)

    async def reached(self, **counts: int) -> None:
        with anyio.fail_after(PATIENCE_S):
            while True:
                state = await self.get("/sandbox/state")
                if counts.items() <= state.items():
                    return
                await anyio.lowlevel.checkpoint()


def session_body(phone: str = "254700000001", **changes: Any) -> dict[str, Any]:
    """Build a right request; `changes` replaces fields of the order."""
    order = {"reference": f"ORD-{phone[-2:]}", "amount": "1500.00", "currency": "KES"}
    return {
        "order": order | changes,
        "customer": {"phone": phone},
        "return_urls": {"success": "https://shop.test/ok", "cancel": "https://shop.test/no"},
    }


@asynccontextmanager
async def world(
    *, sleep: Any = None, signer: Any = None, receive: Any = None, **settings: Any
) -> AsyncIterator[World]:
    """Run a sandbox from START on, whose sleeps move the clock and return at once.

    `receive` takes the webhooks instead of the world's own receiver.
    """
    clock = SetClock(START)
    receiver = Receiver(clock)

    async def pass_time(seconds: float) -> None:
        clock.put(clock.now() + Duration(round(seconds * SECOND)))
        await anyio.lowlevel.checkpoint()

    app = build_sandbox(
        SandboxSettings(webhook_url="http://receiver.test/webhooks/checkout", **settings),
        signer=signer or FakeSigner(),
        clock=clock,
        sleep=sleep or pass_time,
        transport=httpx2.MockTransport(receive or receiver),
    )
    transport = httpx2.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://sandbox.test", headers=AUTH) as c,
    ):
        yield World(clock=clock, receiver=receiver, client=c, app=app)
