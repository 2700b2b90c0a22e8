"""Several receivers and workers on one database: together they are as good as one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.util import await_only

from app.context.context import AppContext
from app.database.locks import LINKING, REFUSING, take_lock
from app.database.statements import PlainConnection, Rows, run
from app.orders import ledger_store, refold
from app.orders.ledger_store import feed
from app.orders.read_orders import explain_order
from app.orders.record_store import add_records
from app.orders.refold import CLAIM, gathered, refold_due
from app.receiving import append_store
from app.receiving.append_store import Arrival, keep_arrivals, mark_due
from app.receiving.due_store import Due, claim_orders, due_orders
from app.receiving.inbox import Inbox
from app.receiving.refusal_store import delete_rejections
from reconcile.instants import SECOND, Instant
from reconcile.ledger.events import ClaimKind
from tests.database.builders import (
    arrival,
    change,
    checked,
    commit,
    context,
    events_in,
    fetch,
    histories,
    keep,
    opened,
    rejection,
    rows,
    said,
    session_opened,
)
from tests.database.contract_ledgers import WINDOW_S, mark, paid
from tests.postgres.conftest import ask_in_loop, migrate
from tests.reconcile.build import DUE, T, seconds
from tests.waiting import PATIENCE_S, soon

pytestmark = pytest.mark.postgres

ROUNDS = 25
SKEW_S = 300


@asynccontextmanager
async def several(url: str, count: int = 2, **settings: Any) -> AsyncIterator[list[Inbox]]:
    """Open so many services on one database, each with connections and a queue of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(url, **settings)) for _ in range(count)]


async def at_once(stores: list[Inbox], *items: Arrival) -> list[str]:
    """Keep one arrival in each service, at the same instant; return the verdicts."""
    pairs = zip(stores, items, strict=True)
    kept = await asyncio.gather(*(keep(inbox, item) for inbox, item in pairs))
    return [verdict for (verdict,) in kept]


# --- receiving ------------------------------------------------------------------------------------


async def test_of_two_receivers_one_stores_an_event(url: str) -> None:
    """The other knows that it is a duplicate, or another body."""
    async with several(url) as stores:
        for number in range(ROUNDS):
            same = said(f"same{number}", order="A")
            verdicts = await at_once(stores, arrival(same), arrival(same))
            assert sorted(verdicts) == ["duplicate", "stored"]
            one, other = (said(f"other{number}", order=order) for order in "AB")
            verdicts = await at_once(stores, arrival(one), arrival(other))
            assert sorted(verdicts) == ["duplicate_with_different_body", "stored"]
        kept = await rows(stores[0], "SELECT count(*) FROM deliveries WHERE verdict = 'stored'")
        assert kept == [(2 * ROUNDS,)]


async def test_a_payment_named_for_two_orders_at_once_is_contested(url: str) -> None:
    async with several(url) as stores:
        for n in range(ROUNDS):
            one = said(f"a{n}", order=f"A{n}", payment=f"p{n}")
            other = said(f"b{n}", order=f"B{n}", payment=f"p{n}")
            await at_once(stores, arrival(one), arrival(other))
            found = await histories(stores[0], [f"A{n}", f"B{n}"])
            assert [events_in(each) for each in found.values()] == [{one.key, other.key}] * 2


async def test_an_orphan_is_adopted_by_a_link_made_at_the_same_instant(url: str) -> None:
    async with several(url) as stores:
        for n in range(ROUNDS):
            orphan = said(f"n{n}", session=f"s{n}", payment=f"p{n}")
            naming = said(f"a{n}", order=f"A{n}", payment=f"p{n}")
            await at_once(stores, arrival(orphan), arrival(naming))
            found = await histories(stores[0], [f"A{n}"])
            assert events_in(found[f"A{n}"]) == {orphan.key, naming.key}


async def test_an_orphan_is_adopted_by_a_record_made_at_the_same_instant(url: str) -> None:
    async def tell(inbox: Inbox, number: int) -> None:
        await commit(inbox, add_records, [session_opened(f"A{number}", f"s{number}")])

    async with several(url) as stores:
        for n in range(ROUNDS):
            orphan = said(f"n{n}", session=f"s{n}")
            sent = keep(stores[0], arrival(orphan))
            await asyncio.gather(sent, tell(stores[1], n))
            assert events_in((await histories(stores[0], [f"A{n}"]))[f"A{n}"]) == {orphan.key}


