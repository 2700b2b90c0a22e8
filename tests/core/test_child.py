"""A function in a child process gives its result, or is stopped and says why."""

import asyncio
import io
import os
import resource
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core import child
from app.core.child import AT_ONCE, MIB, ChildLimits, ChildStopped, run_in_child, write_from_child
from app.core.errors import NotFoundError, UnreachableError, UsageError
from tests.core import child_work
from tests.waiting import PATIENCE_S, soon

LIMITS = ChildLimits(memory_mib=400, processor_s=10, duration_s=PATIENCE_S)


@pytest.mark.parametrize(
    "value", [None, "Café\n", {"a": [1, 2.5, True]}, b"", b"json\n\x00\xff", "x" * (9 * MIB)]
)
async def test_it_gives_the_result_of_another_process(value: Any) -> None:
    assert await run_in_child(child_work.echo, value, limits=LIMITS) == value
    assert await run_in_child(child_work.number_of_process, limits=LIMITS) != os.getpid()


async def test_a_tuple_comes_back_as_a_list() -> None:
    assert await run_in_child(child_work.echo, 1, "two", limits=LIMITS) == [1, "two"]


@pytest.mark.parametrize(
    ("work", "limits", "reason", "sentence"),
    [
        ((child_work.take_memory, 500), {}, "memory", "more than 400 MiB of memory"),
        ((child_work.compute_for_ever,), {"processor_s": 1}, "processor_time", "than 1 s of proc"),
        ((child_work.sleep_for_ever,), {"duration_s": 0.5}, "duration", "more than 0.5 s"),
        ((child_work.echo, b"x" * (MIB + 1)), {"result_mib": 1}, "result", "larger than 1 MiB"),
        ((child_work.end, "exit"), {}, "died", r"code 0\)"),
        ((child_work.end, "SIGKILL"), {}, "died", r"code -9\)"),
        ((child_work.end, "SIGABRT"), {}, "died", r"code -6\)"),
        ((child_work.fail, "254700"), {}, "failed", "process: ValueError in child_work.py, line"),
        ((child_work.give_object,), {}, "failed", "TypeError"),
        ((child_work.forge, b"json\n{"), {}, "died", "ended unexpectedly"),
        ((child_work.forge, b"json\n" + b"[" * 99_999), {}, "died", "ended unexpectedly"),
        ((child_work.forge, b"StoreUnavailable\nno"), {}, "died", "ended unexpectedly"),
    ],
)  # fmt: skip
async def test_it_says_why_there_is_no_result(
    work: tuple[Any, ...], limits: dict[str, Any], reason: str, sentence: str
) -> None:
    words = {"memory_mib": 400, "processor_s": 10, "duration_s": PATIENCE_S, **limits}
    with pytest.raises(ChildStopped, match=sentence) as caught:
        await run_in_child(*work, limits=ChildLimits(**words))
    assert (caught.value.reason, "254700" in str(caught.value)) == (reason, False)


def test_what_it_yields_is_written_to_a_file() -> None:
    file = io.BytesIO()
    write_from_child(child_work.pieces, 3, limits=LIMITS, to=file)
    assert file.getvalue() == b"".join(bytes([number]) * MIB for number in range(3))
    with pytest.raises(UsageError, match=r"^Line 7$"):
        write_from_child(
            child_work.pieces, 1, child_work.refuse, "", "Line 7", limits=LIMITS, to=file
        )


