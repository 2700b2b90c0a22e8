"""Stored rejections: refused deliveries, up to a size limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.ids import first_id
from app.database.locks import LINKING, REFUSING, take_lock
from app.database.statements import PlainConnection, insert_rows, run
from reconcile.instants import Instant

_COLUMNS = (
    "id",
    "received_at",
    "source",
    "verdict",
    "digest",
    "size",
    "headers",
    "body",
    "problem",
)
_REJECTIONS = table("rejections", *map(column, _COLUMNS))

_SLACK = 0.9

_ROW_OVERHEAD = 400


NOT_KEPT: Final = "not_kept"
"""Verdict on requests beyond an unsigned source's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Rejected request, or several that are only counted."""

    delivery_id: str
    received_at: Instant
    source: str
    verdict: str
    digest: str
    size: int
    headers: str
    body: bytes
    problem: str
    count: int = 1


class RejectionRing:
    """Store of rejections with a limited size."""

    def __init__(self, *, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._counted = False

    def _count_kept(self, connection: PlainConnection) -> None:
        rows = connection.ask(
            "SELECT count(*), sum(length(body)), sum(length(headers)) FROM rejections"
        )
        count, bodies, headers = rows[0]
        self._count = int(count)
        self._bytes = _kept(int(bodies or 0), int(headers or 0), rows=self._count)

    def append(self, connection: PlainConnection, rejections: Sequence[Rejection]) -> None:
        """Store rejections, then delete the oldest until the store is within its limits."""
        if connection.dialect != "sqlite":  # other processes write to it, too
            take_lock(connection, REFUSING)
            self._count_kept(connection)
        elif not self._counted:
            self._count_kept(connection)
            self._counted = True
        insert_rows(
            connection,
            table="rejections",
            columns=_COLUMNS,
            rows=[
                (r.delivery_id, r.received_at, r.source, r.verdict, r.digest, r.size, r.headers,
                 r.body, r.problem)
                for r in rejections
            ],
            # After a restore rows of the inbox may be read a second time.
            conflict="ON CONFLICT (id) DO NOTHING",
        )  # fmt: skip
        self._count += len(rejections)
        self._bytes += sum(_kept(len(r.body), len(r.headers)) for r in rejections)
        if self._count > self._max_count or self._bytes > self._max_bytes:
            self._trim(connection)

    def _trim(self, connection: PlainConnection) -> None:
        rows = connection.ask(
            "SELECT id, length(body), length(headers) FROM rejections ORDER BY id"
        )
        # Count again: the running totals still include rows of failed commits.
        self._count = len(rows)
        self._bytes = sum(_kept(body or 0, headers) for _, body, headers in rows)
        last = None
        for name, body, headers in rows:
            if self._count <= self._max_count * _SLACK and self._bytes <= self._max_bytes * _SLACK:
                break
            last = name
            self._count -= 1
            self._bytes -= _kept(body or 0, headers)
        if last is not None:
            connection.ask("DELETE FROM rejections WHERE id <= ?", (last,))


def newest_refusal_ahead(connection: PlainConnection, now: Instant) -> Instant:
    """Return the latest future rejection's time, or `now`."""
    ((newest,),) = connection.ask(
        "SELECT max(received_at) FROM rejections WHERE id >= ? AND received_at > ?",
        (first_id("dlv_", now), now),
    )
    return now if newest is None else Instant(newest)


def redate_rejections(connection: PlainConnection, now: Instant) -> int:
    """Set future rejections' arrival to `now`. Return the number."""
    take_lock(connection, REFUSING)
    rows = connection.ask(
        "UPDATE rejections SET received_at=? WHERE id >= ? AND received_at > ? RETURNING id",
        (now, first_id("dlv_", now), now),
    )
    return len(rows)


async def find_rejection(connection: AsyncConnection, delivery_id: str) -> Rejection | None:
    rows = await connection.execute(
        select(_REJECTIONS).where(_REJECTIONS.c.id == delivery_id),
    )
    row = rows.first()
    return None if row is None else _rejection(row)


async def newest_rejections(connection: AsyncConnection, source: str, *, limit: int) -> list[str]:
    """Return the ids of a source's latest rejections."""
    rows = await connection.scalars(
        select(_REJECTIONS.c.id)
        .where(_REJECTIONS.c.source == source)
        .order_by(_REJECTIONS.c.id.desc())
        .limit(limit)
    )
    return list(rows)


async def kept_rejections(
    connection: AsyncConnection, *, after: str, at_once: int
) -> list[Rejection]:
    """Return the stored rejections after the id `after`."""
    listing = select(_REJECTIONS).where(_REJECTIONS.c.id > after)
    rows = await connection.execute(listing.order_by(_REJECTIONS.c.id).limit(at_once))
    return [_rejection(row) for row in rows]


async def delete_rejections(connection: AsyncConnection, delivery_ids: Sequence[str]) -> set[str]:
    """Delete these rejections. Return the ids of the rejections that were still stored."""
    # Taken before any row lock, like in the reader, which may be deleting the same rows.
    for lock in (LINKING, REFUSING):
        await run(connection, take_lock, lock)
    gone = set()
    for delivery_id in delivery_ids:
        rows = await connection.execute(
            text("DELETE FROM rejections WHERE id = :id RETURNING id"), {"id": delivery_id}
        )
        gone |= {row[0] for row in rows}
    return gone


def _rejection(row: Sequence[Any]) -> Rejection:
    return Rejection(
        delivery_id=row[0],
        received_at=row[1],
        source=row[2],
        verdict=row[3],
        digest=row[4],
        size=row[5],
        headers=row[6],
        body=row[7],
        problem=row[8],
    )


def _kept(body: int, headers: int, *, rows: int = 1) -> int:
    return body + 2 * headers + rows * _ROW_OVERHEAD
