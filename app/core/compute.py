"""Pure computations of an event loop's process: those that take long do not hold up the loop."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

LARGE: Final = 100
"""Deliveries of one order from which a fold, or a document of it, takes about a millisecond: twenty
times as much as another thread costs."""


async def computed(work: Callable[[], Result], *, size: int) -> Result:
    """Call pure work and return its result: in another thread where `size` is large, which is the
    number of an order's deliveries."""
    return await asyncio.to_thread(work) if size >= LARGE else work()
