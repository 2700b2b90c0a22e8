"""Contract of every database for folds: due marks, revisions, the feed, the caches."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from app.context.context import AppContext
from app.database.statements import run
from app.orders import ledger_store, refold
from app.orders.counter_store import outcome_counts
from app.orders.published_store import Published
from app.orders.rebuild import refold_all
from app.orders.refold import call_up_early, gathered, refold_due, refold_until_quiet
from app.privacy.consistency_store import differing_counts
from app.receiving.due_store import NEXT_DUE, count_due, due_orders, next_due
from app.receiving.inbox import Inbox
from reconcile.instants import MINUTE
from reconcile.ledger.events import ClaimKind
from reconcile.ledger.fold import fold
from reconcile.ledger.revise import position_of
from tests.database.builders import (
    arrival,
    change,
    context,
    dump,
    fetch,
    histories,
    keep,
    plan_of,
    quiet,
    rows,
    said,
)
from tests.reconcile.build import DUE, T, seconds

WINDOW_S = 35 * 60
"""The payment window and the grace of the default policy."""


async def folded(at: AppContext) -> int:
    """Fold until nothing is due."""
    return await refold_until_quiet(at, limit=3, progress=quiet)


async def revisions(inbox: Inbox, *, after: int = 0, limit: int = 1000) -> list[Published]:
    return await fetch(inbox, ledger_store.feed, after=after, limit=limit)


def paid(order: str, *, event_id: str | None = None) -> Any:
    return said(
        event_id or f"paid-{order}", "succeeded", order=order, payment=f"p-{order}",
        money=DUE, order_money=DUE, occurred_at=T,
    )  # fmt: skip


async def mark(inbox: Inbox, order: str) -> tuple[Any, ...]:
    """Return (due_at, generation) of an order."""
    (found,) = await rows(
        inbox, "SELECT due_at, generation FROM order_due WHERE order_key = :order", order=order
    )
    return found


class LedgerContract:
    """Due marks, publishing and the feed. A subclass gives `url`."""

    async def test_new_evidence_sets_its_order_due(self, inbox: Inbox) -> None:
        """A redelivery does, too. An order that is due already keeps its place."""
        await keep(inbox, arrival(said("e1", order="A"), at=1))
        assert await mark(inbox, "A") == (seconds(1), 1)
        await keep(inbox, arrival(said("e1", order="A"), at=2))
        assert await mark(inbox, "A") == (seconds(1), 2)
        async with inbox.database.reading() as connection:
            assert await run(connection, next_due) == seconds(1)
            assert await count_due(connection, now=seconds(0), enough=9) == 0
            assert await count_due(connection, now=seconds(1), enough=9) == 1
            assert await count_due(connection, now=seconds(1), enough=0) == 0

    async def test_the_next_due_order_is_found_by_its_index(self, inbox: Inbox) -> None:
        assert "ix_order_due_due_at" in await plan_of(inbox, NEXT_DUE)

    async def test_orders_changed_since_an_instant_are_found_by_index(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", order="A")), arrival(paid("B"), at=2))
        await folded(context(inbox, at=3))
        sql = f"SELECT order_key FROM ledgers WHERE {ledger_store.PUBLISHED_BETWEEN}"
        assert "ix_revisions_at" in await plan_of(inbox, sql, {"since": T, "until": seconds(9)})
        async with inbox.database.reading() as connection:
            found = [
                await ledger_store.listed_orders(
                    connection, after="", limit=9, since=since, until=until
                )
                for since, until in ((None, None), (T, None), (seconds(9), None), (None, T))
            ]
        assert found == [["A", "B"], ["A", "B"], [], []]

    @pytest.mark.alike
    async def test_new_evidence_does_not_wait_for_the_deadline(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", order="A")))
        await folded(context(inbox, at=1))
        await keep(inbox, arrival(paid("A"), at=2))
        assert (await mark(inbox, "A"))[0] == seconds(2)

    @pytest.mark.alike
    async def test_news_of_a_contested_payment_sets_both_orders_due(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("a", order="A", payment="p")))
        await folded(context(inbox, at=1))
        await keep(inbox, arrival(said("b", order="B", payment="p"), at=2))
        assert (await mark(inbox, "A"))[0] == seconds(2)
        assert (await mark(inbox, "B"))[0] == seconds(2)

    @pytest.mark.alike
    async def test_a_fold_moves_the_mark_to_the_deadline(self, inbox: Inbox) -> None:
        """A settled order is not due again."""
        await keep(inbox, arrival(said("e1", order="A")), arrival(paid("B")))
        assert await folded(context(inbox, at=1)) == 2
        assert (await mark(inbox, "A"))[0] == T + 35 * MINUTE
        assert (await mark(inbox, "B"))[0] is None
        async with inbox.database.reading() as connection:
            assert await run(connection, next_due) == T + 35 * MINUTE

    async def test_evidence_dated_ahead_by_a_wrong_clock_is_folded_now(self, inbox: Inbox) -> None:
        """A deadline that is ahead stays."""
        await keep(inbox, arrival(said("e1", order="A")))
        await folded(context(inbox, at=1))
        deadline = await mark(inbox, "A")
        await keep(inbox, *(arrival(paid(order), at=9_000) for order in "BCD"))
        now = context(inbox, at=1)
        assert await folded(now) == 0
        assert await call_up_early(now) == 3
        assert await folded(now) == 3
        assert await mark(inbox, "A") == deadline
        assert await call_up_early(now) == 0
        assert sorted(each.order for each in await revisions(inbox)) == list("ABCD")

    @pytest.mark.alike
    async def test_the_deadline_is_published_without_an_event(self, inbox: Inbox) -> None:
        """Once."""
        await keep(inbox, arrival(said("e1", order="A")))
        outcomes = []
        for at in (1, WINDOW_S - 1, WINDOW_S, WINDOW_S + 1, WINDOW_S + 99):
            await folded(context(inbox, at=at))
            outcomes.append([r.outcome for r in await revisions(inbox)])
        assert outcomes == [["pending"], ["pending"], *[["pending", "timed_out"]] * 3]

    @pytest.mark.alike
    async def test_due_orders_come_longest_waiting_first(self, inbox: Inbox) -> None:
        for order, at in (("A", 3), ("B", 1), ("C", 2), ("D", 9)):
            await keep(inbox, arrival(said(order, order=order), at=at))
        async with inbox.database.reading() as connection:
            due = await run(connection, due_orders, now=seconds(5), limit=2)
        assert [each.order for each in due] == ["B", "C"]

    @pytest.mark.alike
    async def test_evidence_between_fold_and_publishing_keeps_the_order_due(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await keep(inbox, arrival(said("e1", order="A")))

        async def late(*arguments: Any) -> Any:
            found = await gathered(*arguments)
            monkeypatch.setattr(refold, "gathered", gathered)
            await keep(inbox, arrival(paid("A")))
            return found

        monkeypatch.setattr(refold, "gathered", late)
        at = context(inbox, at=1)
        await refold_due(at, limit=10)
        assert (await mark(inbox, "A"))[0] is not None
        await folded(at)
        assert [r.outcome for r in await revisions(inbox)][-1] == "succeeded"
        assert (await mark(inbox, "A"))[0] is None

    async def test_two_folders_of_one_order_publish_once(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await keep(inbox, arrival(said("e1", order="A")))

        async def overtaken(*arguments: Any) -> Any:
            found = await gathered(*arguments)
            monkeypatch.setattr(refold, "gathered", gathered)
            await folded(context(inbox, at=WINDOW_S + 5))
            return found

        monkeypatch.setattr(refold, "gathered", overtaken)
        await refold_due(context(inbox, at=1), limit=10)
        assert [r.outcome for r in await revisions(inbox)] == ["timed_out"]
        assert (await outcomes_in(inbox)) == {"timed_out": 1}

    @pytest.mark.alike
    async def test_revisions_have_no_gaps_after_a_failed_publication(self, inbox: Inbox) -> None:
        for number in range(7):
            await keep(inbox, arrival(said(f"e{number}", order=f"O{number}"), at=number))
        with pytest.raises(RuntimeError, match="planned"):
            await published_then_failing(inbox, "O0")
        await folded(context(inbox, at=10))
        await keep(inbox, *(arrival(paid(f"O{number}")) for number in range(5)))
        await folded(context(inbox, at=20))
        found = await revisions(inbox)
        assert [r.seq for r in found] == list(range(1, 13))
        assert [r.order for r in found[:7]] == [f"O{number}" for number in range(7)]
        assert {r.before_outcome for r in found[7:]} == {"pending"}

    async def test_concurrent_publishers_share_one_numbering(self, inbox: Inbox) -> None:
        names = [f"O{number:02}" for number in range(30)]
        await keep(inbox, *(arrival(said(name, order=name)) for name in names))
        await asyncio.gather(*(refold_due(context(inbox, at=1), limit=7) for _ in range(8)))
        await folded(context(inbox, at=1))
        found = await revisions(inbox)
        assert [r.seq for r in found] == list(range(1, 31))
        assert sorted(r.order for r in found) == names

    @pytest.mark.alike
    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_pages_of_any_size_are_the_whole_feed(self, inbox: Inbox, limit: int) -> None:
        await keep(inbox, *(arrival(said(f"e{n}", order=f"O{n}")) for n in range(7)))
        await folded(context(inbox, at=1))
        found: list[Published] = []
        while page := await revisions(inbox, after=found[-1].seq if found else 0, limit=limit):
            assert len(page) <= limit
            found += page
        assert found == await revisions(inbox)
        assert len(found) == 7

    @pytest.mark.alike
    async def test_the_latest_position_is_that_of_the_last_revision(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", order="A")), arrival(said("e2", order="B")))
        await folded(context(inbox, at=1))
        await keep(inbox, arrival(paid("A")))
        await folded(context(inbox, at=2))
        found = await histories(inbox, ["A", "B"])
        at = context(inbox)
        positions = await fetch(inbox, ledger_store.latest_positions, ["A", "B", "C"])
        assert positions == {
            order: position_of(fold(found[order], policy=at.policy, as_of=seconds(2)))
            for order in ("A", "B")
        }

    async def test_orders_are_listed_by_outcome_or_finding_in_order(self, inbox: Inbox) -> None:
        for order in ("B", "A", "D", "C"):
            await keep(inbox, arrival(said(order, order=order)))
        await keep(inbox, arrival(paid("A")), arrival(paid("C")), arrival(paid("C")))
        await folded(context(inbox, at=1))
        async with inbox.database.reading() as connection:
            found = [
                await ledger_store.listed_orders(connection, **{"after": "", "limit": 10, **words})
                for words in LISTINGS
            ]
            assert await outcome_counts(connection) == {"pending": 2, "succeeded": 2}
        listed = ["".join(names) for names in found]
        assert listed == ["ABCD", "BCD", "CD", "AB", "AC", "C", "C", "", "ABCD", "", "", "BD"]

    @pytest.mark.parametrize(
        "seed", [0, *(pytest.param(seed, marks=pytest.mark.alike) for seed in range(1, 5))]
    )
    async def test_the_counters_of_orders_are_what_a_full_count_gives(
        self, inbox: Inbox, seed: int
    ) -> None:
        """After generated histories, folded at any time between, and after a rebuild."""
        chosen = random.Random(seed)
        claims: tuple[ClaimKind, ...] = ("pending", "succeeded", "declined", "refunded", "disputed")
        for at in range(1, 25):
            order, number = chosen.choice("ABCDE"), chosen.randrange(15)
            event = said(f"e{number}", chosen.choice(claims), order=order, payment=f"p{number % 7}")
            await keep(inbox, arrival(event, at=at))
            if chosen.random() < 0.4:
                await folded(context(inbox, at=at))
                await full_count_agrees(inbox)
        await folded(context(inbox, at=WINDOW_S + 99))
        await full_count_agrees(inbox)
        counted = await outcomes_in(inbox)
        assert counted.keys() - {"pending"}
        async with inbox.database.writing() as connection:
            await connection.exec_driver_sql("DELETE FROM ledgers")
            assert len(await differing_counts(connection)) >= len(counted)
        await refold_all(context(inbox, at=WINDOW_S + 99), progress=quiet)
        await full_count_agrees(inbox)
        assert await outcomes_in(inbox) == counted

    async def test_a_publication_that_fails_counts_nothing(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", order="A")))
        with pytest.raises(RuntimeError, match="planned"):
            await published_then_failing(inbox, "A")
        assert await outcomes_in(inbox) == {}
        await full_count_agrees(inbox)

    @pytest.mark.alike
    async def test_rebuilt_ledgers_are_equal_and_publish_nothing(self, inbox: Inbox) -> None:
        for number in range(6):
            await keep(inbox, arrival(said(f"e{number}", order=f"O{number}"), at=number))
        await keep(inbox, arrival(paid("O1")), arrival(paid("O4")), arrival(paid("O4")))
        await folded(context(inbox, at=10))
        before = await dump(inbox, "ledgers", "revisions", "order_due", "events", "deliveries")
        await change(inbox, "DELETE FROM ledgers")
        counted: list[int] = []
        assert await refold_all(context(inbox, at=10), progress=counted.append) == 6
        assert sum(counted) == 6
        after = await dump(inbox, "ledgers", "revisions", "order_due", "events", "deliveries")
        assert after == before

    @pytest.mark.alike
    async def test_a_rebuild_publishes_ledgers_that_differ(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", order="A")), arrival(said("e2", order="B")))
        await folded(context(inbox, at=1))
        await refold_all(context(inbox, at=WINDOW_S), progress=quiet)
        found = await revisions(inbox)
        assert [(r.seq, r.order, r.outcome) for r in found[2:]] == [
            (3, "A", "timed_out"),
            (4, "B", "timed_out"),
        ]


LISTINGS: list[dict[str, Any]] = [
    {},
    {"after": "A"},
    {"after": "B", "limit": 2},
    {"limit": 2},
    {"outcome": "succeeded"},
    {"outcome": "succeeded", "after": "A"},
    {"finding": "redelivered"},
    {"finding": "paid_twice"},
    {"since": seconds(1)},
    {"since": seconds(0), "until": seconds(1)},
    {"since": seconds(2)},
    {"until": seconds(2), "outcome": "pending"},
]


async def full_count_agrees(inbox: Inbox) -> None:
    """Compare the counters of orders with the ledgers."""
    async with inbox.database.reading() as connection:
        assert await differing_counts(connection) == []
    await listed_as_published(inbox)


async def listed_as_published(inbox: Inbox) -> None:
    """List orders of each outcome and finding, newest revision first, in pages."""
    last = "SELECT max(seq) FROM revisions WHERE revisions.order_key = ledgers.order_key"
    found = await rows(inbox, f"SELECT order_key, outcome, findings, ({last}) FROM ledgers")
    # An order whose payments are all another order's was never published.
    found = [row for row in found if row[3] is not None]
    codes = {(None, code) for row in found for code in row[2].split("|") if code}
    outcomes = {(row[1], None) for row in found}
    both = {(outcome, code) for outcome, _ in outcomes for _, code in codes}
    for outcome, finding in {(None, None), *codes, *outcomes, *both}:
        wanted = sorted(
            (
                (row[3], row[0])
                for row in found
                if outcome in (None, row[1]) and (not finding or f"|{finding}|" in row[2])
            ),
            reverse=True,
        )
        shown: list[tuple[int, str]] = []
        async with inbox.database.reading() as connection:
            while page := await ledger_store.latest_orders(
                connection,
                before=shown[-1][0] if shown else None,
                limit=2,
                outcome=outcome,
                finding=finding,
            ):
                shown += [(each.seq, each.order) for each in page]
        assert shown == wanted, (outcome, finding)


async def outcomes_in(inbox: Inbox) -> dict[str, int]:
    """Return the number of orders by outcome."""
    return await fetch(inbox, outcome_counts)


async def published_then_failing(inbox: Inbox, order: str) -> None:
    """Publish a revision in a transaction that then fails."""
    at = context(inbox, at=10)
    history = (await histories(inbox, [order]))[order]
    ledger = fold(history, policy=at.policy, as_of=seconds(10))
    decided: Callable[..., Any] = refold.decided
    async with inbox.database.writing() as connection:
        await run(connection, ledger_store.publish, [decided(ledger, None, rules="v2-any")])
        raise RuntimeError("planned")
