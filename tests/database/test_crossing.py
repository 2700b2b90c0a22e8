"""A statement that SQLAlchemy runs crosses into the driver's thread once, and brings all back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiosqlite
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.engine import writing_engine
from app.database.statements import select_in, statement

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


async def test_one_crossing_a_statement(connection: AsyncConnection) -> None:
    crossings: list[str] = []
    execute: Any = aiosqlite.Connection._execute

    async def counting(self: aiosqlite.Connection, act: Any, *values: Any, **named: Any) -> Any:
        crossings.append(act.__name__)
        return await execute(self, act, *values, **named)

    with patch.object(aiosqlite.Connection, "_execute", counting):
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


async def test_what_a_later_statement_gives_is_not_mixed_with_an_earlier_ones(
    connection: AsyncConnection,
) -> None:
    await connection.execute(text("INSERT INTO t VALUES (1, 'x'), (2, 'y')"))
    first = await connection.execute(text("SELECT a FROM t ORDER BY a"))
    second = await connection.execute(text("SELECT b FROM t ORDER BY a"))
    assert (first.fetchone(), second.scalars().all()) == ((1,), ["x", "y"])
    assert first.scalars().all() == [2]


async def test_what_the_driver_refuses_is_told(connection: AsyncConnection) -> None:
    """Before the first row, and in the middle of them; what comes after is none the worse."""
    await connection.execute(text("INSERT INTO t VALUES (1, '1'), (2, '{')"))
    with pytest.raises(IntegrityError):
        await connection.execute(text("INSERT INTO t VALUES (3, '1')"))
    with pytest.raises(OperationalError, match="malformed"):
        await connection.execute(text("SELECT json(b) FROM t ORDER BY a"))
    assert (await connection.execute(text("SELECT a FROM t"))).scalars().all() == [1, 2]


async def test_a_reader_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    """The statement goes on in its thread; whoever has the connection next is not in its way."""
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


async def test_values_before_a_list(connection: AsyncConnection) -> None:
    """Each part of a long list is asked with them; lists may be of whole numbers."""
    await connection.execute(text("INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z')"))
    asked = range(-5_000, 4)
    sql = "SELECT a FROM t WHERE a > ? AND b <> ? AND a IN ({})"
    assert await select_in(connection, sql=sql, values=asked, first=(1, "z")) == [(2,)]
    assert await select_in(connection, sql=sql, values=(), first=(1, "z")) == []
