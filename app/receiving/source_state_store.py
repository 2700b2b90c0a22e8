"""Each source's last deliveries, and hourly counts of rejections."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from app.database.statements import PlainConnection, insert_rows, select_rows
from app.providers.request import FETCHED
from app.receiving.refusal_store import NOT_KEPT, Rejection
from reconcile.instants import DAY, EARLIEST, HOUR, Instant

if TYPE_CHECKING:
    from app.providers.source import Source

REFUSALS_KEPT: Final = 90 * DAY // HOUR
"""Number of hours for which counts of rejections are kept."""

ACCEPTED: Final = "last accepted "
READ_AT: Final = "last read "
"""Prefix of the counter with a source's last readable arrival."""


class Accepted(NamedTuple):
    """One accepted delivery, and whether it could be read."""

    source: str
    received_at: Instant
    is_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArrivals:
    """Deliveries and rejections of one source, summed up."""

    last_accepted_at: Instant | None = None
    last_read_at: Instant | None = None
    refusing_since: Instant | None = None
    """First rejection after the last accepted delivery, if any."""
    refused_since_then: int = 0
    """Number of rejections after the last accepted delivery."""
    refused_by_verdict: Mapping[str, int] = field(default_factory=dict)
    """Number of these rejections, by verdict."""


def note_sources(
    connection: PlainConnection, came: Iterable[Accepted], rejections: Sequence[Rejection] = ()
) -> None:
    """Store the sources' last deliveries, and count rejections.

    The caller must hold the lock LINKING.
    """
    last: dict[str, Instant] = {}
    for source, received_at, is_read in came:
        names = (ACCEPTED, READ_AT) if is_read else (ACCEPTED,)
        for name in names:
            last[name + source] = max(received_at, last.get(name + source, EARLIEST))
    accepted = {
        name.removeprefix(ACCEPTED): at for name, at in last.items() if name.startswith(ACCEPTED)
    }
    select_rows(connection, sql=_RESET, values=accepted)
    if last:
        insert_rows(
            connection,
            table="counters",
            columns=("name", "value"),
            rows=sorted(last.items()),
            conflict=_LATER,
        )
    if rejections:
        _count_refused(connection, rejections, accepted)


_RESET: Final = "UPDATE refusals SET since_accepted=0 WHERE since_accepted > 0 AND source IN ({})"
_LATER: Final = (
    "ON CONFLICT (name) DO UPDATE SET value=excluded.value WHERE excluded.value > counters.value"
)


