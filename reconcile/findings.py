"""Observations on a ledger: each check is one small function, and the two tuples of checks are
all of them.

Leaves out: deciding. A finding never changes an outcome; it says what a person should know.
Every check is a function of the Case and its Judgement, so findings do not depend on arrival
order any more than outcomes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reconcile.correlate import NOTHING_FILED, Case
from reconcile.findings_claims import (
    of_attempts,
    of_events,
    recovered_on_later_attempt,
    same_id_different_body,
    shared_with_other_order,
)
from reconcile.findings_money import captures, conflicting_amounts, refunds, semantic_duplicate
from reconcile.instants import Instant
from reconcile.ledger import FINDING_CODES, Facts, Finding, new_finding
from reconcile.movements import cites_of
from reconcile.outcome import Judgement, paid_several_times
from reconcile.records import STILL_ASKING

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
    if not case.heard or filed.placed or filed.sessions or filed.canceled or filed.fulfilled:
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
    """When we first could know that the order was paid and undisputed: the last piece's arrival."""
    pieces = [min([h.first for h in movement.heard]) for movement in judgement.captures]
    if paid_several_times(judgement):
        pieces = [min(pieces)]
    for attempt in case.attempts:
        pieces += [heard.first for heard in attempt.claims.get("dispute_won", ())]
    if case.filed.placed is not None:
        pieces.append(case.filed.placed.recorded_at)
    return max(pieces, default=0)


def fulfillment_deadline(case: Case, judgement: Judgement) -> Instant | None:
    """When an order that is paid and not fulfilled becomes a finding; None where it cannot."""
    filed = case.filed
    window = case.policy.fulfillment_window
    if window is None or filed.placed is None or filed.fulfilled or filed.canceled:
        return None
    if judgement.outcome != "succeeded" or judgement.expected.money is None:
        return None
    return fulfillable_since(case, judgement) + window


def paid_but_not_fulfilled(case: Case, judgement: Judgement) -> list[Finding]:
    """Paid in full for a good while, and the shop has not said that it delivered."""
    placed = case.filed.placed
    deadline = fulfillment_deadline(case, judgement) if placed is not None else None
    if placed is None or deadline is None or case.as_of < deadline:
        return []
    facts: Facts = (("fulfillable_at", fulfillable_since(case, judgement)), ("due_at", deadline))
    cites = tuple(dict.fromkeys([*judgement.reasons[0].cites, placed.record_id]))
    return [new_finding(code="paid_but_not_fulfilled", cites=cites, facts=facts)]


_PAID_ONCE: Final = frozenset(("succeeded", "refunded", "partially_refunded", "disputed"))


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
)
"""What can be found without the merchant's records. A new finding is one function here or below,
its code in `ledger`, its words in `reasons`."""

CHECKS_OF_RECORDS: Final[tuple[Check, ...]] = (
    session_unknown,
    paid_but_not_fulfilled,
    fulfilled_but_not_paid,
    paid_after_cancel,
)
"""What can only be found where the merchant's side has told us something."""
