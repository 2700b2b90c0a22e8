"""A statement that SQLAlchemy runs crosses into the driver's thread once, and brings all back."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiosqlite
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.database.engine import reading_engine, writing_engine
from app.database.statements import PlainConnection, run_snapshot, select_in, statement

LONG = (
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 300000) "
    "SELECT n FROM c, t UNION ALL SELECT n FROM c"
)


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[AsyncConnection]:
    engine = writing_engine(f"sqlite+aiosqlite:///{tmp_path}/t.db")
    try:
        async with engine.connect() as connection, connection.begin():
            await connection.execute(text("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE)"))
            yield connection
    finally:
        await engine.dispose()


@contextmanager
def crossing() -> Iterator[list[str]]:
    """Count crossings into the driver's thread by the test's own task, by name."""
    crossings: list[str] = []
    own = asyncio.current_task()
    execute: Any = aiosqlite.Connection._execute

    async def counting(self: aiosqlite.Connection, act: Any, *values: Any, **named: Any) -> Any:
        if asyncio.current_task() is own:
            crossings.append(act.__name__)
        return await execute(self, act, *values, **named)

    with patch.object(aiosqlite.Connection, "_execute", counting):
        yield crossings


async def test_one_crossing_a_statement(connection: AsyncConnection) -> None:
    with crossing() as crossings:
        await connection.execute(text("INSERT INTO t VALUES (1, 'x'), (2, 'y')"))
        assert (await connection.execute(text("SELECT * FROM t ORDER BY a"))).all() == [
            (1, "x"),
            (2, "y"),
        ]
    assert crossings == ["execute", "execute"]


async def test_what_comes_back(connection: AsyncConnection) -> None:
    done = await connection.execute(text("INSERT INTO t VALUES (:a, :b)"), {"a": 7, "b": "z"})
    assert (done.rowcount, done.lastrowid, done.returns_rows) == (1, 7, False)
    done = await connection.execute(text("UPDATE t SET b='w' WHERE a > 7"))
    assert done.rowcount == 0
    found = await connection.execute(text("SELECT a AS number, b FROM t WHERE a > 7"))
    assert (list(found.keys()), found.all()) == (["number", "b"], [])
    given = await connection.execute(text("INSERT INTO t VALUES (8, 'v') RETURNING a"))
    assert given.scalars().all() == [8]


async def test_results_of_two_statements_do_not_mix(
    connection: AsyncConnection,
) -> None:
    await connection.execute(text("INSERT INTO t VALUES (1, 'x'), (2, 'y')"))
    first = await connection.execute(text("SELECT a FROM t ORDER BY a"))
    second = await connection.execute(text("SELECT b FROM t ORDER BY a"))
    assert (first.fetchone(), second.scalars().all()) == ((1,), ["x", "y"])
    assert first.scalars().all() == [2]


async def test_statements_after_an_error_of_the_driver_work(
    connection: AsyncConnection,
) -> None:
    await connection.execute(text("INSERT INTO t VALUES (1, '1'), (2, '{')"))
    with pytest.raises(IntegrityError):
        await connection.execute(text("INSERT INTO t VALUES (3, '1')"))
    with pytest.raises(OperationalError, match="malformed"):
        await connection.execute(text("SELECT json(b) FROM t ORDER BY a"))
    assert (await connection.execute(text("SELECT a FROM t"))).scalars().all() == [1, 2]


async def test_a_reader_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    engine = writing_engine(f"sqlite+aiosqlite:///{tmp_path}/t.db")

    async def alone(sql: str) -> None:
        async with engine.connect() as connection, connection.begin():
            await connection.execute(text(sql))

    try:
        await alone("CREATE TABLE t (a)")
        reading = asyncio.create_task(alone(LONG))
        await asyncio.sleep(0.05)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await alone("DROP TABLE t")
    finally:
        await engine.dispose()


def test_a_statement_is_whole_and_takes_its_fragments() -> None:
    template = "SELECT {columns} FROM t WHERE a = :a AND b IN ({})"
    assert statement(template, columns="a, b") == "SELECT a, b FROM t WHERE a = :a AND b IN ({})"
    # What a fragment holds is not looked into: a place in it is no place of the template's.
    assert statement("SELECT {x}, {y}", x="{y}", y="1") == "SELECT {y}, 1"
    for fragments in ({}, {"columns": "a", "more": "b"}, {"rows": "a"}):
        with pytest.raises(ValueError, match="fragments"):
            statement(template, **fragments)


async def test_values_before_a_list_go_with_each_part_of_it(connection: AsyncConnection) -> None:
    await connection.execute(text("INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z')"))
    asked = range(-5_000, 4)
    sql = "SELECT a FROM t WHERE a > ? AND b <> ? AND a IN ({})"
    assert await select_in(connection, sql=sql, values=asked, first=(1, "z")) == [(2,)]
    assert await select_in(connection, sql=sql, values=(), first=(1, "z")) == []


@pytest.fixture
async def readers(tmp_path: Path, database_in_threads: None) -> AsyncIterator[AsyncEngine]:
    path = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    writing, reading = writing_engine(path), reading_engine(path, readers=1)
    try:
        async with writing.connect() as connection, connection.begin():
            await connection.execute(text("CREATE TABLE t (a INTEGER PRIMARY KEY)"))
            await connection.execute(text("INSERT INTO t VALUES (1)"))
        yield reading
    finally:
        await reading.dispose()
        await writing.dispose()


def _count(connection: PlainConnection) -> int:
    return int(connection.ask("SELECT count(*) FROM t")[0][0])


async def counted(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return await run_snapshot(connection, _count)


async def test_a_snapshot_is_one_crossing(readers: AsyncEngine) -> None:
    """With its beginning, its end and its return to the pool."""
    assert await counted(readers) == 1
    with crossing() as crossings:
        assert await counted(readers) == 1
    assert crossings == ["execute"]


@pytest.mark.parametrize("ends", ["cancelled", "refused", "raised"])
async def test_a_failed_snapshot_is_closed(readers: AsyncEngine, tmp_path: Path, ends: str) -> None:
    """The next one sees later rows."""
    began, may_end = threading.Event(), threading.Event()

    def asking(connection: PlainConnection) -> None:
        _count(connection)
        began.set()
        may_end.wait(10)
        if ends == "refused":
            connection.ask("INSERT INTO t VALUES (7)")
        raise ValueError("planted")

    async def alone() -> None:
        async with readers.connect() as connection:
            await run_snapshot(connection, asking)

    task = asyncio.create_task(alone())
    assert await asyncio.to_thread(began.wait, 10)
    with closing(sqlite3.connect(tmp_path / "t.db")) as other, other:
        other.execute("INSERT INTO t VALUES (2)")
    if ends == "cancelled":
        task.cancel()
    may_end.set()
    wanted = {"cancelled": asyncio.CancelledError, "refused": OperationalError}
    with pytest.raises(wanted.get(ends, ValueError)):
        await task
    assert await counted(readers) == 2
    async with readers.connect() as connection, connection.begin():
        assert await connection.scalar(text("SELECT count(*) FROM t")) == 2