def _count_refused(
    connection: PlainConnection, rejections: Sequence[Rejection], accepted: Mapping[str, Instant]
) -> None:
    counts: dict[tuple[int, str, str], list[int]] = {}
    for each in rejections:
        # Anybody can choose an unknown source's name, so all of them are counted as one.
        source = "" if each.verdict == "source_unknown" else each.source
        key = (each.received_at // HOUR, source, each.verdict)
        count = counts.setdefault(key, [0, 0, each.received_at])
        count[0] += each.count
        # Requests beyond the allowance say nothing about keys, clocks or addresses.
        if each.verdict != NOT_KEPT and each.received_at > accepted.get(source, EARLIEST):
            count[2] = min(count[2], each.received_at) if count[1] else each.received_at
            count[1] += 1
    rows = sorted((*key, *count) for key, count in counts.items())
    latest = max(hour for hour, _, _ in counts)
    insert_rows(
        connection,
        table="refusals",
        columns=("hour", "source", "verdict", "count", "since_accepted", "first_at"),
        rows=rows,
        conflict=_MORE,
    )
    connection.ask("DELETE FROM refusals WHERE hour < ?", (latest - REFUSALS_KEPT,))


_MORE: Final = (
    "ON CONFLICT (hour, source, verdict) DO UPDATE SET "
    "first_at=CASE WHEN refusals.since_accepted > 0 AND (excluded.since_accepted = 0 "
    "OR refusals.first_at < excluded.first_at) THEN refusals.first_at ELSE excluded.first_at END, "
    "count=refusals.count+excluded.count, "
    "since_accepted=refusals.since_accepted+excluded.since_accepted"
)


def put_back(connection: PlainConnection, now: Instant, *, also: str) -> None:
    """Set future times of deliveries and one counter to `now`."""
    connection.ask(
        "UPDATE counters SET value=? WHERE value > ? AND (name LIKE ? OR name LIKE ? OR name = ?)",
        (now, now, f"{ACCEPTED}%", f"{READ_AT}%", also),
    )


def arrivals_by_source(
    connection: PlainConnection, sources: "Mapping[str, Source]"
) -> dict[str, SourceArrivals]:
    """Return each source's arrivals, by name."""
    names = [prefix + source for prefix in (ACCEPTED, READ_AT) for source in sources]
    instants = {}
    for name in names:
        rows = connection.ask("SELECT value FROM counters WHERE name=?", (name,))
        instants[name] = Instant(rows[0][0]) if rows else None
    refused: dict[str, dict[str, int]] = {}
    since: dict[str, Instant] = {}
    for source, verdict, count, first_at in connection.ask(_REFUSED):
        if verdict == "body_too_large" and source in sources and sources[source].unsigned:
            continue
        refused.setdefault(source, {})[verdict] = int(count)
        since[source] = min(Instant(first_at), since.get(source, Instant(first_at)))
    return {
        source: SourceArrivals(
            last_accepted_at=instants[ACCEPTED + source],
            last_read_at=instants[READ_AT + source],
            refusing_since=since.get(source),
            refused_since_then=sum(refused.get(source, {}).values()),
            refused_by_verdict=refused.get(source, {}),
        )
        for source in sources
    }


_REFUSED: Final = (
    "SELECT source, verdict, sum(since_accepted), min(first_at) FROM refusals "
    "WHERE since_accepted > 0 GROUP BY source, verdict ORDER BY source, verdict"
)


def last_read(connection: PlainConnection, source: str, *, until: Instant) -> Instant | None:
    """Return the last readable arrival of a source."""
    rows = connection.ask(_LAST_READ, (source, until, _ANSWERS))
    return Instant(rows[0][0]) if rows else None


_ANSWERS: Final = f"{FETCHED}: "
_LAST_READ: Final = (
    "SELECT received_at FROM deliveries WHERE source=? AND received_at <= ? "
    "AND verdict <> 'unreadable' AND substr(headers, 1, 10) <> ? ORDER BY id DESC LIMIT 1"
)


def refused_in(
    connection: PlainConnection, sources: Collection[str], *, since: Instant, until: Instant
) -> int:
    """Return the number of rejections in a span of hours."""
    return _counted(connection, _REFUSED_IN, sources, since, until)


def not_kept_in(
    connection: PlainConnection, sources: Collection[str], *, since: Instant, until: Instant
) -> int:
    """Return the number of refused unsigned requests above the limit."""
    return _counted(connection, _NOT_KEPT_IN, sources, since, until)


def _counted(
    connection: PlainConnection, sql: str, sources: Collection[str], since: Instant, until: Instant
) -> int:
    values = (NOT_KEPT, since // HOUR, until // HOUR)
    return sum(int(connection.ask(sql, (each, *values))[0][0] or 0) for each in sources)


_NOT_KEPT_IN: Final = (
    "SELECT sum(count) FROM refusals WHERE source=? AND verdict = ? AND hour BETWEEN ? AND ?"
)
_REFUSED_IN: Final = _NOT_KEPT_IN.replace("verdict =", "verdict <>")


class LastEvent(NamedTuple):
    """One of a source's latest deliveries."""

    received_at: Instant
    unreadable: bool
    of_payment: bool
    """True if the event is about a payment and needs no confirmation."""
    placed: bool
    others: bool = False
    """True if the event belongs to another shop, or lacks a required account."""


def last_events(
    connection: PlainConnection, sources: Collection[str], *, looked_at: int
) -> dict[str, list[LastEvent]]:
    """Return each source's latest deliveries, newest first."""
    return {
        source: [
            LastEvent(Instant(row[0]), bool(row[1]), bool(row[2]), bool(row[3]), bool(row[4]))
            for row in connection.ask(_LAST_EVENTS, (source, looked_at))
        ]
        for source in sources
    }


_LAST_EVENTS: Final = (
    "SELECT latest.received_at, CASE WHEN latest.verdict = 'unreadable' THEN 1 ELSE 0 END, "
    "CASE WHEN events.claim NOT IN ('ignored', 'unrecognized') "
    "AND events.standing <> 'unconfirmed' THEN 1 ELSE 0 END, "
    "CASE WHEN events.order_key IS NOT NULL THEN 1 ELSE 0 END, "
    # An order that only such payments name is in no list.
    "CASE WHEN events.shop = 'other' OR (events.shop = 'unstated' AND NOT EXISTS "
    "(SELECT 1 FROM ledgers WHERE ledgers.order_key = events.order_key)) THEN 1 ELSE 0 END "
    "FROM (SELECT id, received_at, verdict, event_id, source, digest FROM deliveries "
    "WHERE source = ? ORDER BY id DESC LIMIT ?) AS latest LEFT JOIN events "
    "ON events.event_id = latest.event_id AND events.source = latest.source "
    "AND events.digest = latest.digest ORDER BY latest.id DESC"
)
