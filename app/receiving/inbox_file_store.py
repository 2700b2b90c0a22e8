"""Inbox of an SQLite database: a file with one writer."""

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import cached_property
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.errors import ConfigurationError, StorePoisoned
from app.core.ids import new_id
from app.core.logs import log
from app.core.private_files import sync_folder
from app.database.engine import reading_engine, writing_engine
from app.database.facts import damage
from app.database.faults import as_store_error, driver_errors
from app.database.gaps import LAST_COMMIT
from app.database.statements import Plain, PlainConnection, Result, Words, run, run_snapshot
from app.database.writer import (
    MIB,
    START_NAMES_LOSS,
    DatabaseFiles,
    LogLength,
    Space,
    Writer,
)
from app.receiving import inbox_store
from app.receiving.inbox_loss_store import move_aside
from reconcile.instants import EARLIEST

CHECKPOINT_PAGES: Final = 1_000
"""Pages at which the write-ahead log is checkpointed."""

SUFFIX: Final = ".inbox"

CHECKED_BEFORE_SERVING: Final = 64 * MIB
"""Maximum bytes of a file that is checked at start."""

ENVIRONMENT: Final = "environment"

READERS: Final = 2

_TABLES: Final = ("inbox", "meta", "counters")

MADE: Final = "a7770661d348777eff5639c808e8855449e8a690e9d03950b4eb7a632c492f22"
"""Digest of the file's schema."""

_OBJECTS: Final = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"


class InboxFile:
    """Inbox file of an SQLite database. The file is opened only when needed."""

    def __init__(self, database: Path, *, low_water_mib: int) -> None:
        self.database = database
        self.path = path_of(database)
        self._url = f"sqlite+aiosqlite:///{self.path}"
        self._low_water_mib = low_water_mib
        self._log = LogLength(self.path, checkpoint_pages=CHECKPOINT_PAGES)
        self.files = DatabaseFiles(self.path, self._log, lost=START_NAMES_LOSS)
        self._noted = False
        self._has_tables = False

    @cached_property
    def _reader(self) -> AsyncEngine:
        return reading_engine(self._url, readers=READERS)

    @cached_property
    def writer(self) -> Writer:
        """Return the file's only writer, for the serving lock's holder."""
        return Writer(
            writing_engine(self._url),
            lock=None,
            log=self._log,
            place=self.files,
            space=Space(self.path.absolute().parent, low_water_mib=self._low_water_mib),
        )

    def _judged(self, error: Exception) -> Exception:
        if "writer" in vars(self):
            return self.writer.judged(error)
        loss = self.files.loss() if self._noted else None
        return as_store_error(error) or error if loss is None else StorePoisoned(loss)

    def is_there(self) -> bool:
        """Return whether the inbox file exists and has at least one table."""
        if not self.path.exists():
            return False
        self._has_tables = self._has_tables or not _is_bare(self.path)
        return self._has_tables

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection on one snapshot. Raise StoreUnavailable on failure."""
        try:
            async with self._reader.connect() as connection, connection.begin():
                yield connection
        except driver_errors() as error:
            raise self._judged(error) from error

    async def on_snapshot(
        self, function: Plain[Words, Result], *args: Words.args, **words: Words.kwargs
    ) -> Result:
        """Run a read-only function on a snapshot of the file.

        Raise StoreUnavailable on failure, and StorePoisoned for a lost file.
        """
        try:
            async with self._reader.connect() as connection:
                found = await run_snapshot(connection, function, *args, **words)
                if not self._noted:
                    self.files.note()
                    self._noted = True
        except driver_errors() as error:
            raise self._judged(error) from error
        if (loss := self.files.loss()) is not None:
            raise StorePoisoned(loss)
        return found

    async def open(self, environment: str, *, known: str | None) -> str:
        """Create the file, or check that the file belongs to this database. Return its id.

        The caller must hold the serving lock. Raise ConfigurationError for another database's file.
        """
        if not self.path.exists():
            # SQLite gives its log the file's mode. Without this, everyone could read both.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        async with self.writer.transaction() as connection:
            if not await run(connection, _objects):
                await connection.run_sync(_create)
                await run(connection, _stamp, environment)
            elif await run(connection, _made) != MADE:
                raise ConfigurationError(
                    [f"TALLYHOOK_DATABASE_URL: {self.path} is not a Tallyhook inbox; move it away"]
                )
            identity, stamp = await run(connection, _stamped)
        if stamp != environment:
            raise ConfigurationError(
                [f"TALLYHOOK_ENVIRONMENT: the inbox {self.path} belongs to {stamp}; move it away"]
            )
        if known not in (None, identity):
            raise ConfigurationError(
                [
                    f"TALLYHOOK_DATABASE_URL: the inbox {self.path} is not the one that this "
                    "database was reading; put the right one back, or run `tallyhook db "
                    "adopt-inbox` to continue with this one"
                ]
            )
        return identity

    async def make_way(self) -> None:
        """Rename the remains of a lost file."""
        if "_reader" in vars(self):
            await self._reader.dispose()
        self._log.close()
        self._noted = self._has_tables = False
        if (kept := move_aside(self.path)) is not None:
            log.warning("the file of the lost inbox was moved aside", database=str(kept))
        sync_folder(self.path.parent)

    def is_small(self) -> bool:
        """Return whether a check of the file is quick."""
        return self.path.stat().st_size <= CHECKED_BEFORE_SERVING

    async def empty(self, position: int) -> bool:
        """Delete the rows up to a position. Return whether the log is empty.

        The caller must hold the serving lock.
        """
        await self.writer.commit(inbox_store.delete_up_to, position)
        return await self.writer.checkpoint()

    async def damage(self) -> list[str]:
        async with self.reading() as connection:
            return await damage(connection)

    async def close(self) -> None:
        """Close all connections to the file. Do nothing if none was opened."""
        made = vars(self)
        closing: list[Callable[[], Awaitable[None]]] = []
        if "_reader" in made:
            closing.append(self._reader.dispose)
        if "writer" in made:
            # See `Database.close` for why the writer is the first to close after an error.
            closing.insert(0 if self.writer.poison else len(closing), self.writer.close)
        for close in closing:
            await close()
        self._log.close()


def facts_at(database: Path) -> inbox_store.FileFacts | None:
    """Return the inbox file's own facts, if readable."""
    path = path_of(database)
    if not path.exists() or not path.stat().st_size:  # opening an empty file would delete its log
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as inbox:
            row = inbox.execute(
                "SELECT value FROM meta WHERE name=?", (inbox_store.IDENTITY,)
            ).fetchone()
            counters = dict(inbox.execute("SELECT name, value FROM counters").fetchall())
    except sqlite3.Error:
        return None
    names = (LAST_COMMIT, inbox_store.DELETED, inbox_store.RECORDS_DELETED)
    return (
        None
        if row is None
        else inbox_store.FileFacts(row[0], *(counters.get(name, 0) for name in names))
    )


