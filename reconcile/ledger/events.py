"""Events from providers, and the deliveries that brought them.

Leaves out: headers, signatures and raw bytes. A Delivery is built only after verification.
"""

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

said         the event is covered by a signature
unconfirmed  the signature covers too little, or does not say whose event it is
fetched      read from the provider's API to confirm an unconfirmed event
answered     read from the API like `fetched`, but the API states no amount. The amount of the
             unconfirmed event is used
"""

UNCLEAR_AMOUNT: Final = "amount"

UNKNOWN_METHOD: Final = "unknown"
"""Value of `method` for a slow payment whose method the event does not name."""

ANSWERS: Final[frozenset[Standing]] = frozenset(("fetched", "answered"))

UNCONFIRMED: Final[Standing] = "unconfirmed"
"""Standing of an event that nothing has confirmed. Such an event can only make an order pending."""

Shop = Literal["ours", "other", "unstated"]
"""Shop of an event's payment. Used only if the source's settings ask for the shop."""

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
"""Kinds of the parts of an amount.

base               the part that pays the price
discount           a discount that the shop gives
financed_discount  a discount that the provider pays
presented          the whole amount in the customer's currency

The other kinds are paid on top of the price.
"""

PART_KINDS: Final[tuple[PartKind, ...]] = get_args(PartKind)

StateMember = Literal["captured", "refunded", "charged_back", "refund", "chargeback"]
"""Members of a payment's position. The first three are sums. `refund` and `chargeback` are single
movements, each with a reference."""

STATE_MEMBERS: Final[tuple[StateMember, ...]] = get_args(StateMember)

StateWord = Literal["done", "pending", "undone"]

STATE_WORDS: Final[tuple[StateWord, ...]] = get_args(StateWord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a captured amount that the provider states separately."""

    kind: PartKind
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One statement of a fetched provider answer about a payment's position.

    member     subject of the statement, such as the captured sum or a single refund
    reference  reference of a single refund or chargeback
    at         date that the provider gave
    """

    member: StateMember
    word: StateWord = "done"
    money: Money | None = None
    reference: str | None = None
    at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact from the provider, keyed by (source, event_id, digest).

    digest          SHA-256 of the raw body, 64 hex digits
    kind            the provider's name of the event type, such as `payment.succeeded`
    claim           what that kind means for an attempt
    occurred_at     the provider's date; None if it gave none
    order, session, payment
                    references of what the event is about
    movement        reference of the refund or dispute
    capture         reference of the capture, if the provider takes a payment in several parts
    money           amount captured, refunded or disputed; never negative
    order_money     price of the whole order, according to the event
    refunded_total  running total of refunds on the payment
    reason          the provider's code for a failure, such as `insufficient_funds`
    unclear         the text `amount` if an amount cannot be read exactly; else None
    method          class of the slow payment method, as the profile calls it. UNKNOWN_METHOD if the
                    method is slow, but the event does not name it; None if the method is not slow
    expected_by     latest time by which the provider should say how a pending slow payment ended;
                    None if the event has no date to count from
    revocable_days  number of calendar days after the capture during which the customer can revoke
                    the payment
    shop            shop that the payment belongs to; None if the event's source does not ask
    suggested       order that the event names without linking its payment to the order
    agreement       reference of the subscription or billing agreement that the payment renews
    standalone      whether the refund or payout belongs to no payment
    parts           parts of the amount that the provider names
    states          what a fetched answer states about the payment's position
    stated_at       the provider's date of the version of `states`
    standing        how far the event can be trusted; an `unconfirmed` event always claims `pending`
    """

    source: str
    event_id: str
    digest: str
    kind: str
    claim: ClaimKind
    occurred_at: Instant | None = None
    order: str | None = None
    session: str | None = None
    payment: str | None = None
    movement: str | None = None
    capture: str | None = None
    money: Money | None = None
    order_money: Money | None = None
    refunded_total: Money | None = None
    reason: str | None = None
    standing: Standing = "said"
    unclear: str | None = None
    method: str | None = None
    expected_by: Instant | None = None
    revocable_days: int | None = None
    shop: Shop | None = None
    suggested: str | None = None
    agreement: str | None = None
    standalone: bool = False
    parts: tuple[Part, ...] = ()
    states: tuple[State, ...] = ()
    stated_at: Instant | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (source, event_id, digest). Events with equal keys are the same event."""
        return (self.source, self.event_id, self.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One verified HTTP arrival of an event. A redelivery is another delivery of the same event.

    received_at  when the last byte of the request arrived
    """

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
"""Words in a kind's name that suggest returned or reclaimed money."""

_TWO_WORDS: Final = frozenset(
    (("charge", "back"), ("charged", "back"), ("claw", "back"), ("clawed", "back"))
)

KINDS_REMEMBERED: Final = 1_024
"""Number of kinds that are cached. They take about 200 kB."""

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
    """Return whether a kind of event contains a word of RETURNS in any grammatical form."""
    parts = [part.lower() for part in _PARTS.findall(kind)]
    return not _WORDS.isdisjoint(parts) or not _TWO_WORDS.isdisjoint(pairwise(parts))
