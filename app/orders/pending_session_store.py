"""Requests for payment sessions that got no answer, and the process that asks again.

The transaction that commits a request's idempotency key also stores the request, so that no open
request is lost. A request contains the customer's data, so it is stored only as long as it may be
sent again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, select_in, statement
from reconcile.instants import EARLIEST, Instant

_COLUMNS: Final = "key, order_key, request, due_at, held_until, tries, in_vain"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSession:
    """Request for a payment session that got no answer from the payment service."""

    key: str
    order: str
    request: bytes = field(repr=False)
    """The body, byte for byte as first sent."""
    due_at: Instant
    """Latest time at which the request is sent again."""
    held_until: Instant = EARLIEST
    """End of the holding process's claim."""
    tries: int = 0
    """Number of rounds that ended without an answer."""
    in_vain: int = 0
    """Number of rounds in which the service was reachable, but gave no answer."""


def note_pending(connection: PlainConnection, entry: PendingSession) -> None:
    """Store a request that has no clear answer yet. A request that is already stored stays
    unchanged."""
    connection.ask(
        "INSERT INTO unanswered (key, order_key, request, due_at, held_until, tries, in_vain) "
        "VALUES (?, ?, ?, ?, ?, 0, 0) ON CONFLICT DO NOTHING",
        (entry.key, entry.order, entry.request.decode(), entry.due_at, entry.held_until),
    )


def pending_session(connection: PlainConnection, key: str) -> PendingSession | None:
    """Return the open request with this idempotency key. Return None if it was answered or given
    up."""
    found = connection.ask(_OF_KEY, (key,))
    return _session_of(found[0]) if found else None


_OF_KEY: Final = statement("SELECT {columns} FROM unanswered WHERE key = ?", columns=_COLUMNS)


def due_sessions(
    connection: PlainConnection, *, now: Instant, beyond: Instant, limit: int
) -> Sequence[PendingSession]:
    """Return up to `limit` requests that are due and held by no process, the longest wait first.

    beyond  latest time that a correct clock can have set; later due times count as due, and later
            holds as over
    """
    rows = connection.ask(_DUE, (now, beyond, now, beyond, limit))
    return [_session_of(row) for row in rows]


_DUE: Final = statement(
    "SELECT {columns} FROM unanswered WHERE (due_at <= ? OR due_at > ?) "
    "AND (held_until <= ? OR held_until > ?) ORDER BY due_at LIMIT ?",
    columns=_COLUMNS,
)


async def pending_sessions_of(
    connection: AsyncConnection, orders: Sequence[str]
) -> list[PendingSession]:
    """Return the open requests of these orders."""
    return [_session_of(row) for row in await select_in(connection, sql=_OF_ORDERS, values=orders)]


_OF_ORDERS: Final = statement(
    "SELECT {columns} FROM unanswered WHERE order_key IN ({})", columns=_COLUMNS
)


def hold(
    connection: PlainConnection, key: str, *, now: Instant, until: Instant, beyond: Instant
) -> bool:
    """Reserve a request for this process. Return False if another holds it, or if it is gone.

    beyond  latest end of a hold that a correct clock can have set; a later one is ignored
    """
    taken = connection.ask(
        "UPDATE unanswered SET held_until=? "
        "WHERE key=? AND (held_until <= ? OR held_until > ?) RETURNING key",
        (until, key, now, beyond),
    )
    return bool(taken)


def release_session(connection: PlainConnection, key: str) -> None:
    """Release a request that this process holds, so that another process can send it at once."""
    connection.ask("UPDATE unanswered SET held_until=0 WHERE key=?", (key,))


def release_all(connection: PlainConnection) -> None:
    """Release all held requests. Call this function only if no other process is running."""
    connection.ask("UPDATE unanswered SET held_until=0 WHERE held_until > 0")


def put_off(
    connection: PlainConnection, key: str, *, until: Instant, tries: int, in_vain: int
) -> None:
    """Release a request, and set the latest time at which it is sent again."""
    connection.ask(
        "UPDATE unanswered SET due_at=?, tries=?, in_vain=?, held_until=0 WHERE key=?",
        (until, tries, in_vain, key),
    )


def forget(connection: PlainConnection, key: str) -> None:
    """Delete a request that was answered or is given up."""
    connection.ask("DELETE FROM unanswered WHERE key=?", (key,))


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
