"""Settings of the merchant that a fold depends on. Durations and instants are microseconds."""

from dataclasses import dataclass, fields
from typing import Final

from reconcile.canonical import canonical_json
from reconcile.instants import DAY, MINUTE, Duration, Instant

FORM: Final = 4
"""Version of `policy_text`.

Raise it, once a release, if a setting changes its meaning or if a fold gives another ledger for
equal evidence: a database with an earlier version then folds every order again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Deadlines and tolerances of a fold.

    payment_window      from the start of an attempt to its end, if the provider gave no expiry
    grace               added to the window, because the final event takes time to arrive
    late_after          an event that took longer to arrive is `delivered_late`
    future_tolerance    an event dated further ahead of its arrival is `dated_in_future`
    fulfillment_window  how long a placed order may be fulfillable without being fulfilled;
                        None: the shop does not report when it ships
    refund_window       a refund under way for longer is overdue at the provider
    require_order_record_since
                        an order whose earliest evidence came later is fulfillable only at a price
                        stated by the shop; None: the price of the events is enough
    mismatch_held       sources of which a payment that only its order number links is in doubt
                        unless its amount is a price of the order
    provider_discount_percent
                        how much of the price a discount that the shop gave at the provider may
                        take off, from 0 to 100
    """

    payment_window: Duration = 30 * MINUTE
    grace: Duration = 5 * MINUTE
    late_after: Duration = 5 * MINUTE
    future_tolerance: Duration = 5 * MINUTE
    fulfillment_window: Duration | None = DAY
    refund_window: Duration = 10 * DAY
    require_order_record_since: Instant | None = None
    mismatch_held: tuple[str, ...] = ()
    provider_discount_percent: int = 0


def policy_text(policy: Policy) -> str:
    """Return one line of text that is equal for equal policies only."""
    choices = {each.name: getattr(policy, each.name) for each in fields(policy)}
    return f"v{FORM} {canonical_json(choices).decode()}"
