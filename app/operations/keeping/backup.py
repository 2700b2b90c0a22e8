"""Backs up the database while it is served, and puts a backup back in its place.

SQLite only: PostgreSQL's own tools do this for PostgreSQL, and a command of ours would be a worse
one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from app.clock import Clock
from app.errors import ConfigurationError, NotFoundError, StoreUnavailable, UsageError
from app.operations.desk import Desk
from app.store.database.engine import is_sqlite, sqlite_path
from app.store.keeping.backup import Contents, Progress, copied, put_in_place
from app.store.keeping.restore import Restored, alone, put_back
from reconcile.instants import SECOND

Result = TypeVar("Result")

_POSTGRESQL: Final = {
    "backup": "this database is PostgreSQL's: use `pg_dump --format=custom`, or `pg_basebackup` "
    "and an archive of its log to return to any moment",
    "restore": "this database is PostgreSQL's: use `pg_restore`, or start from a base backup and "
    "the archived log; then `tallyhook db check`",
}

_OURS: Final = ("", "-wal", "-shm", "-journal", ".serving", ".writing")
"""The files of a database: no backup may take their place."""


async def rewrite(desk: Desk) -> None:
    """Write an SQLite database anew: only what it says is in it then. Raises UsageError for
    PostgreSQL."""
    if desk.store.shared:
        raise UsageError("PostgreSQL has its own: VACUUM (FULL) of the tables, which locks them")
    await desk.store.writer.rewrite()
    await desk.store.writer.checkpoint()


async def back_up(
    url: str, target: Path, *, environment: str | None, replace: bool, progress: Progress
) -> Contents:
    """Copy the database at `url` to `target`, which exists afterwards whole or not at all.

    Raises UsageError where `target` exists and may not be replaced, or is the database itself;
    ConfigurationError where the database is of another environment.
    """
    source = _file(url, "backup")
    _check_target(source, target, replace=replace)

    def work(watched: Progress) -> Contents:
        with copied(source, target, progress=watched) as (part, contents):
            if environment not in (None, contents.environment):
                raise ConfigurationError(
                    [f"TALLYHOOK_ENVIRONMENT: this database belongs to {contents.environment}"]
                )
            put_in_place(part, target)
        return contents

    return await _in_thread(work, progress)


async def restore(
    url: str,
    backup: Path,
    *,
    environment: str | None,
    replace: bool,
    clock: Clock,
    progress: Progress,
) -> Restored:
    """Put `backup` in the place of the database at `url`; the one that was there is kept beside it.

    Raises ConfigurationError while a service runs, NotFoundError where there is no such backup, and
    where there is a database that may not be replaced.
    """
    database = _file(url, "restore")
    _check_backup(database, backup, replace=replace)
    async with alone(database):
        keep_as = f"{database.name}.replaced-{clock.now() // SECOND}"
        return await _in_thread(
            lambda watched: put_back(
                backup, database, environment=environment, keep_as=keep_as, progress=watched
            ),
            progress,
        )


def _file(url: str, command: str) -> Path:
    if not is_sqlite(url):
        raise UsageError(_POSTGRESQL[command])
    return sqlite_path(url)


def _check_backup(database: Path, backup: Path, *, replace: bool) -> None:
    if not backup.is_file():
        raise NotFoundError(f"there is no backup {backup}")
    if database.exists() and backup.samefile(database):
        raise UsageError(f"{backup} is the database itself; name a backup")
    if database.exists() and not replace:
        raise UsageError(
            f"{database} exists; say --force to put the backup in its place and keep it aside"
        )


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


async def _in_thread(work: Callable[[Progress], Result], progress: Progress) -> Result:
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
