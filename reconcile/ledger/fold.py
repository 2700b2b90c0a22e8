"""Compute an order's ledger as of one instant. This is called a fold.

A ledger depends only on history, policy and instant, never on the clock.
"""

from typing import Final

from reconcile.instants import EARLIEST, Duration, Instant
from reconcile.ledger.correlate import arrange
from reconcile.ledger.events import Part
from reconcile.ledger.findings import find, fulfillment_deadline
from reconcile.ledger.findings_money import next_refund_due
from reconcile.ledger.fulfilling import withheld
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger, Outcome
from reconcile.ledger.movements import entries_of
from reconcile.ledger.on_top import by_kind
from reconcile.ledger.outcome import Judgement, decide
from reconcile.ledger.policy import Policy
from reconcile.money import Money


def fold(history: History, *, policy: Policy, as_of: Instant) -> Ledger:
    """Compute the ledger of an order, as known at `as_of`."""
    case = arrange(history, policy=policy, as_of=as_of)
    judgement = decide(case)
    judgement.withheld = withheld(case, judgement)
    judgement.ship_by = fulfillment_deadline(case, judgement)
    changes = [  # without new evidence the ledger changes at the first of these
        attempt.deadline
        for attempt in judgement.attempts
        if attempt.outcome == "pending" and attempt.deadline is not None and not attempt.overdue
    ]
    if judgement.ship_by is not None and judgement.ship_by > as_of:
        changes.append(judgement.ship_by)
    overdue = next_refund_due(case, judgement)
    if overdue is not None:
        changes.append(overdue)

    def money(minor: int) -> Money | None:
        currency = judgement.currency
        return None if currency is None else Money(minor=minor, currency=currency)

    return Ledger(
        order=history.order,
        as_of=as_of,
        outcome=judgement.outcome,
        fulfillable=judgement.outcome == "succeeded" and not judgement.withheld,
        expected=judgement.expected.money,
        balances=judgement.balances,
        held=money(judgement.held),
        owed=money(judgement.owed) if judgement.owed else None,
        returning=money(judgement.returning) if judgement.returning else None,
        on_top=_on_top(judgement, judgement.on_top),
        came_on_top=_on_top(judgement, judgement.came_on_top),
        discount=judgement.expected.discount,
        returning_more=judgement.owed > 0
        and any(each.amount is None for payment in judgement.payments for each in payment.pending),
        movements=judgement.movements,
        attempts=judgement.attempts,
        entries=entries_of(judgement.movements),
        findings=find(case, judgement),
        reasons=judgement.reasons,
        withheld=judgement.withheld,
        next_decision_at=min(changes, default=None),
        case=case,
    )


def _on_top(judgement: Judgement, minor: int) -> tuple[Part, ...]:
    currency = judgement.currency
    return () if not minor or currency is None else by_kind(judgement.shares, minor, currency)


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
"""Outcomes that need no further action."""


def is_settled(history: History, ledger: Ledger, *, quiet: Duration) -> bool:
    """Check whether the order is finished, so that nothing more is expected."""
    return (
        ledger.outcome in FINAL
        and not is_disputed(ledger)
        and ledger.next_decision_at is None
        and not is_window_open(ledger)
        and not ledger.case.foreign
        and not ledger.case.moved
        and not ledger.case.foreign_records
        and all(finding.severity != "error" for finding in ledger.findings)
        and last_heard(history) <= ledger.as_of - quiet
    )


def is_known(ledger: Ledger) -> bool:
    """Check whether anything is known about the order itself."""
    case = ledger.case
    return bool(case.heard or case.foreign or case.moved or case.filed.records())


def is_disputed(ledger: Ledger) -> bool:
    """Check whether a dispute of the order is open."""
    return any(finding.code == "dispute_open" for finding in ledger.findings)


def is_window_open(ledger: Ledger) -> bool:
    """Check whether a slow payment of the order is pending, overdue or still revocable."""
    window = ledger.window
    revocable = window.revocable_until
    return window.expected_by is not None or (revocable is not None and revocable > ledger.as_of)


def closed_at(ledger: Ledger) -> Instant | None:
    """Return the date of the order's final outcome."""
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
    """Return the arrival of the last delivery or record; 0 for none."""
    received = [delivery.received_at for delivery in history.deliveries]
    return max(received + [record.recorded_at for record in history.records], default=EARLIEST)
