"""Tasks of the watched import folder: files that a person must look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import column, delete, insert, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTask:
    """A file that was not imported.

    folder   the folder in the import folder; empty: the import folder itself
    problem  why, and what to do, one sentence
    since    when that was first found
    """

    folder: str
    file: str
    problem: str
    since: Instant


_COLUMNS: Final = tuple(ImportTask.__dataclass_fields__)
_TASKS: Final = table("import_tasks", *map(column, _COLUMNS))


async def import_tasks(connection: AsyncConnection) -> list[ImportTask]:
    """Return all tasks, by folder and file; at most as many as the folder's look keeps."""
    rows = await connection.execute(select(_TASKS).order_by(_TASKS.c.folder, _TASKS.c.file))
    return [ImportTask(**row._mapping) for row in rows]


async def replace_import_tasks(connection: AsyncConnection, tasks: Sequence[ImportTask]) -> None:
    """Store these tasks in place of all others."""
    await connection.execute(delete(_TASKS))
    if tasks:
        values = [{name: getattr(each, name) for name in _COLUMNS} for each in tasks]
        await connection.execute(insert(_TASKS).values(values))
