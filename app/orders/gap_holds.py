"""Holds for accepted gaps, in which news of returned money or shipped orders may be lost.

    1 hold     an order that had money in the gap and still holds some, and is not fulfilled
    2 ask      the providers whose answers state the position of a payment
    3 release  once they have answered about each of its payments since, or the shop states that it
               was fulfilled; else a person releases it

`service_holds.py` records holds and releases.
"""

from collections.abc import Mapping, Sequence

from app.context.context import AppContext
from app.database.gaps import Gap, accepted_gaps
from app.database.statements import PlainConnection, run
from app.orders.hold_store import HoldChange, count_held_for, last_word
from app.orders.record_store import BY_SERVICE
from reconcile.instants import EARLIEST, LATEST, TICK, Instant
from reconcile.ledger.events import ANSWERS, UNCONFIRMED
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger, Movement
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import GAP_ACCEPTED
from reconcile.ledger.unheard import LostSpan


def gap_changes(
    connection: PlainConnection, histories: Mapping[str, History], *, policy: Policy
) -> dict[str, HoldChange]:
    """Return the orders whose hold for an accepted gap must begin or end."""
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
    """Return whether an event of the order is dated up to an instant.
    Return False if the shop stated that the order was fulfilled and never took that back."""
    stated = {each.kind for each in history.records}
    if "order_fulfilled" in stated and "order_not_fulfilled" not in stated:
        return False
    return any(
        (each.received_at if each.event.occurred_at is None else each.event.occurred_at) <= until
        for each in history.deliveries
    )


def _captures(ledger: Ledger, *, until: Instant) -> list[Movement]:
    """Return the captures dated up to an instant."""
    return [
        each
        for each in ledger.movements
        if each.kind == "captured" and min(heard.at for heard in each.heard) <= until
    ]


def _answered(history: History, since: Instant) -> set[tuple[str, str | None]]:
    """Return the payments whose position providers have stated since an instant."""
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
    """Return every accepted gap, and how many orders it still holds."""
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
