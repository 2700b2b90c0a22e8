"""Backs up the database while it is served, and writes it anew.

SQLite only: PostgreSQL's own tools do this for PostgreSQL, and a command of ours would be a worse
one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from app.core.errors import ConfigurationError, StoreUnavailable, UsageError
from app.database.engine import is_sqlite, sqlite_path
from app.database.schema import SUFFIX as MADE
from app.privacy.backup_store import Contents, Progress, copied, put_in_place
from app.receiving.context import AppContext
from app.receiving.inbox_file_store import SUFFIX as INBOX

Result = TypeVar("Result")

_POSTGRESQL: Final = (
    "this database is PostgreSQL's: use `pg_dump --format=custom`, or `pg_basebackup` and an "
    "archive of its log to return to any moment"
)

_OURS: Final = (
    *(f"{file}{name}" for file in ("", INBOX) for name in ("", "-wal", "-shm", "-journal")),
    *(".serving", ".writing", ".waiting", ".reading", MADE),
)
"""The files of a database: no backup may take their place."""


async def rewrite(context: AppContext) -> None:
    """Write an SQLite database anew: only what it says is in it then. Raises UsageError for
    PostgreSQL."""
    if context.store.shared:
        raise UsageError("PostgreSQL has its own: VACUUM (FULL) of the tables, which locks them")
    file = context.store.inbox_file
    writers = [context.store.writer]
    if file is not None and file.is_there():
        writers.append(file.writer)
    for writer in writers:
        await writer.rewrite()
        await writer.checkpoint()


async def back_up(
    url: str, target: Path, *, environment: str | None, replace: bool, progress: Progress
) -> Contents:
    """Copy the database at `url` to `target`, which exists afterwards whole or not at all.

    Raises UsageError where `target` exists and may not be replaced, or is the database itself;
    ConfigurationError where the database is of another environment.
    """
    source = file_of(url, instead=_POSTGRESQL)
    _check_target(source, target, replace=replace)

    def work(watched: Progress) -> Contents:
        with copied(source, target, progress=watched) as (part, contents):
            if environment not in (None, contents.environment):
                raise ConfigurationError(
                    [f"TALLYHOOK_ENVIRONMENT: this database belongs to {contents.environment}"]
                )
            put_in_place(part, target)
        return contents

    return await in_thread(work, progress)


def file_of(url: str, *, instead: str) -> Path:
    """The database's file. Raises UsageError, with what to use instead, for PostgreSQL."""
    if not is_sqlite(url):
        raise UsageError(instead)
    return sqlite_path(url)


def _check_target(source: Path, target: Path, *, replace: bool) -> None:
    if not source.exists():
        raise StoreUnavailable(f"there is no database at {source} yet; `tallyhook serve` makes it")
    if target.absolute() in [Path(f"{source.absolute()}{name}") for name in _OURS] or (
        target.exists() and target.samefile(source)
    ):
        raise UsageError(f"{target} belongs to the database itself; name another file")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}; make it first")
    if target.is_dir() or (target.exists() and not replace):
        raise UsageError(f"{target} exists; name another file, or say --force to replace it")


async def in_thread(work: Callable[[Progress], Result], progress: Progress) -> Result:
    """Run blocking work; when we are told to end, so is it, at its next step."""
    ended = False

    def watched(done: int, total: int) -> None:
        if ended:
            raise UsageError("stopped before the copy was complete; nothing was changed")
        progress(done, total)

    try:
        return await asyncio.to_thread(work, watched)
    finally:
        ended = True
