"""Alarms about few deliveries, and payments without an order."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from app.core.alarm import Alarm
from app.core.text import counted
from reconcile import instants
from reconcile.instants import Instant

EXPECTED: Final = 10
"""Minimum number of usual deliveries for an alarm about silence."""

DAYS: Final = 7
"""Number of past days with which a silence is compared."""

LONGEST: Final[instants.Duration] = instants.DAY
"""Longest time span in which deliveries are counted."""

SESSIONS: Final = 3
"""Minimum number of open sessions without events for an alarm."""

SESSION_WAIT: Final[instants.Duration] = 15 * instants.MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Facts about the deliveries that have arrived until `now`."""

    now: Instant
    last: Instant | None
    """Arrival of the last verified delivery. None if none has arrived yet."""
    usual: Sequence[int]
    """Deliveries of each of the last seven days in the equal span of the day, most recent first.
    Counting stops at ten."""
    sessions: Sequence[Instant]
    """Times at which the first three sessions after `last` were opened, oldest first."""


_DO: Final = "check the provider's dashboard, and `tallyhook deliveries list` for refused ones"


def silence(arrivals: Arrivals) -> Alarm | None:
    """Return an alarm if too few deliveries arrive, or None."""
    since = "ever" if arrivals.last is None else f"since {instants.format_instant(arrivals.last)}"
    waits = arrivals.sessions and arrivals.now - arrivals.sessions[0] >= SESSION_WAIT
    if waits and len(arrivals.sessions) >= SESSIONS:
        return Alarm(
            reason="sessions_without_events",
            problem=f"Sessions were opened, but no verified event has come {since}",
            do=_DO,
        )
    if arrivals.last is not None and usual_of(arrivals.usual) >= EXPECTED:
        return Alarm(
            reason="usual_events_missing",
            problem=f"No verified event has come {since}, although {EXPECTED} or more are usual",
            do=_DO,
        )
    return None


def usual_of(days: Sequence[int]) -> float:
    """Return how many deliveries to expect; 0 for fewer than seven days.

    The last element of `days` is the day a week ago.
    """
    return min(median(days), days[-1]) if len(days) == DAYS else 0


PATIENCE: Final[instants.Duration] = instants.HOUR
"""Minimum age of examined payments."""

WINDOW: Final[instants.Duration] = 7 * instants.DAY
"""Duration of the alarm about payments without an order."""

LEAST: Final = 3
"""Minimum number of payments without an order for an alarm.

This limit holds if no payment ever had an order.
"""

MOST: Final = 20
"""Number of payments without an order for an alarm."""

LOOKED_AT: Final = 1_000
"""Number of latest deliveries, of all sources, among which payments are searched."""


class Paid(NamedTuple):
    """Event that states a successful payment."""

    source: str
    payment: str
    """Key that all events of one payment share."""
    delivery_id: str
    received_at: Instant
    tied: bool
    """True if it belongs to an order."""


class Seen(NamedTuple):
    """Recent successful payments of all sources."""

    now: Instant
    paid: Iterable[Paid]
    """Payments, latest first, without the last hour's."""
    whole: bool
    """True if `paid` has every payment that ever came."""
    tied_since: Set[str]
    """Sources that recently had a payment with an order."""


def no_order(seen: Seen) -> Alarm | None:
    """Return an alarm about a source's payments without orders."""
    sources: dict[str, dict[str, Paid]] = {}
    for paid in seen.paid:
        payments = sources.setdefault(paid.source, {})
        latest = payments.setdefault(paid.payment, paid)
        payments[paid.payment] = latest._replace(tied=latest.tied or paid.tied)
    untied = {
        source: found
        for source, payments in sorted(sources.items())
        if source not in seen.tied_since and (found := _untied([*payments.values()], seen))
    }
    if not untied:
        return None
    each = ", ".join(
        f"{len(found)} at {source}, the last one delivery {found[0].delivery_id}"
        for source, found in untied.items()
    )
    count = sum(map(len, untied.values()))
    return Alarm(
        reason="payments_of_no_order",
        problem=f"The last {counted(count, 'payment')} that succeeded ({each}) belong to no "
        "order, so no ledger has their money",
        do="find the order's reference in one of these payments with `tallyhook deliveries show`. "
        "Name the member that holds the reference as `order` in the source's profile. Then stop "
        "the service, run `tallyhook reindex` and start the service again. If the events name "
        "only a session, open sessions through this service, which stores the order of each "
        "session",
        pressing=False,
    )


def _untied(payments: Sequence[Paid], seen: Seen) -> Sequence[Paid]:
    never_tied = seen.whole and not any(paid.tied for paid in payments)
    latest = payments[:MOST]
    if len(latest) < (LEAST if never_tied else MOST) or any(paid.tied for paid in latest):
        return ()
    return latest if seen.now - latest[0].received_at <= WINDOW else ()
