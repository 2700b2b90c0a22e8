"""The outcome feed: revisions in publishing order, without gaps, with a wait for the next one."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from app.operations.desk import Desk
from app.store.ledgers import Published, feed

__all__ = ["Published", "read_feed"]

LOOK_AGAIN_S: Final = 0.2
"""How often a waiting reader looks. It costs one indexed read."""


async def read_feed(desk: Desk, *, after: int, limit: int, wait_s: float) -> list[Published]:
    """Revisions after a cursor. Waits up to `wait_s` seconds for the first, then returns none."""
    ends = monotonic() + wait_s
    while True:
        async with desk.store.reading() as connection:
            found = await feed(connection, after=after, limit=limit)
        left = ends - monotonic()
        if found or left <= 0 or desk.store.closing.is_set():
            return found
        await asyncio.sleep(min(LOOK_AGAIN_S, left))
