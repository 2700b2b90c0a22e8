"""Run scheduled work in its own process."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from app.context.context import AppContext
from app.core.child_processes import handed_over
from app.core.periodic import PeriodicTask
from app.core.schedule import ScheduleEntry
from app.finance.scheduled import LEASE, claim, due_now, note_failed
from app.finance.scheduled_store import ScheduledRun
from reconcile.instants import SECOND

LOOK_S: Final = 15.0

STOPPED: Final = "the service was stopped before the work was done"
DIED: Final = "its process ended before its work was done: see the log"

Begin = Callable[[ScheduledRun], Awaitable[int]]
"""Function that does a claimed run's work."""


class Scheduler(PeriodicTask):
    """Periodic task that runs all due work."""

    def __init__(
        self, context: AppContext, entries: tuple[ScheduleEntry, ...], *, begin: Begin | None = None
    ) -> None:
        super().__init__(self.look, component="the schedule", rest=lambda done: LOOK_S)
        self._context, self._entries = context, entries
        self._do = begin or self._in_process
        self._process: asyncio.subprocess.Process | None = None

    def stop(self) -> None:
        """Stop, and terminate the running work, which is repeated later."""
        super().stop()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def look(self) -> int:
        """Run all work that is due now."""
        for entry, due_at in await due_now(self._context, self._entries):
            if self.stopping:
                break
            claimed = await claim(self._context, entry, due_at=due_at, asked=False)
            if claimed is None:
                continue  # another worker has claimed or finished it
            code = await self._do(claimed)
            if code or self.stopping:
                problem = STOPPED if self.stopping else DIED
                await note_failed(self._context, claimed, problem, at_once=self.stopping)
        return 0

    async def _in_process(self, claimed: ScheduledRun) -> int:
        with handed_over(self._context.settings, claimed) as memory:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "app", "schedule", "run", claimed.name, "--claimed"),
                stdin=memory,
                stdout=asyncio.subprocess.DEVNULL,
            )
        try:
            async with asyncio.timeout(LEASE / SECOND):
                return await process.wait()
        except TimeoutError:  # its lease is over; another worker may take it
            process.kill()
            return await process.wait()
