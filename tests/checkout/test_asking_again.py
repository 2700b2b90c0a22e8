"""Requests without an answer are repeated in the background with the stored key."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from app.checkout import ask_session
from app.checkout.ask_session import (
    LONGEST_PAUSE,
    REPORT_AFTER,
    ask_again_due,
    asking_again,
    hold_for,
    pause_after,
)
from app.checkout.client import DENIAL_LASTS_S, CheckoutClient, RetrySettings
from app.context.context import AppContext
from app.core.errors import StoreUnavailable, UnreachableError
from app.core.periodic import PeriodicTask
from app.orders.pending_session_store import PendingSession
from reconcile.instants import DAY, EARLIEST, HOUR, MINUTE, SECOND, Instant, parse_instant
from tests.checkout.conftest import Shop
from tests.checkout.service import EXPIRES, LATE, PHONE, answer, drop, opened, service
from tests.waiting import PATIENCE_S

ONCE = RetrySettings(tries=1, try_s=20.0, total_s=60.0)


async def waiting(shop: Shop) -> list[str]:
    """List the requests that are kept because they have no answer yet."""
    async with shop.inbox.database.reading() as connection:
        return list((await connection.execute(text("SELECT request FROM unanswered"))).scalars())


async def later(shop: Shop, client: CheckoutClient) -> int:
    """Run a pass when everything that waits is due."""
    shop.clock.put(shop.clock.now() + LONGEST_PAUSE)
    return await ask_again_due(shop.context, client)


async def hold(shop: Shop, *, due_at: Instant, until: Instant) -> None:
    """Hold every waiting request, as another process does."""
    async with shop.inbox.database.writing() as connection:
        sql = f"UPDATE unanswered SET due_at={due_at}, held_until={until}"
        await connection.execute(text(sql))


async def a_person_sees_it(shop: Shop) -> bool:
    """Return whether a person sees that the session is unknown."""
    return "session_unknown" in {finding.code for finding in (await shop.ledger()).findings}


async def test_an_unknown_session_is_found_with_the_same_key_and_bytes(shop: Shop) -> None:
    async with service(drop, drop, opened(expires_at=LATE)) as pay, pay.client(ONCE) as client:
        unknown = await shop.open(client)
        assert await ask_again_due(shop.context, client) == 0, "not at once"
        assert [await later(shop, client) for _ in range(3)] == [1, 1, 0]
        found = await shop.open(client)
    assert (unknown.state, found.state, found.session) == ("unknown", "opened", "cs_1")
    assert pay.keys == {unknown.key}
    assert len({seen.body for seen in pay.seen}) == 1
    assert await shop.kinds() == ["requested", "unknown", "opened"]


async def test_a_session_that_is_found_too_late_is_reported_as_expired(shop: Shop) -> None:
    """Nobody may be sent to a payment page whose time is over."""
    async with service(drop, opened()) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        shop.clock.put(parse_instant(EXPIRES))
        found = await shop.open(client)
    assert (found.state, found.session, found.created) == ("expired", "cs_1", False)
    assert "ask for a new payment at" in found.sentence


async def test_the_request_is_kept_until_it_is_answered_and_no_longer(shop: Shop) -> None:
    async with service(drop, answer(422, {"detail": "No."})) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        (kept,) = await waiting(shop)
        assert PHONE in kept
        await later(shop, client)
    assert await waiting(shop) == []
    assert await shop.kinds() == ["requested", "unknown", "refused"]


async def test_a_request_whose_process_died_is_asked_again(shop: Shop) -> None:
    """A request held by a dead process is free once that process would have ended at the latest."""
    async with service(drop, opened()) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        held = shop.clock.now() + MINUTE
        await hold(shop, due_at=EARLIEST, until=held)
        assert await ask_again_due(shop.context, client) == 0
        shop.clock.put(held + SECOND)
        assert await ask_again_due(shop.context, client) == 1
    assert await shop.kinds() == ["requested", "unknown", "opened"]


@pytest.mark.parametrize("by", ["the task", "a caller"])
async def test_a_clock_that_was_ahead_holds_nothing_up(shop: Shop, by: str) -> None:
    """A request postponed or held far beyond the longest hold is due at once."""
    async with service(drop, opened()) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        longest = shop.clock.now() + hold_for(client) + LONGEST_PAUSE
        for until, asked in ((longest, 0), (longest + DAY, 1)):
            await hold(shop, due_at=until, until=until)
            if by == "the task":
                assert await ask_again_due(shop.context, client) == asked
            elif asked:
                await shop.open(client)
    assert await shop.kinds() == ["requested", "unknown", "opened"]


async def test_only_passes_in_which_the_service_answered_count(shop: Shop) -> None:
    away = [drop] * 6 + [answer(503)] * 6
    async with service(*away, answer(429)) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        for _ in range(len(away) + REPORT_AFTER - 2):
            await later(shop, client)
        assert not await a_person_sees_it(shop)
        await later(shop, client)
        assert await a_person_sees_it(shop)
        assert len(pay.seen) == len(away) + REPORT_AFTER
        await later(shop, client)
    assert await shop.kinds() == ["requested", "unknown", "unknown"]


async def test_an_error_with_one_request_waits_for_the_others(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error the process may close the store, so nothing may still be using it."""
    ended = []

    async def passing(_context: AppContext, _client: CheckoutClient, row: PendingSession) -> None:
        if row.order == "ORD-1":
            raise StoreUnavailable("planned", reason="disk")
        await asyncio.sleep(0.05)
        ended.append(row.order)

    async with service(drop, drop) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        await shop.open(client, order="ORD-2")
        monkeypatch.setattr(ask_session, "_pass", passing)
        with pytest.raises(StoreUnavailable, match="planned"):
            await later(shop, client)
        assert ended == ["ORD-2"]


