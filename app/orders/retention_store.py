"""Deletion of bodies and headers: finds deliveries that still have them, and empties the rows.

A row stays: its id, digest, verdict, size and time are what a redelivery is judged by. On SQLite
what is freed is overwritten at once (`engine`), so that it cannot be read from unused pages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, select_in, select_rows
from reconcile.instants import Instant

_WHOLE = (
    "UPDATE envelopes SET body=NULL WHERE digest IN "
    "(SELECT envelope FROM deliveries WHERE envelope IS NOT NULL AND id IN ({})) AND NOT EXISTS "
    "(SELECT 1 FROM deliveries WHERE deliveries.envelope = envelopes.digest AND pruned_at IS NULL)"
)
"""The whole body of several events goes with the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpruned:
    """A delivery that still has its headers.

    order   None where it belongs to none
    source  who sent it
    """

    delivery_id: str
    received_at: Instant
    order: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many of some deliveries have been emptied, and when the last of them was."""

    deliveries: int
    last_at: Instant


async def unpruned(connection: AsyncConnection, *, after: str, limit: int) -> list[Unpruned]:
    """Deliveries that were not pruned, by id, which is by arrival."""
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
    """Those of the deliveries that were read and concern no order: their event is ignored, and
    names no order, payment or session, such as a customer's new address."""
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
    """Bytes of body and headers of those of the deliveries that were not pruned."""
    rows = await select_in(
        connection,
        sql="SELECT id, coalesce(length(body), 0) + length(headers) FROM deliveries "
        "WHERE pruned_at IS NULL AND id IN ({})",
        values=deliveries,
    )
    return {row[0]: int(row[1]) for row in rows}


def pruned_among(connection: PlainConnection, deliveries: Iterable[str]) -> Pruned | None:
    """What was pruned of these deliveries; None where nothing was."""
    sql = "SELECT pruned_at FROM deliveries WHERE pruned_at IS NOT NULL AND id IN ({})"
    rows = select_rows(connection, sql=sql, values=deliveries)
    if not rows:
        return None
    return Pruned(deliveries=len(rows), last_at=max(row[0] for row in rows))


async def prune(connection: AsyncConnection, deliveries: Sequence[str], *, now: Instant) -> None:
    """Let the bodies and headers of these deliveries go."""
    sql = (
        "UPDATE deliveries SET body=NULL, headers='', pruned_at=? "
        "WHERE pruned_at IS NULL AND id IN ({})"
    )
    await select_in(connection, sql=sql, values=deliveries, first=(now,))
    await select_in(connection, sql=_WHOLE, values=deliveries)


async def old_rejections(
    connection: AsyncConnection, *, before: Instant, limit: int, after: str = ""
) -> list[str]:
    """Ids of rejections that arrived before an instant, the oldest first."""
    rows = await connection.execute(
        text(
            "SELECT id FROM rejections WHERE id > :after AND received_at <= :before "
            "ORDER BY id LIMIT :limit"
        ),
        {"after": after, "before": before, "limit": limit},
    )
    return [row[0] for row in rows]


async def drop_rejections(connection: AsyncConnection, rejections: Sequence[str]) -> None:
    """Let whole rejections go: nothing is judged by them."""
    sql = "DELETE FROM rejections WHERE id IN ({})"
    await select_in(connection, sql=sql, values=rejections)
