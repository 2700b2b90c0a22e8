"""The one way to write: transactions one after another on one connection, and fail-stop.

Every transaction is shielded from cancellation: a scope cancelled in the middle of one would leave
the driver's thread with a half-made transaction.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal

import anyio
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.errors import ConfigurationError, StorePoisoned, StoreUnavailable
from app.database import faults, locks, postgresql
from app.database.engine import PATIENT
from app.database.statements import (
    Plain,
    PlainConnection,
    Result,
    Rows,
    Words,
    run,
    run_transaction,
    statement,
)

MIB = 1024 * 1024
GIB = 1024 * MIB


class Space:
    """The file system that holds the database; a database server looks after its own."""

    def __init__(self, folder: Path | None, *, low_water_mib: int) -> None:
        """low_water_mib: nothing is written while less than this is free; 0 never refuses."""
        self._folder = folder
        self._low_water_mib = low_water_mib
        self.reserved: Callable[[], int] = lambda: 0
        """Bytes that must be free besides: what was taken in already will need them."""

    def free_bytes(self) -> int | None:
        """What an ordinary program may still write; None where that cannot be known."""
        if self._folder is None or not self._folder.is_dir():
            return None
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def check(self, *, log_bytes: int = 0) -> None:
        """Raises StoreUnavailable while less than the low water is free, and room for what is
        reserved and for `log_bytes`: what a log that somebody holds up has grown by, which the file
        must take in one day."""
        free = self.free_bytes() if self._low_water_mib else None
        reserved = 0 if free is None else self.reserved()
        if free is None or free >= self._low_water_mib * MIB + log_bytes + reserved:
            return
        needed = self._low_water_mib + -(-(log_bytes + reserved) // MIB)
        reader = "end what reads the database for long, such as a backup, " if log_bytes else ""
        unread = ", which what is accepted and not read yet will need" if reserved else ""
        raise StoreUnavailable(
            f"less than {needed} MiB of the database's disk is free{unread}; free some, {reader}"
            "or lower TALLYHOOK_DISK_LOW_WATER_MB",
            reason="disk",
        )


PAGE_BYTES: Final = 4096

FOLD_PAGES = 12_000
"""Pages of 4 KiB in the log before it is folded into the file: some 48 MB. Pages that change often
are then folded once instead of many times."""

ROOM_PAGES: Final = 256
"""A log of fewer pages, 1 MiB, gives no room worth the trouble when it is emptied."""

INSIST_S: Final = 4.0
"""Seconds between two tries that wait for readers; only with a log that is too long. A full disk
is to be written again within five seconds after a reader has released the log."""

INSIST_MS: Final = 250
"""How long each waits, and deliveries with it."""

Mode = Literal["PASSIVE", "RESTART", "TRUNCATE"]
"""Fold without waiting for anybody; wait for readers, so that the log begins anew; and empty it."""

_MX_FRAME = 16
"""Where the index of the log counts the log's pages: section 2.1 of SQLite's `walformat.html`."""


class LogLength:
    """Reads the count from the log's index, a file that all connections share."""

    def __init__(self, database: Path, *, fold_pages: int | None = None) -> None:
        """fold_pages: when the log is folded, in place of FOLD_PAGES."""
        self._path = database.with_name(database.name + "-shm")
        self._file: int | None = None
        self._insist_from = 0.0
        self._given = fold_pages

    @property
    def _fold_pages(self) -> int:
        return FOLD_PAGES if self._given is None else self._given

    def pages(self) -> int:
        """In the log since it was last begun anew. Only while a connection is open."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return int.from_bytes(os.pread(self._file, 4, _MX_FRAME), sys.byteorder)

    def excess_bytes(self) -> int:
        """What the log has grown by beyond its length. Only while a connection is open."""
        return max(0, self.pages() - self._fold_pages) * PAGE_BYTES

    def folding_due(self) -> Mode | None:
        """How the log is to be folded now, after a commit; None where it is not."""
        pages = self.pages()
        if pages < self._fold_pages:
            return None
        return "RESTART" if pages >= 2 * self._fold_pages and self._may_insist() else "PASSIVE"

    def may_give_room(self) -> bool:
        """Whether emptying the log could free what a full disk needs, and was not just tried."""
        return self.pages() >= ROOM_PAGES and self._may_insist()

    def _may_insist(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now < self._insist_from:
            return False
        self._insist_from = now + INSIST_S
        return True

    def close(self) -> None:
        """Only after all connections: closing it drops the locks that SQLite holds on the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def fold_log(connection: PlainConnection, mode: Mode) -> None:
    """Fold the log, as far as readers let it be folded. One that waits for them leaves a connection
    that waits for nobody longer than that."""
    if mode != "PASSIVE":
        connection.ask(statement("PRAGMA busy_timeout={ms}", ms=str(INSIST_MS)))
    connection.ask(statement("PRAGMA wal_checkpoint({mode})", mode=mode))


