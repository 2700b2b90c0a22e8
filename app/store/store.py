"""The store: opens a database safely, lends connections, and runs the journal.

    async with open_store(settings) as store:            # whoever serves or writes
        async with store.reading() as connection: …      # a snapshot
        async with store.writing() as connection: …      # one transaction
        await store.journal.submit(received)             # the way of a delivery: into the inbox
        await store.append(ready)                        # and out of it

What may be done with a connection stands in the modules beside this one, one for each purpose.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import ConfigurationError, StorePoisoned, StoreUnavailable
from app.store.arrivals.inbox import let_rows_go
from app.store.arrivals.intake import TRIAL, Appended, Arrival, Ready, StoredVerdict, append
from app.store.arrivals.journal import Journal
from app.store.arrivals.links import LinkMemory
from app.store.arrivals.rejections import RejectionRing
from app.store.database import schema
from app.store.database.engine import is_sqlite, reading_engine, sqlite_path, writing_engine
from app.store.database.facts import note_server
from app.store.database.faults import PUT_BACK, driver_errors, is_not_there_yet, why_not_opened
from app.store.database.integrity import damage
from app.store.database.locks import ServiceLock, WriteLock
from app.store.database.locks_shared import LINKING, MIGRATING, REFUSING, take_lock
from app.store.database.log_length import LogLength
from app.store.database.postgresql import Purpose
from app.store.database.preview import read_as_newest
from app.store.database.space import MIB, Space
from app.store.database.writer import Writer
from app.store.sql.statements import PlainConnection, run

log = structlog.get_logger()

SERVER_S: Final = 60.0
"""How long whoever serves or works waits for a PostgreSQL server to answer, when it starts."""

AGAIN_S: Final = 0.5
"""Between two tries."""

LOOKED_AT_FIRST = 64 * MIB
"""Bytes of an SQLite file up to which all of it is looked at before anything is acknowledged: a
second from a slow disk. A larger one is looked at while it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What the store needs to know. Bounds are explained in `app.config`.

    notifies  whether a shop is to be told of every revision that is published
    """

    url: str
    environment: str | None = None
    notifies: bool = False
    journal_queue: int = 4_096
    journal_batch: int = 512
    rejections_max_count: int = 10_000
    rejections_max_bytes: int = 64 * MIB
    disk_low_water_mib: int = 64


class Store:
    """An open database. Made by `open_store` only."""

    def __init__(self, settings: StoreSettings, *, purpose: Purpose = "upgrading") -> None:
        self._sqlite = is_sqlite(settings.url)
        self._path = sqlite_path(settings.url) if self._sqlite else None
        self._service = ServiceLock(self._path) if self._path is not None else None
        self._log = LogLength(self._path) if self._path is not None else None
        self._reader = reading_engine(settings.url)
        self.writer = Writer(
            writing_engine(settings.url, purpose=purpose),
            lock=WriteLock(self._path) if self._path is not None else None,
            log=self._log,
            space=Space(
                self._path.absolute().parent if self._path is not None else None,
                low_water_mib=settings.disk_low_water_mib,
            ),
        )
        self._ring = RejectionRing(
            max_count=settings.rejections_max_count, max_bytes=settings.rejections_max_bytes
        )
        self.environment = settings.environment
        self.notifies = settings.notifies
        self.evidence_arrived = asyncio.Event()
        self.looked = True
        """Whether the whole file has been looked at; else `look` is still to be called."""
        self.closing = asyncio.Event()
        """Set when the service stops: whoever waits for something new should wait no more."""
        self.accepted = asyncio.Event()
        """Set when the inbox has got something."""
        self.read = asyncio.Event()
        """Set when something of the inbox was read."""
        self._memory = LinkMemory()
        self.append_faults = 0
        """Times in a row that what was read could not be appended."""
        self.journal = Journal(
            self.writer,
            queue_limit=settings.journal_queue,
            batch_limit=settings.journal_batch,
            on_commit=lambda count: self.accepted.set(),
        )

    async def append(self, ready: Sequence[Ready]) -> list[tuple[Arrival, StoredVerdict]]:
        """Append what rows of the inbox say, and let those rows go, in one transaction. Returns
        what was appended, with its verdict: nothing of a row that another reader let go meanwhile.

        Raises as `Writer.commit` does.
        """
        try:
            arrivals, appended = await self.writer.commit(self._append, ready)
        except Exception:
            self._memory.forget()
            self.append_faults += 1
            raise
        self.append_faults = 0
        self._memory.add(appended.links)
        if arrivals:
            self.evidence_arrived.set()
        self.read.set()
        return list(zip(arrivals, appended.verdicts, strict=True))

    async def cannot_append(self) -> str | None:
        """Why no delivery can be appended at present, one sentence; None where one can. One of
        nobody's is appended, and taken back."""
        try:
            async with self.writer.transaction() as connection:
                await run(connection, append, [TRIAL], LinkMemory())
                raise _TakenBack
        except _TakenBack:
            self.append_faults = 0
            return None
        except Exception as error:
            kind = type(error.__cause__ or error).__name__
            return (
                f"deliveries that were accepted cannot be appended ({kind}): they are kept; run "
                "`tallyhook db check`, and see the log"
            )

    def _append(
        self, connection: PlainConnection, ready: Sequence[Ready]
    ) -> tuple[list[Arrival], Appended]:
        # Both locks before any row is locked.
        take_lock(connection, LINKING)
        if any(each.rejections for each in ready):
            take_lock(connection, REFUSING)
        ours = let_rows_go(connection, [each.row for each in ready if each.row is not None])
        kept = {row.seq for row in ours}
        ready = [each for each in ready if each.row is None or each.row.seq in kept]
        arrivals = [arrival for each in ready for arrival in each.arrivals]
        rejections = [rejection for each in ready for rejection in each.rejections]
        appended = Appended([], {})
        if arrivals:
            appended = append(connection, arrivals, self._memory)
        if rejections:
            self._ring.append(connection, rejections)
        return arrivals, appended

    @property
    def shared(self) -> bool:
        """Whether several processes may receive and fold on this database."""
        return not self._sqlite

    @property
    def path(self) -> Path | None:
        """The database file on SQLite; None elsewhere."""
        return self._path

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection on one consistent snapshot. Raises StoreUnavailable without one."""
        try:
            async with self._reader.connect() as connection, connection.begin():
                yield connection
        except driver_errors() as error:
            raise self.writer.judged(error) from error

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """One transaction, after every other writer's. Raises StoreUnavailable without room."""
        await self.writer.make_room()
        async with self.writer.transaction() as connection:
            yield connection

    # --- opening and closing ---------------------------------------------------------------------

    async def open_alone(self) -> None:
        """Take the database for this process alone, make sure of the disk, bring it up to date."""
        await self._take(to_read_all=True)
        await self._checkpoint()

    async def open_serving(self) -> None:
        """The same, and look at the whole database, unless it is so large that `look` must."""
        await self._take()
        self.looked = self._path is None or self._path.stat().st_size <= LOOKED_AT_FIRST
        if self.looked:
            await self.look()
        await self._checkpoint()
        async with self.reading() as connection:
            await self._ring.load(connection)

    async def _take(self, *, to_read_all: bool = False) -> None:
        self._make_folder()
        if self._service is not None and self._path is not None:
            self._service.take()
            _drop_cached_pages(self._path)
            if to_read_all:
                _read_ahead(self._path)
        await self.open_writing()

    async def look(self) -> None:
        """Look for damage in the whole file. Raises StorePoisoned, for good, when there is any.

        Cut short, and no wiser, when `closing` is set.
        """
        async with self.reading() as connection:
            found = await damage(connection, until=self.closing)
        if found:
            self.writer.fail(f"{found[0]}; nothing more is acknowledged: {PUT_BACK}")
            raise StorePoisoned(f"{found[0]}: {PUT_BACK}")

    async def open_writing(self) -> None:
        """Bring an SQLite database up to date, or check a PostgreSQL one; check that its schema is
        ours, and its stamp.

        On a full disk too: there is something to read, and to free space by.
        """
        self._make_folder()
        async with self.writer.transaction() as connection:
            current = await schema.current_version(connection)
            if current != schema.newest_version() and not self._sqlite:
                raise _upgrade_is_due(current)
            await _bring_up_to_date(connection, current)
            self.environment = await schema.stamp_environment(connection, self.environment)
            if self.environment is None:
                raise ConfigurationError(
                    ["TALLYHOOK_ENVIRONMENT: say sandbox or live; this database is new"]
                )
            await note_server(connection, once=True)

    def _make_folder(self) -> None:
        if self._path is not None and not self._path.exists():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its log the mode of the database; it would let everyone read both.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    async def open_reading(self) -> None:
        """Check that there is a database to read, and that it is this environment's."""
        if self._path is not None and not self._path.exists():
            raise StoreUnavailable(_none_yet(self._path))
        async with self.reading() as connection:
            current = await schema.current_version(connection)
            if current != schema.newest_version():
                raise _upgrade_is_due(current)
            self.environment = await schema.stamp_environment(connection, self.environment)

    @asynccontextmanager
    async def previewing(self) -> AsyncIterator[tuple[AsyncConnection, str | None]]:
        """One snapshot of a database of whatever version, read as if it were of the newest, and the
        version that it has. Nothing is written, and nobody is kept waiting."""
        if self._path is not None and not self._path.exists():
            raise StoreUnavailable(_none_yet(self._path))
        with _system_errors_explained():
            try:
                async with self._reader.connect() as connection:
                    # A temporary view is no write to the database, but PostgreSQL takes it for one.
                    await connection.execution_options(postgresql_readonly=False)
                    transaction = await connection.begin()
                    try:
                        version = await schema.current_version(connection)
                        await read_as_newest(connection)
                        yield connection, version
                    finally:
                        await transaction.rollback()
            except driver_errors() as error:
                raise self.writer.judged(error) from error

    async def upgrade(self) -> tuple[str | None, str]:
        """Run the migrations that are due. Returns the versions before and after."""
        with _system_errors_explained():
            self._make_folder()
            async with self.writer.transaction() as connection:
                await run(connection, take_lock, MIGRATING)
                before = await schema.current_version(connection)
                await _bring_up_to_date(connection, before)
                await schema.stamp_environment(connection, self.environment)
        return before, schema.newest_version()

    async def strange_objects(self) -> list[str]:
        """What of the schema is not as the migrations make it, one sentence each."""
        async with self.reading() as connection:
            if self._sqlite or await schema.is_known(connection):
                return await schema.strange_objects(connection)
        async with self.writer.transaction() as connection:  # what to compare with is made there
            return await schema.strange_objects(connection)

    async def _checkpoint(self) -> None:
        """Fold the write-ahead log into the file (SQLite syncs it) and sync its directory.

        The file itself must not be opened here: closing any descriptor of it would drop the locks
        that SQLite holds in this process, and another process could then delete the log.
        """
        if self._path is None:
            return
        if not await self.writer.checkpoint():
            log.warning("another process is reading the database; its log stays until it ends")
        descriptor = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    async def close(self) -> None:
        """Give everything back. Harmless on a store that was never opened."""
        closing = [self._reader.dispose, self.writer.close]
        if self.writer.poison is not None:
            # The last to close folds the log into the file. Readers cannot, and after an I/O error
            # nobody may: the next start does, once it has dropped what the page cache shows.
            closing.reverse()
        for close in closing:
            await close()
        if self._log is not None:
            self._log.close()
        if self._service is not None:
            self._service.release()


