"""Puts a backup in an SQLite database's place, so that no log of the old one is played into it.

    1 lock    nobody may serve or write
    2 copy    the backup beside the database, and look at the copy
    3 fold    the old database's log into its file, and keep the file under another name
    4 switch  the names, in one step

After a crash between any two steps the database is the old one or the new one, whole. Where the
old one is damaged its log cannot be folded; it is set aside with its file before the switch.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from app.errors import ConfigurationError, StoreUnavailable
from app.store.database.engine import BUSY_TIMEOUT_MS
from app.store.database.locks import ServiceLock, WriteLock
from app.store.database.schema import known_versions
from app.store.keeping.backup import (
    COMPANIONS,
    Contents,
    Progress,
    copied,
    put_in_place,
    sync_folder,
)

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What stands in the database's place now, and where the one before it is kept, if any."""

    contents: Contents
    kept: Path | None


@asynccontextmanager
async def alone(database: Path) -> AsyncIterator[None]:
    """Nobody else serves or writes. Raises ConfigurationError while a service runs."""
    database.parent.mkdir(parents=True, exist_ok=True)
    serving, writing = ServiceLock(database), WriteLock(database)
    serving.take()
    try:
        await writing.take()
        yield
    finally:
        writing.close()
        serving.release()


def put_back(
    backup: Path, database: Path, *, environment: str | None, keep_as: str, progress: Progress
) -> Restored:
    """Steps 2 to 4; the caller holds `alone`. Blocks for as long as the copy takes.

    environment  what the backup must be stamped with; None: whatever it is
    keep_as      the name that the file in its place gets

    Raises ConfigurationError for a backup of the other environment or of a newer program.
    """
    with copied(backup, database, progress=progress) as (part, contents):
        _check(contents, environment)
        kept = None
        if database.exists():
            kept = database.with_name(keep_as)
            _set_aside(database, kept)
        for name in COMPANIONS:
            Path(f"{database}{name}").unlink(missing_ok=True)
        sync_folder(database)
        put_in_place(part, database)
    return Restored(contents=contents, kept=kept)


def _check(contents: Contents, environment: str | None) -> None:
    if environment is not None and contents.environment != environment:
        raise ConfigurationError(
            [
                f"TALLYHOOK_ENVIRONMENT: the backup is of {contents.environment}, this is "
                f"{environment}; restore it where it belongs"
            ]
        )
    if contents.version not in known_versions():
        raise ConfigurationError(
            [
                f"TALLYHOOK_DATABASE_URL: the backup is at version {contents.version}, which this "
                "program does not know; restore it with the newer program that made it"
            ]
        )


def _set_aside(database: Path, kept: Path) -> None:
    """Keep the old database under a second name, with its log where that could not be folded."""
    log, kept_log = Path(f"{database}-wal"), Path(f"{kept}-wal")
    if log.exists():
        shutil.copy2(log, kept_log)  # SQLite deletes the log of a file that it cannot read
    unfolded = False
    try:
        unfolded = not _fold_log(database)
    finally:
        if not unfolded:
            kept_log.unlink(missing_ok=True)
    os.link(database, kept)


def _fold_log(database: Path) -> bool:
    """Whether all of the log is in the file now; False where the database is damaged.

    Raises StoreUnavailable where it could not be done for another reason.
    """
    try:
        with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_MS / 1000)) as connection:
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGED:
            return False
        raise StoreUnavailable(f"{database} cannot be set aside: {error}") from error
    if busy:
        raise StoreUnavailable(f"another process reads {database}; end it, then restore again")
    return True
