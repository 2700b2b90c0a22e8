"""Drive a service without a socket: sign requests as the provider does, and call the API."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from app.access.tokens import issue_token
from app.config.load import load_settings
from app.context.context import AppContext
from app.core.clock import SetClock
from app.database.statements import PlainConnection, run
from app.receiving.caught_up import behind_s
from app.receiving.reader import Reader
from app.wiring.service import Service, Where, open_service
from reconcile.instants import SECOND, Instant, format_instant
from tests.contexts import RETAINED, with_given
from tests.database.made import put_new
from tests.reconcile.build import T
from tests.rounds import standing_still
from tests.waiting import PATIENCE_S

KEY = b"a key for tests, not a secret"


def secret(key: bytes) -> str:
    """Return a key in the form in which a service is configured."""
    return "whsec_" + base64.b64encode(key).decode()


SECRET = secret(KEY)

Header = tuple[bytes, bytes]

TELLING = ("duplicate_with_different_body", "unreadable", "stored", "duplicate", "not_ours")
"""Verdicts of one delivery's parts by priority: the first that occurs is the delivery's."""


def environ(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment variables of a service whose database is in the folder."""
    return {
        **RETAINED,
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{folder}/t.db",
        "TALLYHOOK_SOURCES__SHOP__SECRETS": SECRET,
        **{f"TALLYHOOK_{name}": value for name, value in more.items()},
    }


def event(event_id: str, claim: str = "succeeded", **changes: Any) -> dict[str, Any]:
    """Return the provider's JSON for an order of KES 1,500.

    changes  parts of `data` to replace, or to leave out where they are None
    """
    data: dict[str, Any] = {
        "order": {"reference": "ORD-1", "amount": 1500, "currency": "KES"},
        "session": {"reference": "cs_1"},
        "payment": {"reference": "pay_1", "amount": 1500, "currency": "KES"},
    }
    document: dict[str, Any] = {
        "id": event_id,
        "type": f"payment.{claim}",
        "occurred_at": format_instant(T),
        "environment": "sandbox",
    }
    for name, value in changes.items():
        place = document if name in document else data
        if value is None:
            del place[name]
        elif isinstance(value, dict) and name in place:
            place[name] = {**place[name], **value}
        else:
            place[name] = value
    return {**document, "data": data}


def of_order(reference: str, event_id: str, claim: str = "succeeded") -> dict[str, Any]:
    """Return an event of another order, with a payment and a session of its own."""
    return event(
        event_id,
        claim,
        order={"reference": reference},
        session={"reference": f"cs-{reference}"[:200]},
        payment={"reference": f"pay-{reference}"[:200]},
    )


def signed(
    body: bytes,
    *,
    at: Instant = T,
    event_id: str = "msg_1",
    stamp: bytes | None = None,
    key: bytes = KEY,
) -> list[Header]:
    """Return the headers of a genuine request, built here from the published rule alone."""
    stamp = str(at // SECOND).encode() if stamp is None else stamp
    content = b".".join((event_id.encode(), stamp, body))
    mac = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest())
    return [
        (b"content-type", b"application/json"),
        (b"webhook-id", event_id.encode()),
        (b"webhook-timestamp", stamp),
        (b"webhook-signature", b"v1," + mac),
    ]


class Body(httpx2.AsyncByteStream):
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content


def reader_of(service: Service) -> Reader:
    """Return the reader that runs in the service's own process."""
    return next(part for _, part in service.parts if isinstance(part, Reader))


def _verdicts(connection: PlainConnection, name: str) -> list[tuple[str]]:
    sql = "SELECT verdict FROM deliveries WHERE id=? OR id LIKE ?"
    return connection.ask(sql, (name, f"{name}-%"))


