"""Stored events of payments that belong to no order, and people's records about them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from app.core.phone_key import is_of_a_number
from app.database import mapping
from app.database.statements import PlainConnection, select_rows, statement
from app.orders.history_store import contest_of, histories_of
from app.receiving.phone_store import NOTES_OF
from reconcile.instants import Instant
from reconcile.ledger.correlate import arrange
from reconcile.ledger.events import Delivery, Event
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import PLACINGS, Record


class PaymentKey(NamedTuple):
    """Key of a payment: its source, and its own reference, else its session's, else an id."""

    source: str
    reference: str


def key_of(each: Event | Record) -> PaymentKey:
    """Return the key of the payment that an event or a record concerns."""
    own = each.event_id if isinstance(each, Event) else each.record_id
    return PaymentKey(each.source or "", each.payment or each.session or own)


# --- payments without an order --------------------------------------------------------------------

_LAST: Final = statement(
    "records.kind IN ('payment_assigned', 'payment_dismissed') AND NOT EXISTS "
    "(SELECT 1 FROM records AS later "
    "WHERE later.kind IN ('payment_assigned', 'payment_dismissed') "
    "AND later.source = records.source "
    "AND coalesce(later.payment, later.session) = coalesce(records.payment, records.session) "
    "AND ({later} > {this} OR ({later} = {this} AND later.id > records.id)))",
    later=mapping.LATER_AT,
    this=mapping.RECORD_AT,
)

_ALONE: Final = (
    "events.standalone = 1 AND events.order_key IS NOT NULL "
    "AND events.standing <> 'unconfirmed' "
    "AND NOT EXISTS (SELECT 1 FROM records WHERE records.order_key = events.order_key "
    "AND records.kind <> 'redated') "
    "AND NOT EXISTS (SELECT 1 FROM contested WHERE contested.order_key = events.order_key) "
    "AND NOT EXISTS (SELECT 1 FROM events AS making WHERE making.order_key = events.order_key "
    "AND making.standing <> 'unconfirmed' AND making.standalone IS NULL)"
)
"""SQL condition for an event that is a refund without a payment, if nothing else proves that its
order exists."""

_OF_NO_ORDER: Final = ("order_key IS NULL", _ALONE)
_MEMBERS: Final = ("payment", "session", "event_id")

_KEYS: Final = (
    "SELECT source, reference, min(number) FROM ("
    'SELECT events.source, {reference} AS reference, events."row" AS number FROM events '
    "WHERE events.order_key IS NULL AND {counts} AND {of_source} "
    "AND (events.shop IS NULL OR events.shop <> 'other') "
    'UNION ALL SELECT events.source, {reference} AS reference, events."row" AS number '
    "FROM {unstated} WHERE events.shop = 'unstated' AND events.order_key IS NOT NULL AND {counts} "
    "AND {of_source} AND NOT EXISTS (SELECT 1 FROM events AS stating "
    "WHERE stating.order_key = events.order_key AND stating.source = events.source "
    "AND stating.payment = events.payment AND stating.shop = 'ours') "
    'UNION ALL SELECT events.source, {reference} AS reference, events."row" AS number '
    "FROM {agreed} WHERE events.agreement IS NOT NULL AND events.order_key IS NOT NULL "
    "AND {counts} AND {of_source} AND EXISTS (SELECT 1 FROM events AS earlier "
    "WHERE earlier.agreement = events.agreement AND earlier.source = events.source "
    "AND earlier.order_key = events.order_key AND earlier.payment <> events.payment) "
    'UNION ALL SELECT events.source, {reference} AS reference, events."row" AS number '
    "FROM records CROSS JOIN links CROSS JOIN events "
    "WHERE links.reference = coalesce(records.payment, records.session) "
    "AND links.source = records.source AND events.order_key = links.order_key "
    "AND events.source = records.source AND {reference} = links.reference "
    "AND {last} AND records.reason IS NOT NULL AND events.order_ref IS NULL "
    "AND {counts} AND {of_source} "
    'UNION ALL SELECT events.source, {reference} AS reference, events."row" AS number '
    "FROM {standalone} WHERE {alone} AND {counts} AND {of_source}"
    ") AS found GROUP BY source, reference HAVING min(number) > ? ORDER BY 3 LIMIT ?"
)
"""SQL for payments without an order, and for payments that are stored under an order:

- payments that can belong to another shop, which the caller leaves out
- renewals
- payments whose assignment was withdrawn
- refunds without a payment

CROSS JOIN makes SQLite begin with the records, which are few.
"""

