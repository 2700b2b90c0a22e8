"""Observations on a ledger: each check is one small function, and the two tuples of checks are
all of them.

Leaves out: deciding. A finding never changes an outcome; it says what a person should know.
Every check is a function of the Case and its Judgement, so findings do not depend on arrival
order any more than outcomes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

from reconcile.instants import Instant
from reconcile.ledger.correlate import NOTHING_FILED, Case, cites_of
from reconcile.ledger.events import ClaimKind
from reconcile.ledger.findings_claims import (
    of_attempts,
    of_events,
    recovered_on_later_attempt,
    same_id_different_body,
    shared_with_other_order,
)
from reconcile.ledger.findings_money import (
    captures,
    conflicting_amounts,
    disputes,
    refunds,
    refunds_under_way,
    semantic_duplicate,
    unread_money_event,
)
from reconcile.ledger.ledger import FINDING_CODES, Facts, Finding, new_finding
from reconcile.ledger.movements import Payment
from reconcile.ledger.outcome import Judgement, standing
from reconcile.ledger.records import STILL_ASKING

Check = Callable[[Case, Judgement], Iterable[Finding]]


def find(case: Case, judgement: Judgement) -> tuple[Finding, ...]:
    """Every finding, in the order of the vocabulary, then as the checks yield them."""
    found: list[Finding] = []
    for check in CHECKS:
        found += check(case, judgement)
    if case.filed is not NOTHING_FILED:
        for check in CHECKS_OF_RECORDS:
            found += check(case, judgement)
    if len(found) > 1:
        found.sort(key=_place)
    return tuple(found)


def _place(finding: Finding) -> int:
    return _PLACES[finding.code]


_PLACES: Final = {code: place for place, code in enumerate(FINDING_CODES)}


# --- of the merchant's side ----------------------------------------------------------------------


def order_unknown(case: Case, judgement: Judgement) -> list[Finding]:
    """The provider speaks of an order that nobody on the merchant's side has spoken of."""
    filed = case.filed
    if not case.heard or filed.placed is not None or filed.records():
        return []
    return [new_finding(code="order_unknown", cites=(case.heard[0].event.event_id,))]


def session_unknown(case: Case, judgement: Judgement) -> list[Finding]:
    """A session was asked for, no answer has come, and asking again has not brought one."""
    return [
        new_finding(
            code="session_unknown",
            cites=(file.unknown.record_id,),
            facts=(("key", file.unknown.key),),
        )
        for file in case.filed.sessions.values()
        if file.unknown is not None
        and file.opened is None
        and file.refused is None
        and file.unknown.reason != STILL_ASKING
    ]


def fulfillable_since(case: Case, judgement: Judgement) -> Instant:
    """When we first could know that the order was paid and nothing held it: the last piece."""
    pieces = [_paid_since(judgement), case.filed.released_at]
    for attempt in case.attempts:
        for claim in _GIVES_BACK:
            pieces += [heard.first for heard in attempt.claims.get(claim, ())]
    if case.filed.placed is not None:
        pieces.append(case.filed.placed.recorded_at)
    return max(pieces)


def _paid_since(judgement: Judgement) -> Instant:
    """The arrival of the payment with which what is kept of those that count was the price."""
    price = judgement.expected.money
    reached = total = 0
    if price is None:
        return reached
    sure = judgement.sure()
    if len(sure) == 1:
        return _arrived(sure[0])
    for arrived, amount in sorted(_kept(judgement, price.currency)):
        if total < price.minor or not reached:
            reached, total = arrived, total + amount
    return reached


def _kept(judgement: Judgement, currency: str) -> Iterable[tuple[Instant, int]]:
    for payment in judgement.sure():
        kept, on_hold = standing(payment, currency)
        if kept > on_hold:
            yield _arrived(payment), kept - on_hold


def _arrived(payment: Payment) -> Instant:
    return max([min([h.first for h in m.heard]) for m in payment.captures])


