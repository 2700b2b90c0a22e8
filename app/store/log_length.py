"""How long SQLite's write-ahead log is: SQLite itself says so only when it folds the log.

The writer folds it, not SQLite by itself after a commit: that would pass over an I/O error in
silence, and a service that has met one must end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLD_PAGES = 12_000
"""Pages of 4 KiB in the log before it is folded into the file: some 48 MB. Pages that change often
are then folded once instead of many times."""

_MX_FRAME = 16
"""Where the index of the log counts the log's pages: section 2.1 of SQLite's `walformat.html`."""


class LogLength:
    """Reads the count from the log's index, a file that all connections share."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-shm")
        self._file: int | None = None

    def wants_folding(self) -> bool:
        """Whether the log has grown to its length. Only while a connection is open."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return int.from_bytes(os.pread(self._file, 4, _MX_FRAME), sys.byteorder) >= FOLD_PAGES

    def close(self) -> None:
        """Only after all connections: closing it drops the locks that SQLite holds on the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
