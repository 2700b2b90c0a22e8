"""Learn how much work fits into a short transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import anyio

from app.database.database import Database
from app.database.engine import Connection

SHORT_S: Final = 0.025
"""Seconds that a transaction should take: half of what others may have to wait."""

_GROWTH: Final = 2


class Pace:
    """Learned number of pieces for one transaction."""

    def __init__(self, *, first: int, most: int) -> None:
        self.size = min(first, most)
        self._most = most

    @asynccontextmanager
    async def writing(self, database: Database, *, pieces: int) -> AsyncIterator[Connection]:
        """Run one transaction with this many pieces, and learn from its duration.

        Raise StoreUnavailable for a temporary failure.
        """
        async with database.writing() as connection:
            began = perf_counter()
            yield connection
            wanted = database.writer.is_wanted
        worked = perf_counter() - began
        self.learn(pieces, seconds=worked)
        if wanted:
            await anyio.sleep(worked)

    def fitting(self, database: Database) -> int:
        """Return the number of pieces for the next transaction."""
        return self.size if database.writer.was_wanted else self._most

    def learn(self, pieces: int, *, seconds: float) -> None:
        """Adapt the number of pieces to a transaction's time."""
        if pieces > self.size // 2 or seconds > SHORT_S:
            fitting = int(pieces * SHORT_S / max(seconds, 1e-6))
            self.size = max(1, min(fitting, self.size * _GROWTH, self._most))
