"""SQLite's driver, asked for a whole statement at once.

The driver works in a thread of its own, and the dialect has it make a cursor, execute, fetch and
close: four crossings for one statement. Each wakes two threads and trades the interpreter lock,
which is most of what a small query takes. The cursor here crosses once and brings everything back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import aiosqlite
from sqlalchemy import BigInteger, LargeBinary

if TYPE_CHECKING:
    from sqlalchemy import MetaData

ADOPTED: Final = (
    "UPDATE events SET order_key=adopted.order_key FROM unnest($1::bigint[], $2::text[]) "
    'AS adopted ("row", order_key) WHERE events."row"=adopted."row"'
)
"""Orphans by their rows, and the order that each belongs to."""


@lru_cache
def insert(table: str, columns: tuple[str, ...], conflict: str) -> str:
    """Insert the rows of which each parameter is one column."""
    names = ",".join(f'"{name}"' for name in columns)
    arrays = ",".join(
        f"${number}::{_kind(table, name)}[]" for number, name in enumerate(columns, 1)
    )
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) {conflict}"  # noqa: S608


@cache
def tables() -> MetaData:
    """What the columns hold. Loaded only where it is needed: it takes a fifth of a start."""
    from app.database.tables import metadata

    return metadata


def _kind(table: str, column: str) -> str:
    kind = tables().tables[table].columns[column].type
    if isinstance(kind, BigInteger):
        return "bigint"
    return "bytea" if isinstance(kind, LargeBinary) else "text"


def with_list(sql: str) -> str:
    """`sql` with its `IN ({})` as one parameter: a list of texts."""
    return sql.replace("IN ({})", "= ANY($1::text[])")


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
