"""Run plain synchronous functions on a connection, and build SQL statements.

On SQLite the whole function runs in the driver's thread, because switching threads takes time. On
PostgreSQL each statement is awaited.
"""

from __future__ import annotations

import re
import sqlite3
from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import aiosqlite
from sqlalchemy import BigInteger, Connection, LargeBinary, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.util import await_only

from app.core.jobs import computed

if TYPE_CHECKING:
    from sqlalchemy import MetaData

# --- SQLite's driver, asked for a whole statement at once -----------------------------------------

Row = tuple[Any, ...]


class Whole:
    """Carrier of one statement. It takes the statement's values to the driver's thread, and brings
    back the complete result."""

    __slots__ = ("description", "lastrowid", "rowcount", "rows", "values")

    def __init__(self, values: Any) -> None:
        self.values = values
        self.description: Any = None
        self.rows: list[Row] = []
        self.rowcount = -1
        self.lastrowid: int | None = None

    def run(self, cursor: sqlite3.Cursor, sql: str) -> None:
        """Execute the statement in the driver's thread, and fetch all rows of the result."""
        cursor.execute(sql, self.values)
        self.description = cursor.description
        if self.description:
            self.rows = cursor.fetchall()
        self.rowcount, self.lastrowid = cursor.rowcount, cursor.lastrowid


class WholeCursor:
    """Cursor that fetches all rows at once, so that a statement needs one switch to the driver's
    thread.

    It has only the methods of `aiosqlite.Cursor` that SQLAlchemy uses. Use `stream` or
    `insert_rows` for many rows.
    """

    arraysize = 1

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._came = Whole(())

    async def __aenter__(self) -> WholeCursor:
        return self

    async def execute(self, sql: str, values: Iterable[Any] = ()) -> None:
        asked = Whole(values)
        await self._connection.execute(sql, asked)
        self._came = asked

    async def fetchall(self) -> list[Row]:
        return self._came.rows

    async def close(self) -> None:
        """Do nothing, because the driver's thread has already closed the cursor."""

    @property
    def description(self) -> Any:
        """Return the columns of the result. Return None if the statement returns no rows."""
        return self._came.description

    @property
    def rowcount(self) -> int:
        """Return the number of changed rows; -1 for a query."""
        return self._came.rowcount

    @property
    def lastrowid(self) -> int | None:
        """Return the number of the last inserted row."""
        return self._came.lastrowid


# --- plain synchronous functions over one connection ----------------------------------------------

Rows = list[tuple[Any, ...]]
Result = TypeVar("Result")
Words = ParamSpec("Words")

SPREAD: Final = "spread"
"""Key of a connection's `info` for the function that rewrites statements for Citus, or None."""

MAX_PARAMETERS = 30_000
"""Maximum number of parameters in one SQL statement. SQLite allows 32,766."""

MAX_ROWS = 512
"""Maximum rows in one INSERT on SQLite; a power of two, as rows come in such groups."""

MAX_LISTED = 4_096
"""Maximum number of values in one IN list on SQLite. It must be a power of two."""


class PlainConnection(Protocol):
    """Connection in a transaction, as a plain synchronous function receives it."""

    @property
    def dialect(self) -> str:
        """Return the name of the SQL dialect: `sqlite` or `postgresql`."""
        ...

    @property
    def spread(self) -> bool:
        """Return whether the deliveries and events are distributed over the nodes of a Citus
        cluster."""
        ...

    def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement, with a `?` for each value, and return the rows of its result."""
        ...


Ask = Callable[[str], Sequence[Sequence[Any]]]

Plain = Callable[Concatenate[PlainConnection, Words], Result]


class _Sqlite:
    dialect = "sqlite"
    spread = False

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        self._cursor.execute(sql, values)
        return self._cursor.fetchall() if self._cursor.description else []


class _PostgreSQL:
    dialect = "postgresql"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._driver: Any = connection.connection.driver_connection
        self._rewritten: Callable[[str], str] | None = connection.info.get(SPREAD)
        self.spread = self._rewritten is not None

    def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        if not self._has_begun():
            result = self._connection.exec_driver_sql(numbered(sql), tuple(values))
            return [tuple(row) for row in result] if result.returns_rows else []
        if self._rewritten is not None:
            sql = self._rewritten(sql)
        return [tuple(row) for row in self._done(self._driver.fetch(numbered(sql), *values))]

    def copy(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows by COPY. COPY is faster than arrays, but cannot resolve conflicts with
        existing rows."""
        if not self._has_begun():
            self.ask("SELECT 1")
        self._done(self._driver.copy_records_to_table(table, columns=columns, records=rows))

    def _has_begun(self) -> bool:
        return not self._driver.is_closed() and self._driver.is_in_transaction()

    def _done(self, work: Awaitable[Result]) -> Result:
        try:
            return await_only(work)
        except BaseException as error:
            if self._driver.is_closed() or not isinstance(error, Exception):
                self._connection.invalidate()  # as SQLAlchemy does
            raise


