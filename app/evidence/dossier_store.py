"""Everything stored of an order that its evidence needs beside its history: bytes, revisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import select_in
from app.orders.published_store import PUBLISHED_COLUMNS, Published, published_of
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """One delivery as it was kept.

    body      None where it was let go, and of a repeat, whose first arrival holds the bytes
    envelope  of one of several events in one request: the whole body's digest
    whole     that whole body
    """

    delivery_id: str
    received_at: Instant
    source: str
    verdict: str
    digest: str
    size: int
    headers: str
    body: bytes | None
    problem: str | None
    pruned_at: Instant | None
    envelope: str | None
    whole: bytes | None


async def arrived(connection: AsyncConnection, deliveries: Iterable[str]) -> list[Arrived]:
    """These deliveries, in the order in which they arrived."""
    rows = await select_in(
        connection,
        sql="SELECT deliveries.id, received_at, source, verdict, deliveries.digest, size, headers, "
        "deliveries.body, problem, pruned_at, envelope, envelopes.body FROM deliveries "
        "LEFT JOIN envelopes ON envelopes.digest = deliveries.envelope "
        "WHERE deliveries.id IN ({})",
        values=deliveries,
    )
    found = [
        Arrived(
            delivery_id=row[0],
            received_at=row[1],
            source=row[2],
            verdict=row[3],
            digest=row[4],
            size=row[5],
            headers=row[6],
            body=row[7],
            problem=row[8],
            pruned_at=row[9],
            envelope=row[10],
            whole=row[11],
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: (each.received_at, each.delivery_id))


async def bytes_of(connection: AsyncConnection, deliveries: Iterable[str]) -> int:
    """How much `arrived` would read of these deliveries."""
    rows = await select_in(
        connection,
        sql="SELECT size + length(headers) + coalesce(length(envelopes.body), 0) FROM deliveries "
        "LEFT JOIN envelopes ON envelopes.digest = deliveries.envelope "
        "WHERE deliveries.id IN ({})",
        values=deliveries,
    )
    return sum(int(row[0]) for row in rows)


async def details_of_records(connection: AsyncConnection, records: Iterable[str]) -> dict[str, str]:
    """The texts that are kept beside these records, such as a service's answer."""
    rows = await select_in(
        connection,
        sql="SELECT id, details FROM records WHERE details IS NOT NULL AND id IN ({})",
        values=records,
    )
    return {row[0]: row[1] for row in rows}


async def revisions_of(
    connection: AsyncConnection, order: str, *, until: Instant
) -> list[Published]:
    """What was published of an order up to an instant, in publishing order."""
    rows = await connection.execute(
        text(
            f"SELECT {', '.join(PUBLISHED_COLUMNS)} FROM revisions "  # noqa: S608
            "WHERE order_key = :order AND at <= :until ORDER BY seq"
        ),
        {"order": order, "until": until},
    )
    return [published_of(row) for row in rows]
