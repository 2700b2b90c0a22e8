"""The background task that asks providers about events which do not count by themselves.

Each provider is asked in a loop of its own: one that is slow or down holds up no other.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio
import structlog

from app.errors import StoreUnavailable
from app.operations.confirm_events import Confirmer, confirm_due

log = structlog.get_logger()

IDLE_S: Final = 1.0
"""Between two looks at what is due. A look costs one index lookup."""

BETWEEN_S: Final = 0.05
"""Rest for each question: 20 a second to one provider at most, whoever makes us ask."""


class Confirming:
    """Asks until it is stopped. `alive` tells readiness whether it is running."""

    def __init__(self, confirmer: Confirmer) -> None:
        self._confirmer = confirmer
        self._stopping = asyncio.Event()
        self.alive = False

    def stop(self) -> None:
        """End after the questions under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Ask about due events until stopped, or until an error that stays."""
        self.alive = True
        try:
            # Not asyncio's: where one fails, the others' transactions end before they do.
            async with anyio.create_task_group() as group:
                for source in self._confirmer.askers:
                    group.start_soon(self._ask, source)
        finally:
            self.alive = False

    async def _ask(self, source: str) -> None:
        while not self._stopping.is_set():
            questions = await self._round(source)
            await self._rest(questions * BETWEEN_S if questions else IDLE_S)

    async def _round(self, source: str) -> int:
        try:
            return await confirm_due(self._confirmer, source)
        except StoreUnavailable as error:
            # A full disk or a busy database: the rows stay due, and the door still answers.
            log.warning("events not confirmed", error_class=type(error).__name__)
            return 0

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
