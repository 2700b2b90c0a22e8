"""Scripts: SQL statements as data, run where the database's driver runs them best.

A script is a generator. It yields statements, is sent their rows, and returns its result; it
decides, and does no I/O. On SQLite a whole script crosses into the driver's thread once, because
every crossing wakes two threads and trades the interpreter lock; on PostgreSQL its statements are
awaited one by one. The script is the same.

There each statement is a round trip, and while a batch waits for its turn the next cannot begin:
what does not rest on each other is said to be (`together`, `at_once`), and is one statement.

One statement carries many rows for the same reason: a row at a time would give up and regain the
interpreter lock for each, which costs more than the rows do. PostgreSQL takes them as arrays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.sql import arrays
from app.store.sql.crossing import Whole

Rows = list[tuple[Any, ...]]
Statement = tuple[str, Sequence[Any]]


class Alone(NamedTuple):
    """A statement that is a transaction by itself, and writes only if what it supposes holds.

    It is answered with one row: whether it did. Only the first statement of a script may be one.
    """

    sql: str
    values: Sequence[Any]


Result = TypeVar("Result")
Script = Generator[Statement, Rows, Result]

MAX_PARAMETERS = 30_000
"""Parameters in one statement: SQLite allows 32,766."""


class _Crossing:
    """A script on its way through the driver's thread, and what became of it."""

    def __init__(self, script: Script[Any], *, transaction: bool) -> None:
        self.script = script
        self.transaction = transaction
        self.result: Any = None


class ScriptConnection(sqlite3.Connection):
    """SQLite's connection that also takes, in place of parameters, what crosses into the driver's
    thread but once: a statement with all that comes of it, or a script."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement, or the script that `run` hands over."""
        if not isinstance(parameters, _Crossing | Whole):
            return super().execute(sql, parameters)
        cursor = self.cursor()
        try:
            if isinstance(parameters, Whole):
                parameters.run(cursor, sql)
            else:
                run_script = self._transact if parameters.transaction else _run_all
                parameters.result = run_script(cursor, parameters.script)
        finally:
            # An error keeps its frames, and a statement in them would keep the connection open.
            cursor.close()
        return cursor

    def _transact(self, cursor: sqlite3.Cursor, script: Script[Result]) -> Result:
        try:
            result = _run_all(cursor, script, transaction=True)
            if self.in_transaction:
                cursor.execute("COMMIT")
        finally:
            if self.in_transaction:
                self.rollback()
        return result


def _run_all(
    cursor: sqlite3.Cursor, script: Script[Result], *, transaction: bool = False
) -> Result:
    try:
        statement = next(script)
        if isinstance(statement, Alone):
            statement = script.send([(_holds(cursor, statement),)])
        if transaction:
            cursor.execute("BEGIN IMMEDIATE")
        while True:
            cursor.execute(*statement)
            statement = script.send(cursor.fetchall() if cursor.description else [])
    except StopIteration as end:
        result: Result = end.value
        return result


def _holds(cursor: sqlite3.Cursor, statement: Alone) -> bool:
    """Whether it wrote. What it supposes is for a trigger to judge, which takes everything back."""
    try:
        cursor.execute(*statement)
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorname != "SQLITE_CONSTRAINT_TRIGGER":
            raise
        return False
    return True


async def run(connection: AsyncConnection, script: Script[Result]) -> Result:
    """Run a script in the connection's transaction and return its result."""
    if connection.dialect.name == "sqlite":
        return await _cross(connection, script, transaction=False)
    try:
        statement = next(script)
        while True:
            result = await connection.exec_driver_sql(statement[0], tuple(statement[1]))
            rows = [tuple(row) for row in result] if result.returns_rows else []
            statement = script.send(rows)
    except StopIteration as end:
        found: Result = end.value
        return found


