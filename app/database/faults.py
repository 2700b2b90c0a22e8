"""Translate the errors of database drivers into Tallyhook's errors: temporary or fatal.

An I/O error ends all writing, because cached pages may differ from the disk. A retry could then
acknowledge a lost row as a duplicate.
"""

import errno
import sqlite3
import ssl
import sys
from collections.abc import Iterator
from typing import Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.core.errors import NotStored, StorePoisoned, StoreUnavailable, TallyhookError

PUT_BACK: Final = (
    "restore a backup with `tallyhook restore FILE --force`, which keeps the present file beside "
    "it, or move the file away and start with an empty one"
)
"""Advice after the database file was damaged. The file cannot be repaired, because SQLite cannot
tell which rows are right."""

_FATAL_SQLITE = {
    # A write that the kernel answers with EROFS is reported as an I/O error too.
    sqlite3.SQLITE_IOERR: (
        "the disk reported an I/O error or became read-only",
        "see the kernel's log and check the disk before you start again",
    ),
    sqlite3.SQLITE_CORRUPT: ("the database file is damaged", PUT_BACK),
    sqlite3.SQLITE_NOTADB: ("the database file is not a database", PUT_BACK),
    sqlite3.SQLITE_READONLY: (
        "the database's file or file system is read-only",
        "see the kernel's log for a failed disk, let the service's user write, and start again",
    ),
}

_PASSING_SQLITE: Final[dict[int, tuple[str, NotStored]]] = {
    sqlite3.SQLITE_FULL: ("the disk is full; free some space", "disk"),
    sqlite3.SQLITE_BUSY: ("the database is busy; try again", "busy"),
    sqlite3.SQLITE_LOCKED: ("the database is locked; try again", "busy"),
    sqlite3.SQLITE_CANTOPEN: (
        "the database cannot be opened; check its folder and open files",
        "database",
    ),
}

_FATAL_POSTGRESQL = {
    "XX001": "the server found damaged data",
    "XX002": "the server found a damaged index",
}

_NO_CONNECTION: Final = "53300"

_MAY_PASS: Final = ("57P03", _NO_CONNECTION)
"""Error codes of a PostgreSQL server that is starting, or has no free connection."""

TAKES_NO_WRITES: Final = (
    "the server takes no writes: it is a standby, or default_transaction_read_only is on"
)

SILENT: Final = "the database does not answer; try again"

POOLED: Final = (
    "a pooler such as PgBouncer changes the server's connection between transactions, or cannot do "
    "what the driver asks; set its pool_mode to session for this database, or name the server "
    "itself in TALLYHOOK_DATABASE_URL"
)
"""Sentence for a connection that a pooler has changed: without our settings, or with others'
statements."""

_REFUSES_LIMITS: Final = "08P01"

_PASSING_POSTGRESQL = {
    _REFUSES_LIMITS: POOLED,
    "26000": POOLED,
    "42P05": POOLED,
    "25006": TAKES_NO_WRITES,
    "42501": "the user of TALLYHOOK_DATABASE_URL lacks a right on the database, its schema or a "
    "table (the server's log names it); make that user their owner",
    "08": "the connection to the database was lost; try again",
    "25": "the connection to the database was lost because a transaction took too long; try again",
    "28": "the server does not accept this user or password; correct TALLYHOOK_DATABASE_URL, and "
    "start again",
    "3D": "there is no such database on the server; create it",
    "40": "the database is busy; try again",
    "53": "the server is out of memory, or at another limit of its machine; see its log",
    "53100": "the disk of the database server is full; free some space there",
    _NO_CONNECTION: "the server has no free connection; end programs that hold connections, or "
    "raise max_connections",
    "55": "the database is busy; try again",
    "57": "the server is stopping, starting, or took too long; try again",
    "58": "the server reports a system error; see its log",
    "XX": "the server reports an internal error; see its log",
}
"""Sentence for each temporary problem, by PostgreSQL's error code or its first two characters."""

_REASON_POSTGRESQL: Final[dict[str, NotStored]] = {"40": "busy", "55": "busy", "53100": "disk"}


