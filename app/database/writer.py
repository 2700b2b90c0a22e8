"""The only code that writes to a database: one transaction at a time, and none after an I/O error.

Every transaction is shielded from cancellation, which would leave it open in the driver's thread.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal, NamedTuple

import anyio
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable
from app.core.logs import log
from app.database import faults, holders, locks, postgresql, statements
from app.database.engine import BUSY_TIMEOUT_MS, SET_BUSY_TIMEOUT
from app.database.gaps import note_commit
from app.database.holders import Holder
from app.database.takeover import ServerWatch

_CLOCK: Final = SystemClock()

MIB = 1024 * 1024


class Space:
    """Free disk space for the database. A database server manages its own space."""

    def __init__(self, folder: Path | None, *, low_water_mib: int) -> None:
        """Watch the free space on the file system of a folder.

        folder         folder of the database; None for a server
        low_water_mib  MiB below which transactions are refused; 0 for none
        """
        self._folder = folder
        self._low_water_mib = low_water_mib
        self.reserved: Callable[[], int] = lambda: 0
        """Returns the number of bytes reserved for unread deliveries. They must be free as well."""

    def free_bytes(self) -> int | None:
        """Return the number of bytes that an ordinary user may still write. Return None if
        unknown."""
        if self._folder is None or not self._folder.is_dir():
            return None
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def check(self, *, log_bytes: int = 0) -> None:
        """Raise StoreUnavailable if too little disk space is free for a transaction.

        log_bytes  excess bytes of the write-ahead log, by which the file will grow
        """
        free = self.free_bytes() if self._low_water_mib else None
        reserved = 0 if free is None else self.reserved()
        if free is None or free >= self._low_water_mib * MIB + log_bytes + reserved:
            return
        needed = self._low_water_mib + -(-(log_bytes + reserved) // MIB)
        reader = "end long reads, such as a backup, " if log_bytes else ""
        unread = ", and unread deliveries need that space" if reserved else ""
        raise StoreUnavailable(
            f"less than {needed} MiB of the database's disk is free{unread}; free some space, "
            f"{reader}or lower TALLYHOOK_DISK_LOW_WATER_MB",
            reason="disk",
        )


PAGE_BYTES: Final = 4096

CHECKPOINT_PAGES = 12_000
"""Pages of the write-ahead log at which a checkpoint is due: 48 MB.

A large number saves copying pages that change often.
"""

ROOM_PAGES: Final = 256
"""Minimum length of the write-ahead log, in pages, at which emptying the log is worth the effort: 1
MiB."""

INSIST_S: Final = 4.0
"""Minimum seconds between two checkpoints that wait for readers. With this pause, the service
recovers from a full disk within five seconds."""

INSIST_MS: Final = 250
"""Milliseconds for which a checkpoint of an overlong log waits for readers. Deliveries must wait
during this time."""

Mode = Literal["PASSIVE", "RESTART", "TRUNCATE"]
"""Kind of checkpoint.

