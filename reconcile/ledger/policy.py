"""Settings of the shop that the computation of a ledger depends on."""

from dataclasses import dataclass, fields
from typing import Final

from reconcile.canonical import canonical_json
from reconcile.instants import DAY, MINUTE, Duration, Instant

FORM: Final = 4
"""Version number of the policy text and of the folding rules.

A new number makes the program fold all orders again. Increase it at most once a release.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Deadlines and tolerances for computing a ledger, in microseconds."""

    payment_window: Duration = 30 * MINUTE
    """Time that an attempt can take without a stated expiry."""
    grace: Duration = 5 * MINUTE
    """Time added to the window."""
    late_after: Duration = 5 * MINUTE
    """Delay of arrival beyond which an event is `delivered_late`."""
    future_tolerance: Duration = 5 * MINUTE
    """Time by which an event's date can be later than its arrival."""
    fulfillment_window: Duration | None = DAY
    """Time that a placed order can wait. None if the shop does not report it."""
    refund_window: Duration = 10 * DAY
    """Time that a refund can be pending before it is overdue."""
    require_order_record_since: Instant | None = None
    """Orders begun after this instant need a price from the shop. None for none."""
    mismatch_held: tuple[str, ...] = ()
    """Sources whose payments are doubted if the order number alone links them and the amount is no
    price."""
    provider_discount_percent: int = 0
    """Largest percentage of the price that the shop's discount may take off."""


def policy_text(policy: Policy) -> str:
    """Return the policy as one line of text. Different policies have different texts."""
    choices = {each.name: getattr(policy, each.name) for each in fields(policy)}
    return f"v{FORM} {canonical_json(choices).decode()}"
