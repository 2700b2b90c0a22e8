"""The merchant's choices that a fold depends on. Durations and instants are microseconds."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from reconcile.canonical import canonical_json
from reconcile.instants import DAY, MINUTE, Duration, Instant
from reconcile.values import frozen

FORM: Final = 3
"""Of `policy_text`; to be raised, once a release, where a choice comes to mean something else than
it did, and where a fold gives another ledger for equal evidence: a database of an earlier form has
every order folded again then."""


@frozen
class Policy:
    """What counts as late, and how long to wait.

    payment_window      from the opening of an attempt to its end, where the service gave no expiry
    grace               added to the window, for the final event's own journey
    late_after          an event that took longer than this to reach us is `delivered_late`
    future_tolerance    an event dated further ahead of its arrival is `dated_in_future`
    fulfillment_window  how long a placed order may be fulfillable without being fulfilled;
                        None: the shop does not report when it ships
    require_order_record_since
                        an order whose earliest evidence came after this is fulfillable only at a
                        price of the shop's own; None: the events' own price will do
    """

    payment_window: Duration = 30 * MINUTE
    grace: Duration = 5 * MINUTE
    late_after: Duration = 5 * MINUTE
    future_tolerance: Duration = 5 * MINUTE
    fulfillment_window: Duration | None = DAY
    require_order_record_since: Instant | None = None


def policy_text(policy: Policy) -> str:
    """One line that is the same for equal policies, and for no others."""
    choices = {each.name: getattr(policy, each.name) for each in fields(policy)}
    return f"v{FORM} {canonical_json(choices).decode()}"