def driver_errors() -> tuple[type[Exception], ...]:
    """Return the exception classes that a database may raise, asyncpg's only if loaded."""
    asyncpg = sys.modules.get("asyncpg")
    past_sqlalchemy = (
        ()
        if asyncpg is None
        else (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
    )
    # OSError: a connection that cannot be made, or an answer that does not come.
    return (DBAPIError, PoolTimeout, OSError, *past_sqlalchemy)


def is_conflict(error: Exception) -> bool:
    """Return whether a statement failed because a row with an equal key already exists."""
    return _found_in(error, "sqlstate") == "23505"  # unique_violation


def as_store_error(error: Exception) -> TallyhookError | None:
    """Return the Tallyhook error that stands for a driver's error. Return None if our own SQL is
    wrong."""
    code = _found_in(error, "sqlite_errorcode")
    if isinstance(code, int):
        return _of_sqlite(code & 0xFF)
    if isinstance(error, DBAPIError) and isinstance(error.orig, sqlite3.Error):
        return None
    state = _found_in(error, "sqlstate")
    if isinstance(state, str):
        return _of_postgresql(state)
    if (untrusted := _of_certificates(error)) is not None:
        return StoreUnavailable(untrusted)
    if _is_of_driver(error, "TargetServerAttributeNotMatched"):  # asked for by the URL
        return StoreUnavailable(
            "no server in TALLYHOOK_DATABASE_URL matches its target_session_attrs; try again"
        )
    usable = isinstance(error, DBAPIError) and not error.connection_invalidated
    if usable and not _is_driver_confused(error):
        return None
    if any(isinstance(cause, FileNotFoundError) for cause in _chain(error)):
        return StoreUnavailable(
            "the database does not answer: its socket, or the file that PGSSLROOTCERT names, does "
            "not exist"
        )
    return StoreUnavailable(SILENT)


def is_not_there_yet(error: StoreUnavailable) -> bool:
    """Return whether the server may become usable within moments."""
    state = _found_in(error, "sqlstate")
    if isinstance(state, str):
        return (state[:2] == "08" and state != _REFUSES_LIMITS) or state in _MAY_PASS
    if _is_driver_confused(error):
        return True
    return isinstance(error.__cause__, OSError) and _of_certificates(error) is None


def is_full(error: StoreUnavailable) -> bool:
    return _found_in(error, "sqlstate") == _NO_CONNECTION


def why_not_opened(error: OSError) -> str:
    """Return the system's reason why a database was not opened, with what to do if known."""
    if error.errno == errno.EROFS:
        return "its file system is read-only; see the kernel's log, check the disk, mount it again"
    why = error.strerror or type(error).__name__
    if isinstance(error, PermissionError) and isinstance(error.filename, str):
        return (
            f"{why}: {error.filename}; run this as the service's user, or let this user write "
            "there: files made by root belong to root"
        )
    return why


def _of_sqlite(code: int) -> TallyhookError | None:
    if code in _FATAL_SQLITE:
        what, do = _FATAL_SQLITE[code]
        return StorePoisoned(f"{what}; nothing more is acknowledged: {do}")
    if code in _PASSING_SQLITE:
        sentence, reason = _PASSING_SQLITE[code]
        return StoreUnavailable(sentence, reason=reason)
    return None


def _of_postgresql(state: str) -> TallyhookError | None:
    if state in _FATAL_POSTGRESQL:
        return StorePoisoned(f"{_FATAL_POSTGRESQL[state]}; nothing more is acknowledged")
    for code in (state, state[:2]):
        if code in _PASSING_POSTGRESQL:
            reason = _REASON_POSTGRESQL.get(code, "database")
            return StoreUnavailable(_PASSING_POSTGRESQL[code], reason=reason)
    return None


def _is_of_driver(error: BaseException, name: str) -> bool:
    asyncpg = sys.modules.get("asyncpg")
    return asyncpg is not None and any(
        isinstance(cause, getattr(asyncpg, name)) for cause in _chain(error)
    )


def _is_driver_confused(error: BaseException) -> bool:
    """Return whether the driver failed with an internal error because the server ended."""
    return _is_of_driver(error, "InternalClientError") or (
        _is_of_driver(error, "InterfaceError")
        and any("another operation is" in str(cause) for cause in _chain(error))
    )


def _of_certificates(error: BaseException) -> str | None:
    """Return the reason why a server's certificate is not trusted. Return None for another
    error."""
    asyncpg = sys.modules.get("asyncpg")
    misled = () if asyncpg is None else (asyncpg.exceptions.ClientConfigurationError,)
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                "the server's certificate is not trusted; set PGSSLROOTCERT to its authority's "
                "file, and name the server as the certificate does"
            )
        if isinstance(cause, misled):
            return (
                "the driver cannot use TALLYHOOK_DATABASE_URL: ssl=verify-full needs the "
                "authority's file in PGSSLROOTCERT"
            )
    return None


def _found_in(error: BaseException, name: str) -> object:
    found = (getattr(cause, name, None) for cause in _chain(error))
    return next((each for each in found if each is not None), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__
