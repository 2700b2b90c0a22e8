"""Supervise the processes beside a receiver of webhooks: the worker and the console.

Parent and worker exchange one-byte messages over a pair of sockets:

    parent → child   b"+" a delivery was accepted or a record stated
                     b"s" end when the inbox is empty        b"e" end now; the next child continues
                     b"l" stop folding: another process folds  b"f" resume folding
    child → parent   b"r" the disk is checked, work starts   b"+" a delivery was read
                     b"!" the disk has failed, the child ends
                     b"a" an alarm may have begun or ended

A child ignores signals, and ends when its socket is closed. A child that ends by itself is
restarted after a growing pause, except after a disk failure.
"""

import asyncio
import os
import pickle
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from time import monotonic
from typing import IO, Any, Final

from app.core.errors import ConfigurationError
from app.core.logs import Repeating, log
from app.core.process import ending_signals, why_ended
from app.core.signals import Signal

# --- settings -------------------------------------------------------------------------------------


_VERSION: Final = version("tallyhook")
"""Version of the program that this process runs. A newer version may have been installed since the
process started."""


def handed_over(*values: object) -> IO[bytes]:
    """Return a file in anonymous memory with the program's version and values, for a child's input.

    On the command line, other users could read the values.
    """
    memory = os.fdopen(os.memfd_create("settings"), "w+b")
    pickle.dump(_VERSION, memory)
    pickle.dump(values, memory)
    memory.seek(0)
    return memory


def taken_over() -> tuple[Any, ...]:
    """Return the values that the parent passed to this process.

    Raise ConfigurationError if another version was installed since.
    """
    with os.fdopen(os.dup(0), "rb") as memory:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with suppress(EOFError, pickle.UnpicklingError, AttributeError, ImportError):
            if pickle.load(memory) == _VERSION:  # noqa: S301  # from the parent
                values: tuple[Any, ...] = pickle.load(memory)  # noqa: S301
                return values
    raise ConfigurationError(
        ["the program was replaced after the service started: restart the service"]
    )


# --- the worker -----------------------------------------------------------------------------------


AGAIN_S: Final = 0.2
"""Pause in seconds before a child is restarted. The pause doubles each time, up to MOST_S."""

MOST_S: Final = 5.0

STEADY_S: Final = 30.0
"""Seconds for which a child must run so that the pause before its next restart is short again."""

MISSED_S: Final = 5.0
"""Seconds without a running child after which the service reports that it is not ready. A child
starts in about a second."""

STOP_S: Final = 20.0
"""Seconds that a child process gets to end when told to, before it is killed."""

NICENESS: Final = 5
"""Niceness of child processes, with which a child gets a quarter of a shared core."""

NEWS: Final = b"+"
STOP: Final = b"s"
END: Final = b"e"
READY: Final = b"r"
FAILED: Final = b"!"
LEAVE: Final = b"l"
FOLD: Final = b"f"
ALARMING: Final = b"a"


READER: Final = "the process that reads the inbox"


