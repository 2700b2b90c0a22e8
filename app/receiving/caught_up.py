"""What was accepted is seen by who asks afterwards: questions on an order wait for the reader."""

import asyncio
from typing import Final

from app.context.context import AppContext
from app.core.errors import StoreUnavailable
from reconcile.instants import MILLISECOND, SECOND

READ_WITHIN_S: Final = 2.0
"""How long one who asks waits until all has been read that was accepted before the question."""

SOON_S: Final = 0.1
"""The same for one who says something of an order, and hears how it stands then: beside a burst,
whose end is seconds away, no call is to take that long."""

FAR_BEHIND: Final = 200 * MILLISECOND
"""Where the reader is behind by as much, it is at work on more than such a call could wait for: the
call does not wait at all."""

_PAUSE_S: Final = 0.02
"""Between two looks, where the reader is another process."""


async def behind_s(context: AppContext, *, patient: bool = True) -> int:
    """0 once all has been read that was accepted before the call, for which it waits up to
    READ_WITHIN_S; else since how many seconds, at least 1, the oldest of it waits to be read.
    Without patience it waits up to SOON_S, and not at all where that is FAR_BEHIND."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + (READ_WITHIN_S if patient else SOON_S)
    context.signals.read.clear()
    found, end = await context.inbox.backlog_and_end()
    while True:
        if found.oldest is None:
            return 0
        behind = context.clock.now() - found.oldest
        if loop.time() >= ends or (behind >= FAR_BEHIND and not patient):
            return max(1, behind // SECOND)
        try:
            async with asyncio.timeout(_PAUSE_S):
                await context.signals.read.wait()
        except TimeoutError:
            pass
        context.signals.read.clear()
        found = await context.inbox.backlog(up_to=end)


async def must_have_read(context: AppContext) -> None:
    """Raises StoreUnavailable where deliveries that were accepted are still not read."""
    behind = await behind_s(context)
    if behind:
        raise StoreUnavailable(
            f"deliveries that came {behind} s ago are accepted and not read yet: is "
            "`tallyhook serve` running? Try again when /readyz says that it is ready",
            reason="slow",
        )
