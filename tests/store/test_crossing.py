"""A statement that SQLAlchemy runs crosses into the driver's thread once, and brings all back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiosqlite
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import writing_engine


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
    execute = aiosqlite.Connection._execute

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


async def test_what_the_driver_refuses_is_told_and_leaves_nothing_open(
    connection: AsyncConnection,
) -> None:
    await connection.execute(text("INSERT INTO t VALUES (1, 'x')"))
    with pytest.raises(IntegrityError):
        await connection.execute(text("INSERT INTO t VALUES (2, 'x')"))
    with pytest.raises(OperationalError):
        await connection.execute(text("SELECT * FROM nowhere"))
    await connection.execute(text("DROP TABLE t"))  # refused while a statement is open
    await connection.execute(text("CREATE TABLE t (a)"))
