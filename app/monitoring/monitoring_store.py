"""What the watchdog looks at: stretches of time, by ids, which begin with their moment.

No index on a time is needed for that, and every look is bounded: it asks whether there were enough.
Deliveries that could not be read are few among many, so they have an index of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.ids import first_id
from app.database.statements import Rows, select_in
from reconcile.instants import Instant

UNREADABLE: Final = (
    # The verdict stands in the text, not among the values: the index holds this verdict alone.
    "SELECT source, count(*) FROM (SELECT source FROM deliveries "
    "WHERE verdict = 'unreadable' AND id >= :start ORDER BY id DESC LIMIT :enough) AS found "
    "GROUP BY source"
)
"""The latest deliveries that could not be read, counted by their source."""


PAID: Final = (
    "SELECT events.source, coalesce(payment, session, events.event_id), id, events.received_at, "
    "order_key IS NOT NULL FROM (SELECT id, event_id FROM deliveries WHERE id < :until "
    "ORDER BY id DESC LIMIT :looked_at) AS latest JOIN events "
    "ON events.event_id = latest.event_id AND events.delivery_id = latest.id "
    "WHERE claim = 'succeeded' ORDER BY id DESC"
)
"""The bound is on deliveries, not on payments: how much it reads does not rest on what they say."""

TIED_SINCE: Final = (
    'SELECT DISTINCT source FROM (SELECT * FROM events ORDER BY "row" DESC LIMIT :looked_at) '
    "AS latest WHERE claim = 'succeeded' AND order_key IS NOT NULL AND received_at >= :since"
)


async def last_delivery(connection: AsyncConnection) -> Instant | None:
    """When the last verified delivery came; None where none ever did."""
    found = await connection.execute(
        text("SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1")
    )
    received: Instant | None = found.scalar_one_or_none()
    return received


async def deliveries_between(
    connection: AsyncConnection, start: Instant, end: Instant, *, enough: int
) -> int:
    """How many verified deliveries came from `start` until before `end`; no more than `enough`."""
    found = await connection.execute(
        text(
            "SELECT count(*) FROM (SELECT 1 FROM deliveries "
            "WHERE id >= :start AND id < :end LIMIT :enough) AS found"
        ),
        {"start": first_id("dlv_", start), "end": first_id("dlv_", end), "enough": enough},
    )
    return int(found.scalar_one())


async def unreadable_since(
    connection: AsyncConnection, start: Instant, *, enough: int
) -> dict[str, int]:
    """How many deliveries since `start` could not be read, by source; the latest `enough` of all
    sources are counted."""
    rows = await connection.execute(
        text(UNREADABLE), {"start": first_id("dlv_", start), "enough": enough}
    )
    return {source: int(count) for source, count in rows}


async def events_taken(
    connection: AsyncConnection, names: Iterable[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Which of these events, each by its source and its id, were ever taken."""
    rows = await select_in(
        connection,
        sql="SELECT DISTINCT source, event_id FROM events WHERE event_id IN ({})",
        values={event_id for _, event_id in names},
    )
    return {(source, event_id) for source, event_id in rows}


async def sessions_since(
    connection: AsyncConnection, start: Instant, *, enough: int
) -> list[Instant]:
    """When the first `enough` sessions after `start` were opened, the oldest first."""
    rows = await connection.execute(
        text(
            "SELECT recorded_at FROM records WHERE id >= :start AND id < 'rec_g' "
            "AND kind = 'session_opened' ORDER BY id LIMIT :enough"
        ),
        {"start": first_id("rec_", start), "enough": enough},
    )
    return [row[0] for row in rows if row[0] > start]


async def paid_until(connection: AsyncConnection, until: Instant, *, looked_at: int) -> Rows:
    """Events that say a payment has succeeded, among the latest deliveries before `until`, the
    latest first: source, payment, delivery, when it came, whether an order has it."""
    values = {"until": first_id("dlv_", until), "looked_at": looked_at}
    rows = await connection.execute(text(PAID), values)
    return [(*row[:4], bool(row[4])) for row in rows]


async def tied_since(connection: AsyncConnection, since: Instant, *, looked_at: int) -> set[str]:
    """Sources that have had a payment of an order since then, among the latest events."""
    values = {"since": since, "looked_at": looked_at}
    return set(await connection.scalars(text(TIED_SINCE), values))
