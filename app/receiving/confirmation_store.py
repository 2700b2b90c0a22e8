"""Events that do not count by themselves, and when their provider is to be asked next.

A row is written in the transaction that stores an arrival of its event, a repeated one too: where
the event says no more than that something changed, it may have changed again. It is taken for a
while by whoever asks, and removed once an answer that settles it is stored, unless the event came
again meanwhile. A row whose taker died comes due again by itself, and so does one that only a clock
that was ahead can have put off for so long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import EVENT_COLUMNS, EVENT_SELECT, delivery_of
from app.database.statements import PlainConnection, insert_rows
from reconcile.instants import Duration, Instant
from reconcile.ledger.events import UNCONFIRMED, Event

_COLUMNS = ("source", "event_id", "digest", "asked_since", "due_at", "tries")
_SAME = "source=:source AND event_id=:event_id AND digest=:digest"
_TAKEN = f"{_SAME} AND due_at=:taken_until"
_DUE = (
    "confirmations.source=:source AND "
    "(due_at <= :now OR due_at > :longest OR (tries=0 AND due_at > :leased))"
)
_OF_EVENT = (
    "events.event_id=confirmations.event_id AND events.source=confirmations.source "
    "AND events.digest=confirmations.digest"
)
_FINAL_ANSWER = (
    "SELECT 1 FROM events AS answer WHERE answer.order_key=events.order_key "
    "AND answer.source=events.source AND answer.standing IN ('fetched', 'answered') "
    "AND answer.received_at >= events.received_at "
    "AND (answer.claim NOT IN ('pending', 'unrecognized') OR answer.kind=:not_known)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """One event to ask about. `tries`: how often the provider has been asked before; `taken_until`:
    when it comes due again if nothing becomes of it."""

    event: Event
    asked_since: Instant
    tries: int
    taken_until: Instant


def note_confirmations(
    connection: PlainConnection, events: Sequence[tuple[Event, Instant]]
) -> None:
    """Note that these events (each with its arrival) are to be asked about, at once."""
    if events:
        rows = {event.key: received for event, received in events}
        insert_rows(
            connection,
            table="confirmations",
            columns=_COLUMNS,
            rows=[(*key, received, received, 0) for key, received in sorted(rows.items())],
            conflict="ON CONFLICT (event_id, source, digest) DO UPDATE SET due_at=excluded.due_at",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Whose events are asked about, and when: `lease` is how long whoever takes one has for it,
    `longest` the longest pause between two questions."""

    source: str
    now: Instant
    lease: Duration
    longest: Duration

    @property
    def words(self) -> dict[str, str | int]:
        """For a statement with _DUE."""
        leased = self.now + self.lease
        return {
            "source": self.source,
            "now": self.now,
            "leased": leased,
            "longest": leased + self.longest,
        }


async def any_due(connection: AsyncConnection, asking: Asking) -> bool:
    """Whether there is anything to ask about, without taking it."""
    found = await connection.execute(
        text(f"SELECT 1 FROM confirmations WHERE {_DUE} LIMIT 1"),  # noqa: S608
        asking.words,
    )
    return found.first() is not None


async def take_due(
    connection: AsyncConnection, asking: Asking, *, limit: int
) -> list[Confirmation]:
    """Up to `limit` that are due, the least often asked first; theirs again after the lease."""
    skip = "" if connection.dialect.name == "sqlite" else "FOR UPDATE OF confirmations SKIP LOCKED"
    rows = await connection.execute(
        text(
            f"SELECT {EVENT_SELECT}, asked_since, tries FROM confirmations "  # noqa: S608
            "JOIN events USING (event_id, source, digest) "
            f"WHERE {_DUE} ORDER BY tries, due_at LIMIT :limit {skip}"
        ),
        {**asking.words, "limit": limit},
    )
    width = len(EVENT_COLUMNS)
    taken = [
        Confirmation(
            event=delivery_of(row[:width]).event,
            asked_since=row[width],
            tries=row[width + 1],
            taken_until=asking.now + asking.lease,
        )
        for row in rows
    ]
    for each in taken:
        await connection.execute(
            text(f"UPDATE confirmations SET due_at=:until WHERE {_SAME}"),  # noqa: S608
            {"until": each.taken_until, **_key(each.event)},
        )
    return taken


