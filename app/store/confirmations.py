"""Events that do not count by themselves, and when their provider is to be asked next.

A row is written in the transaction that stores its event, taken for a while by whoever asks, and
removed once an answer that settles it is stored. A row whose taker died comes due again by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.mapping import EVENT_COLUMNS, EVENT_SELECT, delivery_of
from app.store.statements import Script, inserting
from reconcile.events import Event, Standing
from reconcile.instants import Duration, Instant

UNCONFIRMED: Final[Standing] = "unconfirmed"

_COLUMNS = ("source", "event_id", "digest", "asked_since", "due_at", "tries")
_SAME = "source=:source AND event_id=:event_id AND digest=:digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """One event to ask about. `tries`: how often the provider has been asked before."""

    event: Event
    asked_since: Instant
    tries: int


def awaiting(dialect: str, events: Sequence[tuple[Event, Instant]]) -> Script[None]:
    """Note that these events (each with its arrival) are to be asked about, at once."""
    if events:
        yield from inserting(
            dialect,
            table="confirmations",
            columns=_COLUMNS,
            rows=[(*event.key, received, received, 0) for event, received in events],
            conflict="ON CONFLICT DO NOTHING",
        )


async def take_due(
    connection: AsyncConnection, *, now: Instant, limit: int, lease: Duration
) -> list[Confirmation]:
    """Up to `limit` that are due, the longest waiting first; theirs again after `lease`."""
    skip = "" if connection.dialect.name == "sqlite" else "FOR UPDATE OF confirmations SKIP LOCKED"
    rows = await connection.execute(
        text(
            f"SELECT {EVENT_SELECT}, asked_since, tries FROM confirmations "  # noqa: S608
            "JOIN events USING (event_id, source, digest) "
            f"WHERE due_at <= :now ORDER BY due_at LIMIT :limit {skip}"
        ),
        {"now": now, "limit": limit},
    )
    width = len(EVENT_COLUMNS)
    taken = [
        Confirmation(
            event=delivery_of(row[:width]).event, asked_since=row[width], tries=row[width + 1]
        )
        for row in rows
    ]
    for each in taken:
        await put_off(connection, each.event, until=now + lease, tries=each.tries)
    return taken


async def put_off(connection: AsyncConnection, event: Event, *, until: Instant, tries: int) -> None:
    """Ask again at `until`."""
    await connection.execute(
        text(f"UPDATE confirmations SET due_at=:until, tries=:tries WHERE {_SAME}"),  # noqa: S608
        {"until": until, "tries": tries, **_key(event)},
    )


async def settle(connection: AsyncConnection, event: Event) -> None:
    """Ask no more about this event."""
    await connection.execute(text(f"DELETE FROM confirmations WHERE {_SAME}"), _key(event))  # noqa: S608


async def next_question(connection: AsyncConnection) -> Instant | None:
    """When the next is due; None where nothing waits."""
    found = await connection.execute(text("SELECT min(due_at) FROM confirmations"))
    due: Instant | None = found.scalar_one()
    return due


async def waiting_count(connection: AsyncConnection) -> int:
    """How many events wait for their provider's word."""
    found = await connection.execute(text("SELECT count(*) FROM confirmations"))
    return int(found.scalar_one())


def _key(event: Event) -> dict[str, str]:
    return {"source": event.source, "event_id": event.event_id, "digest": event.digest}
