"""What a fold concludes: one order's ledger and its parts. Values only; no sentence is kept.

Leaves out: wording. Reasons and findings carry a code, what they rest on and facts;
`vocabulary`, `explain` and `plain` turn those into sentences, the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.ledger.correlate import AttemptEvidence, Case, Heard, cites_of
from reconcile.ledger.records import Record
from reconcile.ledger.vocabulary import FINDINGS, FindingCode, Severity
from reconcile.money import Money
from reconcile.values import frozen, maker

AttemptOutcome = Literal[
    "succeeded", "authorized", "declined", "canceled", "expired", "timed_out", "pending"
]

Outcome = Literal[
    "unresolved",
    "disputed",
    "charged_back",
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

EntryKind = Literal["captured", "refunded", "reversed", "dispute_lost"]
"""What moves money: in, and the three ways back."""

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
        return FINDINGS[self.code].severity


@frozen
class Attempt:
    """One try of the customer to pay, judged. `ended_at` dates its final word, if it has one."""

    source: str
    reference: str
    outcome: AttemptOutcome
    reason: Reason
    deadline: Instant | None = None
    ended_at: Instant | None = None


@dataclass(slots=True)
class Movement:
    """One movement of money.

    stated    the distinct amounts its events give, sorted
    rests_on  events of other movements without which it would be another amount
    named     the record in which the shop named the amount, where that is what it rests on
    """

    kind: EntryKind
    attempt: AttemptEvidence
    heard: Sequence[Heard]
    stated: tuple[Money, ...]
    rests_on: Sequence[Heard] = ()
    named: Record | None = None

    money: Money | None = field(init=False)
    cites: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.money = self.stated[0] if len(self.stated) == 1 else None
        events = [*self.heard, *self.rests_on] if self.rests_on else self.heard
        self.cites = cites_of(self.attempt.tied(events))
        if self.named is not None:
            self.cites += (self.named.record_id,)

    @property
    def stating(self) -> Sequence[Heard]:
        """The events that state it: of a loss those of the loss, not of the dispute's opening."""
        if len(self.heard) == 1 or self.kind != "dispute_lost":
            return self.heard
        return [each for each in self.heard if each.event.claim == "dispute_lost"]


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
    """Minor units that came and went back in one currency, all counted positive.

    lost  in disputes, less what a later win gave back
    """

    currency: str
    captured: int
    refunded: int
    reversed: int = 0
    lost: int = 0

    @property
    def returned(self) -> int:
        """All that went back, in whichever way."""
        return self.refunded + self.reversed + self.lost


@frozen
class Ledger:
    """One order as it could have been known at `as_of`.

    expected          what the order costs; None where nobody has said it, or not with one voice
    balances          per currency, sorted by code
    held              captured, less what went back and what open disputes hold, in the order's
                      currency; None where no money moved
    movements         what the entries were made of
    reasons           why the outcome is what it is, the deciding one first
    withheld          why an order that is paid must not be fulfilled all the same; none otherwise
    next_decision_at  nothing changes before this instant unless something new is said
    case              the evidence as arranged, for the timeline
    """

    order: str
    as_of: Instant
    outcome: Outcome
    fulfillable: bool
    expected: Money | None
    balances: tuple[Balance, ...]
    held: Money | None
    movements: Sequence[Movement]
    attempts: tuple[Attempt, ...]
    entries: tuple[Entry, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[Reason, ...]
    withheld: tuple[Reason, ...]
    next_decision_at: Instant | None
    case: Case


new_attempt = maker(Attempt)
new_balance = maker(Balance)
new_entry = maker(Entry)
new_finding = maker(Finding)
new_ledger = maker(Ledger)
new_reason = maker(Reason)