async def run_transaction(connection: AsyncConnection, script: Script[Result]) -> Result:
    """Run a script as one transaction on an SQLite connection that is in none."""
    return await _cross(connection, script, transaction=True)


async def _cross(
    connection: AsyncConnection, script: Script[Result], *, transaction: bool
) -> Result:
    driver = await _driver(connection)
    crossing = _Crossing(script, transaction=transaction)
    try:
        await driver.execute("script", crossing)
    except sqlite3.Error as error:
        raise OperationalError("script", None, error) from error
    result: Result = crossing.result
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
    """The rows of a query, `at_once` at a time, in memory that stays small.

    values  its parameters, which it names with a colon
    """
    if connection.dialect.name == "sqlite":
        # The driver's own rows are plain tuples: a scan of a million of them feels the difference.
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


def inserting(
    dialect: str,
    *,
    table: str,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    conflict: str = "",
) -> Script[None]:
    """Insert the rows in as few statements as the parameter limit allows.

    On SQLite a row that is refused rolls back the whole transaction, which is all or nothing
    anyway: to undo one statement by itself, SQLite would first copy every page that it touches
    into a temporary file.
    """
    if dialect != "sqlite":
        if rows:
            yield (
                arrays.insert(table, columns, conflict),
                [list(c) for c in zip(*rows, strict=True)],
            )
        return
    step = MAX_PARAMETERS // len(columns)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        sql = _insert(table, columns, len(part), conflict)
        yield sql, tuple(chain.from_iterable(part))


def selecting(dialect: str, *, sql: str, values: Iterable[Any]) -> Script[Rows]:
    """Rows of `sql`, in which `{}` stands for the list of values of an IN."""
    wanted = list(values)
    if dialect != "sqlite":
        return (yield arrays.with_list(sql), (wanted,))
    found: Rows = []
    for start in range(0, len(wanted), MAX_PARAMETERS):
        part = wanted[start : start + MAX_PARAMETERS]
        found += yield _with_marks(sql, len(part)), part
    return found


def together(dialect: str, *scripts: Script[Any]) -> Script[list[Any]]:
    """The results of scripts that only ask, and nothing that rests on another's answer.

    On PostgreSQL they go on side by side: what each of them asks next is one statement.
    """
    results: list[Any] = [None] * len(scripts)
    if dialect == "sqlite":
        for place, script in enumerate(scripts):
            results[place] = yield from script
        return results
    answers: dict[int, Any] = dict.fromkeys(range(len(scripts)))
    while answers:
        asked: dict[int, Statement] = {}
        for place, rows in answers.items():
            try:
                asked[place] = scripts[place].send(rows)
            except StopIteration as end:
                results[place] = end.value
        answers = {place: [] for place in asked}
        if asked:
            places = list(asked)
            for number, row in (yield arrays.asked_together(list(asked.values()))):
                answers[places[number]].append(row)
    return results


def at_once(dialect: str, script: Script[None]) -> Script[None]:
    """A script that only writes, no row twice: one statement on PostgreSQL, whatever it writes."""
    if dialect == "sqlite":
        yield from script
    elif statements := list(script):
        yield arrays.written_together(statements)


async def select_in(connection: AsyncConnection, *, sql: str, values: Iterable[Any]) -> Rows:
    """`selecting`, run by itself."""
    return await run(connection, selecting(connection.dialect.name, sql=sql, values=values))


@lru_cache(maxsize=8_192)
def _insert(table: str, columns: tuple[str, ...], rows: int, conflict: str) -> str:
    values = ",".join([f"({_marks(len(columns))})"] * rows)
    names = ",".join(f'"{name}"' for name in columns)
    return f"INSERT OR ROLLBACK INTO {table} ({names}) VALUES {values} {conflict}"  # noqa: S608


@lru_cache(maxsize=8_192)
def _with_marks(sql: str, count: int) -> str:
    return sql.replace("{}", _marks(count))


def _marks(count: int) -> str:
    return ",".join("?" * count)
