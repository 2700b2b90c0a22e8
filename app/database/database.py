"""Open a database safely. Code reads from snapshots, and writes in one transaction at a time.

async with database.reading() as connection: …      # a snapshot
async with database.writing() as connection: …      # one transaction
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.clock import Clock
from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable, UsageError
from app.core.logs import log
from app.core.private_files import sync_folder
from app.database import engine, layout, schema
from app.database.facts import damage
from app.database.faults import PUT_BACK, driver_errors, is_full, is_not_there_yet, why_not_opened
from app.database.gaps import check_log_is_newer
from app.database.holders import Holder
from app.database.locks import MIGRATING, ServiceLock, WriteLock, take_lock
from app.database.postgresql import Purpose
from app.database.schema import Made, identity_of
from app.database.statements import Plain, PlainConnection, Result, Words, run, run_snapshot
from app.database.takeover import ANSWER_S, LOOK_S, NotCompared, ServerWatch, look, note_server
from app.database.writer import MIB, DatabaseFiles, LogLength, Space, Writer

SERVER_S: Final = 60.0
"""Seconds for which `serve` and workers wait at their start for a PostgreSQL server."""

AGAIN_S: Final = 0.2

CHECKED_BEFORE_SERVING: Final = 64 * MIB
"""Maximum bytes of an SQLite file that is checked before `serve` accepts deliveries.

