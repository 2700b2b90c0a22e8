"""Size of a short transaction, learnt from earlier durations.

Only one transaction at a time writes to an SQLite database, in whichever process, so deliveries and
the shop's calls wait. The cost of a row depends on the row, the disk and the load. So work of many
pieces is limited by time, not by rows.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import anyio

from app.database.database import Database
from app.database.engine import Connection

SHORT_S: Final = 0.025
"""Seconds for which a transaction should hold the database, with its commit: half of the 50 ms that
others should wait at most, because durations vary."""

_GROWTH: Final = 2
"""Largest growth factor from one transaction to the next. One quick transaction proves little."""


class Pace:
    """Number of pieces that each of many similar transactions should process, by how long they
    take.

    first  pieces in the first transaction
    most   maximum number of pieces in any transaction
    """

    def __init__(self, *, first: int, most: int) -> None:
        self.size = min(first, most)
        self._most = most

    @asynccontextmanager
    async def writing(self, database: Database, *, pieces: int) -> AsyncIterator[Connection]:
        """Run one transaction with this many pieces. Raises the errors of `Database.writing`.

        If another process waits, pause afterwards for as long as the transaction took, so that it
        gets half of the time.
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
        """Return the pieces for the next transaction of an endless series: few if another process
        waits, else the most."""
        return self.size if database.writer.was_wanted else self._most

    def learn(self, pieces: int, *, seconds: float) -> None:
        """Adapt the number of pieces to a transaction's time. Half of the pieces or fewer prove
        nothing, because the commit took most of it."""
        if pieces > self.size // 2 or seconds > SHORT_S:
            fitting = int(pieces * SHORT_S / max(seconds, 1e-6))
            self.size = max(1, min(fitting, self.size * _GROWTH, self._most))
