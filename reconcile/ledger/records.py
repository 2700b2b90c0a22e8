"""What the merchant's side did or knows about an order, each fact once and for ever.

Leaves out: any judgement. A correction is a later record; none is ever changed.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.money import Money
from reconcile.values import frozen

RecordKind = Literal[
    "order_placed",
    "order_canceled",
    "order_fulfilled",
    "session_requested",
    "session_opened",
    "session_refused",
    "session_unknown",
    "reference_named",
    "held",
    "released",
]
"""The closed vocabulary of the merchant's side. `session_unknown`: sent, and no answer came.
`reference_named`: the shop says that a session or payment is this order's. `held`: the order is not
to be fulfilled, whatever is known of it, until a `released` of the same reason comes after it."""

HoldReason = Literal["rules_changed", "poisoned_delivery"]
"""Why an order is held: only new rules made it fulfillable; a delivery of it cannot be read yet."""

HOLD_REASONS: Final[tuple[HoldReason, ...]] = get_args(HoldReason)

STILL_ASKING: Final = "still_asking"
"""The reason of a `session_unknown` that settles itself: the service is asked again by itself."""

RECORD_KINDS: Final[tuple[RecordKind, ...]] = get_args(RecordKind)


@frozen
class Record:
    """One fact from the merchant's side.

    recorded_at  our knowledge: when it was written down here
    at           when it happened, as the merchant's side says
    money        what the whole order costs (order_placed, session_requested); what the payments of
                 a session are to bring (reference_named)
    source       the provider account a session or payment belongs to
    key          idempotency key of the logical payment a session record speaks of
    session      the service's reference of the session
    payment      the provider's reference of the payment (reference_named)
    expires_at   the session's own expiry, where the service gave one
    reason       the service's words for a refusal; STILL_ASKING of a session that is unknown so
                 far; a HoldReason of `held` and `released`
    author       who stated it, such as `token:shop` or `import:3`; None of what nobody noted
    """

    record_id: str
    recorded_at: Instant
    kind: RecordKind
    order: str
    at: Instant
    money: Money | None = None
    source: str | None = None
    key: str | None = None
    session: str | None = None
    payment: str | None = None
    expires_at: Instant | None = None
    reason: str | None = None
    author: str | None = None

    def __hash__(self) -> int:
        return hash(self.record_id)
