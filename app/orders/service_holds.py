"""Holds that the service records automatically: for unreadable messages and accepted gaps.

    1 judge   which holds begin or end
    2 record  the changes, in the transaction that publishes the order's next ledger

An unreadable message can say that money went back. In an accepted gap, news of returned money or
shipped orders can be lost; that hold ends when the providers have answered about each payment, or
the shop states fulfillment. A person can release both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.context.context import AppContext
from app.core.ids import new_id
from app.database.gaps import Gap, accepted_gaps
from app.database.statements import PlainConnection, run
from app.orders.hold_store import HoldChange, count_held_for, last_word, stands
from app.orders.record_store import BY_SERVICE, after_all, hold_record, keep_records
from app.receiving.confirmation_store import ToAsk, note_confirmations
from app.receiving.unread_store import UnreadMessage, any_unread, messages_with
from reconcile.instants import EARLIEST, LATEST, TICK, Instant
from reconcile.ledger.events import ANSWERS, UNCONFIRMED
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger, Movement
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import GAP_ACCEPTED, UNREADABLE, HoldReason, Record
from reconcile.ledger.unheard import LostSpan

_SET_ASIDE: Final[HoldReason] = "poisoned_delivery"
"""Reason of a hold for a message that was set aside, recorded by the inbox's reader."""


# --- (1) judge: messages that cannot be read -----------------------------------------------------


def unread_naming(
    connection: PlainConnection, histories: Mapping[str, History]
) -> dict[str, list[UnreadMessage]]:
    """Return, for each order, the unreadable messages that name the order and that nobody judged,
    sorted by arrival."""
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
    """Return the references of the order and of its payments, each with its source, or None for
    all."""
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
    """Return the instant at which a person last released the order from a hold for unreadable
    messages. Return EARLIEST if nobody did."""
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


def unread_changes(
    connection: PlainConnection, histories: Mapping[str, History]
) -> dict[str, HoldChange]:
    """Return, for each order concerned, the hold for unreadable messages that must begin or end."""
    naming = unread_naming(connection, histories)
    found = {}
    for order, history in histories.items():
        messages, held = naming.get(order, ()), stands(history, UNREADABLE)
        if messages and not held and not stands(history, _SET_ASIDE):
            found[order] = HoldChange("held", UNREADABLE, messages[0].received_at)
        elif held and not messages:
            found[order] = HoldChange("released", UNREADABLE, EARLIEST)
    return found


# --- (1) judge: accepted gaps ---------------------------------------------------------------------


def gap_changes(
    connection: PlainConnection, histories: Mapping[str, History], *, policy: Policy
) -> dict[str, HoldChange]:
    """Return, for each order concerned, the hold for accepted gaps that must begin or end."""
    gaps = accepted_gaps(connection)
    found = {}
    for order, history in histories.items() if gaps else ():
        change = _change(history, gaps, policy=policy)
        if change is not None:
            found[order] = change
    return found


def _change(history: History, gaps: Sequence[Gap], *, policy: Policy) -> HoldChange | None:
    last = last_word(history, GAP_ACCEPTED)
    new = [gap for gap in gaps if last is None or gap.accepted_at >= last.recorded_at]
    # A held order is held again for a later gap, because earlier answers say nothing about it.
    if new and (hold := _hold(history, new, policy=policy)) is not None:
        return hold
    if last is None or last.kind != "held":
        return None
    since = max(gap.accepted_at for gap in gaps)
    said = any(each.kind == "order_fulfilled" for each in history.records)
    if not said and not _answered(history, since):
        return None
    ledger = fold(history, policy=policy, as_of=history.instant_at(EARLIEST))
    paid = _captures(ledger, until=max(gap.until for gap in gaps))
    if ledger.case.filed.fulfilled is None and not _all_answered(history, paid, since):
        return None
    return HoldChange("released", GAP_ACCEPTED, since)


def _hold(history: History, new: Sequence[Gap], *, policy: Policy) -> HoldChange | None:
    until = max(gap.until for gap in new)
    if not _may_have_been_paid(history, until=until):  # most orders: they need no fold
        return None
    ledger = fold(history, policy=policy, as_of=history.instant_at(EARLIEST))
    paid = _captures(ledger, until=until)
    left = any(each.captured > each.returned for each in ledger.balances)
    unclear = any(each.money is None for each in paid)
    if not paid or not (left or unclear) or ledger.case.filed.fulfilled is not None:
        return None
    named = [[h.event for h in each.heard if h.event.payment is not None] for each in paid]
    ask = tuple(events[0] for events in named if events)
    newest = max(gap.accepted_at for gap in new)
    return HoldChange("held", GAP_ACCEPTED, Instant(newest + TICK), ask)