async def test_several_receivers_keep_no_more_rejections_than_one(url: str) -> None:
    async with several(url, rejections_max_count=20) as stores:
        for _ in range(8):
            items = [[rejection() for _ in range(4)] for _ in stores]
            await asyncio.gather(*(keep(s, *some) for s, some in zip(stores, items, strict=True)))
            assert (await rows(stores[0], "SELECT count(*) FROM rejections"))[0][0] <= 20


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_a_batch_that_waited_sees_the_other(empty_url: str, isolation: str) -> None:
    """Whatever isolation the server has by default."""
    await migrate(empty_url)
    name = make_url(empty_url).database
    await ask_in_loop(
        empty_url, f"ALTER DATABASE {name} SET default_transaction_isolation TO '{isolation}'"
    )
    same = said("e1", order="A", payment="p")
    async with opened(empty_url) as one, opened(empty_url) as other:
        async with one.database.writing() as connection:
            await keep_arrivals(connection, [arrival(same)])
            waiting = asyncio.create_task(keep(other, arrival(same)))
            await until_one_waits(empty_url)
        assert await waiting == ["duplicate"]


async def until_one_waits(url: str) -> None:
    sql = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    await soon(lambda: ask_in_loop(url, sql))


# --- folding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("counted", [0, 1, 6])
async def test_workers_share_the_due_orders(url: str, counted: int) -> None:
    """None waits for another or takes more than it asked for, whatever the planner knows of the
    table."""
    due = [arrival(said(f"e{n}", order=f"O{n}"), at=n) for n in range(6)]
    async with several(url) as (one, other):
        await keep(one, *due[:counted])
        await change(one, "ANALYZE order_due")
        await keep(one, *due[counted:])
        words: dict[str, Any] = {"now": seconds(9), "limit": 3, "until": seconds(39)}
        async with (
            asyncio.timeout(PATIENCE_S),
            one.database.writing() as first,
            other.database.writing() as second,
        ):
            for connection in (first, second):
                for way in ("hashjoin", "mergejoin", "material"):
                    await connection.execute(text(f"SET LOCAL enable_{way} = off"))
            taken = [await claim_orders(c, **words) for c in (first, second)]
        names = [sorted(due.order for due in some) for some in taken]
        assert names == [["O0", "O1", "O2"], ["O3", "O4", "O5"]]


