"""The process behind a receiver, played by a script."""

import asyncio
import json
import pickle
import socket
import subprocess
import sys
from errno import EMFILE
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import IO, Any

import pytest
import uvloop

from app.config.load import load_settings
from app.core import child_processes
from app.core.child_processes import Parent, WorkerProcess, console_beside, handed_over
from app.core.signals import Signal
from app.wiring.service import open_service
from tests.api.driving import environ
from tests.searching import every
from tests.waiting import PATIENCE_S, soon

CHILD = """#!{python}
import os, sys
with open({started!r}, "a") as file:
    file.write("x")
os.write(int(sys.argv[-1]), {says!r})
"""
"""A child that notes that it was started, says something to its parent, and ends."""

HEARING = """
import socket
heard = socket.socket(fileno=int(sys.argv[-1])).recv(1)
with open({started!r}, "ab") as file:
    file.write(heard)
"""
"""Behind it: it notes what it is told, before it ends."""

ASLEEP = """
import time
time.sleep(600)
"""
"""Behind it: it hears nothing."""


def child(folder: Path, monkeypatch: pytest.MonkeyPatch, *, says: bytes, then: str = "") -> Path:
    """Replace the real child; return the file that gets one character for each of its starts."""
    started, program = folder / "started", folder / "child"
    started.touch()
    script = CHILD + then
    program.write_text(script.format(python=sys.executable, started=str(started), says=says))
    program.chmod(0o700)
    monkeypatch.setattr("app.core.child_processes.sys.executable", str(program))
    monkeypatch.setattr(child_processes, "AGAIN_S", 0.01)
    monkeypatch.setattr(child_processes, "MOST_S", 0.01)
    return started


async def test_one_that_ends_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = child(tmp_path, monkeypatch, says=b"r")
    failures: list[str] = []
    async with WorkerProcess(read=Signal(), news=(), failed=failures.append).running():
        await soon(lambda: len(started.read_text()) >= 3)
    assert failures == []


async def test_one_whose_disk_has_failed_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write to the failed disk while the receiver ends."""
    started = child(tmp_path, monkeypatch, says=b"r!")
    failures: list[str] = []
    async with WorkerProcess(read=Signal(), news=(), failed=failures.append).running():
        await soon(lambda: bool(failures))
        await asyncio.sleep(0.5)  # fifty times as long as one that may be started again needs
    assert started.read_text() == "x"
    assert len(failures) == 1


@pytest.mark.parametrize(("drains", "told"), [(True, "xs"), (False, "xe")])
async def test_one_is_told_whether_to_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drains: bool, told: str
) -> None:
    """Where the socket stays open, senders wait for the next service, which reads on."""
    started = child(tmp_path, monkeypatch, says=b"r", then=HEARING)
    behind = WorkerProcess(read=Signal(), news=(), failed=pytest.fail, drains=drains)
    async with behind.running():
        await soon(lambda: behind.ready)
    assert started.read_text() == told


async def test_one_that_has_not_begun_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = child(tmp_path, monkeypatch, says=b"", then=ASLEEP)
    async with WorkerProcess(read=Signal(), news=(), failed=pytest.fail, drains=False).running():
        await soon(lambda: started.read_text() == "x")
    assert started.read_text() == "x"


async def test_one_that_is_being_started_is_told_to_end_once_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service must not wait for a child that nobody has told to end."""
    started = child(tmp_path, monkeypatch, says=b"r", then=HEARING)
    start, starting, stopping = asyncio.create_subprocess_exec, asyncio.Event(), asyncio.Event()

    async def slowly(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        starting.set()
        await stopping.wait()
        return await start(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    async with (
        asyncio.timeout(PATIENCE_S),
        WorkerProcess(read=Signal(), news=(), failed=print).running(),
    ):
        await starting.wait()
        asyncio.get_running_loop().call_later(0.05, stopping.set)
    assert started.read_text() == "xs"


@pytest.mark.parametrize(("says", "ready"), [(b"r", True), (b"", False)])
async def test_a_service_goes_by_what_reads_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bytes, ready: bool
) -> None:
    """Before it has checked the disk, nothing is deleted from the inbox, and nothing is ready."""
    started = child(tmp_path, monkeypatch, says=says, then=ASLEEP)
    for name in ("MISSED_S", "STOP_S"):
        monkeypatch.setattr(child_processes, name, 0.0)
    settings = load_settings(environ(tmp_path), serving=True)
    async with open_service(settings, work="apart") as service:
        await soon(lambda: started.read_text() == "x")
        may_delete = service.inbox.writer.may_delete
        if ready:
            await soon(may_delete)
        assert may_delete() is ready
        told = [why for why in service.reasons() if "has not been running for" in why]
        assert len(told) == (0 if ready else 1)
        assert not service.read_elsewhere
    async with open_service(settings, work="none") as service:
        assert service.read_elsewhere


@pytest.mark.parametrize("steady", [False, True])
async def test_a_console_that_ran_for_long_is_started_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady: bool
) -> None:
    """The pause grows with each end, and is short again after a steady run."""
    started = child(tmp_path, monkeypatch, says=b"")
    monkeypatch.setattr(child_processes, "CONSOLE_AGAIN_S", 0.001)
    monkeypatch.setattr(child_processes, "STEADY_S", 0.0 if steady else 60.0)
    pauses: list[float] = []
    timeout = asyncio.timeout

    def noting(delay: float) -> asyncio.Timeout:
        pauses.append(delay)
        return timeout(delay)

    monkeypatch.setattr(asyncio, "timeout", noting)
    async with console_beside(host="127.0.0.1", port=1, settings=None):
        await soon(lambda: len(started.read_text()) >= 5)
    short = [pause for pause in pauses if pause < child_processes.CONSOLE_STOP_S]
    assert short[:4] == [0.001] * 4 if steady else short[:4] == [0.001, 0.002, 0.004, 0.008]


