"""What a provider said: events, and the deliveries that brought them.

Leaves out: headers, signatures and raw bytes. Whoever builds a Delivery has verified it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.money import Money
from reconcile.values import frozen

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
"""The closed vocabulary of what one event can say of one attempt."""

CLAIM_KINDS: Final[tuple[ClaimKind, ...]] = get_args(ClaimKind)

Standing = Literal["said", "unconfirmed", "fetched", "answered"]
"""What an event's word is worth: `said` under a signature that covers it; `unconfirmed`, sent by
a provider whose signature covers too little, or does not say whose event it is; `fetched`, read at
the provider in answer to that; `answered`, the same where the answer states no amount, so that the
amount is the word of the event that was asked about."""

ANSWERS: Final[frozenset[Standing]] = frozenset(("fetched", "answered"))
"""What the provider said when it was asked."""

UNCONFIRMED: Final[Standing] = "unconfirmed"
"""What can make an order pending, and nothing else."""


@frozen
class Event:
    """One fact from the provider, keyed by (source, event_id, digest).

    digest       SHA-256 of the raw body, 64 hex digits
    kind         the provider's own word, such as `payment.succeeded`
    claim        what that word means for an attempt
    occurred_at  when the provider says it happened; None where it gave no date
    order, session, payment
                 references; those that are present correlate the event
    movement     the refund's or dispute's own reference
    capture      the capture's own reference, where the provider takes a payment in several parts
    money        what the event says moved, or is refunded or disputed; zero or more
    order_money  what the event says the whole order costs
    refunded_total
                 a sum: what the event says has been refunded of the payment so far
    reason       the provider's own code for a failure, such as `insufficient_funds`
    standing     what its word is worth; the claim of an `unconfirmed` event is `pending`, whatever
                 its kind says, until the provider's own answer is there as an event of its own
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

    @property
    def key(self) -> tuple[str, str, str]:
        """(source, event_id, digest): what makes two events the same event."""
        return (self.source, self.event_id, self.digest)

    def __hash__(self) -> int:
        return hash(self.digest)


@frozen
class Delivery:
    """One verified HTTP arrival of an event. Redeliveries are deliveries of the same event.

    received_at is our knowledge: when the last byte of the request was here.
    """

    delivery_id: str
    received_at: Instant
    event: Event

    def __hash__(self) -> int:
        return hash(self.delivery_id)


# --- whether a kind that no profile knows speaks of money going back ------------------------------


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
"""Words for money that goes back, or that somebody asks to have back."""

_TWO_WORDS: Final = frozenset(
    (("charge", "back"), ("charged", "back"), ("claw", "back"), ("clawed", "back"))
)

KINDS_REMEMBERED: Final = 1_024
"""Kinds whose words were looked at, about 200 kB."""

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
    """Whether a whole word of this kind is one for money going back, in any of its forms."""
    parts = [part.lower() for part in _PARTS.findall(kind)]
    return not _WORDS.isdisjoint(parts) or not _TWO_WORDS.isdisjoint(pairwise(parts))