async def test_orders_of_a_dead_worker_come_due(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(*arguments: Any) -> Any:
        raise RuntimeError("planned")

    async with several(url) as (one, other):
        await keep(one, arrival(said("e1", order="A")))
        with monkeypatch.context() as patch:
            patch.setattr(refold, "gathered", die)
            with pytest.raises(RuntimeError, match="planned"):
                await refold_due(context(one, at=1), limit=10)
        assert await refold_due(context(other, at=1 + CLAIM // SECOND - 1), limit=10) == 0
        assert await refold_due(context(other, at=1 + CLAIM // SECOND), limit=10) == 1
        assert len(await published(other)) == 1


async def test_new_evidence_makes_a_taken_order_due_at_once(url: str) -> None:
    async with several(url) as (one, other):
        await keep(one, arrival(said("e1", order="A")))
        await commit(one, claim_orders, now=seconds(1), limit=1, until=seconds(31))
        await keep(other, arrival(paid("A"), at=2))
        assert await mark(other, "A") == (seconds(2), 2)


async def test_a_slow_worker_publishes_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = asyncio.Barrier(2)

    async def unclaimed(at: AppContext, *, now: Instant, limit: int) -> list[Due]:
        async with at.database.reading() as connection:
            found = await run(connection, due_orders, now=now, limit=limit)
        await both.wait()
        return found

    monkeypatch.setattr(refold, "_taken", unclaimed)
    async with several(url) as stores:
        for number in range(ROUNDS):
            await keep(stores[0], arrival(said(f"e{number}", order=f"O{number}")))
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(refold_due(context(s, at=1), limit=9) for s in stores))
            assert len(await published(stores[0])) == number + 1


async def test_a_slow_worker_publishes_nothing_of_an_order_whose_evidence_came_with_another(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence of a contested payment counts for both orders. A worker that has not seen it may
    publish neither."""

    def capture(event_id: str, order: str, payment: str) -> Arrival:
        words: dict[str, Any] = {"order": order, "payment": payment, "money": DUE}
        return arrival(said(event_id, "succeeded", order_money=DUE, **words))

    def refund(number: int) -> Arrival:
        words: dict[str, Any] = {"payment": "P", "money": DUE, "movement": f"r{number}"}
        return arrival(said(f"r{number}", "refunded", **words), at=3)

    async def said_of_b(inbox: Inbox) -> list[tuple[str, int]]:
        sql = "SELECT outcome, fulfillable FROM revisions WHERE order_key='B' ORDER BY seq"
        return [(outcome, fulfillable) for outcome, fulfillable in await rows(inbox, sql)]

    async with several(url) as (one, other):
        for each in (capture("a", "A", "P"), capture("b", "B", "P"), capture("q", "B", "Q")):
            await keep(one, each)
        await refold_due(context(one, at=1), limit=10)
        await keep(one, arrival(said("a2", order="A"), at=2))

        async def slowly(*given: Any) -> Any:
            found = await gathered(*given)
            monkeypatch.setattr(refold, "gathered", gathered)
            await keep(other, refund(1), refund(2))
            await refold_due(context(other, at=4), limit=10)
            return found

        monkeypatch.setattr(refold, "gathered", slowly)
        await refold_due(context(one, at=4), limit=10)
        assert await said_of_b(one) == [("succeeded", 1), ("unresolved", 0)]
        assert (await explain_order(context(one, at=4), "B")).outcome == "unresolved"


@pytest.mark.parametrize("claim", ["pending", "succeeded"])
async def test_an_event_that_another_reader_appends_meanwhile_is_judged_again(
    url: str, monkeypatch: pytest.MonkeyPatch, claim: ClaimKind
) -> None:
    """Deliveries are written before the lock, by what was known then."""
    event = said("e1", order="A")
    async with several(url, 2) as (one, two):

        def take_last(connection: PlainConnection, number: int) -> None:
            monkeypatch.setattr(append_store, "take_lock", take_lock)
            await_only(keep(two, arrival(event)))
            take_lock(connection, number)

        monkeypatch.setattr(append_store, "take_lock", take_last)
        (verdict,) = await keep(one, arrival(said("e1", claim, order="A"), at=1))
        found = await rows(one, "SELECT verdict, body IS NULL FROM deliveries ORDER BY received_at")
    known = claim == event.claim
    assert verdict == ("duplicate" if known else "duplicate_with_different_body")
    assert found == [("stored", False), (verdict, known)]


def test_marks_are_touched_in_the_order_of_their_keys() -> None:
    asked: list[Sequence[Any]] = []

    class Asked:
        dialect = "postgresql"
        spread = False

        def ask(self, _sql: str, values: Sequence[Any] = ()) -> Rows:
            asked.append(values)
            return []

    mark_due(Asked(), {"B": Instant(1), "C": Instant(2), "A": Instant(3)})
    assert [columns[0] for columns in asked] == [["A", "B", "C"]]


async def test_receivers_and_workers_never_wait_in_a_circle(url: str) -> None:
    """None is turned away, and the ledgers are what the histories give."""
    names = [f"O{number:03}" for number in range(150)]

    async def receive(inbox: Inbox, name: str, *, backwards: bool) -> None:
        for number in range(8):
            orders = names[::-1] if backwards else names
            await keep(inbox, *(arrival(said(f"{name}{number}{o}", order=o)) for o in orders))

    async def work(inbox: Inbox) -> None:
        for _ in range(12):
            await refold_due(context(inbox, at=1), limit=300)

    async with several(url, 4) as stores:
        await asyncio.gather(
            receive(stores[0], "a", backwards=True), receive(stores[1], "b", backwards=False),
            work(stores[2]), work(stores[3]),
        )  # fmt: skip
        while await refold_due(context(stores[0], at=1 + CLAIM // SECOND), limit=300):
            pass
        report = await checked(context(stores[0], at=2))
        assert report.orders == 150
        assert [problem for problem in report.problems if "ledger" in problem] == []


# --- the feed -------------------------------------------------------------------------------------


async def published(inbox: Inbox, *, after: int = 0) -> list[tuple[int, str]]:
    """Return positions and orders of the feed."""
    return [(r.seq, r.order) for r in await fetch(inbox, feed, after=after, limit=1000)]


async def read_while(inbox: Inbox, work: asyncio.Future[Any]) -> list[tuple[int, str]]:
    """Read from a cursor again and again until the work is done."""
    seen: list[tuple[int, str]] = []
    ending = False
    while not ending:
        ending = work.done()
        seen += await published(inbox, after=seen[-1][0] if seen else 0)
        await asyncio.sleep(0)
    return seen


async def feed_of_three_workers(url: str) -> list[list[tuple[int, str]]]:
    """Read with four readers while three workers publish forty orders, some of them slowly."""

    async def work(inbox: Inbox, worker: int) -> None:
        while await refold_due(context(inbox, at=1), limit=2 + worker):
            pass

    async with several(url, 4) as stores:
        names = [f"O{number:02}" for number in range(40)]
        await keep(stores[0], *(arrival(said(name, order=name)) for name in names))
        working = asyncio.gather(*(work(inbox, n) for n, inbox in enumerate(stores[:3])))
        seen = await asyncio.gather(*(read_while(inbox, working) for inbox in stores))
        return list(seen)


async def test_every_reader_sees_one_feed_without_gaps(url: str) -> None:
    seen = await feed_of_three_workers(url)
    assert [place for place, _ in seen[0]] == list(range(1, 41))
    assert seen == [seen[0]] * 4


@pytest.mark.soak
async def test_control_numbers_of_a_sequence_make_readers_miss_revisions(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count()

    def from_a_sequence(connection: PlainConnection, *, revisions: int, **_: Any) -> int:
        sql = "SELECT min(nextval('elsewhere.places')) FROM generate_series(1, ?::int)"
        rows = connection.ask(sql, (revisions,))
        if next(calls) % 3 == 0:
            connection.ask("SELECT pg_sleep(0.2)")  # meanwhile others take numbers, and commit
        return int(rows[0][0])

    async with opened(url) as inbox, inbox.database.writing() as connection:
        # Beside the schema of ours, in which nothing may lie that no migration made.
        await connection.execute(text("CREATE SCHEMA elsewhere"))
        await connection.execute(text("CREATE SEQUENCE elsewhere.places"))
    monkeypatch.setattr(ledger_store, "tally", from_a_sequence)
    try:
        seen = await feed_of_three_workers(url)
    finally:
        async with opened(url) as inbox, inbox.database.writing() as connection:
            await connection.execute(text("DROP SCHEMA elsewhere CASCADE"))
    assert any(places != seen[0] for places in seen) or len(seen[0]) < 40


# --- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slow", "fast"), [(-SKEW_S, 0), (0, SKEW_S), (-SKEW_S, SKEW_S)])
async def test_deliveries_of_a_receiver_with_a_fast_clock_are_published_at_once(
    url: str, slow: int, fast: int
) -> None:
    async with several(url) as (one, other):
        await keep(one, arrival(said("e1", order="A", payment="p-A"), at=slow))
        await keep(other, arrival(paid("A"), at=fast))
        for at in (slow, 0, fast):
            ledger = await explain_order(context(one, at=at), "A")
            assert ledger.outcome == "succeeded"
        await refold_due(context(one, at=0), limit=10)
        (revision,) = await fetch(one, feed, after=0, limit=10)
        assert revision.outcome == "succeeded"
        assert (await mark(one, "A"))[0] is None


async def test_a_worker_whose_clock_is_behind_misses_nothing(url: str) -> None:
    async with several(url) as (one, other):
        await keep(one, arrival(said("e1", order="A", occurred_at=T), at=SKEW_S))
        assert await refold_due(context(other, at=0), limit=10) == 0
        assert await refold_due(context(other, at=SKEW_S), limit=10) == 1
        assert await refold_due(context(other, at=WINDOW_S), limit=10) == 1
        assert len(await published(one)) == 2


async def test_a_connection_that_dies_gives_its_locks_back(url: str) -> None:
    async with several(url) as (one, other):
        blocked = asyncio.Event()

        async def hang() -> None:
            async with one.database.writing() as connection:
                await run(connection, take_lock, LINKING)
                blocked.set()
                await asyncio.sleep(3600)

        hanging = asyncio.create_task(hang())
        await blocked.wait()
        waiting = asyncio.create_task(keep(other, arrival(said("e1", order="A"))))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        async with other.database.reading() as connection:
            await connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
                    "AND granted AND objid = 7411003"
                )
            )
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting == ["stored"]
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)


async def test_reverifying_and_trimming_a_rejection_never_deadlock(url: str) -> None:
    begun, trimmed = asyncio.Event(), asyncio.Event()

    async def trim(inbox: Inbox) -> None:
        async with inbox.database.writing() as connection:
            for lock in (LINKING, REFUSING):
                await run(connection, take_lock, lock)
            begun.set()
            await asyncio.sleep(0.3)
            await connection.execute(text("DELETE FROM rejections"))
            trimmed.set()

    async def judge_again(inbox: Inbox, name: str) -> set[str]:
        await begun.wait()
        async with inbox.database.writing() as connection:
            gone = await delete_rejections(connection, [name])
            await keep_arrivals(connection, [arrival(said("e1", order="A"))])
        return gone

    async with several(url) as (one, two):
        refused = rejection()
        await keep(one, refused)
        _, gone = await asyncio.gather(trim(one), judge_again(two, refused.delivery_id))
        assert trimmed.is_set()
        assert gone == set()
