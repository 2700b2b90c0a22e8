"""Contract of every database for a whole run: it finds the truth, and nothing besides."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Thread
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import SetClock
from app.database.engine import Connection as Session
from app.database.statements import insert_rows, run
from app.finance import ledger_line_store
from app.finance import reconcile_period as ranges_of
from app.finance.break_acts import breaks_of_run, finished_run, living_breaks
from app.finance.reconcile_period import Ran, Ranges, RunRequest, ran, reconcile_period
from app.finance.reconcile_rows import Snapshot
from app.receiving.inbox import Inbox
from reconcile.instants import DAY
from tests.bench.reconciled import RULES, tables
from tests.database.builders import change, quiet, rows
from tests.reconcile.books_truth import AS_OF, END, START, Month

MONTH = Month(orders=300, each=3, seed=3)
"""A month with a book line on the first day, and no line without an order where halves meet."""

Found = Counter[tuple[str, str | None, int]]
TRUTH = Found(found for case in MONTH.cases() for found in case.breaks)


async def filled(inbox: Inbox) -> AppContext:
    """Keep the month, and return a context long after it."""
    async with inbox.database.writing() as connection:
        for table, columns, filling in tables(MONTH):
            await run(connection, insert_rows, table=table, columns=columns, rows=list(filling))
    return inbox.context(clock=SetClock(AS_OF))


async def found_by(context: AppContext, done: Ran) -> Found:
    found = Found()
    async for part in breaks_of_run(context, done.number):
        found.update((b.seen.cause, b.seen.order, b.seen.money.minor) for b in part)
    return found


class ReconcilingContract:
    """A month with known numbers of every cause of breaks. A subclass gives `url`."""

    async def test_a_run_finds_every_break_and_none_besides(self, inbox: Inbox) -> None:
        """The totals tie, and a saved run can be read again completely."""
        context = await filled(inbox)
        done = await reconcile_period(context, RunRequest(rules=RULES), progress=quiet)
        assert await found_by(context, done) == TRUTH
        assert (done.breaks, done.open, done.control.holds) == (TRUTH.total(), TRUTH.total(), True)
        assert await ran(context, await finished_run(context, done.number)) == done

    async def test_a_paused_reader_of_breaks_holds_no_connection(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        context = await filled(inbox)
        done = await reconcile_period(context, RunRequest(), progress=quiet)
        reading, held = inbox.database.reading, list[object]()

        @asynccontextmanager
        async def counted() -> AsyncIterator[Session]:
            async with reading() as connection:
                held.append(connection)
                yield connection
                held.pop()

        monkeypatch.setattr(inbox.database, "reading", counted)
        for parts in (breaks_of_run(context, done.number), living_breaks(context)):
            assert await anext(parts)
            assert held == []

    @pytest.mark.alike
    async def test_two_halves_of_a_month_are_the_month(self, inbox: Inbox) -> None:
        """Every order, break and sum is in one of two adjacent periods."""
        context = await filled(inbox)
        middle = START + 15 * DAY
        halves = [
            await reconcile_period(context, each, progress=quiet)
            for each in (
                RunRequest(rules=RULES, until=middle),
                RunRequest(rules=RULES, since=middle),
            )
        ]
        assert sum([await found_by(context, each) for each in halves], Found()) == TRUTH
        whole = await reconcile_period(context, RunRequest(rules=RULES), progress=quiet)
        both = halves[0].control + halves[1].control
        assert set(both.read) == set(whole.control.read)
        assert set(both.lines) == set(whole.control.lines)
        after = await reconcile_period(
            context, RunRequest(rules=RULES, since=END + DAY), progress=quiet
        )
        assert after.breaks == 0

    async def test_ranges_of_keys_in_processes_come_to_what_one_process_writes(
        self, url: str, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever the keys are cut, and whatever is written after the snapshot is shared. Groups,
        matches by date and the bank cross the cuts. The processes are threads here."""
        context, progress = await filled(inbox), list[int]()
        asked = RunRequest(rules=f'date_window = "2 days"\n{RULES}')
        one = await kept(context, await reconcile_period(context, asked, progress=progress.append))
        chance, keys = random.Random(1), [row.key for row in MONTH.takings()]
        monkeypatch.setattr(ranges_of, "_started", in_thread)
        monkeypatch.setattr(ranges_of, "FEW_ORDERS", 0)
        written_once_shared(monkeypatch, inbox)
        for jobs in (1, 2, 5):
            cuts, read = sorted(chance.sample(keys, jobs - 1)), list[int]()
            monkeypatch.setattr(ledger_line_store, "keys_at", AsyncMock(return_value=cuts))
            done = await reconcile_period(context, asked, progress=read.append, jobs=jobs)
            assert await kept(context, done) == one
            assert sum(read) == sum(progress)
            if jobs > 1:
                await tamper_takings(inbox, "minor - 1")


async def kept(context: AppContext, done: Ran) -> tuple[object, ...]:
    """Return all rows of a run but its number."""
    sql = "SELECT break_id, version FROM break_seen WHERE run = :run ORDER BY break_id"
    return done.control, done.breaks, await rows(context, sql, run=done.number)


async def tamper_takings(inbox: Inbox, minor: str) -> None:
    """Change the amount of every order's ledger line."""
    await change(inbox, f"UPDATE takings SET minor = {minor}")


def written_once_shared(monkeypatch: pytest.MonkeyPatch, inbox: Inbox) -> None:
    """Change every amount as soon as the processes share their snapshot."""
    share = Ranges.share

    async def shared(ranges: Ranges, context: AppContext, snapshot: Snapshot) -> None:
        await share(ranges, context, snapshot)
        await tamper_takings(inbox, "minor + 1")

    monkeypatch.setattr(Ranges, "share", shared)


def in_thread(inbox: Settings) -> tuple[object, Connection]:
    ours, theirs = Pipe()
    thread = Thread(target=ranges_of.answer, args=(theirs, inbox))
    thread.start()
    return SimpleNamespace(kill=lambda: None, join=thread.join), ours
