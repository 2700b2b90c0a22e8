"""Share test files among forks of one process of pytest, which has collected the tests.

Collecting takes ten seconds of processor, and each process that collects needs them:

    1 the parent collects, and writes the number of each file into a pipe
    2 each fork takes the number of a file, runs its tests, and takes the next
    3 a fork sends its reports to the parent, which prints them
    4 a test during which a fork ends has failed

`pytest -p tests.workers --workers 3` has three forks.
"""

import os
import pickle
from collections.abc import Iterator, Sequence
from itertools import groupby
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, Final

import pytest

NUMBER: Final = "TEST_WORKER"
"""Environment variable with a fork's number, from 0 on."""

BYTES: Final = 4
"""Bytes of a file's number in the pipe, which gives so few to one reader."""

Files = Sequence[Sequence[pytest.Item]]
Sent = tuple[str, dict[str, Any] | None]
"""The test that begins, without a report, or a test's report; or an empty name at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--workers`."""
    parser.addoption("--workers", type=int, default=0, help="forks that share the test files")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks, and report them. Returns in the parent and in each fork."""
    count = session.config.option.workers
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    files = [list(each) for _, each in groupby(session.items, key=lambda item: item.path)]
    left, given = os.pipe()
    os.write(given, b"".join(number.to_bytes(BYTES) for number in range(len(files))))
    os.close(given)
    forks = dict[int, IO[bytes]]()
    for number in range(count):
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            os.environ[NUMBER] = str(number)
            os.close(ours)
            for pipe in forks.values():
                pipe.close()
            with os.fdopen(theirs, "wb", 0) as pipe:
                _work(session, files, left, pipe)
            return True
        os.close(theirs)
        forks[pid] = os.fdopen(ours, "rb")
    _report(session, forks)
    return True


# --- in the parent --------------------------------------------------------------------------------


def _report(session: pytest.Session, forks: dict[int, IO[bytes]]) -> None:
    """Report what all forks send, until each has ended."""
    sent = SimpleQueue[tuple[int, Sent | None]]()

    def listen(pid: int, pipe: IO[bytes]) -> None:
        message: Sent | None = ("begun", None)
        with pipe:
            while message is not None and message[0]:
                try:
                    message = pickle.load(pipe)
                except (EOFError, pickle.UnpicklingError):
                    message = None
                sent.put((pid, message))

    for pid, pipe in forks.items():
        Thread(target=listen, args=(pid, pipe), daemon=True).start()
    hook, at = session.config.hook, dict.fromkeys(forks, "")
    while at:
        pid, message = sent.get()
        if message is None:
            died = f"the worker has ended during this test: {os.waitpid(pid, 0)[1]}"
            name = at.pop(pid)
            report = pytest.TestReport(name, (name, None, ""), {}, "failed", died, "call")
            hook.pytest_runtest_logreport(report=report)
        elif (data := message[1]) is not None:
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
        elif message[0]:
            at[pid] = message[0]
        else:
            del at[pid]
            os.waitpid(pid, 0)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)  # forks end as they cannot send any more


# --- in a fork ------------------------------------------------------------------------------------


class _Sender:
    """What sends a fork's reports to the parent."""

    def __init__(self, config: pytest.Config, pipe: IO[bytes]) -> None:
        self._config = config
        self._pipe = pipe

    def send(self, name: str, data: dict[str, Any] | None = None) -> None:
        """Send one message."""
        pickle.dump((name, data), self._pipe)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Send which test begins."""
        self.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self.send(report.nodeid, data)


def _work(session: pytest.Session, files: Files, left: int, pipe: IO[bytes]) -> None:
    """Run the tests of one file after the other, until none is left."""
    config: Any = session.config
    config.workerinput = {}  # plugins write no summaries where there is one
    config.pluginmanager.unregister(name="terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.read_global_capture()
    capture.stop_global_capturing()  # its files are the parent's
    capture.start_global_capturing()
    sender = _Sender(config, pipe)
    config.pluginmanager.register(sender)
    items = _items(files, left)
    item = next(items, None)
    while item is not None and not session.shouldfail:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following
    sender.send("")
    config.pluginmanager.unregister(sender)


def _items(files: Files, left: int) -> Iterator[pytest.Item]:
    while number := os.read(left, BYTES):
        yield from files[int.from_bytes(number)]
