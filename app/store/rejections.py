"""The ring of refused arrivals: kept so that a wrong secret loses nothing, bounded so that a flood
of them can never fill the disk. The oldest go first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.statements import insert_many
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

_SLACK = 0.9
"""When the ring is full it is emptied to this share, so that trimming is rare."""

_ROW_OVERHEAD = 400
"""Bytes counted for a row beside its body and headers: ids, digest, indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One refused arrival. `body` is cut to what may be kept; `size` and `digest` are of all."""

    delivery_id: str
    received_at: Instant
    source: str
    verdict: str
    digest: str
    size: int
    headers: str
    body: bytes
    problem: str


class RejectionRing:
    """Appends and trims. Counts in memory what it wrote; `load` counts what is there."""

    def __init__(self, *, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0

    async def load(self, connection: AsyncConnection) -> None:
        """Count what the ring holds."""
        rows = await connection.execute(
            text("SELECT count(*), sum(length(body)), sum(length(headers)) FROM rejections")
        )
        count, bodies, headers = rows.one()
        self._count = int(count)
        self._bytes = int(bodies or 0) + int(headers or 0) + self._count * _ROW_OVERHEAD

    async def append(self, connection: AsyncConnection, rejections: Sequence[Rejection]) -> None:
        """Write them, then let the oldest go if the ring is over a bound."""
        await insert_many(
            connection,
            table="rejections",
            columns=_COLUMNS,
            rows=[
                (r.delivery_id, r.received_at, r.source, r.verdict, r.digest, r.size, r.headers,
                 r.body, r.problem)
                for r in rejections
            ],
        )  # fmt: skip
        self._count += len(rejections)
        self._bytes += sum(_kept(len(r.body), len(r.headers)) for r in rejections)
        if self._count > self._max_count or self._bytes > self._max_bytes:
            await self._trim(connection)

    async def _trim(self, connection: AsyncConnection) -> None:
        rows = await connection.execute(
            text("SELECT id, length(body), length(headers) FROM rejections ORDER BY id")
        )
        last = None
        for name, body, headers in rows:
            if self._count <= self._max_count * _SLACK and self._bytes <= self._max_bytes * _SLACK:
                break
            last = name
            self._count -= 1
            self._bytes -= _kept(body or 0, headers)
        if last is not None:
            await connection.execute(
                text("DELETE FROM rejections WHERE id <= :last"), {"last": last}
            )


def _kept(body: int, headers: int) -> int:
    return body + headers + _ROW_OVERHEAD
