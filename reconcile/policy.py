"""The merchant's choices that a fold depends on. Durations are microseconds."""

from __future__ import annotations

from reconcile.instants import DAY, MINUTE, Duration
from reconcile.values import frozen


@frozen
class Policy:
    """What counts as late, and how long to wait.

    payment_window      from the opening of an attempt to its end, where the service gave no expiry
    grace               added to the window, for the final event's own journey
    late_after          an event that took longer than this to reach us is `delivered_late`
    future_tolerance    an event dated further ahead of its arrival is `dated_in_future`
    fulfillment_window  how long a placed order may be fulfillable without being fulfilled;
                        None: the shop does not tell us when it ships
    """

    payment_window: Duration = 30 * MINUTE
    grace: Duration = 5 * MINUTE
    late_after: Duration = 5 * MINUTE
    future_tolerance: Duration = 5 * MINUTE
    fulfillment_window: Duration | None = DAY
