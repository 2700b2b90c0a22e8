"""Database queries for restrictions and unfinished erasures."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from app.database.statements import PlainConnection, insert_rows, select_rows, statement
from reconcile.instants import Instant


class RestrictionRow(NamedTuple):
    """One restriction, as stored."""

    kind: str
    thing: str
    since: Instant
    until: Instant | None
    why: str
    look_at: Instant
    erasure: Instant


_COLUMNS: Final = RestrictionRow._fields
_ROW: Final = ", ".join(f"restrictions.{each}" for each in _COLUMNS)
_OF: Final = statement("SELECT {row} FROM restrictions WHERE kind = ? AND thing IN ({})", row=_ROW)
_OF_DELIVERIES: Final = statement(
    "SELECT thing, {row} FROM restrictions WHERE kind IN ('delivery', 'whole') AND thing IN ({})",
    row=_ROW,
)
_OF_THEIR_ORDERS: Final = statement(
    "SELECT deliveries.id, {row} FROM deliveries JOIN events "
    "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest JOIN restrictions "
    "ON restrictions.kind = 'order' AND restrictions.thing = events.order_key "
    "WHERE deliveries.id IN ({})",
    row=_ROW,
)
_DUE: Final = statement(
    "SELECT {row} FROM restrictions WHERE look_at <= ? ORDER BY look_at, kind, thing LIMIT ?",
    row=_ROW,
)
_AGAIN: Final = (
    "ON CONFLICT (kind, thing) DO UPDATE SET until = excluded.until, why = excluded.why, "
    "look_at = excluded.look_at, erasure = excluded.erasure "
    "WHERE excluded.erasure > restrictions.erasure"
)
_BESIDE: Final = (
    "SELECT min(thing) FROM restrictions WHERE kind = 'order' AND erasure = ? "
    "AND why NOT IN ('accounts', 'in_the_reference')"
)


def has_restrictions(connection: PlainConnection) -> bool:
    return bool(connection.ask("SELECT 1 FROM restrictions LIMIT 1"))


def restrictions_of(
    connection: PlainConnection, kind: str, things: Collection[str]
) -> list[RestrictionRow]:
    rows = select_rows(connection, sql=_OF, values=things, first=(kind,))
    return [RestrictionRow(*row) for row in rows]


def restrictions_of_deliveries(
    connection: PlainConnection, deliveries: Collection[str]
) -> list[tuple[str, RestrictionRow]]:
    """Return the restrictions of these deliveries, of the deliveries' bodies, and of their
    orders."""
    rows = [
        row
        for sql in (_OF_THEIR_ORDERS, _OF_DELIVERIES)
        for row in select_rows(connection, sql=sql, values=deliveries)
    ]
    return [(row[0], RestrictionRow(*row[1:])) for row in rows]


def due_restrictions(
    connection: PlainConnection, now: Instant, *, limit: int
) -> list[RestrictionRow]:
    """Return restrictions to check again, the longest waiting first."""
    return [RestrictionRow(*row) for row in connection.ask(_DUE, (now, limit))]


def restriction_totals(
    connection: PlainConnection,
) -> tuple[int, Instant | None, Instant | None]:
    """Return the number of restrictions, first end and next check."""
    [row] = connection.ask("SELECT count(*), min(until), min(look_at) FROM restrictions")
    return row[0], row[1], row[2]


def write_restrictions(connection: PlainConnection, rows: Sequence[RestrictionRow]) -> None:
    """Store restrictions that result from an erasure."""
    insert_rows(connection, table="restrictions", columns=_COLUMNS, rows=rows, conflict=_AGAIN)


def rewrite_restriction(connection: PlainConnection, row: RestrictionRow) -> None:
    """Change the end, the reason and the next check of a restriction."""
    connection.ask(
        "UPDATE restrictions SET until = ?, why = ?, look_at = ? WHERE kind = ? AND thing = ?",
        (row.until, row.why, row.look_at, row.kind, row.thing),
    )


def end_restriction(connection: PlainConnection, kind: str, thing: str) -> None:
    connection.ask("DELETE FROM restrictions WHERE kind = ? AND thing = ?", (kind, thing))


def order_beside(connection: PlainConnection, erasure: Instant) -> str | None:
    """Return an order that this erasure restricted, except for bookkeeping."""
    found: str | None = connection.ask(_BESIDE, (erasure,))[0][0]
    return found


class PendingLine(NamedTuple):
    """Unfinished line of the journal of erasures."""

    number: int
    since: Instant
    why: str


def pending_lines(connection: PlainConnection) -> list[PendingLine]:
    """Return the journal's unfinished lines in this database."""
    rows = connection.ask("SELECT number, since, why FROM pending_erasures ORDER BY number")
    return [PendingLine(*row) for row in rows]
