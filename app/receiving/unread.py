"""Alarm about accepted deliveries that could not be read."""

from collections.abc import Mapping
from typing import Final

from app.core.alarm import Alarm
from app.core.text import counted
from reconcile.instants import DAY, Duration

WINDOW: Final[Duration] = 7 * DAY
"""Maximum age of counted unreadable deliveries."""

DAYS: Final = counted(WINDOW // DAY, "day")

ENOUGH: Final = 1000
"""Number at which the counting of unreadable deliveries stops."""


def unread(sources: Mapping[str, int]) -> Alarm | None:
    """Return the alarm about unreadable deliveries, if any."""
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
