"""Types for verified events from providers, and for their deliveries."""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.money import Money

ClaimKind = Literal[
    "pending",
    "authorized",
    "succeeded",
    "declined",
    "canceled",
    "expired",
    "timed_out",
    "refunded",
    "refund_pending",
    "refund_failed",
    "reversed",
    "disputed",
    "dispute_won",
    "dispute_lost",
    "unrecognized",
    "ignored",
]

CLAIM_KINDS: Final[tuple[ClaimKind, ...]] = get_args(ClaimKind)

FOLLOWS_SUCCESS: Final[frozenset[ClaimKind]] = frozenset(
    (
        "refunded",
        "refund_pending",
        "refund_failed",
        "reversed",
        "disputed",
        "dispute_won",
        "dispute_lost",
    )
)

Standing = Literal["said", "unconfirmed", "fetched", "answered"]
"""Degree of trust in an event.

said         a signature covers the event
unconfirmed  the signature covers too little
fetched      read from the provider's API
answered     read from an API that states no amount, so that the event's amount counts
"""

UNCLEAR_AMOUNT: Final = "amount"

UNKNOWN_METHOD: Final = "unknown"
"""Value of `method` for a slow payment with an unknown method."""

ANSWERS: Final[frozenset[Standing]] = frozenset(("fetched", "answered"))

UNCONFIRMED: Final[Standing] = "unconfirmed"
"""Trust level of an event that nothing has confirmed.

Such an event can only make an order pending.
"""

Shop = Literal["ours", "other", "unstated"]
"""Shop to which an event's payment belongs."""

PartKind = Literal[
    "base",
    "tip",
    "fee",
    "surcharge",
    "donation",
    "tax",
    "shipping",
    "discount",
    "financed_discount",
    "presented",
]
"""Kinds of the parts that make up a captured amount.

base               part that pays the price
discount           discount that the shop gives
financed_discount  discount that the provider pays
presented          the whole amount in the customer's currency
"""

PART_KINDS: Final[tuple[PartKind, ...]] = get_args(PartKind)

StateMember = Literal["captured", "refunded", "charged_back", "refund", "chargeback"]
"""Subjects of a provider's statement about a payment.

`captured`, `refunded` and `charged_back` are sums. The others are single movements.
"""

STATE_MEMBERS: Final[tuple[StateMember, ...]] = get_args(StateMember)

StateWord = Literal["done", "pending", "undone"]

STATE_WORDS: Final[tuple[StateWord, ...]] = get_args(StateWord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of a captured amount that the provider states separately, such as a tip."""

    kind: PartKind
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One statement about a payment in a provider's answer."""

    member: StateMember
    word: StateWord = "done"
    money: Money | None = None
    reference: str | None = None
    """Reference of the single refund or chargeback."""
    at: Instant | None = None
    """Date that the provider gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact from the provider, identified by source, event id and digest."""

    source: str
    event_id: str
    digest: str
    """SHA-256 of the raw body, 64 hex digits."""
    kind: str
    """The provider's name of the event type."""
    claim: ClaimKind
    """Meaning of the kind for a payment attempt."""
    occurred_at: Instant | None = None
    """The provider's date, if given."""
    order: str | None = None
    session: str | None = None
    payment: str | None = None
    movement: str | None = None
    """Reference of the refund or dispute."""
    capture: str | None = None
    """Reference of the capture, if there can be several."""
    money: Money | None = None
    """Amount captured, refunded or disputed. Never negative."""
    order_money: Money | None = None
    """Price of the whole order, according to the event."""
    refunded_total: Money | None = None
    """Running total of refunds on the payment."""
    reason: str | None = None
    """The provider's code for a failure."""
    standing: Standing = "said"
    """Degree of trust. An unconfirmed event always claims `pending`."""
    unclear: str | None = None
    """`amount` if an amount cannot be read exactly."""
    method: str | None = None
    """Class of the slow payment method. None if not slow."""
    expected_by: Instant | None = None
    """Latest time by which a pending slow payment should have ended."""
    revocable_days: int | None = None
    """Calendar days after the capture during which the customer can revoke it."""
    shop: Shop | None = None
    """Owner of the payment. None if the source's settings do not ask."""
    suggested: str | None = None
    """Order that the event mentions without linking its payment to it."""
    agreement: str | None = None
    """Subscription or billing agreement that the payment renews."""
    standalone: bool = False
    """True if the refund or payout belongs to no payment."""
    parts: tuple[Part, ...] = ()
    states: tuple[State, ...] = ()
    stated_at: Instant | None = None
    """The provider's date of the payment's version in `states`."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the key that identifies the event."""
        return (self.source, self.event_id, self.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One verified HTTP request that brought an event."""

    delivery_id: str
    received_at: Instant
    event: Event

    def __hash__(self) -> int:
        return hash(self.delivery_id)


RETURNS: Final = (
    "refund",
    "reversal",
    "reverse",
    "chargeback",
    "dispute",
    "void",
    "return",
    "clawback",
    "fraud",
    "retrieval",
    "mediation",
    "inquiry",
    "enquiry",
)
"""Words in the name of an event kind that suggest returned or reclaimed money."""

_TWO_WORDS: Final = frozenset(
    (("charge", "back"), ("charged", "back"), ("claw", "back"), ("clawed", "back"))
)

KINDS_REMEMBERED: Final = 1_024
"""Maximum number of event kinds in the cache. The cache takes about 200 kB."""

_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _forms(word: str) -> frozenset[str]:
    stem = word[:-1] if word.endswith("e") else word
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return frozenset((word, plural, stem + "ed", stem + "ing", stem + "able"))


_WORDS: Final = frozenset(form for word in RETURNS for form in _forms(word)) | {
    "fraudulent",
    "chargedback",
}


@lru_cache(maxsize=KINDS_REMEMBERED)
def speaks_of_money_going_back(kind: str) -> bool:
    """Check whether a kind's name suggests that money went back."""
    parts = [part.lower() for part in _PARTS.findall(kind)]
    return not _WORDS.isdisjoint(parts) or not _TWO_WORDS.isdisjoint(pairwise(parts))
