"""Connections of an SQLite database: one that writes, and several that only read.

WAL and synchronous=FULL are set and read back, because no acknowledged delivery may be lost. The
writer begins with BEGIN IMMEDIATE, because a read transaction that starts to write can fail at
once.
"""

import os
import re
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_mock_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from app.core.errors import ConfigurationError, StoreUnavailable
from app.database import postgresql, servers
from app.database.faults import why_not_opened
from app.database.holders import Holder
from app.database.statements import (
    Ask,
    CallingConnection,
    PlainConnection,
    WholeCursor,
    call,
    run,
    statement,
)

if TYPE_CHECKING:
    from app.database.hosts import Hosts

Connection = AsyncConnection

BUSY_TIMEOUT_MS = 5_000

WRITER_CACHE_KIB = 24_576
"""Size in KiB of the writing connection's page cache: twice what a batch of 512 deliveries uses."""

LOG_BYTES = 64 * 1024 * 1024
"""Size in bytes to which the write-ahead log's file is cut after a slow reader has let the file
grow larger."""

STATEMENTS_KEPT = 512
"""Maximum number of prepared statements in the cache; each table has ten INSERT statements."""

READERS = 4


def is_sqlite(url: str) -> bool:
    return make_url(url).get_backend_name() == "sqlite"


def database_place(url: str) -> str:
    """Return the database's name for people: the file's path, or hosts and name, without
    password."""
    parts = make_url(url)
    if parts.get_backend_name() == "sqlite":
        return str(sqlite_path(url).resolve())
    hosts = parts.host or parts.query.get("host", "localhost")
    return f"{hosts if isinstance(hosts, str) else ','.join(hosts)}/{parts.database or ''}"


def sqlite_path(url: str) -> Path:
    """Return the path of the file in an SQLite URL, with symbolic links resolved.

    Raises ConfigurationError for a database in memory, and StoreUnavailable without access.
    """
    database = make_url(url).database
    if not database or database == ":memory:":
        raise ConfigurationError(["TALLYHOOK_DATABASE_URL: must name a file, not memory"])
    path = Path(database)
    try:
        return path.resolve() if path.is_symlink() else path
    except OSError as error:
        raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(error)}") from error


READ_BYTES: Final = 1024 * 1024

_MEMINFO: Final = Path("/proc/meminfo")


def read_ahead(
    path: Path, *, progress: Callable[[int, int], None] = lambda done, whole: None
) -> None:
    """Read the whole database file into the system's page cache, if it fits into memory.

    progress  called with the bytes read so far, and the size of the file

    Call it only before this process opens the database: closing a file drops SQLite's locks. Raises
    StoreUnavailable if the disk fails.
    """
    try:
        size, done = path.stat().st_size, 0
        if size > _room_for_pages():  # the end would evict the beginning from the cache
            return
        with path.open("rb", buffering=0) as file:
            while found := file.read(READ_BYTES):
                done += len(found)
                progress(done, size)
    except OSError as error:
        raise StoreUnavailable(f"the database cannot be opened: {why_not_opened(error)}") from error


def _room_for_pages() -> int:
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return int(found[1]) * 1024 // 10 * 9


IN_MEMORY: Final = "PRAGMA temp_store=MEMORY"
"""SQLite command that keeps temporary rows in memory. In a temporary file, personal data would
remain on the disk."""


def writing_engine(
    url: str,
    *,
    purpose: postgresql.Purpose = "alone",
    hosts: "Hosts | None" = None,
    holder: Holder | None = None,
) -> AsyncEngine:
    """Return the engine of the only connection that writes.

    hosts   hosts of a PostgreSQL URL; None for SQLite
    holder  registration of this writer; None for SQLite
    """
    if hosts is not None:
        return postgresql.writing_engine(
            url,
            purpose=purpose,
            hosts=hosts,
            check=servers.check_server,
            session=purpose if holder is None else holder.session,
        )
    engine = create_async_engine(
        url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=1,
        max_overflow=0,
        connect_args=_SQLITE_ARGUMENTS,
    )
    pragmas = (
        *_PRAGMAS,
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        statement("PRAGMA cache_size=-{kib}", kib=str(WRITER_CACHE_KIB)),
        "PRAGMA wal_autocheckpoint=0",  # the writer checkpoints the log: see `LogLength`
        statement("PRAGMA journal_size_limit={size}", size=str(LOG_BYTES)),
        "PRAGMA secure_delete=ON",  # overwrite deleted rows, which may be personal data
        IN_MEMORY,
    )
    _prepare(engine, pragmas, begin="BEGIN IMMEDIATE", check=_check_durable)
    return engine


