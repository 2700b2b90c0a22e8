"""The outcome feed: revisions in publishing order, without gaps, with a wait for the next one."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from app.context.context import AppContext
from app.orders.ledger_store import feed, superseded
from app.orders.published_store import Published, head_of, place_to_read_from
from reconcile.instants import format_instant

__all__ = ["Published", "outcome_document", "read_feed", "read_from", "superseded_of"]

LOOK_AGAIN_S: Final = 0.2
"""How often a waiting reader looks. It costs one indexed read."""


async def read_feed(
    context: AppContext,
    *,
    after: int,
    limit: int,
    wait_s: float,
    gone: Callable[[], bool] = lambda: False,
) -> list[Published]:
    """Revisions after a cursor. Waits up to `wait_s` seconds for the first, then returns none.

    gone  whether nobody waits for them any more
    """
    ends = monotonic() + wait_s
    while True:
        async with context.database.reading() as connection:
            found = await feed(connection, after=after, limit=limit)
        left = ends - monotonic()
        if found or left <= 0 or context.signals.closing.is_set() or gone():
            return found
        await asyncio.sleep(min(LOOK_AGAIN_S, left))


async def superseded_of(context: AppContext, page: Sequence[Published]) -> list[int]:
    """The numbers of those in a page of the feed whose order has a later revision by now.

    Whoever reads from far back would else ship what was paid then and given back since.
    """
    if not page:
        return []
    async with context.database.reading() as connection:
        return await superseded(connection, [each.seq for each in page])


async def read_from(context: AppContext, *, after: int) -> int | None:
    """For a cursor beyond the last place of the feed, the one to read from instead; else None.

    A reader has such a cursor where its database was replaced by an older one, without a word to
    Tallyhook; it would wait for news that will never have so high a number.
    """
    async with context.database.reading() as connection:
        if after <= await head_of(connection):
            return None
        return await place_to_read_from(connection)


def outcome_document(published: Published) -> dict[str, Any]:
    """One entry of the feed as JSON values; the shop's notifications carry the same."""
    before = None
    if published.before_outcome is not None:
        before = {
            "outcome": published.before_outcome,
            "fulfillable": published.before_fulfillable,
        }
    return {
        "id": published.seq,
        "order": published.order,
        "outcome": published.outcome,
        "fulfillable": published.fulfillable,
        "before": before,
        "because": list(published.because),
        "at": format_instant(published.at),
    }
