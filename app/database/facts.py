"""What a database says of itself: which one it is, and what of it endangers what it keeps."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.engine import awaits_standby, switched_off, unsafe_standbys

AGAIN_S = 0.05

_CHECKS = {False: "PRAGMA quick_check(20)", True: "PRAGMA integrity_check(20)"}


async def damage(
    connection: AsyncConnection, *, thorough: bool = False, until: asyncio.Event | None = None
) -> list[str]:
    """Problems that SQLite's own check finds; PostgreSQL has tools of its own for this.

    thorough  compare every index with its table, too: several times the work
    until     when this is set meanwhile, the check is cut short and there are none
    """
    if connection.dialect.name != "sqlite":
        return []
    checking = asyncio.ensure_future(connection.execute(text(_CHECKS[thorough])))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """One database.

    version       (3, 40, 1) of SQLite, (18, 4) of PostgreSQL
    journal_mode  of an SQLite file; None elsewhere
    off           settings of a PostgreSQL server without which a crash loses what it confirmed
    awaits        whether it confirms nothing, since a standby that it waits for is not there
    standbys      what would be lost if a standby took over, one sentence each
    moved         that it was put back, or a standby took over, since it was noted; one sentence
    no_writes     why the server takes no writes; one sentence, a semicolon, and what to do
    """

    kind: Literal["SQLite", "PostgreSQL"]
    version: tuple[int, ...]
    journal_mode: str | None = None
    off: tuple[str, ...] = ()
    awaits: bool = False
    standbys: tuple[str, ...] = ()
    moved: str | None = None
    no_writes: str | None = None


async def database_facts(connection: AsyncConnection) -> DatabaseFacts:
    """Look; nothing is changed."""
    if connection.dialect.name == "sqlite":
        mode = (await connection.execute(text("PRAGMA journal_mode"))).scalar_one()
        return DatabaseFacts(
            kind="SQLite", version=sqlite3.sqlite_version_info, journal_mode=str(mode)
        )
    number = int((await connection.execute(text("SHOW server_version_num"))).scalar_one())
    return DatabaseFacts(
        kind="PostgreSQL",
        version=(number // 10_000, number % 10_000),
        off=tuple(await switched_off(connection)),
        awaits=await awaits_standby(connection),
        standbys=tuple(await unsafe_standbys(connection)),
        moved=await server_moved(connection),
        no_writes=await _no_writes(connection),
    )


async def _no_writes(connection: AsyncConnection) -> str | None:
    """Asked of the server's defaults, since our own transaction only reads."""
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
"""The cluster, its timeline, the database and a table of it: a base backup that was brought to a
moment, and a standby that took over, have another timeline; a dump that was read in, another
database or table."""

_MOVED = (
    "the database was put back from a backup, or a standby took over, since it was last noted (the "
    "server or its timeline is another); stop the services, run `tallyhook db restored`, and start "
    "again: where nothing was lost, that harms nothing"
)


async def server_moved(connection: AsyncConnection) -> str | None:
    """Where PostgreSQL is another server than was noted, or on another timeline: one sentence, a
    semicolon, and what to do. A restore that leaves no trace of itself is not seen."""
    noted = await _noted_server(connection)
    if noted is None:
        return None
    found = await _server(connection)
    return None if found in (None, noted) else _MOVED


async def note_server(connection: AsyncConnection, *, once: bool = False) -> None:
    """Note which server of PostgreSQL this is. `once`: only where none is noted."""
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
    """None on SQLite, on a standby, and where the server does not show it to this user."""
    if connection.dialect.name == "sqlite" or not await connection.scalar(text(_MAY_ASK)):
        return None
    identity: str = (await connection.execute(text(_IDENTITY))).scalar_one()
    return identity
