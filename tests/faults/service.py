"""The real `serve` as a child process, alone or under a tracer that records or injects."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.driving import environ
from tests.database.made import put_new
from tests.e2e.processes import Process
from tests.forking import MORE_SPARES, is_spare
from tests.waiting import PATIENCE_S, until

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="there is no strace: apt-get install strace"
)


class Service:
    """A running service; `pid` is its own, not its tracer's."""

    def __init__(self, process: Process, *, traced: bool) -> None:
        self.process, self.port = process, process.port
        self.pid = _child(process.popen.pid) if traced else process.popen.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, number: int) -> int:
        """Send it a signal, wait for its end, and return its exit code."""
        self.signal(number)
        return self.process.code()

    def worker(self) -> int:
        """Return the process behind it that reads, once it is there."""
        until(self.children)
        return self.children()[0]

    def children(self) -> list[int]:
        """Return the processes that it has started."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if not is_spare(pid)]

    def stands_still(self) -> bool:
        """Return whether it was stopped and not resumed."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def alarms(self, name: str) -> bool:
        """Return whether readiness and the figures both show an alarm."""
        shown = name in json.loads(self.process.request("GET", "/readyz")[2])
        figures = self.process.request("GET", "/metrics")[2]
        return shown and f"tallyhook_{name}_alarm 1.0".encode() in figures

    @property
    def ended(self) -> bool:
        """Return whether the process is gone."""
        return self.process.popen.poll() is not None


def _child(tracer: int) -> int:
    found = Path(f"/proc/{tracer}/task/{tracer}/children").read_text().split()
    assert len(found) == 1, found
    return int(found[0])


@contextmanager
def a_service(
    folder: Path,
    *,
    script: str = "",
    under: Sequence[str] = (),
    restarts: str = "0",
    **more: str,
) -> Iterator[Service]:
    """Run a service on a free port until the block ends, and wait until it is ready.

    It begins with a new database, unless another is given or a tracer must see it being made.

    script    Python that each of its processes runs first, to plant something
    under     the words in front of it: of a tracer, or of what becomes it (`exec`)
    restarts  how often its reader will be restarted, a number
    """
    if not under and "DATABASE_URL" not in more:
        put_new(folder / "t.db")
    with starting(folder, script=script, under=under, restarts=restarts, **more) as process:
        process.wait_until_ready()
        assert process.port, process.log
        yield Service(process, traced=_stays(under))


def _stays(under: Sequence[str]) -> bool:
    """Return whether what is in front of a service stays its parent."""
    return under[:1] == ["strace"]


@contextmanager
def starting(
    folder: Path,
    *,
    script: str = "",
    under: Sequence[str] = (),
    restarts: str = "0",
    accepts: str = "",
    **more: str,
) -> Iterator[Process]:
    """Start a service that need not come so far as to serve.

    accepts  why it accepts a gap
    """
    words = [*under, sys.executable, "-m", "app", "serve", "--port", "0"]
    words += ["--accept-gap", "--reason", accepts] if accepts else []
    with planted(script) as environment:
        environment[MORE_SPARES] = restarts
        process = Process(words, environ(folder, **more) | environment)
        try:
            yield process
        finally:
            _end(process, traced=_stays(under))


@contextmanager
def planted(script: str) -> Iterator[dict[str, str]]:
    """Yield environment variables with which the program and its children run this first."""
    if not script:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(script)
        yield {"PYTHONPATH": folder}


def _end(process: Process, *, traced: bool) -> None:
    if process.popen.poll() is None:
        # A tracer that is killed lets its child run on.
        pid = _child(process.popen.pid) if traced else process.popen.pid
        os.kill(pid, 9)
        process.popen.wait(PATIENCE_S)
    process.code()
    assert process.popen.stderr is not None
    process.popen.stderr.close()
