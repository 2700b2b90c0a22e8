"""Database queries for rows that a fast clock dated, and for the last correction of the clock."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.clock import CLOCKS_DIFFER
from app.core.ids import first_id
from app.database.mapping import AUDIT_AT, DELIVERY_AT, RECORD_AT, REVISION_AT
from app.database.statements import PlainConnection, run, statement
from app.receiving.refusal_store import newest_refusal_ahead
from reconcile.instants import Instant
from reconcile.ledger.records import NO_ORDER

_REDATED: Final = (
    "EXISTS (SELECT 1 FROM records AS moved WHERE moved.kind = 'redated' "
    "AND moved.replaces = {thing} AND moved.at <= ?)"
)
"""SQL condition for a row that was already redated to the given instant or an earlier one.

A clock can be set back in two steps, so that the first correction is still too late.
"""

_DELIVERIES: Final = statement(
    "SELECT deliveries.id, deliveries.received_at, events.order_key, {at} FROM deliveries "
    "LEFT JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE deliveries.id >= ? AND deliveries.received_at > ? AND NOT {redated} "
    "ORDER BY deliveries.id LIMIT ?",
    redated=statement(_REDATED, thing="deliveries.id"),
    at=DELIVERY_AT,
)
_RECORDS: Final = statement(
    "SELECT id, recorded_at, order_key, {at} FROM records WHERE id >= ? AND id < 'rec_g' "
    "AND recorded_at > ? AND kind <> 'redated' AND NOT {redated} ORDER BY id LIMIT ?",
    redated=statement(_REDATED, thing="records.id"),
    at=RECORD_AT,
)
_REVISIONS: Final = statement(
    "SELECT 'revision:' || seq, at, order_key, {at} FROM revisions WHERE at > ? AND NOT {redated} "
    "ORDER BY at, seq LIMIT ?",
    redated=statement(_REDATED, thing="'revision:' || revisions.seq"),
    at=REVISION_AT,
)
_ATTACHING: Final = statement(
    "SELECT 'deed:' || number, at, order_key, {at} FROM audit "
    "WHERE order_key IS NOT NULL AND at > ? AND NOT {redated} ORDER BY at, number LIMIT ?",
    redated=statement(_REDATED, thing="'deed:' || audit.number"),
    at=AUDIT_AT,
)
_DATED_SO: Final = (
    "SELECT count(occurred_at), coalesce(sum(CASE WHEN occurred_at > ? THEN 1 ELSE 0 END), 0) "
    "FROM (SELECT events.occurred_at FROM deliveries "
    "JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE deliveries.id >= ? AND deliveries.received_at > ? "
    "ORDER BY deliveries.id DESC LIMIT ?) AS newest"
)
_BEFORE: Final = (
    "SELECT max(at) FROM (SELECT max(at) AS at FROM revisions WHERE at <= ? "
    "UNION ALL SELECT * FROM (SELECT received_at FROM deliveries WHERE id < ? "
    "ORDER BY id DESC LIMIT 1) AS delivery "
    "UNION ALL SELECT * FROM (SELECT recorded_at FROM records WHERE id < ? AND id > 'rec_' "
    "ORDER BY id DESC LIMIT 1) AS record) AS stored"
)


class DatedAhead(NamedTuple):
    """Delivery, record, revision or audit entry of an order that is dated later than now."""

    thing: str
    """Id of the delivery or record. Or `revision:` or `deed:` and a number."""
    stored: Instant
    """Instant in the stored row."""
    order: str
    """Order of the row. NO_ORDER if the row has none."""
    at: Instant
    """Instant that counts. Differs from `stored` if the row was redated before."""


def dated_ahead(
    connection: PlainConnection, *, now: Instant, limit: int
) -> tuple[list[DatedAhead], bool]:
    """Return about `limit` rows dated later than now and not redated, earliest first.

    Also return whether these are all.
    """
    deliveries, records, soon = first_id("dlv_", now), first_id("rec_", now), now + CLOCKS_DIFFER
    found, complete = list[DatedAhead](), list[Instant]()
    for rows in (
        connection.ask(_DELIVERIES, (deliveries, now, soon, limit)),
        connection.ask(_RECORDS, (records, now, soon, limit)),
        connection.ask(_REVISIONS, (now, soon, limit)),
        connection.ask(_ATTACHING, (now, soon, limit)),
    ):
        some = [DatedAhead(row[0], row[1], row[2] or NO_ORDER, row[3]) for row in rows]
        found += some
        if len(some) == limit:  # there may be more of this kind, later than the last
            complete.append(some[-1].stored)
    until = min(complete, default=None)
    earliest = sorted(
        (each for each in found if until is None or each.stored <= until),
        key=lambda each: (each.at, each.stored, each.thing),
    )
    return earliest, until is None


_NEWEST: Final = (
    statement(
        "SELECT received_at FROM deliveries WHERE id >= ? AND received_at > ? AND NOT {redated} "
        "ORDER BY id DESC LIMIT 1",
        redated=statement(_REDATED, thing="deliveries.id"),
    ),
    statement(
        "SELECT recorded_at FROM records WHERE id >= ? AND id < 'rec_g' AND recorded_at > ? "
        "AND kind <> 'redated' AND NOT {redated} ORDER BY id DESC LIMIT 1",
        redated=statement(_REDATED, thing="records.id"),
    ),
    statement(
        "SELECT at FROM revisions WHERE at > ? AND NOT {redated} ORDER BY at DESC LIMIT 1",
        redated=statement(_REDATED, thing="'revision:' || revisions.seq"),
    ),
    statement(
        "SELECT at FROM audit WHERE order_key IS NOT NULL AND at > ? AND NOT {redated} "
        "ORDER BY at DESC LIMIT 1",
        redated=statement(_REDATED, thing="'deed:' || audit.number"),
    ),
    "SELECT at FROM audit WHERE number = (SELECT max(number) FROM audit) AND at > ?",
)


def newest_ahead(connection: PlainConnection, now: Instant) -> Instant:
    """Return the latest date among all rows that are not redated yet, or `now` if none is later.

    Of audit entries that concern no order, only the last counts, because they are never redated.
    """
    soon = now + CLOCKS_DIFFER
    ids = (first_id("dlv_", now), now, soon), (first_id("rec_", now), now, soon)
    values = (*ids, (now, soon), (now, soon), (now,))
    found = [connection.ask(sql, given) for sql, given in zip(_NEWEST, values, strict=True)]
    stored = [rows[0][0] for rows in found if rows]
    return Instant(max([newest_refusal_ahead(connection, now), *stored]))


def providers_agree(connection: PlainConnection, now: Instant, *, looked_at: int) -> bool | None:
    """Return whether the providers' dates show that our clock was fast, or is slow now.

    Return None without such dates.

    looked_at  maximum number of deliveries to compare
    """
    first = first_id("dlv_", now)
    ((dated, later),) = connection.ask(_DATED_SO, (now, first, now, looked_at))
    return int(later) * 2 <= int(dated) if dated else None


def last_before(connection: PlainConnection, now: Instant) -> Instant | None:
    """Return the latest instant, not later than now, at which anything was stored. Return None if
    nothing was stored."""
    rows = connection.ask(_BEFORE, (now, first_id("dlv_", now), first_id("rec_", now)))
    found: Instant | None = rows[0][0]
    return found


async def folded_ahead(
    connection: AsyncConnection, *, now: Instant, after: str, limit: int
) -> list[str]:
    """Return orders whose ledger was last computed as of a later instant than now, by reference.

    after  reference after which the orders begin
    """
    return await run(connection, _folded_ahead, now, after, limit)


def _folded_ahead(connection: PlainConnection, now: Instant, after: str, limit: int) -> list[str]:
    rows: Iterable[tuple[str]] = connection.ask(
        "SELECT order_key FROM ledgers WHERE order_key > ? AND as_of > ? "
        "ORDER BY order_key LIMIT ?",
        (after, now, limit),
    )
    return [order for (order,) in rows]


class ClockCorrection(NamedTuple):
    """Correction of a clock that was fast between two instants."""

    since: Instant | None
    """Instant at which the clock became fast, if known."""
    until: Instant
    """Instant at which the clock was set right."""
    latest: Instant
    """The latest instant that the fast clock is known to have shown."""


def note_correction(connection: PlainConnection, correction: ClockCorrection) -> None:
    """Store a correction of the clock in place of the last stored correction."""
    since, until, latest = correction
    connection.ask(
        "INSERT INTO meta (name, value) VALUES ('clock', ?) "
        "ON CONFLICT (name) DO UPDATE SET value=excluded.value",
        (f"{'' if since is None else since} {until} {latest}",),
    )


def last_correction(connection: PlainConnection) -> ClockCorrection | None:
    """Return the last stored correction of the clock. Return None if there was none."""
    rows = connection.ask("SELECT value FROM meta WHERE name='clock'")
    if not rows:
        return None
    since, until, latest = rows[0][0].split(" ")
    return ClockCorrection(
        Instant(int(since)) if since else None, Instant(int(until)), Instant(int(latest))
    )
