"""Find deliveries that still have bodies and headers, and empty their rows.

A row stays, because a redelivery is judged by its id, digest, verdict, size and time. SQLite
overwrites freed space at once.
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
    """Delivery that still has its body and headers. `order` is None if the delivery belongs to no
    order."""

    delivery_id: str
    received_at: Instant
    order: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """Number of deliveries whose bodies were deleted, and the time of the last deletion."""

    deliveries: int
    last_at: Instant


async def unpruned(connection: AsyncConnection, *, after: str, limit: int) -> list[Unpruned]:
    """Return deliveries that still have their bodies and headers, sorted by arrival.

    after  id of the delivery after which the list begins
    """
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
    """Return those of the deliveries that were read and concern no order, payment or session."""
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
    """Return the size in bytes of each delivery's body and headers. Deliveries whose bodies were
    deleted are left out."""
    rows = await select_in(
        connection,
        sql="SELECT id, coalesce(length(body), 0) + length(headers) FROM deliveries "
        "WHERE pruned_at IS NULL AND id IN ({})",
        values=deliveries,
    )
    return {row[0]: int(row[1]) for row in rows}


def pruned_among(connection: PlainConnection, deliveries: Iterable[str]) -> Pruned | None:
    """Return how many of these deliveries have lost their bodies, and when last, or None."""
    sql = "SELECT pruned_at FROM deliveries WHERE pruned_at IS NOT NULL AND id IN ({})"
    rows = select_rows(connection, sql=sql, values=deliveries)
    if not rows:
        return None
    return Pruned(deliveries=len(rows), last_at=max(row[0] for row in rows))


async def prune(connection: AsyncConnection, deliveries: Sequence[str], *, now: Instant) -> None:
    """Delete the bodies and headers of these deliveries. The rows stay."""
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
    """Return ids of rejected deliveries that arrived before an instant, oldest first.

    after  id after which the list begins
    """
    rows = await connection.execute(
        text(
            "SELECT id FROM rejections WHERE id > :after AND received_at <= :before "
            "ORDER BY id LIMIT :limit"
        ),
        {"after": after, "before": before, "limit": limit},
    )
    return [row[0] for row in rows]


async def drop_rejections(connection: AsyncConnection, rejections: Sequence[str]) -> None:
    """Delete these rejected deliveries completely."""
    sql = "DELETE FROM rejections WHERE id IN ({})"
    await select_in(connection, sql=sql, values=rejections)
