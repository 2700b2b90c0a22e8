"""Locks of the server's own, between processes on one PostgreSQL.

They do there what the files of `locks` and the single writer do for SQLite:

    SERVING    shared by whoever serves, exclusive for whoever rebuilds; held by the connection
    READING    one process at a time that reads the inbox; held by a connection
    MIGRATING  one upgrade at a time
    LINKING    one transaction at a time that adds events or links: what it decides rests on which
               of them there are
    REFUSING   one transaction at a time that adds to the ring of rejections
    IMPORTING  one transaction at a time that begins to import a file
    RECONCILING  one transaction at a time that writes what a run saw
    SEALING    one transaction at a time that adds to the log: its leaves are numbered

All but the first two end with their transaction; those of a process that dies, the server takes
back.
"""

from __future__ import annotations

from typing import Final

from app.database.statements import PlainConnection

SERVING: Final = 7_411_001
MIGRATING: Final = 7_411_002
LINKING: Final = 7_411_003
REFUSING: Final = 7_411_004
IMPORTING: Final = 7_411_005
RECONCILING: Final = 7_411_006
SEALING: Final = 7_411_007
READING: Final = 7_411_008
"""Numbers of advisory locks; each database has its own. LINKING is taken before REFUSING, and both
before any row is locked; SEALING is taken alone."""


def take_lock(connection: PlainConnection, lock: int) -> None:
    """Wait for a lock that ends with the transaction. SQLite has one writer at a time anyway."""
    if connection.dialect != "sqlite":
        connection.ask(f"SELECT pg_advisory_xact_lock({lock})")
