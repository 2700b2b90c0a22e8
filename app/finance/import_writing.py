"""Steps 5 and 6 of an import: what was staged becomes lines, and all of them are seen at once.

No transaction is long, so that a service which writes beside it is not held up. Only one import is
under way at a time; a later one that finds it silent takes it for killed, and undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import anyio

from app.access.operator_store import Operator
from app.access.operators import note_deed
from app.core.errors import StoreUnavailable
from app.database.engine import Connection
from app.finance.import_kinds import BOOK, STATEMENT, Imported, Progress, Wanted
from app.finance.import_store import (
    Import,
    begin_import,
    go_on,
    publish_import,
    stretches,
    under_way,
    undo_stretch,
)
from app.finance.staging_store import Staged
from app.receiving.context import Desk
from app.receiving.pace import Pace

FIRST_ROWS, MOST_ROWS = 500, 4_000
"""Rows in the first transaction, and in any."""

SILENT_S: Final = 5.0
"""An import that writes nothing for so long was killed."""

Rows = list[tuple[Any, ...]]


def chunks(staged: Staged, pace: Pace) -> Iterator[Rows]:
    """Rows in order, without their numbers, as many at a time as fit in a transaction then; rows
    of one key or subject are not parted."""
    held: Rows = []
    for rows in staged.in_order():
        held += [row[1:] for row in rows]
        while end := _end(held, pace.size):
            yield held[:end]
            held = held[end:]
    while held:
        end = _end(held, pace.size) or len(held)
        yield held[:end]
        held = held[end:]


def _end(rows: Rows, size: int) -> int:
    """Where to part rows of which a first part may have this size; 0: not before more is read."""
    if len(rows) <= size:
        return 0
    ends = chain(range(size, 0, -1), range(size + 1, len(rows)))
    return next((end for end in ends if rows[end - 1][0] != rows[end][0]), 0)


async def write_and_publish(
    desk: Desk,
    wanted: Wanted,
    staged: Staged,
    done: Imported,
    *,
    who: Operator,
    progress: Progress,
) -> None:
    """Write what was staged, and complete `done`. Raises StoreUnavailable as the store does, and
    where another import took this one for killed."""
    await _wait_for_others(desk)
    begun = await _begin(desk, wanted, done, who)
    written, pace = 0, Pace(first=FIRST_ROWS, most=MOST_ROWS)
    for rows in chunks(staged, pace):
        async with pace.writing(desk.store, pieces=len(rows)) as connection:
            written += len(rows)
            await _still_ours(connection, begun, written)
            done.count(await wanted.kind.write(connection, rows, number=begun.number))
        progress(written, done.read - done.rejected)
    async with desk.store.writing() as connection:
        await _still_ours(connection, begun, written)
        await _publish(connection, replace(begun, **_counts(done)), desk=desk, who=who)
    done.number = begun.number


async def _wait_for_others(desk: Desk) -> None:
    """Until no import is under way, or the one that is has been silent for long."""
    before = await _under_way(desk)
    while before is not None:
        await anyio.sleep(SILENT_S)
        now = await _under_way(desk)
        if now == before:
            return
        before = now


async def _under_way(desk: Desk) -> Import | None:
    async with desk.store.reading() as connection:
        return await under_way(connection)


async def _begin(desk: Desk, wanted: Wanted, done: Imported, who: Operator) -> Import:
    new = Import(
        kind=wanted.kind.name,
        file=done.file,
        sha256=done.sha256,
        who=who.name,
        started_at=desk.clock.now(),
    )
    async with desk.store.writing() as connection:
        begun, another = await begin_import(connection, new)
    if another:
        await _undo(desk, begun)
    return begun


async def _undo(desk: Desk, begun: Import) -> None:
    """Take back what a killed import wrote. It may have been of either kind: whoever is killed
    while undoing leaves no word of what was to be undone."""
    looked = 0
    for kind in (BOOK.name, STATEMENT.name):
        async with desk.store.reading() as connection:
            ends = [end async for end in stretches(connection, kind)]
        after: str | None = None
        for end in ends:
            async with desk.store.writing() as connection:
                looked -= 1
                await _still_ours(connection, begun, looked)
                await undo_stretch(connection, kind, after=after, to=end)
            after = end


async def _still_ours(connection: Connection, begun: Import, written: int) -> None:
    if not await go_on(connection, begun, written=written):
        raise StoreUnavailable(
            "another import began, for this one had been silent for long; nothing was imported: "
            "import the file again"
        )


def _counts(done: Imported) -> dict[str, Any]:
    names = ("read", "new", "changed", "unchanged", "rejected")
    return {name: getattr(done, name) for name in names}


async def _publish(connection: Connection, done: Import, *, desk: Desk, who: Operator) -> None:
    at = await publish_import(connection, done, now=desk.clock.now())
    counts = {name: getattr(done, name) for name in ("read", "new", "changed", "rejected")}
    await note_deed(
        connection,
        who,
        action=(BOOK if done.kind == BOOK.name else STATEMENT).action,
        subject=done.file,
        at=at,
        facts={"import": done.number, "sha256": done.sha256, **counts},
    )
