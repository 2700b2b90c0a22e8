"""Locks between processes on one SQLite file.

`ServiceLock` is held for as long as a process serves: a second one is refused. Whoever reads the
inbox holds another such file. `WriteLock` is held
for one transaction, so that a command such as `tokens add` can write while the service runs.
With it, no process ever checkpoints while another commits, which SQLite before 3.51.3 can
survive only by luck (its WAL-reset bug needs exactly that pair).

Processes take the `WriteLock` in the order in which they came: whoever wants it first takes a place
in a queue, which is a locked byte of a second file, at the offset that the clock of the machine
shows. A place says only who is next, and the lock alone says who may write.
The kernel releases all of them when their process ends, however it ends.
"""

from __future__ import annotations

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
READING: Final = 7_411_008
STATING: Final = 7_411_009
"""Numbers of advisory locks; each database has its own. LINKING is taken before REFUSING, and both
before any row is locked; STATING, of which each order has one, before both; SEALING is taken
alone."""


def take_lock(connection: PlainConnection, lock: int) -> None:
    """Wait for a lock that ends with the transaction. SQLite has one writer at a time anyway."""
    if connection.dialect != "sqlite":
        connection.ask("SELECT pg_advisory_xact_lock(?)", (lock,))


def take_lock_of(connection: PlainConnection, lock: int, name: str) -> None:
    """The same of one of the locks of this number: each name has its own, or shares it with a
    few."""
    if connection.dialect != "sqlite":
        connection.ask("SELECT pg_advisory_xact_lock(?::int, hashtext(?))", (lock, name))


WAIT_S = 10.0
"""How long a writer waits for other processes' transactions. They take milliseconds."""

PASSED_BY_S: Final = 0.1
"""How long the lock may lie free before those first in the queue are passed by: a process that was
suspended while it waited is alive, and must hold up nobody."""

_PAUSE_S: Final = 0.002

_PLACE: Final = struct.Struct("hhqqi4x")
"""The kernel's `struct flock`: kind, whence, start, length, process (0 for locks of this sort)."""


class HeldFile:
    """Exclusive for the life of a process, or until it is released."""

    def __init__(self, database: Path, suffix: str) -> None:
        self._path = database.with_name(database.name + suffix)
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether it is ours."""
        return self._file is not None

    def take(self) -> bool:
        """Whether it is ours now; False while another process has it."""
        if self._file is not None:
            return True
        descriptor = _opened(self._path)
        if not _flock(descriptor):
            os.close(descriptor)
            return False
        self._file = descriptor
        return True

    def release(self) -> None:
        """Give it back; harmless when it was not taken."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ServiceLock:
    """Exclusive for the life of a serving process."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._file = HeldFile(database, ".serving")

    def take(self) -> None:
        """Raises ConfigurationError when another process serves this database."""
        if not self._file.take():
            raise ConfigurationError(
                [
                    "TALLYHOOK_DATABASE_URL: another process already serves "
                    f"{self._database}; stop it first, or use PostgreSQL to run several"
                ]
            )

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Whether nobody else serves; then nobody does until the block ends."""
        held = self._file.held
        try:
            yield self._file.take()
        finally:
            if not held:
                self._file.release()

    def release(self) -> None:
        """Give it back; harmless when it was not taken."""
        self._file.release()


class WriteLock:
    """Exclusive for one transaction or checkpoint; first come, first served among processes."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".writing")
        self._file: int | None = None
        self._queue = _Queue(database.with_name(database.name + ".waiting"))

    async def take(self) -> None:
        """Wait for the lock. Raises StoreUnavailable when other processes hold it too long."""
        if self._file is None:
            self._file = _opened(self._path)
        waited = free = 0.0
        with self._queue.place() as place:
            while not (self._queue.is_next(place) and _flock(self._file)):
                if waited >= WAIT_S:
                    raise StoreUnavailable(
                        "another process holds the database; try again", reason="busy"
                    )
                await anyio.sleep(_PAUSE_S)
                waited += _PAUSE_S
                free = free + _PAUSE_S if _is_free(self._file) else 0.0
                if free >= PASSED_BY_S:
                    self._queue.pass_by(place)

    def is_wanted(self) -> bool:
        """Whether another process waits for it; for who holds it."""
        return self._queue.is_anybody_there()

    def release(self) -> None:
        """Let others write."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock's files."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._queue.close()


class _Queue:
    """Places of the processes that wait, each a byte of one file, in the order of their coming."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._passed = 0
        """Places below this one are not waited for any more."""

    @contextmanager
    def place(self) -> Iterator[int]:
        """A place behind all others, until the block ends."""
        if self._file is None:
            self._file = _opened(self._path)
        place = monotonic_ns()
        while not self._lock(place):
            place += 1
        try:
            yield place
        finally:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _PLACE.pack(fcntl.F_UNLCK, 0, place, 1, 0))

    def is_next(self, place: int) -> bool:
        """Whether nobody else who is waited for came before."""
        return place <= self._passed or not self._taken(place - self._passed)

    def is_anybody_there(self) -> bool:
        """Whether anybody who is waited for has a place; for who has none."""
        return self._taken(0)

    def _taken(self, length: int) -> bool:
        """Whether others have one of so many places that are waited for; 0: of all of them."""
        if self._file is None:
            return False
        asked = _PLACE.pack(fcntl.F_WRLCK, 0, self._passed, length, 0)
        answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked)
        return bool(_PLACE.unpack(answer)[0] != fcntl.F_UNLCK)

    def pass_by(self, place: int) -> None:
        """Wait no more for those who came before this place."""
        self._passed = place

    def _lock(self, place: int) -> bool:
        assert self._file is not None
        wanted = _PLACE.pack(fcntl.F_WRLCK, 0, place, 1, 0)
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, wanted)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Close the file."""
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
