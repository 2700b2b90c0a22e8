"""Asking back is bounded, holds up nobody, and survives lost profiles and rebuilt indexes."""

import asyncio
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config.settings import Settings
from app.orders.reindex import reindex
from app.receiving import confirm
from app.receiving.inbox import open_inbox
from reconcile.instants import HOUR
from tests.api.driving import driving, event
from tests.contexts import with_sources
from tests.receiving.asking import (
    PAID,
    PROFILE,
    Provider,
    asking,
    deliver,
    outcome,
    questions,
    stream,
    until,
    waiting,
)
from tests.waiting import soon

__all__ = ["asking"]


async def test_only_so_many_are_asked_about(
    asking: Any, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    """Beyond the bound those go that were asked about most; a new one is asked about all the
    same. Each is kept as a delivery."""
    monkeypatch.setattr(confirm, "MAX_WAITING", 5)
    provider = Provider(500)
    async with asking(provider) as driver:
        for number in range(12):
            await deliver(driver, {**PAID, "id": f"forged_{number}"})
        await waiting(driver, 5)
        provider.answers = [{"state": "COMPLETE", "order": "ORD-9", "amount": 700}]
        await deliver(driver, PAID)
        await until(driver, "succeeded")
        assert driver.rows(
            "SELECT count(*) FROM deliveries WHERE headers NOT LIKE ':fetched%'"
        ) == [(13,)]
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    given_up = [each for each in logged if each["event"].startswith("too many events are waiting")]
    assert given_up
    assert all((each["source"], each["count"] > 0) == ("weak", True) for each in given_up)


@pytest.mark.parametrize("whose", ["", "_PER_ADDRESS"])
async def test_a_flood_of_unsigned_requests_is_bounded(asking: Any, whose: str) -> None:
    """Beyond the allowance senders are asked to wait, and nothing is kept; what is signed is taken
    all the same."""
    async with asking(Provider(500), **{f"UNSIGNED_PER_MINUTE{whose}": "20"}) as driver:
        sent = [await driver.send({**PAID, "id": f"p{n}"}, [], source="weak") for n in range(80)]
        statuses = [answer.status_code for answer in sent]
        assert statuses[:20] == [200] * 20
        assert 429 in statuses
        refused = sent[statuses.index(429)]
        assert refused.headers["retry-after"] == "60"
        assert driver.rows("SELECT count(*) FROM deliveries") == [(statuses.count(200),)]
        assert (await driver.send(event("e1"))).status_code == 200


async def test_an_unsigned_request_is_small(asking: Any) -> None:
    """What no callback needs is refused."""
    async with asking(Provider(500)) as driver:
        big = {**PAID, "more": "x" * 66_000}
        assert (await driver.send(big, [], source="weak")).status_code == 413
        many = {**PAID, "more": [0] * 2_000}
        assert (await driver.send(many, [], source="weak")).status_code == 413
        assert await deliver(driver, {**PAID, "more": "x" * 60_000}) == "stored"
        assert driver.rows("SELECT verdict FROM rejections") == [("body_too_large",)] * 2


async def test_a_source_whose_profile_asks_no_more_loses_no_question(
    asking: Any, tmp_path: Path
) -> None:
    """What waits is asked about when the profile, or the source, is back."""
    provider = Provider(500)
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await questions(driver, provider, 1)
        later = driver.clock.now() + HOUR
    other = tmp_path / "other.toml"
    other.write_text(PROFILE)
    environment: dict[str, Any] = {
        "SOURCES__OTHER__PROFILE": str(other),
        "SOURCES__OTHER__CREDENTIALS": '{"api_key": "k", "subscription": "s"}',
    }
    async with driving(tmp_path, **environment) as driver:
        driver.clock.put(later)
        await driver.send({**PAID, "id": "other"}, [], source="other")
        tries = "SELECT tries FROM confirmations WHERE source='other'"
        await soon(lambda: driver.rows(tries) != [(0,)])
        waits = driver.rows("SELECT count(*) FROM confirmations WHERE source='weak'")
        assert waits == [(1,)]
    provider.answers = [{"state": "COMPLETE", "order": "ORD-9", "amount": 700}]
    async with asking(provider) as driver:
        driver.clock.put(later)
        await until(driver, "succeeded")


async def test_one_provider_that_hangs_holds_up_no_other(asking: Any) -> None:
    """Each source is asked about by itself."""
    go_on = asyncio.Event()

    async def answering(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("slow"):
            await go_on.wait()
        content = b'{"state": "COMPLETE", "order": "ORD-9", "amount": 700}'
        return httpx2.Response(200, content=stream(content))

    async with asking(answering) as driver:
        for number in range(20):
            await driver.send({**PAID, "id": f"{number}slow"}, [], source="second")
        await deliver(driver, PAID)
        await until(driver, "succeeded")
        go_on.set()


async def test_the_index_is_rebuilt_with_what_was_fetched(asking: Any) -> None:
    """Check that reindex reads kept answers as answers, and that the order stays paid."""
    provider = Provider({"state": "COMPLETE", "order": "ORD-9", "amount": 700})
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await until(driver, "succeeded")
        before = driver.rows("SELECT * FROM events ORDER BY event_id")
        sources = driver.service.sources
        done = await reindex(with_sources(driver.context, sources), progress=lambda count: None)
        assert (done.events, done.unreadable) == (2, 0)
        received_again = driver.rows("SELECT * FROM events ORDER BY event_id")
        assert [row[1:] for row in received_again] == [row[1:] for row in before]
        assert await outcome(driver) == "succeeded"
        assert driver.rows("SELECT count(*) FROM confirmations") == [(0,)]


async def test_a_rebuilt_index_asks_about_what_has_no_final_answer(asking: Any) -> None:
    """What was given up or waits is asked about, what is settled is not, nor what is no event."""
    provider = Provider({"state": "COMPLETE", "order": "ORD-9", "amount": 700})
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await until(driver, "succeeded")
        await waiting(driver, 0)
        provider.answers = [{"state": "PENDING"}]
        await deliver(driver, {**PAID, "id": "waits", "order": "O-2"})
        await deliver(driver, {**PAID, "id": "given_up", "order": "O-3"})
        await questions(driver, provider, 3)
    with sqlite3.connect(driver.path) as database:
        database.execute("DELETE FROM confirmations WHERE event_id LIKE 'given_up%'")
        database.execute(
            "INSERT INTO confirmations VALUES ('gone', 'weak', 'd', 1, 1, 1, 0, 0, 0, NULL, NULL)"
        )
    database.close()
    context = driver.context
    async with open_inbox(Settings(database_url=f"sqlite+aiosqlite:///{driver.path}")) as inbox:
        again = inbox.context(clock=context.clock, policy=context.policy)
        sources = driver.service.sources
        await reindex(with_sources(again, sources), progress=lambda count: None)
    found = driver.rows("SELECT event_id, tries > 0 FROM confirmations ORDER BY event_id")
    assert found == [("given_up:COMPLETE", 0), ("waits:COMPLETE", 1)]
