"""Bookmarks as rows: what each operator keeps for themselves."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """One of them.

    kind   `order`, or the name of a page with a list
    label  the order's reference, or what the operator calls the list
    query  the list's filters, as they follow its address
    """

    kind: str
    label: str
    query: str
    at: Instant


async def bookmarks(connection: AsyncConnection, operator: str) -> list[Bookmark]:
    """All of one operator, by kind and label."""
    rows = await connection.execute(
        text(
            "SELECT kind, label, query, at FROM bookmarks WHERE operator = :operator "
            "ORDER BY kind, label"
        ),
        {"operator": operator},
    )
    return [Bookmark(kind=row[0], label=row[1], query=row[2], at=row[3]) for row in rows]


async def put_bookmark(connection: AsyncConnection, operator: str, kept: Bookmark) -> None:
    """Add one, or put it in the place of that with its kind and label."""
    await connection.execute(
        text(
            "INSERT INTO bookmarks (operator, kind, label, query, at) "
            "VALUES (:operator, :kind, :label, :query, :at) "
            "ON CONFLICT (operator, kind, label) DO UPDATE SET query=excluded.query, at=excluded.at"
        ),
        {
            "operator": operator,
            "kind": kept.kind,
            "label": kept.label,
            "query": kept.query,
            "at": kept.at,
        },
    )


async def delete_bookmark(
    connection: AsyncConnection, operator: str, *, kind: str, label: str
) -> bool:
    """Whether there was one."""
    rows = await connection.execute(
        text(
            "DELETE FROM bookmarks WHERE operator = :operator AND kind = :kind "
            "AND label = :label RETURNING label"
        ),
        {"operator": operator, "kind": kind, "label": label},
    )
    return rows.first() is not None