_SHARED: Final = {
    "reference": "coalesce(events.payment, events.session, events.event_id)",
    "counts": "events.standing <> 'unconfirmed' "
    "AND events.claim NOT IN ('ignored', 'unrecognized')",
    "last": _LAST,
    "alone": _ALONE,
}
_INDEXES: Final = {
    "unstated": "ix_events_of_unknown_shops",
    "agreed": "ix_events_agreement",
    "standalone": "ix_events_standalone",
}
"""Indexes that the query must name on SQLite. Otherwise SQLite would read the events of all
orders."""


def _keys(of_source: str, *, dialect: str) -> str:
    found = {
        name: f"events INDEXED BY {index}" if dialect == "sqlite" else "events"
        for name, index in _INDEXES.items()
    }
    return statement(_KEYS, **_SHARED, **found, of_source=of_source)


def unplaced_keys(
    connection: PlainConnection, *, source: str | None, after: int, limit: int
) -> list[tuple[PaymentKey, int]]:
    """Return the payments without an order, by the number of their first event.

    after  only larger numbers
    """
    of_source, sources = ("1 = 1", []) if source is None else ("events.source = ?", [source] * 5)
    sql = _keys(of_source, dialect=connection.dialect)
    rows = connection.ask(sql, (*sources, after, limit))
    return [(PaymentKey(row[0], row[1]), row[2]) for row in rows]


_EARLIER: Final = (
    "NOT EXISTS (SELECT 1 FROM events AS earlier WHERE earlier.shop = 'other' "
    "AND earlier.standing <> 'unconfirmed' AND earlier.source = events.source "
    'AND earlier."row" < events."row" AND {same})'
)
_OF_OTHER_SHOPS: Final = (
    'SELECT source, coalesce(payment, session, event_id), "row" FROM events '
    "WHERE shop = 'other' AND standing <> 'unconfirmed' AND \"row\" > ? AND {of_source} "
    'AND {payment} AND {session} AND {event} ORDER BY "row" LIMIT ?'
)
_FIRST_OF_KEY: Final = {
    "payment": statement(_EARLIER, same="earlier.payment = events.payment"),
    "session": statement(
        _EARLIER,
        same="events.payment IS NULL AND earlier.payment IS NULL "
        "AND earlier.session = events.session",
    ),
    "event": statement(
        _EARLIER,
        same="events.payment IS NULL AND events.session IS NULL AND earlier.payment IS NULL "
        "AND earlier.session IS NULL AND earlier.event_id = events.event_id",
    ),
}


def other_shops_keys(
    connection: PlainConnection, *, source: str | None, after: int, limit: int
) -> list[tuple[PaymentKey, int]]:
    """Return the payments with an event that states another shop, by that event's number.

    after  only larger numbers
    """
    of_source = "1 = 1" if source is None else "source = ?"
    sql = statement(_OF_OTHER_SHOPS, **_FIRST_OF_KEY, of_source=of_source)
    values = (after, limit) if source is None else (after, source, limit)
    rows = connection.ask(sql, values)
    return [(PaymentKey(row[0], row[1]), row[2]) for row in rows]


_COUNT_OF_OTHERS: Final = (
    "SELECT count(*) FROM (SELECT DISTINCT source, reference FROM (SELECT source, "
    "coalesce(payment, session, event_id) AS reference FROM events "
    "WHERE shop = 'other' AND standing <> 'unconfirmed' LIMIT ?) AS stating) AS found"
)


def count_of_other_shops(connection: PlainConnection, *, most: int) -> int:
    """Return the number of payments with an event that names another shop. Only up to `most` such
    events are read."""
    [(count,)] = connection.ask(_COUNT_OF_OTHERS, (most,))
    return int(count)


_NAMED_ORPHANS: Final = (
    "SELECT DISTINCT source FROM events WHERE {of_no_order} AND {member} IN ({})"
)


def keys_named(connection: PlainConnection, name: str) -> list[PaymentKey]:
    """Return the payments that a text may name: by the reference of a payment or session, or by an
    event's id."""
    sources = [
        row[0]
        for member in _MEMBERS
        for condition in _OF_NO_ORDER
        for row in select_rows(
            connection,
            sql=statement(_NAMED_ORPHANS, member=member, of_no_order=condition),
            values=[name],
        )
    ]
    sql = "SELECT source FROM links WHERE reference IN ({})"
    sources += [row[0] for row in select_rows(connection, sql=sql, values=[name])]
    return [PaymentKey(source, name) for source in sorted(set(sources))]


