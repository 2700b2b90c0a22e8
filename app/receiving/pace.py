"""Size of one short transaction, learnt from the durations of earlier ones.

Only one transaction at a time writes to an SQLite database, whichever process makes it, and a
delivery or a call of the shop's waits for those before it. What a row costs depends on the row, the
disk and what else the machine does, so work that is made of many pieces counts time, not rows.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import anyio

from app.database.database import Database
from app.database.engine import Connection

SHORT_S: Final = 0.025
"""Seconds that a transaction should hold the database, its commit included: half of the 50 ms that
others are to wait at most, for the next one is never quite like the last."""

_GROWTH: Final = 2
"""Times as many pieces at most as last time: one quick transaction proves little."""


class Pace:
    """The number of pieces for the next of a row of transactions.

    first  how many for the first one; most  how many at most, however fast they are
    """

    def __init__(self, *, first: int, most: int) -> None:
        self.size = min(first, most)
        self._most = most

    @asynccontextmanager
    async def writing(self, database: Database, *, pieces: int) -> AsyncIterator[Connection]:
        """Run one transaction with so many pieces. Raises as `Database.writing` does.

        Where another process waited for it, as long a rest comes after it: a service makes many
        short transactions, and would else have but one between each two of these.
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
        """Return the number of pieces for the next transaction of endless work: as many as are
        short while another process waits, else as many as allowed."""
        return self.size if database.writer.was_wanted else self._most

    def learn(self, pieces: int, *, seconds: float) -> None:
        """Learn from the duration of a transaction. A small and quick one says nothing of larger
        ones, since most of its time is the commit's; one more than half full counts."""
        if pieces > self.size // 2 or seconds > SHORT_S:
            fitting = int(pieces * SHORT_S / max(seconds, 1e-6))
            self.size = max(1, min(fitting, self.size * _GROWTH, self._most))
