"""SQL texts for many rows at once, written for the driver of the database at hand.

One statement that carries a whole batch crosses into the database's thread once; a row at a time
would give up and regain the interpreter lock for each, which costs more than the rows do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

MAX_PARAMETERS = 30_000
"""Parameters in one statement: SQLite allows 32,766, PostgreSQL 32,767."""


async def insert_many(
    connection: AsyncConnection,
    *,
    table: str,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    conflict: str = "",
) -> None:
    """Insert the rows in as few statements as the parameter limit allows."""
    step = MAX_PARAMETERS // len(columns)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        sql = _insert(connection.dialect.name, table, columns, len(part), conflict)
        await connection.exec_driver_sql(sql, tuple(chain.from_iterable(part)))


@lru_cache(maxsize=8_192)
def _insert(dialect: str, table: str, columns: tuple[str, ...], rows: int, conflict: str) -> str:
    width = len(columns)
    values = ",".join(f"({_marks(dialect, width, start=row * width)})" for row in range(rows))
    names = ",".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES {values} {conflict}"  # noqa: S608


async def select_in(
    connection: AsyncConnection, *, sql: str, values: Iterable[Any]
) -> list[tuple[Any, ...]]:
    """Rows of `sql`, in which `{}` stands for the list of values of an IN."""
    found: list[tuple[Any, ...]] = []
    wanted = list(values)
    for start in range(0, len(wanted), MAX_PARAMETERS):
        part = tuple(wanted[start : start + MAX_PARAMETERS])
        marks = _marks(connection.dialect.name, len(part), start=0)
        result = await connection.exec_driver_sql(sql.replace("{}", marks), part)
        found += [tuple(row) for row in result]
    return found


@lru_cache(maxsize=8_192)
def _marks(dialect: str, count: int, *, start: int) -> str:
    if dialect == "sqlite":
        return ",".join("?" * count)
    return ",".join(f"${number}" for number in range(start + 1, start + count + 1))
