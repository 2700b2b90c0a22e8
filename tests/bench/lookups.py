"""One order out of many: how long it takes to gather its history and fold it."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path
from time import perf_counter

from app.config.settings import Settings
from app.core.clock import SystemClock
from app.orders.history_store import gather
from app.receiving.inbox import open_inbox
from reconcile.ledger.fold import fold
from reconcile.ledger.policy import Policy
from tests.bench.orders import Stretch, order_reference

LOOKUPS = 200


def lookup_us(database: Path, stretch: Stretch) -> float:
    """Median µs of gathering and folding single orders spread over the stretch."""
    settings = Settings(database_url=f"sqlite+aiosqlite:///{database.absolute()}")
    step = max(1, stretch.count // LOOKUPS)
    numbers = range(stretch.first, stretch.first + stretch.count, step)
    return asyncio.run(_lookups(settings, numbers))


async def _lookups(settings: Settings, numbers: range) -> float:
    now, seconds = SystemClock().now(), []
    async with open_inbox(settings, purpose="reading") as inbox:
        for number in numbers:
            order = order_reference(number)
            started = perf_counter()
            async with inbox.database.reading() as connection:
                histories = await gather(connection, [order])
            fold(histories[order], policy=Policy(), as_of=now)
            seconds.append(perf_counter() - started)
    return statistics.median(seconds) * 1e6
