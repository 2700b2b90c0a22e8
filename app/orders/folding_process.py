"""Run a second process that folds orders and seals evidence while one process cannot keep up.

If more than BEHIND deliveries wait, the receiver starts this process, so that both cores work. It
ends when little is left to do.

    receiver                      folding process              reading process (`child_processes`)
    starts it where many wait ──▶ makes its connections
    passes on that it is ready ◀─ is ready                     leaves folding to it
    "something was read"      ──▶ folds, seals, and says "+" after each round
    passes on that it is over ◀── ends, or is killed           folds and seals again
"""

import asyncio
from collections.abc import Callable
from time import monotonic, process_time
from typing import Final

from app.core import child_processes
from app.core.errors import ConfigurationError
from app.core.logs import log
from app.core.periodic import PeriodicTask
from app.core.process import why_ended

BEHIND: Final = 1_000
"""Number of unread deliveries above which a second process starts. While one process keeps up, only
about 200 deliveries are unread."""

LOOK_S: Final = 0.25

LOOKS: Final = 2
"""Number of consecutive checks with many unread deliveries before a second process starts."""

SILENT_S: Final = 60.0
"""Seconds without a finished round after which a child process is killed. On a slow disk, a round
takes a few seconds."""

ENDING_S: Final = 2.0
"""Seconds in which a child process must end after its connection was closed. Afterwards the child
is killed."""

REST_S: Final = 5.0
"""Seconds before the next start of a child process that ended with little to do."""

REFUSED_S: Final = 60.0
"""Seconds before the next start, after a child process found that the program's files were
replaced."""

QUIET_S: Final = 30.0

QUIET_SHARE: Final = 0.25
"""Share of one core below which a child process has little to do, and ends."""


class FoldingProcess(PeriodicTask):
    """Task that runs a second process while too many accepted deliveries wait to be read."""

    def __init__(
        self,
        *,
        waiting: Callable[[], int],
        leave: Callable[[bool], None],
        failed: Callable[[str], None],
        settings: object = None,
    ) -> None:
        """Prepare the task without starting a child process.

        waiting   returns the number of accepted deliveries that are not read yet
        leave     called with True when the child begins to fold and seal, and with False when it
                  ends
        failed    called with the reason when the database's disk has failed
        settings  settings that are passed to the child
        """
        super().__init__(
            self._look, component="the second folding process", rest=lambda done: self._rest_s
        )
        self._waiting = waiting
        self._leave = leave
        self._failed = failed
        self._settings = settings
        self._writer: asyncio.StreamWriter | None = None
        self._loading: asyncio.subprocess.Process | None = None
        """The child while it starts; None once it is ready."""
        self._found = 0
        """Number of checks in a row that have found more than BEHIND deliveries waiting."""
        self._rest_s = self._pause_s = child_processes.AGAIN_S
        self.working = False
        """True while a child folds and seals."""

    def tell(self) -> None:
        """Tell the child process that there may be orders to fold, because deliveries were read or
        the shop stated facts."""
        child_processes.tell_news(self._writer)

    def stop(self) -> None:
        """End the child process after its current round, and start no further child."""
        super().stop()
        self._end()

    def _end(self) -> None:
        if self._loading is None:
            child_processes.say(self._writer, child_processes.END)
        elif self._loading.returncode is None:  # it has not begun, and may take seconds to
            self._loading.kill()

    async def _look(self) -> int:
        self._rest_s = LOOK_S
        self._found = self._found + 1 if self._waiting() > BEHIND else 0
        if self._found < LOOKS:
            return 0
        self._found, code = 0, None
        try:
            code = await self._live()
        except OSError as error:  # no memory or descriptors: try again soon
            log.error("the second folding process cannot be started", exc_info=error)
        self._pause_s = REST_S if code == 0 else min(2 * self._pause_s, child_processes.MOST_S)
        refused = code == ConfigurationError.exit_code
        self._rest_s = REFUSED_S if refused else self._pause_s
        return 0

    async def _live(self) -> int:
        began = monotonic()
        process, reader, self._writer = await child_processes.started(
            self._settings, "worker", "--folding"
        )
        self._loading = process
        log.info("a second process folds and seals", count=self._waiting())
        try:
            await self._hear_out(reader)
        finally:
            writer, self._writer, self.working = self._writer, None, False
            self._loading = None
            writer.close()
            self._leave(False)
        code = await child_processes.end_of(
            process, within_s=ENDING_S, component="the second folding process"
        )
        note = log.info if code == 0 or self.stopping else log.error
        why = None if code == 0 else why_ended(code)
        lasted = round(monotonic() - began)
        note("the second folding process has ended", exit_code=code, problem=why, seconds=lasted)
        return code

    async def _hear_out(self, reader: asyncio.StreamReader) -> None:
        """Handle the child process's messages until the child ends. If this task must stop, wait
        for a limited time only."""
        hearing = asyncio.ensure_future(self._hear(reader))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({hearing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({hearing}, timeout=child_processes.STOP_S)
            if hearing.done():
                hearing.result()
        finally:
            hearing.cancel()
            stopped.cancel()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        if self.stopping:  # stopped while the child was starting
            self._end()
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    received = await child_processes.bytes_of(reader)
            except TimeoutError:
                log.error("the second folding process has made no progress for a long time")
                return
            if not received:
                return
            if child_processes.READY in received or child_processes.FAILED in received:
                self._loading = None
            if child_processes.FAILED in received:
                self._stopping.set()
                self._failed("the process that folds reported a disk I/O error or a read-only disk")
            if child_processes.READY in received and not self.working:
                self.working = True
                self._leave(True)


class Quiet:
    """Timer that tells whether this process has had little to do for half a minute."""

    def __init__(self) -> None:
        self._since, self._used = monotonic(), process_time()

    def look(self) -> bool:
        """Return whether half a minute has passed with little to do. A new measurement begins every
        half minute."""
        now, used = monotonic(), process_time()
        if now - self._since < QUIET_S:
            return False
        quiet = used - self._used < QUIET_SHARE * (now - self._since)
        self._since, self._used = now, used
        return quiet
