"""Processes that match ranges of keys: they do, they may die, and whoever began them may stop."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.context.context import AppContext
from app.core.errors import UnreachableError
from app.finance import reconcile_period as ranges_of
from app.finance.break_store import runs
from app.finance.reconcile_period import Ranges, RunRequest, reconcile_period
from app.finance.reconcile_rows import Known
from reconcile.matching.match import MatchingPart
from tests.bench.reconciled import RULES
from tests.database.builders import opened
from tests.database.contract_reconciling import TRUTH, filled, found_by

ASKED = RunRequest(rules=RULES)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path}/t.db"


@pytest.fixture
async def context(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AppContext]:
    """Build a month; a few of its orders are enough for several processes."""
    monkeypatch.setattr(ranges_of, "FEW_ORDERS", 0)
    async with opened(url) as inbox:
        yield await filled(inbox)


async def test_a_process_that_dies_ends_the_run_of_which_nothing_counts(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    match, seen = Ranges.match, list[Ranges]()

    async def killed(ranges: Ranges, known: Known, **words: object) -> list[MatchingPart]:
        seen.append(ranges)
        pid = ranges.processes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return await match(ranges, known, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(Ranges, "match", killed)
    with pytest.raises(UnreachableError, match=r"ended unexpectedly.*run it again"):
        await reconcile_period(context, ASKED, jobs=2)
    async with context.database.reading() as connection:
        assert await runs(connection, limit=9) == []
    assert not any(each.is_alive() for each in seen[0].processes)
    monkeypatch.setattr(Ranges, "match", match)
    done = await reconcile_period(context, ASKED, jobs=2)
    assert await found_by(context, done) == TRUTH


@pytest.mark.costly
async def test_a_run_that_is_interrupted_ends_its_processes(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, seen = asyncio.Event(), list[Ranges]()

    async def matching(ranges: Ranges, *_: object, **words: object) -> list[MatchingPart]:
        seen.append(ranges)
        at_work.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(Ranges, "match", matching)
    running = asyncio.create_task(reconcile_period(context, ASKED, jobs=2))
    await at_work.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not any(each.is_alive() for each in seen[0].processes)
    async with context.database.reading() as connection:
        assert await runs(connection, limit=9) == []
