"""Copy an SQLite database while it is served.

1 lock    the temporary file beside the target
2 copy    one snapshot with SQLite's own backup; writers continue
3 add     the inbox's accepted deliveries that the snapshot lacks
4 sync    the copy to the disk, and drop its pages from the page cache
5 check   structure, indexes, stamp and counts of the copy
6 name    the copy, and sync its folder
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, TypedDict

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core import errors
from app.core.document_of import document_of
from app.core.text import counted, printable
from app.database import schema
from app.database.engine import BUSY_TIMEOUT_MS
from app.database.gaps import LAST_COMMIT
from app.database.locks import ServiceLock, WriteLock
from app.database.schema import SUFFIX as MADE
from app.database.schema import Made
from app.database.statements import statement
from app.receiving.inbox_file_store import path_of
from app.receiving.inbox_store import POSITION
from app.sealing.log_store import ORIGIN_ROWS, all_origins
from reconcile.documents import Count, InstantText
from reconcile.instants import Instant, format_instant

PAGES_AT_ONCE: Final = 1_000
"""Number of pages copied before the next check for cancellation."""

COMPANIONS: Final = ("-journal", "-wal", "-shm")
"""Suffixes of SQLite's companion files."""

_LOCKS: Final = (".serving", ".writing", ".waiting", ".reading", MADE)

Progress = Callable[[int, int], None]
"""Function called with the copied and total pages. An exception ends the copy."""

_COUNTED: Final = {
    "deliveries": "delivery",
    "events": "event",
    "records": "record",
    "revisions": "revision",
}


