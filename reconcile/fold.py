"""fold: what a history means at one instant. The only way a ledger comes to be.

Leaves out: everything that is not a set or an instant. No sequence number, no previous status,
no clock. Arrange, judge, find: three steps, each a function of what the one before returned.
"""

from __future__ import annotations

from reconcile.correlate import Case, arrange
from reconcile.findings import find, fulfillment_deadline
from reconcile.history import History
from reconcile.instants import Instant
from reconcile.ledger import Ledger, new_ledger
from reconcile.movements import entries_of
from reconcile.outcome import Judgement, judge
from reconcile.policy import Policy


def fold(history: History, *, policy: Policy, as_of: Instant) -> Ledger:
    """The ledger of an order as it could have been known at `as_of`."""
    case = arrange(history, policy=policy, as_of=as_of)
    judgement = judge(case)
    return new_ledger(
        order=history.order,
        as_of=as_of,
        outcome=judgement.outcome,
        fulfillable=_fulfillable(case, judgement),
        expected=judgement.expected.money,
        balances=judgement.balances,
        attempts=judgement.attempts,
        entries=entries_of(judgement.movements),
        findings=find(case, judgement),
        reasons=judgement.reasons,
        next_decision_at=_next_decision(case, judgement),
        case=case,
    )


def _fulfillable(case: Case, judgement: Judgement) -> bool:
    """Paid in full in the order's own currency, nothing open, and the shop still wants to ship.

    That an order costs nothing only the shop itself can say; an event that does is a mistake.
    `succeeded` already excludes what is unresolved, disputed or refunded below the price.
    """
    return (
        judgement.outcome == "succeeded"
        and judgement.expected.money is not None
        and (judgement.expected.money.minor > 0 or case.filed.placed is not None)
        and case.filed.canceled is None
    )


def _next_decision(case: Case, judgement: Judgement) -> Instant | None:
    """The next instant at which this ledger would change though nothing new is said."""
    upcoming = [
        attempt.deadline
        for attempt in judgement.attempts
        if attempt.outcome == "pending" and attempt.deadline is not None
    ]
    if case.filed.placed is not None:
        deadline = fulfillment_deadline(case, judgement)
        if deadline is not None and deadline > case.as_of:
            upcoming.append(deadline)
    return min(upcoming, default=None)
