"""Task that computes the ledgers of orders when they are due (`refold`).

It first marks every order if settings of ledgers have changed.
"""

import asyncio
from contextlib import suppress
from typing import Final

from app.context.context import AppContext
from app.core.errors import StoreUnavailable
from app.core.logs import Repeating, log
from app.orders.clock_correction import ClockWatch
from app.orders.refold import TakingUp, publishable, refold_due
from app.receiving.due_store import next_due
from app.receiving.pace import Pace
from reconcile.instants import SECOND, Duration

IDLE_S: Final = 1.0
"""Maximum pause of the worker in seconds. Other processes, such as commands, mark orders as due
without a signal."""

PAUSE_S: Final = 0.01

TRY_AGAIN_S: Final = 1.0
"""Seconds of pause after the database could not be written, because its disk is full or it is
busy."""

BACKLOG_S: Final = 0.25
"""Minimum seconds between two rounds while deliveries wait. Several deliveries of an order then
need one fold."""

LONG_BACKLOG_S: Final = 5.0
"""Maximum seconds between two rounds while deliveries wait: a quarter of the oldest's age."""


class FoldWorker:
    """Task that computes the ledgers of due orders until it is stopped. The readiness check reads
    `alive`."""

    def __init__(self, context: AppContext, *, beside: bool = False) -> None:
        """Prepare the worker without starting it.

        beside  whether another process still reads the inbox, so that this worker pauses longer
        """
        self._context = context
        self._beside = beside
        self._signals = context.signals
        self._batch = context.settings.worker_batch
        self._pace = Pace(first=self._batch, most=self._batch)
        self._taking_up = TakingUp(context)
        self._stopping = False
        self._clock_watch = ClockWatch(context)
        self._unfolded = Repeating()
        self.alive = False

    def stop(self) -> None:
        """Stop the worker after its current round. Canceling the task instead could leave its
        transaction half open."""
        self._stopping = True
        self._signals.evidence_arrived.set()

    async def run(self) -> None:
        """Compute the ledgers of due orders until the worker is stopped, or until a lasting error
        occurs."""
        self.alive = True
        try:
            while not self._stopping:
                try:
                    if self._signals.folded_elsewhere:
                        # The other process may note another policy, so check it again afterwards.
                        self._taking_up = TakingUp(self._context)
                        self._signals.evidence_arrived.clear()
                        await _within(IDLE_S, self._signals.evidence_arrived)
                    else:
                        await self._round()
                        if self._unfolded.is_over():
                            log.info("orders are folded again")
                except StoreUnavailable as error:
                    # A full disk or a busy database: marks stay, and deliveries are still accepted.
                    if times := self._unfolded.times(error.reason):
                        log.warning("orders cannot be folded now", reason=error.reason, count=times)
                    await asyncio.sleep(TRY_AGAIN_S)
                self._signals.folded.set()
        finally:
            self.alive = False

    async def _round(self) -> None:
        context, signals = self._context, self._signals
        signals.evidence_arrived.clear()
        await self._clock_watch.look()
        if await self._taking_up.some():
            return
        folded = await refold_due(context, limit=self._batch, pace=self._pace)
        self._clock_watch.note()
        if folded:
            log.debug("folded", count=folded)
        if not folded:
            due, seconds = await context.database.on_snapshot(next_due), IDLE_S
            if due is not None:  # what is due now waits for the reader of the inbox
                seconds = min(seconds, max((due - context.clock.now()) / SECOND, PAUSE_S))
            await _within(seconds, signals.evidence_arrived)
        elif folded < self._batch:
            # Let the reader read where it has a backlog: publishing waits a little, and costs less.
            if self._beside:
                await asyncio.sleep(BACKLOG_S)
            if not signals.drained.is_set():
                behind = context.clock.now() - await publishable(context)
                await _within(backlog_pause_s(behind), signals.drained)


async def _within(seconds: float, signal: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await signal.wait()


def backlog_pause_s(behind: Duration) -> float:
    """Return the pause in seconds between two rounds while deliveries wait.

    behind  age of the oldest unread delivery
    """
    return min(max(behind / SECOND / 4, BACKLOG_S), LONG_BACKLOG_S)
