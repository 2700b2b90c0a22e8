"""The writers' lock between processes: in turn, and held up by nobody who is gone or asleep."""

import asyncio
import fcntl
import os
import signal
import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailable
from app.database import locks
from app.database.locks import ServiceLock, WriteLock
from tests.waiting import until

TURNS = 11

WRITERS = """
import asyncio, os, sys, time
from pathlib import Path
from app.database.locks import WriteLock

name, database, written, turns, pause = sys.argv[1:]
log = os.open(written, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

async def write():
    lock, done = WriteLock(Path(database)), 0
    while done != int(turns):
        os.write(log, f"{name} asks\\n".encode())
        await lock.take()
        os.write(log, f"{name} writes\\n".encode())
        time.sleep(0.003)
        lock.release()
        done += 1
        if float(pause):
            time.sleep(float(pause))

asyncio.run(write())
"""


@contextmanager
def a_writer(
    name: str, database: Path, *, turns: int = -1, pause: float = 0.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that writes so many times, or for ever, and pauses in between."""
    words = [name, str(database), str(database.with_name("written")), str(turns), str(pause)]
    process = subprocess.Popen([sys.executable, "-c", WRITERS, *words])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lines(database: Path) -> list[str]:
    log = database.with_name("written")
    return log.read_text().splitlines() if log.exists() else []


def waits(database: Path) -> bool:
    with database.with_name(database.name + ".waiting").open("rb+") as queue:
        form = struct.Struct("hhqqi4x")
        answer = fcntl.fcntl(queue, fcntl.F_OFD_GETLK, form.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        return bool(form.unpack(answer)[0] != fcntl.F_UNLCK)


@pytest.mark.costly
def test_a_third_writer_beside_two_busy_ones_gets_its_turn(
    tmp_path: Path,
) -> None:
    """Each of the two writes at most twice more."""
    database = tmp_path / "t.db"
    with a_writer("a", database), a_writer("b", database):
        until(lambda: {"a writes", "b writes"} <= set(lines(database)))
        with a_writer("third", database, turns=TURNS, pause=0.02) as third:
            assert third.wait(120) == 0
    others, found = 0, []
    for line in lines(database):
        if line == "third asks":
            others = 0
        elif line == "third writes":
            found.append(others)
        elif line.endswith(" writes"):
            others += 1
    assert len(found) == TURNS
    assert statistics.median(found) <= 4, found


@contextmanager
def one_that_waits(database: Path) -> Iterator[subprocess.Popen[bytes]]:
    with a_writer("waiter", database, turns=1) as process:
        until(lambda: lines(database) == ["waiter asks"] and waits(database))
        yield process


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


async def test_who_died_while_it_waited_has_no_place_any_more(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, other = WriteLock(database), WriteLock(database)
    await held.take()
    with one_that_waits(database) as process:
        assert held.is_wanted()
        process.kill()
        process.wait()
    assert not held.is_wanted()
    held.release()
    monkeypatch.setattr(locks, "WAIT_S", 0.0)
    await other.take()
    other.close()
    held.close()


async def test_a_suspended_waiter_is_skipped(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time after a moment, then at once. It gets its turn when it wakes up."""
    held, other = WriteLock(database), WriteLock(database)
    await held.take()
    with one_that_waits(database) as process:
        os.kill(process.pid, signal.SIGSTOP)
        held.release()
        with monkeypatch.context() as patched:
            patched.setattr(locks, "WAIT_S", 0.0)
            with pytest.raises(StoreUnavailable):
                await other.take()
        await other.take()
        other.release()
        monkeypatch.setattr(locks, "WAIT_S", 0.0)
        await other.take()
        other.release()
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(120) == 0
    await other.take()
    other.close()
    held.close()


async def test_waiters_that_skip_one_keep_their_order(database: Path) -> None:
    asleep, *awake = (WriteLock(database) for _ in range(4))
    order: list[int] = []

    async def write(number: int) -> None:
        await awake[number].take()
        order.append(number)
        awake[number].release()

    with asleep._queue.place():
        await asyncio.gather(*(write(number) for number in range(3)))
    assert order == [0, 1, 2]
    for lock in (asleep, *awake):
        lock.close()


@pytest.mark.parametrize("held", [True, False])
def test_asking_whether_the_lock_is_free_changes_nothing(database: Path, held: bool) -> None:
    ours, theirs = ServiceLock(database), ServiceLock(database)
    if held:
        ours.take()
    with ours.if_free() as free, theirs.if_free() as also:
        assert (free, also) == (True, False)
    with theirs.if_free() as after:
        assert after is not held
    ours.release()
