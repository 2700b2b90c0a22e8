"""Session requests that the payment service has not answered yet, and who is asking now.

A row is written in the transaction that commits the key and removed in the one that records the
answer, so that what a process leaves behind when it dies is found by the next. Whoever asks the
service holds the row: of several processes on one database only one asks at a time.

The request is the customer's: it is kept for as long as it may have to be sent again, no longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, column, or_, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import select_in
from reconcile.instants import EARLIEST, Instant

_COLUMNS = ("key", "order_key", "request", "due_at", "held_until", "tries", "in_vain")
_PENDING = table("unanswered", *map(column, _COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSession:
    """One request.

    request     the body, byte for byte as it was sent first
    due_at      when it is asked again if nobody does before
    held_until  whoever asks now has the right to, alone, until then
    tries       passes that have ended without an answer
    in_vain     those of them in which the service was there
    """

    key: str
    order: str
    request: bytes = field(repr=False)
    due_at: Instant
    held_until: Instant = EARLIEST
    tries: int = 0
    in_vain: int = 0


async def note_pending(connection: AsyncConnection, entry: PendingSession) -> None:
    """Write it down, unless it is there."""
    await connection.execute(
        text(
            "INSERT INTO unanswered "
            "(key, order_key, request, due_at, held_until, tries, in_vain) "
            "VALUES (:key, :order, :request, :due_at, :held_until, 0, 0) ON CONFLICT DO NOTHING"
        ),
        {
            "key": entry.key,
            "order": entry.order,
            "request": entry.request.decode(),
            "due_at": entry.due_at,
            "held_until": entry.held_until,
        },
    )


async def pending_session(connection: AsyncConnection, key: str) -> PendingSession | None:
    """The request of this key; None once it was answered, or given up."""
    found = await _sessions(connection, select(_PENDING).where(_PENDING.c.key == key))
    return found[0] if found else None


async def due_sessions(
    connection: AsyncConnection, *, now: Instant, beyond: Instant, limit: int
) -> Sequence[PendingSession]:
    """Up to `limit` that are due and that nobody holds, the longest waiting first.

    beyond  what waits or is held for longer was put there by a clock that was ahead: it is due
    """
    due, held = _PENDING.c.due_at, _PENDING.c.held_until
    free = select(_PENDING).where(or_(due <= now, due > beyond), or_(held <= now, held > beyond))
    return await _sessions(connection, free.order_by(due).limit(limit))


async def pending_sessions_of(
    connection: AsyncConnection, orders: Sequence[str]
) -> list[PendingSession]:
    """The requests of some orders."""
    sql = (
        "SELECT key, order_key, request, due_at, held_until, tries, in_vain FROM unanswered "
        "WHERE order_key IN ({})"
    )
    return [_session_of(row) for row in await select_in(connection, sql=sql, values=orders)]


async def hold(
    connection: AsyncConnection, key: str, *, now: Instant, until: Instant, beyond: Instant
) -> bool:
    """Take the right to ask. False where another has it, or nothing is left to ask.

    beyond  who holds it for longer has had a clock that was ahead, and holds it no more
    """
    taken = await connection.execute(
        text(
            "UPDATE unanswered SET held_until=:until "
            "WHERE key=:key AND (held_until <= :now OR held_until > :beyond) RETURNING key"
        ),
        {"key": key, "now": now, "until": until, "beyond": beyond},
    )
    return taken.first() is not None


async def release(connection: AsyncConnection, key: str) -> None:
    """Give the right back; whoever asks next may have it at once."""
    await connection.execute(
        text("UPDATE unanswered SET held_until=0 WHERE key=:key"), {"key": key}
    )


async def release_all(connection: AsyncConnection) -> None:
    """Give back what processes held that are no more. For whoever knows that it is alone."""
    await connection.execute(text("UPDATE unanswered SET held_until=0 WHERE held_until > 0"))


async def put_off(
    connection: AsyncConnection, key: str, *, until: Instant, tries: int, in_vain: int
) -> None:
    """Give the right back; ask again at `until` if nobody does before."""
    await connection.execute(
        text(
            "UPDATE unanswered SET due_at=:until, tries=:tries, in_vain=:vain, held_until=0 "
            "WHERE key=:key"
        ),
        {"key": key, "until": until, "tries": tries, "vain": in_vain},
    )


async def forget(connection: AsyncConnection, key: str) -> None:
    """It was answered, or will not be asked again."""
    await connection.execute(text("DELETE FROM unanswered WHERE key=:key"), {"key": key})


async def _sessions(connection: AsyncConnection, which: Select[Any]) -> list[PendingSession]:
    return [_session_of(row) for row in await connection.execute(which)]


def _session_of(row: Sequence[Any]) -> PendingSession:
    return PendingSession(
        key=row[0],
        order=row[1],
        request=row[2].encode(),
        due_at=row[3],
        held_until=row[4],
        tries=row[5],
        in_vain=row[6],
    )