PASSIVE waits for no reader, RESTART for all, and TRUNCATE also empties the log's file.
"""

INDEX_HEAD: Final = 48
"""Number of bytes at the beginning of the log's index file that every commit changes (SQLite's
`walformat.html`, 2.1)."""

_MX_FRAME = 16

LOG_HEAD: Final = 32
FRAME_HEAD: Final = 24


class LogLength:
    """Reader of the write-ahead log's length. The length comes from the index file that all
    connections share."""

    def __init__(self, database: Path, *, checkpoint_pages: int | None = None) -> None:
        self._path = database.with_name(database.name + "-shm")
        self._file: int | None = None
        self._insist_from = 0.0
        self._checkpoint_pages = CHECKPOINT_PAGES if checkpoint_pages is None else checkpoint_pages

    def pages(self) -> int:
        """Return the present length of the write-ahead log, in pages. At least one connection must
        be open."""
        return self._pages_by(self._head())

    @staticmethod
    def _pages_by(head: bytes) -> int:
        return int.from_bytes(head[_MX_FRAME : _MX_FRAME + 4], sys.byteorder)

    def _head(self) -> bytes:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._file, INDEX_HEAD, 0)

    def is_cut_off(self, size: Callable[[], int]) -> bool:
        """Return whether the log's file is shorter than its committed pages, so that commits are
        lost.

        size  returns the size of the log's file

        False if the index changes meanwhile, because another process may be emptying the log.
        """
        before = self._head()
        pages = self._pages_by(before)
        needed = LOG_HEAD + pages * (FRAME_HEAD + PAGE_BYTES) if pages else 0
        return size() < needed and self._head() == before

    def excess_bytes(self) -> int:
        """Return the number of bytes by which the log is too long. At least one connection must be
        open."""
        return max(0, self.pages() - self._checkpoint_pages) * PAGE_BYTES

    def checkpoint_due(self) -> Mode | None:
        """Return the kind of checkpoint that is due after a commit. Return None if the log is short
        enough."""
        pages = self.pages()
        if pages < self._checkpoint_pages:
            return None
        insists = pages >= 2 * self._checkpoint_pages and self._may_insist()
        return "RESTART" if insists else "PASSIVE"

    def may_give_room(self) -> bool:
        """Return whether a long log may be emptied now, at most once in four seconds, on a full
        disk."""
        return self.pages() >= ROOM_PAGES and self._may_insist()

    def _may_insist(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now < self._insist_from:
            return False
        self._insist_from = now + INSIST_S
        return True

    def close(self) -> None:
        """Close the log's index file. Close all connections first, because closing the file drops
        SQLite's locks."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class CheckpointResult(NamedTuple):
    """Result of a checkpoint."""

    alone: bool
    """True if no other connection hindered it."""
    complete: bool
    """True if the file has the whole log and is synced."""


def checkpoint_log(
    connection: statements.PlainConnection, mode: Mode, *, wait_ms: int
) -> CheckpointResult:
    """Copy as much of the write-ahead log into the database file as readers allow.

    No transaction may be open.

    wait_ms  milliseconds to wait for readers
    """
    connection.ask(statements.statement("PRAGMA busy_timeout={ms}", ms=str(wait_ms)))
    try:
        rows = connection.ask(statements.statement("PRAGMA wal_checkpoint({mode})", mode=mode))
    finally:
        connection.ask(SET_BUSY_TIMEOUT)
    ((busy, pages, done),) = rows
    return CheckpointResult(alone=not busy, complete=pages == done and pages >= 0)


RESTORE: Final = "put the file back, or restore a backup with tallyhook restore, then start"
START_NAMES_LOSS: Final = "start the service again; it names what may be lost and what to do next"
START_MAKES_ANEW: Final = "start the service again; it creates this file again, and nothing is lost"
REPLACED: Final = "was replaced"


class DatabaseFiles:
    """Identity and size of a database's file, its write-ahead log and the log's index.

    Without the index, another process could create a second one, and overwrite pages.
    """

    def __init__(self, database: Path, log: LogLength, *, lost: str = RESTORE) -> None:
        """Prepare to watch a database's files.

        lost  advice on what to do if the database file itself is lost
        """
        self._mends = {
            Path(f"{database}{suffix}"): mend
            for suffix, mend in (("", lost), ("-shm", START_MAKES_ANEW), ("-wal", START_NAMES_LOSS))
        }
        self._log = log
        self._opened: dict[Path, tuple[int, int] | None] = {}
        self._sizes: dict[Path, int] = {}

    def note(self) -> None:
        """Remember the identity of the files. Call this method just after the files were opened."""
        self._opened, self._sizes = dict.fromkeys(self._mends), {}
        self.loss()

    def loss(self) -> str | None:
        """Return a sentence on a lost file and what to do, or None."""
        if (lost := self.lost()) is None:
            return None
        path, what = lost
        mend = self._mends[path]
        if what == REPLACED:
            mend = f"after a restore, start the service again; otherwise {mend}"
        return f"{path} {what} while the service was running; nothing more is acknowledged: {mend}"

    def lost(self) -> tuple[Path, str] | None:
        """Return a lost file and what happened to the file. Return None if no file is lost."""
        for path in self._opened:
            try:
                status = path.stat()
            except OSError:
                status = None
            found = None if status is None else (status.st_dev, status.st_ino)
            # A new database has no log before its first write.
            opened = self._opened[path] = self._opened.get(path) or found
            if opened is None:
                continue
            if status is None:
                return path, "is gone"
            if found != opened:
                return path, REPLACED
            if self._is_cut_off(path, status.st_size):
                return path, "was cut off"
        return None

    def _is_cut_off(self, path: Path, size: int) -> bool:
        if path.name.endswith("-wal"):
            try:
                return self._log.is_cut_off(lambda: path.stat().st_size)
            except FileNotFoundError:  # no index yet; the next look reports a loss
                return False
        # SQLite never shortens the other two files, except after `rewrite`.
        longest = self._sizes[path] = max(size, self._sizes.get(path, 0))
        return size < longest


