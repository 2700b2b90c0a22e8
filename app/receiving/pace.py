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
    """The number of pieces of work that one of many similar transactions should process. The number
    adapts to how long the transactions take.

    first  number of pieces in the first transaction
    most   largest number of pieces in any transaction
    """

    def __init__(self, *, first: int, most: int) -> None:
        self.size = min(first, most)
        self._most = most

    @asynccontextmanager
    async def writing(self, database: Database, *, pieces: int) -> AsyncIterator[Connection]:
        """Run one transaction with this many pieces. Raises the errors of `Database.writing`.

        If another process waited for the transaction to end, pause afterwards for as long as the
        transaction took. Without the pause, that process would run only once between two of many
        short transactions.
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
        """Return the number of pieces for the next transaction of an endless series. If another
        process waits, the number is low enough for a short transaction. Otherwise it is the largest
        allowed number."""
        return self.size if database.writer.was_wanted else self._most

    def learn(self, pieces: int, *, seconds: float) -> None:
        """Adapt the number of pieces to the time that a transaction took. A short transaction with
        at most half of the pieces changes nothing, because the commit took most of its time."""
        if pieces > self.size // 2 or seconds > SHORT_S:
            fitting = int(pieces * SHORT_S / max(seconds, 1e-6))
            self.size = max(1, min(fitting, self.size * _GROWTH, self._most))