def fulfillment_deadline(case: Case, judgement: Judgement) -> Instant | None:
    """When an order that is paid and not fulfilled becomes a finding; None where it cannot."""
    filed = case.filed
    window = case.policy.fulfillment_window
    if window is None or filed.placed is None or filed.fulfilled:
        return None
    if judgement.outcome != "succeeded" or judgement.withheld:
        return None
    return fulfillable_since(case, judgement) + window


def paid_but_not_fulfilled(case: Case, judgement: Judgement) -> list[Finding]:
    """Paid in full for a good while, and the shop has not said that it delivered."""
    placed, deadline = case.filed.placed, judgement.ship_by
    if placed is None or deadline is None or case.as_of < deadline:
        return []
    facts: Facts = (("fulfillable_at", fulfillable_since(case, judgement)), ("due_at", deadline))
    cites = tuple(dict.fromkeys([*judgement.reasons[0].cites, placed.record_id]))
    return [new_finding(code="paid_but_not_fulfilled", cites=cites, facts=facts)]


_GIVES_BACK: Final[tuple[ClaimKind, ...]] = ("dispute_won", "refund_failed")

_PAID_ONCE: Final = frozenset(
    ("succeeded", "refunded", "partially_refunded", "disputed", "charged_back")
)


def fulfilled_but_not_paid(case: Case, judgement: Judgement) -> list[Finding]:
    """The shop says that it delivered, and the money for the order has not come."""
    fulfilled = case.filed.fulfilled
    if fulfilled is None or judgement.outcome in _PAID_ONCE:
        return []
    cites = (fulfilled.record_id, *judgement.reasons[0].cites)
    facts: Facts = (("fulfilled_at", fulfilled.at), ("outcome", judgement.outcome))
    return [new_finding(code="fulfilled_but_not_paid", cites=cites, facts=facts)]


def paid_after_cancel(case: Case, judgement: Judgement) -> list[Finding]:
    """Money moved after the shop had canceled the order."""
    canceled = case.filed.canceled
    if canceled is None:
        return []
    late = [m.heard for m in judgement.captures if m.heard[0].at > canceled.at]
    if not late:
        return []
    facts: Facts = (
        ("canceled_at", canceled.at),
        ("occurred_at", min([heard[0].at for heard in late])),
    )
    cites = (canceled.record_id, *cites_of([h for heard in late for h in heard]))
    return [new_finding(code="paid_after_cancel", cites=cites, facts=facts)]


def price_changed(case: Case, judgement: Judgement) -> list[Finding]:
    """The shop gave another price than before, and who said so."""
    prices = case.filed.prices
    return [
        new_finding(
            code="price_changed",
            cites=(before.record_id, after.record_id),
            facts=(("before", before.money), ("after", after.money), ("author", after.author)),
        )
        for before, after in pairwise(prices)
    ]


def held_back(case: Case, judgement: Judgement) -> list[Finding]:
    """A hold stands: the order is not to be fulfilled until a person releases it."""
    return [
        new_finding(
            code="held_back",
            cites=(record.record_id,),
            facts=(("hold", reason), ("held_at", record.at)),
        )
        for reason, record in sorted(case.filed.holds.items())
    ]


CHECKS: Final[tuple[Check, ...]] = (
    of_events,
    semantic_duplicate,
    of_attempts,
    recovered_on_later_attempt,
    shared_with_other_order,
    order_unknown,
    refunds,
    same_id_different_body,
    conflicting_amounts,
    captures,
    disputes,
    refunds_under_way,
    unread_money_event,
)
"""What can be found without the merchant's records. A new finding is one function here or below,
its code in `ledger`, its words in `reasons`."""

CHECKS_OF_RECORDS: Final[tuple[Check, ...]] = (
    session_unknown,
    paid_but_not_fulfilled,
    fulfilled_but_not_paid,
    paid_after_cancel,
    price_changed,
    held_back,
)
"""What can only be found where the merchant's side has told us something."""