TURN_S: Final = 5.0
"""Maximum seconds for which a writer waits for earlier writers in its own process. Transactions
usually take milliseconds."""

KEEP_S: Final = 0.025
"""Maximum seconds for which writers of this process pass on the lock of the database file.

If each released it, each small write would wait for other processes.
"""

WANTED_S: Final = 1.0
"""Seconds for which another process that waited for this process is expected to wait again."""


def _ask(connection: statements.PlainConnection, sql: str) -> statements.Rows:
    return connection.ask(sql)


def _touch(connection: statements.PlainConnection) -> None:
    connection.ask(
        "INSERT INTO counters (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value=counters.value+1",
        ("writable", 1),
    )


class Writer:
    """The only writer of a database. It runs one transaction at a time, and none after an I/O
    error."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        holder: Holder | None = None,
        watch: ServerWatch | None = None,
        lock: locks.WriteLock | None,
        log: LogLength | None,
        place: DatabaseFiles | None,
        space: Space,
    ) -> None:
        """Prepare a writer that is not connected yet.

        holder  registration of this writer on PostgreSQL
        watch   check of each new connection's server on PostgreSQL
        lock    lock between processes on an SQLite file
        log     reads the length of an SQLite file's write-ahead log
        place   files of an SQLite database
        space   free disk space for the database
        """
        self._engine = engine
        self.holder = holder
        self._beating: asyncio.Task[None] | None = None
        self._between_processes = lock
        self._log = log
        self._place = place
        self.space = space
        self._turn = asyncio.Lock()
        self._waiting = 0
        """Number of this process's writers that wait for their turn."""
        self._taken_at: float | None = None
        """Time at which this process took the lock between processes; None without the lock."""
        self._wanted_at = -WANTED_S
        """Time at which another process last waited for a transaction of this process."""
        self.held_s = 0.0
        """Duration in seconds of the last transaction, including its commit."""
        self._connection: AsyncConnection | None = None
        self._connected_before = False
        self._watch = watch
        sqlite = self.dialect == "sqlite"
        self._run_transaction = (
            statements.run_transaction
            if sqlite
            else partial(postgresql.run_transaction, holder=holder)
        )
        self._transaction: Callable[[AsyncConnection], AbstractAsyncContextManager[Any]] = (
            AsyncConnection.begin if sqlite else partial(postgresql.transaction, holder=holder)
        )
        self._poison: str | None = None
        self.trouble: str | None = None
        """Sentence on why the last commit failed; None if it succeeded."""
        self.on_poison: Callable[[str], None] = lambda reason: None
        self.on_checkpoint: Callable[[statements.PlainConnection], None] | None = None
        """Called in a transaction whenever SQLite's file contains its whole log."""
        self._changes = 0
        """Number of rows that the connection had changed when LAST_COMMIT was last updated."""

    @property
    def dialect(self) -> str:
        """Return the name of the SQL dialect: `sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def poison(self) -> str | None:
        """Return the reason why nothing may be written any more, as a sentence. Return None if
        writing is allowed."""
        return self._poison

    @property
    def is_wanted(self) -> bool:
        """Return whether another process waits until this transaction ends. Always return False on
        PostgreSQL."""
        return self._between_processes is not None and self._between_processes.is_wanted()

    @property
    def was_wanted(self) -> bool:
        """Return whether another process waited for this process within the last second."""
        return monotonic() - self._wanted_at < WANTED_S

    def fail(self, reason: str) -> None:
        """Refuse all further transactions. The first call also calls `on_poison`. If a database
        file is lost, the loss becomes the reason."""
        if self._poison is None:
            self._poison = self.loss() or reason
            self.on_poison(self._poison)

    @contextmanager
    def though_poisoned(self) -> Iterator[None]:
        """Allow transactions in the block although this writer was stopped for another's lost
        files."""
        poison, self._poison = self._poison, None
        try:
            yield
        finally:
            self._poison = self._poison or poison

    async def read_on(
        self,
        function: statements.Plain[statements.Words, statements.Result],
        *args: statements.Words.args,
        **words: statements.Words.kwargs,
    ) -> statements.Result:
        """Run a plain, read-only function on the writing connection, whose files stay open when
        deleted."""
        assert self._connection is not None
        return await statements.run_snapshot(self._connection, function, *args, **words)

    @asynccontextmanager
    async def transaction(self, *, noted: bool = True) -> AsyncIterator[AsyncConnection]:
        """Run the block as a transaction, which is committed at the end and rolled back on an
        error.

        noted  whether the instant of the commit is stored; False for a migration

        Raises StorePoisoned or StoreUnavailable for errors of the database.
        """
        async with self._alone() as connection, self._transaction(connection):
            yield connection
            if self._between_processes is not None:
                await statements.run(connection, self.note_commit if noted else self._pass_over)

    def note_commit(self, connection: statements.PlainConnection) -> None:
        """Store the instant of the commit in the caller's transaction, if the transaction has
        changed anything."""
        self._changes = note_commit(connection, at=_CLOCK.now(), counted=self._changes)

    def _pass_over(self, connection: statements.PlainConnection) -> None:
        ((self._changes,),) = connection.ask("SELECT total_changes()")

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[AsyncConnection]:
        await self._wait_for_turn()
        try:
            if self._poison is not None:
                raise StorePoisoned(self._poison)
            with anyio.CancelScope(shield=True):
                await self._take()
                began = monotonic()
                try:
                    connection = await self._connected()
                    self.check_place()  # a later write can restore a file's former length
                    yield connection
                    self.check_place()
                    await self._checkpoint_long_log(connection)
                except StorePoisoned as error:  # another process took over
                    self.fail(str(error))
                    raise
                except faults.driver_errors() as error:
                    meaning = self.judged(error)
                    if isinstance(meaning, StoreUnavailable):
                        await self._give_up_connection()
                    raise meaning from error
                finally:
                    self.held_s = monotonic() - began
        finally:
            self._leave()

    def check_place(self) -> None:
        """Raise StorePoisoned, and stop writing for good, if a database file is lost.

        Called before each transaction, and before each commit is reported.
        """
        if (loss := self.loss()) is not None:
            self.fail(loss)
            raise StorePoisoned(loss)

    def loss(self) -> str | None:
        """Return a sentence that says which database file is lost. Return None if all files are
        there."""
        return None if self._place is None else self._place.loss()

    def lost(self) -> tuple[Path, str] | None:
        """Return the lost database file and what happened to the file. Return None if all files are
        there."""
        return None if self._place is None else self._place.lost()

    async def _wait_for_turn(self) -> None:
        """Wait for earlier writers in this process. Raise StoreUnavailable after some seconds,
        because a disk may not answer."""
        self._waiting += 1
        try:
            # Even if the lock looks free, earlier waiters get it first.
            async with asyncio.timeout(TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                "another write has been running for some seconds; try again", reason="busy"
            ) from None
        finally:
            self._waiting -= 1
            if not self._waiting and not self._turn.locked():
                self._release()  # the lock may have been kept for this writer

    def _leave(self) -> None:
        now = monotonic()
        if self.is_wanted:
            self._wanted_at = now
        if not (self._waiting and self._taken_at is not None and now < self._taken_at + KEEP_S):
            self._release()
        self._turn.release()

    async def connect(self) -> None:
        """Connect to the database now, with all checks of a new connection. Raise StorePoisoned or
        StoreUnavailable if this fails."""
        try:
            async with self._alone():
                pass
        except StoreUnavailable as error:
            self.trouble = str(error)
            raise

    async def disconnect(self) -> None:
        """Drop the connection to a PostgreSQL server. The next transaction connects again."""
        await self._wait_for_turn()
        try:
            await self._give_up_connection()
        finally:
            self._leave()

    async def checkpoint(self) -> bool:
        """Copy SQLite's write-ahead log into the database file, and sync both.

        Return whether the log was emptied. Raises StorePoisoned or StoreUnavailable.
        """
        for mode in ("TRUNCATE", "PASSIVE"):
            async with self._alone() as connection:
                done = await self._checkpoint(connection, mode, wait_ms=BUSY_TIMEOUT_MS)
            if done.alone:
                return mode == "TRUNCATE"
        return False

    async def try_checkpoint(self, mode: Mode) -> bool:
        """Copy as much of the write-ahead log as readers allow, without waiting. Return whether
        all.

        Raises StorePoisoned or StoreUnavailable.
        """
        async with self._alone() as connection:
            return (await self._checkpoint(connection, mode, wait_ms=0)).complete

    async def _checkpoint(
        self, connection: AsyncConnection, mode: Mode, *, wait_ms: int = INSIST_MS
    ) -> CheckpointResult:
        done = await statements.run(connection, checkpoint_log, mode, wait_ms=wait_ms)
        if done.complete and self.on_checkpoint is not None:  # nobody else has written since
            await self._run_transaction(connection, self.on_checkpoint)
        return done

    async def tidy(self, tables: Sequence[str]) -> bool:
        """Erase the remains of deleted rows. Return False if a reader prevented this.

        Raises StorePoisoned or StoreUnavailable.
        """
        if self.dialect == "sqlite":
            return await self.checkpoint()
        async with self._alone() as connection:
            await postgresql.vacuum(connection, tables)
        return True

    async def rewrite(self) -> None:
        """Rewrite an SQLite database and its log, without remains of deleted rows.

        No other process may have it open. Raises StorePoisoned or StoreUnavailable.
        """
        async with self._alone() as connection:
            await statements.run(connection, _ask, "VACUUM")
            await self._checkpoint(connection, "TRUNCATE")
            if self._place is not None:
                self._place.note()  # the file has become shorter

    async def _checkpoint_long_log(self, connection: AsyncConnection) -> None:
        """Shorten the write-ahead log by a checkpoint if it is too long after a commit. Only I/O
        errors are raised."""
        mode = None if self._log is None else self._log.checkpoint_due()
        if mode is None:
            return
        try:
            await self._checkpoint(connection, mode)
        except faults.driver_errors() as error:
            meaning = self.judged(error)
            if not isinstance(meaning, StoreUnavailable):
                raise meaning from error

    async def make_room(self) -> None:
        """Empty the write-ahead log if the disk is full. Raise StoreUnavailable if it still is."""
        log = None if self._connection is None else self._log
        try:
            self.space.check(log_bytes=0 if log is None else log.excess_bytes())
        except StoreUnavailable:
            if log is None or not log.may_give_room():
                raise
            async with self._alone() as connection:
                await self._checkpoint(connection, "TRUNCATE")
            self.space.check(log_bytes=log.excess_bytes())

    async def commit(
        self,
        function: statements.Plain[statements.Words, statements.Result],
        *args: statements.Words.args,
        **words: statements.Words.kwargs,
    ) -> statements.Result:
        """Run a plain function as a transaction and return its result.

        Raises StoreUnavailable if that is impossible now, and StorePoisoned for a fatal failure.
        """

        def whole(plain: statements.PlainConnection) -> statements.Result:
            result = function(plain, *args, **words)
            if self._between_processes is not None:
                self.note_commit(plain)
            return result

        async with self._committing() as connection:
            return await self._run_transaction(connection, whole)

    async def commit_statement(self, sql: str, values: Sequence[Any]) -> None:
        """Run one SQL statement as a transaction on PostgreSQL. The statement must begin with the
        text that locks the writer's row."""
        assert self.holder is not None
        async with self._committing() as connection:
            await postgresql.run_statement(connection, sql, values, holder=self.holder)

    @asynccontextmanager
    async def _committing(self) -> AsyncIterator[AsyncConnection]:
        try:
            await self.make_room()
            async with self._alone() as connection:
                yield connection
        except StoreUnavailable as error:
            self.trouble = str(error)
            raise
        self.trouble = None

    async def check(self) -> None:
        """Check the free disk space, and after a failed commit also a test write.

        Raises StorePoisoned or StoreUnavailable.
        """
        await self.make_room()
        if self.trouble is not None:
            await self.touch()

    async def touch(self) -> None:
        """Commit a test write, to find out whether a real write would succeed."""
        await self.commit(_touch)

    def judged(self, error: Exception) -> Exception:
        """Return the Tallyhook error for a database driver's error. A fatal one stops this
        writer."""
        if self.dialect == "sqlite" and isinstance(error, OSError):
            return error
        meaning = faults.as_store_error(error)
        if meaning is None:
            return error
        if isinstance(meaning, StorePoisoned):
            loss = self.loss()
            meaning = meaning if loss is None else StorePoisoned(loss)
            self.fail(str(meaning))
        return meaning

    async def _connected(self) -> AsyncConnection:
        if self._connection is not None and await postgresql.is_lost(self._connection):
            await self._give_up_connection()  # otherwise the next use would reconnect unchecked
        if self._connection is None:
            try:
                connection = await self._engine.connect()
            except ConfigurationError as error:
                if self._connected_before:  # the server was restarted with other settings
                    self.fail(str(error))
                    raise StorePoisoned(str(error)) from error
                raise
            if self.holder is not None:
                await self._enter(connection, self.holder)
            self._connection = connection
            self._connected_before, self._changes = True, 0
            if self._place is not None:
                self._place.note()
        return self._connection

    async def _enter(self, connection: AsyncConnection, holder: Holder) -> None:
        try:
            if self._watch is not None:
                await self._watch.check(connection, holder)
            await postgresql.enter(connection, holder)
        except BaseException:
            await connection.close()
            raise
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(holder))

    async def _beat(self, holder: Holder) -> None:
        while self._poison is None:
            before = holder.newest
            await asyncio.sleep(holders.BEAT_S)
            if holder.newest == before and self._connection is not None:
                try:
                    await self.commit(lambda plain: None)
                except (StoreUnavailable, StorePoisoned):
                    pass  # `trouble` and `poison` report it
                except Exception as error:
                    log.error("this process cannot renew its row in the database", exc_info=error)

    async def _give_up_connection(self) -> None:
        if self.dialect != "sqlite" and self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.invalidate()
            await connection.close()

    async def _take(self) -> None:
        if self._between_processes is not None and self._taken_at is None:
            await self._between_processes.take()
            self._taken_at = monotonic()

    def _release(self) -> None:
        self._taken_at = None
        if self._between_processes is not None:
            self._between_processes.release()

    async def close(self) -> None:
        """Close the connection. On SQLite, the last connection that closes checkpoints the log."""
        with anyio.CancelScope(shield=True):
            if self._beating is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TURN_S), self._turn:  # not during its commit
                        self._beating.cancel()
                self._beating.cancel()
                await asyncio.wait([self._beating])
            if self._connection is not None:
                await self._take()
            try:
                if self._connection is not None:
                    if self.holder is not None and self._watch is not None:
                        self._watch.servers.pop(self.holder, None)  # its row is deleted next
                    if self.holder is not None and not self._connection.invalidated:
                        with suppress(StoreUnavailable, *faults.driver_errors()):
                            await postgresql.leave(self._connection, self.holder)
                    await self._connection.close()
                await self._engine.dispose()
            finally:
                self._release()
                if self._between_processes is not None:
                    self._between_processes.close()
