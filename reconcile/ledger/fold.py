"""fold: what a history means at one instant. The only way a ledger comes to be.

Leaves out: everything that is not a set or an instant. No sequence number, no previous status,
no clock. Arrange, judge, find: three steps, each a function of what the one before returned.
"""

from __future__ import annotations

from typing import Final

from reconcile.instants import EARLIEST, Duration, Instant
from reconcile.ledger.correlate import Case, arrange
from reconcile.ledger.findings import find, fulfillment_deadline
from reconcile.ledger.fulfilling import withheld
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger, Outcome, new_ledger
from reconcile.ledger.movements import entries_of
from reconcile.ledger.outcome import Judgement, decide
from reconcile.ledger.policy import Policy
from reconcile.money import Money, new_money


def fold(history: History, *, policy: Policy, as_of: Instant) -> Ledger:
    """The ledger of an order as it could have been known at `as_of`."""
    case = arrange(history, policy=policy, as_of=as_of)
    judgement = decide(case)
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


# --- when an order is over ------------------------------------------------------------------------


FINAL: Final[frozenset[Outcome]] = frozenset(
    (
        "succeeded",
        "charged_back",
        "refunded",
        "partially_refunded",
        "failed",
        "canceled",
        "expired",
        "timed_out",
    )
)
"""Outcomes that wait for nobody. `unresolved` waits for a person, `disputed` and `authorized` for
the provider, `pending` and `not_attempted` for the customer."""


def is_settled(history: History, ledger: Ledger, *, quiet: Duration) -> bool:
    """Whether the order is over as of the ledger's instant.

    It is when its outcome is final, no dispute is open, no decision is to come, no finding is an
    error, it shares no evidence with another order, and nothing was heard of it for `quiet`.
    """
    return (
        ledger.outcome in FINAL
        and not is_disputed(ledger)
        and ledger.next_decision_at is None
        and not ledger.case.foreign
        and not ledger.case.foreign_records
        and all(finding.severity != "error" for finding in ledger.findings)
        and last_heard(history) <= ledger.as_of - quiet
    )


def is_disputed(ledger: Ledger) -> bool:
    """Whether a dispute of one of its payments is open, whatever the outcome is: other money may
    make up the price beside the disputed one, or all of it be refunded already."""
    return any(finding.code == "dispute_open" for finding in ledger.findings)


def closed_at(ledger: Ledger) -> Instant | None:
    """When the order got its final outcome, by the dates of its evidence; None while it has none.

    Money closes an order with its first capture; what goes back later moves money and opens
    nothing. Without money it is the last word or deadline, and the shop's cancellation for an
    order that nobody tried to pay. Never after the ledger's own instant.
    """
    if ledger.outcome not in FINAL:
        return None
    captures = [entry.at for entry in ledger.entries if entry.kind == "captured"]
    words = [each.ended_at for each in ledger.attempts if each.ended_at is not None]
    canceled = ledger.case.filed.canceled
    if captures:
        end = min(captures)
    elif words:
        end = max(words)
    else:
        end = ledger.as_of if canceled is None else canceled.at
    return min(end, ledger.as_of)


def last_heard(history: History) -> Instant:
    """When a delivery or record of the order last reached us; 0 where none ever did."""
    received = [delivery.received_at for delivery in history.deliveries]
    return max(received + [record.recorded_at for record in history.records], default=EARLIEST)
