"""Prunes in the background, for as long as the service runs; it rests far longer than it works."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

import structlog

from app.access.operators import SERVICE
from app.core.errors import StoreUnavailable
from app.privacy.prune import Pruning, prune_orders, settled_orders
from app.privacy.prune_others import note_pruning, prune_others
from app.privacy.retention import Retention
from app.receiving.context import Desk

REST_SHARE: Final = 20.0
"""It rests this many times as long as a page took: at most 1/21 of one core."""

PASS_S: Final = 3_600.0
"""Seconds from the end of one pass to the next. What is pruned is weeks old; an hour is soon."""

log = structlog.get_logger()


class Pruner:
    """Passes over the store until it is stopped."""

    def __init__(self, desk: Desk, retention: Retention) -> None:
        self._desk = desk
        self._retention = retention
        self._stopping = asyncio.Event()
        self.alive = False
        """Tells readiness whether it is running."""

    def stop(self) -> None:
        """End after the page under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Pass after pass. What goes wrong is logged and tried again with the next pass: that
        something is kept for longer is no reason to receive nothing."""
        self.alive = True
        try:
            while not self._stopping.is_set():
                try:
                    await self._pass()
                except StoreUnavailable as error:
                    log.warning("nothing pruned", error_class=type(error).__name__)
                except Exception as error:
                    log.error("pruning failed", exc_info=error)
                await self._rest(PASS_S)
        finally:
            self.alive = False

    async def _pass(self) -> None:
        pruning = Pruning(before=None)
        try:
            await self._prune(pruning)
        finally:
            await note_pruning(self._desk, SERVICE, pruning.items())
        if pruning.deliveries:
            log.info("bodies and headers pruned", count=pruning.deliveries)

    async def _prune(self, pruning: Pruning) -> None:
        began = perf_counter()
        async for _, settled in settled_orders(self._desk, self._retention):
            pruned = await prune_orders(self._desk, settled)
            pruning.deliveries += sum(len(each.sizes) for each in pruned)
            if await self._rest((perf_counter() - began) * REST_SHARE):
                return
            began = perf_counter()
        async for name, count in prune_others(self._desk, self._retention, dry_run=False):
            pruning.others[name] += count
            if await self._rest((perf_counter() - began) * REST_SHARE):
                return
            began = perf_counter()

    async def _rest(self, seconds: float) -> bool:
        """Whether it was stopped meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
