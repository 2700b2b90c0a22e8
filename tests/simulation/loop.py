"""An event loop whose time is a number: when nothing is ready, it leaps to the next timer.

There are no sockets, no threads and no waiting. What runs next follows from the timers alone, so
a run is the same every time.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, Protocol


class Owner(Protocol):
    """A process of the world: tasks begun in its name end with it."""

    def begun(self, task: asyncio.Task[Any]) -> None:
        """A task was begun in the owner's name."""
        ...


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)
"""In whose name the running code runs; None: the world's."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: something waits for what will never come."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Seconds since the beginning of the world are `time()`; `turns` counts the loop's rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self._seconds = 0.0
        self._selector = self
        self._clock_resolution = 1e-7
        self.set_task_factory(_owned_task)  # type: ignore[arg-type] # no generator is a task here

    def time(self) -> float:
        return self._seconds

    def select(self, timeout: float | None) -> list[Any]:
        """What a selector does, but for the waiting."""
        self.turns += 1
        if timeout is None:
            raise Deadlock("the simulated world stands still")
        if timeout > 0:
            self._seconds += timeout
        return []

    def _process_events(self, _: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _owned_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    context: contextvars.Context | None = None,
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    owner = OWNER.get() if context is None else context.get(OWNER)
    if owner is not None:
        owner.begun(task)
    return task