async def test_a_spent_key_is_not_sent_and_a_person_is_notified(shop: Shop) -> None:
    async with service(drop) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        shop.clock.put(shop.clock.now() + 24 * HOUR)
        assert await ask_again_due(shop.context, client) == 1
    assert len(pay.seen) == 1
    assert await waiting(shop) == []
    assert await a_person_sees_it(shop)


async def test_a_refused_token_is_reported_until_it_is_accepted_again(shop: Shop) -> None:
    async with service(answer(401), answer(403), opened()) as pay, pay.client(ONCE) as client:
        with pytest.raises(UnreachableError):
            await shop.open(client)
        assert client.denied == 401
        await later(shop, client)
        assert client.denied == 403
        await later(shop, client)
        assert client.denied is None
    assert len(pay.seen) == 3  # type: ignore[unreachable] # the client has changed meanwhile
    assert await shop.kinds() == ["requested", "opened"]


async def test_a_refused_token_is_tried_again_every_half_minute(
    shop: Shop,
) -> None:
    script = (*[answer(401)] * 8, opened())
    async with service(*script) as pay, pay.client(ONCE) as client:
        with pytest.raises(UnreachableError):
            await shop.open(client)
        for _ in range(8):
            shop.clock.put(shop.clock.now() + 30 * SECOND)
            assert await ask_again_due(shop.context, client) == 1
    assert len(pay.seen) == 9
    assert await shop.kinds() == ["requested", "opened"]


async def test_a_refused_token_that_is_no_longer_tried_is_forgotten(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A readiness that stays red would keep away the request that could end it."""
    async with service(answer(401)) as pay, pay.client(ONCE) as client:
        with pytest.raises(UnreachableError):
            await shop.open(client)
        until = time.monotonic() + DENIAL_LASTS_S
        assert client.denied == 401
        clock = SimpleNamespace(monotonic=lambda: until)
        monkeypatch.setattr("app.checkout.client.time", clock)
        assert client.denied is None


def test_pauses_grow_to_a_bound() -> None:
    pauses = [pause_after(tries) for tries in (*range(9), 10_000)]
    assert pauses[:3] == [5 * SECOND, 10 * SECOND, 20 * SECOND]
    assert pauses[-2:] == [LONGEST_PAUSE] * 2


@asynccontextmanager
async def asking(shop: Shop, client: CheckoutClient) -> AsyncIterator[PeriodicTask]:
    """Run the task until the block ends."""
    task = asking_again(shop.context, client)
    running = asyncio.ensure_future(task.run())
    try:
        yield task
    finally:
        task.stop()
        await asyncio.wait_for(running, PATIENCE_S)
    assert not task.alive


async def test_the_task_frees_what_its_predecessor_held_and_asks(shop: Shop) -> None:
    async with service(drop, opened()) as pay, pay.client(ONCE) as client:
        await shop.open(client)
        await hold(shop, due_at=EARLIEST, until=shop.clock.now() + MINUTE)
        async with asking(shop, client) as task:
            await asyncio.wait_for(pay.until(2), PATIENCE_S)
            assert task.alive
    assert await shop.kinds() == ["requested", "unknown", "opened"]


async def test_a_caller_waits_for_another_process_and_finds_its_session(shop: Shop) -> None:
    """Two clients stand for two processes, which share nothing but the store."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await go_on.wait()
        await opened("cs_slow")(writer)

    async with service(slow) as pay, pay.client(RetrySettings()) as one, pay.client() as two:
        first = asyncio.ensure_future(shop.open(one))
        await arrived.wait()
        second = asyncio.ensure_future(shop.open(two))
        await asyncio.sleep(0.3)
        assert not second.done()
        go_on.set()
        results = await asyncio.gather(first, second)
    assert len(pay.seen) == 1
    assert [each.session for each in results] == ["cs_slow"] * 2
    assert [each.created for each in results] == [True, False]
