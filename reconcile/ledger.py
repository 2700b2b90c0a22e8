"""What a fold concludes: one order's ledger and its parts. Values only; no sentence is kept.

Leaves out: wording. Reasons and findings carry a code, what they rest on and facts;
`reasons` and `explain` turn those into sentences, the same everywhere.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from reconcile.correlate import Case
from reconcile.instants import Instant
from reconcile.money import Money
from reconcile.values import frozen, maker

AttemptOutcome = Literal[
    "succeeded", "authorized", "declined", "canceled", "expired", "timed_out", "pending"
]

Outcome = Literal[
    "unresolved",
    "disputed",
    "refunded",
    "partially_refunded",
    "succeeded",
    "authorized",
    "pending",
    "failed",
    "canceled",
    "expired",
    "timed_out",
    "not_attempted",
]
"""Every outcome an order can have, most decisive first."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

EntryKind = Literal["captured", "refunded", "dispute_lost"]

Severity = Literal["info", "warning", "error"]

FindingCode = Literal[
    "redelivered",
    "semantic_duplicate",
    "out_of_order",
    "delivered_late",
    "recovered_on_later_attempt",
    "success_after_deadline",
    "contradictory_claims",
    "unrecognized_event",
    "dated_in_future",
    "order_unknown",
    "session_unknown",
    "refund_without_payment",
    "paid_but_not_fulfilled",
    "same_id_different_body",
    "conflicting_amounts",
    "paid_twice",
    "amount_mismatch",
    "amount_off_by_minor_unit",
    "currency_mismatch",
    "refund_exceeds_capture",
    "fulfilled_but_not_paid",
    "paid_after_cancel",
]

FINDING_CODES: Final[tuple[FindingCode, ...]] = get_args(FindingCode)

SEVERITY: Final[dict[FindingCode, Severity]] = {
    code: "info" if place < 5 else "warning" if place < 13 else "error"
    for place, code in enumerate(FINDING_CODES)
}

FactValue = str | int | bool | Money | None
Facts = tuple[tuple[str, FactValue], ...]
"""Named values of one reason or finding. A name that ends in `_at` holds an Instant, one that
ends in `_us` a Duration."""


@frozen
class Reason:
    """Why something was concluded: a code, the event and record ids it rests on, and facts."""

    code: str
    cites: tuple[str, ...]
    facts: Facts = ()


@frozen
class Finding:
    """A named observation on a ledger."""

    code: FindingCode
    cites: tuple[str, ...]
    facts: Facts = ()

    @property
    def severity(self) -> Severity:
        """How much it matters: `info`, `warning` or `error`."""
        return SEVERITY[self.code]


@frozen
class Attempt:
    """One try of the customer to pay, judged. `ended_at` dates its final word, if it has one."""

    source: str
    reference: str
    outcome: AttemptOutcome
    reason: Reason
    deadline: Instant | None = None
    ended_at: Instant | None = None


@frozen
class Entry:
    """Money that moved once. Captured money is positive; what went back is negative."""

    at: Instant
    kind: EntryKind
    money: Money
    attempt: str
    cites: tuple[str, ...]


@frozen
class Balance:
    """Minor units captured and given back in one currency, both counted positive."""

    currency: str
    captured: int
    refunded: int


@frozen
class Ledger:
    """One order as it could have been known at `as_of`.

    expected          what the order costs; None where nobody has said it, or not with one voice
    balances          per currency, sorted by code
    reasons           why the outcome is what it is, the deciding one first
    next_decision_at  nothing changes before this instant unless something new is said
    case              the evidence as arranged, for the timeline
    """

    order: str
    as_of: Instant
    outcome: Outcome
    fulfillable: bool
    expected: Money | None
    balances: tuple[Balance, ...]
    attempts: tuple[Attempt, ...]
    entries: tuple[Entry, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[Reason, ...]
    next_decision_at: Instant | None
    case: Case


new_attempt = maker(Attempt)
new_balance = maker(Balance)
new_entry = maker(Entry)
new_finding = maker(Finding)
new_ledger = maker(Ledger)
new_reason = maker(Reason)
