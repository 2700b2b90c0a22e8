"""Group commit: many requests share a row of the inbox; none is answered before it is durable.

A request hands in what came and waits. One task takes whatever has gathered, writes it in one
transaction and then answers each request. While the disk works, the next batch gathers, so batches
grow with the load. Where deliveries come meanwhile, commits keep a small distance: each costs as
much processor time as receiving two or three deliveries does.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from app.core.errors import StorePoisoned, StoreUnavailable
from app.core.logs import Repeating
from app.database.statements import run
from app.receiving.framing import Item, Received
from app.receiving.inbox_store import keep_row
from app.receiving.inbox_writer_store import InboxWriter
from reconcile.instants import EARLIEST

log = structlog.get_logger()

PATIENCE_S: Final = 2.5
"""How long a batch may take until its senders are asked to try again: a provider hangs up on who
says nothing, some after five seconds. Whoever comes just after one has begun may wait for two."""

FAULTS: Final = 3
"""Batches in a row that could not be written, after which the store is taken for faulty: one alone
may be the fault of what was in it."""

SPACING_S: Final = 0.005
"""Seconds from the beginning of one commit to that of the next, at least, where others have come
while it was under way: at 1,000 a second the receiver needs a third less processor time. Whoever
sends one after the other waits for nothing."""

ROW_BYTES: Final = 8 * 1024 * 1024
"""Of bodies in one row, if it holds more than one: a reader has some rows in memory."""

_SLOW: Final = "the store has not finished a write for some seconds; try again"


_Waiting = tuple[Item, asyncio.Future[None]]


class InboxQueue:
    """The queue in front of the writer. `run` must be running for `submit` to return."""

    def __init__(
        self,
        inbox: InboxWriter,
        *,
        queue_limit: int,
        batch_limit: int,
        on_commit: Callable[[int], None],
    ) -> None:
        """queue_limit: arrivals that may wait; beyond it they are refused, never dropped silently.
        batch_limit: arrivals in one transaction, which bounds how long the others wait.
        on_commit: called with the number of arrivals after each commit.
        """
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
        """Why nothing is taken at present, one sentence: a write takes too long. None otherwise."""
        self.committed = 0
        """Arrivals committed since the start."""
        self.faults = 0
        """Batches of deliveries in a row that could not be written; 0 after one that was."""

    @property
    def depth(self) -> int:
        """Arrivals and rejections that wait to be written."""
        return len(self._waiting)

    async def submit(self, item: Item) -> None:
        """Wait until the item is durably committed.

        Raises StoreUnavailable when the queue is full or the store cannot write now, StorePoisoned
        when it never will again. In both cases the item may or may not have been kept.
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
        """Write batches until `close` was called and nothing waits."""
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)  # lets every request that is ready hand in its arrival
            while self._waiting:
                began_at = asyncio.get_running_loop().time()
                await self._write(self._take())
                await self._keep_distance(began_at)

    async def _keep_distance(self, began_at: float) -> None:
        """Wait until SPACING_S after the last commit began, if other items have come meanwhile."""
        early = began_at + SPACING_S - asyncio.get_running_loop().time()
        if early > 0 and 0 < len(self._waiting) < self._batch_limit and not self._closing:
            await asyncio.sleep(early)

    def close(self) -> None:
        """Take nothing more; `run` ends when all that waits is written."""
        self._closing = True
        self._wake.set()

    def abandon(self) -> None:
        """Take nothing more, and refuse waiting items: there is no writer any more."""
        self.close()
        while self._waiting:
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(
                    StoreUnavailable("nothing is written any more; try again", reason="stopping")
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
            # Every request learns of it and answers 503; the writer has judged how bad it is.
            problem = self._failed(batch, error)
        else:
            self._wrote(batch)
        finally:
            patience.cancel()
        self._under_way = []
        if self.stalled is None:
            # The next batch is on its way to the disk before these are answered.
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
        """Return the answer to the senders of a batch that could not be written."""
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
            "the database refuses to store this; see the log, then try again", reason="refused"
        )

    def _wrote(self, batch: list[_Waiting]) -> None:
        if self.faults and _brings_deliveries(batch):
            self._mended()

    def _mended(self) -> None:
        if self.faults >= FAULTS:
            log.info("deliveries can be written again")
        self.faults = 0

    async def still_faulty(self) -> str | None:
        """Return a sentence on why deliveries cannot be written, if several batches in a row could
        not; None if they can. A trial delivery is written, and rolled back."""
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
                f"({_class_of(error)}): run `tallyhook db check`, and see the log"
            )

    def _lose_patience(self) -> None:
        """Tell all waiting senders to come again, also of the batch under way, whose end is not
        known. Drop what has not begun, and take nothing more meanwhile."""
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
    """Ends a trial, so that nothing of it is kept."""


_TRIAL: Final = Received(
    delivery_id="dlv_trial", received_at=EARLIEST, source="trial", headers="", body=b""
)


def _class_of(error: Exception) -> str:
    """Return the name of the driver's error class; the message may quote a row."""
    return type(error.__cause__ or error).__name__


def _brings_deliveries(batch: Sequence[_Waiting]) -> bool:
    """Return whether a batch has deliveries. Writing rejections alone does not show that deliveries
    can be written."""
    return any(isinstance(item, Received) for item, _ in batch)


def _answer_all(answers: Sequence[asyncio.Future[None]], problem: Exception | None) -> None:
    """Answer every sender that still waits."""
    for answer in answers:
        if answer.done():
            continue
        if problem is None:
            answer.set_result(None)
        else:
            answer.set_exception(problem)
