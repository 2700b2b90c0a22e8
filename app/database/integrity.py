"""What the database says of its own condition."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

AGAIN_S = 0.05


async def damage(
    connection: AsyncConnection, *, thorough: bool = False, until: asyncio.Event | None = None
) -> list[str]:
    """Problems that SQLite's own check finds; PostgreSQL has tools of its own for this.

    thorough  compare every index with its table, too: several times the work
    until     when this is set meanwhile, the check is cut short and there are none
    """
    if connection.dialect.name != "sqlite":
        return []
    check = "integrity_check" if thorough else "quick_check"
    checking = asyncio.ensure_future(connection.execute(text(f"PRAGMA {check}(20)")))
    if until is not None and await _set_first(until, checking):
        raw = await connection.get_raw_connection()
        assert raw.driver_connection is not None
        while not checking.done():  # an interrupt that comes before the check begins is forgotten
            await raw.driver_connection.interrupt()
            await asyncio.wait([checking], timeout=AGAIN_S)
        checking.exception()
        return []
    rows = [str(row[0]) for row in await checking]
    lines = [line for row in rows if row != "ok" for line in row.splitlines()]
    # One row may hold many lines, of which the first says only of which database they are.
    problems = [line for line in lines if not line.startswith("***")] or lines
    return [f"the database file: {line}" for line in problems]


async def _set_first(event: asyncio.Event, work: asyncio.Future[Any]) -> bool:
    """Wait for either. Whether the event was set before the work was done."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait([waiting, work], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return not work.done()
