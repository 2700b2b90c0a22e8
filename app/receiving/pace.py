"""Size of a short transaction, learnt from the durations of earlier transactions.

Only one transaction at a time writes to an SQLite database, in whichever process. Deliveries and
the shop's calls wait for earlier transactions. The cost of a row depends on the row, the disk and
the machine's load, so work of many pieces is limited by time, not by rows.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import anyio

from app.database.database import Database
from app.database.engine import Connection

SHORT_S: Final = 0.025
"""Seconds for which a transaction should hold the database, including its commit. This is half of
the 50 ms that others should wait at most, because durations vary."""

_GROWTH: Final = 2
"""Largest growth factor from one transaction to the next: one quick transaction proves little."""


class Pace:
    """Learns how many pieces of work the next of several similar transactions may process.

    first  pieces of the first transaction
    most   largest number of pieces, however fast they are
    """

    def __init__(self, *, first: int, most: int) -> None:
        self.size = min(first, most)
        self._most = most

    @asynccontextmanager
    async def writing(self, database: Database, *, pieces: int) -> AsyncIterator[Connection]:
        """Run one transaction with this many pieces. Raises the errors of `Database.writing`. If
        another process waited for the transaction, rest as long afterwards. Otherwise a service
        with many short transactions would let the other process run only once between two of them.
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
        """Return the number of pieces for the next transaction of work without an end: few enough
        for a short transaction if another process waits, else the largest allowed."""
        return self.size if database.writer.was_wanted else self._most

    def learn(self, pieces: int, *, seconds: float) -> None:
        """Adjust the size to the duration of a transaction. A short transaction with at most half
        of the pieces changes nothing, because most of its time was the commit's."""
        if pieces > self.size // 2 or seconds > SHORT_S:
            fitting = int(pieces * SHORT_S / max(seconds, 1e-6))
            self.size = max(1, min(fitting, self.size * _GROWTH, self._most))
