"""Processes beside a receiver, started, watched and ended from here: the worker, and the console.

The worker reads the inbox, folds, seals and notifies. It is spoken to over a pair of sockets that
says only that something happened:

    parent → child   b"+" something was accepted or said      b"s" end when the inbox is empty
                     b"e" end: the next reads on
                     b"l" leave folding to another            b"f" fold again
    child → parent   b"r" the disk is sure, and it begins     b"+" something was read
                     b"!" the disk has failed it, and it ends
                     b"a" what an alarm is about has begun or ended

A child gets the settings of its parent, in memory that is its standard input. A settings file that
has changed since the parent started counts from the parent's next start.

A child whose socket is closed ends: its parent is gone. It takes no signal for itself, since a
Ctrl-C or a supervisor may signal both, and what was accepted is still to be read. One that ends by
itself is started again, sooner at first and later each time; a worker whose disk has failed is not.
The end of a console never ends the parent.
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

import structlog

from app.core.errors import ConfigurationError
from app.core.logs import Repeating
from app.core.process import ending_signals, why_ended
from app.core.signals import Signal

# --- settings -------------------------------------------------------------------------------------


_VERSION: Final = version("tallyhook")
"""The version that was loaded: the program may be replaced while it runs."""


def handed_over(*values: object) -> IO[bytes]:
    """Return anonymous memory with the program's version and values such as the settings, to be the
    standard input of a child: other users could read secrets on its command line."""
    memory = os.fdopen(os.memfd_create("settings"), "w+b")
    pickle.dump(_VERSION, memory)
    pickle.dump(values, memory)
    memory.seek(0)
    return memory


def taken_over() -> tuple[Any, ...]:
    """Return the values that the parent handed over. Raises ConfigurationError where the program
    was replaced since the parent started: its parts would judge by different rules."""
    with os.fdopen(os.dup(0), "rb") as memory:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with suppress(EOFError, pickle.UnpicklingError, AttributeError, ImportError):
            if pickle.load(memory) == _VERSION:  # noqa: S301  # from the parent
                values: tuple[Any, ...] = pickle.load(memory)  # noqa: S301
                return values
    raise ConfigurationError(
        ["the program is another than the service was started with: start the service again"]
    )


# --- the worker -----------------------------------------------------------------------------------

log = structlog.get_logger()

AGAIN_S: Final = 0.2
"""Until a child that has ended is started again; twice as long each time, up to MOST_S."""

MOST_S: Final = 5.0

STEADY_S: Final = 30.0
"""A child that has run for so long is started again as soon as the first."""

MISSED_S: Final = 5.0
"""For which there may be none before readiness says so: one that starts needs a second."""

STOP_S: Final = 20.0
"""A child has so long to end; then it is killed. What it leaves unread is read at the next
start."""

NICENESS: Final = 5
"""More than the receiver's: a quarter of a core that both want, and all of one that is free. More
would starve the reading beside whatever else keeps the machine busy: at 10 it came to a tenth."""

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
    """Keeps one child running. `ready`: it has made sure of the disk, and has not ended."""

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
        """read: set when the child has read something; news: what the child is notified of; failed:
        called with the reason when the disk under the database has failed; alarming: called when
        what an alarm is about has begun or ended; drains: whether it reads what was accepted before
        it ends. Else the next does, and senders wait for it."""
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
        """When the last child that was ready ended; before the first one, when this began."""
        self._stopping = asyncio.Event()
        self._starting = asyncio.Lock()
        """Held while a child is being started: until it can be spoken to, it cannot be ended."""
        self._leaves = False
        """Whether it is to leave folding to another."""
        self.ready = False
        self.on_news: Callable[[], None] = lambda: None
        """Called when something was read by the child, or said of an order here."""

    def leave_folding(self, leaves: bool) -> None:
        """Have the child leave folding and sealing to another process, or fold and seal again."""
        self._leaves = leaves
        if self.ready:
            say(self._writer, LEAVE if leaves else FOLD)

    def missing(self) -> str | None:
        """Return why nothing is read; None while the child works, or is just starting."""
        gone = self._clock() - self._gone_at
        if self.ready or gone < MISSED_S:
            return None
        return (
            "the process that reads what was accepted has not been running for "
            f"{int(gone)} s: see the log"
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep a child running. On leaving, it has read all accepted deliveries, if it drains, or
        was killed."""
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
        """Run one child from its start to its end. Returns its exit code."""
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
                        "the disk reported an I/O error or became read-only: "
                        "the process that reads the inbox met it"
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
    """Start a command as a child; return it with its parent's end of the pair of sockets."""
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
    "the receiver did not say why: somebody killed it, the system did for lack of memory, or a "
    "file that it had mapped was cut off, such as the -shm beside the database or its inbox; its "
    "supervisor's log and the kernel's have the signal; start it again"
)


