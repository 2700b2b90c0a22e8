"""Run background tasks in rounds. A task pauses after a round in which it found no work."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio

from app.core.errors import StoreUnavailable
from app.core.logs import Repeating, log

IDLE_S: Final = 1.0

Rest = Callable[[int], float]
"""Function that returns the seconds until the next round. Its argument is the number of items that
the last round processed."""


def rest_when_idle(seconds: float) -> Rest:
    """Return a `rest` function that pauses for `seconds` after a round without work."""
    return lambda done: 0.0 if done else seconds


class PeriodicTask:
    """Background task that calls `work` again and again until stopped.

    work       returns the number of items that it processed
    component  name of the task in the log
    rest       returns the seconds until the next round
    begin      called before the first round, and again if the database fails
    alive      whether the task is running
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
        self._woken = asyncio.Event()
        self._put_off = Repeating()
        self.alive = False

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Stop the task after its current round."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """End the task's current pause, or skip the next pause."""
        self._woken.set()

    async def run(self) -> None:
        """Run rounds until the task is stopped, or until an error occurs that a retry cannot
        fix."""
        self.alive = True
        try:
            while not self.stopping:
                self._woken.clear()
                seconds = self._rest(await self._round())
                if seconds > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await self._woken.wait()
        finally:
            self.alive = False

    async def _round(self) -> int:
        try:
            if self._begin is not None:
                await self._begin()
                self._begin = None
            done = await self._work()
            if self._put_off.is_over():
                log.info("the postponed task works again", component=self._component)
            return done
        except StoreUnavailable as error:
            # A full disk or a busy database: due work stays due, and requests are answered.
            if times := self._put_off.times(error.reason):
                log.warning(
                    "a task was postponed and is tried again",
                    component=self._component,
                    reason=error.reason,
                    count=times,
                )
            return 0


class TaskGroup:
    """Periodic tasks that run concurrently, each with its own pauses. If one task fails, all tasks
    end."""

    def __init__(self, tasks: Sequence[PeriodicTask]) -> None:
        self._tasks = tasks

    @property
    def alive(self) -> bool:
        return all(each.alive for each in self._tasks)

    def stop(self) -> None:
        for each in self._tasks:
            each.stop()

    async def run(self) -> None:
        """Run all tasks until they are stopped or one task fails."""
        # Not asyncio's group: when a task fails, the others' transactions end before they do.
        async with anyio.create_task_group() as group:
            for each in self._tasks:
                group.start_soon(each.run)
