"""Holds for messages that name an order and cannot be read.

Such a message may say that money went back.

    1 find    the messages whose values name the order or a payment of it
    2 judge   hold it for messages that came since a person released it; release it if none is left

`service_holds.py` records holds and releases.
"""

from collections.abc import Mapping
from typing import Final

from app.database.statements import PlainConnection
from app.orders.hold_store import HoldChange, stands
from app.orders.record_store import BY_SERVICE
from app.receiving.unread_store import UnreadMessage, any_unread, messages_with
from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.history import History
from reconcile.ledger.records import UNREADABLE, HoldReason

_SET_ASIDE: Final[HoldReason] = "poisoned_delivery"
"""Reason of a hold for a message that was set aside. The reader records such a hold itself."""


# --- (1) find ------------------------------------------------------------------------------------


def unread_naming(
    connection: PlainConnection, histories: Mapping[str, History]
) -> dict[str, list[UnreadMessage]]:
    """Return the messages that name each order and that no person has judged, by arrival."""
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
    """Return the names of an order and its payments, each with its source. None: any source."""
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
    """Return when a person last released the order's hold for unreadable messages."""
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


def unread_changes(
    connection: PlainConnection, histories: Mapping[str, History]
) -> dict[str, HoldChange]:
    """Return the orders whose hold for unreadable messages must begin or end."""
    naming = unread_naming(connection, histories)
    found = {}
    for order, history in histories.items():
        messages, held = naming.get(order, ()), stands(history, UNREADABLE)
        if messages and not held and not stands(history, _SET_ASIDE):
            found[order] = HoldChange("held", UNREADABLE, messages[0].received_at)
        elif held and not messages:
            found[order] = HoldChange("released", UNREADABLE, EARLIEST)
    return found
