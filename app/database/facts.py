"""Facts about a database: damage, the server on which it runs, and settings that endanger its
data."""

import asyncio
import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.text import counted
from app.database.faults import POOLED
from app.database.servers import server_state
from app.database.statements import PlainConnection, run, statement
from app.database.takeover import server_moved

AGAIN_S = 0.05

_CHECKS = {False: "PRAGMA quick_check(20)", True: "PRAGMA integrity_check(20)"}


async def damage(
    connection: AsyncConnection, *, thorough: bool = False, until: asyncio.Event | None = None
) -> list[str]:
    """Return the problems that SQLite's own check finds; none for PostgreSQL.

    thorough  whether to compare every index with its table, which takes several times as long
    until     event that ends the check early, without problems
    """
    if connection.dialect.name != "sqlite":
        return []
    checking = asyncio.ensure_future(connection.execute(text(_CHECKS[thorough])))
    if until is not None and await _set_first(until, checking):
        raw = await connection.get_raw_connection()
        assert raw.driver_connection is not None
        while not checking.done():  # an interrupt before the check begins has no effect
            await raw.driver_connection.interrupt()
            await asyncio.wait([checking], timeout=AGAIN_S)
        checking.exception()
        return []
    rows = [str(row[0]) for row in await checking]
    lines = [line for row in rows if row != "ok" for line in row.splitlines()]
    # One row may hold many lines. The first line only names the database.
    problems = [line for line in lines if not line.startswith("***")] or lines
    return [f"the database file: {line}" for line in problems]


_WHOLE_INDEXES = (
    "SELECT name, tbl_name FROM sqlite_master WHERE type = 'index' "
    "AND coalesce(sql, '') NOT LIKE '% WHERE %'"
)
_ENTRIES = "SELECT count(*) FROM {table} {index}"


def short_indexes(connection: PlainConnection) -> list[str]:
    """Return a sentence for each whole SQLite index that has another number of entries than its
    table."""
    found = []
    for index, table in [] if connection.dialect != "sqlite" else connection.ask(_WHOLE_INDEXES):
        (entries,), (rows,) = [
            connection.ask(statement(_ENTRIES, table=table, index=which))[0]
            for which in (f"INDEXED BY {index}", "NOT INDEXED")
        ]
        if entries != rows:
            found.append(
                f"the database file: the index {index} has {counted(entries, 'entry', 'entries')}, "
                f"and its table {counted(rows, 'row')}"
            )
    return found


async def _set_first(event: asyncio.Event, work: asyncio.Future[Any]) -> bool:
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait([waiting, work], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return not work.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """Facts about one database. All members after `journal_mode` are for PostgreSQL.

    The last three are None if nothing is wrong.
    """

    kind: Literal["SQLite", "PostgreSQL"]
    version: tuple[int, ...]
    """Version number, such as (3, 40, 1) for SQLite or (18, 4) for PostgreSQL."""
    journal_mode: str | None = None
    """Journal mode of an SQLite file. None for PostgreSQL."""
    off: tuple[str, ...] = ()
    """Durability settings that are switched off."""
    awaits: bool = False
    """True if commits wait for a standby that is not connected."""
    standbys: tuple[str, ...] = ()
    """Sentences on what would be lost if a standby took over."""
    moved: str | None = None
    """Sentence that this is not the recorded server, or that it lacks commits."""
    no_writes: str | None = None
    """Sentence on why the server refuses writes."""
    pooled: str | None = None
    """Sentence that a pooler changes connections between transactions."""


async def database_facts(connection: AsyncConnection, *, pooled: bool = False) -> DatabaseFacts:
    """Collect facts about a database without writing anything.

    pooled  whether a pooler changes connections between transactions, as `Database.is_pooled`
            returns it
    """
    if connection.dialect.name == "sqlite":
        mode = (await connection.execute(text("PRAGMA journal_mode"))).scalar_one()
        return DatabaseFacts(
            kind="SQLite", version=sqlite3.sqlite_version_info, journal_mode=str(mode)
        )
    state = await server_state(connection)
    return DatabaseFacts(
        kind="PostgreSQL",
        version=tuple(map(int, connection.dialect.server_version_info or ())),
        off=tuple(state.off),
        awaits=state.waits_in_vain,
        standbys=tuple(state.unsafe()),
        moved=await run(connection, server_moved),
        no_writes=state.no_writes,
        pooled=POOLED if pooled else None,
    )
