"""What a verification of the log reads beside leaves and checkpoints: bodies, and strays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import Rows, select_in, stream
from app.sealing.leaf_store import KINDS, Kind
from app.sealing.log_queue_store import SEALED, SWEPT

AT_ONCE = 1_000
"""Rows read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What of a delivery may be let go: its body and its headers."""

    delivery_id: str
    verdict: str
    digest: str
    headers: str
    body: bytes | None
    pruned: bool


async def contents_of(connection: AsyncConnection, deliveries: Iterable[str]) -> dict[str, Content]:
    """The contents of these deliveries."""
    rows = await select_in(
        connection,
        sql="SELECT id, verdict, digest, headers, body, pruned_at FROM deliveries WHERE id IN ({})",
        values=deliveries,
    )
    return {
        row[0]: Content(
            delivery_id=row[0],
            verdict=row[1],
            digest=row[2],
            headers=row[3],
            body=row[4],
            pruned=row[5] is not None,
        )
        for row in rows
    }


async def whole_bodies(connection: AsyncConnection) -> AsyncIterator[Rows]:
    """Every whole body of several events that is still there, as (digest, body)."""
    sql = "SELECT digest, body FROM envelopes WHERE body IS NOT NULL"
    async for rows in stream(connection, sql, at_once=AT_ONCE):
        yield rows


async def node_count(connection: AsyncConnection) -> int:
    """How many hashes are kept beside the leaves."""
    return int(await connection.scalar(text("SELECT count(*) FROM log_nodes")) or 0)


async def strays(connection: AsyncConnection, *, limit: int) -> list[str]:
    """Rows without a leaf that nothing will ever seal, by their subjects, some of them."""
    found: list[str] = []
    for kind in KINDS:
        if len(found) < limit:
            found += await (_numbered if kind.numbered else _marked)(connection, kind, limit)
    return found[:limit]


async def _numbered(connection: AsyncConnection, kind: Kind, limit: int) -> list[str]:
    """Rows at or below the number up to which their kind is sealed."""
    key = f"{kind.table}.{kind.columns[0]}"
    rows = await connection.execute(
        text(
            f"SELECT {key} FROM {kind.table} LEFT JOIN log_leaves "  # noqa: S608
            f"ON log_leaves.subject = '{kind.name}:' || {key} WHERE log_leaves.number IS NULL "
            f"AND {key} <= coalesce((SELECT value FROM counters WHERE name = :name), 0) "
            f"ORDER BY {key} LIMIT :limit"
        ),
        {"name": f"{SEALED} {kind.name}", "limit": limit},
    )
    return [kind.subject(row[0]) for row in rows]


async def _marked(connection: AsyncConnection, kind: Kind, limit: int) -> list[str]:
    """Rows that are not marked, once the sweep over this kind's ids is over."""
    swept = await connection.scalar(
        text("SELECT value FROM meta WHERE name = :name"), {"name": f"{SWEPT} {kind.name}"}
    )
    if swept != "":
        return []
    waiting = await _waiting(connection, kind)
    key = f"{kind.table}.{kind.columns[0]}"
    rows = await connection.execute(
        text(
            f"SELECT {key} FROM {kind.table} LEFT JOIN log_leaves "  # noqa: S608
            f"ON log_leaves.subject = {key} WHERE log_leaves.number IS NULL ORDER BY {key}"
        )
    )
    return [row[0] for row in rows if row[0] not in waiting][:limit]


async def _waiting(connection: AsyncConnection, kind: Kind) -> set[str]:
    rows = await connection.execute(
        text("SELECT ids FROM unsealed WHERE kind = :kind"), {"kind": kind.name}
    )
    return {each for row in rows for each in row[0].split("\n")}
