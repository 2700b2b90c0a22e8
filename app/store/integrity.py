"""What the database says of its own condition."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection


async def damage(connection: AsyncConnection) -> list[str]:
    """Problems that SQLite's own check finds; PostgreSQL has tools of its own for this."""
    if connection.dialect.name != "sqlite":
        return []
    rows = await connection.execute(text("PRAGMA quick_check(20)"))
    return [f"the database file: {row[0]}" for row in rows if row[0] != "ok"]
