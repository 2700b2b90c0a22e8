"""Alarm about accepted deliveries that could not be read.

These deliveries were stored and answered with 200, but no ledger includes them until a person
corrects the profile. Other modules count them.
"""

from collections.abc import Mapping
from typing import Final

from app.core.alarm import Alarm
from app.core.text import counted
from reconcile.instants import DAY, Duration

WINDOW: Final[Duration] = 7 * DAY
"""Maximum age of unreadable deliveries that are counted. Somebody looks at alarms at least once a
week. Older deliveries, such as a test from a dashboard, may never become readable."""

DAYS: Final = counted(WINDOW // DAY, "day")

ENOUGH: Final = 1000
"""Number at which the counting of unreadable deliveries stops. There can be very many, because an
error in a profile can make all deliveries unreadable."""


def unread(sources: Mapping[str, int]) -> Alarm | None:
    """Return the alarm about unreadable deliveries; None if there are none.

    sources  number of unreadable deliveries in the last days, counted up to a limit. The keys are
             sources
    """
    count = sum(sources.values())
    if not count:
        return None
    more = " or more" if count >= ENOUGH else ""
    each = ", ".join(f"{number:,} of {name}" for name, number in sorted(sources.items()))
    return Alarm(
        reason="deliveries_unreadable",
        problem=f"In the last {DAYS} "
        f"{counted(count, 'genuine delivery', 'genuine deliveries')}{more} could not be "
        f"read ({each}), so no ledger contains them, and the orders that they name are "
        "held. They were acknowledged, and the provider will not send them again",
        do="find out why with `tallyhook deliveries list --verdict unreadable`, and correct the "
        "profile of the source. Then stop the service, run `tallyhook reindex` and start the "
        "service again",
    )
