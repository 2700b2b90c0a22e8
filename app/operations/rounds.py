"""A background task that works in rounds, and rests where a round had nothing to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from app.errors import StoreUnavailable

log = structlog.get_logger()


IDLE_S: Final = 1.0
"""Seconds between two looks at what is due, where a look costs one index lookup."""


class Rounds:
    """Calls `work` until it is stopped; what it returns is how much there was to do.

    component  what it is called in the log
    rest_s     seconds between a round without work and the next
    alive      tells readiness whether it is running
    """

    def __init__(
        self, work: Callable[[], Awaitable[int]], *, component: str, rest_s: float
    ) -> None:
        self._work = work
        self._component = component
        self._rest_s = rest_s
        self._stopping = asyncio.Event()
        self.alive = False

    def stop(self) -> None:
        """End after the round under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Round after round, until stopped or until an error that stays."""
        self.alive = True
        try:
            while not self._stopping.is_set():
                if not await self._round():
                    await self._rest()
        finally:
            self.alive = False

    async def _round(self) -> int:
        try:
            return await self._work()
        except StoreUnavailable as error:
            # A full disk or a busy database: what was due stays due, and the door still answers.
            log.warning(
                "a round was put off",
                component=self._component,
                error_class=type(error).__name__,
            )
            return 0

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._rest_s):
                await self._stopping.wait()
        except TimeoutError:
            return
