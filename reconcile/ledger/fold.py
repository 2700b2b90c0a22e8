"""fold: what a history means at one instant. The only way a ledger comes to be.

Leaves out: everything that is not a set or an instant. No sequence number, no previous status,
no clock. Arrange, judge, find: three steps, each a function of what the one before returned.
"""

from __future__ import annotations

from reconcile.instants import Instant
from reconcile.ledger.correlate import Case, arrange
from reconcile.ledger.findings import find, fulfillment_deadline
from reconcile.ledger.fulfilling import withheld
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger, new_ledger
from reconcile.ledger.movements import entries_of
from reconcile.ledger.outcome import Judgement, judge
from reconcile.ledger.policy import Policy
from reconcile.money import Money, new_money


def fold(history: History, *, policy: Policy, as_of: Instant) -> Ledger:
    """The ledger of an order as it could have been known at `as_of`."""
    case = arrange(history, policy=policy, as_of=as_of)
    judgement = judge(case)
    judgement.withheld = withheld(case, judgement)
    judgement.ship_by = fulfillment_deadline(case, judgement)
    return new_ledger(
        order=history.order,
        as_of=as_of,
        outcome=judgement.outcome,
        fulfillable=judgement.outcome == "succeeded" and not judgement.withheld,
        expected=judgement.expected.money,
        balances=judgement.balances,
        held=_held(judgement),
        movements=judgement.movements,
        attempts=judgement.attempts,
        entries=entries_of(judgement.movements),
        findings=find(case, judgement),
        reasons=judgement.reasons,
        withheld=judgement.withheld,
        next_decision_at=_next_decision(case, judgement),
        case=case,
    )


def _held(judgement: Judgement) -> Money | None:
    if judgement.currency is None:
        return None
    return new_money(minor=judgement.held, currency=judgement.currency)


def _next_decision(case: Case, judgement: Judgement) -> Instant | None:
    """The next instant at which this ledger would change though nothing new is said."""
    upcoming = [
        attempt.deadline
        for attempt in judgement.attempts
        if attempt.outcome == "pending" and attempt.deadline is not None
    ]
    if judgement.ship_by is not None and judgement.ship_by > case.as_of:
        upcoming.append(judgement.ship_by)
    return min(upcoming, default=None)
