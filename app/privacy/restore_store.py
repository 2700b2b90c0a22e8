"""Puts a backup in an SQLite database's place, so that no log of the old one is played into it.

    alone        nobody else serves or writes
    laid_beside  the backup, copied beside the database: the copy is sound, of this environment
    replaced_by  what the database that is there says of those who may come in, and of its feed
    in_place     the old database's log is folded into its file, which is kept under another name;
                 then the names are switched, in one step

After a crash between any two steps the database is the old one or the new one, whole. Where the
old one is damaged its log cannot be folded; it is set aside with its file before the switch.
What is done to the copy before it is put in place is for `app.privacy.restore` to say.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable, StrangeSchema
from app.database.engine import BUSY_TIMEOUT_MS
from app.database.locks import ServiceLock, WriteLock
from app.database.made import Made
from app.database.schema import known_versions
from app.privacy.backup_store import (
    COMPANIONS,
    Contents,
    Progress,
    copied,
    put_in_place,
    reading,
    sync_folder,
)
from reconcile.instants import Instant

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_TOKENS: Final = (
    "SELECT name, hash FROM tokens WHERE revoked_at IS NULL AND (until IS NULL OR until > :now)"
)
_ENDLESS_TOKENS: Final = "SELECT name, hash FROM tokens WHERE revoked_at IS NULL"
_HAVE_ENDS: Final = "SELECT count(*) FROM pragma_table_info('tokens') WHERE name='until'"
_OPERATORS: Final = "SELECT name, role FROM operators WHERE disabled_at IS NULL"
_HEAD: Final = (
    "SELECT max(coalesce((SELECT value FROM counters WHERE name='revisions'), 0), "
    "coalesce((SELECT max(seq) FROM revisions), 0))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Who may come in: tokens as (name, hash), operators as (name, role)."""

    tokens: frozenset[tuple[Any, ...]]
    operators: frozenset[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What can be read of the database in whose place a backup comes. `head`: its last revision."""

    in_force: InForce
    head: int


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


@contextmanager
def laid_beside(
    backup: Path, database: Path, *, environment: str | None, progress: Progress
) -> Iterator[tuple[Path, Contents]]:
    """A copy of the backup beside the database, and what it holds; gone when the block ends,
    unless `in_place` was called. Blocks for as long as the copy takes.

    environment  what the backup must be stamped with; None: whatever it is

    Raises ConfigurationError for a backup of the other environment or of a newer program, and
    StoreUnavailable for one that is damaged or none of ours.
    """
    with copied(backup, database, progress=progress, thorough=True) as (part, contents):
        _check(contents, environment)
        yield part, contents


@contextmanager
def found_in(backup: Path) -> Iterator[None]:
    """What the copy makes fail is the backup's fault. Raises StoreUnavailable for it."""
    try:
        yield
    except (StrangeSchema, StorePoisoned, DBAPIError) as error:
        if isinstance(error, StrangeSchema):
            found = error.found
        elif isinstance(error, StorePoisoned):
            found = str(error).partition(";")[0]
        else:
            found = "its tables are not what Tallyhook keeps in them"
        raise StoreUnavailable(
            f"{backup} is not restored, and nothing was changed: {found}; restore another backup"
        ) from error


def in_place(part: Path, database: Path, *, keep_as: str) -> Path | None:
    """Switch the names. Returns where the database that was there is kept under its new name."""
    _sync_whole(part)
    kept = None
    if database.exists():
        kept = _free_name(database.with_name(keep_as))
        _set_aside(database, kept)
    for name in COMPANIONS:
        Path(f"{database}{name}").unlink(missing_ok=True)
    Made(database).forget()  # the next start notes what is there then
    sync_folder(database)
    put_in_place(part, database)
    return kept


def _free_name(wanted: Path) -> Path:
    """The name, or with a number behind it where two restores come in one second."""
    numbered = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(each for each in chain([wanted], numbered) if not each.exists())


def url_of_copy(url: str, part: Path) -> str:
    """The URL by which a store opens the copy."""
    return make_url(url).set(database=str(part)).render_as_string(hide_password=False)


async def in_force(connection: AsyncConnection, *, now: Instant) -> InForce:
    """Who may come in, by a database of this version."""
    tokens = await connection.execute(text(_TOKENS), {"now": now})
    operators = await connection.execute(text(_OPERATORS))
    return InForce(
        tokens=frozenset(tuple(row) for row in tokens),
        operators=frozenset(tuple(row) for row in operators),
    )


def replaced_by(database: Path, *, now: Instant) -> Replaced | None:
    """What the database says that is about to be replaced; None where there is none, or one that
    cannot be read, or of a version before there were operators."""
    if not database.exists():
        return None
    try:
        with closing(reading(database)) as connection:
            (ends,) = connection.execute(_HAVE_ENDS).fetchone()  # a version before has no column
            tokens_sql = _TOKENS if ends else _ENDLESS_TOKENS
            tokens = frozenset(connection.execute(tokens_sql, {"now": now}).fetchall())
            operators = frozenset(connection.execute(_OPERATORS).fetchall())
            (head,) = connection.execute(_HEAD).fetchone()
    except sqlite3.Error:
        return None
    return Replaced(in_force=InForce(tokens=tokens, operators=operators), head=head)


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


def _sync_whole(part: Path) -> None:
    """The copy is one file, without a log that must travel with it, and the disk has it."""
    log = Path(f"{part}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreUnavailable(f"another process reads {part}; end it, then restore again")
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
