"""Gaps: time spans whose evidence may be lost, and whose loss a person has accepted."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final, Literal

from app.core.errors import ConfigurationError
from app.core.ids import new_id
from app.core.text import counted
from app.database.statements import PlainConnection
from reconcile.instants import Instant, format_instant

GapKind = Literal["database", "inbox"]
"""Part of the stored data that was lost. `database` means the newest commits. `inbox` means
acknowledged deliveries that were not read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGap:
    """Time span in which evidence may be lost, which nobody has accepted yet.

    since, until  first and last instant of the span
    """

    kind: GapKind
    since: Instant
    until: Instant
    deliveries: int | None
    """Maximum number of acknowledged deliveries that may be lost, if known."""
    detail: str
    """Description of the cause, in the program's words."""

    def sentence(self) -> str:
        """Return a sentence that says what may be lost, without a full stop."""
        return _sentence(self)

    def accepted(self, *, at: Instant, by: str, reason: str) -> "Gap":
        """Return the accepted gap, ready to store, with the person who accepts the loss."""
        return Gap(
            id=new_id("gap_", at),
            kind=self.kind,
            since=self.since,
            until=self.until,
            deliveries=self.deliveries,
            detail=self.detail,
            accepted_at=at,
            accepted_by=by,
            reason=reason,
        )


_DELIVERY: Final = ("acknowledged delivery", "acknowledged deliveries")


def _sentence(gap: "FoundGap | Gap") -> str:
    if gap.deliveries is None:
        lost = "how many acknowledged deliveries are lost is unknown"
    elif gap.deliveries:
        lost = f"at most {counted(gap.deliveries, *_DELIVERY)} may be lost"
    else:
        lost = "no acknowledged delivery is lost"
    else_ = (
        ""
        if gap.kind == "inbox"
        else "; the shop's statements, checkout sessions, acts and feed numbers may be lost"
    )
    span = f"{format_instant(gap.since)} to {format_instant(gap.until)}"
    return f"{gap.detail} ({span}): {lost}{else_}"


ACCEPT: Final = "--accept-gap --reason TEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Time span in which evidence may be lost, and the person who accepted the loss."""

    id: str
    kind: GapKind
    since: Instant
    until: Instant
    deliveries: int | None
    """Maximum number of acknowledged deliveries that may be lost, if known."""
    detail: str
    """Description of the cause, in the program's words."""
    accepted_at: Instant
    accepted_by: str
    """An operator's name, or the name of the machine's owner."""
    reason: str

    def sentence(self) -> str:
        """Return a sentence that says what may be lost, without a full stop."""
        return _sentence(self)


LAST_COMMIT: Final = "last commit"
"""Name of the stored counter with the instant of SQLite's last commit."""


def note_commit(connection: PlainConnection, *, at: Instant, counted: int) -> int:
    """Store the instant of a commit if rows have changed. Return the connection's number of
    changes.

    counted  number that the last call returned
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


def add_gap(connection: PlainConnection, gap: Gap) -> None:
    """Insert an accepted gap, in the caller's transaction."""
    connection.ask(_ADD, astuple(gap))


_ADD: Final = (
    "INSERT INTO gaps (id, kind, since, until, deliveries, detail, accepted_at, accepted_by, "
    "reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def accepted_gaps(connection: PlainConnection) -> list[Gap]:
    """Return all accepted gaps, sorted by the time of their acceptance."""
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
    """Return the accepted gaps that began at `until` or earlier."""
    return [gap for gap in accepted_gaps(connection) if gap.since <= until]


def spans_of(gaps: Iterable[Gap]) -> str:
    """Return the time spans of gaps as text, such as `from 2026-11-20T10:00:00Z to
    2026-11-20T10:05:00Z`."""
    return " and ".join(
        f"from {format_instant(gap.since)} to {format_instant(gap.until)}" for gap in gaps
    )


# --- an older log ---------------------------------------------------------------------------------


def check_log_is_newer(database: Path) -> None:
    """Raise ConfigurationError if an SQLite file's log is older than the file.

    Its pages would overwrite newer ones. Call this before this process opens the database.
    """
    log = Path(f"{database}-wal")
    if not log.exists() or not log.stat().st_size:
        return
    found = []
    for how in ("immutable=1", "mode=ro"):  # without the log, and with it
        uri = f"{database.absolute().as_uri()}?{how}"
        try:
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                sql = "SELECT value FROM counters WHERE name=?"
                found += connection.execute(sql, (LAST_COMMIT,)).fetchall()
        except sqlite3.Error:  # reported when the database is opened
            return
    if found != sorted(found):
        raise ConfigurationError(
            [
                f"TALLYHOOK_DATABASE_URL: {log} is older than {database.name}, and would undo its "
                "newest commits: move that log away, then start again; nothing was changed"
            ]
        )
