"""Locks between processes on one SQLite file.

`ServiceLock` is held for as long as a process serves: a second one is refused. `WriteLock` is held
for one transaction, so that a command such as `tokens add` can write while the service runs.
With it, no process ever checkpoints while another commits, which SQLite before 3.51.3 can
survive only by luck (its WAL-reset bug needs exactly that pair).
The kernel releases both when their process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import anyio

from app.errors import ConfigurationError, StoreUnavailable

WAIT_S = 10.0
"""How long a writer waits for another process's transaction. Transactions take milliseconds."""

_PAUSE_S = 0.005


class ServiceLock:
    """Exclusive for the life of a serving process."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".serving")
        self._file: int | None = None

    def take(self) -> None:
        """Raises ConfigurationError when another process serves this database."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ConfigurationError(
                [
                    "TALLYHOOK_DATABASE_URL: another process already serves "
                    f"{self._path.with_suffix('')}; stop it first, or use PostgreSQL to run several"
                ]
            ) from None
        self._file = descriptor

    def release(self) -> None:
        """Give it back; harmless when it was not taken."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class WriteLock:
    """Exclusive for one transaction or checkpoint."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".writing")
        self._file: int | None = None

    async def take(self) -> None:
        """Wait for the lock. Raises StoreUnavailable when another process holds it too long."""
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
        waited = 0.0
        while not _flock(self._file):
            if waited >= WAIT_S:
                raise StoreUnavailable(
                    "another process holds the database; try again", reason="busy"
                )
            await anyio.sleep(_PAUSE_S)
            waited += _PAUSE_S

    def release(self) -> None:
        """Let others write."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
