"""A database for the time of one check or run: it has all tables, and is thrown away."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from sqlalchemy import create_mock_engine
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.engine import writing_engine
from app.database.statements import PlainConnection, run


@asynccontextmanager
async def scratch_database() -> AsyncIterator[AsyncConnection]:
    """An empty SQLite database under `TMPDIR`, in one transaction that is never committed."""
    with tempfile.TemporaryDirectory(prefix="tallyhook-scratch-") as folder:
        engine = writing_engine(f"sqlite+aiosqlite:///{folder}/scratch.db", purpose="alone")
        try:
            async with engine.connect() as scratch, scratch.begin() as transaction:
                await run(scratch, _make_tables)
                yield scratch
                await transaction.rollback()
        finally:
            await engine.dispose()


def _make_tables(connection: PlainConnection) -> None:
    for statement in _statements():
        connection.ask(statement)


@cache
def _statements() -> list[str]:
    """What makes all tables. Worked out once, and only where it is needed: the models of the
    tables take a fifth of a start to load."""
    from app.database.tables import metadata

    statements: list[str] = []

    def keep(ddl: Any, *_: Any, **__: Any) -> None:
        statements.append(str(ddl.compile(dialect=engine.dialect)))

    engine = create_mock_engine("sqlite://", keep)
    metadata.create_all(engine, checkfirst=False)
    return statements
