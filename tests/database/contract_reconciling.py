"""What every database must do with a whole run: what is found is the truth, and nothing besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.core.clock import SetClock
from app.database.engine import Connection
from app.database.statements import insert_rows, run
from app.finance.break_acts import breaks_of_run, finished_run, living_breaks
from app.finance.reconcile_period import Ran, RunRequest, ran, reconcile_period
from app.receiving.context import AppContext
from app.receiving.store import Store
from reconcile.instants import DAY
from reconcile.ledger.policy import Policy
from tests.bench.reconciled import RULES, tables
from tests.database.contract_ledgers import quiet
from tests.reconcile.books_truth import AS_OF, END, START, Month

MONTH = Month(orders=300, each=3, seed=3)
"""Of a seed with a book line on the first day, and no line without an order where halves meet."""

Found = Counter[tuple[str, str | None, int]]
TRUTH = Found(found for case in MONTH.cases() for found in case.breaks)


async def filled(store: Store) -> AppContext:
    """A store with the month, seen when it is long over."""
    async with store.writing() as connection:
        for table, columns, rows in tables(MONTH):
            await run(connection, insert_rows, table=table, columns=columns, rows=list(rows))
    return AppContext(store=store, policy=Policy(), clock=SetClock(AS_OF))


async def told(context: AppContext, done: Ran) -> Found:
    """What a run found."""
    found = Found()
    async for part in breaks_of_run(context, done.number):
        found.update((b.seen.cause, b.seen.order, b.seen.money.minor) for b in part)
    return found


class ReconcilingContract:
    """A month with every cause of a break in a known number. A subclass gives `url`."""

    async def test_a_run_finds_every_break_and_none_besides(self, store: Store) -> None:
        """With the totals that tie; kept, it can be read again to the last sum."""
        context = await filled(store)
        done = await reconcile_period(context, RunRequest(rules=RULES), progress=quiet)
        assert await told(context, done) == TRUTH
        assert (done.breaks, done.open, done.control.holds) == (TRUTH.total(), TRUTH.total(), True)
        assert await ran(context, await finished_run(context, done.number)) == done

    async def test_who_pauses_in_reading_breaks_holds_no_connection(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pager waits for as long as a person likes, or is closed."""
        context = await filled(store)
        done = await reconcile_period(context, RunRequest(), progress=quiet)
        reading, held = store.reading, list[object]()

        @asynccontextmanager
        async def counted() -> AsyncIterator[Connection]:
            async with reading() as connection:
                held.append(connection)
                yield connection
                held.pop()

        monkeypatch.setattr(store, "reading", counted)
        for parts in (breaks_of_run(context, done.number), living_breaks(context)):
            assert await anext(parts)
            assert held == []

    async def test_two_halves_of_a_month_are_the_month(self, store: Store) -> None:
        """Every order is in one of two periods that meet: so is every break, and every sum."""
        context = await filled(store)
        middle = START + 15 * DAY
        halves = [
            await reconcile_period(context, each, progress=quiet)
            for each in (
                RunRequest(rules=RULES, until=middle),
                RunRequest(rules=RULES, since=middle),
            )
        ]
        assert sum([await told(context, each) for each in halves], Found()) == TRUTH
        whole = await reconcile_period(context, RunRequest(rules=RULES), progress=quiet)
        both = halves[0].control + halves[1].control
        assert set(both.read) == set(whole.control.read)
        assert set(both.lines) == set(whole.control.lines)
        after = await reconcile_period(
            context, RunRequest(rules=RULES, since=END + DAY), progress=quiet
        )
        assert after.breaks == 0
