"""Carry out pending erasures: unfinished lines of the journal, and ended restrictions.

1 look     for pending lines, and for restrictions to judge again
2 replay   the lines; a waiting line is tried again (`replay_erasures`)
3 judge    each restriction by the rules of an erasure (`erase_rules`)
4 erase    data that need not stay, after a line in the journal
5 note     the restriction's new end and reason, or its end
"""

from typing import Final

from app.context.context import AppContext
from app.core.clock import CLOCKS_DIFFER, LeapGuard
from app.core.errors import ConfigurationError, StoreUnavailable, UnreachableError
from app.core.jobs import silent
from app.core.logs import log
from app.database.statements import PlainConnection, run
from app.orders.clock_correction_store import newest_ahead
from app.privacy import erase_store
from app.privacy.erase_finding import Erasure, ErasureFinder
from app.privacy.erase_rules import LOOK_AGAIN, next_look
from app.privacy.erasure_journal import ErasureJournal, JournalLine
from app.privacy.fit_journal import fitted, fitting_journal, note_lines
from app.privacy.replay_erasures import ErasureReplay, emptied_by
from app.receiving import due_store, restriction_store
from app.receiving.restriction_store import RestrictionRow
from reconcile.instants import SECOND, Instant

REST_S: Final = 60.0
"""Minimum number of seconds between two rounds."""

IDLE_S: Final = 3_600.0
"""Maximum number of seconds between two rounds."""

AT_ONCE: Final = 100
"""Maximum number of restrictions in one round."""

ENDED: Final = "the data was restricted by an earlier erasure, and the restriction has ended"


class PendingErasures:
    """Periodic task that carries out pending erasures."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._guard = LeapGuard(context.clock)
        self._next: Instant | None = None

    async def work(self) -> int:
        """Carry out due erasures. Return the number of pending lines."""
        context = self._context
        now, path = context.clock.now(), context.settings.erasure_journal_path
        waiting, due, self._next = await context.database.on_snapshot(_look, now)
        pending = {each.number for each in waiting}
        if self._guard.has_leapt() or await self._dated_ahead(now, due):
            due = []  # a wrong clock must not end a period
        if path is None or not (pending or due):
            return 0
        try:
            if pending:
                journal = await fitted(context, path)
                lines = [line for line in journal.lines if line.number in pending]
                await ErasureReplay(context).replay(lines, journal.key)
            if due:
                journal = await fitting_journal(context)
                for row in due:
                    await _judge_again(context, journal, row)
        except StoreUnavailable:
            raise
        except (ConfigurationError, UnreachableError) as error:  # an alarm reports pending lines
            log.error("erasures that are due cannot be carried out now", problem=str(error))
        return len(pending)

    async def _dated_ahead(self, now: Instant, due: list[RestrictionRow]) -> bool:
        if not due:
            return False
        newest = await self._context.database.on_snapshot(newest_ahead, now)
        return newest - now > CLOCKS_DIFFER

    def rest_s(self, pending: int) -> float:
        if pending:
            return REST_S
        if self._next is None:
            return IDLE_S
        return min(max((self._next - self._context.clock.now()) / SECOND, REST_S), IDLE_S)


def _look(
    connection: PlainConnection, now: Instant
) -> tuple[list[restriction_store.PendingLine], list[RestrictionRow], Instant | None]:
    due = restriction_store.due_restrictions(connection, now, limit=AT_ONCE)
    _, _, look_at = restriction_store.restriction_totals(connection)
    return restriction_store.pending_lines(connection), due, look_at


async def _judge_again(context: AppContext, journal: ErasureJournal, row: RestrictionRow) -> None:
    now = context.clock.now()
    try:
        async with context.database.reading() as connection:
            owned = await erase_store.owners(connection, [row.thing] * (row.kind == "delivery"))
            beside = await run(connection, restriction_store.order_beside, row.erasure)
            finder = ErasureFinder(context, silent)
            erasure = await finder.of_restricted(connection, row, beside=beside)
        for order in (each.order for each in owned if each.order is not None):
            async with context.database.writing() as connection:
                await run(connection, _give_to_order, row, order, now)
            return  # the order is judged in the next round
        emptied, _ = emptied_by(erasure, journal.key)
        after = _after(row, erasure, now=now)
        lines: list[JournalLine] = []
        async with context.database.writing() as connection:
            marks = [each.mark for each in erasure.orders]
            if len(await run(connection, due_store.unchanged, marks)) < len(marks):
                emptied, after = {}, row._replace(look_at=Instant(now + LOOK_AGAIN))
            if emptied:
                lines = journal.append(emptied, at=max(now, erasure.latest))
                await note_lines(connection, journal, since=now)
            await run(connection, _note, row, after)
        await ErasureReplay(context, reason=ENDED, subject=row.thing).replay(lines, journal.key)
    except (ConfigurationError, UnreachableError):
        raise
    except Exception as error:
        log.error("the end of a restriction could not be judged", kind=row.kind, exc_info=error)
        async with context.database.writing() as connection:
            await run(connection, _note, row, row._replace(look_at=Instant(now + LOOK_AGAIN)))


def _after(row: RestrictionRow, erasure: Erasure, *, now: Instant) -> RestrictionRow | None:
    for each in erasure.kept:
        if (each.kind, each.what) == (row.kind, row.thing):
            look_at = next_look(now, each.why, each.until)
            return row._replace(until=each.until, why=each.why, look_at=look_at)
    until = erasure.accounts.get(row.thing)
    if row.kind == "bank_line" and row.until is not None and row.until > now:
        until = row.until
    if until is None:
        return None
    return row._replace(until=until, why="accounts", look_at=next_look(now, "accounts", until))


def _give_to_order(
    connection: PlainConnection, row: RestrictionRow, order: str, now: Instant
) -> None:
    restriction_store.end_restriction(connection, row.kind, row.thing)
    owner = row._replace(kind="order", thing=order, until=None, why="changed", look_at=now)
    restriction_store.write_restrictions(connection, [owner])


def _note(
    connection: PlainConnection, before: RestrictionRow, after: RestrictionRow | None
) -> None:
    if after is None:
        restriction_store.end_restriction(connection, before.kind, before.thing)
    else:
        restriction_store.rewrite_restriction(connection, after)