The check takes a second on a slow disk.
"""


class DatabaseSettings(Protocol):
    """Settings that are needed to open a database."""

    @property
    def database_url(self) -> str: ...
    @property
    def environment(self) -> str | None: ...
    @property
    def disk_low_water_mb(self) -> int: ...


class Database:
    """Access to one database. Connections are opened at their first use and closed by `close`."""

    def __init__(self, settings: DatabaseSettings, *, purpose: Purpose = "upgrading") -> None:
        """Prepare access to a database without opening it.

        purpose  purpose for which `open` will be called, if it is
        """
        self.url = settings.database_url
        self.shared = not engine.is_sqlite(self.url)
        """True for a database on PostgreSQL, where several processes may receive and fold."""
        self.path = None if self.shared else engine.sqlite_path(self.url)
        """The SQLite database file; None on PostgreSQL."""
        self.spread = False
        """True if deliveries and events are on other nodes (see `layout`). Set by `open`."""
        self.environment: str | None = settings.environment
        self.looked = True
        """True once the whole file has been checked. Until then, `look` must be called."""
        self.on_poison: Callable[[str], None] = lambda reason: None
        """Called with the reason when writing ends for good. Called only once."""
        self.check: Callable[[PlainConnection], None] = lambda connection: None
        """Called before an existing database is written or upgraded. Its error prevents both."""
        self._made = None if self.path is None else Made(self.path)
        self.service = None if self.path is None else ServiceLock(self.path)
        """Lock of the serving process; None on PostgreSQL."""
        log_length = None if self.path is None else LogLength(self.path)
        self._log = log_length
        self.hosts = engine.hosts_of(self.url)
        """Hosts of a PostgreSQL URL; None on SQLite."""
        writes = self.shared and purpose not in ("upgrading", "reading")
        holder = Holder(purpose) if writes else None
        self.watch = ServerWatch() if writes and purpose != "alone" else None
        """Watch over the PostgreSQL server; None on SQLite, or if the purpose needs no watch."""
        self.reader = engine.reading_engine(
            self.url,
            hosts=self.hosts,
            check=None if self.watch is None else self.watch.check_reading,
        )
        self.writer = Writer(
            engine.writing_engine(self.url, purpose=purpose, hosts=self.hosts, holder=holder),
            holder=holder,
            lock=None if self.path is None else WriteLock(self.path),
            log=log_length,
            place=(
                None
                if self.path is None or log_length is None
                else DatabaseFiles(self.path, log_length)
            ),
            space=Space(
                None if self.path is None else self.path.absolute().parent,
                low_water_mib=settings.disk_low_water_mb,
            ),
            watch=self.watch,
        )
        self._writers = [self.writer]
        self._failed = False
        self.writer.on_poison = self._fail

    def fail_together(self, writer: Writer) -> None:
        """Add a writer to this database's group of writers. After a fatal error of one writer, the
        whole group stops writing."""
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
        """Return the reason why nothing may be written any more, as a sentence. Return None if
        writing is allowed."""
        return self.writer.poison

    @asynccontextmanager
    async def reading(self, *, settled: bool = False) -> AsyncIterator[AsyncConnection]:
        """Lend a connection that reads from one snapshot. Raise StoreUnavailable if none is free.

        settled  whether the snapshot must be consistent over all nodes of a cluster; new deliveries
                 wait
        """
        try:
            async with (
                AsyncExitStack() as locked,
                self.reader.connect() as connection,
                connection.begin(),
            ):
                if settled and self.spread:
                    # A snapshot begins with its first statement, which waits for the locks.
                    first = await locked.enter_async_context(self.reading())
                    await run(first, layout.settle, long=True)
                    await run(connection, layout.settle, long=True)
                    await locked.aclose()
                yield connection
        except driver_errors() as error:
            raise self.writer.judged(error) from error

    async def on_snapshot(
        self, function: Plain[Words, Result], *args: Words.args, **words: Words.kwargs
    ) -> Result:
        """Run a plain, read-only function on a new snapshot and return its result.

        For a single query, this is faster than `reading`. Raise StoreUnavailable without a
        connection.
        """
        try:
            async with self.reader.connect() as connection:
                return await run_snapshot(connection, function, *args, **words)
        except driver_errors() as error:
            raise self.writer.judged(error) from error

    async def is_pooled(self) -> bool:
        """Return whether a connection pooler may run each transaction on a different server
        connection. Raise StoreUnavailable if the database does not answer."""
        if not self.shared:
            return False
        asked = text("SELECT pg_backend_pid()")
        again = text("SELECT pg_backend_pid() AS again")  # prepared where it is run
        try:
            async with self.reader.connect() as one, self.reader.connect() as other:
                async with one.begin():
                    before = await one.scalar(asked)
                async with other.begin():  # takes the connection that `one` had
                    await other.scalar(asked)
                    async with one.begin():
                        return bool(before != await one.scalar(again))
        except driver_errors() as error:
            raise self.writer.judged(error) from error

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection in a new transaction, after all earlier writers have finished. Raise
        StoreUnavailable if the disk has too little space."""
        await self.writer.make_room()
        async with self.writer.transaction() as connection:
            yield connection

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self, purpose: Purpose) -> None:
        """Open the database after checking that it belongs to this environment and has our schema.

        serving  for a receiver of webhooks; no other process may serve; an older SQLite database is
                 upgraded
        working  for a receiver's worker
        alone    for a caller that runs while no service may run
        writing  for a caller that writes beside a service; a missing SQLite database is created
        folding  for a caller that folds orders beside a worker
        reading  for a caller that only reads
        """
        with system_errors_explained():
            if purpose in ("serving", "alone"):
                self._take(to_read_all=purpose == "alone")
            if purpose in ("serving", "alone", "writing"):
                await self._open_writing(upgrade=purpose == "serving")
            else:
                if purpose == "working" and self.path is not None:
                    drop_cached_pages(self.path)
                await self._open_reading()
            if purpose in ("working", "folding"):
                await self.writer.connect()
            if purpose == "serving":
                size = 0 if self.path is None else self.path.stat().st_size
                self.looked = size <= CHECKED_BEFORE_SERVING
                if self.looked:
                    await self.look()
            if purpose in ("serving", "working", "alone") and self.path is not None:
                await sync_file(self.writer, self.path)

    def _take(self, *, to_read_all: bool) -> None:
        self._make_folder()
        if self.service is not None and self.path is not None:
            self.service.serve()
            drop_cached_pages(self.path)
            if to_read_all:
                engine.read_ahead(self.path)

    async def look(self, *, until: asyncio.Event | None = None) -> None:
        """Check the whole database file. If damaged, stop all writes and raise StorePoisoned.

        until  event that ends the check early
        """
        async with self.reading() as connection:
            found = await damage(connection, until=until)
        if found:
            self.writer.fail(f"{found[0]}; nothing more is acknowledged: {PUT_BACK}")
            raise StorePoisoned(f"{found[0]}: {PUT_BACK}")

    async def watch_server(self) -> int:
        """Check the PostgreSQL server. Return 1 if the writers had to be reconnected, else 0.

        They are reconnected if another server took over. Raises StoreUnavailable if the server does
        not answer or cannot be used, and StorePoisoned for a fatal failure.
        """
        assert self.watch is not None
        watch, server, seen = self.watch, self.watch.server, None
        now = monotonic()
        if now > watch.looked_at + 2 * LOOK_S:  # it was suspended while others may have written
            watch.waits = None
        watch.looked_at = now
        try:
            async with asyncio.timeout(ANSWER_S):
                seen = await self.on_snapshot(look)
        except TimeoutError as error:
            raise StoreUnavailable("the database server does not answer; try again") from error
        except StoreUnavailable:
            if not watch.moved:
                raise
        if watch.moved or (seen is not None and (seen.gap is not None or seen.server != server)):
            watch.moved = True
            await self._reconnect()
            watch.moved = False
            return 1
        if seen is not None:
            if seen.waits and not watch.waits:
                await self.writer.touch()
            if watch.server == server:
                watch.waits = seen.waits
        return 0

    async def _reconnect(self) -> None:
        """Reconnect all writers, after disconnecting all, so that none writes to the former
        server."""
        failures = list[StoreUnavailable]()
        for act in (Writer.disconnect, Writer.connect):
            for writer in self._writers:
                try:
                    await act(writer)
                except StoreUnavailable as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def _open_writing(self, *, upgrade: bool) -> None:
        """Open the database for writing, after checks of its version, schema and environment.

        upgrade  whether pending migrations are run; only a serving process may run them
        """
        self._make_folder()
        if self.path is not None:
            check_log_is_newer(self.path)
        async with self.writer.transaction(noted=False) as connection:
            current = await schema.current_version(connection)
            new = current is None and not self.shared
            if current != schema.NEWEST and not (new or (upgrade and not self.shared)):
                raise _upgrade_is_due(current)
            await self._bring_up_to_date(connection, current)
            self.environment = await schema.stamp_environment(connection, self.environment)
            if self.environment is None:
                raise _environment_unstated()
            await self._note_layout(connection)
            await run(connection, note_server, once=True)
            identity = await run(connection, identity_of)
        self._note_made(identity)

    async def _bring_up_to_date(self, connection: AsyncConnection, current: str | None) -> None:
        """Run the pending migrations. Raise StrangeSchema if the resulting schema differs from the
        schema of this release."""
        if current is not None:
            await run(connection, self.check)
        if current != schema.NEWEST:
            await schema.upgrade(connection)
        await schema.require_own(connection)
        if current is None and not self.shared:  # a new one lacks no commits
            await run(connection, self.writer.note_commit)

    def _note_made(self, identity: str) -> None:
        if self._made is not None:
            self._made.note(identity)

    def _make_folder(self, *, stamped: bool = True) -> None:
        """Create a missing database file, with its folder. Raise ConfigurationError if no
        environment is configured but the new database must state one."""
        if self._made is not None:
            self._made.check_there()
        if self.path is not None and not self.path.exists():
            if stamped and self.environment is None:
                raise _environment_unstated()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its log the database's mode. Without this, everyone could read both.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._check_is_file()

    def _check_there(self) -> None:
        if self._made is not None:
            self._made.check_there()
        if self.path is not None and not self.path.exists():
            raise StoreUnavailable(
                f"there is no database at {self.path.absolute()} yet; `tallyhook serve` creates it"
            )
        self._check_is_file()
        if self.path is not None and not os.access(self.path, os.R_OK):  # SQLite's names no file
            denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))
            raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(denied)}")

    def _check_is_file(self) -> None:
        if self.path is not None and not self.path.is_file():  # SQLite would report an I/O error
            raise ConfigurationError(
                ["TALLYHOOK_DATABASE_URL: names a folder or a device; write the path of a file"]
            )

    async def _open_reading(self) -> None:
        self._check_there()
        async with self.reading() as connection:
            current = await schema.current_version(connection)
            if current != schema.NEWEST:
                raise _upgrade_is_due(current)
            if await schema.stamp_environment(connection, None) is None and self.environment:
                raise ConfigurationError(
                    [
                        "TALLYHOOK_DATABASE_URL: the database is new and has no environment yet; "
                        "start `tallyhook serve`, or run `tallyhook db upgrade`"
                    ]
                )
            self.environment = await schema.stamp_environment(connection, self.environment)
            await self._note_layout(connection)

    async def _note_layout(self, connection: AsyncConnection) -> None:
        self.spread = layout.is_spread(connection)
        await layout.require_noted(connection)

    @asynccontextmanager
    async def previewing(self) -> AsyncIterator[tuple[AsyncConnection, str | None]]:
        """Yield a connection that reads from a snapshot of a database, and the database's version.
        An old version is allowed."""
        self._check_there()
        with system_errors_explained():
            async with self.reading() as connection:
                yield connection, await schema.current_version(connection)

    async def upgrade(self) -> tuple[str | None, str]:
        """Run the pending migrations. Return the versions before and after.

        Raises ConfigurationError while an older service runs.
        """
        with system_errors_explained():
            self._make_folder(stamped=False)
            if self.path is not None:
                check_log_is_newer(self.path)
            async with self.writer.transaction(noted=False) as connection:
                await run(connection, take_lock, MIGRATING)
                before = await schema.current_version(connection)
                if before not in (None, schema.NEWEST) and self.service is not None:
                    self.service.serve()
                await self._bring_up_to_date(connection, before)
                await schema.stamp_environment(connection, self.environment)
                identity = await run(connection, identity_of)
            self._note_made(identity)
        return before, schema.NEWEST

    async def distribute(self) -> list[str]:
        """Distribute large tables over the nodes of a Citus cluster, and return their names.

        No other process may use the database. Raises UsageError without a cluster, and
        ConfigurationError for an outdated database.
        """
        if not self.shared:
            raise UsageError("SQLite has no nodes; `db distribute` needs PostgreSQL with Citus")
        async with self.writer.transaction() as connection:
            current = await schema.current_version(connection)
            if current != schema.NEWEST:
                raise _upgrade_is_due(current)
            return await layout.distribute(connection)

    async def create(self, *, anew: bool) -> Path:
        """Create an SQLite database and return its path. Raise UsageError if one exists there.

        anew  whether to replace an earlier database that is now missing
        """
        if self.path is None or self._made is None or self.service is None:
            raise UsageError(
                "this command creates only SQLite databases: create a PostgreSQL database with "
                "`createdb`, then run `tallyhook db upgrade`"
            )
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.service.serve()
        if self.path.exists() and self.path.stat().st_size:
            raise UsageError(f"there is a database at {self.path}; move it away first")
        if anew:
            self._made.forget()
        await self.upgrade()
        return self.path

    async def strange_objects(self) -> list[str]:
        """Return a sentence for each difference between the database's schema and the schema that
        the migrations create."""
        async with self.reading() as connection:
            if not self.shared or await schema.is_own(connection):
                return await schema.strange_objects(connection)
        async with self.writer.transaction() as connection:  # in which the migrations are run
            return await schema.strange_objects(connection)

    async def close(self) -> None:
        """Close all connections, files and locks, even if the database was never opened."""
        closing = [self.reader.dispose, self.writer.close]
        if self.writer.poison is not None:
            # The last connection to close checkpoints the log, which readers cannot do. After an
            # I/O error nobody may: the next start does, after it has dropped the cached pages.
            closing.reverse()
        for close in closing:
            await close()
        if self._log is not None:
            self._log.close()
        if self.service is not None:
            self.service.release()


