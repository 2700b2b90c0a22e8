"""A database: opened safely, with snapshots for who reads and one transaction at a time for who
writes.

    async with database.reading() as connection: …      # a snapshot
    async with database.writing() as connection: …      # one transaction

What may be done with a connection stands in the stores of the rooms. `receiving/inbox.py` opens a
database together with its inbox.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app.config.settings import Settings
from app.core.clock import Clock
from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable, UsageError
from app.database import schema
from app.database.engine import (
    is_sqlite,
    read_ahead,
    reading_engine,
    sqlite_path,
    writing_engine,
)
from app.database.facts import damage, note_server
from app.database.faults import PUT_BACK, driver_errors, is_full, is_not_there_yet, why_not_opened
from app.database.locks import MIGRATING, ServiceLock, WriteLock, take_lock
from app.database.postgresql import Purpose
from app.database.schema import Made, identity_of
from app.database.statements import Plain, Result, Words, run, run_snapshot
from app.database.writer import MIB, LogLength, Place, Space, Writer

log = structlog.get_logger()

SERVER_S: Final = 60.0
"""How long whoever serves or works waits for a PostgreSQL server to answer, when it starts."""

AGAIN_S: Final = 0.2
"""Between two tries."""

LOOKED_AT_FIRST: Final = 64 * MIB
"""Bytes of an SQLite file up to which all of it is looked at before anything is acknowledged: a
second from a slow disk. A larger one is looked at while it serves."""


class Database:
    """One database. Nothing is opened before it is needed; `close` gives everything back."""

    def __init__(self, settings: Settings, *, purpose: Purpose = "upgrading") -> None:
        """purpose: see `open`; `upgrading` for what is done without having it open."""
        self.url = settings.database_url
        self.shared = not is_sqlite(self.url)
        """Whether several processes may receive and fold on this database."""
        self.path = None if self.shared else sqlite_path(self.url)
        """The database file on SQLite; None elsewhere."""
        self.environment: str | None = settings.environment
        self.looked = True
        """Whether the whole file has been looked at; else `look` is still to be called."""
        self.on_poison: Callable[[str], None] = lambda reason: None
        """Called once with the reason why nothing more may be written."""
        self._made = None if self.path is None else Made(self.path)
        self.service = None if self.path is None else ServiceLock(self.path)
        """Who holds it serves; None on PostgreSQL."""
        self._log = None if self.path is None else LogLength(self.path)
        self.reader = reading_engine(self.url)
        self.writer = Writer(
            writing_engine(self.url, purpose=purpose),
            lock=None if self.path is None else WriteLock(self.path),
            log=self._log,
            place=None if self.path is None else Place(self.path),
            space=Space(
                None if self.path is None else self.path.absolute().parent,
                low_water_mib=settings.disk_low_water_mb,
            ),
        )
        self._writers = [self.writer]
        self._failed = False
        self.writer.on_poison = self._fail

    def fail_together(self, writer: Writer) -> None:
        """From now on an error of the disk under one file ends what is written to the other."""
        self._writers.append(writer)
        writer.on_poison = self._fail

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            for writer in self._writers:
                writer.fail(reason)
            self.on_poison(reason)

    @property
    def poison(self) -> str | None:
        """Why nothing more may be written, one sentence; None while all is well."""
        return self.writer.poison

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection on one consistent snapshot. Raises StoreUnavailable without one."""
        try:
            async with self.reader.connect() as connection, connection.begin():
                yield connection
        except driver_errors() as error:
            raise self.writer.judged(error) from error

    async def on_snapshot(
        self, function: Plain[Words, Result], *args: Words.args, **words: Words.kwargs
    ) -> Result:
        """Run a plain function that only reads on a snapshot of its own: a third of what `reading`
        costs for one question. Raises StoreUnavailable without one."""
        try:
            async with self.reader.connect() as connection:
                return await run_snapshot(connection, function, *args, **words)
        except driver_errors() as error:
            raise self.writer.judged(error) from error

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """One transaction, after every other writer's. Raises StoreUnavailable without room."""
        await self.writer.make_room()
        async with self.writer.transaction() as connection:
            yield connection

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self, purpose: Purpose) -> None:
        """Check that the database is this environment's and that its schema is ours.

        serving  for a receiver; nobody else may serve, and the disk is made sure of. A large file
                 is still to be looked at: see `looked`
        working  for what works behind a receiver; on SQLite the disk is made sure of, too: nothing
                 is deleted from the inbox before
        alone    as serving, and no service may run
        writing  beside a service: an SQLite database is brought up to date, a PostgreSQL one is
                 checked
        folding  beside the process that works: nothing is made or brought up to date
        reading  likewise, without a connection that writes
        """
        with system_errors_explained():
            if purpose in ("serving", "alone"):
                self._take(to_read_all=purpose == "alone")
            if purpose in ("serving", "alone", "writing"):
                await self._open_writing()
            else:
                if purpose == "working" and self.path is not None:
                    drop_cached_pages(self.path)
                await self._open_reading()
            if purpose in ("working", "folding"):
                await self.writer.connect()
            if purpose == "serving":
                size = 0 if self.path is None else self.path.stat().st_size
                self.looked = size <= LOOKED_AT_FIRST
                if self.looked:
                    await self.look()
            if purpose in ("serving", "working", "alone") and self.path is not None:
                await sync_file(self.writer, self.path)

    def _take(self, *, to_read_all: bool) -> None:
        self._make_folder()
        if self.service is not None and self.path is not None:
            self.service.take()
            drop_cached_pages(self.path)
            if to_read_all:
                read_ahead(self.path)

    async def look(self, *, until: asyncio.Event | None = None) -> None:
        """Look for damage in the whole file. Raises StorePoisoned, for good, when there is any.

        until  cuts it short when it is set; nothing is known then
        """
        async with self.reading() as connection:
            found = await damage(connection, until=until)
        if found:
            self.writer.fail(f"{found[0]}; nothing more is acknowledged: {PUT_BACK}")
            raise StorePoisoned(f"{found[0]}: {PUT_BACK}")

    async def _open_writing(self) -> None:
        """Bring an SQLite database up to date, or check a PostgreSQL one; check that its schema is
        ours, and its stamp.

        On a full disk too: there is something to read, and to free space by.
        """
        self._make_folder()
        async with self.writer.transaction() as connection:
            current = await schema.current_version(connection)
            if current != schema.NEWEST and self.shared:
                raise _upgrade_is_due(current)
            await _bring_up_to_date(connection, current)
            self.environment = await schema.stamp_environment(connection, self.environment)
            if self.environment is None:
                raise _environment_unstated()
            await note_server(connection, once=True)
            identity = await run(connection, identity_of)
        self._note_made(identity)

    def _note_made(self, identity: str) -> None:
        if self._made is not None:
            self._made.note(identity)

    def _make_folder(self, *, stamped: bool = True) -> None:
        """Make the file where there is none; one that is to be stamped, only where it is said for
        which environment: else it would be left empty."""
        if self._made is not None:
            self._made.check_there()
        if self.path is not None and not self.path.exists():
            if stamped and self.environment is None:
                raise _environment_unstated()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its log the mode of the database; it would let everyone read both.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._check_is_file()

    def _check_there(self) -> None:
        """Raises StoreUnavailable, or ConfigurationError, where there is no file to read."""
        if self._made is not None:
            self._made.check_there()
        if self.path is not None and not self.path.exists():
            raise StoreUnavailable(_none_yet(self.path))
        self._check_is_file()
        if self.path is not None and not os.access(self.path, os.R_OK):  # SQLite names no file
            denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))
            raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(denied)}")

    def _check_is_file(self) -> None:
        if self.path is not None and not self.path.is_file():  # SQLite calls it a failing disk
            raise ConfigurationError(
                ["TALLYHOOK_DATABASE_URL: names something that is no file; write the path of one"]
            )

    async def _open_reading(self) -> None:
        """Check that there is a database to read, and that it is this environment's."""
        self._check_there()
        async with self.reading() as connection:
            current = await schema.current_version(connection)
            if current != schema.NEWEST:
                raise _upgrade_is_due(current)
            self.environment = await schema.stamp_environment(connection, self.environment)

    @asynccontextmanager
    async def previewing(self) -> AsyncIterator[tuple[AsyncConnection, str | None]]:
        """Yield a snapshot of a database that may not be up to date, and its version."""
        self._check_there()
        with system_errors_explained():
            async with self.reading() as connection:
                yield connection, await schema.current_version(connection)

    async def upgrade(self) -> tuple[str | None, str]:
        """Run the migrations that are due. Returns the versions before and after."""
        with system_errors_explained():
            self._make_folder(stamped=False)
            async with self.writer.transaction() as connection:
                await run(connection, take_lock, MIGRATING)
                before = await schema.current_version(connection)
                await _bring_up_to_date(connection, before)
                await schema.stamp_environment(connection, self.environment)
                identity = await run(connection, identity_of)
            self._note_made(identity)
        return before, schema.NEWEST

    async def create(self, *, anew: bool) -> Path:
        """Make the database of an SQLite URL. Raises UsageError where there is one already."""
        if self.path is None or self._made is None or self.service is None:
            raise UsageError("PostgreSQL's databases are made by `createdb`, then `db upgrade`")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.service.take()
        if self.path.exists() and self.path.stat().st_size:
            raise UsageError(f"there is a database at {self.path}; move it away first")
        if anew:
            self._made.forget()
        await self.upgrade()
        return self.path

    async def strange_objects(self) -> list[str]:
        """What of the schema is not as the migrations make it, one sentence each."""
        async with self.reading() as connection:
            if not self.shared or await schema.is_own(connection):
                return await schema.strange_objects(connection)
        async with self.writer.transaction() as connection:  # what to compare with is made there
            return await schema.strange_objects(connection)

    async def close(self) -> None:
        """Give everything back. Harmless on a database that was never opened."""
        closing = [self.reader.dispose, self.writer.close]
        if self.writer.poison is not None:
            # The last to close folds the log into the file. Readers cannot, and after an I/O error
            # nobody may: the next start does, once it has dropped what the page cache shows.
            closing.reverse()
        for close in closing:
            await close()
        if self._log is not None:
            self._log.close()
        if self.service is not None:
            self.service.release()


