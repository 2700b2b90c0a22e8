"""Holds on orders whose payment can belong to another shop."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.core.ids import new_id
from app.database import mapping
from app.database.statements import PlainConnection, insert_rows, select_rows, statement
from app.sealing.leaf_store import RECORD
from app.sealing.log_queue_store import mark_unsealed
from reconcile.instants import TICK, Instant
from reconcile.ledger.correlate import file_records
from reconcile.ledger.events import UNCONFIRMED, Event
from reconcile.ledger.placing import CLAIMS, Placing
from reconcile.ledger.records import MAYBE_OTHERS, Record

LOOKED_AT: Final = 20_000
"""Number of latest events that are searched for foreign payments."""

_JUDGED: Final = (
    "SELECT 1 FROM meta WHERE name = 'environment' AND value = 'live' AND EXISTS "
    "(SELECT 1 FROM meta WHERE name = 'order_record_required_since')"
)

_RECORDS: Final = statement(
    "SELECT {record} FROM records WHERE order_key IN ({})", record=mapping.RECORD_SELECT
)

_EVENTS: Final = statement(
    "SELECT {event} FROM events WHERE order_key IN ({})", event=mapping.EVENT_SELECT
)

_NOBODYS: Final = (
    'SELECT 1 FROM events WHERE "row" > (SELECT max("row") FROM events) - ? '
    "AND source = ? AND claim = 'succeeded' AND standing <> 'unconfirmed' "
    "AND order_key IS NOT NULL AND coalesce(shop, '') <> 'other' AND NOT EXISTS "
    "(SELECT 1 FROM records WHERE records.order_key = events.order_key "
    "AND records.kind IN ('order_placed', 'session_requested')) LIMIT 1"
)


def hold_for_others(connection: PlainConnection, events: Sequence[Event], *, at: Instant) -> None:
    """Hold orders whose new payment can belong to another shop."""
    paying = [
        event
        for event in events
        if event.order is not None
        and event.money is not None
        and event.claim == "succeeded"
        and event.standing != UNCONFIRMED
    ]
    if not paying or not connection.ask(_JUDGED):
        return
    records: dict[str, list[Record]] = {}
    for row in select_rows(connection, sql=_RECORDS, values={e.order for e in paying}):
        record = mapping.record_of(row)
        records.setdefault(record.order, []).append(record)
    for some in records.values():
        some.sort(key=lambda each: (each.recorded_at, each.record_id))
    dear = [event for event in paying if _is_of_more_than_the_price(event, records)]
    held: dict[str, Record] = {}
    for event in dear:
        order = event.order or ""
        known = records[order]
        if (
            order not in held
            and not any(each.reason == MAYBE_OTHERS for each in known)
            and not _is_placed(connection, event, known)
            and connection.ask(_NOBODYS, (LOOKED_AT, event.source))
        ):
            since = max([at, *(each.recorded_at + TICK for each in known)])
            held[order] = Record(
                record_id=new_id("rec_", since),
                recorded_at=since,
                kind="held",
                order=order,
                at=since,
                reason=MAYBE_OTHERS,
                author="service",
            )
    if held:
        rows = [mapping.record_row(each) for each in held.values()]
        insert_rows(connection, table="records", columns=mapping.RECORD_COLUMNS, rows=rows)
        mark_unsealed(connection, RECORD, [each.record_id for each in held.values()])


def _is_of_more_than_the_price(event: Event, records: Mapping[str, Sequence[Record]]) -> bool:
    placed = file_records(records.get(event.order or "", ())).placed
    due = None if placed is None else placed.due
    money = event.money
    if due is None or money is None or money.currency != due.currency:
        return False
    return money.minor > due.minor


def _is_placed(connection: PlainConnection, event: Event, records: Sequence[Record]) -> bool:
    claims = [each for each in records if each.kind in CLAIMS]
    if not claims:
        return False
    rows = select_rows(connection, sql=_EVENTS, values=[event.order])
    return (
        Placing(claims, [mapping.delivery_of(row).event for row in rows]).placed(event) is not None
    )