class DatabaseContext(Protocol):
    """Database and clock of the application, for packages that cannot import the whole application
    context."""

    @property
    def database(self) -> Database:
        """The application's open database."""

    @property
    def clock(self) -> Clock:
        """The source of the current time."""


async def sync_file(writer: Writer, path: Path) -> None:
    """Move the SQLite write-ahead log into the database file, and sync file and folder.

    The file is not opened here, because closing it would drop SQLite's locks in this process.
    """
    if not await writer.checkpoint():
        log.warning(
            "another process is reading the database; the write-ahead log stays until that "
            "process has finished"
        )
    sync_folder(path.parent)


def drop_cached_pages(path: Path) -> None:
    """Drop the cached pages of an SQLite file and its log, which may differ from the disk.

    Call it only before this process opens the database: closing a file drops SQLite's locks. Raises
    OSError if a file cannot be read.
    """
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if name.exists():
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


async def once_there(database: Database, opening: Callable[[], Awaitable[None]]) -> None:
    """Open a database, and wait for a PostgreSQL server that is still starting.

    opening  opens the database

    Raises StoreUnavailable after 60 seconds.
    """
    ends, reported = monotonic() + SERVER_S, set[tuple[bool, bool]]()
    while True:
        try:
            return await opening()
        except StoreUnavailable as error:
            left, full, moved = ends - monotonic(), is_full(error), isinstance(error, NotCompared)
            if not database.shared or left <= 0 or not (moved or is_not_there_yet(error)):
                raise
        if (full, moved) not in reported:
            reported.add((full, moved))
            if moved:
                log.warning("waiting while a database server that took over is being checked")
            elif full:
                log.warning("waiting for the database server, which has no free connection")
            else:
                log.warning("waiting for the database server, which does not answer yet")
        await asyncio.sleep(min(AGAIN_S, left))


@contextmanager
def system_errors_explained() -> Iterator[None]:
    """Turn an OSError in the block into a StoreUnavailable that states the system's reason."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(error)}") from error


def _environment_unstated() -> ConfigurationError:
    return ConfigurationError(["TALLYHOOK_ENVIRONMENT: write sandbox or live for a new database"])


def _upgrade_is_due(current: str | None) -> ConfigurationError:
    at = (
        "is empty and has no table of Tallyhook's yet"
        if current is None
        else f"is at version {current}, but this program needs {schema.NEWEST}"
    )
    return ConfigurationError(
        [f"TALLYHOOK_DATABASE_URL: the database {at}; run `tallyhook db upgrade`"]
    )
