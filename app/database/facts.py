"""Facts about a database: damage, the server it is on, and settings that endanger its data."""

import asyncio
import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.faults import POOLED
from app.database.servers import server_state

AGAIN_S = 0.05

_CHECKS = {False: "PRAGMA quick_check(20)", True: "PRAGMA integrity_check(20)"}


async def damage(
    connection: AsyncConnection, *, thorough: bool = False, until: asyncio.Event | None = None
) -> list[str]:
    """List problems that SQLite's own check finds. For PostgreSQL there are `amcheck` and others.

    thorough  compare every index with its table, too: several times the work
    until     cuts the check short when it is set; the list is then empty
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
    # One row may hold many lines; the first only names the database.
    problems = [line for line in lines if not line.startswith("***")] or lines
    return [f"the database file: {line}" for line in problems]


async def _set_first(event: asyncio.Event, work: asyncio.Future[Any]) -> bool:
    """Wait for either. Return whether the event was set before the work was done."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait([waiting, work], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return not work.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """Facts about one database; the last six are PostgreSQL's.

    version       such as (3, 40, 1) of SQLite, (18, 4) of PostgreSQL
    journal_mode  of an SQLite file; None elsewhere
    off           durability settings that are switched off
    awaits        whether commits wait for a standby that is not connected
    standbys      what would be lost if a standby took over, one sentence each
    moved         that the server is another than was noted: one sentence, `; `, and what to do
    no_writes     why the server takes no writes: one sentence, `; `, and what to do
    pooled        that a pooler changes connections between transactions, likewise
    """

    kind: Literal["SQLite", "PostgreSQL"]
    version: tuple[int, ...]
    journal_mode: str | None = None
    off: tuple[str, ...] = ()
    awaits: bool = False
    standbys: tuple[str, ...] = ()
    moved: str | None = None
    no_writes: str | None = None
    pooled: str | None = None


async def database_facts(connection: AsyncConnection, *, pooled: bool = False) -> DatabaseFacts:
    """Collect the facts; nothing is written. `pooled`: see `Database.is_pooled`."""
    if connection.dialect.name == "sqlite":
        mode = (await connection.execute(text("PRAGMA journal_mode"))).scalar_one()
        return DatabaseFacts(
            kind="SQLite", version=sqlite3.sqlite_version_info, journal_mode=str(mode)
        )
    number = int((await connection.execute(text("SHOW server_version_num"))).scalar_one())
    state = await server_state(connection)
    return DatabaseFacts(
        kind="PostgreSQL",
        version=(number // 10_000, number % 10_000),
        off=tuple(state.off),
        awaits=state.waits_in_vain,
        standbys=tuple(state.unsafe()),
        moved=await server_moved(connection),
        no_writes=await _no_writes(connection),
        pooled=POOLED if pooled else None,
    )


async def _no_writes(connection: AsyncConnection) -> str | None:
    """Say why the server takes no writes, by its defaults: this transaction only reads."""
    if (await connection.execute(text("SELECT pg_is_in_recovery()"))).scalar_one():
        return (
            "the server is a standby and takes no writes; name all hosts in TALLYHOOK_DATABASE_URL "
            "with target_session_attrs=read-write; where the primary is gone for good, have this "
            "one take over"
        )
    if (await connection.execute(text("SHOW default_transaction_read_only"))).scalar_one() == "on":
        return (
            "the server takes no writes (default_transaction_read_only is on); ask whoever runs it "
            "why, such as a full disk, and have it switched off for the server, database and user"
        )
    return None


# --- which server it is --------------------------------------------------------------------------

_MAY_ASK = (
    "SELECT NOT pg_is_in_recovery() AND has_function_privilege('pg_control_system()', 'execute') "
    "AND has_function_privilege('pg_walfile_name(pg_lsn)', 'execute')"
)
_IDENTITY = (
    "SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), "
    "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), "
    "(SELECT oid FROM pg_database WHERE datname = current_database()), "
    "to_regclass('meta')::oid)"
)
"""The cluster, its timeline, the database and a table. A standby that took over and a base backup
restored to a moment have another timeline; a restored dump has another database or table."""

_MOVED = (
    "the database was put back from a backup, or a standby took over, since it was last noted (the "
    "server or its timeline is another); stop the services, run `tallyhook db restored`, and start "
    "again: where nothing was lost, that harms nothing"
)


async def server_moved(connection: AsyncConnection) -> str | None:
    """Say so where PostgreSQL is another server than noted, or on another timeline, and what to do.

    A base backup that is started as it is leaves no trace and is not noticed.
    """
    noted = await _noted_server(connection)
    if noted is None:
        return None
    found = await _server(connection)
    return None if found in (None, noted) else _MOVED


async def note_server(connection: AsyncConnection, *, once: bool = False) -> None:
    """Note which PostgreSQL server this is. `once`: only where none is noted."""
    if once and await _noted_server(connection) is not None:
        return
    found = await _server(connection)
    if found is not None:
        await connection.execute(
            text(
                "INSERT INTO meta (name, value) VALUES ('server', :value) "
                "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
            ),
            {"value": found},
        )


async def _noted_server(connection: AsyncConnection) -> str | None:
    noted: str | None = await connection.scalar(text("SELECT value FROM meta WHERE name='server'"))
    return noted


async def _server(connection: AsyncConnection) -> str | None:
    """Identify the server; None on SQLite, on a standby, and without the right to ask."""
    if connection.dialect.name == "sqlite" or not await connection.scalar(text(_MAY_ASK)):
        return None
    identity: str = (await connection.execute(text(_IDENTITY))).scalar_one()
    return identity