class DatabaseContext(Protocol):
    """What a use case needs of an open database where no AppContext is known."""

    @property
    def database(self) -> Database:
        """The open database."""

    @property
    def clock(self) -> Clock:
        """The source of the present instant."""


async def _bring_up_to_date(connection: AsyncConnection, current: str | None) -> None:
    """Run the migrations that are due. Raise StrangeSchema unless the schema is then ours."""
    if current != schema.NEWEST:
        await schema.upgrade(connection)
    await schema.require_own(connection)


async def sync_file(writer: Writer, path: Path) -> None:
    """Fold the write-ahead log into the file (SQLite syncs it) and sync its directory.

    The file itself must not be opened here: closing any descriptor of it would drop the locks
    that SQLite holds in this process, and another process could then delete the log.
    """
    if not await writer.checkpoint():
        log.warning("another process is reading the database; its log stays until it ends")
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_cached_pages(path: Path) -> None:
    """After a failed write the page cache can show what the disk does not hold; read the disk.

    Only before this process has the database open: see `sync_file`.
    """
    for name in (path, Path(f"{path}-wal")):
        if name.exists():
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


async def once_there(database: Database, opening: Callable[[], Awaitable[None]]) -> None:
    """Open a database; wait for a PostgreSQL server that is still starting, as happens where
    machines are started together. Raises StoreUnavailable when it does not answer in time."""
    ends, reported = monotonic() + SERVER_S, set[bool]()
    while True:
        try:
            return await opening()
        except StoreUnavailable as error:
            left, full = ends - monotonic(), is_full(error)
            if not database.shared or left <= 0 or not is_not_there_yet(error):
                raise
        if full not in reported:
            reported.add(full)
            if full:
                log.warning("waiting for the database server, which has no connection free")
            else:
                log.warning("waiting for the database server, which does not answer yet")
        await asyncio.sleep(min(AGAIN_S, left))


@contextmanager
def system_errors_explained() -> Iterator[None]:
    """A folder that cannot be made, a server that is not there: the reason is the system's own."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(error)}") from error


def _none_yet(path: Path) -> str:
    return f"there is no database at {path.absolute()} yet; `tallyhook serve` makes it"


def _environment_unstated() -> ConfigurationError:
    return ConfigurationError(["TALLYHOOK_ENVIRONMENT: say sandbox or live; this database is new"])


def _upgrade_is_due(current: str | None) -> ConfigurationError:
    at = (
        "is empty: no table of Tallyhook's is in it yet"
        if current is None
        else f"is at version {current}, and this program needs {schema.NEWEST}"
    )
    return ConfigurationError(
        [f"TALLYHOOK_DATABASE_URL: the database {at}; run `tallyhook db upgrade`"]
    )
