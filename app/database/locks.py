"""Locks between processes on one SQLite file, and advisory locks of PostgreSQL.

A serving process holds the `ServiceLock`, so that no second process can serve. A process holds the
`WriteLock` for one transaction, so that a command can write while the service runs. The `WriteLock`
also prevents checkpoints during commits, because SQLite before 3.51.3 can lose data then (its
WAL-reset bug).
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Final

import anyio

from app.core.errors import ConfigurationError, StoreUnavailable
from app.database.statements import PlainConnection

SERVING: Final = 7_411_001
MIGRATING: Final = 7_411_002
LINKING: Final = 7_411_003
REFUSING: Final = 7_411_004
IMPORTING: Final = 7_411_005
RECONCILING: Final = 7_411_006
SEALING: Final = 7_411_007
STATING: Final = 7_411_009
ASKING: Final = 7_411_010
REDATING: Final = 7_411_011
SCANNING: Final = 7_411_012
"""Number of an advisory lock.

A transaction takes several locks in this order: STATING (one for each order), REDATING, LINKING,
REFUSING, ASKING (one for each source), then rows. SEALING is held alone.
"""


def take_lock(connection: PlainConnection, lock: int) -> None:
    """Wait for the lock with this number, and hold it until the transaction ends. No-op on SQLite.

    Raises StoreUnavailable during a long read of a whole cluster.
    """
    if connection.dialect == "sqlite":
        return
    if lock == LINKING and connection.spread and connection.ask(_HELD, (SCANNING,)):
        raise StoreUnavailable(
            "the cluster accepts no writes while a report, a reconciliation or a check reads the "
            "whole database; try again later",
            reason="busy",
        )
    connection.ask("SELECT pg_advisory_xact_lock(?)", (lock,))


_HELD: Final = (
    "SELECT 1 FROM pg_locks WHERE locktype='advisory' AND granted AND classid=0 AND objid=? "
    "AND database=(SELECT oid FROM pg_database WHERE datname=current_database())"
)


def take_lock_shared(connection: PlainConnection, lock: int) -> None:
    """Wait until no process holds the lock exclusively, and share the lock until the transaction
    ends."""
    connection.ask("SELECT pg_advisory_xact_lock_shared(?)", (lock,))


def take_lock_of(connection: PlainConnection, lock: int, name: str) -> None:
    """Wait for the lock with this number and name, and hold it until the transaction ends.

    No-op on SQLite. Different names can share one lock.
    """
    if connection.dialect != "sqlite":
        connection.ask("SELECT pg_advisory_xact_lock(?::int, hashtext(?))", (lock, name))


WAIT_S = 10.0
"""Maximum seconds for which a writer waits for other processes. Transactions usually take
milliseconds."""

PASSED_BY_S: Final = 0.1
"""Seconds for which a process leaves a free lock to the processes ahead of it."""

_PAUSE_S: Final = 0.002

_PLACE: Final = struct.Struct("hhqqi4x")
"""Layout of the kernel's `struct flock`: kind, whence, start, length, process (0 for OFD locks)."""


class HeldFile:
    """File that is locked exclusively until it is released or the process ends."""

    def __init__(self, database: Path, suffix: str) -> None:
        self._path = database.with_name(database.name + suffix)
        self._file: int | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def take(self) -> bool:
        """Take the lock. Return False if another process holds the lock."""
        if self._file is not None:
            return True
        descriptor = _opened(self._path)
        if not _flock(descriptor):
            os.close(descriptor)
            return False
        self._file = descriptor
        return True

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def write(self, content: bytes) -> None:
        """Replace the locked file's content. The content survives a crash of the process, but
        perhaps not of the machine."""
        assert self._file is not None
        os.pwrite(self._file, content, 0)

    def read(self) -> bytes:
        """Return the content that the last holder of the lock wrote. Return an empty value if the
        file cannot be read."""
        try:
            return self._path.read_bytes()
        except OSError:
            return b""


class ServiceLock(HeldFile):
    """Lock that a serving process holds until it ends."""

    def __init__(self, database: Path) -> None:
        super().__init__(database, ".serving")
        self._database = database

    def serve(self) -> None:
        """Take the lock. Raises ConfigurationError if another process serves this database."""
        if not self.take():
            raise ConfigurationError(
                [
                    "TALLYHOOK_DATABASE_URL: another process already serves "
                    f"{self._database}; stop it first, or use PostgreSQL to run several"
                ]
            )

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Take the lock for the block. Yield False if another process serves the database."""
        held = self.held
        try:
            yield self.take()
        finally:
            if not held:
                self.release()


def processes_serving(database: Path) -> list[int]:
    """Return the ids of processes that serve a database file. The result is empty if no such
    process is visible."""
    try:
        inode = os.stat(database.with_name(database.name + ".serving")).st_ino
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    # `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`
    held = [line.split() for line in locks if " FLOCK " in line]
    return [int(words[4]) for words in held if words[5].rpartition(":")[2] == str(inode)]


class WriteLock:
    """Lock for one transaction or checkpoint. Processes get the lock in order of arrival."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".writing")
        self._file: int | None = None
        self._queue = _Queue(database.with_name(database.name + ".waiting"))

    async def take(self) -> None:
        """Wait for the lock and take it. Raise StoreUnavailable if other processes hold the lock
        for more than ten seconds."""
        if self._file is None:
            self._file = _opened(self._path)
        waited = free = 0.0
        with self._queue.place() as place:
            while not (self._queue.is_next(place) and _flock(self._file)):
                if waited >= WAIT_S:
                    raise StoreUnavailable(
                        "another process has locked the database; try again", reason="busy"
                    )
                await anyio.sleep(_PAUSE_S)
                waited += _PAUSE_S
                free = free + _PAUSE_S if _is_free(self._file) else 0.0
                if free >= PASSED_BY_S:
                    self._queue.pass_by(place)

    def is_wanted(self) -> bool:
        """Return whether another process waits for the lock. Only the lock's holder may call this
        method."""
        return self._queue.is_anybody_there()

    def release(self) -> None:
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._queue.close()


class _Queue:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._passed = 0
        """First place that is not skipped."""

    @contextmanager
    def place(self) -> Iterator[int]:
        if self._file is None:
            self._file = _opened(self._path)
        place = monotonic_ns()
        while not self._set(fcntl.F_WRLCK, place):
            place += 1
        try:
            yield place
        finally:
            self._set(fcntl.F_UNLCK, place)

    def is_next(self, place: int) -> bool:
        return place <= self._passed or not self._taken(place - self._passed)

    def is_anybody_there(self) -> bool:
        """Return whether any other process waits in the queue. The caller itself must not wait in
        the queue."""
        return self._taken(0)

    def _taken(self, length: int) -> bool:
        """Return whether another process is in the queue, without places passed by.

        length  number of the next places to look at; 0 for all
        """
        if self._file is None:
            return False
        asked = _PLACE.pack(fcntl.F_WRLCK, 0, self._passed, length, 0)
        answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked)
        return bool(_PLACE.unpack(answer)[0] != fcntl.F_UNLCK)

    def pass_by(self, place: int) -> None:
        self._passed = place

    def _set(self, kind: int, place: int) -> bool:
        assert self._file is not None
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _PLACE.pack(kind, 0, place, 1, 0))
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(descriptor: int) -> bool:
    free = _flock(descriptor)
    if free:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return free


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
