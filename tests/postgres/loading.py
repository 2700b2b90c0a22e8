"""Arrivals without end, and whether what was acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from app.errors import StoreUnavailable
from app.store.store import Store
from tests.postgres.conftest import ask_in_loop
from tests.store.builders import arrival, said
from tests.waiting import soon

SENDERS = 8
_numbers = count()


@dataclass(slots=True)
class Load:
    """What came of the arrivals so far: ids that were acknowledged, and how many were refused."""

    acknowledged: list[str] = field(default_factory=list)
    refused: int = 0

    async def reach(self, more: int, *, refusals: int = 0) -> None:
        """Until so many more are acknowledged, and so many refused."""
        wanted, refused = len(self.acknowledged) + more, self.refused + refusals
        await soon(lambda: len(self.acknowledged) >= wanted and self.refused >= refused)

    async def lost(self, url: str) -> set[str]:
        """Those that were acknowledged and are not in the database."""
        found = await ask_in_loop(url, "SELECT id FROM deliveries")
        return set(self.acknowledged) - {row[0] for row in found}


@asynccontextmanager
async def under_load(*stores: Store) -> AsyncIterator[Load]:
    """Senders that go on whatever they are answered, until the block ends."""
    load = Load()
    ending = asyncio.Event()

    async def send(store: Store, order: str) -> None:
        while not ending.is_set():
            item = arrival(said(f"load{next(_numbers)}", order=order))
            try:
                await store.journal.submit(item)
            except StoreUnavailable:
                load.refused += 1
                await asyncio.sleep(0.01)
            else:
                load.acknowledged.append(item.delivery_id)

    senders = [
        asyncio.create_task(send(store, f"O{number}"))
        for store in stores
        for number in range(SENDERS)
    ]
    try:
        yield load
    finally:
        ending.set()
        await asyncio.gather(*senders)