class WorkerProcess:
    """Supervisor that keeps the worker process running. `ready` is true while a worker runs and has
    checked the disk."""

    def __init__(
        self,
        *,
        read: Signal,
        news: tuple[Signal, ...],
        failed: Callable[[str], None],
        alarming: Callable[[], None] = lambda: None,
        drains: bool = True,
        settings: object = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Prepare the supervisor without starting a worker.

        read      signal that is set when the worker has read deliveries
        news      signals that are passed on to the worker
        failed    called with the reason when the disk under the database has failed
        alarming  called when an alarm may have begun or ended
        drains    whether the worker must read all accepted deliveries before it ends
        settings  settings that are passed to the worker
        """
        self._failed = failed
        self._alarming = alarming
        self._drains = drains
        self._settings = settings
        self._clock = clock
        self._read = read
        self._news = news
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._gone_at = clock()
        """Time at which the last ready child ended, or else at which this object was created."""
        self._stopping = asyncio.Event()
        self._starting = asyncio.Lock()
        """Lock that is held during a child's start, because a child that is still starting cannot
        be told to end."""
        self._leaves = False
        """True while another process folds. The child must not fold then."""
        self.ready = False
        self.on_news: Callable[[], None] = lambda: None
        """Called when the child has read deliveries, or when this process has stored a record."""

    def leave_folding(self, leaves: bool) -> None:
        """Tell the worker whether another process folds orders and seals evidence instead."""
        self._leaves = leaves
        if self.ready:
            say(self._writer, LEAVE if leaves else FOLD)

    def missing(self) -> str | None:
        """Return a sentence about the missing worker if no worker has run for more than 5 seconds.
        Otherwise return None."""
        gone = self._clock() - self._gone_at
        if self.ready or gone < MISSED_S:
            return None
        return (
            f"the process that reads accepted deliveries has not been running for {int(gone)} s: "
            "see the log"
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep a worker running until the block ends. With `drains`, the worker then reads all
        accepted deliveries before it ends."""
        for signalled in self._news:
            signalled.elsewhere = self._tell
        kept = keep(
            self._live, component=READER, stopping=self._stopping, again_s=AGAIN_S, most_s=MOST_S,
            clock=self._clock,
        )  # fmt: skip
        keeping = asyncio.create_task(kept)
        try:
            yield
        finally:
            self._stopping.set()
            await self._end()
            await keeping

    def _tell(self) -> None:
        self.on_news()
        tell_news(self._writer)

    async def _live(self) -> int:
        async with self._starting:
            self._process, reader, self._writer = await started(self._settings, "worker")
        try:
            while received := await bytes_of(reader):
                if READY in received and not self.ready:
                    self.ready = True
                    if self._leaves:
                        self.leave_folding(True)
                if NEWS in received:
                    self._read.hear()
                    self.on_news()
                if ALARMING in received:
                    self._alarming()
                if FAILED in received:
                    self._stopping.set()  # none is started again on a disk that has failed
                    self._failed(
                        "the disk reported an I/O error or became read-only, in the process that "
                        "reads the inbox"
                    )
        finally:
            writer, self._writer = self._writer, None
            writer.close()
        code = await self._process.wait()
        if self.ready:
            self.ready, self._gone_at = False, self._clock()
        return code

    async def _end(self) -> None:
        async with self._starting:
            pass  # none is started after this one
        say(self._writer, STOP if self._drains else END)
        process = self._process
        if process is None or process.returncode is not None:
            return
        if not (self._drains or self.ready):  # it has not begun
            process.kill()
        await end_of(process, within_s=STOP_S, component=READER)


async def started(
    settings: object, *words: str
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
    """Start a command of the program as a child process.

    Return the process, and the parent's end of the socket pair as a reader and a writer.
    """
    ours, theirs = socket.socketpair()
    with theirs, handed_over(settings) as memory:
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "app", *words, "--parent", str(theirs.fileno())),
                stdin=memory,
                pass_fds=(theirs.fileno(),),
            )
        except OSError:
            ours.close()
            raise
    return process, *await asyncio.open_connection(sock=ours)


_GONE: Final = (
    "the receiver gave no reason. A person or the system (for lack of memory) killed it, or a "
    "file that it had mapped was truncated, such as the -shm file of the database or the inbox. "
    "Find the signal in the logs of the supervisor and the kernel, then start the receiver again"
)