async def put_off(connection: AsyncConnection, taken: Confirmation, *, until: Instant) -> None:
    """Ask again at `until`; at once where the event came again meanwhile."""
    await connection.execute(
        text(
            "UPDATE confirmations SET tries=tries+1, "  # noqa: S608
            "due_at=CASE WHEN due_at=:taken_until THEN :until ELSE due_at END "
            f"WHERE {_SAME}"
        ),
        {"until": until, **_held(taken)},
    )


async def settle(connection: AsyncConnection, taken: Confirmation) -> None:
    """Ask no more about this event, unless it came again meanwhile."""
    await connection.execute(
        text(f"DELETE FROM confirmations WHERE {_TAKEN}"),  # noqa: S608
        _held(taken),
    )


async def let_most_asked_go(connection: AsyncConnection, source: str, *, keep: int) -> int:
    """Ask no more about those beyond `keep` that were asked about most; how many those were."""
    # What an arrival of this moment holds is let be: nobody waits for the other.
    skip = "" if connection.dialect.name == "sqlite" else "FOR UPDATE SKIP LOCKED"
    gone = await connection.execute(
        text(
            # Materialized, so that it is run once: see `claim_orders`.
            "DELETE FROM confirmations WHERE (event_id, source, digest) IN "  # noqa: S608
            "(WITH most AS MATERIALIZED (SELECT event_id, source, digest FROM confirmations "
            f"WHERE source=:source ORDER BY tries, due_at LIMIT 1000000000 OFFSET :keep {skip}) "
            "SELECT event_id, source, digest FROM most)"
        ),
        {"source": source, "keep": keep},
    )
    return int(gone.rowcount)


async def await_again(
    connection: AsyncConnection, *, now: Instant, not_known: str, never: Sequence[str] = ()
) -> None:
    """After the index was rebuilt: ask about every unconfirmed event that no final answer came
    after, and about no other but those that waited before.

    not_known  the kind of an answer that is final though it claims nothing
    never      sources whose providers are not asked at all
    """
    await connection.execute(
        text(
            "DELETE FROM confirmations WHERE NOT EXISTS (SELECT 1 FROM events WHERE "  # noqa: S608
            f"{_OF_EVENT} AND standing='{UNCONFIRMED}' AND claim<>'ignored')"
        )
    )
    await connection.execute(
        text(
            f"INSERT INTO confirmations ({', '.join(_COLUMNS)}) "  # noqa: S608
            "SELECT source, event_id, digest, :now, :now, 0 FROM events "
            f"WHERE standing='{UNCONFIRMED}' AND claim<>'ignored' AND NOT EXISTS ({_FINAL_ANSWER}) "
            "ON CONFLICT DO NOTHING"
        ),
        {"now": now, "not_known": not_known},
    )
    if never:
        unasked = text("DELETE FROM confirmations WHERE source IN :never")
        await connection.execute(
            unasked.bindparams(bindparam("never", expanding=True)), {"never": list(never)}
        )


async def waiting_count(connection: AsyncConnection, source: str) -> int:
    """How many events of a source wait for their provider's word."""
    found = await connection.execute(
        text("SELECT count(*) FROM confirmations WHERE source=:source"), {"source": source}
    )
    return int(found.scalar_one())


def _key(event: Event) -> dict[str, str]:
    return {"source": event.source, "event_id": event.event_id, "digest": event.digest}


def _held(taken: Confirmation) -> dict[str, str | int]:
    return {**_key(taken.event), "taken_until": taken.taken_until}


async def is_known(connection: AsyncConnection, event: Event) -> bool:
    """Whether this very event is stored."""
    found = await connection.execute(
        text("SELECT 1 FROM events WHERE event_id=:event_id AND source=:source AND digest=:digest"),
        {"event_id": event.event_id, "source": event.source, "digest": event.digest},
    )
    return found.first() is not None