@lru_cache(maxsize=1_024)
def numbered(sql: str) -> str:
    """Return a statement with PostgreSQL's placeholders `$1`, `$2`, … instead of `?`."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)


class _Calling:
    def __init__(self, function: Callable[[PlainConnection], Any], *, begin: str | None) -> None:
        self.function = function
        self.begin = begin
        self.result: Any = None


class CallingConnection(sqlite3.Connection):
    """SQLite connection that runs a whole statement or function in one switch to the driver's
    thread."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement. A special object in place of the parameters runs a whole function and
        receives the result."""
        if not isinstance(parameters, _Calling | Whole):
            return super().execute(sql, parameters)
        cursor = self.cursor()
        try:
            if isinstance(parameters, Whole):
                parameters.run(cursor, sql)
            else:
                parameters.result = self._call(cursor, parameters)
        finally:
            # An error keeps its frames, where a statement would keep the connection open.
            cursor.close()
        return cursor

    def _call(self, cursor: sqlite3.Cursor, calling: _Calling) -> Any:
        if calling.begin is None:
            return calling.function(_Sqlite(cursor))
        cursor.execute(calling.begin)
        try:
            result = calling.function(_Sqlite(cursor))
            cursor.execute("COMMIT")
        finally:
            if self.in_transaction:
                self.rollback()
        return result


def compute(connection: PlainConnection, work: Callable[[], Result], *, size: int) -> Result:
    """Call `work`, a function without side effects, and return its result.

    On PostgreSQL, large work runs in another thread. On SQLite, the caller already runs in one.
    """
    return work() if connection.dialect == "sqlite" else await_only(computed(work, size=size))


async def run(
    connection: AsyncConnection,
    function: Plain[Words, Result],
    *args: Words.args,
    **words: Words.kwargs,
) -> Result:
    """Run a plain function in the connection's transaction and return the function's result."""
    if connection.dialect.name == "sqlite":
        return await _cross(connection, lambda c: function(c, *args, **words), begin=None)
    return await connection.run_sync(lambda c: function(_PostgreSQL(c), *args, **words))


async def call(driver: aiosqlite.Connection, function: Callable[[PlainConnection], None]) -> None:
    """Run a plain function in the SQLite driver's thread, on a connection that is still being set
    up."""
    await driver.execute("function", _Calling(function, begin=None))


async def run_transaction(
    connection: AsyncConnection, function: Callable[[PlainConnection], Result]
) -> Result:
    """Run a plain function as one transaction on an SQLite connection, and return the function's
    result. No transaction may be open."""
    return await _cross(connection, function, begin="BEGIN IMMEDIATE")


async def run_snapshot(
    connection: AsyncConnection,
    function: Plain[Words, Result],
    *args: Words.args,
    **words: Words.kwargs,
) -> Result:
    """Run a plain, read-only function on one snapshot, and return the function's result. No
    transaction may be open."""
    if connection.dialect.name == "sqlite":
        return await _cross(connection, lambda c: function(c, *args, **words), begin="BEGIN")
    async with connection.begin():
        return await run(connection, function, *args, **words)


async def _cross(
    connection: AsyncConnection,
    function: Callable[[PlainConnection], Result],
    *,
    begin: str | None,
) -> Result:
    driver = await _driver(connection)
    calling = _Calling(function, begin=begin)
    try:
        await driver.execute("function", calling)
    except sqlite3.Error as error:
        raise OperationalError("function", None, error) from error
    except CancelledError:
        # The thread continues nevertheless. Until it reaches this statement, the transaction is
        # not over, and its locks must not be released.
        with suppress(sqlite3.Error):
            await driver.execute("SELECT 1", Whole(()))
        raise
    result: Result = calling.result
    return result


async def _driver(connection: AsyncConnection) -> Any:
    raw = await connection.get_raw_connection()
    assert raw.driver_connection is not None
    return raw.driver_connection


async def stream(
    connection: AsyncConnection,
    sql: str,
    *,
    at_once: int,
    values: Mapping[str, Any] | None = None,
) -> AsyncIterator[Rows]:
    """Yield a query's rows in lists.

    at_once  maximum number of rows in a list
    values   the parameters, written `:name` in the query
    """
    if connection.dialect.name == "sqlite":
        # The driver's rows are plain tuples, which makes a scan of a million rows faster.
        driver = await _driver(connection)
        try:
            cursor = await driver.execute(sql, values or {})
            while rows := await cursor.fetchmany(at_once):
                yield rows
            await cursor.close()
        except sqlite3.Error as error:
            raise OperationalError(sql, None, error) from error
    else:
        result = await connection.stream(text(sql), values or {})
        async for partition in result.partitions(at_once):
            yield [tuple(row) for row in partition]


# --- building blocks -----------------------------------------------------------------------------


def insert_rows(
    connection: PlainConnection,
    *,
    table: str,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    conflict: str = "",
) -> Rows:
    """Insert rows in as few statements as possible. Return the rows of a RETURNING clause.

    conflict  SQL clause for rows that already exist, with RETURNING if needed

    On SQLite a refused row rolls back the whole transaction.
    """
    if not rows:
        return []
    if isinstance(connection, _PostgreSQL) and not conflict:
        connection.copy(table, columns, rows)
        return []
    if connection.dialect != "sqlite":
        values = [list(column) for column in zip(*rows, strict=True)]
        return connection.ask(_insert_arrays(table, columns, conflict), values)
    found: Rows = []
    most, start = MAX_PARAMETERS // len(columns), 0
    while start < len(rows):
        size = min(_power_of_two(len(rows) - start), MAX_ROWS, most)
        sql = _insert(table, columns, size, conflict)
        found += connection.ask(sql, tuple(chain.from_iterable(rows[start : start + size])))
        start += size
    return found


_PLACE = re.compile(r"\{(\w+)\}")


def statement(template: str, **fragments: str) -> str:
    """Return an SQL statement in which each `{name}` is replaced with a fragment of our code.

    Values are always passed as parameters. An empty `{}` stays for a list. Raises ValueError if
    names and fragments do not match.
    """
    if set(_PLACE.findall(template)) != fragments.keys():
        raise ValueError(
            f"the placeholders of {template!r} differ from the fragments {', '.join(fragments)}"
        )
    return _PLACE.sub(lambda place: fragments[place[1]], template)


def select_rows(
    connection: PlainConnection, *, sql: str, values: Iterable[Any], first: Sequence[Any] = ()
) -> Rows:
    """Return the rows of a query that has a list of values in `IN ({})`.

    values  the values for the list: all texts, all integers or all bytes
    first   values of the placeholders before the list
    """
    wanted = list(values)
    if not wanted:
        return []
    if connection.dialect != "sqlite":
        kind = {int: "bigint", bytes: "bytea"}.get(type(wanted[0]), "text")
        return connection.ask(sql.replace("IN ({})", f"= ANY(?::{kind}[])"), (*first, wanted))
    found: Rows = []
    for start in range(0, len(wanted), MAX_LISTED):
        part = wanted[start : start + MAX_LISTED]
        # Pad with the last value to a power of two. No row is found twice.
        part += part[-1:] * (_power_of_two(2 * len(part) - 1) - len(part))
        found += connection.ask(_with_marks(sql, len(part)), (*first, *part))
    return found


async def select_in(
    connection: AsyncConnection, *, sql: str, values: Iterable[Any], first: Sequence[Any] = ()
) -> Rows:
    return await run(connection, select_rows, sql=sql, values=values, first=first)


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1


@lru_cache(maxsize=1_024)
def _insert(table: str, columns: tuple[str, ...], rows: int, conflict: str) -> str:
    return statement(
        "INSERT OR ROLLBACK INTO {table} ({columns}) VALUES {rows} {conflict}",
        table=table,
        columns=",".join(f'"{name}"' for name in columns),
        rows=",".join([f"({_marks(len(columns))})"] * rows),
        conflict=conflict,
    )


@lru_cache(maxsize=1_024)
def _with_marks(sql: str, count: int) -> str:
    return sql.replace("{}", _marks(count))


def _marks(count: int) -> str:
    return ",".join("?" * count)


@lru_cache
def _insert_arrays(table: str, columns: tuple[str, ...], conflict: str) -> str:
    return statement(
        "INSERT INTO {table} ({columns}) SELECT * FROM unnest({arrays}) {conflict}",
        table=table,
        columns=",".join(f'"{name}"' for name in columns),
        arrays=",".join(f"?::{_kind(table, name)}[]" for name in columns),
        conflict=conflict,
    )


@cache
def tables() -> MetaData:
    """Load the table models, which is slow, and return their metadata."""
    from app.database.tables import metadata

    return metadata


def _kind(table: str, column: str) -> str:
    kind = tables().tables[table].columns[column].type
    if isinstance(kind, BigInteger):
        return "bigint"
    return "bytea" if isinstance(kind, LargeBinary) else "text"
