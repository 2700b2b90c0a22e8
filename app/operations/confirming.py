"""The background task that asks providers about events which do not count by themselves."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from app.errors import StoreUnavailable
from app.operations.confirm_events import Confirmer, confirm_due

log = structlog.get_logger()

IDLE_S: Final = 1.0
"""Between two looks at what is due. A look costs one index lookup."""


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
            while not self._stopping.is_set():
                if not await self._round():
                    await self._rest()
        finally:
            self.alive = False

    async def _round(self) -> int:
        try:
            return await confirm_due(self._confirmer)
        except StoreUnavailable as error:
            # A full disk or a busy database: the rows stay due, and the door still answers.
            log.warning("events not confirmed", error_class=type(error).__name__)
            return 0

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(IDLE_S):
                await self._stopping.wait()
        except TimeoutError:
            return
