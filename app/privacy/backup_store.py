"""Copies of an SQLite database: taken while it is served, looked at before they get their name.

    1 lock    the temporary file beside the target, so that two copies cannot mix
    2 copy    one snapshot, page by page, by SQLite's own backup; writers go on meanwhile
    3 add     what was accepted and is not read in that snapshot: rows of the inbox, of which
              a snapshot was begun before; what is read in between is in both, and read once
    4 sync    the copy, and drop what the page cache holds of it
    5 look    at the copy as the disk has it: its structure, its stamp, its counts
    6 name    it, and sync its directory

The source is read through SQLite only, on a connection that cannot write or checkpoint. Its one
read transaction lasts for the whole copy: otherwise every commit of a service would make the
backup begin again. The log cannot be emptied meanwhile and grows by what is written.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.core.errors import StoreUnavailable, UsageError
from app.core.text import counted, printable
from app.database.made import SUFFIX as MADE
from app.receiving.inbox_file_store import path_of
from app.receiving.inbox_store import POSITION
from reconcile.instants import Instant, format_instant

PAGES_AT_ONCE: Final = 1_000
"""Pages of 4 KiB between two looks at whether to go on: some 5 ms."""

COMPANIONS: Final = ("-journal", "-wal", "-shm")
"""What SQLite may leave beside a file. One that is of another file would be played into it."""

_LOCKS: Final = (".serving", ".writing", ".waiting", ".reading", MADE)
"""What a store leaves beside a file that it had open."""

Progress = Callable[[int, int], None]
"""Told how many pages are done, and of how many. What it raises ends the copy."""

_COUNTED: Final = {
    "deliveries": "delivery",
    "events": "event",
    "records": "record",
    "revisions": "revision",
}
"""Tables of which the rows are counted, and what one of them is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a database file holds, as it says itself.

    environment    the stamp: sandbox or live
    version        of the schema
    size           bytes
    counts         rows by table
    last_revision  the last place in the outcome feed; 0 where nothing was published
    last_arrival   when the latest delivery was received; None without one
    """

    environment: str | None
    version: str
    size: int
    counts: dict[str, int]
    last_revision: int
    last_arrival: Instant | None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        arrival = self.last_arrival
        return {
            "environment": self.environment,
            "version": self.version,
            "bytes": self.size,
            **self.counts,
            "last_revision": self.last_revision,
            "last_arrival": None if arrival is None else format_instant(arrival),
        }

    def sentence(self) -> str:
        """For a person."""
        rows = ", ".join(counted(self.counts[table], one, table) for table, one in _COUNTED.items())
        until = "" if self.last_arrival is None else f", until {format_instant(self.last_arrival)}"
        return f"{self.environment} database, {counted(self.size, 'byte')}: {rows}{until}"


@contextmanager
def copied(
    source: Path, target: Path, *, progress: Progress, thorough: bool = False
) -> Iterator[tuple[Path, Contents]]:
    """A complete copy of `source` under a temporary name beside `target`, and what it holds.

    thorough  the source may be of anybody's making: it is a whole file, and every index is compared
              with its table, too, which is several times the work

    The caller names it with `put_in_place`, or it is gone when the block ends. Raises
    StoreUnavailable where the source is no sound database of ours or the copy cannot be written.
    """
    part = target.with_name(target.name + ".part")
    descriptor = _locked(part)  # 1
    try:
        for name in COMPANIONS:
            Path(f"{part}{name}").unlink(missing_ok=True)
        os.ftruncate(descriptor, 0)
        if thorough:
            _require_whole_pages(source)
        with _unread_beside(source) as inbox:
            _copy(source, part, progress)  # 2
            _add_unread(inbox, part)  # 3
        os.fsync(descriptor)  # 4
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        yield part, _contents_of(part, called=source, thorough=thorough)  # 5
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreUnavailable(f"the copy {target} cannot be written: {reason}") from error
    finally:
        for name in ("", *COMPANIONS, *_LOCKS):
            Path(f"{part}{name}").unlink(missing_ok=True)
        os.close(descriptor)


def put_in_place(part: Path, target: Path) -> None:
    """Give a finished copy its name (6). It replaces what has that name, in one step."""
    os.replace(part, target)
    sync_folder(target)


def sync_folder(path: Path) -> None:
    """Make the names in the path's folder durable."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _contents_of(path: Path, *, called: Path, thorough: bool) -> Contents:
    check = "integrity_check" if thorough else "quick_check"
    try:
        with closing(reading(path)) as database:
            (found,) = database.execute(f"PRAGMA {check}(1)").fetchone()
            if found != "ok":
                raise StoreUnavailable(f"{called} is damaged: {_one_line(found)}")
            return _contents(database, path)
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:  # of a row's own kind
        raise StoreUnavailable(
            f"{called} is no database of Tallyhook's: {_one_line(error)}"
        ) from error


def _one_line(found: object) -> str:
    """What SQLite says of a file, which may be of any bytes."""
    return printable(" ".join(str(found).split()))


def _contents(database: sqlite3.Connection, path: Path) -> Contents:
    def one(sql: str) -> Any:
        row = database.execute(sql).fetchone()
        return None if row is None else row[0]

    return Contents(
        environment=one("SELECT value FROM meta WHERE name='environment'"),
        version=one("SELECT version_num FROM alembic_version"),
        size=path.stat().st_size,
        counts={name: one(f"SELECT count(*) FROM {name}") for name in _COUNTED},  # noqa: S608
        last_revision=one("SELECT max(seq) FROM revisions") or 0,
        # Ids begin with the time of arrival, so the last one is found without looking at all.
        last_arrival=one("SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1"),
    )


def reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _locked(part: Path) -> int:
    """The temporary file, ours alone: its descriptor is closed after SQLite has closed its own."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(part, flags, 0o600)
    except OSError as error:
        raise UsageError(f"{part} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(f"another process is writing {part}; wait for it") from None
    os.fchmod(descriptor, 0o600)
    return descriptor


def _require_whole_pages(source: Path) -> None:
    """SQLite itself takes what is missing of the last page for zeros."""
    try:
        with closing(reading(source)) as given:
            (size,) = given.execute("PRAGMA page_size").fetchone()
    except (sqlite3.Error, ValueError):  # to be told by whoever copies it
        return
    if source.stat().st_size % size:
        raise StoreUnavailable(f"{source} is cut off: its last page is not whole")


@contextmanager
def _unread_beside(source: Path) -> Iterator[sqlite3.Connection | None]:
    """A snapshot of the inbox beside a database; None where there is none."""
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
        raise StoreUnavailable(f"{path} cannot be copied: {_one_line(error)}") from error


def _add_unread(inbox: sqlite3.Connection | None, part: Path) -> None:
    """Put the rows that the copy had not read into its own table."""
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
            # One plain file: without a log beside it that must travel with it.
            writing.execute("PRAGMA journal_mode=DELETE").fetchone()
    except (sqlite3.Error, ValueError) as error:  # its words may be bytes of the file
        raise StoreUnavailable(f"{source} cannot be copied: {_one_line(error)}") from error
