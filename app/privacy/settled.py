"""Which orders are over, so that what their money rests on may be let go."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from app.privacy.retention import Retention
from app.receiving.context import Desk
from reconcile.instants import Duration, Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Outcome
from reconcile.ledger.settle import is_settled

log = structlog.get_logger()


def ended_orders(
    desk: Desk,
    histories: Mapping[str, History],
    retention: Retention,
    *,
    now: Instant,
    quiet: Duration,
) -> dict[str, Outcome]:
    """The outcomes of those orders that are settled, and whose sources are all known."""
    found: dict[str, Outcome] = {}
    for order, history in histories.items():
        if any(each.event.source not in retention.sources for each in history.deliveries):
            continue
        try:
            ledger = fold(history, policy=desk.policy, as_of=history.instant_at(now))
        except Exception as error:
            log.error("an order cannot be folded", order=order, exc_info=error)
            continue
        if is_settled(history, ledger, quiet=quiet):
            found[order] = ledger.outcome
    return found