class ContentsDocument(TypedDict):
    environment: str | None
    version: str
    bytes: Count
    deliveries: Count
    events: Count
    records: Count
    revisions: Count
    last_revision: Count
    last_arrival: InstantText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Content of a database file, as the file states it."""

    environment: str | None
    """The stamp: sandbox or live."""
    version: str
    size: int
    counts: dict[str, int]
    last_revision: int
    """Last number in the outcome feed; 0 without a publication."""
    last_arrival: Instant | None

    def document(self) -> ContentsDocument:
        return document_of(ContentsDocument, self, bytes=self.size, **self.counts)

    def sentence(self) -> str:
        rows = ", ".join(counted(self.counts[table], one, table) for table, one in _COUNTED.items())
        until = "" if self.last_arrival is None else f", until {format_instant(self.last_arrival)}"
        return f"{self.environment} database, {counted(self.size, 'byte')}: {rows}{until}"


@contextmanager
def copied(source: Path, target: Path, *, progress: Progress) -> Iterator[tuple[Path, Contents]]:
    """Copy `source` to a temporary file. Yield the file's path and contents.

    Call `put_in_place` to keep the copy. Raise StoreUnavailable for a damaged source or a failed
    write.
    """
    part = target.with_name(target.name + ".part")
    descriptor = _locked(part)  # 1
    try:
        for name in COMPANIONS:
            Path(f"{part}{name}").unlink(missing_ok=True)
        os.ftruncate(descriptor, 0)
        with _unread_beside(source) as inbox:
            _copy(source, part, progress)  # 2
            _add_unread(inbox, part)  # 3
        os.fsync(descriptor)  # 4
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        yield part, _contents_of(part, called=source)  # 5
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise errors.StoreUnavailable(f"the copy {target} cannot be written: {reason}") from error
    finally:
        for name in ("", *COMPANIONS, *_LOCKS):
            Path(f"{part}{name}").unlink(missing_ok=True)
        os.close(descriptor)


def put_in_place(part: Path, target: Path) -> None:
    """Rename a finished copy to `target`, even over a file."""
    os.replace(part, target)
    sync_folder(target)


def sync_folder(path: Path) -> None:
    """Sync the path's folder to disk, so that its file names survive a crash."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _contents_of(path: Path, *, called: Path) -> Contents:
    try:
        with closing(reading(path)) as database:
            (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise errors.StoreUnavailable(f"{called} is damaged: {_one_line(found)}")
            return _contents(database, path)
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:  # of a row's own kind
        raise errors.StoreUnavailable(
            f"{called} is not a Tallyhook database: {_one_line(error)}"
        ) from error


def _not_copied(path: Path, error: Exception) -> errors.StoreUnavailable:
    denied = os.access(path, os.F_OK) and not os.access(path, os.R_OK)  # SQLite does not say so
    why = "this user may not read it; run this as its owner" if denied else _one_line(error)
    return errors.StoreUnavailable(f"{path} cannot be copied: {why}")


def _one_line(found: object) -> str:
    return printable(" ".join(str(found).split()))


def _contents(database: sqlite3.Connection, path: Path) -> Contents:
    def one(sql: str) -> Any:
        row = database.execute(sql).fetchone()
        return None if row is None else row[0]

    return Contents(
        environment=one("SELECT value FROM meta WHERE name='environment'"),
        version=one("SELECT version_num FROM alembic_version"),
        size=path.stat().st_size,
        counts={
            name: one(statement("SELECT count(*) FROM {table}", table=name)) for name in _COUNTED
        },
        last_revision=one("SELECT max(seq) FROM revisions") or 0,
        # Ids begin with the time of arrival, so the last one is found without a full scan.
        last_arrival=one("SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1"),
    )


def reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _locked(part: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(part, flags, 0o600)
    except OSError as error:
        raise errors.UsageError(f"{part} cannot be written: {error.strerror}") from error
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or found.st_nlink != 1:
        os.close(descriptor)
        raise errors.UsageError(
            f"{part} belongs to another user, or is a hard link to another file: remove it, and "
            "choose a folder to which only you can write"
        )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise errors.UsageError(f"another process is writing {part}; wait for it") from None
    os.fchmod(descriptor, 0o600)
    return descriptor


_HEADER: Final = b"SQLite format 3\0"


def _require_whole_pages(source: Path) -> None:
    try:
        with source.open("rb") as file:
            begins = file.read(len(_HEADER))
    except OSError:  # reported when it is copied
        return
    if begins and begins != _HEADER[: len(begins)]:
        raise errors.StoreUnavailable(f"{source} is neither an SQLite database nor a backup")
    try:
        with closing(reading(source)) as given:
            (size,) = given.execute("PRAGMA page_size").fetchone()
    except (sqlite3.Error, ValueError):  # reported when it is copied
        return
    if source.stat().st_size % size:
        raise errors.StoreUnavailable(f"{source} is cut off: its last page is incomplete")


@contextmanager
def _unread_beside(source: Path) -> Iterator[sqlite3.Connection | None]:
    path = path_of(source)
    if not path.exists():
        yield None
        return
    try:
        with closing(reading(path)) as inbox:
            inbox.execute("BEGIN")
            inbox.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from now on
            yield inbox
    except (sqlite3.Error, ValueError) as error:
        raise _not_copied(path, error) from error


def _add_unread(inbox: sqlite3.Connection | None, part: Path) -> None:
    if inbox is None:
        return
    with closing(sqlite3.connect(part)) as copy, copy:
        row = copy.execute("SELECT value FROM counters WHERE name=?", (POSITION,)).fetchone()
        unread = inbox.execute(_UNREAD, (0 if row is None else row[0],))
        copy.executemany(_ADD_UNREAD, unread)


_UNREAD: Final = "SELECT count, received_at, size, records FROM inbox WHERE seq > ? ORDER BY seq"
_ADD_UNREAD: Final = "INSERT INTO inbox (count, received_at, size, records) VALUES (?, ?, ?, ?)"


def _copy(source: Path, part: Path, progress: Progress) -> None:
    try:
        with closing(reading(source)) as given, closing(sqlite3.connect(part)) as writing:
            writing.execute("PRAGMA journal_mode=OFF")  # a copy that is cut short is thrown away
            given.execute("BEGIN")
            given.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the snapshot
            given.backup(
                writing,
                pages=PAGES_AT_ONCE,
                progress=lambda _status, left, total: progress(total - left, total),
            )
            # One plain file, without a log beside it that would have to travel with it.
            writing.execute("PRAGMA journal_mode=DELETE").fetchone()
    except (sqlite3.Error, ValueError) as error:  # SQLite's message may quote bytes of the file
        raise _not_copied(source, error) from error


# --- puts a backup in an SQLite database's place, so that no log of the old one is played into it -


_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_TOKENS: Final = (
    "SELECT name, hash FROM tokens WHERE revoked_at IS NULL AND (until IS NULL OR until > :now)"
)
_OPERATORS: Final = "SELECT name, role FROM operators WHERE disabled_at IS NULL"
_HEAD: Final = (
    "SELECT max(coalesce((SELECT value FROM counters WHERE name='revisions'), 0), "
    "coalesce((SELECT max(seq) FROM revisions), 0))"
)
_LAST_COMMIT: Final = "SELECT coalesce(max(value), 0) FROM counters WHERE name=?"
_LOG: Final = "SELECT number + 1, hash FROM log_leaves ORDER BY number DESC LIMIT 1"
_ORIGINS: Final = "SELECT name, value FROM meta WHERE name IN (?, ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Credentials that are in force: tokens as (name, hash), operators as (name, role)."""

    tokens: frozenset[tuple[Any, ...]]
    operators: frozenset[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Facts of the database that a backup replaces."""

    in_force: InForce
    head: int
    """Number of the last revision."""
    last_commit: int
    log: tuple[int, bytes] | None = None
    """Number of leaves, and the last leaf's hash. None without a log."""
    origins: tuple[str, ...] = ()


@asynccontextmanager
async def alone(database: Path) -> AsyncIterator[None]:
    """Keep other processes out of the database within the block. Raise ConfigurationError if a
    service runs."""
    database.parent.mkdir(parents=True, exist_ok=True)
    serving, writing = ServiceLock(database), WriteLock(database)
    serving.serve()
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
    """Copy the backup into the database's folder. Yield the copy and its contents.

    Call `in_place` to keep the copy. Raise ConfigurationError for another environment or a newer
    program, and StoreUnavailable for a damaged backup.
    """
    _require_whole_pages(backup)
    with copied(backup, database, progress=progress) as (part, contents):
        _check(contents, environment)
        yield part, contents


@contextmanager
def found_in(backup: Path) -> Iterator[None]:
    """Convert the block's errors to StoreUnavailable with the backup's name."""
    try:
        yield
    except (errors.StrangeSchema, errors.StorePoisoned, DBAPIError) as error:
        if isinstance(error, errors.StrangeSchema):
            found = error.found
        elif isinstance(error, errors.StorePoisoned):
            found = str(error).partition(";")[0]
        else:
            found = "its tables hold data that Tallyhook does not write"
        raise errors.StoreUnavailable(
            f"{backup} was not restored, and nothing was changed: {found}; restore another backup"
        ) from error


_IDENTITY: Final = "SELECT value FROM meta WHERE name = 'id'"


def in_place(part: Path, database: Path, *, keep_as: str) -> Path | None:
    """Give the copy the database's name. Return the former database's new path, if any."""
    _sync_whole(part)
    with closing(reading(part)) as connection:
        ((identity,),) = connection.execute(_IDENTITY).fetchall()
    kept = None
    if database.exists():
        kept = _free_name(database.with_name(keep_as))
        _set_aside(database, kept)
    for name in COMPANIONS:
        Path(f"{database}{name}").unlink(missing_ok=True)
    made = Made(database)
    made.forget()  # after an interruption here, the next start records the state
    sync_folder(database)
    put_in_place(part, database)
    made.note(identity)  # if this file vanishes, no empty one is created
    return kept


def _free_name(wanted: Path) -> Path:
    numbered = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(each for each in chain([wanted], numbered) if not each.exists())


def url_of_copy(url: str, part: Path) -> str:
    return make_url(url).set(database=str(part)).render_as_string(hide_password=False)


async def in_force(connection: AsyncConnection, *, now: Instant) -> InForce:
    """Return the tokens and operators in force, in a database of this version."""
    tokens = await connection.execute(text(_TOKENS), {"now": now})
    operators = await connection.execute(text(_OPERATORS))
    return InForce(
        tokens=frozenset(tuple(row) for row in tokens),
        operators=frozenset(tuple(row) for row in operators),
    )


def replaced_by(database: Path, *, now: Instant) -> Replaced | None:
    """Return the facts of the replaced database, if readable."""
    if not database.exists():
        return None
    try:
        with closing(reading(database)) as connection:
            tokens = frozenset(connection.execute(_TOKENS, {"now": now}).fetchall())
            operators = frozenset(connection.execute(_OPERATORS).fetchall())
            (head,) = connection.execute(_HEAD).fetchone()
            (last_commit,) = connection.execute(_LAST_COMMIT, (LAST_COMMIT,)).fetchone()
            log = connection.execute(_LOG).fetchone()
            origins = all_origins(dict(connection.execute(_ORIGINS, ORIGIN_ROWS).fetchall()))
    except (sqlite3.Error, ValueError):
        return None
    in_force = InForce(tokens=tokens, operators=operators)
    return Replaced(in_force=in_force, head=head, last_commit=last_commit, log=log, origins=origins)


def _check(contents: Contents, environment: str | None) -> None:
    if environment is not None and contents.environment != environment:
        raise errors.ConfigurationError(
            [
                f"TALLYHOOK_ENVIRONMENT: the backup is from {contents.environment}, but this is "
                f"{environment}; restore it in its own environment"
            ]
        )
    if contents.version not in schema.VERSIONS:
        age = "older" if schema.is_before_release(contents.version) else "newer"
        raise errors.ConfigurationError(
            [
                f"TALLYHOOK_DATABASE_URL: the backup is at version {contents.version}, which this "
                f"program does not know; restore it with the {age} program that made it"
            ]
        )


def _sync_whole(part: Path) -> None:
    log = Path(f"{part}-wal")
    if log.exists() and log.stat().st_size:
        raise errors.StoreUnavailable(f"another process reads {part}; end it, then restore again")
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _set_aside(database: Path, kept: Path) -> None:
    log, kept_log = Path(f"{database}-wal"), Path(f"{kept}-wal")
    if log.exists():
        shutil.copy2(log, kept_log)  # SQLite deletes the log of a file that it cannot read
    incomplete = False
    try:
        incomplete = not _checkpoint_log(database)
    finally:
        if not incomplete:
            kept_log.unlink(missing_ok=True)
    os.link(database, kept)


def _checkpoint_log(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_MS / 1000)) as connection:
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGED:
            return False
        raise errors.StoreUnavailable(f"{database} cannot be set aside: {error}") from error
    if busy:
        raise errors.StoreUnavailable(
            f"another process is reading {database}; end it, then restore again"
        )
    return True
