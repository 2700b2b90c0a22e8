"""Functions that the tests of `app.core.child` run there; it imports this module alone."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Never

from app.core.errors import ConfigurationError, NotFoundError, UnreachableError, UsageError


class Refused(UsageError):
    """Error that only this module knows."""


def echo(*values: Any) -> Any:
    print("this is no answer")
    return values[0] if len(values) == 1 else values


def pieces(count: int, work: Callable[..., Any] | None = None, *values: Any) -> Iterator[bytes]:
    """Yield pieces of a mebibyte, and do some work after them."""
    print("this is no answer")
    for number in range(count):
        yield bytes([number]) * 2**20
    if work is not None:
        work(*values)


def number_of_process() -> int:
    return os.getpid()


def take_memory(mib: int) -> int:
    return len(b"x" * (mib * 2**20))


def compute_for_ever() -> Never:
    while True:
        pass


def sleep_for_ever() -> Never:
    while True:
        time.sleep(60)


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)


def end(how: str) -> None:
    if how == "exit":
        os._exit(0)
    os.kill(os.getpid(), signal.Signals[how])


def fail(secret: str) -> Never:
    raise ValueError(secret)


def refuse(kind: str, sentence: str) -> Never:
    if kind == "ConfigurationError":
        raise ConfigurationError([sentence])
    known = {"NotFoundError": NotFoundError, "UnreachableError": UnreachableError}
    raise known.get(kind, Refused)(sentence)


def give_object() -> Path:
    return Path("/")


def forge(answer: bytes) -> Never:
    """Answer as a child that a hostile file has taken over."""
    for number in range(3, 20):
        try:
            os.write(number, answer)
        except OSError:
            continue
    os._exit(0)


def leave_another(folder: Path) -> Never:
    """Note the numbers of this process and of one more, as names of files, and stay."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    for number in (os.getpid(), other.pid):
        (folder / str(number)).touch()
    sleep_for_ever()


def leave_the_pipe_to_another(folder: Path) -> Never:
    """End, while a fork keeps the pipe open on which it would say how."""
    if number := os.fork():
        (folder / str(number)).touch()
        os._exit(0)
    pipes = [n for n in range(3, 20) if Path(f"/proc/self/fd/{n}").is_fifo()]
    os.close(pipes[0])  # that of the answer
    sleep_for_ever()


def surroundings(folder: Path) -> dict[str, Any]:
    """Describe what the child has from its parent."""
    try:
        (folder / "written").write_text("x")
        written = True
    except OSError:
        written = False
    return {
        "environment": dict(os.environ),
        "descriptors": [
            os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")[:-1]
        ],
        "input": sys.stdin.read(),
        "session": os.getsid(0) == os.getpid(),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "written": written,
        "alarm_s": signal.getitimer(signal.ITIMER_REAL)[0],
    }


def limits() -> dict[str, list[int]]:
    names = ("RLIMIT_AS", "RLIMIT_CPU")
    return {name: list(resource.getrlimit(getattr(resource, name))) for name in names}