def hosts_of(url: str) -> "Hosts | None":
    """Return the hosts of a PostgreSQL URL, for all engines of a process to share. Return None for
    SQLite."""
    if is_sqlite(url):
        return None
    from app.database.hosts import Hosts  # loads the driver, which is slow

    return Hosts()


def reading_engine(
    url: str,
    *,
    readers: int = READERS,
    hosts: "Hosts | None" = None,
    check: Callable[[Ask], None] | None = None,
) -> AsyncEngine:
    """Return the engine of the connections that only read.

    hosts  hosts of a PostgreSQL URL; None for SQLite
    check  called for each new connection to a PostgreSQL host
    """
    if hosts is not None:
        return postgresql.reading_engine(url, readers=readers, hosts=hosts, check=check)
    file = f"file:{sqlite_path(url).absolute()}"
    engine = create_async_engine(
        make_url(url).set(database=file, query={"mode": "ro", "uri": "true"}),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=readers,
        max_overflow=0,
        # Every borrower ends its transaction; one more rollback would take as long as a query.
        pool_reset_on_return=None,
        connect_args=_SQLITE_ARGUMENTS,
    )
    _prepare(engine, _PRAGMAS, begin="BEGIN")
    return engine


_SQLITE_ARGUMENTS: Final[dict[str, Any]] = {
    "isolation_level": None,
    "timeout": BUSY_TIMEOUT_MS / 1000,
    "cached_statements": STATEMENTS_KEPT,
    "factory": CallingConnection,
}

SET_BUSY_TIMEOUT: Final = statement("PRAGMA busy_timeout={ms}", ms=str(BUSY_TIMEOUT_MS))

_PRAGMAS: Final = ("PRAGMA foreign_keys=ON", SET_BUSY_TIMEOUT)


def _prepare(
    engine: AsyncEngine,
    pragmas: tuple[str, ...],
    *,
    begin: str,
    check: Callable[[PlainConnection], None] | None = None,
) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        driver = connection.driver_connection
        # A weak proxy: in a reference cycle the driver could not report that it was not closed.
        unowned: Any = weakref.proxy(driver)
        driver.cursor = partial(WholeCursor, unowned)
        connection.run_async(lambda opened: call(opened, set_up))

    def set_up(plain: PlainConnection) -> None:
        for pragma in pragmas:
            plain.ask(pragma)
        if check is not None:
            check(plain)

    @event.listens_for(engine.sync_engine, "begin")
    def start(connection: Any) -> None:
        connection.exec_driver_sql(begin)


def _check_durable(plain: PlainConnection) -> None:
    """Raise ConfigurationError if a setting that protects commits has no effect."""
    ((journal,),) = plain.ask("PRAGMA journal_mode")
    ((synchronous,),) = plain.ask("PRAGMA synchronous")
    if (journal, synchronous) != ("wal", 2):
        raise ConfigurationError(
            [
                "TALLYHOOK_DATABASE_URL: this file system does not support SQLite's write-ahead "
                f"log (journal_mode={journal}, synchronous={synchronous}); use a local disk"
            ]
        )


# --- A database for the time of one check or run --------------------------------------------------


@asynccontextmanager
async def scratch_database() -> AsyncIterator[AsyncConnection]:
    """Yield a connection to an empty, temporary SQLite database under `TMPDIR`.

    The block is one transaction, which is rolled back.
    """
    with tempfile.TemporaryDirectory(prefix="tallyhook-scratch-") as folder:
        engine = writing_engine(f"sqlite+aiosqlite:///{folder}/scratch.db", purpose="alone")
        try:
            async with engine.connect() as scratch, scratch.begin() as transaction:
                await run(scratch, lambda plain: [plain.ask(each) for each in _table_statements()])
                yield scratch
                await transaction.rollback()
        finally:
            await engine.dispose()


@cache
def _table_statements() -> list[str]:
    """Return the CREATE statements of all tables, whose models are imported only here."""
    from app.database.tables import metadata

    statements: list[str] = []

    def keep(ddl: Any, *_: Any, **__: Any) -> None:
        statements.append(str(ddl.compile(dialect=engine.dialect)))

    engine = create_mock_engine("sqlite://", keep)
    metadata.create_all(engine, checkfirst=False)
    return statements
