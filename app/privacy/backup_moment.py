"""The time of the last backup, for alarms about it.

It is a counter in the database itself. So a restored database states when the backup before its own
was made.
"""

from pathlib import Path
from typing import Final

from app.access.operators import note_in_trail, owner
from app.context.context import AppContext
from app.core.masking import masked_at_sight
from app.database.engine import Connection
from app.database.statements import run
from app.receiving.inbox_store import counter, put_counter
from reconcile.instants import Instant

LAST_BACKUP: Final = "last backup"
"""Name of the counter, in microseconds of Unix time. The script that runs `pg_dump` writes it, too:
see deploy/compose/compose.yaml."""


async def note_backup(context: AppContext, *, at: Instant, file: Path) -> None:
    """Record the moment of a complete backup of the database, in the trail too. An erasure lists
    each recorded backup that it does not reach."""
    async with context.database.writing() as connection:
        await run(connection, put_counter, LAST_BACKUP, at)
        await note_in_trail(
            connection,
            owner(),
            action="backed_up",
            subject="database",
            at=at,
            facts={"file": shown_name(file)},
        )


def shown_name(file: Path) -> str:
    """Return a file's name for the trail, without its folder and with numbers masked."""
    return masked_at_sight(file.stem) + file.suffix


async def last_backup(connection: Connection) -> Instant | None:
    """Return the moment of the last noted backup; None if there is none."""
    noted = await run(connection, counter, LAST_BACKUP)
    return Instant(noted) if noted else None
