"""What the database says of its own condition."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection


async def damage(connection: AsyncConnection, *, thorough: bool = False) -> list[str]:
    """Problems that SQLite's own check finds; PostgreSQL has tools of its own for this.

    thorough  compare every index with its table, too: several times the work
    """
    if connection.dialect.name != "sqlite":
        return []
    check = "integrity_check" if thorough else "quick_check"
    rows = await connection.execute(text(f"PRAGMA {check}(20)"))
    return [f"the database file: {row[0]}" for row in rows if row[0] != "ok"]