def placed_keys(connection: PlainConnection) -> list[PaymentKey]:
    """Return all payments that a person ever assigned to an order or dismissed."""
    rows = connection.ask(
        "SELECT DISTINCT source, coalesce(payment, session) FROM records "
        "WHERE kind IN ('payment_assigned', 'payment_dismissed') ORDER BY 1, 2"
    )
    return [PaymentKey(row[0], row[1]) for row in rows if row[0] is not None and row[1] is not None]


_DELIVERIES_OF: Final = "SELECT thing FROM phones WHERE kind = 'delivery' AND digest IN ({})"
_ORPHANS_BROUGHT: Final = (
    "SELECT DISTINCT events.source, coalesce(events.payment, events.session, events.event_id) "
    "FROM deliveries JOIN events ON events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE events.order_key IS NULL AND deliveries.id IN ({})"
)

MOST_OF_NUMBERS: Final = 500
"""Maximum number of deliveries, newest first, that are read to find payments with a customer's
phone numbers."""


def keys_of_numbers(connection: PlainConnection, things: Sequence[str]) -> list[PaymentKey]:
    """Return the payments without an order whose payer's phone number also occurs in these orders
    or deliveries."""
    notes = select_rows(connection, sql=NOTES_OF, values=things)
    digests = sorted({bytes(row[0]) for row in notes if is_of_a_number(bytes(row[0]))})
    if not digests:
        return []
    rows = select_rows(connection, sql=_DELIVERIES_OF, values=digests)
    brought = sorted({row[0] for row in rows} - set(things))[-MOST_OF_NUMBERS:]
    return keys_brought(connection, brought)


def keys_brought(connection: PlainConnection, deliveries: Sequence[str]) -> list[PaymentKey]:
    """Return the payments without an order that have an event in one of these deliveries."""
    rows = select_rows(connection, sql=_ORPHANS_BROUGHT, values=deliveries)
    return [PaymentKey(row[0], row[1]) for row in rows]


MOST_SUGGESTING: Final = 500
"""Maximum number of payments that are read because they name an order but may not be linked to
it."""

_SUGGESTING: Final = (
    "SELECT DISTINCT source, coalesce(payment, session, event_id) FROM events "
    "WHERE order_key IS NULL AND suggested = ? AND standing <> 'unconfirmed' "
    "ORDER BY 1, 2 LIMIT ?"
)


def keys_suggesting(connection: PlainConnection, order: str) -> list[PaymentKey]:
    """Return the payments without an order that name this order but may not be linked to it."""
    rows = connection.ask(_SUGGESTING, (order, MOST_SUGGESTING))
    return [PaymentKey(row[0], row[1]) for row in rows]


NAMED_BY_OTHERS: Final = statement(
    "SELECT source, coalesce(payment, session, event_id) FROM events WHERE shop = 'other' "
    "AND order_ref = ? AND {at} <= ? AND standing <> 'unconfirmed' ORDER BY 1, 2 LIMIT 1 "
    "/* events WHERE shop = 'other' AND order_ref = $1 */",
    at=mapping.EVENT_AT,
)


def other_shops_key_naming(
    connection: PlainConnection, order: str, *, until: Instant
) -> PaymentKey | None:
    """Return a payment that names this order but states another shop. Return None if there is
    none."""
    rows = connection.ask(NAMED_BY_OTHERS, (order, until))
    return PaymentKey(rows[0][0], rows[0][1]) if rows else None


# --- evidence about these payments ----------------------------------------------------------------

_ORPHANS: Final = "SELECT {event} FROM events WHERE {of_no_order} AND events.{member} IN ({})"
_ORPHANS_BY: Final = {
    member: [
        statement(_ORPHANS, event=mapping.EVENT_SELECT, member=member, of_no_order=condition)
        for condition in _OF_NO_ORDER
    ]
    for member in _MEMBERS
}


def evidence_of(
    connection: PlainConnection, keys: Collection[PaymentKey]
) -> dict[PaymentKey, frozenset[Delivery]]:
    """Return, for each payment, the first delivery of each of its events. Payments that share a
    session share one set."""
    pool: dict[tuple[str, str, str], Delivery] = {}
    asked: dict[str, set[str]] = {member: set() for member in _ORPHANS_BY}
    wanted = {member: {key.reference for key in keys} for member in _ORPHANS_BY}
    while any(wanted.values()):
        for member, values in wanted.items():
            asked[member] |= values
            for sql in _ORPHANS_BY[member]:
                for row in select_rows(connection, sql=sql, values=sorted(values)):
                    delivery = _suggesting(mapping.delivery_of(row))
                    pool[delivery.event.key] = delivery
        said = [delivery.event for delivery in pool.values()]
        wanted = {
            "payment": {e.payment for e in said if e.payment is not None} - asked["payment"],
            "session": {e.session for e in said if e.session is not None} - asked["session"],
        }
    missing = set(keys) - {key for each in pool.values() for key in _marks(each.event)}
    if missing:
        orders = orders_linked_to(connection, missing)
        for history in histories_of(connection, sorted(orders)).values():
            pool |= {delivery.event.key: delivery for delivery in history.deliveries}
    return _joined(pool.values(), keys)