class Parent:
    """The child's end of the pair of sockets to its parent."""

    def __init__(self, number: int) -> None:
        """Take the number of the descriptor that was handed over."""
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
        """Read the parent's messages until it is gone. stop: called with whether there is time to
        read accepted deliveries; leave: with whether another process folds and seals."""
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
        if not ends:  # nobody else of ours is left to say so
            log.error("the receiver is gone, and this process ends, too", problem=_GONE)
        stop(False)

    def fail(self) -> None:
        """Notify the parent that the disk has failed, so that it acknowledges nothing more."""
        if self._writer is not None:
            say(self._writer, FAILED)
            return
        with suppress(OSError):  # it still starts; the parent may be gone
            self._socket.send(FAILED)

    def _tell(self) -> None:
        tell_news(self._writer)


def give_way_to_parent(*, folding: bool = False) -> None:
    """Let the receiver have the processor first: a sender waits for it, while reading and folding
    can wait a moment."""
    os.nice(3 * NICENESS if folding else NICENESS)


def leave_signals_to_parent() -> None:
    """Ignore signals that the parent's starter sends to both."""
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, lambda: None)


def say(writer: asyncio.StreamWriter | None, word: bytes) -> None:
    """Write a word to a process that is there. One that has just ended does not receive it, and its
    end is seen a moment later: until then, uvloop raises an error for writes."""
    if writer is not None and not writer.is_closing():
        writer.write(word)


def tell_news(writer: asyncio.StreamWriter | None) -> None:
    """Notify a process that something happened, if it has read the last notice: an unread one says
    it already."""
    if writer is not None and not writer.transport.get_write_buffer_size():
        say(writer, NEWS)


async def end_of(process: asyncio.subprocess.Process, *, within_s: float, component: str) -> int:
    """Wait for a process to end; kill it if it does not in time. Return its exit code."""
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
    """Start a child again whenever it ends, until told to stop.

    live     starts one, and returns its exit code at its end
    again_s  seconds until it is started again; twice as long each time, up to most_s, and as long
             as at first after one that has run for longer than STEADY_S
    """
    ended, pause = Repeating(clock), again_s
    while not stopping.is_set():
        began = monotonic()
        try:
            code = await live()
        except OSError as error:  # no memory, no descriptor: perhaps in a moment
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
    """Read the bytes that have arrived, at most 4,096; nothing at the end."""
    try:
        return await reader.read(4_096)
    except ConnectionError:
        return b""


# --- the console ----------------------------------------------------------------------------------

CONSOLE_AGAIN_S: Final = 1.0
"""Until a console that has ended is started again, later each time, up to CONSOLE_MOST_S."""

CONSOLE_MOST_S: Final = 60.0

CONSOLE_STOP_S: Final = 10.0
"""A console has so long to end; then it is killed."""


@asynccontextmanager
async def console_beside(*, host: str, port: int, settings: object) -> AsyncIterator[None]:
    """Run a console in a process of its own until the block ends."""
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
