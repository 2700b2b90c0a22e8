"""The path of a delivery from the inbox to its order, in the background.

1 take     the oldest rows of the inbox; on PostgreSQL, after a claim
           receiving/claim_store.py
2 read     each delivery by its source's present profile
           receiving/verify.py
3 append   events, links and due marks, and delete the inbox's rows, in one transaction
           receiving/append_store.py

A row stays in the inbox until its commit.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from app.context.context import AppContext
from app.core.errors import StorePoisoned, StoreUnavailable
from app.core.logs import LogLine, Repeating, log
from app.database.database import Database
from app.database.statements import PlainConnection
from app.providers.source import Source
from app.receiving import claim_store, inbox_store
from app.receiving.append_store import STARTS, Arrival, Ready, StoredVerdict
from app.receiving.framing import Item, Received
from app.receiving.inbox import Inbox
from app.receiving.pace import Pace
from app.receiving.verify import read_delivery
from reconcile.instants import MILLISECOND

_log_delivery = LogLine(
    "delivery",
    *("delivery", "source", "verdict", "event_id", "kind", "order", "digest", "peer"),
    "duration_ms",
)

AT_ONCE: Final = 512
"""Maximum number of records in one transaction on SQLite."""

AT_ONCE_SHARED: Final = 1_024
"""Maximum number of records in one transaction on PostgreSQL."""

AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of bodies stored in one transaction, which writes them a second time."""

LOOK_S: Final = 1.0
"""Maximum seconds between two checks for new deliveries on SQLite."""

LOOK_SHARED_S: Final = 0.05
"""Maximum seconds between two looks for new deliveries on PostgreSQL."""

TURN_S: Final = 0.5

TRY_AGAIN_S: Final = 0.5
"""Seconds until another attempt to store deliveries."""

LEFT_S: Final = 60.0
"""Seconds between two checks for orders that another reader held and did not release."""

BEAT_S: Final = 5.0


class Holding(NamedTuple):
    """Functions that hold and release the orders of an unreadable delivery."""

    orders_of: Callable[[AppContext, Sequence[Arrival]], Awaitable[list[str]]]
    hold: Callable[[AppContext, inbox_store.Suspect, Sequence[str]], Awaitable[None]]
    """Sets the delivery aside and holds these orders."""
    release: Callable[[AppContext, Collection[str]], Awaitable[None]]
    """Releases these orders, unless another delivery mentions them."""
    release_left: Callable[[AppContext], Awaitable[None]]
    """Releases orders that a dead reader left held."""


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """Everything that is needed to read the inbox."""

    context: AppContext
    inbox: Inbox
    sources: Mapping[str, Source]
    environment: str
    holding: Holding
    failed: Repeating = field(default_factory=Repeating)
    claimant: claim_store.Claimant = field(default_factory=claim_store.Claimant)


