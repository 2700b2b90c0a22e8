"""Background tasks that work in rounds, and rest where a round had nothing to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import structlog

from app.core.errors import StoreUnavailable
from app.core.logs import Repeating

log = structlog.get_logger()


IDLE_S: Final = 1.0
"""Seconds between two looks at what is due, where a look costs one index lookup."""

Rest = Callable[[int], float]
"""Seconds to rest after a round, by how much it had to do."""


def rest_when_idle(seconds: float) -> Rest:
    """No rest while there is something to do."""
    return lambda done: 0.0 if done else seconds


class PeriodicTask:
    """Calls `work` until it is stopped; what it returns is how much there was to do.

    component  what it is called in the log
    rest       how long to rest after a round
    begin      what is done once, before the first round; tried again until the store takes it
    alive      tells readiness whether it is running
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[int]],
        *,
        component: str,
        rest: Rest,
        begin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._work = work
        self._component = component
        self._rest = rest
        self._begin = begin
        self._stopping = asyncio.Event()
        self._put_off = Repeating()
        self.alive = False

    def stop(self) -> None:
        """End after the round under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Round after round, until stopped or until an error that stays."""
        self.alive = True
        try:
            while not self._stopping.is_set():
                await self._pause(self._rest(await self._round()))
        finally:
            self.alive = False

    async def _round(self) -> int:
        try:
            if self._begin is not None:
                await self._begin()
                self._begin = None
            return await self._work()
        except StoreUnavailable as error:
            # A full disk or a busy database: what was due stays due, and requests are answered.
            if times := self._put_off.times(error.reason):
                log.warning(
                    "a round was put off",
                    component=self._component,
                    reason=error.reason,
                    count=times,
                )
            return 0

    async def _pause(self, seconds: float) -> None:
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


class TaskGroup:
    """Several of them as one: one that is slow holds up no other, one that fails ends them all."""

    def __init__(self, tasks: Sequence[PeriodicTask]) -> None:
        self._tasks = tasks

    @property
    def alive(self) -> bool:
        """Whether all of them are running."""
        return all(each.alive for each in self._tasks)

    def stop(self) -> None:
        """End each after the round under way."""
        for each in self._tasks:
            each.stop()

    async def run(self) -> None:
        """Run them until stopped, or until an error that stays."""
        # Not asyncio's: where one fails, the others' transactions end before they do.
        async with anyio.create_task_group() as group:
            for each in self._tasks:
                group.start_soon(each.run)
