"""An event loop with a virtual time: when nothing is ready, it jumps to the next timer.

There are no sockets, no threads and no waiting, so a run is the same every time.
"""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, Protocol


class Owner(Protocol):
    """A process of the world, with which its tasks end."""

    def begun(self, task: asyncio.Task[Any]) -> None:
        """Remember a task of the owner."""
        ...


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)
"""The owner of the running code; None: the world."""


class Deadlock(RuntimeError):
    """Error of a loop in which nothing is ready and no timer is set."""


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop whose `time()` counts seconds of the world, and `turns` its own rounds."""

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
        """Advance the time instead of waiting."""
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