def _is_bare(path: Path) -> bool:
    if not path.stat().st_size:
        return True
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as inbox:
            return not inbox.execute(_OBJECTS).fetchall()
    except sqlite3.Error:
        return False


def mend_emptied(path: Path) -> None:
    """Fill an emptied file with a new file's pages, so that SQLite reads the log.

    No process may have the file open.
    """
    lengths = [each.stat().st_size if each.exists() else 0 for each in (path, Path(f"{path}-wal"))]
    if not lengths[0] and lengths[1]:
        with tempfile.TemporaryDirectory() as folder:
            new = Path(folder) / "new"
            engine = create_engine(f"sqlite:///{new}")
            with engine.begin() as connection:
                _create(connection)
            engine.dispose()
            path.touch(0o600)
            path.write_bytes(new.read_bytes())
        log.warning("a lost inbox is recovered from its write-ahead log", database=str(path))


def path_of(database: Path) -> Path:
    return database.with_name(database.name + SUFFIX)


def _objects(connection: PlainConnection) -> list[tuple[str, str, str]]:
    return sorted((kind, name, sql or "") for kind, name, sql in connection.ask(_OBJECTS))


def _create(connection: Connection) -> None:
    from app.database.tables import metadata  # slow to load; needed only once for a file

    metadata.create_all(connection, tables=[metadata.tables[name] for name in _TABLES])


def _made(connection: PlainConnection) -> str:
    listed = "".join(f"{kind} {name} {sql}\n" for kind, name, sql in _objects(connection))
    return hashlib.sha256(listed.encode()).hexdigest()


def _stamp(connection: PlainConnection, environment: str) -> None:
    for name, value in (
        (inbox_store.IDENTITY, new_id("inbox_", EARLIEST)),
        (ENVIRONMENT, environment),
    ):
        connection.ask("INSERT INTO meta (name, value) VALUES (?, ?)", (name, value))


def _stamped(connection: PlainConnection) -> tuple[str, str]:
    rows = connection.ask("SELECT name, value FROM meta")
    facts = {str(name): str(value) for name, value in rows}
    return facts[inbox_store.IDENTITY], facts[ENVIRONMENT]
