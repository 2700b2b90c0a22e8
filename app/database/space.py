"""Room on the database's disk: writing stops while some is left, because a disk that is quite full
can no longer fold the write-ahead log, and then no longer frees anything either."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from app.core.errors import StoreUnavailable

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
