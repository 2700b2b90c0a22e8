"""Write an import: staged rows in many transactions, which become visible all at once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

import anyio

from app.access import operator_store
from app.access.operators import Action, note_in_trail
from app.context.context import AppContext
from app.core.errors import StoreUnavailable, UsageError
from app.database.engine import Connection
from app.finance import (
    bank_enrichment,
    bank_store,
    coverage_store,
    import_store,
    line_version_store,
)
from app.finance.import_digest_store import digests_of
from app.finance.line_version_store import WrittenVersions
from app.finance.staged_rows import Staged, chunks
from app.receiving.pace import Pace
from reconcile.matching.balances import StatementBalances
from reconcile.money import Money

Write = Callable[..., Awaitable[WrittenVersions]]
"""Function (connection, rows, number of the import) that writes lines. Without a number, the
function only counts."""

Progress = Callable[[int, int | None], None]
"""Function called with (rows so far, total rows or None)."""

FIRST_ROWS, MOST_ROWS = 500, 4_000
"""Maximum number of rows in the first and later transactions."""

SILENT_S: Final = 5.0
"""Seconds without a write that mark a killed import."""


async def write_import(
    context: AppContext,
    wanted: import_store.Import,
    staged: Staged,
    *,
    action: Action,
    covers: Sequence[coverage_store.CoverageLine],
    balances: Sequence[StatementBalances] = (),
    who: operator_store.Operator,
    write: Write,
    progress: Progress,
) -> tuple[int, WrittenVersions]:
    """Write and publish staged rows. Raise StoreUnavailable after a failure or takeover, and
    UsageError if another format covers these days."""
    await _wait_for_others(context)
    async with context.database.writing() as connection:
        begun, another = await import_store.begin_import(connection, wanted)
        # No other import is published from here on, unless this one is considered killed.
        if await bank_enrichment.accounts_to_enrich(
            connection, covers, booked_days=lambda name: ()
        ):
            raise UsageError(
                "meanwhile, a file in another format was imported for this account: import your "
                "file again"
            )
    if another:
        await _undo(context, begun)
    counts, written, pace = WrittenVersions(), 0, Pace(first=FIRST_ROWS, most=MOST_ROWS)
    for rows in chunks(staged, pace):
        async with pace.writing(context.database, pieces=len(rows)) as connection:
            written += len(rows)
            await _still_ours(connection, begun, written)
            counts.add(await write(connection, rows, number=begun.number))
        progress(written, begun.read - begun.rejected)
    looked = count(-1, -1)

    async def stay_alive() -> None:
        async with context.database.writing() as connection:
            await _still_ours(connection, begun, next(looked))

    # Outside the last transaction, since it takes seconds.
    async with context.database.reading() as connection:
        digests = await digests_of(connection, begun.kind, number=begun.number, between=stay_alive)
    done = replace(begun, new=counts.new, changed=counts.changed, unchanged=counts.unchanged)
    async with context.database.writing() as connection:
        await _still_ours(connection, begun, written)
        at = await import_store.publish_import(connection, done, now=context.clock.now())
        await coverage_store.add_coverage(
            connection, [replace(each, of_import=done.number, at=at) for each in covers]
        )
        await bank_store.add_balances(connection, balances, of_import=done.number)
        facts: dict[str, str | int] = {
            "import": done.number,
            "sha256": done.sha256,
            "read": done.read,
            "new": done.new,
            "changed": done.changed,
            "rejected": done.rejected,
        }
        if accepted := [each for each in balances if each.proposal]:
            sums = (Money(minor=each.difference, currency=each.currency) for each in accepted)
            facts["accepted_differences"] = ", ".join(map(str, sums))
            facts["proposals"] = ", ".join(each.proposal or "" for each in accepted)
        await note_in_trail(
            connection, who, action=action, subject=done.file, at=at, facts=facts | digests
        )
    return done.number, counts


async def _wait_for_others(context: AppContext) -> None:
    before: import_store.Import | None = None
    while True:
        async with context.database.reading() as connection:
            now = await import_store.under_way(connection)
        if now in (None, before):
            return
        before = now
        await anyio.sleep(SILENT_S)


async def _undo(context: AppContext, begun: import_store.Import) -> None:
    looked = 0
    for kind in line_version_store.LINES:
        async with context.database.reading() as connection:
            ends = [end async for end in line_version_store.key_stretches(connection, kind)]
        after: str | None = None
        for end in ends:
            async with context.database.writing() as connection:
                looked -= 1
                await _still_ours(connection, begun, looked)
                await line_version_store.undo_stretch(connection, kind, after=after, to=end)
            after = end


async def _still_ours(connection: Connection, begun: import_store.Import, written: int) -> None:
    if not await import_store.go_on(connection, begun, written=written):
        raise StoreUnavailable(
            "another import began because this one made no progress for too long; nothing was "
            "imported: import the file again"
        )
