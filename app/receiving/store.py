"""The store: opens a database safely, lends connections, and runs the queue of the inbox.

    async with open_store(settings) as store:            # whoever serves or writes
        async with store.reading() as connection: …      # a snapshot
        async with store.writing() as connection: …      # one transaction
        await store.queue.submit(received)             # the way of a delivery: into the inbox
        await store.append(ready)                        # and out of it

What may be done with a connection stands in the modules beside this one, one for each purpose.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable, UsageError
from app.core.signals import Signal
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
from app.database.writer import GIB, MIB, LogLength, Place, Space, Writer
from app.receiving.append_store import TRIAL, Arrival, Ready, StoredVerdict, append, append_ready
from app.receiving.correlation_store import LinkMemory
from app.receiving.inbox_file_store import InboxFile, path_of
from app.receiving.inbox_queue import InboxQueue
from app.receiving.inbox_store import (
    IDENTITY,
    Inbox,
    ReadersTurn,
    adopt,
    ask_to_tidy,
    fact,
    position_of,
    tidied,
)
from app.receiving.inbox_writer_store import InboxWriter
from app.receiving.refusal_store import RejectionRing

log = structlog.get_logger()

SERVER_S: Final = 60.0
"""How long whoever serves or works waits for a PostgreSQL server to answer, when it starts."""

TIDY_S: Final = 5.0
"""How long an erasure waits until the receiver has left nothing of what was read."""

AGAIN_S: Final = 0.2
"""Between two tries."""

LOOKED_AT_FIRST = 64 * MIB
"""Bytes of an SQLite file up to which all of it is looked at before anything is acknowledged: a
second from a slow disk. A larger one is looked at while it serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What the store needs to know. Bounds are explained in `app.config.settings`.

    notifies  whether a shop is to be notified of every revision that is published
    """

    url: str
    environment: str | None = None
    notifies: bool = False
    journal_queue: int = 4_096
    journal_batch: int = 512
    inbox_max_bytes: int = 4 * GIB
    rejections_max_count: int = 10_000
    rejections_max_bytes: int = 64 * MIB
    disk_low_water_mib: int = 64


class Receiving(NamedTuple):
    """What takes deliveries in: the queue, and the inbox that it writes to."""

    queue: InboxQueue
    inbox: InboxWriter


class Store:
    """An open database. Made by `open_store` only."""

    folded_elsewhere = False
    """Whether another process folds and seals what this one reads."""
    append_faults = 0
    """Times in a row that what was read could not be appended."""

    def __init__(self, settings: StoreSettings, *, purpose: Purpose = "upgrading") -> None:
        self._settings = settings
        self._sqlite = is_sqlite(settings.url)
        self._path = sqlite_path(settings.url) if self._sqlite else None
        self._made = Made(self._path) if self._path is not None else None
        self._service = ServiceLock(self._path) if self._path is not None else None
        self._log = LogLength(self._path) if self._path is not None else None
        self._reader = reading_engine(settings.url)
        self.writer = Writer(
            writing_engine(settings.url, purpose=purpose),
            lock=WriteLock(self._path) if self._path is not None else None,
            log=self._log,
            place=None if self._path is None else Place(self._path),
            space=Space(
                self._path.absolute().parent if self._path is not None else None,
                low_water_mib=settings.disk_low_water_mib,
            ),
        )
        self.inbox_file = None
        if self._path is not None:
            self.inbox_file = InboxFile(self._path, low_water_mib=settings.disk_low_water_mib)
        self.inbox = Inbox(self, self.inbox_file)
        self.turn = ReadersTurn(self._reader, self._path, judged=self.writer.judged)
        self._ring = RejectionRing(
            max_count=settings.rejections_max_count, max_bytes=settings.rejections_max_bytes
        )
        self.environment = settings.environment
        self.notifies = settings.notifies
        self.looked = True
        """Whether the whole file has been looked at; else `look` is still to be called."""
        self.closing = asyncio.Event()
        """Set when the service stops: whoever waits for something new should wait no more."""
        self.evidence_arrived = Signal()
        """Set when something was said of an order."""
        self.accepted = Signal()
        """Set when the inbox has got something."""
        self.read = Signal()
        """Set when something of the inbox was read."""
        self.drained = asyncio.Event()
        """Cleared while the reader of this process has a backlog before it."""
        self.drained.set()
        self.folded = Signal()
        """Set when a round of folding has ended."""
        self._memory = LinkMemory()
        self._receiving: Receiving | None = None
        self.on_poison: Callable[[str], None] = lambda reason: None
        """Called once with the reason why nothing more may be written."""
        self._inbox_writer: Writer | None = None
        self._watch_for_poison()

    def _watch_for_poison(self) -> None:
        reasons = list[str]()

        def once(reason: str) -> None:
            if not reasons:
                reasons.append(reason)
                self._fail(reason)

        for writer in (self.writer, self._inbox_writer):
            if writer is not None:
                writer.on_poison = once

    @property
    def receiving(self) -> Receiving:
        """What takes deliveries in; of a store that serves."""
        assert self._receiving is not None
        return self._receiving

    @property
    def queue(self) -> InboxQueue:
        """The queue in front of the inbox; of a store that serves."""
        return self.receiving.queue

    @property
    def poison(self) -> str | None:
        """Why nothing more may be written, one sentence; None while all is well."""
        return self.writer.poison

    def _fail(self, reason: str) -> None:
        """An error of the disk under one file ends what is written to the other, too."""
        self.writer.fail(reason)
        if self._inbox_writer is not None:
            self._inbox_writer.fail(reason)
        self.on_poison(reason)

    async def append(self, ready: Sequence[Ready]) -> list[tuple[Arrival, StoredVerdict]]:
        """Append what was read, and take it out of the inbox, in one transaction. Returns what was
        appended, with its verdict: nothing that somebody else read meanwhile, and no delivery that
        is known by its id already.

        Raises as `Writer.commit` does.
        """
        try:
            appended = await self.writer.commit(
                append_ready, ready, memory=self._memory, ring=self._ring
            )
        except Exception:
            self._memory.forget()
            self.append_faults += 1
            raise
        self.append_faults = 0
        self._memory.add(appended.links)
        if appended.arrivals:
            self.evidence_arrived.set()
        self.read.set()
        return list(zip(appended.arrivals, appended.verdicts, strict=True))

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
        except StoreUnavailable as error:
            return str(error)
        except Exception as error:
            kind = type(error.__cause__ or error).__name__
            return (
                f"deliveries that were accepted cannot be appended ({kind}): they are kept; run "
                "`tallyhook db check`, and see the log"
            )

    async def tidy_inbox(self) -> bool:
        """Leave nothing of what has been read in the inbox of an SQLite database: its receiver does
        that, and where none runs, we. False where it was not done in time."""
        file, lock = self.inbox_file, self._service
        if file is None or lock is None or not file.is_there():
            return True
        up_to = (await self.inbox.backlog_and_end())[1].file
        if self._receiving is None:
            with lock.if_free() as free:
                if free:
                    return await file.empty((await self.inbox.progress()).position)
        await self.writer.commit(ask_to_tidy, up_to)
        ends = monotonic() + TIDY_S
        while monotonic() < ends:
            async with file.reading() as connection:
                if await run(connection, tidied) >= up_to:
                    return True
            await asyncio.sleep(AGAIN_S)
        return False

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

    async def on_snapshot(
        self, function: Plain[Words, Result], *args: Words.args, **words: Words.kwargs
    ) -> Result:
        """Run a plain function that only reads on a snapshot of its own: a third of what `reading`
        costs for one question. Raises StoreUnavailable without one."""
        try:
            async with self._reader.connect() as connection:
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
        await self._open_inbox()

    async def open_working(self) -> None:
        """For what works behind a receiver, which has brought the database up to date. On SQLite it
        makes sure of the disk, too: nothing is deleted from the inbox before."""
        ends = monotonic() + SERVER_S
        while self._sqlite and not await self.turn.take():
            if monotonic() > ends:
                raise StoreUnavailable("another process reads this inbox; end it", reason="busy")
            await asyncio.sleep(AGAIN_S)
        if self._path is not None:
            _drop_cached_pages(self._path)
        await self.open_reading()
        await self.writer.connect()
        await self._checkpoint()

    async def open_folding(self) -> None:
        """For what folds beside the process that works behind a receiver: nothing is made, and
        nothing brought up to date, under what is at work."""
        await self.open_reading()
        await self.writer.connect()

    async def _open_inbox(self) -> None:
        """From now on deliveries can be taken in."""
        settings, file = self._settings, self.inbox_file
        if file is not None:
            self._inbox_writer = file.writer
        else:  # a connection of its own: no other write holds a sender up
            engine = writing_engine(settings.url, purpose="serving")
            self._inbox_writer = Writer(
                engine, lock=None, log=None, place=None, space=self.writer.space
            )
        self._watch_for_poison()
        inbox = InboxWriter(
            self._inbox_writer,
            self.inbox,
            database=self.writer,
            shared=self.shared,
            max_bytes=settings.inbox_max_bytes,
        )
        queue = InboxQueue(
            inbox,
            queue_limit=settings.journal_queue,
            batch_limit=settings.journal_batch,
            on_commit=lambda count: self.accepted.set(),
        )
        self._receiving = Receiving(queue, inbox)
        if file is not None:
            await self._open_file(file)
        await inbox.load()

    async def _open_file(self, file: InboxFile) -> None:
        assert self.environment is not None
        async with self.writer.transaction() as connection:
            known = await run(connection, fact, IDENTITY)
            identity = await file.open(self.environment, known=known)
            if known is None:
                await run(connection, adopt, identity)
            position = await run(connection, position_of)
        await file.begin_after(position)
        if file.is_small() and (found := await file.damage()):
            raise StorePoisoned(f"{found[0]}: {PUT_BACK}")
        await _sync_file(file.writer, file.path)

    async def _take(self, *, to_read_all: bool = False) -> None:
        self._make_folder()
        if self._service is not None and self._path is not None:
            self._service.take()
            _drop_cached_pages(self._path)
            if to_read_all:
                read_ahead(self._path)
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
            if current != schema.NEWEST and not self._sqlite:
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
        if self._path is not None and not self._path.exists():
            if stamped and self.environment is None:
                raise _environment_unstated()
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its log the mode of the database; it would let everyone read both.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._check_is_file()

    def _check_there(self) -> None:
        """Raises StoreUnavailable, or ConfigurationError, where there is no file to read."""
        if self._made is not None:
            self._made.check_there()
        if self._path is not None and not self._path.exists():
            raise StoreUnavailable(_none_yet(self._path))
        self._check_is_file()
        if self._path is not None and not os.access(self._path, os.R_OK):  # SQLite names no file
            denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self._path))
            raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(denied)}")

    def _check_is_file(self) -> None:
        if self._path is not None and not self._path.is_file():  # SQLite calls it a failing disk
            raise ConfigurationError(
                ["TALLYHOOK_DATABASE_URL: names something that is no file; write the path of one"]
            )

    async def open_reading(self) -> None:
        """Check that there is a database to read, and that it is this environment's."""
        self._check_there()
        async with self.reading() as connection:
            current = await schema.current_version(connection)
            if current != schema.NEWEST:
                raise _upgrade_is_due(current)
            self.environment = await schema.stamp_environment(connection, self.environment)

    @asynccontextmanager
    async def previewing(self) -> AsyncIterator[tuple[AsyncConnection, str | None]]:
        """A snapshot of a database that may not be up to date, and its version."""
        self._check_there()
        with _system_errors_explained():
            async with self.reading() as connection:
                yield connection, await schema.current_version(connection)

    async def upgrade(self) -> tuple[str | None, str]:
        """Run the migrations that are due. Returns the versions before and after."""
        with _system_errors_explained():
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
        if self._path is None or self._made is None or self._service is None:
            raise UsageError("PostgreSQL's databases are made by `createdb`, then `db upgrade`")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._service.take()
        if self._path.exists() and self._path.stat().st_size:
            raise UsageError(f"there is a database at {self._path}; move it away first")
        if anew:
            self._made.forget()
        await self.upgrade()
        return self._path

    async def strange_objects(self) -> list[str]:
        """What of the schema is not as the migrations make it, one sentence each."""
        async with self.reading() as connection:
            if self._sqlite or await schema.is_own(connection):
                return await schema.strange_objects(connection)
        async with self.writer.transaction() as connection:  # what to compare with is made there
            return await schema.strange_objects(connection)

    async def _checkpoint(self) -> None:
        if self._path is not None:
            await _sync_file(self.writer, self._path)

    async def close(self) -> None:
        """Give everything back. Harmless on a store that was never opened."""
        closing = [self._reader.dispose, self.writer.close]
        if self.writer.poison is not None:
            # The last to close folds the log into the file. Readers cannot, and after an I/O error
            # nobody may: the next start does, once it has dropped what the page cache shows.
            closing.reverse()
        await self.turn.release()
        for close in closing:
            await close()
        if self.inbox_file is not None:
            await self.inbox_file.close()
        elif self._inbox_writer is not None:
            await self._inbox_writer.close()
        if self._log is not None:
            self._log.close()
        if self._service is not None:
            self._service.release()