class Parent:
    """A child process's connection to its parent."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=number)
        self._writer: asyncio.StreamWriter | None = None

    async def hear(
        self,
        *,
        read: Signal,
        news: tuple[Signal, ...],
        stop: Callable[[bool], None],
        alarming: Signal | None = None,
        leave: Callable[[bool], None] = lambda leaves: None,
    ) -> None:
        """Handle the parent's messages until the parent is gone.

        read      signal that tells the parent that a delivery was read
        news      signals that are set when the parent reports news
        stop      called when the child must end; True if it must first read all accepted deliveries
        alarming  signal that tells the parent that an alarm may have begun or ended
        leave     called with True when another process begins to fold, and with False when it ends
        """
        ends = False
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        read.elsewhere = self._tell
        if alarming is not None:
            alarming.elsewhere = lambda: say(self._writer, ALARMING)
        say(self._writer, READY)
        while received := await bytes_of(reader):
            if LEAVE in received or FOLD in received:
                leave(received.rfind(LEAVE) > received.rfind(FOLD))
            for each in news:
                each.hear()
            if STOP in received or END in received:
                ends = True
                stop(STOP in received)
        if not ends:  # no other process of ours is left to report it
            log.error("the receiver has ended, so this process ends too", problem=_GONE)
        stop(False)

    def fail(self) -> None:
        """Tell the parent that the disk has failed. The parent then acknowledges no more
        deliveries."""
        if self._writer is not None:
            say(self._writer, FAILED)
            return
        with suppress(OSError):  # it is still starting, or the parent is gone
            self._socket.send(FAILED)

    def _tell(self) -> None:
        tell_news(self._writer)


def give_way_to_parent(*, folding: bool = False) -> None:
    """Lower this process's priority below the receiver's, because senders wait.

    folding  True for a process that folds, whose priority is lower still
    """
    os.nice(3 * NICENESS if folding else NICENESS)


def leave_signals_to_parent() -> None:
    """Ignore the signals by which a terminal or supervisor ends this process together with its
    parent."""
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, lambda: None)


def say(writer: asyncio.StreamWriter | None, word: bytes) -> None:
    """Send a message to another process. The message is lost if the process has just ended."""
    if writer is not None and not writer.is_closing():
        writer.write(word)


def tell_news(writer: asyncio.StreamWriter | None) -> None:
    """Notify a process of news, unless an earlier notification still waits to be sent."""
    if writer is not None and not writer.transport.get_write_buffer_size():
        say(writer, NEWS)


async def end_of(process: asyncio.subprocess.Process, *, within_s: float, component: str) -> int:
    """Wait for a process to end and return its exit code. Kill the process if it takes longer than
    `within_s` seconds."""
    try:
        async with asyncio.timeout(within_s):
            return await process.wait()
    except TimeoutError:
        process.kill()
        log.error("a child process does not end; it is killed", component=component)
        return await process.wait()


async def keep(
    live: Callable[[], Awaitable[int]],
    *,
    component: str,
    stopping: asyncio.Event,
    again_s: float,
    most_s: float,
    clock: Callable[[], float] = monotonic,
) -> None:
    """Run a child, and restart it whenever it ends, until `stopping` is set.

    live     starts a child, and returns its exit code when it ends
    again_s  seconds of the first pause before a restart
    most_s   seconds up to which the pause doubles
    """
    ended, pause = Repeating(clock), again_s
    while not stopping.is_set():
        began = monotonic()
        try:
            code = await live()
        except OSError as error:  # out of memory or descriptors, perhaps only for a moment
            log.error("a child process cannot be started", component=component, exc_info=error)
        else:
            if not stopping.is_set() and (times := ended.times(str(code))):
                log.error(
                    "a child process has ended",
                    component=component,
                    exit_code=code,
                    problem=why_ended(code),
                    count=times,
                )
        if monotonic() - began > STEADY_S:
            pause = again_s
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stopping.wait()
        pause = min(2 * pause, most_s)


async def bytes_of(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes that have arrived, up to 4,096. Return no bytes at the end of the stream."""
    try:
        return await reader.read(4_096)
    except ConnectionError:
        return b""


# --- the console ----------------------------------------------------------------------------------

CONSOLE_AGAIN_S: Final = 1.0

CONSOLE_MOST_S: Final = 60.0

CONSOLE_STOP_S: Final = 10.0


@asynccontextmanager
async def console_beside(*, host: str, port: int, settings: object) -> AsyncIterator[None]:
    """Run a console in a separate process until the block ends. The console is restarted if it ends
    earlier."""
    stopping = asyncio.Event()

    async def live() -> int:
        process, _, writer = await started(settings, "console", "--host", host, "--port", str(port))
        ended = asyncio.ensure_future(process.wait())
        asked = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        writer.close()
        return await end_of(process, within_s=CONSOLE_STOP_S, component="the console")

    kept = keep(
        live, component="the console", stopping=stopping, again_s=CONSOLE_AGAIN_S,
        most_s=CONSOLE_MOST_S,
    )  # fmt: skip
    keeping = asyncio.create_task(kept)
    try:
        yield
    finally:
        stopping.set()
        await keeping