@pytest.mark.parametrize(
    ("work", "limits", "reason", "sentence"),
    [
        ((1, child_work.sleep_for_ever), {"duration_s": 0.5}, "duration", "more than 0.5 s"),
        ((3,), {"result_mib": 2}, "result", "larger than 2 MiB"),
        ((1, child_work.end, "exit"), {}, "died", r"code 0\)"),
        ((1, child_work.fail, "254700"), {}, "failed", "process: ValueError in child_work.py"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_whole_is_none(
    work: tuple[Any, ...], limits: dict[str, Any], reason: str, sentence: str
) -> None:
    words = {"memory_mib": 400, "processor_s": 10, "duration_s": PATIENCE_S, **limits}
    with pytest.raises(ChildStopped, match=sentence) as caught:
        write_from_child(child_work.pieces, *work, limits=ChildLimits(**words), to=io.BytesIO())
    assert (caught.value.reason, "254700" in str(caught.value)) == (reason, False)


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("NotFoundError", NotFoundError),
        ("UnreachableError", UnreachableError),
        ("Refused", UsageError),
        ("ConfigurationError", UsageError),
    ],
)
async def test_an_error_of_ours_is_raised_here(kind: str, raised: type[Exception]) -> None:
    with pytest.raises(raised, match=r"^Line 7 is “é”\.$") as caught:
        await run_in_child(child_work.refuse, kind, "Line 7 is “é”.", limits=LIMITS)
    assert type(caught.value) is raised


def test_what_it_left_running_ends_with_it_and_holds_nobody_up(tmp_path: Path) -> None:
    limits = replace(LIMITS, duration_s=2.0)
    with pytest.raises(ChildStopped):
        write_from_child(
            child_work.pieces, 0, child_work.leave_the_pipe_to_another, tmp_path,
            limits=limits, to=io.BytesIO(),
        )  # fmt: skip
    (name,) = os.listdir(tmp_path)
    ends = time.monotonic() + PATIENCE_S
    while is_running(int(name)):
        assert time.monotonic() < ends
        time.sleep(0.02)


async def test_it_dies_with_what_it_started_where_the_caller_is_canceled(tmp_path: Path) -> None:
    calling = asyncio.create_task(run_in_child(child_work.leave_another, tmp_path, limits=LIMITS))
    await soon(lambda: len(os.listdir(tmp_path)) == 2)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await soon(lambda: not any(is_running(int(name)) for name in os.listdir(tmp_path)))


async def test_a_child_that_does_not_read_its_request_is_out_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request is larger than the pipe, and nothing in the child ends it."""
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    monkeypatch.setattr(child, "_START", stop)
    calling = run_in_child(child_work.echo, b"x" * MIB, limits=replace(LIMITS, duration_s=0.5))
    with pytest.raises(ChildStopped, match=r"^it takes more than 0\.5 s$") as caught:
        await asyncio.wait_for(calling, PATIENCE_S)
    assert caught.value.reason == "duration"


async def test_a_process_with_many_open_files_has_children_too() -> None:
    """`select` takes descriptors below 1,024 only."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2_048), before[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_024)]
    try:
        assert max(opened) >= 1_024
        assert await run_in_child(child_work.echo, "x" * MIB, limits=LIMITS) == "x" * MIB
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return the list of the children that are started from now on."""
    started, start = list[subprocess.Popen[bytes]](), child._started

    def noted(limits: ChildLimits) -> subprocess.Popen[bytes]:
        started.append(start(limits))
        return started[-1]

    monkeypatch.setattr(child, "_started", noted)
    return started


@pytest.mark.slow
async def test_no_more_are_started_than_threads_can_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: list[subprocess.Popen[bytes]]
) -> None:
    """One that is canceled before its turn starts no child."""
    monkeypatch.setattr(child, "_TURNS", asyncio.Semaphore(AT_ONCE))  # of this event loop
    call = (child_work.wait_for, tmp_path / "go")
    calls = [asyncio.create_task(run_in_child(*call, limits=LIMITS)) for _ in range(AT_ONCE + 2)]
    await soon(lambda: len(children) >= AT_ONCE)
    await asyncio.sleep(0)  # every call has had its turn of the loop
    assert len(children) == AT_ONCE
    calls.pop().cancel()
    (tmp_path / "go").touch()
    assert await asyncio.gather(*calls) == [None] * (AT_ONCE + 1)
    assert len(children) == AT_ONCE + 1


async def test_one_canceled_before_its_thread_began_leaves_nothing(
    children: list[subprocess.Popen[bytes]],
) -> None:
    """It is waited for, so that it is no zombie, and its pipes are closed."""
    busy = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(busy.wait, PATIENCE_S)
        calling = asyncio.create_task(run_in_child(child_work.echo, 1, limits=LIMITS))
        await soon(lambda: children)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        (process,) = children
        left = str(process.pid) in os.listdir("/proc")
        pipes = [each for each in (process.stdin, process.stdout, process.stderr) if each]
        closed = [each.closed for each in pipes]
        busy.set()
    assert (left, closed) == (False, [True] * 3)


def is_running(number: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_it_inherits_nothing_that_it_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No settings, open files, terminal or standard input; and it can write no file."""
    monkeypatch.setenv("TALLYHOOK_SOURCES__SHOP__SECRETS", "whsec_x")
    monkeypatch.setenv("LC_TIME", "C")
    with (tmp_path / "open").open("w") as opened:
        os.set_inheritable(opened.fileno(), True)
        found = await run_in_child(child_work.surroundings, tmp_path, limits=LIMITS)
    environment = found["environment"]
    assert [name for name in environment if name.startswith("TALLYHOOK")] == []
    assert (environment["PATH"], environment["LC_TIME"]) == (os.environ["PATH"], "C")
    assert {each.partition(":")[0] for each in found["descriptors"]} == {"pipe", "/dev/null"}
    assert (found["input"], found["session"], found["written"]) == ("", True, False)
    assert found["core"] == [0, 0]
    assert PATIENCE_S < found["alarm_s"] <= PATIENCE_S + 1


async def test_limits_that_are_lower_already_stay() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4_096 * MIB, before[1]))
    try:
        high = ChildLimits(memory_mib=8_192, processor_s=7, duration_s=PATIENCE_S)
        found = await run_in_child(child_work.limits, limits=high)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert found == {"RLIMIT_AS": [4_096 * MIB, 8_192 * MIB], "RLIMIT_CPU": [7, 8]}
