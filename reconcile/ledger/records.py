"""Types for records, which state the merchant's facts about an order.

A record never changes. A later record corrects it.
"""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.money import Money

RecordKind = Literal[
    "order_placed",
    "order_canceled",
    "order_not_canceled",
    "order_fulfilled",
    "order_not_fulfilled",
    "session_requested",
    "session_opened",
    "session_refused",
    "session_unknown",
    "reference_named",
    "held",
    "released",
    "payment_assigned",
    "payment_dismissed",
    "finding_accepted",
    "redated",
]
"""Kinds of facts that the merchant's side can state.

order_not_canceled    the shop withdraws the cancellation
order_not_fulfilled   the shop withdraws the fulfillment
session_unknown       the request was sent and no answer came
reference_named       the shop says that a session or payment belongs to this order
held                  the order must not be fulfilled until a `released` with this reason
payment_assigned      a person gives a payment to this order, or withdraws it
payment_dismissed     a person says that a payment belongs to no order
finding_accepted      a person accepts a finding, which then needs no further action
redated               corrects the time of a delivery, record or revision after a fast clock
"""

HoldReason = Literal[
    "rules_changed", "poisoned_delivery", "unreadable_delivery", "maybe_other_shop", "gap_accepted"
]
"""Reason for a hold. An order on hold must not be fulfilled."""

UNREADABLE: Final[HoldReason] = "unreadable_delivery"

MAYBE_OTHERS: Final[HoldReason] = "maybe_other_shop"

GAP_ACCEPTED: Final[HoldReason] = "gap_accepted"

HOLD_REASONS: Final[tuple[HoldReason, ...]] = get_args(HoldReason)

STILL_ASKING: Final = "still_asking"
"""Reason of a `session_unknown` record while the provider is still being asked automatically."""

WITHDRAWN: Final = "withdrawn"
"""Reason of a `payment_assigned` record that withdraws the payment from its order."""

DismissedAs = Literal["to_refund", "other_business"]

DISMISSED_AS: Final[tuple[DismissedAs, ...]] = get_args(DismissedAs)

NO_ORDER: Final = ""
"""Value of `order` in a record without an order."""

PLACINGS: Final[frozenset[RecordKind]] = frozenset(("payment_assigned", "payment_dismissed"))

RECORD_KINDS: Final[tuple[RecordKind, ...]] = get_args(RecordKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tender:
    """Part of the price that is not paid through a provider, such as `gift_card` or
    `store_credit`."""

    kind: str
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One fact from the merchant's side."""

    record_id: str
    recorded_at: Instant
    """Time when the record was stored here."""
    kind: RecordKind
    order: str
    at: Instant
    """Time when the fact happened, according to the merchant. Corrected time of `redated`."""
    money: Money | None = None
    """Price of the order, expected amount of a session, or proved amount of a payment."""
    source: str | None = None
    """Provider account of the session or payment."""
    key: str | None = None
    """Idempotency key of a session. Account of a dismissed payment."""
    session: str | None = None
    """The provider's reference of the session."""
    payment: str | None = None
    """The provider's reference of the payment."""
    expires_at: Instant | None = None
    """Expiry of the session, if stated. Wrong instant of `redated`."""
    reason: str | None = None
    """Code for the reason, with a meaning of its own for each kind."""
    author: str | None = None
    """Author of the fact, such as `token:shop` or `import:3`, if known."""
    replaces: str | None = None
    """Id of the last decision that the author had seen. Id of the item of `redated`."""
    tenders: tuple[Tender, ...] = ()
    """Parts of the price that are not due at a provider."""
    free: bool = False
    """True if the shop says that the order costs nothing."""
    dated: bool = False
    """True if the shop stated `at`."""

    def __hash__(self) -> int:
        return hash(self.record_id)

    @property
    def tendered(self) -> Money | None:
        """Return the sum of the tenders; None if there are no tenders."""
        if self.money is None or not self.tenders:
            return None
        minor = sum([each.money.minor for each in self.tenders])
        return Money(minor=minor, currency=self.money.currency)

    @property
    def due(self) -> Money | None:
        """Return the price less the tenders, but never below zero."""
        tendered = self.tendered
        if self.money is None or tendered is None:
            return self.money
        left = max(0, self.money.minor - tendered.minor)
        return Money(minor=left, currency=self.money.currency)
