"""What was accepted is seen by who asks afterwards: questions on an order wait for the reader."""

from __future__ import annotations

import asyncio
from typing import Final

from app.errors import StoreUnavailable
from app.operations.desk import Desk
from app.store.arrivals.inbox import backlog
from reconcile.instants import SECOND

READ_WITHIN_S: Final = 2.0
"""How long one who asks waits until all has been read that was accepted before the question."""

_PAUSE_S: Final = 0.02
"""Between two looks, where the reader is another process."""


async def behind_s(desk: Desk) -> int:
    """0 once all has been read that was accepted before the call, for which it waits up to
    READ_WITHIN_S; else since how many seconds, at least 1, the oldest of it waits to be read."""
    store = desk.store
    async with store.reading() as connection:
        found = await backlog(connection)
    loop = asyncio.get_running_loop()
    ends, last = loop.time() + READ_WITHIN_S, found.last
    while found.last is not None and loop.time() < ends:
        store.read.clear()
        try:
            async with asyncio.timeout(_PAUSE_S):
                await store.read.wait()
        except TimeoutError:
            pass
        async with store.reading() as connection:
            found = await backlog(connection, up_to=last)
    if found.oldest is None:
        return 0
    return max(1, (desk.clock.now() - found.oldest) // SECOND)


async def must_have_read(desk: Desk) -> None:
    """Raises StoreUnavailable where deliveries that were accepted are still not read."""
    behind = await behind_s(desk)
    if behind:
        raise StoreUnavailable(
            f"deliveries that came {behind} s ago are accepted and not read yet: is "
            "`tallyhook serve` running? Try again when /readyz says that it is ready",
            reason="slow",
        )
