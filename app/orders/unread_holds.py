"""Holds for messages that name an order and cannot be read: such a message may say that money went
back.

    1 find    the messages whose values name the order or a payment of it
    2 judge   hold it for those that came since a person released it; release it if none is left
    3 record  in the transaction that publishes the fold that sees it

A read supposes the record where the fold worker has not come to the order yet.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from app.context.context import AppContext
from app.core.ids import new_id
from app.database.statements import PlainConnection
from app.orders.record_store import BY_SERVICE, after_all, hold_record, keep_records
from app.receiving.unread_store import UnreadMessage, any_unread, messages_with
from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.history import History
from reconcile.ledger.records import UNREADABLE, HoldReason, Record, RecordKind

SUPPOSED: Final = "rec_to_be_noted"
"""The id of the record that a read supposes."""

_SET_ASIDE: Final[HoldReason] = "poisoned_delivery"
"""Reason of a hold for a message that was set aside, which the reader itself records."""


class HoldChange(NamedTuple):
    """Record to write for an order, and its earliest instant."""

    kind: RecordKind
    at: Instant


# --- (1) find ------------------------------------------------------------------------------------


def unread_naming(
    connection: PlainConnection, histories: Mapping[str, History]
) -> dict[str, list[UnreadMessage]]:
    """Return the messages that name each order, those that no person has judged, by arrival."""
    if not any_unread(connection):
        return {}
    names = {
        order: _names_of(history)
        for order, history in histories.items()
        if history.deliveries or history.records  # a message alone makes no order known
    }
    wanted = {value for each in names.values() for value, _ in each}
    by_value: dict[str, list[UnreadMessage]] = {}
    for message in messages_with(connection, wanted):
        by_value.setdefault(message.value, []).append(message)
    found = {}
    for order, pairs in names.items():
        judged = judged_at(histories[order])
        messages = {
            message.delivery_id: message
            for value, source in pairs
            for message in by_value.get(value, ())
            if source in (None, message.source) and message.received_at > judged
        }
        if messages:
            found[order] = sorted(
                messages.values(), key=lambda each: (each.received_at, each.delivery_id)
            )
    return found


def _names_of(history: History) -> set[tuple[str, str | None]]:
    """Return the names of an order and of its payments, each with its source; None: of any."""
    order = history.order
    found: set[tuple[str, str | None]] = {(order, None)}
    if order.startswith("@") and ":" in order:
        source, _, own = order[1:].partition(":")
        found.add((own, source))
    for delivery in history.deliveries:
        event = delivery.event
        if event.order in (None, order) and event.standing != "unconfirmed":
            names = (event.payment, event.session, event.movement, event.capture)
            found |= {(name, event.source) for name in names if name}
    for record in history.records:
        if record.order == order:
            found |= {(name, record.source) for name in (record.payment, record.session) if name}
    return found


def judged_at(history: History) -> Instant:
    """Return when a person last released the order from what could not be read."""
    return max(
        (
            record.recorded_at
            for record in history.records
            if record.kind == "released"
            and record.reason in (UNREADABLE, _SET_ASIDE)
            and record.author != BY_SERVICE
        ),
        default=EARLIEST,
    )


# --- (2) judge -----------------------------------------------------------------------------------


def hold_changes(
    connection: PlainConnection, histories: Mapping[str, History]
) -> dict[str, HoldChange]:
    """Return the orders of which a hold for unreadable messages begins or ends."""
    naming = unread_naming(connection, histories)
    found = {}
    for order, history in histories.items():
        messages, held = naming.get(order, ()), _stands(history, UNREADABLE)
        if messages and not held and not _stands(history, _SET_ASIDE):
            found[order] = HoldChange("held", messages[0].received_at)
        elif held and not messages:
            found[order] = HoldChange("released", EARLIEST)
    return found


def _stands(history: History, reason: HoldReason) -> bool:
    holds = [r for r in history.records if r.kind in ("held", "released") and r.reason == reason]
    return bool(holds) and max(holds, key=lambda r: (r.recorded_at, r.record_id)).kind == "held"


def with_supposed(
    connection: PlainConnection, histories: Mapping[str, History]
) -> dict[str, History]:
    """Return histories with the records that the fold worker is going to write."""
    found = dict(histories)
    for order, change in hold_changes(connection, histories).items():
        found[order] = _with(histories[order], change, now=change.at, record_id=SUPPOSED)
    return found


# --- (3) record ----------------------------------------------------------------------------------


def note_unread(
    connection: PlainConnection, context: AppContext, histories: Mapping[str, History]
) -> dict[str, History]:
    """Record what is due of these orders, in the caller's transaction. Return their histories."""
    now = context.clock.now()
    found: dict[str, History] = {}
    records: list[Record] = []
    for order, change in sorted(hold_changes(connection, histories).items()):
        record_id = new_id("rec_", now)
        found[order] = _with(histories[order], change, now=now, record_id=record_id)
        records += found[order].records - histories[order].records
    keep_records(connection, records)
    return found


def _with(history: History, change: HoldChange, *, now: Instant, record_id: str) -> History:
    record: Record = hold_record(
        history.order,
        change.kind,
        at=after_all(history.records, now=now),
        record_id=record_id,
        reason=UNREADABLE,
    )
    return replace(history, records=history.records | {record})