class _TakenBack(Exception):
    """Ends a trial, so that nothing of it is kept."""


async def _bring_up_to_date(connection: AsyncConnection, current: str | None) -> None:
    """Run what is due, on a schema that is ours before and afterwards: a trigger that is not would
    take part in a migration. Raises StrangeSchema where it is not."""
    if current is not None:
        await schema.require_own(connection, current)
    if current != schema.newest_version():
        await schema.upgrade(connection)
        await schema.require_own(connection, schema.newest_version())


def _drop_cached_pages(path: Path) -> None:
    """After a failed write the page cache can show what the disk does not hold; read the disk.

    Only before this process has the database open: see `_checkpoint`.
    """
    for name in (path, path.with_name(path.name + "-wal")):
        if name.exists():
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _read_ahead(path: Path) -> None:
    """Fill the page cache in the order of the file. What arrives together lies together, so a table
    is strewn over the whole of it: asked for page by page, it takes a disk many times as long.

    Only before this process has the database open: see `_checkpoint`.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if path.stat().st_size > memory // 2:  # its end would drive out its beginning
        return
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            pass


@asynccontextmanager
async def open_store(
    settings: StoreSettings, *, purpose: Purpose = "serving"
) -> AsyncIterator[Store]:
    """An open store for `serving`, `alone` (no service may run), `writing` (beside one) or
    `reading`."""
    store = Store(settings, purpose=purpose)
    try:
        await _open(store, purpose)
        yield store
    finally:
        await store.close()


async def _open(store: Store, purpose: Purpose) -> None:
    opening: dict[Purpose, Callable[[], Awaitable[None]]] = {
        "serving": partial(_once_there, store, store.open_serving),
        "alone": store.open_alone,
        "writing": store.open_writing,
        "reading": store.open_reading,
    }
    with _system_errors_explained():
        await opening[purpose]()


async def _once_there(store: Store, opening: Callable[[], Awaitable[None]]) -> None:
    """Open it, and wait for a PostgreSQL server that is still starting, as machines and containers
    that are started together do. Raises StoreUnavailable when it does not answer in time."""
    ends, told = monotonic() + SERVER_S, False
    while True:
        try:
            return await opening()
        except StoreUnavailable as error:
            left = ends - monotonic()
            if not store.shared or left <= 0 or not is_not_there_yet(error):
                raise
        if not told:
            log.warning("waiting for the database server, which does not answer yet")
            told = True
        await asyncio.sleep(min(AGAIN_S, left))


@contextmanager
def _system_errors_explained() -> Iterator[None]:
    """A folder that cannot be made, a server that is not there: the reason is the system's own."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(error)}") from error


def _none_yet(path: Path) -> str:
    return f"there is no database at {path} yet; `tallyhook serve` makes it"


def _upgrade_is_due(current: str | None) -> ConfigurationError:
    return ConfigurationError(
        [
            f"TALLYHOOK_DATABASE_URL: the database is at version {current or 'none'}, this program "
            f"needs {schema.newest_version()}; run `tallyhook db upgrade`"
        ]
    )
