"""Types for one order's ledger and its parts, as a fold computes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from reconcile.instants import Instant
from reconcile.ledger.correlate import AttemptEvidence, Case, Heard, cites_of
from reconcile.ledger.events import Part
from reconcile.ledger.records import Record
from reconcile.ledger.vocabulary import FINDINGS, FindingCode, Severity
from reconcile.money import Money

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
"""Outcomes of an order, the most decisive first."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

EntryKind = Literal["captured", "refunded", "reversed", "dispute_lost"]

FactValue = str | int | bool | Money | None
Facts = tuple[tuple[str, FactValue], ...]
"""Named values. A name ending in `_at` has an Instant, and one ending in `_us` a Duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Reason for a conclusion of the ledger."""

    code: str
    cites: tuple[str, ...]
    """Ids of the events and records that prove the reason."""
    facts: Facts = ()
    """Amounts, instants and texts that the reason's sentence mentions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something unusual that was noticed about an order. A finding never changes the order's
    outcome."""

    code: FindingCode
    cites: tuple[str, ...]
    facts: Facts = ()

    @property
    def severity(self) -> Severity:
        return FINDINGS[self.code].severity


OVERDUE: Final = "overdue_at_provider"
"""Reason code of an order with only overdue slow payments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of the customer to pay, with its outcome."""

    source: str
    reference: str
    outcome: AttemptOutcome
    reason: Reason
    deadline: Instant | None = None
    ended_at: Instant | None = None
    """Date of the final event, or the deadline. None while open."""
    method: str | None = None
    """Class of a slow payment method, if known."""
    expected_by: Instant | None = None
    """Time when a pending slow payment should have ended."""
    revocable_until: Instant | None = None
    """Last time at which the customer can revoke a captured payment, if known."""

    @property
    def overdue(self) -> bool:
        """Check whether a slow payment should have ended by now."""
        return self.reason.code == OVERDUE


@dataclass(slots=True)
class Movement:
    """One movement of money, such as a capture or a refund."""

    kind: EntryKind
    attempt: AttemptEvidence
    heard: Sequence[Heard]
    stated: tuple[Money, ...]
    """Different amounts that the events state, sorted."""
    rests_on: Sequence[Heard] = ()
    """Events of other movements that were used to compute the amount."""
    named: Record | None = None
    """The record that states the amount, if no event does."""

    money: Money | None = field(init=False)
    """Amount; None unless exactly one amount is stated."""
    cites: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.money = self.stated[0] if len(self.stated) == 1 else None
        events = [*self.heard, *self.rests_on] if self.rests_on else self.heard
        self.cites = cites_of(self.attempt.tied(events))
        if self.named is not None and self.named.record_id not in self.cites:
            self.cites += (self.named.record_id,)

    @property
    def stating(self) -> Sequence[Heard]:
        """Return the events that report this movement."""
        if len(self.heard) == 1 or self.kind != "dispute_lost":
            return self.heard
        losses = [each for each in self.heard if each.event.claim == "dispute_lost"]
        return losses or self.heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a ledger. Captured money is positive, returned money negative."""

    at: Instant
    kind: EntryKind
    money: Money
    attempt: str
    cites: tuple[str, ...]


class PaymentWindow(NamedTuple):
    """Time limits of an order's slow payments."""

    expected_by: Instant | None = None
    method_class: str | None = None
    revocable_until: Instant | None = None


NO_WINDOW: Final = PaymentWindow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Money captured and returned in one currency, in positive minor units.

    The amount of lost disputes excludes money that a later win returned.
    """

    currency: str
    captured: int
    refunded: int
    reversed: int = 0
    lost: int = 0

    @property
    def returned(self) -> int:
        return self.refunded + self.reversed + self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Ledger of one order, as known at `as_of`."""

    order: str
    as_of: Instant
    outcome: Outcome
    fulfillable: bool
    expected: Money | None
    """Price of the order. None if not stated, or if statements disagree."""
    balances: tuple[Balance, ...]
    held: Money | None
    """Captured amount, less returns and open disputes. None if no money moved."""
    owed: Money | None
    """Amount to give back, with pending refunds. None for nothing."""
    returning: Money | None
    """Part of `owed` that pending refunds will return, if any."""
    returning_more: bool
    """True if a pending refund states no amount."""
    on_top: tuple[Part, ...]
    """Part of `held` that was paid on top of the price, for each kind."""
    came_on_top: tuple[Part, ...]
    """Amount paid on top of the price, for each kind, returned or not."""
    discount: Money | None
    """Amount that provider discounts took off the price, if any."""
    movements: Sequence[Movement]
    attempts: tuple[Attempt, ...]
    entries: tuple[Entry, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[Reason, ...]
    """Reasons for the outcome, the deciding reason first."""
    withheld: tuple[Reason, ...]
    """Reasons not to fulfill a paid order."""
    next_decision_at: Instant | None
    """Instant before which the ledger cannot change without new evidence."""
    case: Case

    @property
    def has_captures(self) -> bool:
        """Check whether the ledger has an entry for captured money."""
        return any(entry.kind == "captured" for entry in self.entries)

    @property
    def held_for_price(self) -> Money | None:
        """Return the held amount without money on top of the price."""
        if self.held is None or not self.on_top:
            return self.held
        above = sum([part.money.minor for part in self.on_top])
        return Money(minor=self.held.minor - above, currency=self.held.currency)

    @property
    def window(self) -> PaymentWindow:
        """Return the time limits of the order's slow payments."""
        named = [a for a in self.attempts if a.method is not None]
        if not named:
            return NO_WINDOW
        last = max(
            named, key=lambda a: (a.expected_by or 0, a.revocable_until or 0, a.reference, a.source)
        )
        return PaymentWindow(
            expected_by=last.expected_by,
            method_class=last.method,
            revocable_until=max(
                [a.revocable_until for a in named if a.revocable_until is not None], default=None
            ),
        )
