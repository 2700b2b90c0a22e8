"""A second process that folds and seals, for as long as the first could not keep up alone.

One process reads the inbox, folds and seals, under one interpreter's lock: on two cores that leaves
half of one idle while deliveries wait. So where more than BEHIND of them wait, the receiver starts
a second process, which folds and seals, and the first only reads. It ends by itself when little is
left to do, so that a service that keeps up has the memory of two processes.

    receiver                      folding process              reading process (`child_processes`)
    starts it where many wait ──▶ makes its connections
    hands on that it is ready ◀── is ready                     leaves folding to it
    "something was read"      ──▶ folds, seals, and says "+" after each round
    hands on that it is over  ◀── ends, or is killed           folds and seals again

Which of the two folds an order makes no difference to what is published: both take due orders by
their marks, and what another has published meanwhile is dropped.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, process_time
from typing import Final

import structlog

from app.core.child_processes import (
    AGAIN_S,
    END,
    FAILED,
    MOST_S,
    READY,
    STOP_S,
    bytes_of,
    ended_by_kill,
    say,
    started,
    tell_news,
)
from app.core.errors import ConfigurationError

log = structlog.get_logger()

BEHIND: Final = 1_000
"""Deliveries that wait to be read: at a thousand a second, one process has 200 of them waiting."""

LOOK_S: Final = 0.25
"""Between two looks at how many wait."""

LOOKS: Final = 2
"""So many looks in a row have to find that many: what comes at once is read sooner than another
process is there."""

SILENT_S: Final = 60.0
"""A child that has finished no round for so long is stuck, and killed. A round takes a few seconds
at most, where the disk is slow; what it had begun is done again."""

ENDING_S: Final = 2.0
"""So long one that has hung up, or is to be killed, has to end."""

REST_S: Final = 5.0
"""Until another is started after one that had little to do, though many still wait: what holds
those up is not folding."""

REFUSED_S: Final = 60.0
"""Until another is started after one that found settings or a program other than the service was
started with: the next one most likely finds them, too."""

QUIET_S: Final = 30.0
"""Over so long a child looks at how much it has to do."""

QUIET_SHARE: Final = 0.25
"""Of one core: where it needs less, the other process can do it beside what it reads."""


class FoldingProcess:
    """Looks at how many deliveries wait, and keeps a second process running while they are too
    many for one."""

    def __init__(
        self,
        *,
        waiting: Callable[[], int],
        leave: Callable[[bool], None],
        failed: Callable[[str], None],
        folds_by: str,
    ) -> None:
        """waiting: how many deliveries are accepted and not read; leave: tells who reads whether to
        leave folding and sealing to another; failed: called with the reason when the disk under the
        database has failed; folds_by: the fingerprint of that by which the
        service folds, and a child must."""
        self._waiting = waiting
        self._leave = leave
        self._failed = failed
        self._folds_by = folds_by
        self._writer: asyncio.StreamWriter | None = None
        self._loading: asyncio.subprocess.Process | None = None
        """The child until it has begun."""
        self._stopping = asyncio.Event()
        self.working = False
        """Whether one folds and seals just now."""
        self.alive = False

    def tell(self) -> None:
        """Something was read, or said of an order."""
        tell_news(self._writer)

    def stop(self) -> None:
        """End the child after the round under way, and start none."""
        self._stopping.set()
        self._end()

    def _end(self) -> None:
        if self._loading is None:
            say(self._writer, END)
        elif self._loading.returncode is None:  # it has not begun, and may take seconds to
            self._loading.kill()

    async def run(self) -> None:
        """Until stopped, or until a disk has failed."""
        self.alive = True
        try:
            await self._look()
        finally:
            self.alive = False

    async def _look(self) -> None:
        found, pause = 0, AGAIN_S
        while not await self._stopped_within(LOOK_S):
            found = found + 1 if self._waiting() > BEHIND else 0
            if found < LOOKS:
                continue
            found = 0
            try:
                code = await self._live()
            except OSError as error:  # no memory, no descriptor: perhaps in a moment
                log.error("the process that folds beside it cannot be started", exc_info=error)
                code = None
            pause = REST_S if code == 0 else min(2 * pause, MOST_S)
            refused = code == ConfigurationError.exit_code
            await self._stopped_within(REFUSED_S if refused else pause)

    async def _stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _live(self) -> int:
        """One child from its start to its end. Returns its exit code."""
        began = monotonic()
        process, reader, self._writer = await started("--folding", self._folds_by)
        self._loading = process
        log.info("a second process folds and seals", count=self._waiting())
        try:
            await self._hear_out(reader)
        finally:
            writer, self._writer, self.working = self._writer, None, False
            self._loading = None
            writer.close()
            self._leave(False)
        if await ended_by_kill(process, within_s=ENDING_S):
            log.error("the second process does not end; it is killed")
        code = await process.wait()
        note = log.info if code == 0 or self._stopping.is_set() else log.error
        note("the second process has ended", code=code, seconds=round(monotonic() - began))
        return code

    async def _hear_out(self, reader: asyncio.StreamReader) -> None:
        """Until it has ended, or is silent for too long, or has been told to end for so long."""
        hearing = asyncio.ensure_future(self._hear(reader))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({hearing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({hearing}, timeout=STOP_S)
            if hearing.done():
                hearing.result()
        finally:
            hearing.cancel()
            stopped.cancel()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Until it ends, or is silent for too long."""
        if self._stopping.is_set():  # while it was being started
            self._end()
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    received = await bytes_of(reader)
            except TimeoutError:
                log.error("the second process has finished nothing for long")
                return
            if not received:
                return
            if READY in received or FAILED in received:
                self._loading = None
            if FAILED in received:
                self._stopping.set()
                self._failed("the process that folds met an error of the disk")
            if READY in received and not self.working:
                self.working = True
                self._leave(True)


class Quiet:
    """Whether this process has had little to do for QUIET_S."""

    def __init__(self) -> None:
        self._since, self._used = monotonic(), process_time()

    def look(self) -> bool:
        """Asked again and again; True at the end of a span in which it was quiet."""
        now, used = monotonic(), process_time()
        if now - self._since < QUIET_S:
            return False
        quiet = used - self._used < QUIET_SHARE * (now - self._since)
        self._since, self._used = now, used
        return quiet
