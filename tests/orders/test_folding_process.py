"""The second process that folds: when it is started, what the first is told, and how it ends."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core import child_processes
from app.core.child_processes import Parent, WorkerProcess
from app.core.periodic import PeriodicTask, rest_when_idle
from app.core.signals import Signal
from app.orders import folding_process
from app.orders.folding_process import BEHIND, FoldingProcess, Quiet
from app.orders.worker import FoldWorker
from app.wiring.worker import _until_quiet
from tests.api.driving import driving, event
from tests.contexts import with_settings
from tests.core.test_child_processes import ASLEEP, HEARING, child
from tests.waiting import PATIENCE_S, soon

UNTIL_TOLD = """
import socket
socket.socket(fileno=int(sys.argv[-1])).recv(1)
"""
"""Behind a scripted child: it works until its parent says anything, or is gone."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and wait for nothing long."""
    for name in ("LOOK_S", "REST_S", "ENDING_S"):
        monkeypatch.setattr(folding_process, name, 0.01)
    for name in ("MOST_S", "AGAIN_S", "STOP_S"):
        monkeypatch.setattr(child_processes, name, 0.01)


class Told:
    """Number of waiting deliveries, and what the reader was told."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.leaves: list[bool] = []
        self.leave: Callable[[bool], None] = self.leaves.append
        self.failures: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FoldingProcess]:
        """Keep the process at work until the block ends."""
        beside = FoldingProcess(
            waiting=lambda: self.waiting,
            leave=self.leave,
            failed=self.failures.append,
        )
        task = asyncio.create_task(beside.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield beside
        finally:
            beside.stop()
            await task


async def test_none_is_started_while_one_process_keeps_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the memory of one more for nothing."""
    started = child(tmp_path, monkeypatch, says=b"r")
    async with Told(BEHIND).running():
        await asyncio.sleep(0.3)  # thirty looks
    assert started.read_text() == ""


async def test_none_is_started_for_what_one_look_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that comes at once is read before another process could begin."""
    started = child(tmp_path, monkeypatch, says=b"r")
    looks = [BEHIND + 1, 0] * 10
    beside = FoldingProcess(
        waiting=lambda: looks.pop() if looks else 0, leave=print, failed=pytest.fail
    )
    task = asyncio.create_task(beside.run())
    await soon(lambda: not looks)
    beside.stop()
    await task
    assert started.read_text() == ""


async def test_who_reads_leaves_folding_to_it_for_as_long_as_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And folds again as soon as it has ended."""
    child(tmp_path, monkeypatch, says=b"r", then=UNTIL_TOLD)
    told = Told(BEHIND + 1)
    async with told.running() as beside:
        await soon(lambda: beside.working)
        assert told.leaves == [True]
        told.waiting = 0
        beside.tell()
        await soon(lambda: told.leaves == [True, False])
        assert not beside.working


async def test_one_that_says_nothing_of_being_ready_is_left_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still be opening the database: the first one folds meanwhile."""
    started = child(tmp_path, monkeypatch, says=b"+", then=UNTIL_TOLD)
    told = Told(BEHIND + 1)
    async with told.running():
        await soon(lambda: started.read_text() == "x")
        await asyncio.sleep(0.1)
        assert told.leaves == []


async def test_one_that_dies_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While deliveries still wait; meanwhile the first one folds."""
    started = child(tmp_path, monkeypatch, says=b"r", then="\nsys.exit(4)\n")
    told = Told(BEHIND + 1)
    async with told.running():
        await soon(lambda: len(started.read_text()) >= 3)
    assert told.leaves[:4] == [True, False, True, False]
    assert told.failures == []


