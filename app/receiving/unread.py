"""Judgement of unread deliveries: whether genuine ones could not be read, by their number.

Leaves out: how they are counted. They are kept, and their provider got its 200 for them;
what they say of anybody's money is in no ledger until a person corrects the profile.
"""

from collections.abc import Mapping
from typing import Final

from app.core.alarm import Alarm
from app.core.text import counted
from reconcile.instants import DAY, Duration

WINDOW: Final[Duration] = 7 * DAY
"""How far back is looked. In a week somebody has been at work. What was not corrected by then may
never be, such as a trial that a dashboard sent, and nobody heeds an alarm that never ends."""

DAYS: Final = counted(WINDOW // DAY, "day")
"""The same, for people."""

ENOUGH: Final = 1000
"""How many are counted, the latest ones: one mistake in a profile may make every delivery one."""


def unread(sources: Mapping[str, int]) -> Alarm | None:
    """Return the alarm about unreadable deliveries; None without any.

    sources  how many there are of each source within WINDOW, counted up to ENOUGH in all
    """
    count = sum(sources.values())
    if not count:
        return None
    more = " or more" if count >= ENOUGH else ""
    each = ", ".join(f"{number:,} of {name}" for name, number in sorted(sources.items()))
    return Alarm(
        reason="deliveries_unreadable",
        sentence=f"In the last {DAYS} {counted(count, 'genuine delivery', 'genuine deliveries')}"
        f"{more} could not be read ({each}), so no ledger knows what they say, and the orders "
        "that they name are held. They were "
        "acknowledged, and the provider will not send them again: see why with `tallyhook "
        "deliveries list --verdict unreadable`, correct the profile of the source, stop the "
        "service, run `tallyhook reindex` and start it again.",
    )
