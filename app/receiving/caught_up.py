"""Wait for unread deliveries, or report their age."""

import asyncio
from typing import Final, Literal

from app.context.context import AppContext
from app.core.errors import NotAllRead
from reconcile.instants import MILLISECOND, SECOND, Duration, Instant, format_duration

READ_WITHIN_S: Final = 2.0
"""Maximum seconds for which a question waits for accepted deliveries."""

SOON_S: Final = 0.1
"""Maximum seconds for which a call that stores a fact waits for deliveries."""

FAR_BEHIND: Final = 200 * MILLISECOND
"""Maximum age of unread deliveries for the patience `short`."""

COPY_LATE: Final[Duration] = 10 * SECOND
"""Age at which a standby's data counts as incomplete."""

_PAUSE_S: Final = 0.02

_COPY_PAUSE_S: Final = 0.1

Patience = Literal["long", "short", "none"]
"""Time for which a request waits for unread deliveries.

`long` is two seconds, `short` a tenth of a second.
"""


async def behind_s(
    context: AppContext, *, as_of: Instant | None = None, patience: Patience = "long"
) -> int:
    """Return the oldest unread delivery's age in seconds; 0 without one."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + (READ_WITHIN_S if patience == "long" else SOON_S)
    context.signals.read.clear()
    found, end = await context.inbox.backlog_and_end()
    while True:
        oldest, now = found.oldest, context.clock.now()
        if oldest is not None and found.is_dated_ahead(now):
            # Its arrival time is unknown.
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


async def _copy_behind_s(context: AppContext, asked: Instant) -> int:
    ends = asyncio.get_running_loop().time() + COPY_LATE / SECOND
    while context.database.shared:
        copied = (await context.inbox.backlog()).copied_up_to
        if copied is None or copied >= asked:
            break
        if asyncio.get_running_loop().time() >= ends:
            return max(1, (context.clock.now() - copied) // SECOND)
        await asyncio.sleep(_COPY_PAUSE_S)
    return 0


async def must_have_read(context: AppContext, *, as_of: Instant | None = None) -> None:
    """Raise NotAllRead if an earlier delivery is unread."""
    asked = context.clock.now() if as_of is None else as_of
    behind = await _copy_behind_s(context, asked) or await behind_s(context, as_of=as_of)
    if behind:
        lags = ", or this standby lags behind its primary"
        raise NotAllRead(
            "accepted deliveries have been unread for "
            f"{spoken_age(behind)}{lags if context.database.shared else ''}: check that "
            "`tallyhook serve` runs. Try again when /readyz reports that the service is ready"
        )


def spoken_age(behind: int) -> str:
    """Return an age as text for people.

    behind  age in seconds
    """
    return format_duration(behind * SECOND)


def unread_notice(behind: int) -> str:
    """Return a warning about unread deliveries."""
    return (
        f"Deliveries up to {spoken_age(behind)} old may not have been read yet: this answer may "
        "lack them, and missing orders may have arrived. Try again later."
    )
