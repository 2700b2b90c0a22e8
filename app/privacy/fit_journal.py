"""Compare the journal of erasures with a database's copy, and record pending lines."""

from collections.abc import Sequence
from pathlib import Path

from app.context.context import AppContext
from app.core.errors import ConfigurationError
from app.core.logs import log
from app.database.engine import Connection
from app.database.statements import run
from app.privacy import erase_store, erasure_journal
from app.receiving.journal_state import WAITS, JournalState
from app.receiving.restriction_store import pending_lines, restriction_totals
from reconcile.instants import Instant


async def begin_journal(context: AppContext) -> None:
    """Create a missing journal of erasures. Raise ConfigurationError or UnreachableError on
    failure."""
    path = context.settings.erasure_journal_path
    if path is None:
        return
    async with context.database.reading() as connection:
        if await erase_store.journal_name(connection) is not None:
            return
    journal = erasure_journal.make_journal(path, at=context.clock.now())
    # Even with little disk space: the start continues in that case.
    async with context.database.writer.transaction() as connection:
        await erase_store.note_journal(connection, journal.name)


async def fitting_journal(context: AppContext) -> erasure_journal.ErasureJournal:
    """Return this database's journal. Raise ConfigurationError if missing or foreign."""
    if context.settings.erasure_journal_path is None:
        raise erasure_journal.journal_problem(
            "is not set, and nothing is erased without a journal; on PostgreSQL, name a file on "
            "a disk that is not replaced when the database is restored"
        )
    await begin_journal(context)
    return await fitted(context, context.settings.erasure_journal_path)


async def fitted(context: AppContext, path: Path) -> erasure_journal.ErasureJournal:
    """Return the journal at a path. Raise ConfigurationError if missing or foreign."""
    journal = erasure_journal.read_journal(path)
    if journal is None:
        raise erasure_journal.journal_problem(
            f"there is no journal of erasures at {path}; copy the journal and its key "
            f"({erasure_journal.key_path_of(path).name}) back to their places"
        )
    async with context.database.reading() as connection:
        name = await erase_store.journal_name(connection)
        copy = await erase_store.known_lines(connection)
    if name not in (None, journal.name):
        raise erasure_journal.journal_problem(
            f"{path} is another database's journal of erasures; put this database's journal back"
        )
    if copy != [line.text for line in journal.lines[: len(copy)]]:
        raise erasure_journal.journal_problem(
            f"{path} is an old copy of the journal: it lacks erasures that were carried out in "
            "this database; put the newest copy back"
        )
    return journal


async def journal_state(context: AppContext) -> JournalState:
    """Return the state of the journal of erasures, without changing anything."""
    path = context.settings.erasure_journal_path
    async with context.database.reading() as connection:
        begun = await erase_store.journal_name(connection) is not None
        known = len(await erase_store.known_lines(connection))
        waiting = await run(connection, pending_lines)
        restricted, next_end, _ = await run(connection, restriction_totals)
    if path is None:
        without = "is not set, but this database uses a journal of erasures; name its file"
        return JournalState(path=None, begun=begun, problem=without if begun else None)
    try:
        if not begun and erasure_journal.read_journal(path) is None:
            return JournalState(path=path, begun=False)
        journal = await fitted(context, path)
    except ConfigurationError as error:
        return JournalState(path=path, begun=begun, problem=sentence_of(error))
    strange = len(journal.lines) - max(known, 1)
    reasons = {each.why for each in waiting} | ({""} if strange else set())
    return JournalState(
        path=path,
        begun=begun,
        pending=strange + len(waiting),
        waits=[WAITS[each] for each in sorted(reasons)],
        torn=journal.torn,
        restricted=restricted,
        next_end=next_end,
    )


async def is_pending(context: AppContext, *, order: str | None) -> bool:
    """Return whether an order has an unfinished erasure; None means any."""
    path = context.settings.erasure_journal_path
    async with context.database.reading() as connection:
        begun = await erase_store.journal_name(connection) is not None
        known = len(await erase_store.known_lines(connection))
        numbers = {each.number for each in await run(connection, pending_lines)}
    if path is None or not begun:
        return False
    journal = await fitted(context, path)
    digest = None if order is None else journal.key.digest("orders", order)
    instants = {
        each.at
        for each in journal.lines
        if digest is None or (each.kind == "orders" and digest in each.ids)
    }
    return any(
        each.at in instants and (each.number >= known or each.number in numbers)
        for each in journal.erased
    )


async def take_up_begun(context: AppContext) -> None:
    """Store, as pending, the journal's lines that the database lacks after a crash."""
    path = context.settings.erasure_journal_path
    async with context.database.reading() as connection:
        begun = await erase_store.journal_name(connection) is not None
    if begun and path is not None:
        try:
            await take_up(context, await fitted(context, path))
        except ConfigurationError as error:
            log.warning("the journal of erasures cannot be used", problem=sentence_of(error))


async def take_up(
    context: AppContext, journal: erasure_journal.ErasureJournal
) -> Sequence[erasure_journal.JournalLine]:
    """Store, as pending, the journal's lines that the database lacks. Return all pending lines."""
    async with context.database.writing() as connection:
        await note_lines(connection, journal, since=context.clock.now())
        numbers = {each.number for each in await run(connection, pending_lines)}
    return [line for line in journal.lines if line.number in numbers]


async def note_lines(
    connection: Connection, journal: erasure_journal.ErasureJournal, *, since: Instant
) -> None:
    """Store, as pending, the journal's lines that the database lacks."""
    known = len(await erase_store.known_lines(connection))
    new = journal.lines[known:]
    await erase_store.note_lines(connection, journal.name, [(e.number, e.text) for e in new])
    await erase_store.note_pending(connection, [e.number for e in new if e.number], since=since)


def sentence_of(error: ConfigurationError) -> str:
    """Return the text of an error about the journal, without the setting's name."""
    return error.problems[0].partition(": ")[2]