async def test_one_whose_program_was_replaced_is_not_started_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next would find that, too; the first one folds."""
    monkeypatch.setattr(folding_process, "ENDING_S", PATIENCE_S)  # its exit code must be seen
    started = child(tmp_path, monkeypatch, says=b"", then="\nsys.exit(3)\n")
    told = Told(BEHIND + 1)
    async with told.running():
        await soon(lambda: told.leaves == [False])
        await asyncio.sleep(1.0)
        assert started.read_text() == "x"


async def test_one_that_finishes_nothing_any_more_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would fold: the first one leaves it to this one."""
    started = child(tmp_path, monkeypatch, says=b"r", then=ASLEEP)
    told = Told(BEHIND + 1)

    def leave(to_it: bool) -> None:
        """Be impatient with one that is ready; on a busy machine its start takes seconds."""
        told.leaves.append(to_it)
        monkeypatch.setattr(folding_process, "SILENT_S", 0.1 if to_it else PATIENCE_S)

    told.leave = leave
    async with told.running():
        await soon(lambda: told.leaves[:2] == [True, False])
        await soon(lambda: len(started.read_text()) >= 2)


async def test_a_failed_disk_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is started again on it."""
    started = child(tmp_path, monkeypatch, says=b"r!")
    told = Told(BEHIND + 1)
    async with told.running():
        await soon(lambda: bool(told.failures))
        await asyncio.sleep(0.2)
    assert started.read_text() == "x"


async def test_it_is_told_to_end_with_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the round under way, and not by a kill."""
    started = child(tmp_path, monkeypatch, says=b"r", then=HEARING)
    monkeypatch.setattr(folding_process, "ENDING_S", 15.0)
    monkeypatch.setattr(child_processes, "STOP_S", 15.0)
    async with Told(BEHIND + 1).running() as beside:
        await soon(lambda: beside.working)
    assert started.read_text() == "xe"


async def test_one_that_does_not_end_with_the_service_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as what reads would be: not only when it has been silent for a minute."""
    child(tmp_path, monkeypatch, says=b"r", then=ASLEEP)
    async with Told(BEHIND + 1).running() as beside:
        await soon(lambda: beside.working)
        beside.stop()
        await soon(lambda: not beside.alive)


async def test_one_that_has_not_begun_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads for seconds where the machine is busy, and whoever sends waits for the restart."""
    started = child(tmp_path, monkeypatch, says=b"", then=ASLEEP)
    monkeypatch.setattr(folding_process, "ENDING_S", 600.0)
    monkeypatch.setattr(child_processes, "STOP_S", 600.0)
    async with Told(BEHIND + 1).running() as beside:
        await soon(lambda: started.read_text() == "x")
        beside.stop()
        await soon(lambda: not beside.alive)


async def test_a_reader_that_is_started_again_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins by folding, as one that is alone does."""
    started = child(tmp_path, monkeypatch, says=b"r", then=HEARING)
    behind = WorkerProcess(read=Signal(), news=(), failed=pytest.fail)
    behind.leave_folding(True)
    async with behind.running():
        await soon(lambda: started.read_text().startswith("xlxl"))


async def test_one_that_has_little_to_do_folds_until_it_has_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree of all orders takes as long as there are orders: until it is made, nobody else
    folds."""
    monkeypatch.setattr(Quiet, "look", lambda quiet: True)
    began, made = asyncio.Event(), asyncio.Event()

    async def seal() -> int:
        began.set()
        await made.wait()
        return 0

    ours, theirs = socket.socketpair()
    with ours:
        async with driving(tmp_path, with_worker=False) as driver:
            folding = FoldWorker(with_settings(driver.context, worker_batch=10), beside=True)
            sealer = PeriodicTask(seal, component="sealing", rest=rest_when_idle(60.0))
            parent = Parent(theirs.detach())
            working = asyncio.create_task(
                _until_quiet(driver.context, folding, sealer, parent=parent)
            )
            await began.wait()
            await asyncio.sleep(2.5)  # two looks
            assert folding.alive
            await driver.send(event("e1"))
            await soon(lambda: driver.rows("SELECT 1 FROM revisions"))
            made.set()
            await working


def test_little_to_do_is_a_small_share_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all the time since the last look that said anything."""
    clock, used = [0.0], [0.0]
    monkeypatch.setattr(folding_process, "monotonic", lambda: clock[0])
    monkeypatch.setattr(folding_process, "process_time", lambda: used[0])
    quiet = Quiet()
    clock[0], used[0] = 29.0, 0.0
    assert not quiet.look()  # too early to say
    clock[0], used[0] = 40.0, 10.0
    assert not quiet.look()  # a quarter of a core
    clock[0], used[0] = 80.0, 19.0
    assert quiet.look()