class _TakenBack(Exception):
    """Ends a trial, so that nothing of it is kept."""


async def _bring_up_to_date(connection: AsyncConnection, current: str | None) -> None:
    """Run the migrations that are due. Raise StrangeSchema unless the schema is then ours."""
    if current != schema.NEWEST:
        await schema.upgrade(connection)
    await schema.require_own(connection)


async def _sync_file(writer: Writer, path: Path) -> None:
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


def _drop_cached_pages(path: Path) -> None:
    """After a failed write the page cache can show what the disk does not hold; read the disk.

    Only before this process has the database open: see `_sync_file`.
    """
    inbox = path_of(path)
    for name in (path, Path(f"{path}-wal"), inbox, Path(f"{inbox}-wal")):
        if name.exists():
            descriptor = os.open(name, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


@asynccontextmanager
async def open_store(
    settings: StoreSettings, *, purpose: Purpose = "serving"
) -> AsyncIterator[Store]:
    """An open store for `serving` (a receiver), `working` (what reads and folds behind one),
    `alone` (no service may run), `writing` (beside one), `folding` (beside what works) or
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
        "working": partial(_once_there, store, store.open_working),
        "alone": store.open_alone,
        "writing": store.open_writing,
        "folding": store.open_folding,
        "reading": store.open_reading,
    }
    with _system_errors_explained():
        await opening[purpose]()


async def _once_there(store: Store, opening: Callable[[], Awaitable[None]]) -> None:
    """Open it, and wait for a PostgreSQL server that is still starting, as machines and containers
    that are started together do. Raises StoreUnavailable when it does not answer in time."""
    ends, reported = monotonic() + SERVER_S, set[bool]()
    while True:
        try:
            return await opening()
        except StoreUnavailable as error:
            left, full = ends - monotonic(), is_full(error)
            if not store.shared or left <= 0 or not is_not_there_yet(error):
                raise
        if full not in reported:
            reported.add(full)
            if full:
                log.warning("waiting for the database server, which has no connection free")
            else:
                log.warning("waiting for the database server, which does not answer yet")
        await asyncio.sleep(min(AGAIN_S, left))


@contextmanager
def _system_errors_explained() -> Iterator[None]:
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
