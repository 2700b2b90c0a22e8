"""When an order is over: nothing of it waits, and nobody has spoken of it for a good while.

Leaves out: what is done with an order that is over, and how long a good while is.
"""

from __future__ import annotations

from typing import Final

from reconcile.instants import Duration, Instant
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger, Outcome

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

    It is when its outcome is final, no decision is to come, no finding is an error, it shares no
    evidence with another order, and nothing was heard of it for `quiet`.
    """
    return (
        ledger.outcome in FINAL
        and ledger.next_decision_at is None
        and not ledger.case.foreign
        and not ledger.case.foreign_records
        and all(finding.severity != "error" for finding in ledger.findings)
        and last_heard(history) <= ledger.as_of - quiet
    )


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
    return max(received + [record.recorded_at for record in history.records], default=0)
