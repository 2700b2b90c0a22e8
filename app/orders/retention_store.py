"""Deletes bodies and headers: finds deliveries that still have them, and empties the rows.

A row stays, because a redelivery is judged by its id, digest, verdict, size and time. SQLite
overwrites freed space at once (`engine`), so nothing can be read from unused pages. Leaves out:
when to delete.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, select_in, select_rows
from app.receiving.unread_store import EMPTIED
from reconcile.instants import Instant

_WHOLE = (
    "UPDATE envelopes SET body=NULL WHERE digest IN "
    "(SELECT envelope FROM deliveries WHERE envelope IS NOT NULL AND id IN ({})) AND NOT EXISTS "
    "(SELECT 1 FROM deliveries WHERE deliveries.envelope = envelopes.digest AND pruned_at IS NULL)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpruned:
    """Delivery that still has its headers. `order` is None if it belongs to no order."""

    delivery_id: str
    received_at: Instant
    order: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The number of pruned deliveries, and when the last of them was pruned."""

    deliveries: int
    last_at: Instant


async def unpruned(connection: AsyncConnection, *, after: str, limit: int) -> list[Unpruned]:
    """Return deliveries that were not pruned, by id, which is also the order of arrival."""
    rows = await connection.execute(
        text(
            "SELECT deliveries.id, deliveries.received_at, events.order_key, deliveries.source "
            "FROM deliveries "
            "LEFT JOIN events ON events.event_id = deliveries.event_id "
            "AND events.source = deliveries.source AND events.digest = deliveries.digest "
            "WHERE deliveries.id > :after AND deliveries.pruned_at IS NULL "
            "ORDER BY deliveries.id LIMIT :limit"
        ),
        {"after": after, "limit": limit},
    )
    return [
        Unpruned(delivery_id=row[0], received_at=row[1], order=row[2], source=row[3])
        for row in rows
    ]


async def unrelated_among(connection: AsyncConnection, deliveries: Iterable[str]) -> set[str]:
    """Return the deliveries that were read and belong to no order. For example, a delivery may only
    state a customer's new address.

    The event of such a delivery is of an ignored kind, and names no order, payment or session.
    """
    rows = await select_in(
        connection,
        sql="SELECT deliveries.id FROM deliveries JOIN events "
        "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
        "AND events.digest = deliveries.digest WHERE events.claim = 'ignored' "
        "AND events.order_key IS NULL AND events.payment IS NULL AND events.session IS NULL "
        "AND deliveries.id IN ({})",
        values=deliveries,
    )
    return {row[0] for row in rows}


async def sizes_of(connection: AsyncConnection, deliveries: Iterable[str]) -> dict[str, int]:
    """Return the size in bytes of body and headers of the deliveries that were not pruned."""
    rows = await select_in(
        connection,
        sql="SELECT id, coalesce(length(body), 0) + length(headers) FROM deliveries "
        "WHERE pruned_at IS NULL AND id IN ({})",
        values=deliveries,
    )
    return {row[0]: int(row[1]) for row in rows}


def pruned_among(connection: PlainConnection, deliveries: Iterable[str]) -> Pruned | None:
    """Return how many of these deliveries were pruned, and when the last of them was pruned; None
    if no delivery was."""
    sql = "SELECT pruned_at FROM deliveries WHERE pruned_at IS NOT NULL AND id IN ({})"
    rows = select_rows(connection, sql=sql, values=deliveries)
    if not rows:
        return None
    return Pruned(deliveries=len(rows), last_at=max(row[0] for row in rows))


async def prune(connection: AsyncConnection, deliveries: Sequence[str], *, now: Instant) -> None:
    """Delete the bodies and headers of these deliveries."""
    sql = (
        "UPDATE deliveries SET body=NULL, headers='', pruned_at=? "
        "WHERE pruned_at IS NULL AND id IN ({})"
    )
    await select_in(connection, sql=sql, values=deliveries, first=(now,))
    await select_in(connection, sql=_WHOLE, values=deliveries)
    await select_in(connection, sql=EMPTIED, values=deliveries)


async def old_rejections(
    connection: AsyncConnection, *, before: Instant, limit: int, after: str = ""
) -> list[str]:
    """Return ids of rejections that arrived before an instant, the oldest first."""
    rows = await connection.execute(
        text(
            "SELECT id FROM rejections WHERE id > :after AND received_at <= :before "
            "ORDER BY id LIMIT :limit"
        ),
        {"after": after, "before": before, "limit": limit},
    )
    return [row[0] for row in rows]


async def drop_rejections(connection: AsyncConnection, rejections: Sequence[str]) -> None:
    """Delete these rejections with all their columns."""
    sql = "DELETE FROM rejections WHERE id IN ({})"
    await select_in(connection, sql=sql, values=rejections)
