"""Group commit: many requests share one inbox row and one commit."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from app.core.errors import StorePoisoned, StoreUnavailable
from app.core.logs import Repeating, log
from app.database.statements import run
from app.receiving.framing import Item, Received
from app.receiving.inbox_store import keep_row
from app.receiving.inbox_writer_store import InboxWriter
from reconcile.instants import EARLIEST

PATIENCE_S: Final = 2.5
"""Maximum seconds for writing a batch; providers wait five seconds, perhaps for two batches."""

FAULTS: Final = 3
"""Successive failed batches after which the store counts as faulty."""

SPACING_S: Final = 0.005
"""Minimum seconds between two commits while several deliveries wait."""

ROW_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of bodies in an inbox row."""

_SLOW: Final = "the store has not finished a write for some seconds; try again"


_Waiting = tuple[Item, asyncio.Future[None]]


class InboxQueue:
    """Queue of items to be written to the inbox. `submit` returns only while `run` is running."""

    def __init__(
        self,
        inbox: InboxWriter,
        *,
        queue_limit: int,
        batch_limit: int,
        on_commit: Callable[[int], None],
    ) -> None:
        """Create an empty queue. Arrivals above `queue_limit` are refused."""
        self._inbox = inbox
        self._queue_limit = queue_limit
        self._batch_limit = batch_limit
        self._on_commit = on_commit
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._under_way: list[_Waiting] = []
        self._closing = False
        self._refused = Repeating()
        self.stalled: str | None = None
        """One sentence if nothing is accepted because a write takes too long; else None."""
        self.committed = 0
        """Arrivals committed since the start."""
        self.faults = 0
        """Consecutive batches of deliveries that could not be written; 0 after a success."""

    @property
    def depth(self) -> int:
        """Return the number of arrivals and rejections that wait to be written."""
        return len(self._waiting)

    async def submit(self, item: Item) -> None:
        """Wait until the item is durably committed.

        Raise StoreUnavailable for a temporary failure, and StorePoisoned for a permanent failure. A
        refused item can still be stored.
        """
        if self.stalled is not None:
            raise StoreUnavailable(self.stalled, reason="slow")
        # Rejections may fill half of the queue: a flood of them always leaves room for deliveries.
        arrives = isinstance(item, Received)
        limit = self._queue_limit if arrives else (self._queue_limit + 1) // 2
        if len(self._waiting) >= limit or self._closing:
            raise StoreUnavailable(
                "too many deliveries are waiting to be written; try again",
                reason="stopping" if self._closing else "queue",
            )
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._wake.set()
        self._waiting.append((item, answer))
        await answer

    async def run(self) -> None:
        """Write batches until `close` was called and no item is waiting."""
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)  # lets every ready request submit its arrival
            while self._waiting:
                began_at = asyncio.get_running_loop().time()
                await self._write(self._take())
                await self._keep_distance(began_at)

    async def _keep_distance(self, began_at: float) -> None:
        early = began_at + SPACING_S - asyncio.get_running_loop().time()
        if early > 0 and 0 < len(self._waiting) < self._batch_limit and not self._closing:
            await asyncio.sleep(early)

    def close(self) -> None:
        """Accept no more items. `run` ends when all waiting items are written."""
        self._closing = True
        self._wake.set()

    def abandon(self) -> None:
        """Refuse all waiting and further items."""
        self.close()
        while self._waiting:
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(
                    StoreUnavailable("the service is stopping; try again", reason="stopping")
                )

    def _take(self) -> list[_Waiting]:
        taken, size = [self._waiting.popleft()], 0
        while self._waiting and len(taken) < self._batch_limit:
            size += len(taken[-1][0].body)
            if size + len(self._waiting[0][0].body) > ROW_BYTES:
                break
            taken.append(self._waiting.popleft())
        return taken

    async def _write(self, batch: list[_Waiting]) -> None:
        problem: Exception | None = None
        loop = asyncio.get_running_loop()
        began, self._under_way = loop.time(), batch
        patience = loop.call_later(PATIENCE_S, self._lose_patience)
        try:
            await self._commit([item for item, _ in batch])
        except Exception as error:
            # Every request gets the error and answers 503; the writer has judged its severity.
            problem = self._failed(batch, error)
        else:
            self._wrote(batch)
        finally:
            patience.cancel()
        self._under_way = []
        if self.stalled is None:
            # The next batch is being written before these are answered.
            loop.call_soon(_answer_all, [answer for _, answer in batch], problem)
            return
        self.stalled = None
        log.warning(
            "the slow write has ended",
            batch=len(batch),
            seconds=round(loop.time() - began, 1),
            error_class=None if problem is None else type(problem).__name__,
        )

    def _failed(self, batch: list[_Waiting], error: Exception) -> Exception:
        if _brings_deliveries(batch):
            self.faults += 1
            if self.faults == FAULTS:
                log.error(
                    "deliveries cannot be written", count=FAULTS, error_class=_class_of(error)
                )
        if isinstance(error, StoreUnavailable | StorePoisoned):
            return error
        if times := self._refused.times(_class_of(error)):
            size = len(batch)
            log.error(
                "a batch was refused by the database", batch=size, count=times, exc_info=error
            )
        return StoreUnavailable(
            "the database refused this delivery; see the log, then try again", reason="refused"
        )

    def _wrote(self, batch: list[_Waiting]) -> None:
        if self.faults and _brings_deliveries(batch):
            self._mended()

    def _mended(self) -> None:
        if self.faults >= FAULTS:
            log.info("deliveries can be written again")
        self.faults = 0

    async def still_faulty(self) -> str | None:
        """Return the reason why deliveries cannot be written, or None."""
        if self.faults < FAULTS:
            return None
        try:
            async with self._inbox.writer.transaction() as connection:
                await run(connection, keep_row, [_TRIAL])
                raise _TakenBack
        except _TakenBack:
            self._mended()
            return None
        except StoreUnavailable as error:
            return str(error)
        except Exception as error:
            return (
                f"the last {self.faults} batches of deliveries could not be written "
                f"({_class_of(error)}): run `tallyhook db check`, and check the log"
            )

    def _lose_patience(self) -> None:
        self.stalled = _SLOW
        log.error("the store is slow to answer", batch=len(self._under_way), queue=self.depth)
        waiting = [*self._under_way, *self._waiting]
        self._waiting.clear()
        slow = StoreUnavailable(self.stalled, reason="slow")
        _answer_all([answer for _, answer in waiting], slow)

    async def _commit(self, items: list[Item]) -> None:
        await self._inbox.keep(items)
        self.committed += sum(isinstance(item, Received) for item in items)
        self._on_commit(len(items))


class _TakenBack(Exception):
    """Error that rolls back a trial transaction."""


_TRIAL: Final = Received(
    delivery_id="dlv_trial", received_at=EARLIEST, source="trial", headers="", body=b""
)


def _class_of(error: Exception) -> str:
    return type(error.__cause__ or error).__name__


def _brings_deliveries(batch: Sequence[_Waiting]) -> bool:
    return any(isinstance(item, Received) for item, _ in batch)


def _answer_all(answers: Sequence[asyncio.Future[None]], problem: Exception | None) -> None:
    for answer in answers:
        if answer.done():
            continue
        if problem is None:
            answer.set_result(None)
        else:
            answer.set_exception(problem)
