"""What a database error means: try again, or never again.

After a storage I/O error the page cache may show what the disk does not hold, and a retry would
then acknowledge, as a duplicate, a row that is lost. So such an error poisons the store: the
process acknowledges nothing more and ends.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

from app.errors import StorePoisoned, StoreUnavailable, TallyhookError

_FATAL_SQLITE = {
    sqlite3.SQLITE_IOERR: "the disk reported an I/O error",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the database file is not a database",
    sqlite3.SQLITE_READONLY: "the database cannot be written",
}

_PASSING_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_BUSY: "the database is busy; try again",
    sqlite3.SQLITE_LOCKED: "the database is locked; try again",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened; check its folder and open files",
}


def as_store_error(error: DBAPIError) -> TallyhookError | None:
    """The error of ours that a driver's error means; None when it is a fault in our own SQL."""
    code = _sqlite_code(error)
    if code is None:
        lost = error.connection_invalidated or isinstance(error.orig, OSError)
        return StoreUnavailable("the database does not answer; try again") if lost else None
    if code in _FATAL_SQLITE:
        return StorePoisoned(f"{_FATAL_SQLITE[code]}; nothing more is acknowledged")
    if code in _PASSING_SQLITE:
        return StoreUnavailable(_PASSING_SQLITE[code])
    return None


def _sqlite_code(error: DBAPIError) -> int | None:
    """SQLite's primary result code, from the driver's exception or the one it was made from."""
    cause: BaseException | None = error.orig
    while cause is not None:
        code = getattr(cause, "sqlite_errorcode", None)
        if isinstance(code, int):
            return code & 0xFF
        cause = cause.__cause__
    return None
