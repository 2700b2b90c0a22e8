"""Read what evidence needs from the database: deliveries, revisions, and rows to compare with the
log."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, fields
from typing import Final

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import REVISION_AT
from app.database.statements import Rows, select_in, statement, stream
from app.orders.published_store import REVISIONS, Published, published_of
from app.sealing.leaf_store import KINDS, Kind
from app.sealing.log_queue_store import SEALED, SWEPT
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDelivery:
    """Delivery as stored."""

    delivery_id: str
    received_at: Instant
    source: str
    verdict: str
    digest: str
    size: int
    headers: str
    body: bytes | None
    """Body; None if deleted, or stored with an earlier delivery."""
    problem: str | None
    pruned_at: Instant | None
    envelope: str | None
    whole: bytes | None
    """The whole body of a request with several events, or None."""


async def arrived(connection: AsyncConnection, deliveries: Iterable[str]) -> list[StoredDelivery]:
    """Return the deliveries with these ids, in the order of their arrival."""
    rows = await select_in(
        connection,
        sql="SELECT deliveries.id, received_at, source, verdict, deliveries.digest, size, headers, "
        "deliveries.body, problem, pruned_at, envelope, envelopes.body FROM deliveries "
        "LEFT JOIN envelopes ON envelopes.digest = deliveries.envelope "
        "WHERE deliveries.id IN ({})",
        values=deliveries,
    )
    names = [each.name for each in fields(StoredDelivery)]
    found = [StoredDelivery(**dict(zip(names, row, strict=True))) for row in rows]
    return sorted(found, key=lambda each: (each.received_at, each.delivery_id))


async def size_of_arrived(connection: AsyncConnection, deliveries: Iterable[str]) -> int:
    """Return how many bytes `arrived` would read for these deliveries."""
    rows = await select_in(
        connection,
        sql="SELECT size + length(headers) + coalesce(length(envelopes.body), 0) FROM deliveries "
        "LEFT JOIN envelopes ON envelopes.digest = deliveries.envelope "
        "WHERE deliveries.id IN ({})",
        values=deliveries,
    )
    return sum(int(row[0]) for row in rows)


async def details_of_records(connection: AsyncConnection, records: Iterable[str]) -> dict[str, str]:
    """Return the texts stored for these records, by record id."""
    rows = await select_in(
        connection,
        sql="SELECT id, details FROM records WHERE details IS NOT NULL AND id IN ({})",
        values=records,
    )
    return {row[0]: row[1] for row in rows}


_KNOWN: Final = statement("{at} <= :until", at=REVISION_AT)


async def revisions_of(
    connection: AsyncConnection, order: str, *, until: Instant
) -> list[Published]:
    """Return the revisions of an order that were published up to an instant."""
    known = text(_KNOWN).bindparams(until=until)
    of_order = select(REVISIONS).where(REVISIONS.c.order_key == order, known)
    rows = await connection.execute(of_order.order_by(REVISIONS.c.seq))
    return [published_of(row) for row in rows]


AT_ONCE = 50
"""Number of bodies that are read at a time."""


@dataclass(frozen=True, slots=True)
class Content:
    """Body and headers of a delivery, which can be erased."""

    verdict: str
    digest: str
    headers: str
    body: bytes | None
    pruned: bool


async def contents_of(connection: AsyncConnection, deliveries: Iterable[str]) -> dict[str, Content]:
    """Return the erasable contents of these deliveries. The keys are the deliveries' ids."""
    rows = await select_in(
        connection,
        sql="SELECT id, verdict, digest, headers, body, pruned_at IS NOT NULL FROM deliveries "
        "WHERE id IN ({})",
        values=deliveries,
    )
    return {row[0]: Content(*row[1:]) for row in rows}


async def whole_bodies(connection: AsyncConnection) -> AsyncIterator[Rows]:
    """Yield the digest and the body of each stored request that has several events."""
    sql = "SELECT digest, body FROM envelopes WHERE body IS NOT NULL"
    async for rows in stream(connection, sql, at_once=AT_ONCE):
        yield rows


async def node_count(connection: AsyncConnection) -> int:
    return int(await connection.scalar(text("SELECT count(*) FROM log_nodes")) or 0)


async def strays(connection: AsyncConnection, *, limit: int) -> list[str]:
    """Return ids of rows that are neither sealed nor waiting."""
    found: list[str] = []
    for kind in KINDS:
        if len(found) < limit:
            found += await (_numbered if kind.numbered else _marked)(connection, kind, limit)
    return found[:limit]


_NUMBERED = (
    "SELECT {key} FROM {table} LEFT JOIN log_leaves ON log_leaves.subject = '{name}:' || {key} "
    "WHERE log_leaves.number IS NULL "
    "AND {key} <= coalesce((SELECT value FROM counters WHERE name = :name), 0) "
    "ORDER BY {key} LIMIT :limit"
)
_MARKED = (
    "SELECT {key} FROM {table} LEFT JOIN log_leaves ON log_leaves.subject = {key} "
    "WHERE log_leaves.number IS NULL ORDER BY {key}"
)


async def _numbered(connection: AsyncConnection, kind: Kind, limit: int) -> list[str]:
    sql = statement(_NUMBERED, key=kind.key_column, table=kind.table, name=kind.name)
    values = {"name": f"{SEALED} {kind.name}", "limit": limit}
    rows = await connection.execute(text(sql), values)
    return [kind.subject(row[0]) for row in rows]


async def _marked(connection: AsyncConnection, kind: Kind, limit: int) -> list[str]:
    swept = await connection.scalar(
        text("SELECT value FROM meta WHERE name = :name"), {"name": f"{SWEPT} {kind.name}"}
    )
    if swept != "":
        return []
    marked = await connection.execute(
        text("SELECT ids FROM unsealed WHERE kind = :kind"), {"kind": kind.name}
    )
    waiting = {each for row in marked for each in row[0].split("\n")}
    sql = statement(_MARKED, key=kind.key_column, table=kind.table)
    rows = await connection.execute(text(sql))
    return [row[0] for row in rows if row[0] not in waiting][:limit]
