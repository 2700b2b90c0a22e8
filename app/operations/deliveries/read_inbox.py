"""The way of a delivery from the inbox to its order, in the background.

    1 take     rows of the inbox, the oldest first                     store/arrivals/inbox.py
    2 read     each delivery as its source's profile reads it now      judge_delivery.py
    3 append   events, links and due marks, and let those rows go,
               in one transaction                                      store/arrivals/intake.py

A repeat is harmless: what was not committed is still in the inbox. What cannot be read is stored as
`unreadable`; nothing that was accepted is dropped. A row that the database refuses is split, so
that each of its deliveries stands alone; one that is refused alone three times is set aside, kept
and told of, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from app.errors import StorePoisoned, StoreUnavailable
from app.logs import Line
from app.operations.deliveries.judge_delivery import read_delivery
from app.operations.desk import Desk
from app.providers.source import Source
from app.store.arrivals.inbox import (
    MOST_TRIES,
    Received,
    Unread,
    count_try,
    split_row,
    unread_rows,
)
from app.store.arrivals.intake import Arrival, Ready, StoredVerdict
from reconcile.instants import MILLISECOND

log = structlog.get_logger()

_log_delivery = Line(
    "delivery",
    *("delivery", "source", "verdict", "event_id", "kind", "order", "digest", "duration_ms"),
)

AT_ONCE: Final = 256
"""Deliveries appended in one transaction: while it lasts no sender is acknowledged."""

LOOK_S: Final = 1.0
"""Longest sleep: other receivers fill the inbox without a signal."""

TRY_AGAIN_S: Final = 0.5
"""Pause after the store could not take a round's work: a full disk or a busy database."""

Count = Callable[[str, StoredVerdict], None]
"""Told the source and the verdict of each delivery that was read."""


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What reading needs: the desk, the sources as they are configured now, the environment."""

    desk: Desk
    sources: Mapping[str, Source]
    environment: str
    count: Count


class Reader:
    """Reads the inbox until it is stopped. `alive` tells readiness whether it is running."""

    def __init__(self, context: ReaderContext) -> None:
        self._context = context
        self._store = context.desk.store
        self._stopping = False
        self.alive = False

    def stop(self) -> None:
        """End once the inbox is empty, or cannot be read."""
        self._stopping = True
        self._store.accepted.set()

    async def run(self) -> None:
        """Read until stopped, or until an error that stays."""
        self.alive = True
        try:
            while True:
                self._store.accepted.clear()
                try:
                    done = await read_some(self._context)
                except StoreUnavailable as error:
                    log.warning("the inbox is not read", reason=error.reason)
                    if self._stopping:
                        return
                    await asyncio.sleep(TRY_AGAIN_S)
                    continue
                if not done:
                    if self._stopping:
                        return
                    await self._wait()
        finally:
            self.alive = False

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._store.accepted.wait()
        except TimeoutError:
            return


async def read_some(context: ReaderContext) -> int:
    """Read the next rows and append what they say. Returns how many rows that were."""
    store = context.desk.store
    async with store.reading() as connection:
        rows = await unread_rows(connection, limit=AT_ONCE)
    if not rows:
        return 0
    try:
        await _append(context, rows)
    except (StoreUnavailable, StorePoisoned):
        raise
    except Exception as error:
        log.error("rows of the inbox cannot be appended", count=len(rows), exc_info=error)
        why = await store.cannot_append()
        if why is not None:  # it is not what is in these rows
            raise StoreUnavailable(why, reason="refused") from error
        for row in rows:
            await _append_alone(context, row)
    return len(rows)


async def _append_alone(context: ReaderContext, row: Unread) -> None:
    """One of several rows of which one is refused: appended, split, or tried once more."""
    try:
        await _append(context, [row])
    except (StoreUnavailable, StorePoisoned):
        raise
    except Exception as error:
        writer = context.desk.store.writer
        if len(row.items) > 1:
            await writer.commit(split_row, row)
            return
        await writer.commit(count_try, row)
        if row.tries + 1 >= MOST_TRIES:
            log.error("a delivery is set aside", delivery=row.items[0].delivery_id, exc_info=error)


async def _append(context: ReaderContext, rows: Sequence[Unread]) -> None:
    ready = [_ready(context, row) for row in rows]
    for arrival, verdict in await context.desk.store.append(ready):
        _told(context, arrival, verdict)


def _ready(context: ReaderContext, row: Unread) -> Ready:
    """What is to be appended of one row."""
    arrivals: list[Arrival] = []
    for item in row.items:
        if isinstance(item, Received):
            source = context.sources.get(item.source)
            arrivals += read_delivery(source, item, environment=context.environment)
    rejections = [item for item in row.items if not isinstance(item, Received)]
    return Ready(row, arrivals, rejections)


def _told(context: ReaderContext, arrival: Arrival, verdict: StoredVerdict) -> None:
    event = arrival.event
    context.count(arrival.source, verdict)
    _log_delivery(
        arrival.delivery_id,
        arrival.source,
        verdict,
        None if event is None else event.event_id,
        None if event is None else event.kind,
        None if event is None else event.order,
        arrival.digest,
        (context.desk.clock.now() - arrival.received_at) // MILLISECOND,
    )