async def test_a_console_that_cannot_be_started_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: StringIO
) -> None:
    """A machine may have no free descriptor at that moment."""
    started = child(tmp_path, monkeypatch, says=b"")
    monkeypatch.setattr(child_processes, "CONSOLE_AGAIN_S", 0.01)
    start, faults = asyncio.create_subprocess_exec, [OSError(EMFILE, "too many open files")]

    async def failing(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        if faults:
            raise faults.pop()
        return await start(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", failing)
    async with console_beside(host="127.0.0.1", port=1, settings=None):
        await soon(started.read_text)
    assert "a child process cannot be started" in log.getvalue()


async def test_a_parent_is_told_of_what_may_be_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(tmp_path, monkeypatch, says=b"ra", then=HEARING)
    told: list[bool] = []
    behind = WorkerProcess(
        read=Signal(), news=(), failed=pytest.fail, alarming=lambda: told.append(True)
    )
    async with behind.running():
        await soon(lambda: told == [True])


def test_one_whose_parent_has_died_goes_on_with_what_it_was_at() -> None:
    """Its signals reach nobody, which is no error. uvloop raises one for a closed socket."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def work() -> None:
        read, alarming, stopped = Signal(), Signal(), asyncio.Event()
        parent = Parent(theirs.detach())
        hearing = asyncio.create_task(
            parent.hear(read=read, news=(), stop=lambda drain: stopped.set(), alarming=alarming)
        )
        assert await asyncio.get_running_loop().sock_recv(ours, 1) == b"r"
        alarming.set()
        assert await asyncio.get_running_loop().sock_recv(ours, 1) == b"a"
        ours.close()
        async with asyncio.timeout(PATIENCE_S):
            while not stopped.is_set():
                read.set()
                await asyncio.sleep(0)
        for _ in range(10):
            read.set()
            parent.fail()
            await asyncio.sleep(0)
        await hearing

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


def a_worker(memory: IO[bytes]) -> "subprocess.CompletedProcess[bytes]":
    """Run a real child that gets this on its standard input, to its end."""
    ours, theirs = socket.socketpair()
    words = (sys.executable, "-m", "app", "worker", "--parent", str(theirs.fileno()))
    with ours, theirs, memory:
        return subprocess.run(
            words,
            stdin=memory,
            pass_fds=(theirs.fileno(),),
            capture_output=True,
            timeout=PATIENCE_S,
        )


@pytest.mark.slow
def test_a_child_of_a_program_that_was_replaced_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules may be different from those of the processes that are older than it."""
    monkeypatch.setattr(child_processes, "_VERSION", "0.0.9")
    ended = a_worker(handed_over(None))
    assert ended.returncode == 3
    assert b"restart the service" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [b"app.no_such_module\nSettings", b"app.core.errors\nNoSuch"][:: every(2)]
)
def test_a_child_that_does_not_know_what_it_is_handed_says_so(name: bytes) -> None:
    """A replaced program may have the same version."""
    memory = handed_over(None)
    pickle.load(memory)  # the version
    memory.write(b"c" + name + b"\n.")
    memory.truncate()
    memory.seek(0)
    ended = a_worker(memory)
    assert ended.returncode == 3
    assert b"restart the service" in ended.stderr


def test_the_version_handed_over_is_the_one_that_was_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_processes, "version", lambda name: "9.9.9")
    with handed_over(None) as memory:
        assert pickle.load(memory) == version("tallyhook")


def test_it_is_told_for_how_long_nothing_has_been_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: StringIO
) -> None:
    """However often a child was started meanwhile, without becoming ready."""
    started, now = child(tmp_path, monkeypatch, says=b""), [0.0]
    behind = WorkerProcess(read=Signal(), news=(), failed=pytest.fail, clock=lambda: now[0])

    async def work() -> None:
        async with behind.running():
            for at, said in ((4.9, False), (5.0, True), (66.0, True)):
                count, now[0] = len(started.read_text()), at
                await soon(lambda count=count: len(started.read_text()) >= count + 3)
                assert (f"for {at:.0f} s" in (behind.missing() or "")) is said

    asyncio.run(work())
    ends = [line for line in log.getvalue().splitlines() if "child process has ended" in line]
    assert len(ends) == 2  # at the first, and a minute later


@pytest.mark.slow
def test_why_a_child_ends_is_a_line_of_the_log_that_it_shares(tmp_path: Path) -> None:
    """As JSON; the database may be gone while the child starts."""
    settings = load_settings(environ(tmp_path), serving=True)  # in whose folder is no database
    ended = a_worker(handed_over(settings))
    (line,) = [json.loads(each) for each in ended.stderr.splitlines()]
    assert (line["event"], line["exit_code"]) == ("a child process ends", ended.returncode)
    assert "there is no database" in line["problem"]
    assert ended.returncode == 4
