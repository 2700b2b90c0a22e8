"""What a provider does not sign counts only after the provider itself was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import bootstrap
from app.operations import confirm_events
from app.operations.refold import refold_until_quiet
from app.operations.reindex import reindex
from app.outbound.http import outgoing_client
from reconcile.instants import HOUR, SECOND
from tests.app.web.driving import Driver, driving
from tests.reconcile.build import T

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
            return httpx2.Response(answer, content=_stream(b""))
        return httpx2.Response(200, content=_stream(json.dumps(answer).encode()))


async def _stream(body: bytes) -> AsyncIterator[bytes]:
    """A body as the network brings it."""
    yield body


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A service whose only source is unsigned, with this provider behind it."""
    path = tmp_path / "weak.toml"

    def make(provider: Provider, profile: str = PROFILE) -> Any:
        path.write_text(profile)
        transport = httpx2.MockTransport(provider)
        monkeypatch.setattr(
            bootstrap,
            "outgoing_client",
            lambda timeout_s: outgoing_client(timeout_s=timeout_s, transport=transport),
        )
        credentials = json.dumps({"api_key": "k-api-0123456789", "subscription": "sub-987"})
        return driving(
            tmp_path,
            SOURCES__WEAK__PROFILE=str(path),
            SOURCES__WEAK__CREDENTIALS=credentials,
        )

    return make


PAID = {"id": "pay_9", "state": "COMPLETE", "order": "ORD-9", "amount": 700}


async def outcome(driver: Driver) -> str:
    """The outcome of ORD-9 now."""
    await refold_until_quiet(driver.desk, limit=100, progress=lambda count: None)
    return str((await driver.api("GET", "/orders/ORD-9")).json()["outcome"])


async def told(driver: Driver, document: dict[str, Any]) -> str:
    """Deliver an unsigned event; its verdict."""
    return str((await driver.send(document, [], source="weak")).json()["verdict"])


async def until(driver: Driver, wanted: str) -> None:
    """Wait until the order has this outcome."""
    async with asyncio.timeout(20):
        while await outcome(driver) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def nothing_waits(driver: Driver) -> None:
    """Wait until no event is to be asked about."""
    async with asyncio.timeout(20):
        while driver.rows("SELECT count(*) FROM confirmations") != [(0,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def questions(driver: Driver, provider: Provider, count: int) -> None:
    """Let hours go by until the provider was asked so often."""
    async with asyncio.timeout(20):
        while len(provider.asked) < count:
            await asyncio.sleep(0.05)
            if provider.asked:
                driver.clock.put(driver.clock.now() + HOUR)


async def test_it_counts_once_the_provider_confirms(asking: Any) -> None:
    """Pending with the reason at first; paid after the provider's own word, asked at its fixed
    host with the credentials, and nowhere that the event names."""
    provider = Provider(httpx2.ConnectError("down"), {"state": "COMPLETE", "amount": 700})
    async with asking(provider) as driver:
        evil = {**PAID, "url": "https://evil.example"}
        assert await told(driver, evil) == "stored"
        ledger = (await driver.api("GET", "/orders/ORD-9")).json()
        assert ledger["outcome"] == "pending"
        assert not ledger["fulfillable"]
        assert "has not confirmed it yet" in ledger["explanation"][0]
        await questions(driver, provider, 1)
        driver.clock.put(T + 6 * SECOND)
        await until(driver, "succeeded")
        request = provider.asked[-1]
        assert str(request.url) == "https://sandbox.provider.example/v1/payments/pay_9"
        assert request.headers["authorization"] == "Bearer k-api-0123456789"
        assert request.headers["x-subscription"] == "sub-987"
        await nothing_waits(driver)
        kept = driver.rows("SELECT headers, body FROM deliveries WHERE source='weak'")
        assert not any("k-api" in str(row) or "sub-987" in str(row) for row in kept)


async def test_a_forged_success_is_settled_by_the_denial(asking: Any) -> None:
    """What the provider calls failed is failed, whatever anybody wrote to us."""
    provider = Provider({"state": "FAILED", "amount": 700})
    async with asking(provider) as driver:
        await told(driver, PAID)
        await until(driver, "failed")


async def test_a_payment_that_the_provider_does_not_know_moves_no_money(asking: Any) -> None:
    """Asked several times, since some are slow to know; then the word is void and time decides."""
    provider = Provider(404)
    async with asking(provider) as driver:
        await told(driver, PAID)
        await questions(driver, provider, confirm_events.SURE_NOT_FOUND)
        await until(driver, "timed_out")
        await nothing_waits(driver)
        assert len(provider.asked) == confirm_events.SURE_NOT_FOUND


async def test_asking_survives_a_restart_and_a_repeated_answer_is_kept_once(asking: Any) -> None:
    """A pending answer is asked again later, by the next process too; equal answers are one."""
    provider = Provider({"state": "PENDING"})
    async with asking(provider) as driver:
        await told(driver, PAID)
        await questions(driver, provider, 2)
        later = driver.clock.now() + HOUR
    provider.answers = [{"state": "COMPLETE", "amount": 700}]
    async with asking(provider) as driver:
        driver.clock.put(later)
        await until(driver, "succeeded")
        fetched = driver.rows("SELECT verdict FROM deliveries WHERE headers LIKE ':fetched%'")
        assert fetched == [("stored",), ("stored",)]


async def test_a_status_we_cannot_use_changes_nothing(asking: Any) -> None:
    """Refused credentials, trouble and redirects: pending, and asked again."""
    provider = Provider(401, 403, 302, 500, 429)
    async with asking(provider) as driver:
        await told(driver, PAID)
        await questions(driver, provider, 6)
        assert await outcome(driver) == "pending"


async def test_an_event_that_names_nothing_is_asked_about_no_more(
    asking: Any,
) -> None:
    """What the address needs is missing: nothing is sent, and its order says that it waits."""
    provider = Provider(500)
    async with asking(provider, PROFILE.replace('payment = "json:id"\n', "")) as driver:
        await told(driver, PAID)
        await nothing_waits(driver)
        assert await outcome(driver) == "pending"
        assert provider.asked == []


async def test_the_index_is_rebuilt_with_what_was_fetched(asking: Any) -> None:
    """reindex reads kept answers as answers; the order stays paid."""
    provider = Provider({"state": "COMPLETE", "amount": 700})
    async with asking(provider) as driver:
        await told(driver, PAID)
        await until(driver, "succeeded")
        before = driver.rows("SELECT * FROM events ORDER BY event_id")
        sources = driver.service.confirmer.sources
        done = await reindex(driver.desk, sources=sources, progress=lambda count: None)
        assert (done.events, done.unreadable) == (2, 0)
        told_again = driver.rows("SELECT * FROM events ORDER BY event_id")
        assert [row[1:] for row in told_again] == [row[1:] for row in before]
        assert await outcome(driver) == "succeeded"


async def test_the_same_word_again_is_asked_about_again(asking: Any) -> None:
    """Some providers send equal bytes for every change: a redelivery is a new question."""
    provider = Provider({"state": "COMPLETE", "amount": 700}, {"state": "FAILED", "amount": 700})
    async with asking(provider) as driver:
        await told(driver, PAID)
        await until(driver, "succeeded")
        await nothing_waits(driver)
        assert await told(driver, PAID) == "duplicate"
        async with asyncio.timeout(20):
            while driver.rows("SELECT count(*) FROM events") != [(3,)]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert len(provider.asked) == 2
