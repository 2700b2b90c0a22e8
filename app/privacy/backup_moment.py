"""When the database was last backed up, for whoever watches that it is.

It is one of the counters, and in the database itself: a database that was put back says when the
backup before its own was made.
"""

from typing import Final

from app.context.context import AppContext
from app.database.engine import Connection
from app.database.statements import run
from app.receiving.inbox_store import counter, put_counter
from reconcile.instants import Instant

LAST_BACKUP: Final = "last backup"
"""The counter, in microseconds of Unix time. What `pg_dump` is run by writes it, too: see
deploy/compose/compose.yaml."""


async def note_backup(context: AppContext, *, at: Instant) -> None:
    """Note that a backup is complete of what was there at a moment."""
    await context.database.writer.commit(put_counter, LAST_BACKUP, at)


async def last_backup(connection: Connection) -> Instant | None:
    """Of when the last backup is that was noted; None where none was."""
    noted = await run(connection, counter, LAST_BACKUP)
    return Instant(noted) if noted else None