def _may_have_been_paid(history: History, *, until: Instant) -> bool:
    """Return whether the order may have been paid before `until`. Return False if the shop stated
    that the order is fulfilled."""
    stated = {each.kind for each in history.records}
    if "order_fulfilled" in stated and "order_not_fulfilled" not in stated:
        return False
    return any(
        (each.received_at if each.event.occurred_at is None else each.event.occurred_at) <= until
        for each in history.deliveries
    )


def _captures(ledger: Ledger, *, until: Instant) -> list[Movement]:
    return [
        each
        for each in ledger.movements
        if each.kind == "captured" and min(heard.at for heard in each.heard) <= until
    ]


def _answered(history: History, since: Instant) -> set[tuple[str, str | None]]:
    return {
        (each.event.source, each.event.payment)
        for each in history.deliveries
        if each.received_at > since and each.event.states and each.event.standing in ANSWERS
    }


def _all_answered(history: History, paid: Sequence[Movement], since: Instant) -> bool:
    answered = _answered(history, since)
    return all(
        answered & {(heard.event.source, heard.event.payment) for heard in each.heard}
        for each in paid
    )


async def gaps_with_holds(context: AppContext) -> list[tuple[Gap, int]]:
    """Return each accepted gap, with the number of orders that the gap still holds."""
    async with context.database.reading() as connection:
        gaps = await run(connection, accepted_gaps)
        found = []
        ends = [*(gap.accepted_at for gap in gaps[1:]), LATEST]
        for gap, until in zip(gaps, ends, strict=False):
            since = gap.accepted_at
            held = await count_held_for(connection, GAP_ACCEPTED, since=since, until=until)
            found.append((gap, held))
    return found


def gaps_in(
    connection: PlainConnection, history: History, *, until: Instant
) -> tuple[LostSpan, ...]:
    """Return the accepted gaps between the order's first evidence and an instant."""
    gaps = accepted_gaps(connection)
    if not gaps:
        return ()
    last = last_word(history, GAP_ACCEPTED)
    dates = [until]
    for delivery in history.deliveries:
        dates.append(delivery.received_at)
        at = delivery.event.occurred_at
        if at is not None and delivery.event.standing != UNCONFIRMED:
            dates.append(at)
    dates += [min(record.recorded_at, record.at) for record in history.records]
    return tuple(
        LostSpan(
            gap=gap.id,
            since=gap.since,
            until=gap.until,
            looked_at=last is not None
            and last.kind == "released"
            and last.recorded_at > gap.accepted_at
            and (last.author != BY_SERVICE or bool(_answered(history, gap.accepted_at))),
        )
        for gap in gaps
        if min(dates) <= gap.until and gap.since <= until
    )


SUPPOSED: Final = "rec_to_be_noted"
"""Id of the records that a reader adds to a history because the worker will store them next."""


# --- (2) record ----------------------------------------------------------------------------------


def _changes(
    connection: PlainConnection, histories: Mapping[str, History], *, policy: Policy
) -> dict[str, list[HoldChange]]:
    found: dict[str, list[HoldChange]] = {}
    for changes in (
        unread_changes(connection, histories),
        gap_changes(connection, histories, policy=policy),
    ):
        for order, change in changes.items():
            found.setdefault(order, []).append(change)
    return found


def with_supposed(
    connection: PlainConnection, histories: Mapping[str, History], *, policy: Policy
) -> dict[str, History]:
    """Return these histories with the holds and releases that the worker will record next."""
    found = dict(histories)
    for order, changes in _changes(connection, histories, policy=policy).items():
        for change in changes:
            record = _record(found[order], change, now=change.at, record_id=SUPPOSED)
            found[order] = with_record(found[order], record)
    return found


def record_holds(
    connection: PlainConnection, context: AppContext, histories: Mapping[str, History]
) -> dict[str, History]:
    """Record the holds and releases that are due for these orders, in the caller's transaction.
    Return the changed histories."""
    now = context.clock.now()
    found: dict[str, History] = {}
    records: list[Record] = []
    asks: list[ToAsk] = []
    for order, changes in sorted(_changes(connection, histories, policy=context.policy).items()):
        found[order] = histories[order]
        for change in changes:
            records.append(_record(found[order], change, now=now, record_id=new_id("rec_", now)))
            found[order] = with_record(found[order], records[-1])
            asks += [ToAsk(event, now, 0) for event in change.ask if _states(context, event.source)]
    keep_records(connection, records)
    note_confirmations(connection, asks)
    return found


def _states(context: AppContext, source: str) -> bool:
    """Return whether the source's provider can be asked for the present state of a payment."""
    known = context.sources.get(source)
    rule = None if known is None else known.profile.fetch_back
    return rule is not None and rule.states


def _record(history: History, change: HoldChange, *, now: Instant, record_id: str) -> Record:
    return hold_record(
        history.order,
        change.kind,
        at=after_all(history.records, now=max(now, change.at)),
        record_id=record_id,
        reason=change.reason,
    )


def with_record(history: History, record: Record) -> History:
    """Return the history with one more record in it."""
    return replace(history, records=history.records | {record})
