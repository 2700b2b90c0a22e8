"""Learn how many pieces of work fit into a short transaction, from earlier transactions.

Only one transaction at a time can write to an SQLite database, so work on many pieces is limited by
time.
"""

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
"""Maximum factor by which the number of pieces grows from one transaction to the next. A single
quick transaction proves little."""


class Pace:
    """Number of pieces of each of many similar transactions, learned from their durations.

    first  number in the first transaction
    most  maximum number
    """

    def __init__(self, *, first: int, most: int) -> None:
        self.size = min(first, most)
        self._most = most

    @asynccontextmanager
    async def writing(self, database: Database, *, pieces: int) -> AsyncIterator[Connection]:
        """Run one transaction with this many pieces, and learn from its duration.

        If another process is waiting, pause afterwards for as long as it took. Raise
        StoreUnavailable if the database cannot be written now.
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
        """Return the pieces for the next transaction: the learned number, or the maximum if nobody
        waits."""
        return self.size if database.writer.was_wanted else self._most

    def learn(self, pieces: int, *, seconds: float) -> None:
        """Adapt the number of pieces to a transaction's time, unless it was short and small."""
        if pieces > self.size // 2 or seconds > SHORT_S:
            fitting = int(pieces * SHORT_S / max(seconds, 1e-6))
            self.size = max(1, min(fitting, self.size * _GROWTH, self._most))
