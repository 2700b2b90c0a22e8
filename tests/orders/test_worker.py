"""The fold worker beside a reader with a backlog."""

import asyncio
from pathlib import Path

import pytest

from app.orders import worker
from app.orders.worker import FoldWorker, backlog_pause_s
from reconcile.instants import SECOND, Duration
from tests.api.driving import Driver, driving, event
from tests.contexts import with_settings
from tests.rows import for_each
from tests.waiting import soon


def published(driver: Driver) -> int:
    """Return how many revisions there are."""
    ((count,),) = driver.rows("SELECT count(*) FROM revisions")
    return int(count)


async def test_orders_wait_while_there_is_a_backlog_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a round the worker rests, so that what the next rows say is folded with what came
    before; once the backlog has been read, it goes on at once."""
    monkeypatch.setattr(worker, "LONG_BACKLOG_S", 60.0)
    monkeypatch.setattr(worker, "BACKLOG_S", 60.0)
    async with driving(tmp_path, with_worker=False) as driver:
        drained = driver.context.signals.drained
        folding = FoldWorker(with_settings(driver.context, worker_batch=10))
        with monkeypatch.context() as patched:  # the reader sees no end of it, from the first row
            patched.setattr(drained, "set", lambda: None)
            drained.clear()
            await driver.send(event("e1", "pending"))
            running = asyncio.create_task(folding.run())
            await soon(lambda: published(driver) == 1)
            await driver.send(event("e2"))
            await asyncio.sleep(0.1)
            assert published(driver) == 1
        drained.set()
        await soon(lambda: published(driver) == 2)
        folding.stop()
        await running


async def test_a_backlog_holds_folding_up_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the backlog lasts, orders are folded again and again."""
    monkeypatch.setattr(worker, "BACKLOG_S", 0.01)
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1", "pending"))
        folding = FoldWorker(with_settings(driver.context, worker_batch=10))
        driver.context.signals.drained.clear()
        running = asyncio.create_task(folding.run())
        await soon(lambda: published(driver) == 1)
        await driver.send(event("e2"))
        driver.context.signals.drained.clear()
        await soon(lambda: published(driver) == 2)
        folding.stop()
        await running


async def test_orders_are_left_to_another_process_for_as_long_as_it_folds(tmp_path: Path) -> None:
    """And what is due then is folded as soon as that one has ended."""
    async with driving(tmp_path, with_worker=False) as driver:
        signals = driver.context.signals
        signals.folded_elsewhere = True
        folding = FoldWorker(with_settings(driver.context, worker_batch=10))
        running = asyncio.create_task(folding.run())
        await driver.send(event("e1"))
        await asyncio.sleep(0.1)
        assert published(driver) == 0
        signals.folded_elsewhere = False
        signals.evidence_arrived.set()
        await soon(lambda: published(driver) == 1)
        folding.stop()
        await running


@for_each(("behind", "pause"), [(0.0, 0.25), (1.0, 0.25), (4.0, 1.0), (20.0, 5.0), (3_600.0, 5.0)])
def test_the_pause_grows_with_the_backlog(behind: float, pause: float) -> None:
    """A quarter of the time by which the reader is behind, within bounds."""
    assert backlog_pause_s(Duration(int(behind * SECOND))) == pause
