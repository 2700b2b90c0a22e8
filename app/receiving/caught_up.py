"""Waits for accepted deliveries to be read, and tells how old the oldest unread one is.

A delivery counts as unread where it was accepted before the question, and is still unread two
seconds later. Questions about one order wait that long, lists and pages do not wait, and what
cannot be taken back is refused.
"""

import asyncio
from typing import Final, Literal

from app.context.context import AppContext
from app.core.errors import NotAllRead
from reconcile.instants import MILLISECOND, SECOND, Duration, Instant, format_duration

READ_WITHIN_S: Final = 2.0
"""Seconds after which a delivery that is still unread counts as unread; a question about one order
waits as long."""

SOON_S: Final = 0.1
"""Seconds that one who states something of an order waits, and hears how it stands then: beside a
burst, whose end is seconds away, no call is to take long."""

FAR_BEHIND: Final = 200 * MILLISECOND
"""Age of the oldest unread delivery from which such a call does not wait at all: the reader is at
work on more than it could wait for."""

COPY_LATE: Final[Duration] = 10 * SECOND
"""Age of the newest commit on a standby from which its copy counts as incomplete: two beats of the
reader, which commits one every five seconds where nothing comes."""

_PAUSE_S: Final = 0.02
"""Pause between two looks, where the reader is another process."""

Patience = Literal["long", "short", "none"]
"""Patience of a question: up to READ_WITHIN_S; up to SOON_S; or not at all, so that it counts only
deliveries that are older than READ_WITHIN_S."""


async def behind_s(
    context: AppContext, *, as_of: Instant | None = None, patience: Patience = "long"
) -> int:
    """Return the age of the oldest unread delivery in seconds, at least 1; 0 where none is unread.

    Every answer about orders, and every refusal to give one, rests on this one decision. A standby
    that lags behind its primary lacks what was committed since: its age is that of its copy.

    as_of  the instant whose knowledge is asked for: later arrivals do not matter; None: now
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + (READ_WITHIN_S if patience == "long" else SOON_S)
    context.signals.read.clear()
    found, end = await context.inbox.backlog_and_end()
    while True:
        oldest, now = found.oldest, context.clock.now()
        if oldest is not None and found.is_dated_ahead(now):
            # Nobody knows when that came.
            oldest = Instant(min(oldest, now - round(READ_WITHIN_S * SECOND)))
        if found.copied_up_to is not None and now - found.copied_up_to >= COPY_LATE:
            oldest = min(found.copied_up_to, now if oldest is None else oldest)
        if oldest is None or (as_of is not None and oldest > as_of):
            return 0
        behind = now - oldest
        if patience == "none":
            return behind // SECOND if behind >= READ_WITHIN_S * SECOND else 0
        if loop.time() >= ends or (behind >= FAR_BEHIND and patience == "short"):
            return max(1, behind // SECOND)
        try:
            async with asyncio.timeout(_PAUSE_S):
                await context.signals.read.wait()
        except TimeoutError:
            pass
        context.signals.read.clear()
        found = await context.inbox.backlog(up_to=end)


async def must_have_read(context: AppContext, *, as_of: Instant | None = None) -> None:
    """Raise NotAllRead where deliveries are unread; `as_of` as above."""
    behind = await behind_s(context, as_of=as_of)
    if behind:
        lags = ", or this is a standby that lags behind its primary"
        raise NotAllRead(
            f"deliveries that came {spoken_age(behind)} ago are accepted and not read yet"
            f"{lags if context.database.shared else ''}: is `tallyhook serve` running? Try again "
            "when /readyz says that it is ready"
        )


def spoken_age(behind: int) -> str:
    """Return an age in seconds for people."""
    return format_duration(behind * SECOND)


def unread_notice(behind: int) -> str:
    """Return the sentence that an answer about orders may lack the oldest unread delivery."""
    return (
        f"Deliveries that came up to {spoken_age(behind)} ago may not be read yet: what is said of "
        "orders here may lack them, and what is not here may have come. Ask again later."
    )
