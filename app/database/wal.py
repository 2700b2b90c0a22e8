"""How long SQLite's write-ahead log is, and when to fold it: SQLite itself says how long only when
it folds the log.

The writer folds it, not SQLite by itself after a commit: that would pass over an I/O error in
silence, and a service that has met one must end.

A log that is folded is begun anew only when nobody reads from it. Readers that overlap all the
time, however short each is, would keep it growing. So once it is twice its length, those that read
it are waited for, while those that come read the file alone. One that reads for long, such as a
backup, is not waited for: it is tried for a moment, every four seconds.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final, Literal

from app.database.statements import PlainConnection

PAGE_BYTES: Final = 4096

FOLD_PAGES = 12_000
"""Pages of 4 KiB in the log before it is folded into the file: some 48 MB. Pages that change often
are then folded once instead of many times."""

ROOM_PAGES: Final = 256
"""A log of fewer pages, 1 MiB, gives no room worth the trouble when it is emptied."""

INSIST_S: Final = 4.0
"""Seconds between two tries that wait for readers; only with a log that is too long. A full disk
is to be written again within five seconds after a reader has let the log go."""

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
        connection.ask(f"PRAGMA busy_timeout={INSIST_MS}")
    connection.ask(f"PRAGMA wal_checkpoint({mode})")