_Identity = tuple[int, int] | None


def _identity(path: Path) -> _Identity:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


_RESTORED: Final = "after a restore start it again; else "


class Place:
    """The database file, its write-ahead log and the log's index, by device and inode. Where the
    index is gone, another process would make one of its own, and the two would write over each
    other's pages."""

    def __init__(self, database: Path) -> None:
        self._paths = tuple(Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm"))
        self._opened: dict[Path, _Identity] = {}

    def note(self) -> None:
        """Remember the files as they are now, just after they were opened."""
        self._opened = {path: _identity(path) for path in self._paths}

    def loss(self) -> str | None:
        """What is no longer there, one sentence; None while both files are the opened ones."""
        for path in self._paths:
            found = _identity(path)
            # The log of a new file comes with its first write.
            opened = self._opened[path] = self._opened[path] or found
            if found is None or found != opened:
                what, after = ("is gone", "") if found is None else ("was replaced", _RESTORED)
                return (
                    f"{path} {what} while the service was running; nothing more is acknowledged: "
                    f"{after}put the file back, or restore a backup with tallyhook restore, then "
                    "start"
                )
        return None


TURN_S: Final = 5.0
"""How long a writer waits for those before it. Transactions take milliseconds."""

KEEP_S: Final = 0.025
"""For so long after it was taken, the lock between processes stays with whoever waits for it here:
each of twenty small writes would else wait for a transaction of another process."""

WANTED_S: Final = 1.0
"""Another process that waited for one of our transactions is likely to come again within it."""


def _ask(connection: PlainConnection, sql: str) -> Rows:
    return connection.ask(sql)


async def _fold(connection: AsyncConnection, mode: Mode) -> None:
    try:
        await run(connection, fold_log, mode)
    finally:
        if mode != "PASSIVE":
            await run(connection, _ask, PATIENT)


def _touch(connection: PlainConnection) -> None:
    """A write that leaves the database as it was, but needs all that a real one needs."""
    connection.ask(
        "INSERT INTO counters (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value=counters.value+1",
        ("writable", 1),
    )


class Writer:
    """Serialises transactions. After a storage I/O error it refuses for ever."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        lock: locks.WriteLock | None,
        log: LogLength | None,
        place: Place | None,
        space: Space,
    ) -> None:
        """lock, log, place: between processes on one SQLite file, its write-ahead log's length, and
        where both lie."""
        self._engine = engine
        self._between_processes = lock
        self._log = log
        self._place = place
        self.space = space
        self._turn = asyncio.Lock()
        self._waiting = 0
        """Writers of this process that wait for their turn."""
        self._taken_at: float | None = None
        """When the lock between processes was taken; None while it is not ours."""
        self._wanted_at = -WANTED_S
        """When another process last waited for a transaction here."""
        self.held_s = 0.0
        """Seconds for which the last transaction held the database, its commit included."""
        self._connection: AsyncConnection | None = None
        self._connected_before = False
        sqlite = self.dialect == "sqlite"
        self._run_transaction = run_transaction if sqlite else postgresql.run_transaction
        self._transaction: Callable[[AsyncConnection], AbstractAsyncContextManager[Any]] = (
            AsyncConnection.begin if sqlite else postgresql.transaction
        )
        self._poison: str | None = None
        self.trouble: str | None = None
        """Why the last commit could not be made, one sentence; None when it could."""
        self.on_poison: Callable[[str], None] = lambda reason: None

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`: how statements are written."""
        return self._engine.dialect.name

    @property
    def poison(self) -> str | None:
        """Why nothing more may be written, one sentence; None while all is well."""
        return self._poison

    @property
    def is_wanted(self) -> bool:
        """Whether another process waits for the transaction under way here; False on PostgreSQL,
        where none has to."""
        return self._between_processes is not None and self._between_processes.is_wanted()

    @property
    def was_wanted(self) -> bool:
        """Whether another process waited for a transaction here within WANTED_S."""
        return monotonic() - self._wanted_at < WANTED_S

    def fail(self, reason: str) -> None:
        """Stop for good. Whoever supervises the process is notified why, once."""
        if self._poison is None:
            self._poison = reason
            self.on_poison(reason)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One transaction; committed when the block ends, rolled back when it raises.

        Raises StorePoisoned or StoreUnavailable for what the database reports.
        """
        async with self._alone() as connection, self._transaction(connection):
            yield connection

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[AsyncConnection]:
        """The connection, for this caller alone among all writers, in no transaction yet."""
        await self._wait_for_turn()
        try:
            if self._poison is not None:
                raise StorePoisoned(self._poison)
            with anyio.CancelScope(shield=True):
                await self._take()
                began = monotonic()
                try:
                    connection = await self._connected()
                    yield connection
                    self.check_place()
                    await self._fold_long_log(connection)
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
        """Are the files still those that were opened? Asked after each commit, before anybody hears
        of it. Raises StorePoisoned, for good."""
        loss = None if self._place is None else self._place.loss()
        if loss is not None:
            self.fail(loss)
            raise StorePoisoned(loss)

    async def _wait_for_turn(self) -> None:
        """Raises StoreUnavailable where another writer does not come to an end: whoever asks is not
        to wait as long as a disk that hangs."""
        self._waiting += 1
        try:
            # Even where the turn looks free: those who waited before have it next.
            async with asyncio.timeout(TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                "another write has not ended for some seconds; try again", reason="busy"
            ) from None
        finally:
            self._waiting -= 1
            if not self._waiting and not self._turn.locked():
                self._release()  # it may have been kept for this one, who waits no more

    def _leave(self) -> None:
        """Let the next one write: one of this process where the lock has just been taken."""
        now = monotonic()
        if self.is_wanted:
            self._wanted_at = now
        if not (self._waiting and self._taken_at is not None and now < self._taken_at + KEEP_S):
            self._release()
        self._turn.release()

    async def connect(self) -> None:
        """Make the connection now, with all that is asked of a new one. Raises as `transaction`
        does."""
        async with self._alone():
            pass

    async def checkpoint(self) -> bool:
        """Fold SQLite's write-ahead log into the file, and sync both.

        Where another process holds a snapshot, so that the log cannot be emptied, all of it that
        can be is folded and False is returned. Raises as `transaction` does.
        """
        for mode in ("TRUNCATE", "PASSIVE"):
            sql = statement("PRAGMA wal_checkpoint({mode})", mode=mode)
            async with self._alone() as connection:
                rows = await run(connection, _ask, sql)
            if rows[0][0] == 0:
                return mode == "TRUNCATE"
        return False

    async def tidy(self, tables: Sequence[str]) -> bool:
        """Free what deleted rows have left behind: on SQLite in the log, which is folded and
        emptied; on PostgreSQL in the tables, which are vacuumed. False where a reader held it up.

        Raises as `transaction` does.
        """
        if self.dialect == "sqlite":
            return await self.checkpoint()
        async with self._alone() as connection:
            await postgresql.vacuum(connection, tables)
        return True

    async def rewrite(self) -> None:
        """Write an SQLite database anew, so that nothing deleted is left in it; nobody else may
        have it open. Raises as `transaction` does."""
        async with self._alone() as connection:
            await run(connection, _ask, "VACUUM")

    async def _fold_long_log(self, connection: AsyncConnection) -> None:
        """After a commit. Only an I/O error matters: the commit is made, the log can wait."""
        mode = None if self._log is None else self._log.folding_due()
        if mode is None:
            return
        try:
            await _fold(connection, mode)
        except faults.driver_errors() as error:
            meaning = self.judged(error)
            if not isinstance(meaning, StoreUnavailable):
                raise meaning from error

    async def make_room(self) -> None:
        """Where the disk has too little, the log gives back what it took while somebody held it up.

        Raises StoreUnavailable where that was not enough.
        """
        log = None if self._connection is None else self._log
        try:
            self.space.check(log_bytes=0 if log is None else log.excess_bytes())
        except StoreUnavailable:
            if log is None or not log.may_give_room():
                raise
            async with self._alone() as connection:
                await _fold(connection, "TRUNCATE")
            self.space.check(log_bytes=log.excess_bytes())

    async def commit(
        self, function: Plain[Words, Result], *args: Words.args, **words: Words.kwargs
    ) -> Result:
        """Run a plain function as one transaction, if the disk has room. Raises as `transaction`
        does."""
        async with self._committing() as connection:
            return await self._run_transaction(
                connection, lambda plain: function(plain, *args, **words)
            )

    async def commit_statement(self, sql: str, values: Sequence[Any]) -> None:
        """The same of one statement alone, on PostgreSQL."""
        async with self._committing() as connection:
            await postgresql.run_statement(connection, sql, values)

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
        """Is there room, and if the last commit failed, does one that changes nothing succeed?

        Raises as `transaction` does.
        """
        await self.make_room()
        if self.trouble is not None:
            await self.commit(_touch)

    def judged(self, error: Exception) -> Exception:
        """What a driver's error means to callers. A fatal one, met by a reader too, stops all."""
        if self.dialect == "sqlite" and isinstance(error, OSError):
            return error
        meaning = faults.as_store_error(error)
        if meaning is None:
            return error
        if isinstance(meaning, StorePoisoned):
            self.fail(str(meaning))
        return meaning

    async def _connected(self) -> AsyncConnection:
        if self._connection is None:
            try:
                self._connection = await self._engine.connect()
            except ConfigurationError as error:
                if self._connected_before:  # the server came back with other settings
                    self.fail(str(error))
                    raise StorePoisoned(str(error)) from error
                raise
            self._connected_before = True
            if self._place is not None:
                self._place.note()
        return self._connection

    async def _give_up_connection(self) -> None:
        """On PostgreSQL: what became of its transaction is not known, and it may be dead."""
        if self.dialect != "sqlite" and self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.invalidate()
            await connection.close()

    async def _take(self) -> None:
        """The lock between processes, unless the one before has kept it for us."""
        if self._between_processes is not None and self._taken_at is None:
            await self._between_processes.take()
            self._taken_at = monotonic()

    def _release(self) -> None:
        self._taken_at = None
        if self._between_processes is not None:
            self._between_processes.release()

    async def close(self) -> None:
        """Close the connection; on SQLite the last one to close folds the log into the file."""
        with anyio.CancelScope(shield=True):
            if self._connection is not None:
                await self._take()
            try:
                if self._connection is not None:
                    await self._connection.close()
                await self._engine.dispose()
            finally:
                self._release()
                if self._between_processes is not None:
                    self._between_processes.close()
