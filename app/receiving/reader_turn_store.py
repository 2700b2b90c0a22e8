"""Who reads the inbox: one at a time, on SQLite by a lock on a file, on PostgreSQL by an advisory
lock of a connection. What is read twice all the same, since a lock was lost unnoticed, is written
once: rows are taken out in the transaction that appends what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.database.faults import driver_errors
from app.database.locks import HeldFile
from app.database.locks_shared import READING

_TRY: Final = text(f"SELECT pg_try_advisory_lock({READING})")
_ASK: Final = text("SELECT 1")


class ReadersTurn:
    """`take` it before each look at the inbox; `release` it at the end."""

    def __init__(
        self,
        engine: AsyncEngine,
        database: Path | None,
        *,
        judged: Callable[[Exception], Exception],
    ) -> None:
        """engine: of connections that read; database: the SQLite file, None on PostgreSQL; judged:
        what a driver's error means."""
        self._engine = engine
        self._judged = judged
        self._lock = None if database is None else HeldFile(database, ".reading")
        self._connection: AsyncConnection | None = None

    async def take(self) -> bool:
        """Whether it is ours now; False while somebody else has it. Raises StoreUnavailable where
        that cannot be known."""
        if self._lock is not None:
            return self._lock.take()
        try:
            if self._connection is not None:
                await self._connection.execute(_ASK)
                return True
            return await self._try()
        except driver_errors() as error:
            await self.release()
            raise self._judged(error) from error

    async def _try(self) -> bool:
        connection = await self._engine.connect()
        try:
            # A transaction that lies idle for long is ended by the server.
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            if await connection.scalar(_TRY):
                self._connection = connection
                return True
        finally:
            if self._connection is None:
                await connection.close()
        return False

    async def release(self) -> None:
        """Let another have it; harmless where it was not ours."""
        if self._lock is not None:
            self._lock.release()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.invalidate()  # the lock is the connection's
            await connection.close()
