"""Player of mutants: a part's tests, run with one change after the other by forks of one process.

    1 collect  pytest collects the tests, in a copy of the repository, and waits
    2 record   a fork runs them all as they are: which test runs which line, and for how long
    3 play     a fork for each change: takes over the changed functions, runs the tests that it is
               given, in that order, until the first that fails

A change of what runs while modules are imported cannot be taken over: pytest then begins anew. What
tests start as processes of their own reads the changed file, and runs no line that is recorded.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import IO, Any, Final, Literal

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
TOLD: Final = "MUTANT_RUNS"
"""Variable that makes a process of pytest one that waits: the numbers of its two pipes, and what is
to be recorded."""

TO_COLLECT_S: Final = 120.0
"""Longest that pytest may take until it waits, where nobody knows how long that takes."""

TO_RUN_S: Final = 60
"""Longest that one test may take: what has no end is known by it, where there is pytest-timeout."""

ASKED_EVERY_S: Final = 0.02

State = Literal["killed", "killed by time", "survived"]
Progress = Callable[[int, int], None]


# --- for the runner -------------------------------------------------------------------------------


class Player:
    """A process of pytest that has collected tests and plays changes with them."""

    def __init__(
        self,
        folder: Path,
        tests: Sequence[str],
        *,
        recorded: Sequence[str] = (),
        to_collect_s: float = TO_COLLECT_S,
    ) -> None:
        """Of `folder`; `recorded` names the modules whose lines `record` is to tell; `to_collect_s`
        is the longest that collecting may take: a change can make an import endless."""
        asks, self._ask = os.pipe()
        answer, answers = os.pipe()
        words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", __name__]
        words += ["-o", f"timeout={TO_RUN_S}", *tests]
        told = json.dumps([asks, answers, [str(folder / each) for each in recorded]])
        self._running = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "CI": "1", TOLD: told},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(asks, answers),
            start_new_session=True,
        )
        os.close(asks)
        os.close(answers)
        # Without a buffer, in which answers would wait that `select` does not see.
        self._answers: IO[bytes] = os.fdopen(answer, "rb", buffering=0)
        self._fork: int | None = None
        self.failed, self.missing = "", 0
        """The test that failed last, and how many that were to be played are not there."""
        self._to_collect_s = to_collect_s
        self.in_time, self.collected_s = True, 0.0
        """Whether it had collected, or had ended, in time; and the seconds that it took."""

    def __enter__(self) -> Player:
        """Wait until it has collected them, or has ended: what it imports is as the files are now,
        whatever becomes of them afterwards."""
        began = time.monotonic()
        self.in_time = self._received(began + self._to_collect_s).get("state") != "killed by time"
        self.collected_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        """End it with everything that it started."""
        os.close(self._ask)
        self._answers.close()
        for each in filter(None, (self._running.pid, self._fork)):
            with suppress(ProcessLookupError):
                os.killpg(each, signal.SIGKILL)
        self._running.wait()

    def record(self, file: Path, tests: Sequence[str], progress: Progress) -> bool:
        """Run the tests of these files as they are and write what they ran; whether they passed."""
        return self._played({"record": str(file), "tests": tests}, None, progress) == "survived"

    def play(self, tests: Sequence[str], *, limit_s: float, module: str | None = None) -> State:
        """What becomes of the tests, the first of which is run first: of the change that lies in
        the file of `module` now, where one is named, else of the modules as they were imported.
        Whatever keeps the tests from passing has noticed the change: a test that fails, or a module
        that cannot be imported any more. Where they were not collected in time none is run."""
        return self._played({"tests": list(tests), "module": module, "limit_s": limit_s}, limit_s)

    def _played(
        self, job: Mapping[str, Any], limit_s: float | None, progress: Progress | None = None
    ) -> State:
        self.failed, self.missing = "", 0
        if not self.in_time:
            return "killed by time"
        with suppress(BrokenPipeError):  # it has ended: so says the answer
            os.write(self._ask, json.dumps(job).encode() + b"\n")
        until = None if limit_s is None else time.monotonic() + limit_s + TO_COLLECT_S
        while True:
            answer = self._received(until)
            if "state" in answer:
                self._fork = None
                state: State = answer["state"]
                return state
            self._fork = answer.get("fork", self._fork)
            self.failed = answer.get("failed", self.failed)
            self.missing = answer.get("missing", self.missing)
            if progress and "done" in answer:
                progress(answer["done"], answer["of"])

    def _received(self, until: float | None) -> dict[str, Any]:
        """Its next answer; the last one where it has ended, or has not told any in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            if not selector.select(None if until is None else max(until - time.monotonic(), 0)):
                return {"state": "killed by time"}
        line = self._answers.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"state": "killed"}
        return answer


