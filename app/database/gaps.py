"""Gaps: spans of time whose evidence may be lost, and that a person accepted; and the instant of
the last commit, by which a database that lost commits is told from one that lost none.

Leaves out where that instant is noted besides (`receiving/inbox_store.py`), and what follows from a
gap.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final, Literal

from app.core.ids import new_id
from app.database.statements import PlainConnection
from reconcile.instants import Instant, format_instant

GapKind = Literal["database", "inbox"]
"""What lost something: `database`, its newest commits, which may hold deliveries and all that does
not pass through the inbox; `inbox`, deliveries that were acknowledged and not read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A span in which something may be lost, and who accepted that.

    since, until  both instants belong to the span
    deliveries    how many acknowledged deliveries are lost at most; None where that is unknown
    detail        what happened, a sentence of ours
    accepted_by   an operator's name, or that of the machine's owner
    """

    id: str
    kind: GapKind
    since: Instant
    until: Instant
    deliveries: int | None
    detail: str
    accepted_at: Instant
    accepted_by: str
    reason: str


LAST_COMMIT: Final = "last commit"
"""The counter that every transaction of an SQLite database raises: when it was committed, or one
more than before where the clock did not go on."""


def note_commit(connection: PlainConnection, *, at: Instant, counted: int) -> int:
    """Raise LAST_COMMIT, unless the connection changed no row. Return how many it has changed.

    counted  rows that it had changed when this was last called
    """
    ((changes,),) = connection.ask("SELECT total_changes()")
    if changes == counted:
        return counted
    connection.ask(_RAISE, (LAST_COMMIT, at))
    return int(changes) + 1


_RAISE: Final = (
    "INSERT INTO counters (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value=max(counters.value + 1, excluded.value)"
)


def gap_id(at: Instant) -> str:
    """Return an id for a gap that is accepted now."""
    return new_id("gap_", at)


def add_gap(connection: PlainConnection, gap: Gap) -> None:
    """Add an accepted gap, in the caller's transaction."""
    connection.ask(_ADD, astuple(gap))


_ADD: Final = (
    "INSERT INTO gaps (id, kind, since, until, deliveries, detail, accepted_at, accepted_by, "
    "reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def accepted_gaps(connection: PlainConnection) -> list[Gap]:
    """Return all accepted gaps, in the order of their acceptance; there are a few at most."""
    return [
        Gap(
            id=row[0],
            kind=row[1],
            since=row[2],
            until=row[3],
            deliveries=row[4],
            detail=row[5],
            accepted_at=row[6],
            accepted_by=row[7],
            reason=row[8],
        )
        for row in connection.ask(_ALL)
    ]


_ALL: Final = (
    "SELECT id, kind, since, until, deliveries, detail, accepted_at, accepted_by, reason FROM gaps "
    "ORDER BY id"
)


def gaps_until(connection: PlainConnection, until: Instant) -> list[Gap]:
    """Return the accepted gaps that had begun by an instant."""
    return [gap for gap in accepted_gaps(connection) if gap.since <= until]


def spans_of(gaps: Iterable[Gap]) -> str:
    """Return when gaps were: `from 2026-11-20T10:00:00Z to 2026-11-20T10:05:00Z`."""
    return " and ".join(
        f"from {format_instant(gap.since)} to {format_instant(gap.until)}" for gap in gaps
    )
