"""SQLite's driver, asked for a whole statement at once.

The driver works in a thread of its own, and the dialect has it make a cursor, execute, fetch and
close: four crossings for one statement. Each wakes two threads and trades the interpreter lock,
which is most of what a small query takes. The cursor here crosses once and brings everything back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

import aiosqlite

Row = tuple[Any, ...]


class Whole:
    """A statement's values on their way into the thread, and all that came of it."""

    __slots__ = ("description", "lastrowid", "rowcount", "rows", "values")

    def __init__(self, values: Any) -> None:
        self.values = values
        self.description: Any = None
        self.rows: list[Row] = []
        self.rowcount = -1
        self.lastrowid: int | None = None

    def run(self, cursor: sqlite3.Cursor, sql: str) -> None:
        """In the thread: execute, and fetch all there is."""
        cursor.execute(sql, self.values)
        self.description = cursor.description
        if self.description:
            self.rows = cursor.fetchall()
        self.rowcount, self.lastrowid = cursor.rowcount, cursor.lastrowid


class WholeCursor:
    """What the dialect uses of `aiosqlite.Cursor` for one statement; it fetches all that a query
    gives. Many rows are written with `inserting`, and read a part at a time with `stream`."""

    arraysize = 1

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._came = Whole(())

    async def __aenter__(self) -> WholeCursor:
        """Nothing is made before there is a statement."""
        return self

    async def execute(self, sql: str, values: Iterable[Any] = ()) -> None:
        """Run one statement. Raises what the driver raises."""
        asked = Whole(values)
        await self._connection.execute(sql, asked)
        self._came = asked

    async def fetchall(self) -> list[Row]:
        """All rows of the statement."""
        return self._came.rows

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def description(self) -> Any:
        """The names of the columns; None where the statement gives no rows."""
        return self._came.description

    @property
    def rowcount(self) -> int:
        """Rows that it changed; -1 where that is no question."""
        return self._came.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The row that was inserted last."""
        return self._came.lastrowid
