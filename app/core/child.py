"""Run a plain function in a child process with limits on memory, processor time and duration.

    parent                                            child
    start an interpreter without the secrets      ─▶  lower its limits
    send the function's name and arguments        ─▶  call the function
    read JSON or bytes, up to a size              ◀─  answer with a result or an error
    kill it at its deadline, or if the caller is canceled

The function may read hostile data, so the parent never unpickles the answer. The child is not
isolated: it can read files and use the network.
"""

import asyncio
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePath
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic
from traceback import extract_tb
from typing import IO, Any, Final, Literal, TypeVar

from app.core.errors import NotFoundError, TallyhookError, UnreachableError, UsageError

Result = TypeVar("Result")

MIB: Final = 1024 * 1024

MAX_SENTENCE: Final = 2_000
"""Maximum length in bytes of a child's error message that the parent passes on."""

MAX_HEAD: Final = 4_000
"""Maximum bytes of a child's answer on standard error, which a pipe accepts in one write."""

AT_ONCE: Final = 4
"""Maximum number of children that run at a time, each in one of at least five threads."""

_TURNS: Final = asyncio.Semaphore(AT_ONCE)

_TOO_MUCH: Final = 1_000
"""Code that stands for the child's exit code if the result is too large."""

_INHERITED: Final = (
    "PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "LANG", "TZ", "XDG_DATA_HOME", "XDG_DATA_DIRS",
)  # fmt: skip
"""Environment variables that a child inherits, besides LC_*. Other variables may hold secrets."""

_KINDS: Final[tuple[type[TallyhookError], ...]] = (NotFoundError, UnreachableError, UsageError)
"""Classes of errors that reach the caller unchanged when a child raises them. Any other Tallyhook
error becomes a UsageError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """Limits of a child process."""

    memory_mib: int
    """MiB of address space, of which interpreter and imports need about 50."""
    processor_s: int
    """Whole seconds of processor time."""
    duration_s: float
    """Seconds from the start of the child to its answer."""
    result_mib: int = 16
    """MiB of the answer."""


Reason = Literal["memory", "processor_time", "duration", "result", "died", "failed"]


class ChildStopped(TallyhookError):
    """Error for a child process that gave no result, because the child reached a limit, died or
    failed."""

    def __init__(self, sentence: str, *, reason: Reason) -> None:
        super().__init__(sentence)
        self.reason = reason


async def run_in_child(work: Callable[..., Result], *values: object, limits: ChildLimits) -> Result:
    """Call `work(*values)` in a child process and return the result.

    `work` must be a top-level function, and the values picklable. The result is bytes or a JSON
    value.

    Raises the function's own UsageError, NotFoundError or UnreachableError, and ChildStopped if no
    result came.
    """
    request, answer = _request(work, values), BytesIO()
    async with _TURNS:
        process = _started(limits)
        unasked = [process]  # until its thread begins
        try:
            head, code = await asyncio.to_thread(
                lambda: _written(unasked.pop(), request, limits=limits, to=answer)
            )
        finally:
            if process.poll() is None:  # the caller was canceled; this ends the thread, too
                _kill(process)
            with suppress(IndexError):  # the caller was canceled before the thread began
                _end(unasked.pop())
    found: Result = _result(answer.getvalue(), head, code, limits)
    return found


def write_from_child(
    work: Callable[..., Iterator[bytes]], *values: object, limits: ChildLimits, to: IO[bytes]
) -> None:
    """Run the generator `work(*values)` in a child process, and write its bytes to a file.

    Blocks the thread. Raises the function's own Tallyhook error, or ChildStopped; the file is then
    incomplete.
    """
    head, code = _written(_started(limits), _request(work, values), limits=limits, to=to)
    _result(b"", head, code, limits)


def _started(limits: ChildLimits) -> subprocess.Popen[bytes]:
    given = (limits.memory_mib * MIB, limits.processor_s, limits.duration_s)
    folders = repr([each or os.getcwd() for each in sys.path])
    kept = {k: v for k, v in os.environ.items() if k in _INHERITED or k.startswith("LC_")}
    return subprocess.Popen(  # noqa: S603  # this interpreter
        [sys.executable, "-IB", "-c", _START, folders, *map(str, given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**kept, "MALLOC_ARENA_MAX": "2"},  # each reserves address space
        start_new_session=True,
    )


def _written(
    process: subprocess.Popen[bytes], request: bytes, *, limits: ChildLimits, to: IO[bytes]
) -> tuple[bytes, int]:
    """Send a request to a child, and write its result to `to`.

    Return the child's standard error and exit code, which is `_TOO_MUCH` for a long result.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ends, written, head, code = monotonic() + limits.duration_s, 0, b"", -signal.SIGALRM
    unsent = memoryview(request)
    unread = 2  # pipes; processes started by the child may hold these open
    os.set_blocking(process.stdin.fileno(), False)
    try:
        with DefaultSelector() as pipes:
            pipes.register(process.stdin, EVENT_WRITE)
            pipes.register(process.stdout, EVENT_READ)
            pipes.register(process.stderr, EVENT_READ)
            while unread and code != _TOO_MUCH:
                for pipe, _ in pipes.select(_until(ends)):
                    if pipe.fileobj is process.stdin:
                        try:
                            unsent = unsent[os.write(pipe.fd, unsent) :]
                        except BrokenPipeError:  # the child has died; its exit code tells why
                            unsent = unsent[:0]
                        if not unsent:
                            pipes.unregister(process.stdin)
                            process.stdin.close()
                    elif not (part := os.read(pipe.fd, MIB)):
                        pipes.unregister(pipe.fileobj)
                        unread -= 1
                    elif pipe.fileobj is process.stderr:
                        head += part[: MAX_HEAD - len(head)]
                    elif (written := written + to.write(part)) > limits.result_mib * MIB:
                        code = _TOO_MUCH
        if not unread:
            code = process.wait(_until(ends))
    except (TimeoutError, subprocess.TimeoutExpired):
        pass
    finally:
        _end(process)
    return head, code


