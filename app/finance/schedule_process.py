"""Has done what the schedule says, for as long as a worker runs.

Each time's work is done by a process of its own (`tallyhook schedule run`), since it reads all
orders, and the reader of the inbox must not wait for it.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from app.context.context import AppContext
from app.core.child_processes import handed_over
from app.core.errors import StoreUnavailable
from app.core.logs import Repeating
from app.core.schedule import ScheduleEntry
from app.finance.scheduled import LEASE, claim, due_now, note_failed
from app.finance.scheduled_store import ScheduledRun
from reconcile.instants import SECOND, format_instant

log = structlog.get_logger()

LOOK_S: Final = 15.0
"""Seconds between two looks at what is due."""

STOPPED: Final = "the service was stopped while it was done"
DIED: Final = "its process ended before its work was done: see the log"

Begin = Callable[[ScheduledRun], Awaitable[int]]
"""Has the work of a claimed time done; what its process ended with."""


class Scheduler:
    """Has done what is due, one after the other. `alive` tells readiness whether it is running."""

    def __init__(
        self, context: AppContext, entries: tuple[ScheduleEntry, ...], *, begin: Begin | None = None
    ) -> None:
        self._context, self._entries = context, entries
        self._begin = begin or self._in_process
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._put_off = Repeating()
        self.alive = False

    def stop(self) -> None:
        """End soon; what is under way is begun again at the next start."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def run(self) -> None:
        """Look, and have done what is due, until stopped."""
        self.alive = True
        try:
            while not self._stopping.is_set():
                try:
                    await self.look()
                except StoreUnavailable as error:
                    if times := self._put_off.times(error.reason):
                        log.warning(
                            "a round was put off",
                            component="the schedule",
                            reason=error.reason,
                            count=times,
                        )
                await self._pause()
        finally:
            self.alive = False

    async def look(self) -> None:
        """Have everything done that is due now."""
        for entry, due_at in await due_now(self._context, self._entries):
            if self._stopping.is_set():
                return
            claimed = await claim(self._context, entry, due_at=due_at, asked=False)
            if claimed is None:
                continue  # another worker has it, or has done it
            code = await self._begin(claimed)
            stopped = self._stopping.is_set()
            if code or stopped:
                problem = STOPPED if stopped else DIED
                await note_failed(self._context, claimed, problem, at_once=stopped)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _in_process(self, claimed: ScheduledRun) -> int:
        due = format_instant(claimed.due_at)
        words = ("schedule", "run", claimed.name, "--due", due, "--try", str(claimed.tries))
        with handed_over(self._context.settings) as memory:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "app", *words),
                stdin=memory,
                stdout=asyncio.subprocess.DEVNULL,
            )
        try:
            async with asyncio.timeout(LEASE / SECOND):
                return await process.wait()
        except TimeoutError:  # its lease is over: others may take it
            process.kill()
            return await process.wait()
        finally:
            self._process = None
