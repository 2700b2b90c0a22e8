"""A service with unsigned sources, and the provider behind them: for tests of asking back."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.http import outgoing_client
from app.orders.refold import refold_until_quiet
from app.wiring import service as wiring
from reconcile.instants import HOUR
from tests.api.driving import Driver, driving
from tests.waiting import soon

PROFILE = """
confirm = "fetch_back"
[signature]
mac = "none"
[event]
id = "{json:id}:{json:state}"
kind = "json:state"
order = "json:order"
payment = "json:id"
[amounts]
unit = "major"
payment = "json:amount"
payment_currency = "text:KES"
[claims]
COMPLETE = "succeeded"
FAILED = "declined"
[fetch_back]
url = "https://api.provider.example/v1/payments/{payment}"
sandbox_url = "https://sandbox.provider.example/v1/payments/{payment}"
auth = "bearer"
credential = "api_key"
kind = "json:state"
order = "json:order"
amount = "json:amount"
currency = "text:KES"
[fetch_back.headers]
"x-subscription" = "{credential:subscription}"
[fetch_back.claims]
COMPLETE = "succeeded"
FAILED = "declined"
PENDING = "pending"
"""

Answer = Callable[[httpx2.Request], httpx2.Response]


class Provider:
    """The provider's status endpoint; `answers` are given in turn, the last for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx2.Response(answer, content=stream(b""))
        return httpx2.Response(200, content=stream(json.dumps(answer).encode()))


async def stream(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body as the network brings it."""
    yield body


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Make services whose two sources are unsigned, with one provider behind both."""
    path = tmp_path / "weak.toml"

    def make(provider: Any, profile: str = PROFILE, **more: Any) -> Any:
        path.write_text(profile)
        transport = httpx2.MockTransport(provider)
        monkeypatch.setattr(
            wiring,
            "outgoing_client",
            lambda timeout_s: outgoing_client(timeout_s=timeout_s, transport=transport),
        )
        credentials = json.dumps({"api_key": "k-api-0123456789", "subscription": "sub-987"})
        return driving(
            tmp_path,
            SOURCES__WEAK__PROFILE=str(path),
            SOURCES__WEAK__CREDENTIALS=credentials,
            SOURCES__SECOND__PROFILE=str(path),
            SOURCES__SECOND__CREDENTIALS=credentials,
            **more,
        )

    return make


PAID = {"id": "pay_9", "state": "COMPLETE", "order": "ORD-9", "amount": 700}


async def outcome(driver: Driver) -> str:
    """Return the outcome of ORD-9 now."""
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
    return str((await driver.api("GET", "/orders/ORD-9")).json()["outcome"])


async def deliver(driver: Driver, document: dict[str, Any]) -> str:
    """Deliver an unsigned event; its verdict."""
    return str((await driver.send(document, [], source="weak")).json()["verdict"])


async def until(driver: Driver, wanted: str) -> None:
    """Wait until the order has this outcome."""

    async def reached() -> bool:
        return await outcome(driver) == wanted

    await soon(reached)


async def questions(driver: Driver, provider: Provider, count: int) -> None:
    """Let time go by until the provider was asked so often: an hour after each answer."""
    for number in range(1, count + 1):
        await soon(lambda number=number: len(provider.asked) >= number)
        if number < count:
            tried = f"SELECT 1 FROM confirmations WHERE tries >= {number}"
            await soon(lambda tried=tried: driver.rows(tried))
            driver.clock.put(driver.clock.now() + HOUR)


async def waiting(driver: Driver, count: int) -> None:
    """Wait until so many events wait to be asked about."""
    await soon(lambda: driver.rows("SELECT count(*) FROM confirmations") == [(count,)])
