"""Run a part's tests with one change after the other, in forks of one process of pytest.

    1 collect  pytest collects the tests, in a copy of the repository, and waits
    2 record   a fork runs all of them unchanged and records which test runs which line, and how
               long each takes
    3 play     a fork for each change takes over the changed functions and runs the given tests, in
               that order, until the first failure

Code that runs while modules are imported cannot be replaced in a fork: for it pytest starts anew.
Processes that tests start read the changed file, but their lines are not recorded.
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
"""Environment variable that makes pytest wait for jobs: the numbers of its two pipes, and the files
whose lines to record."""

TO_COLLECT_S: Final = 120.0
"""Longest that pytest may take to collect, before anybody has measured it."""

TO_RUN_S: Final = 300
"""Longest that one test may take, in seconds, if pytest-timeout is installed: it ends an endless
test. A recorded test takes several times as long as usual."""

ASKED_EVERY_S: Final = 0.02

State = Literal["killed", "killed by time", "survived"]
Progress = Callable[[int, int], None]


# --- for the runner -------------------------------------------------------------------------------


class Player:
    """Drive a process of pytest that has collected tests and plays changes with them."""

    def __init__(
        self,
        folder: Path,
        tests: Sequence[str],
        *,
        recorded: Sequence[str] = (),
        to_collect_s: float = TO_COLLECT_S,
    ) -> None:
        """Start pytest in `folder`.

        recorded      the modules whose lines `record` records
        to_collect_s  the longest that collecting may take: a change can make an import endless
        """
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
        # Without a buffer: `select` does not see the answers in it.
        self._answers: IO[bytes] = os.fdopen(answer, "rb", buffering=0)
        self._fork: int | None = None
        self.failed, self.missing = "", 0
        """The test that failed last, and how many of those to be played do not exist."""
        self._to_collect_s = to_collect_s
        self.in_time, self.collected_s = True, 0.0
        """Result of collecting: in time or not, and its duration in seconds."""

    def __enter__(self) -> Player:
        """Wait until pytest has collected the files as they are now, or has ended."""
        began = time.monotonic()
        self.in_time = self._received(began + self._to_collect_s).get("state") != "killed by time"
        self.collected_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        """End pytest with everything that it started."""
        os.close(self._ask)
        self._answers.close()
        for each in filter(None, (self._running.pid, self._fork)):
            with suppress(ProcessLookupError):
                os.killpg(each, signal.SIGKILL)
        self._running.wait()

    def record(self, file: Path, tests: Sequence[str], progress: Progress) -> bool:
        """Run the tests of these files and write what they ran; return whether they passed."""
        return self._played({"record": str(file), "tests": tests}, None, progress) == "survived"

    def play(self, tests: Sequence[str], *, limit_s: float, module: str | None = None) -> State:
        """Run the tests in this order and return what became of them.

        The functions of `module` are replaced by those in its file now; without `module` everything
        is as it was imported. A failing test and a failing import both count as killed. If the
        tests were not collected in time none is run.
        """
        return self._played({"tests": list(tests), "module": module, "limit_s": limit_s}, limit_s)

    def _played(
        self, job: Mapping[str, Any], limit_s: float | None, progress: Progress | None = None
    ) -> State:
        self.failed, self.missing = "", 0
        if not self.in_time:
            return "killed by time"
        with suppress(BrokenPipeError):  # it has ended, and the answer tells it
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
        """Return the next answer; a final one if there is none, or none in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            if not selector.select(None if until is None else max(until - time.monotonic(), 0)):
                return {"state": "killed by time"}
        line = self._answers.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"state": "killed"}
        return answer


# --- in the process of pytest ---------------------------------------------------------------------


class Recorder:
    """Record which lines of some files run, and during which test."""

    def __init__(self, files: Sequence[str]) -> None:
        """Take the full names of the files."""
        self._files = frozenset(files)
        self._imported = self._now = set[tuple[str, int]]()
        self._ran: dict[str, set[tuple[str, int]]] = {}
        self._seconds: dict[str, float] = {}

    def begin(self) -> None:
        """Trace this thread and the threads that start later."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def end(self) -> None:
        """Stop tracing."""
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        return self._line(frame, event, arg)

    def _line(self, frame: FrameType, _event: str, _arg: object) -> Any:
        self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record one test with its fixtures."""
        self._now = self._ran[item.nodeid] = set()
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.monotonic() - began
            _tell(done=len(self._ran), of=len(item.session.items))

    def written(self, folder: Path) -> dict[str, Any]:
        """Return what `Recording` reads: each test's seconds, and its lines of each module."""

        def by_module(ran: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            for file, line in sorted(ran):
                found.setdefault(str(Path(file).relative_to(folder)), []).append(line)
            return found

        tests = {name: (took, by_module(self._ran[name])) for name, took in self._seconds.items()}
        return {"tests": tests, "imported": by_module(self._imported)}


def pytest_configure(config: pytest.Config) -> None:
    """Record also what runs while tests are collected."""
    if _files:
        config.pluginmanager.register(_recorder)
        _recorder.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Wait for jobs. In a fork this returns, and pytest runs the fork's tests as usual."""
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
    """Tell which test has failed."""
    if report.failed:
        _tell(failed=report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded."""
    if _record_to:
        _recorder.end()
        written = _recorder.written(session.config.rootpath)
        _record_to[0].write_text(json.dumps(written), encoding="utf-8")


def _begun(session: pytest.Session, job: Mapping[str, Any]) -> None:
    """Set up the fork: its tests, and the changed functions."""
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
    """Make the functions of a module run what its file contains now."""
    changed = dict[tuple[str, int], CodeType]()

    def find(code: CodeType) -> None:
        if not code.co_name.startswith("<"):
            changed[code.co_qualname, code.co_firstlineno] = code
        for each in code.co_consts:
            if isinstance(each, CodeType):
                find(each)

    find(compile(file.read_bytes(), str(file), "exec", dont_inherit=True))
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(file):
            code = function.__code__
            function.__code__ = changed.get((code.co_qualname, code.co_firstlineno), code)


def _ended(pid: int, limit_s: float | None) -> State:
    """Wait until a fork ends; kill it and everything that it started if it takes too long."""
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
