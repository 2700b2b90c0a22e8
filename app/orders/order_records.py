"""Since when an order needs a price of the shop's own to be fulfillable.

The first start with the rule on notes its instant, and the rule holds for orders that were first
heard of after it: what was shipped before is not called in question. The instant then stays, in
whichever order processes start. A start with the rule off lets go of it, so that switched on again
the rule begins again: orders of the time between were judged, and shipped, without it.

Commands note nothing: with the rule on they judge by the instant there is.
"""

from __future__ import annotations

import structlog

from app.core.clock import Clock
from app.orders.policy_version_store import forget_required, note_required, required_since
from app.receiving.store import Store
from reconcile.instants import Instant

log = structlog.get_logger()


async def in_force_since(store: Store, *, required: bool) -> Instant | None:
    """The instant by which orders are judged; None where the rule is off, or never began."""
    if not required:
        return None
    async with store.reading() as connection:
        return await required_since(connection)


async def start_requiring(store: Store, *, required: bool, clock: Clock) -> Instant | None:
    """The same for a process that starts to serve, which notes the instant or lets go of it."""
    async with store.reading() as connection:
        since = await required_since(connection)
    if required and since is None:
        async with store.writing() as connection:
            await note_required(connection, now=clock.now())
            since = await required_since(connection)
        log.info("from now on orders are fulfillable only at a price of the shop's own")
    elif not required and since is not None:
        async with store.writing() as connection:
            await forget_required(connection)
        log.warning(
            "orders do not need a price of the shop's own any more; switched on again, that holds "
            "for orders first heard of after that"
        )
    return since if required else None