class Following(httpx2.AsyncBaseTransport):
    """A transport that waits after each delivery until it was read.

    It puts the reader's verdict into an answer `accepted`, so that a test sees it at once.
    """

    def __init__(self, service: Service, *, raising: bool) -> None:
        self._service = service
        self._inner = httpx2.ASGITransport(app=service.application, raise_app_exceptions=raising)

    async def _read(self, name: str) -> list[tuple[str]]:
        """Return the verdicts of a delivery's parts. Wait while other processes use the server."""
        database = self._service.inbox.database
        ends = time.monotonic() + (PATIENCE_S if database.shared else 0.0)
        while True:
            async with database.reading() as connection:
                rows = await run(connection, _verdicts, name)
            if rows or time.monotonic() > ends:
                return rows
            await asyncio.sleep(0.05)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._inner.handle_async_request(request)
        if not request.url.path.startswith("/webhooks/") or answer.status_code == 503:
            return answer
        if reader_of(self._service).alive:
            await behind_s(self._service.context)  # a refused one is in the inbox, too
        if answer.status_code != 200:
            return answer
        body = await answer.aread()
        answered = re.fullmatch(rb'\{"verdict": "accepted", "delivery": "(dlv_\w+)"\}', body)
        if answered is None:
            return httpx2.Response(200, headers=list(answer.headers.raw), stream=Body(body))
        name = answered[1].decode("ascii")
        rows = await self._read(name)
        verdict = min((each for (each,) in rows), key=TELLING.index, default="accepted")
        said = json.dumps({"verdict": verdict, "delivery": name}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(said))}
        return httpx2.Response(200, headers=headers, stream=Body(said))


@dataclass
class Driver:
    """A running service, a client, and the shop's token."""

    service: Service
    client: httpx2.AsyncClient
    clock: SetClock
    context: AppContext
    path: Path
    token: str = field(default="")

    async def send(
        self,
        body: bytes | dict[str, Any],
        headers: Sequence[Header] | None = None,
        *,
        source: str = "shop",
    ) -> httpx2.Response:
        """POST one delivery, signed now unless its headers are given."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        chosen = signed(content, at=self.clock.now()) if headers is None else headers
        return await self.client.post(f"/webhooks/{source}", content=content, headers=list(chosen))

    async def api(self, method: str, path: str, **words: Any) -> httpx2.Response:
        """Send an API request with the shop's token."""
        if not self.token:
            self.token = await issue_token(self.context, name="shop")
        bearer = {"Authorization": f"Bearer {self.token}"}
        return await self.client.request(method, f"/api/v1{path}", headers=bearer, **words)

    async def routes(self) -> list[Any]:
        """Return all routes of the application, after a request that loads the API."""
        await self.client.get("/api")
        return self.service.application.routes

    async def ready(self) -> bool:
        return (await self.client.get("/readyz")).status_code == 200

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows that another connection reads now."""
        with closing(sqlite3.connect(self.path)) as database:
            return database.execute(sql, values).fetchall()


@asynccontextmanager
async def driving(
    folder: Path,
    *,
    with_worker: bool = True,
    raising: bool = False,
    looking: bool = False,
    at: Instant = T,
    **more: str,
) -> AsyncIterator[Driver]:
    """Run a service with its clock at `at`.

    raising  whether an error in the service fails the test at once
    looking  whether its watchdog runs and its evidence is sealed
    more     settings. Pass them from a `dict[str, Any]`: in a `dict[str, str]` a type checker sees
             a possible `at`
    """
    settings = load_settings(environ(folder, **more), serving=True)
    clock = SetClock(at)
    put_new(folder / "t.db")
    work: Where = "all" if with_worker else "reading"
    async with AsyncExitStack() as stack:
        with nullcontext() if looking else standing_still():
            opened = open_service(settings, clock=clock, work=work)
            service = await stack.enter_async_context(opened)
        transport = Following(service, raising=raising)
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
            context = with_given(service.context, phone_key=None, sources=service.sources)
            yield Driver(service, client, clock, context, folder / "t.db")