class Reader:
    """Reader that reads the inbox until it is stopped. PostgreSQL can have several."""

    def __init__(self, reading: ReaderContext) -> None:
        # The holder of an SQLite file's lock is the only reader.
        claimant = claim_store.Claimant(alone=not reading.context.database.shared)
        self._reading = replace(reading, claimant=claimant)
        self._inbox = reading.inbox
        self._database = reading.context.database
        self._turn = reading.inbox.turn
        self._signals = reading.context.signals
        self._stopping = False
        self._draining = False
        self._began = False
        self._left_from = 0.0
        """Time of the next check for orders that are still held although their deliveries were
        read. A reader may have ended just before it released them."""
        self._seen_at = 0.0
        self._pace = _pace(self._database)
        self._unread = Repeating()
        self.alive = False

    def stop(self, *, drain: bool = True) -> None:
        """Stop the reader. With `drain`, the inbox is emptied first."""
        self._stopping, self._draining = True, drain
        self._signals.accepted.set()

    async def run(self) -> None:
        """Read the inbox until the reader is stopped, or until a permanent error."""
        self.alive = True
        try:
            while not (self._stopping and not self._draining):
                self._signals.accepted.clear()
                ending = self._stopping  # later arrivals are found by the next look
                try:
                    if self._turn is not None and not self._turn.take():
                        self._began, self._left_from = False, 0.0
                        pause = TURN_S
                    else:
                        look = LOOK_SHARED_S if self._database.shared else LOOK_S
                        pause = 0.0 if await self._round() else look
                        if self._unread.is_over():
                            log.info("the inbox is being read again")
                except StoreUnavailable as error:
                    if times := self._unread.times(error.reason):
                        log.warning("the inbox is not being read", reason=error.reason, count=times)
                    pause = TRY_AGAIN_S
                if pause:
                    self._signals.drained.set()
                if pause and ending:
                    break
                await self._pause(pause)
            await self._end()
        finally:
            self.alive = False
            self._signals.drained.set()
            if self._turn is not None:
                self._turn.release()

    async def read_brought(self) -> None:
        """Read all rows in the database's own inbox table.

        No service may run. Raise StoreUnavailable if the database cannot be written.
        """
        self._reading.claimant.alone = True
        while await self._read_suspect() or await read_some(self._reading, brought=True):
            pass

    async def _pause(self, seconds: float) -> None:
        if seconds:
            try:
                async with asyncio.timeout(seconds):
                    await self._signals.accepted.wait()
            except TimeoutError:
                return

    async def _round(self) -> int:
        if not self._began:
            await self._begin()
        await self._beat()
        found = await self._read_suspect() or await read_some(self._reading, pace=self._pace)
        if not found and asyncio.get_running_loop().time() >= self._left_from:
            await self._reading.holding.release_left(self._reading.context)
            self._all_released()
        return found

    def _all_released(self) -> None:
        # Readers on other machines may be gone for good.
        now = asyncio.get_running_loop().time()
        self._left_from = now + LEFT_S if self._database.shared else math.inf

    async def _begin(self) -> None:
        self._began = True
        if self._database.shared:
            return
        starts = await self._database.writer.commit(_begin)
        if starts > 1:  # the previous reader ended without appending anything
            rows = await self._inbox.next_rows(limit=AT_ONCE, most_bytes=AT_ONCE_BYTES)
            if rows and not await self._database.on_snapshot(claim_store.heads_of_suspects):
                log.warning("a reader ended while it was appending these rows", count=len(rows))
                await self._database.writer.commit(inbox_store.suspect, rows)

    async def _end(self) -> None:
        if self._began:
            try:
                await self._database.writer.commit(_end, self._reading.claimant)
            except StoreUnavailable as error:
                log.warning("the inbox is not being read", reason=error.reason)

    async def _beat(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._database.shared and now - self._seen_at >= BEAT_S:
            at = self._reading.context.clock.now()
            await self._database.writer.commit(inbox_store.put_counter, inbox_store.BEAT, at)
            self._seen_at = now

    async def _read_suspect(self) -> int:
        heads = await self._database.on_snapshot(claim_store.heads_of_suspects)
        claimant, writer = self._reading.claimant, self._database.writer
        for head in claimant.free(heads)[:1]:
            one = await writer.commit(claim_store.claim_suspect, claimant, head)
            if one is None:  # another reader was faster
                return 1
            if one.item is None or one.tries >= inbox_store.MOST_TRIES:
                await self._reading.holding.hold(self._reading.context, one, one.orders)
            else:
                await self._read_alone(one, one.item)
            return 1
        return 0

    async def _read_alone(self, one: inbox_store.Suspect, item: Item) -> None:
        ready = _ready(self._reading, one, [item])
        if one.tries and not one.orders:  # it may be set aside unread: see `hold`
            orders = await self._reading.holding.orders_of(self._reading.context, ready.arrivals)
            await self._database.writer.commit(inbox_store.note_orders, one, orders=orders)
            one = one._replace(orders=orders)
        try:
            await _append(self._reading, [ready])
        except (StoreUnavailable, StorePoisoned):
            raise
        except Exception as error:
            why = await self._inbox.cannot_append()
            if why is not None:  # the content of this suspect is not the cause
                raise StoreUnavailable(why, reason="refused") from error
            log.error("a delivery cannot be appended", delivery=item.delivery_id, exc_info=error)
            if one.tries + 1 >= inbox_store.MOST_TRIES:
                orders = await self._reading.holding.orders_of(
                    self._reading.context, ready.arrivals
                )
                await self._reading.holding.hold(self._reading.context, one, orders)
            else:
                await self._database.writer.commit(claim_store.failed_alone, one)
        else:
            self._left_from = 0.0
            await self._reading.holding.release(self._reading.context, one.orders)
            self._all_released()


async def read_some(
    reading: ReaderContext, *, pace: Pace | None = None, brought: bool = False
) -> int:
    """Store the content of the next inbox rows."""
    inbox, writer = reading.inbox, reading.context.database.writer
    drained = reading.context.signals.drained
    pace = pace or _pace(reading.context.database)
    limit = pace.fitting(reading.context.database)
    if reading.context.database.shared:
        rows = await _claimed(reading, limit)
    else:
        rows = await inbox.next_rows(limit=limit, most_bytes=AT_ONCE_BYTES, brought=brought)
    if not rows:
        return 0
    records = sum(len(row.items or ()) for row in rows)
    if records > limit // 2:  # there is more
        drained.clear()
    else:
        drained.set()
    if any(row.items is None for row in rows):
        log.error("a row of the inbox is damaged")
        await writer.commit(inbox_store.suspect, rows)
        return len(rows)
    if any(row.tries >= claim_store.MOST_CLAIMS for row in rows):
        log.warning("a reader ended while it was appending these rows", count=len(rows))
        await writer.commit(inbox_store.suspect, rows)
        return len(rows)
    try:
        await _append(reading, [_ready(reading, row, row.items or ()) for row in rows])
        pace.learn(records, seconds=writer.held_s)
    except (StoreUnavailable, StorePoisoned):
        raise
    except Exception as error:
        if times := reading.failed.times(type(error).__name__):
            log.error("rows of the inbox cannot be appended", count=times, exc_info=error)
        why = await inbox.cannot_append()
        if why is not None:  # the content of these rows is not the cause
            raise StoreUnavailable(why, reason="refused") from error
        await writer.commit(inbox_store.suspect, rows)
    return len(rows)


def _pace(database: Database) -> Pace:
    most = AT_ONCE_SHARED if database.shared else AT_ONCE
    return Pace(first=most, most=most)


async def _claimed(reading: ReaderContext, limit: int) -> list[inbox_store.Unread]:
    claimant, database = reading.claimant, reading.context.database
    quiet = reading.context.signals.drained.is_set()
    if quiet and not claimant.free(await database.on_snapshot(claim_store.heads_of_rows)):
        return []
    return await database.writer.commit(
        claim_store.claim_rows, claimant, limit=limit, most_bytes=AT_ONCE_BYTES
    )


def _begin(connection: PlainConnection) -> int:
    starts = inbox_store.counter(connection, STARTS) + 1
    inbox_store.put_counter(connection, STARTS, starts)
    return starts


def _end(connection: PlainConnection, claimant: claim_store.Claimant) -> None:
    claim_store.give_back(connection, claimant)
    if connection.dialect == "sqlite":
        inbox_store.put_counter(connection, STARTS, 0)


async def _append(reading: ReaderContext, ready: Sequence[Ready]) -> None:
    for arrival, verdict in await reading.inbox.append(ready):
        _log_read(reading, arrival, verdict)


def _ready(
    reading: ReaderContext, row: inbox_store.Unread | inbox_store.Suspect, items: Sequence[Item]
) -> Ready:
    arrivals: list[Arrival] = []
    for item in items:
        if isinstance(item, Received):
            source = reading.sources.get(item.source)
            arrivals += read_delivery(source, item, environment=reading.environment)
    rejections = [item for item in items if not isinstance(item, Received)]
    return Ready(row, arrivals, rejections)


def _log_read(reading: ReaderContext, arrival: Arrival, verdict: StoredVerdict) -> None:
    event = arrival.event
    _log_delivery(
        arrival.delivery_id,
        arrival.source,
        verdict,
        None if event is None else event.event_id,
        None if event is None else event.kind,
        None if event is None else event.order,
        arrival.digest,
        arrival.peer or None,
        (reading.context.clock.now() - arrival.received_at) // MILLISECOND,
    )
