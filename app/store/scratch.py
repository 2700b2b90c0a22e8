"""A database for the time of one check or run: it has all tables, and is thrown away."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.engine import writing_engine
from app.store.tables import metadata


@asynccontextmanager
async def scratch_database() -> AsyncIterator[AsyncConnection]:
    """An empty SQLite database under `TMPDIR`, in one transaction that is never committed."""
    with tempfile.TemporaryDirectory(prefix="tallyhook-scratch-") as folder:
        engine = writing_engine(f"sqlite+aiosqlite:///{folder}/scratch.db", purpose="alone")
        try:
            async with engine.connect() as scratch, scratch.begin() as transaction:
                await scratch.run_sync(metadata.create_all, checkfirst=False)
                yield scratch
                await transaction.rollback()
        finally:
            await engine.dispose()
