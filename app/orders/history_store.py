"""Gather the histories of orders: everything that is stored about one order.

`gather` reads a few orders by their references. `scan` reads all orders, sorted by reference, in
constant memory.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database import mapping, statements
from app.database.layout import settle
from app.receiving.correlation_store import keys_of_references
from reconcile.instants import Instant
from reconcile.ledger.events import UNCONFIRMED, Delivery, Event
from reconcile.ledger.history import History
from reconcile.ledger.placing import CLAIMS, Placing
from reconcile.ledger.records import Record

AT_ONCE: Final = 1_000
"""Maximum number of orders whose histories are in memory at a time."""


_DUPLICATES: Final = statements.statement(
    "SELECT events.order_key, events.event_id, events.source, events.digest, deliveries.id, "
    "{at} FROM deliveries JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE deliveries.verdict = 'duplicate' AND {orders}",
    at=mapping.DELIVERY_AT,
    orders="{orders}",
)
_DUPLICATES_OF: Final = statements.statement(
    _DUPLICATES, orders="events.order_key IN ({}) /* events WHERE order_key = ANY($1) */"
)
_EVENTS_OF: Final = statements.statement(
    "SELECT {event} FROM events WHERE order_key IN ({}) /* events WHERE order_key = ANY($1) */",
    event=mapping.EVENT_SELECT,
)
_RECORDS_OF: Final = statements.statement(
    "SELECT {record} FROM records WHERE order_key IN ({})", record=mapping.RECORD_SELECT
)

ROWS_AT_ONCE = 200
"""Number of rows that a scan fetches at a time. With 2,000, a rebuild takes a fifth longer because
of cache misses."""


async def gather(connection: AsyncConnection, orders: Iterable[str]) -> dict[str, History]:
    """Return the history of each of these orders. An unknown order has an empty history."""
    return await statements.run(connection, histories_of, list(orders))


async def gather_all(
    connection: AsyncConnection, orders: Sequence[str]
) -> AsyncIterator[list[History]]:
    """Yield the histories of these orders, in lists of up to a thousand."""
    for start in range(0, len(orders), AT_ONCE):
        found = await gather(connection, orders[start : start + AT_ONCE])
        yield list(found.values())


def histories_of(connection: statements.PlainConnection, keys: Sequence[str]) -> dict[str, History]:
    """Return the history of each of these orders. An unknown order has an empty history."""
    settle(connection)
    deliveries: dict[str, list[Delivery]] = defaultdict(list)
    for row in statements.select_rows(connection, sql=_EVENTS_OF, values=keys):
        deliveries[row[0]].append(mapping.delivery_of(row))
    duplicates = statements.select_rows(connection, sql=_DUPLICATES_OF, values=keys)
    for order, again in _by_order(duplicates).items():
        deliveries[order] += _again(deliveries[order], again)
    records = _records(connection, keys)
    found = {
        key: History(
            order=key,
            deliveries=frozenset(deliveries.get(key, ())),
            records=frozenset(records.get(key, ())),
        )
        for key in keys
    }
    return _with_foreign(connection, found)


_ARRIVED: Final = statements.statement(
    "SELECT order_key, {at}, delivery_id FROM events WHERE order_key IN ({}) "
    "/* events WHERE order_key = ANY($1) */",
    at=mapping.EVENT_AT,
)


_REDATED: Final = statements.statement(
    "SELECT {record} FROM records WHERE kind = 'redated' AND replaces IN ({})",
    record=mapping.RECORD_SELECT,
)


async def with_redatings(connection: AsyncConnection, history: History) -> History:
    """Return the history together with all records that correct dates in it, even if they are
    stored under other orders."""
    members = [each.delivery_id for each in history.deliveries]
    members += [each.record_id for each in history.records]
    rows = await statements.select_in(connection, sql=_REDATED, values=members)
    return history | History(order=history.order, records=frozenset(map(mapping.record_of, rows)))


async def newest_deliveries(
    connection: AsyncConnection, published: Sequence[tuple[str, Instant]]
) -> list[str | None]:
    """Return the id of the newest delivery of each order at each instant, or None."""
    rows = await statements.select_in(
        connection,
        sql=_ARRIVED,
        values=sorted({order for order, _ in published}),
    )
    of_orders = _by_order(rows)
    known = [
        [(row[1], row[2]) for row in of_orders[order] if row[1] <= at] for order, at in published
    ]
    return [max(each)[1] if each else None for each in known]


def _records(
    connection: statements.PlainConnection, keys: Sequence[str]
) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for row in statements.select_rows(connection, sql=_RECORDS_OF, values=keys):
        record = mapping.record_of(row)
        found[record.order].append(record)
    return found


def _by_order(rows: Iterable[Sequence[Any]]) -> dict[str, list[Sequence[Any]]]:
    found: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def _again(first: Iterable[Delivery], duplicates: Iterable[Sequence[Any]]) -> list[Delivery]:
    events = {delivery.event.key: delivery.event for delivery in first}
    return [
        Delivery(
            delivery_id=delivery_id, received_at=received_at, event=events[source, event_id, digest]
        )
        for _, event_id, source, digest, delivery_id, received_at in duplicates
    ]


# --- orders that share a reference or an event id -------------------------------------------------


async def contested_with(connection: AsyncConnection, orders: Iterable[str]) -> set[str]:
    """Return all orders that share evidence with any of these orders, directly or through others.
    Usually there are none."""
    return await statements.run(connection, contest_of, orders)


def contest_of(connection: statements.PlainConnection, orders: Iterable[str]) -> set[str]:
    """Return all orders that share evidence with any of these orders, directly or through others.
    Usually there are none."""
    return {order for contest in contests_of(connection, orders) for order in contest}


def contests_of(connection: statements.PlainConnection, orders: Iterable[str]) -> list[set[str]]:
    """Return the groups of orders that share evidence and contain at least one of the given orders.
    Usually there are none."""
    found: dict[str, set[str]] = {}
    new = set(orders)
    while new:
        rows = statements.select_rows(
            connection,
            sql="SELECT order_key, other FROM contested WHERE order_key IN ({})",
            values=sorted(new),
        )
        new = {order for row in rows for order in row} - found.keys()
        for pair in rows:
            joined, added = (found.setdefault(order, {order}) for order in pair)
            if joined is not added:
                joined |= added
                found |= dict.fromkeys(added, joined)
    return list({id(contest): contest for contest in found.values()}.values())


def _with_foreign(
    connection: statements.PlainConnection, found: dict[str, History]
) -> dict[str, History]:
    contested = sorted(contest_of(connection, found))
    if not contested:
        return found
    pool = [
        mapping.delivery_of(row)
        for row in statements.select_rows(connection, sql=_EVENTS_OF, values=contested)
    ]
    pool += _again(pool, statements.select_rows(connection, sql=_DUPLICATES_OF, values=contested))
    of_orders = _records(connection, contested)
    naming = [
        r
        for records in of_orders.values()
        for r in records
        if r.kind == "order_placed" or _marks_of_records([r])
    ]
    touched = {
        order: _with_touching(found[order], pool, naming) for order in found.keys() & contested
    }
    return found | touched


def _with_touching(history: History, pool: list[Delivery], naming: list[Record]) -> History:
    """Return the history with the deliveries that share a payment, session or event with it.

    A delivery of another order adds further deliveries only if a person or the shop assigned what
    was found, or if other events decide to which order or shop a payment belongs. All linked orders
    must then reach the same conclusion.
    """
    known = {delivery.event.key for delivery in history.deliveries}
    marks = _marks_of_records(history.records)
    for delivery in history.deliveries:
        marks |= _marks(delivery.event)
    left = [delivery for delivery in pool if delivery.event.key not in known]
    touching = _reached(marks, left, through_other_orders=True)
    reached = marks.union(*(_marks(delivery.event) for delivery in touching))
    placed = any(r.kind in CLAIMS and reached & _marks_of_records([r]) for r in naming)
    # An event that states a shop needs all evidence of its payment, to find out whose it is.
    placed = placed or any(each.event.shop is not None for each in touching)
    if not placed:
        events = [each.event for each in (*history.deliveries, *touching)]
        placing = Placing([*history.records, *naming], events)
        placed = any(placing.followed(event) is not None for event in events)
    if not placed:
        touching = _reached(marks, left, through_other_orders=False)
    for delivery in touching:
        if delivery.event.order is None or placed:
            marks |= _marks(delivery.event)
    orders = {each.event.order for each in touching}
    named = frozenset(
        record
        for record in naming
        if marks & _marks_of_records([record])
        or (record.kind == "order_placed" and record.order in orders)
    )
    return history | History(order=history.order, deliveries=frozenset(touching), records=named)


def _reached(
    marks: "set[Mark]", pool: list[Delivery], *, through_other_orders: bool
) -> list[Delivery]:
    known, left, found = set(marks), pool, list[Delivery]()
    while new := [delivery for delivery in left if known & _marks(delivery.event)]:
        found += new
        left = [delivery for delivery in left if delivery not in new]
        for delivery in new:
            if through_other_orders or delivery.event.order is None:
                known |= _marks(delivery.event)
    return found


Mark = tuple[str, str, str]
"""Key of a payment, session or event: the kind of thing, its source and its reference."""


def _marks(event: Event) -> set[Mark]:
    """Return the keys that link an event to others: payment, session and event; none if
    unconfirmed."""
    if event.standing == UNCONFIRMED:
        return set()
    own: Mark = ("event", event.source, event.event_id)
    return {own, *_marks_of(event.source, event.payment, event.session)}


def _marks_of_records(records: Iterable[Record]) -> set[Mark]:
    return {
        mark
        for record in records
        if record.source is not None
        for mark in _marks_of(record.source, record.payment, record.session)
    }


def _marks_of(source: str, payment: str | None, session: str | None) -> set[Mark]:
    keys = keys_of_references(source, payment, session)
    return {(kind, source, reference) for reference, kind, source in keys}


# --- all orders ----------------------------------------------------------------------------------


class SideStream:
    """Stream of rows that are sorted by their first column, an order's reference. The caller must
    ask for orders in this sequence."""

    def __init__(self, partitions: AsyncIterator[statements.Rows]) -> None:
        self._partitions = partitions
        self._rows: statements.Rows = []
        self._place = 0
        self.upcoming: str | None = None

    async def start(self) -> None:
        """Read the first rows of the stream."""
        self._rows = await anext(self._partitions, [])
        self._place = 0
        self.upcoming = self._rows[0][0] if self._rows else None

    async def take(self, order: str) -> statements.Rows:
        """Return the rows of this order. Rows of earlier orders are skipped."""
        found: statements.Rows = []
        while self.upcoming is not None and self.upcoming <= order:
            if self.upcoming == order:
                found.append(self._rows[self._place])
            self._place += 1
            if self._place == len(self._rows):
                await self.start()
            else:
                self.upcoming = self._rows[self._place][0]
        return found


_BOTH_BOUNDS: Final = "{column} > :after AND {column} <= :last"


class Range(NamedTuple):
    """Range of orders. Their references are greater than `after` and not greater than `last`. None
    means no upper bound."""

    after: str = ""
    last: str | None = None

    def condition(self, column: str) -> str:
        """Return the SQL condition for a column in this range. The property `values` has the
        bounds."""
        bounds = "{column} > :after" if self.last is None else _BOTH_BOUNDS
        return statements.statement(bounds, column=column)

    @property
    def values(self) -> dict[str, str]:
        return {"after": self.after} | ({} if self.last is None else {"last": self.last})


ALL_ORDERS: Final = Range()


async def ranges(connection: AsyncConnection, *, events: int) -> AsyncIterator[Range]:
    """Yield consecutive ranges that together contain all orders. Each range has about `events`
    events."""
    after, more = "", True
    step = text(_STEP)
    while more:
        found = await connection.scalar(step, {"after": after, "events": events})
        more = found is not None
        yield Range(after, found)
        after = found or ""


_STEP: Final = (
    "SELECT order_key FROM events WHERE order_key > :after ORDER BY order_key "
    "LIMIT 1 OFFSET :events"
)


async def side_stream(
    connection: AsyncConnection, sql: str, values: Mapping[str, str] | None = None
) -> SideStream:
    """Run a query whose rows are sorted by their first column, an order's reference. Return the
    rows as a stream."""
    side = SideStream(statements.stream(connection, sql, at_once=ROWS_AT_ONCE, values=values))
    await side.start()
    return side


_EVENTS_IN_ORDER: Final = (
    "SELECT {event} FROM events WHERE {orders} ORDER BY order_key /* events WHERE {orders} */"
)
_DUPLICATES_IN_ORDER: Final = statements.statement(
    "{duplicates} ORDER BY events.order_key /* events WHERE {orders} */",
    duplicates=_DUPLICATES,
    orders="{orders}",
)
_RECORDS_IN_ORDER: Final = (
    "SELECT records.order_key, {record} FROM records WHERE {orders} ORDER BY records.order_key"
)
_CONTESTED: Final = "SELECT order_key FROM contested WHERE {orders}"


async def scan(
    connection: AsyncConnection, orders: Range = ALL_ORDERS
) -> AsyncIterator[list[History]]:
    """Yield the histories of all orders in a range, sorted by reference, in lists of some
    hundreds."""
    here = orders.condition("events.order_key")
    sql = statements.statement(_DUPLICATES_IN_ORDER, orders=here)
    duplicates = await side_stream(connection, sql, orders.values)
    here = orders.condition("records.order_key")
    sql = statements.statement(_RECORDS_IN_ORDER, record=mapping.RECORD_SELECT, orders=here)
    records = await side_stream(connection, sql, orders.values)
    sql = statements.statement(_CONTESTED, orders=orders.condition("order_key"))
    rows = await connection.execute(text(sql), orders.values)
    contested = {str(row[0]) for row in rows}
    sides = (duplicates, records, contested)
    async for groups in _groups(connection, orders):
        histories = []
        for order, deliveries in groups:
            while records.upcoming is not None and records.upcoming < order:
                histories.append(await _complete(connection, records.upcoming, [], sides))
            histories.append(await _complete(connection, order, deliveries, sides))
        yield histories
    rest = []
    while records.upcoming is not None:
        rest.append(await _complete(connection, records.upcoming, [], sides))
    yield rest


async def _groups(
    connection: AsyncConnection, orders: Range
) -> AsyncIterator[list[tuple[str, list[Delivery]]]]:
    here = orders.condition("order_key")
    events = statements.statement(_EVENTS_IN_ORDER, event=mapping.EVENT_SELECT, orders=here)
    order: str | None = None
    deliveries: list[Delivery] = []
    async for rows in statements.stream(
        connection, events, at_once=ROWS_AT_ONCE, values=orders.values
    ):
        groups = []
        for row in rows:
            if row[0] != order:
                if order is not None:
                    groups.append((order, deliveries))
                order, deliveries = row[0], []
            deliveries.append(mapping.delivery_of(row))
        yield groups
    if order is not None:
        yield [(order, deliveries)]


async def _complete(
    connection: AsyncConnection,
    order: str,
    deliveries: list[Delivery],
    sides: tuple[SideStream, SideStream, set[str]],
) -> History:
    duplicates, records, contested = sides
    if duplicates.upcoming is not None and duplicates.upcoming <= order:
        deliveries = deliveries + _again(deliveries, await duplicates.take(order))
    recorded: list[Record] = []
    if records.upcoming is not None and records.upcoming <= order:
        recorded = [mapping.record_of(row[1:]) for row in await records.take(order)]
    history = History(order=order, deliveries=frozenset(deliveries), records=frozenset(recorded))
    if order in contested:
        history = (await statements.run(connection, _with_foreign, {order: history}))[order]
    return history