# --- in the process of pytest ---------------------------------------------------------------------


class Recorder:
    """Tells which lines of some files run, and during which test."""

    def __init__(self, files: Sequence[str]) -> None:
        """Files by their full names."""
        self._files = frozenset(files)
        self._imported = self._now = set[tuple[str, int]]()
        self._ran: dict[str, set[tuple[str, int]]] = {}
        self._seconds: dict[str, float] = {}

    def begin(self) -> None:
        """Listen, in this thread and in those that will be."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def end(self) -> None:
        """Listen no more."""
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def _line(self, frame: FrameType, _event: str, _arg: object) -> Any:
        self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test, with what is set up for it."""
        self._now = self._ran[item.nodeid] = set()
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.monotonic() - began
            _tell(done=len(self._ran), of=len(item.session.items))

    def written(self, folder: Path) -> dict[str, Any]:
        """What `Recording` reads: of each test the seconds, and the lines of each module."""
        tests = {
            name: (seconds, _by_module(self._ran[name], folder))
            for name, seconds in self._seconds.items()
        }
        return {"tests": tests, "imported": _by_module(self._imported, folder)}


def _by_module(ran: Iterable[tuple[str, int]], folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for file, line in sorted(ran):
        found.setdefault(str(Path(file).relative_to(folder)), []).append(line)
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Listen to what runs while tests are collected, where it is to be recorded."""
    if _files:
        config.pluginmanager.register(_recorder)
        _recorder.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Wait for what is asked; a fork returns, and runs its tests as any process of pytest does."""
    _recorder.end()
    if session.testsfailed:
        return
    gc.unfreeze()  # functions are looked for among all objects
    _tell(ready=True)
    with open(_asks, encoding="utf-8") as asks:
        for line in asks:
            job = json.loads(line)
            pid = os.fork()
            if not pid:
                _begun(session, job)
                return
            _tell(fork=pid)
            _tell(state=_ended(pid, job.get("limit_s")))
    session.items.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Which test has seen a change."""
    if report.failed:
        _tell(failed=report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded."""
    if _record_to:
        _recorder.end()
        written = _recorder.written(session.config.rootpath)
        _record_to[0].write_text(json.dumps(written), encoding="utf-8")


def _begun(session: pytest.Session, job: Mapping[str, Any]) -> None:
    """In the fork: its own tests, and the changed functions."""
    os.setsid()
    if "record" in job:
        _record_to.append(Path(job["record"]))
        files = set(job["tests"])
        session.items = [each for each in session.items if each.nodeid.partition("::")[0] in files]
        _recorder.begin()
        return
    if _files:
        session.config.pluginmanager.unregister(_recorder)
    items = {item.nodeid: item for item in session.items}
    session.items = [items[name] for name in job["tests"] if name in items]
    _tell(missing=len(job["tests"]) - len(session.items))
    if job["module"]:
        take_over(session.config.rootpath / job["module"])


def take_over(file: Path) -> None:
    """Make the functions of a module run what its file says now."""
    changed = dict(_codes(compile(file.read_bytes(), str(file), "exec", dont_inherit=True)))
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(file):
            function.__code__ = changed.get(_named(function.__code__), function.__code__)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """The code of each function that has a name, by that and its first line."""
    if not code.co_name.startswith("<"):
        yield _named(code), code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _named(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _ended(pid: int, limit_s: float | None) -> State:
    """How a fork ended; with everything that it started where it takes too long."""
    until = None if limit_s is None else time.monotonic() + limit_s
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return "killed" if status else "survived"
        if until is not None and time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "killed by time"
        time.sleep(ASKED_EVERY_S)


def _tell(**answer: object) -> None:
    os.write(_answers, json.dumps(answer).encode() + b"\n")


_asks, _answers, _files = json.loads(os.environ.pop(TOLD, "[-1, -1, []]"))
_recorder = Recorder(_files)
_record_to: list[Path] = []
