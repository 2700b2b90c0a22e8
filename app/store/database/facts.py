"""What a database says of itself: which one it is, and what of it endangers what it keeps."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database.safety import switched_off, unsafe_standbys


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """One database.

    version       (3, 40, 1) of SQLite, (18, 4) of PostgreSQL
    journal_mode  of an SQLite file; None elsewhere
    off           settings of a PostgreSQL server without which a crash loses what it confirmed
    standbys      what would be lost if a standby took over, one sentence each
    """

    kind: Literal["SQLite", "PostgreSQL"]
    version: tuple[int, ...]
    journal_mode: str | None = None
    off: tuple[str, ...] = ()
    standbys: tuple[str, ...] = ()


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
        standbys=tuple(await unsafe_standbys(connection)),
    )
