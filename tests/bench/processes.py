"""Servers and commands as processes of their own, started, watched and ended by pid."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.load import Target
from tests.bench.machine import peak_rss_mib
from tests.bench.sampler import lines, planted, sampled
from tests.forking import Started
from tests.ports import free_port

DATABASE = "bench.db"
START_S = 120
END_S = 120
WATCH_S = 0.02


def environment(database: Path, secret: str) -> dict[str, str]:
    """Return the settings that a service needs; all others are defaults."""
    return {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{database.absolute()}",
        "TALLYHOOK_SOURCES__SHOP__SECRETS": secret,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that succeeded: seconds by the clock and of the processor, and its peak memory
    without its child processes."""

    seconds: float
    processor: float
    peak_rss_mib: float


@contextmanager
def server(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    start: Callable[..., Started] = subprocess.Popen,
) -> Iterator[Target]:
    """Run `python -m COMMAND… PORT` until the block ends; its output goes to `log`.

    It may use every core, as in production. The load generator keeps to one core, so that the
    scheduler does not put both on one. start: tests may fork it instead."""
    port = free_port()
    with process([*command, str(port)], log=log, env=env, start=start) as running:
        _wait_for(running, port, log)
        yield Target(port=port, pid=running.pid)


@contextmanager
def process(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    start: Callable[..., Started] = subprocess.Popen,
) -> Iterator[Started]:
    """Run `python -m COMMAND…` until the block ends; its output goes to `log`."""
    with log.open("wb") as out:
        running = start(
            [sys.executable, "-m", *command], env=os.environ | env, stdout=out, stderr=out
        )
    try:
        yield running
    finally:
        _end(running)


def _wait_for(process: Started, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(WATCH_S)
    raise RuntimeError(f"the server did not start; its last words:\n{last_words(log)}")


def last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2_000:]


def _end(process: Started) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(command: Sequence[str], *, log: Path, env: Mapping[str, str], cores: set[int]) -> Ran:
    """Run `python -m COMMAND…` on some cores. Raises RuntimeError with its last output if it
    fails."""
    peak, before = 0.0, _processor_seconds()
    with log.open("wb") as out, on_cores(cores):  # a child inherits them
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", *command], env=os.environ | env, stdout=out, stderr=out
        )
    try:
        while process.poll() is None:
            peak = peak_rss_mib(process.pid) or peak
            time.sleep(WATCH_S)
        seconds = time.perf_counter() - started
    finally:
        if process.poll() is None:
            _end(process)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed; its last words:\n{last_words(log)}")
    return Ran(seconds=seconds, processor=_processor_seconds() - before, peak_rss_mib=peak)


def profile_of(command: Sequence[str], *, folder: Path, env: Mapping[str, str]) -> list[str]:
    """Return the functions in which a command spends most processor time."""
    with TemporaryDirectory(dir=folder) as samples:
        more = planted(Path(samples))
        run(command, log=folder / "profile.log", env={**env, **more}, cores=last_two_cores())
        return lines(sampled(Path(samples)))


def _processor_seconds() -> float:
    """Return the processor time of ended child processes; only one runs at a time."""
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken.ru_utime + taken.ru_stime


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Keep this thread, and what it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def last_core() -> int:
    """Return the core of the load generator, or of a rebuild on one core."""
    return max(os.sched_getaffinity(0))


def last_two_cores() -> set[int]:
    """Return the cores of a rebuild in two processes: one, if the machine has one."""
    return set(sorted(os.sched_getaffinity(0))[-2:])
