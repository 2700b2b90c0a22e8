"""Find orders by facts that a person can know, with a limit for each kind of fact.

References, payments, sessions and ids have an index. Amounts have none; the newest events are
searched instead.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.ids import first_id
from app.database.statements import select_in, statement
from reconcile.instants import Instant
from reconcile.matching.books import match_key
from reconcile.money import Money

STRETCH: Final = 200_000
"""Number of events that are searched in one step. After each step, the caller may stop."""

AT_ONCE: Final = 500
"""Maximum number of a day's events that are read at a time."""

MOST: Final = 5_000_000
"""Maximum number of events in which one amount is searched. Searching five million events takes
some seconds."""

_LAST: Final = "\U0010ffff"

_EVENT: Final = (
    "events.order_key, events.event_id, events.received_at, events.amount, "
    "events.currency, events.order_amount, events.order_currency, events.source, events.claim, "
    "events.standing, events.payment, events.session, events.occurred_at"
)
_STATES: Final = "(events.amount IN :minors OR events.order_amount IN :minors)"

_DURING: Final = (
    "SELECT deliveries.id, {columns} FROM events "
    "JOIN deliveries ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE deliveries.id > :after AND deliveries.id < :end AND {which} "
    "ORDER BY deliveries.id LIMIT :limit"
)
_OF_DAY: Final = text(statement(_DURING, columns=_EVENT, which="1 = 1"))
_OF_DAY_AND_AMOUNT: Final = text(statement(_DURING, columns=_EVENT, which=_STATES)).bindparams(
    bindparam("minors", expanding=True)
)
_FIRST_OF_DAY: Final = text(
    'SELECT events."row" FROM deliveries JOIN events ON events.event_id = deliveries.event_id '
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE deliveries.id > :after ORDER BY deliveries.id LIMIT 1"
)
_HAPPENED: Final = text(
    statement(
        'SELECT {columns} FROM events WHERE events."row" > :low AND events."row" <= :high '
        "AND events.occurred_at >= :day AND events.occurred_at < :end AND {states} "
        'ORDER BY events."row"',
        columns=_EVENT,
        states=_STATES,
    )
).bindparams(bindparam("minors", expanding=True))
_RECORD: Final = (
    "SELECT order_key, amount, currency FROM records WHERE amount IN :minors "
    "AND currency IS NOT NULL {which} LIMIT :limit"
)
_RECORDS: Final = text(statement(_RECORD, which="")).bindparams(bindparam("minors", expanding=True))
_RECORDS_OF_DAY: Final = text(
    statement(
        _RECORD,
        which="AND ((at >= :day AND at < :end) OR (recorded_at >= :day AND recorded_at < :end))",
    )
).bindparams(bindparam("minors", expanding=True))
_OF_AMOUNT: Final = text(
    statement(
        'SELECT {columns} FROM events WHERE events."row" > :low AND events."row" <= :high '
        'AND {states} ORDER BY events."row" DESC',
        columns=_EVENT,
        states=_STATES,
    )
).bindparams(bindparam("minors", expanding=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvent:
    """Event that a search found. `order` is None if the event belongs to no order."""

    order: str | None
    event_id: str
    received_at: Instant
    money: Money | None
    order_money: Money | None
    source: str
    claim: str
    standing: str
    payment: str | None
    session: str | None
    occurred_at: Instant | None

    @property
    def unplaced_name(self) -> str:
        """Return the name under which the event's payment is listed while it belongs to no
        order."""
        return self.payment or self.session or self.event_id

    @property
    def is_payment(self) -> bool:
        """Return whether the event says that somebody is paying or has paid."""
        return self.claim in ("succeeded", "authorized", "pending")


async def orders_named(
    connection: AsyncConnection, name: str, *, beginning: bool, limit: int
) -> list[str]:
    """Return the order with this reference, in a list. With `beginning`, return the orders whose
    references begin with the text."""
    rows = await connection.execute(
        text(
            "SELECT order_key FROM order_due WHERE order_key >= :name AND order_key <= :last "
            "ORDER BY order_key LIMIT :limit"
        ),
        {"name": name, "last": name + _LAST if beginning else name, "limit": limit},
    )
    return [row[0] for row in rows]


async def orders_linked(connection: AsyncConnection, reference: str) -> list[tuple[str, str, str]]:
    """Return the order, kind and source for each link of a reference. The kind is `payment` or
    `session`."""
    rows = await connection.execute(
        text(
            "SELECT order_key, kind, source FROM links WHERE reference = :reference "
            "AND kind IN ('payment', 'session')"
        ),
        {"reference": reference},
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def orders_of_event(
    connection: AsyncConnection, name: str, *, limit: int
) -> list[tuple[str | None, str]]:
    """Return the orders of the event or delivery with this id, each with that word.

    The order is None if the event has none.
    """
    rows = await connection.execute(
        text(
            "SELECT order_key, 'event' FROM events WHERE event_id = :name UNION "
            "SELECT events.order_key, 'delivery' FROM deliveries JOIN events "
            "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
            "AND events.digest = deliveries.digest WHERE deliveries.id = :name LIMIT :limit"
        ),
        {"name": name, "limit": limit},
    )
    return [(row[0], row[1]) for row in rows]


async def events_of_day(
    connection: AsyncConnection, day: Instant, end: Instant, *, minors: Collection[int]
) -> AsyncIterator[list[FoundEvent]]:
    """Yield, in batches, the events that arrived from `day` to before `end`, oldest first.

    minors  amounts in minor units to look for; empty for all
    """
    sql = _OF_DAY_AND_AMOUNT if minors else _OF_DAY
    values: dict[str, Any] = {"after": first_id("dlv_", day), "end": first_id("dlv_", end)}
    if minors:
        values["minors"] = sorted(minors)
    while True:
        rows = (await connection.execute(sql, values | {"limit": AT_ONCE})).all()
        yield [_found_event(row[1:]) for row in rows]
        if len(rows) < AT_ONCE:
            return
        values["after"] = rows[-1][0]


async def events_of_amount(
    connection: AsyncConnection, minors: Collection[int]
) -> AsyncIterator[tuple[list[FoundEvent], bool]]:
    """Yield batches of events that state one of these amounts, newest first.

    Each comes with whether the search stops early.
    """
    top = await connection.scalar(text('SELECT max("row") FROM events')) or 0
    bottom = max(top - MOST, 0)
    for high in range(top, bottom, -STRETCH):
        low = max(high - STRETCH, bottom)
        values = {"low": low, "high": high, "minors": sorted(minors)}
        rows = await connection.execute(_OF_AMOUNT, values)
        yield [_found_event(row) for row in rows], low == bottom and bottom > 0


async def events_happened(
    connection: AsyncConnection, day: Instant, end: Instant, *, minors: Collection[int]
) -> AsyncIterator[list[FoundEvent]]:
    """Yield, in batches by arrival, the events with these amounts dated from `day` to before
    `end`."""
    bottom = await connection.scalar(_FIRST_OF_DAY, {"after": first_id("dlv_", day)})
    if bottom is None:
        return
    top = await connection.scalar(text('SELECT max("row") FROM events')) or 0
    values: dict[str, Any] = {"day": day, "end": end, "minors": sorted(minors)}
    for low in range(bottom - 1, min(top, bottom + MOST), STRETCH):
        rows = await connection.execute(_HAPPENED, values | {"low": low, "high": low + STRETCH})
        yield [_found_event(row) for row in rows]


async def records_of_amount(
    connection: AsyncConnection,
    minors: Collection[int],
    *,
    limit: int,
    during: tuple[Instant, Instant] | None = None,
) -> list[tuple[str, Money]]:
    """Return the order and the amount of each record that states one of these amounts.

    minors  amounts in minor units
    during  period of the record or its order; None for all
    """
    values: dict[str, Any] = {"minors": sorted(minors), "limit": limit}
    if during is not None:
        values |= {"day": during[0], "end": during[1]}
    rows = await connection.execute(_RECORDS if during is None else _RECORDS_OF_DAY, values)
    return [(row[0], Money(minor=row[1], currency=row[2])) for row in rows]


def _found_event(row: Sequence[Any]) -> FoundEvent:
    return FoundEvent(
        order=row[0],
        event_id=row[1],
        received_at=row[2],
        money=_money(row[3], row[4]),
        order_money=_money(row[5], row[6]),
        source=row[7],
        claim=row[8],
        standing=row[9],
        payment=row[10],
        session=row[11],
        occurred_at=row[12],
    )


def _money(minor: int | None, currency: str | None) -> Money | None:
    return None if minor is None or currency is None else Money(minor=minor, currency=currency)


async def references_in_books(connection: AsyncConnection, phone: str, *, limit: int) -> list[str]:
    """Return the order references of those order-book lines that name this phone number."""
    rows = await connection.execute(
        text(
            "SELECT DISTINCT reference FROM book_lines WHERE phone = :phone "
            "ORDER BY reference LIMIT :limit"
        ),
        {"phone": phone, "limit": limit},
    )
    return [row[0] for row in rows]


ENDING: Final = (
    "SELECT order_key FROM order_due WHERE backwards IS NOT NULL AND backwards >= :tail "
    "AND backwards <= :last ORDER BY backwards LIMIT :limit"
)


async def orders_ending(connection: AsyncConnection, tail: str, *, limit: int) -> list[str]:
    """Return the orders whose references end with a text, shortest first, without case and
    punctuation.

    tail  the text in reverse, as `due_store.backwards` writes it
    """
    values = {"tail": tail, "last": tail + _LAST, "limit": limit}
    return [row[0] for row in await connection.execute(text(ENDING), values)]


WITH: Final = statement(
    "SELECT {columns} FROM events WHERE movement IS NOT NULL AND movement = :name "
    "UNION SELECT {columns} FROM events WHERE capture IS NOT NULL AND capture = :name "
    "UNION SELECT {columns} FROM events WHERE order_key IS NULL AND payment = :name "
    "UNION SELECT {columns} FROM events WHERE order_key IS NULL AND session = :name "
    "UNION SELECT {columns} FROM events WHERE standing = 'unconfirmed' AND payment = :name "
    "LIMIT :limit /* events WHERE movement = $1 OR capture = $1 OR (order_key IS NULL "
    "AND (payment = $1 OR session = $1)) OR (standing = 'unconfirmed' AND payment = $1) */",
    columns=_EVENT,
)


async def events_with(connection: AsyncConnection, name: str, *, limit: int) -> list[FoundEvent]:
    """Return the events that name this refund, dispute or capture.

    Also those that name it as payment or session, without order or confirmation.
    """
    rows = await connection.execute(text(WITH), {"name": name, "limit": limit})
    return [_found_event(row) for row in rows]


_UNPLACED: Final = statement(
    "SELECT {columns} FROM events WHERE order_key IS NULL AND event_id = :name UNION "
    "SELECT {columns} FROM deliveries JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE deliveries.id = :name AND events.order_key IS NULL LIMIT :limit "
    "/* deliveries WHERE id = $1 */ "
    "/* events WHERE event_id IN (SELECT event_id FROM deliveries UNION SELECT $1) */",
    columns=_EVENT,
)


async def unplaced_of_event(
    connection: AsyncConnection, name: str, *, limit: int
) -> list[FoundEvent]:
    """Return those events without an order that have this id, or that the delivery with this id
    brought."""
    rows = await connection.execute(text(_UNPLACED), {"name": name, "limit": limit})
    return [_found_event(row) for row in rows]


_OF_DELIVERIES: Final = statement(
    "SELECT {columns} FROM deliveries JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE deliveries.id IN ({}) AND events.order_key IS NULL "
    "/* deliveries WHERE id = ANY($1) */",
    columns=_EVENT,
)


_SUGGESTING: Final = text(
    statement(
        "SELECT {columns} FROM events WHERE events.order_key IS NULL "
        'AND events.suggested = :name ORDER BY events."row" LIMIT :limit',
        columns=_EVENT,
    )
)


OF_OTHER_SHOPS: Final = statement(
    "SELECT {columns} FROM events WHERE events.shop = 'other' AND events.order_ref = :name "
    "LIMIT :limit",
    columns=_EVENT,
)


async def events_suggesting(
    connection: AsyncConnection, order: str, *, limit: int
) -> list[FoundEvent]:
    """Return the events that name this order but do not belong to it."""
    values = {"name": order, "limit": limit}
    rows = [*await connection.execute(_SUGGESTING, values)]
    rows += await connection.execute(text(OF_OTHER_SHOPS), values)
    return [_found_event(row) for row in rows]


async def events_of_deliveries(connection: AsyncConnection, ids: Sequence[str]) -> list[FoundEvent]:
    """Return the events without an order that these deliveries brought."""
    rows = await select_in(connection, sql=_OF_DELIVERIES, values=ids)
    return [_found_event(row) for row in rows]


async def orders_of_payout(connection: AsyncConnection, name: str, *, limit: int) -> list[str]:
    """Return the orders whose payments are part of this payout, as the current statement lines
    state."""
    rows = await connection.execute(text(PAID_OUT), {"name": name, "limit": limit})
    return [row[0] for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLine:
    """Line of an order book or statement that concerns an order."""

    order: str | None
    """The order's reference as written in the line, if any."""
    source: str
    """Source of the statement. Empty for a line of an order book."""
    what: str
    """Status in an order book, or kind of movement in a statement. May be empty."""
    payment: str | None
    money: Money


_NEWEST: Final = "(SELECT coalesce(max(number), 0) FROM imports WHERE published_at IS NOT NULL)"
_IN_FORCE: Final = statement(
    "since <= {newest} AND (until IS NULL OR until > {newest})", newest=_NEWEST
)
_SETTLED: Final = (
    "SELECT order_ref, source, kind, payment, gross, currency FROM statement_lines "
    "WHERE {which} AND {in_force} ORDER BY source, subject, kind LIMIT :limit"
)
_LINES: Final = (
    text(
        statement(
            "SELECT reference, '', status, NULL, minor, currency FROM book_lines "
            "WHERE match_key = :key AND {in_force} ORDER BY reference LIMIT :limit",
            in_force=_IN_FORCE,
        )
    ),
    text(statement(_SETTLED, which="match_key = :key", in_force=_IN_FORCE)),
    text(statement(_SETTLED, which="subject = :subject", in_force=_IN_FORCE)),
)


PAID_OUT: Final = statement(
    "SELECT links.order_key FROM statement_lines JOIN links "
    "ON links.reference = statement_lines.payment AND links.kind = 'payment' "
    "AND links.source = statement_lines.source "
    "WHERE payout IS NOT NULL AND payout = :name AND {in_force} "
    "UNION SELECT order_due.order_key FROM statement_lines JOIN order_due "
    "ON order_due.order_key = statement_lines.order_ref "
    "WHERE payout IS NOT NULL AND payout = :name AND {in_force} ORDER BY 1 LIMIT :limit",
    in_force=_IN_FORCE,
)
_BOOKED: Final = text(
    statement(
        "SELECT reference, '', status, NULL, minor, currency FROM book_lines WHERE "
        "placed_at >= :day AND placed_at < :end AND minor IN :minors AND {in_force} LIMIT :limit",
        in_force=_IN_FORCE,
    )
).bindparams(bindparam("minors", expanding=True))


async def book_lines_of_day(
    connection: AsyncConnection, day: Instant, end: Instant, *, minors: Collection[int], limit: int
) -> list[ImportedLine]:
    """Return current order-book lines with these amounts, placed from `day` to before `end`."""
    values = {"day": day, "end": end, "minors": sorted(minors), "limit": limit}
    rows = await connection.execute(_BOOKED, values)
    return [_imported_line(row) for row in rows]


async def lines_named(connection: AsyncConnection, name: str, *, limit: int) -> list[ImportedLine]:
    """Return current lines of order books and statements that name this order or payment. Case and
    punctuation are ignored."""
    values = {"key": match_key(name), "subject": f"p:{name}", "limit": limit}
    if not values["key"]:
        return []
    found: dict[ImportedLine, None] = {}
    for sql in _LINES:
        for row in await connection.execute(sql, values):
            found[_imported_line(row)] = None
    return list(found)


def _imported_line(row: Sequence[Any]) -> ImportedLine:
    money = Money(minor=row[4], currency=row[5])
    return ImportedLine(order=row[0], source=row[1], what=row[2] or "", payment=row[3], money=money)