def _until(end: float) -> float:
    if (left := end - monotonic()) <= 0:
        raise TimeoutError
    return left


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        _kill(process)
        process.wait()
    for each in (process.stdin, process.stdout, process.stderr):
        if each is not None:
            each.close()


def _request(work: Callable[..., Any], values: tuple[object, ...]) -> bytes:
    return pickle.dumps((work, values), protocol=pickle.HIGHEST_PROTOCOL)


def _result(answer: bytes, head: bytes, code: int, limits: ChildLimits) -> Any:
    if code == _TOO_MUCH:
        raise ChildStopped(f"the result is larger than {limits.result_mib} MiB", reason="result")
    if code == -signal.SIGALRM:
        raise ChildStopped(f"it takes more than {limits.duration_s:g} s", reason="duration")
    if code == -signal.SIGXCPU:
        raise ChildStopped(
            f"it takes more than {limits.processor_s} s of processor time", reason="processor_time"
        )
    how, _, text = head.partition(b"\n")
    if how == b"memory":
        raise ChildStopped(f"it takes more than {limits.memory_mib} MiB of memory", reason="memory")
    sentence = text.decode("utf-8", "replace")
    if how == b"failed":
        raise ChildStopped(f"the function failed in its process: {sentence}", reason="failed")
    if code == 0 and how == b"bytes":
        return answer
    if code == 0 and how == b"json":
        with suppress(ValueError, RecursionError):
            return json.loads(answer)
    for kind in _KINDS:
        if how == kind.__name__.encode():
            raise kind(sentence)
    raise ChildStopped(f"its process ended unexpectedly (exit code {code})", reason="died")


# --- in the child ---------------------------------------------------------------------------------

_START: Final = "import sys; sys.path[:] = eval(sys.argv[1]); import app.core.child as c; c.serve()"


def serve() -> None:
    """Answer one request from standard input, within the command line's limits.

    The result goes to standard output; its format, or a failure, to standard error.
    """
    memory, processor_s, duration_s = map(float, sys.argv[2:])
    with os.fdopen(os.dup(1), "wb") as output, os.fdopen(os.dup(2), "wb") as head:
        for number in (1, 2):  # text that the function prints is not the answer
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        _lower(resource.RLIMIT_AS, int(memory))
        _lower(resource.RLIMIT_CPU, int(processor_s), beyond=1)
        _lower(resource.RLIMIT_FSIZE, 0)
        _lower(resource.RLIMIT_CORE, 0)
        signal.setitimer(signal.ITIMER_REAL, duration_s + 1)  # ends it even if the parent is gone
        try:
            head.write(_answer(output))
        except MemoryError:
            head.write(b"memory\n")


def _lower(kind: int, most: int, *, beyond: int = 0) -> None:
    """Lower one of this process's resource limits permanently. The new hard limit is `most` plus
    `beyond`."""
    limits = [most, most + beyond]
    for place, before in enumerate(resource.getrlimit(kind)):
        if before != resource.RLIM_INFINITY:
            limits[place] = min(limits[place], before)
    resource.setrlimit(kind, (min(limits), limits[1]))


def _answer(output: IO[bytes]) -> bytes:
    try:
        work, values = pickle.load(sys.stdin.buffer)  # noqa: S301  # from the parent
        found = work(*values)
        if isinstance(found, Iterator):
            output.writelines(found)
        elif not isinstance(found, bytes):
            output.write(json.dumps(found).encode())
            output.flush()
            return b"json\n"
        else:
            output.write(found)
        output.flush()
    except MemoryError:
        raise
    except TallyhookError as error:
        kind = next((each for each in _KINDS if isinstance(error, each)), UsageError)
        return f"{kind.__name__}\n".encode() + str(error).encode("utf-8", "replace")[:MAX_SENTENCE]
    except BaseException as error:  # includes panics of Rust libraries
        place = extract_tb(error.__traceback__)[-1]
        where = f"{PurePath(place.filename).name}, line {place.lineno}"
        return f"failed\n{type(error).__name__} in {where}".encode("utf-8", "replace")
    return b"bytes\n"
