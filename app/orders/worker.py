"""The fold worker: folds due orders as they come due, for as long as it runs.

It begins by setting every order due where the merchant has changed what a fold depends on.
"""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from app.context.context import AppContext
from app.core.errors import StoreUnavailable
from app.core.logs import Repeating
from app.orders.refold import TakingUp, call_up_early, publishable, refold_due
from app.receiving.due_store import next_due
from app.receiving.pace import Pace
from reconcile.instants import SECOND, Duration, Instant

log = structlog.get_logger()

IDLE_S: Final = 1.0
"""Longest sleep: other processes (a command, a second receiver) set orders due without a signal."""

PAUSE_S: Final = 0.01
"""Shortest sleep after a round that had nothing to fold."""

TRY_AGAIN_S: Final = 1.0
"""Pause after the store could not take a round's work: a full disk or a busy database."""

BACKLOG_S: Final = 0.25
"""Pause between two rounds while there is a backlog to read: most orders are spoken of again in the
next rows, and would be folded, published and sealed once for each."""

LONG_BACKLOG_S: Final = 5.0
"""The same, at most, where the reader is far behind: a quarter of the time by which it is."""

STEP: Final[Duration] = SECOND
"""A clock that goes back by more has been set; by less it is only kept right."""


class FoldWorker:
    """Folds until it is stopped. `alive` shows readiness whether it is running."""

    def __init__(self, context: AppContext, *, beside: bool = False) -> None:
        """beside: the inbox is read by another process, which has a backlog before it."""
        self._context = context
        self._beside = beside
        self._signals = context.signals
        self._batch = context.settings.worker_batch
        self._pace = Pace(first=self._batch, most=self._batch)
        self._taking_up = TakingUp(context)
        self._stopping = False
        self._latest: Instant | None = None
        self._unfolded = Repeating()
        self.alive = False

    def stop(self) -> None:
        """End after the round under way: to cancel one could leave its transaction half open."""
        self._stopping = True
        self._signals.evidence_arrived.set()

    async def run(self) -> None:
        """Fold due orders until stopped, or until an error that stays."""
        self.alive = True
        try:
            while not self._stopping:
                try:
                    if self._signals.folded_elsewhere:
                        await self._leave_it()
                    else:
                        await self._round()
                except StoreUnavailable as error:
                    # A full disk or a busy database: the marks stay, and deliveries are taken.
                    if times := self._unfolded.times(error.reason):
                        log.warning("orders not folded", reason=error.reason, count=times)
                    await asyncio.sleep(TRY_AGAIN_S)
                self._signals.folded.set()
        finally:
            self.alive = False

    async def _round(self) -> None:
        self._signals.evidence_arrived.clear()
        await self._after_a_clock_that_was_ahead()
        if await self._taking_up.some():
            return
        folded = await self._fold()
        if not folded:
            await self._wait()
        elif folded < self._batch:
            await self._let_the_reader_read()

    async def _leave_it(self) -> None:
        """While another process folds: look again when something happens, and now and then."""
        self._taking_up = TakingUp(self._context)  # that one takes up, too: it is to be asked anew
        self._signals.evidence_arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                await self._signals.evidence_arrived.wait()

    async def _after_a_clock_that_was_ahead(self) -> None:
        """At the start, and when the clock has been set back."""
        now, latest = self._context.clock.now(), self._latest
        if latest is None or now < latest - STEP:
            count = await call_up_early(self._context)
            if count:
                log.warning("orders waited for a clock that was ahead", count=count)
        self._latest = now

    async def _fold(self) -> int:
        folded = await refold_due(self._context, limit=self._batch, pace=self._pace)
        if folded:
            log.debug("folded", count=folded)
        return folded

    async def _let_the_reader_read(self) -> None:
        """Where it has a backlog: what is published of an order waits a little, and costs less."""
        if self._beside:
            await asyncio.sleep(BACKLOG_S)
        if self._signals.drained.is_set():
            return
        behind = self._context.clock.now() - await publishable(self._context)
        try:
            async with asyncio.timeout(backlog_pause_s(behind)):
                await self._signals.drained.wait()
        except TimeoutError:
            return

    async def _wait(self) -> None:
        """Until evidence arrives, the next mark comes due, or a second has gone by."""
        due = await self._context.database.on_snapshot(next_due)
        seconds = IDLE_S
        if due is not None:
            # What is due now waits for the reader of the inbox.
            seconds = min(seconds, max((due - self._context.clock.now()) / SECOND, PAUSE_S))
        try:
            async with asyncio.timeout(seconds):
                await self._signals.evidence_arrived.wait()
        except TimeoutError:
            return


def backlog_pause_s(behind: Duration) -> float:
    """Seconds between two rounds where the oldest delivery that is not read came so long ago."""
    return min(max(behind / SECOND / 4, BACKLOG_S), LONG_BACKLOG_S)