def _suggesting(delivery: Delivery) -> Delivery:
    """Return the delivery. If its event is a refund without a payment, the event's order becomes a
    mere suggestion."""
    event = delivery.event
    if not event.standalone or event.order is None:
        return delivery
    return replace(delivery, event=replace(event, order=None, suggested=event.order))


def renewals_among(
    connection: PlainConnection,
    deliveries: Collection[Delivery],
    *,
    policy: Policy,
    as_of: Instant,
    cases: dict[str, frozenset[tuple[str, str]]],
) -> frozenset[tuple[str, str]]:
    """Return the payments in the deliveries that renew an agreement, as (source, payment).

    cases  cache of results by order, which is extended
    """
    agreed = [each.event for each in deliveries if each.event.agreement is not None]
    orders = {event.order for event in agreed if event.order is not None}
    for order, history in histories_of(connection, sorted(orders - cases.keys())).items():
        records = frozenset(each for each in history.records if each.kind not in PLACINGS)
        case = arrange(replace(history, records=records), policy=policy, as_of=as_of)
        cases[order] = case.renewals
    return frozenset[tuple[str, str]]().union(*(cases[order] for order in orders))


def orders_linked_to(connection: PlainConnection, keys: Collection[PaymentKey]) -> set[str]:
    """Return the orders to which these payments are linked."""
    links = select_rows(
        connection,
        sql="SELECT source, reference, order_key FROM links WHERE reference IN ({})",
        values=sorted({key.reference for key in keys}),
    )
    return {row[2] for row in links if PaymentKey(row[0], row[1]) in keys}


def _marks(event: Event) -> list[PaymentKey]:
    """Return the keys of an event's payment and session. If the event has neither, return one key
    with the event's id."""
    names = [name for name in (event.payment, event.session) if name is not None]
    return [PaymentKey(event.source, name) for name in names or [event.event_id]]


def _joined(
    deliveries: Iterable[Delivery], keys: Collection[PaymentKey]
) -> dict[PaymentKey, frozenset[Delivery]]:
    whole: dict[PaymentKey, set[Delivery]] = {}
    for each in deliveries:
        marks = _marks(each.event)
        joined = {each}.union(*(whole[mark] for mark in marks if mark in whole))
        whole |= dict.fromkeys([mark for one in joined for mark in _marks(one.event)], joined)
    return {key: frozenset(whole[key]) for key in keys if key in whole}


# --- decisions of people about these payments -----------------------------------------------------

_ACTS: Final = statement(
    "SELECT {record} FROM records WHERE kind IN ('payment_assigned', 'payment_dismissed') "
    "AND coalesce(payment, session) IN ({}) ORDER BY {at}, id",
    record=mapping.RECORD_SELECT,
    at=mapping.RECORD_AT,
)


def acts_on(
    connection: PlainConnection, keys: Collection[PaymentKey]
) -> Mapping[PaymentKey, Sequence[Record]]:
    """Return, for each of these payments, the records by which people assigned or dismissed it,
    earliest first."""
    found: dict[PaymentKey, list[Record]] = defaultdict(list)
    rows: Iterable[Sequence[Any]] = select_rows(
        connection, sql=_ACTS, values=sorted({key.reference for key in keys})
    )
    for row in rows:
        record = mapping.record_of(row)
        found[key_of(record)].append(record)
    return {key: sorted(acts, key=_recorded) for key, acts in found.items() if key in keys}


_NAMING: Final = (
    "SELECT order_key, source, payment, session FROM records "
    "WHERE kind IN ('reference_named', 'session_opened') AND order_key IN ({})"
)


def orders_naming(
    connection: PlainConnection, key: PaymentKey, session: str | None, orders: Collection[str]
) -> list[str]:
    """Return the orders for which the shop named the payment or its session, or opened a session.

    orders  orders to search, with those that share evidence
    """
    among = contest_of(connection, orders) | set(orders)
    return sorted(
        {
            order
            for order, source, payment, opened in select_rows(
                connection, sql=_NAMING, values=sorted(among)
            )
            if source == key.source
            and (payment == key.reference or (opened and opened in (session, key.reference)))
        }
    )


def _recorded(record: Record) -> tuple[int, str]:
    return record.recorded_at, record.record_id
