"""Notify open pages of new rows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from app.context.context import AppContext
from app.core.errors import UnreachableError
from app.core.logs import Repeating, log
from app.orders.delivery_log import head_of_log
from app.orders.read_orders import head_of_feed

LOOK_S: Final = 1.0
BEAT_S: Final = 15.0
"""Seconds between two heartbeats of an idle stream. Each heartbeat also checks the session."""

MOST: Final = 200
"""Maximum number of open streams, because each stream occupies a connection."""


class Live:
    """Poller that looks for new rows while at least one stream is open."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._changed = asyncio.Condition()
        self._head = ""
        self._failed = Repeating()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._over = False

    @property
    def full(self) -> bool:
        return self._listeners >= MOST

    async def stream(self, still: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """Yield the lines of a server-sent event stream until the session ends.

        The function `still` returns whether the session is valid.
        """
        self._listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        seen = ""
        try:
            yield "retry: 2000\n\n"  # in the try: a client that hangs up here is uncounted
            while not self._over and await still():
                async with self._changed:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(BEAT_S):
                            await self._changed.wait_for(
                                lambda: self._over or self._head != seen  # noqa: B023
                            )
                if self._head == seen:
                    yield ": here\n\n"
                else:
                    seen = self._head
                    yield f"data: {seen}\n\n"
        finally:
            self._listeners -= 1

    async def close(self) -> None:
        """End all streams. Call this before the server waits for its connections to close."""
        self._over = True
        async with self._changed:
            self._changed.notify_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        while self._listeners:
            try:
                head = f"{await head_of_feed(self._context)} {await head_of_log(self._context)}"
            except UnreachableError as error:
                if times := self._failed.times(type(error).__name__):
                    log.warning(
                        "the console could not check for changes", exc_info=error, count=times
                    )
            else:
                if head != self._head:
                    self._head = head
                    async with self._changed:
                        self._changed.notify_all()
            await asyncio.sleep(LOOK_S)
