"""What one matching reads: three streams in key order, and what goes with them, on one snapshot.

One stream are the ledger lines of all orders, as of now or as of an instant that has passed. As of
now they come from a cache that is brought up to date first: only orders of which something was said
since, or whose time has come, are folded again. As of the past every order is folded, and the
ledger lines wait in a scratch database until they are all there and can be read in key order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, cast

from app.context.context import AppContext
from app.core.errors import UsageError
from app.database.engine import Connection, scratch_database
from app.finance import (
    bank_store,
    book_line_store,
    break_store,
    ledger_line_store,
    matching_store,
    statement_store,
)
from app.orders import history_store
from app.orders.refold import fold_or_log
from app.receiving import due_store
from reconcile.instants import Instant
from reconcile.ledger.history import History
from reconcile.matching.bank import BankLeg, BankLine, Payout
from reconcile.matching.ledger_lines import ledger_line_of
from reconcile.matching.match import Decision, Matching
from reconcile.matching.period import Period, joined_dates, within
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, ledger_line_row
from reconcile.matching.rules import Coverage, HandMatch, MatchRules, Terms
from reconcile.matching.tally import Group

# --- ledger lines ---------------------------------------------------------------------------------

FEW: Final = 2_000
"""Orders that a run folds by itself, in its own snapshot: what arrived while it prepared."""

ROUNDS: Final = 5
"""Rounds of preparation at most; under a flood of deliveries a run folds more by itself."""


async def refresh_ledger_lines(context: AppContext, *, progress: Callable[[int], None]) -> int:
    """Fold orders whose ledger lines are missing or behind, and store them. Returns how many."""
    total = 0
    for _ in range(ROUNDS):
        folded = await _refresh_once(context, progress)
        total += folded
        if folded <= FEW:
            break
    return total


async def _refresh_once(context: AppContext, progress: Callable[[int], None]) -> int:
    now, total = context.clock.now(), 0
    async with context.database.reading() as connection:
        async for stale in ledger_line_store.stale_orders(connection, now=now):
            fresh = await _made_anew(context, connection, stale, now=now)
            async with context.database.writing() as writer:
                await ledger_line_store.store_ledger_lines(writer, fresh)
            total += len(stale)
            progress(len(stale))
    return total


async def is_behind(connection: Connection, order: str) -> bool:
    """Whether evidence has come of the order, or of one that shares evidence with it, since its
    ledger line was stored: the next run folds them together."""
    sharing = await history_store.contested_with(connection, [order]) | {order}
    stored = {
        row[1]: row[11]
        for row in (await ledger_line_store.stored_ledger_lines(connection, list(sharing))).values()
    }
    marks = await due_store.marks_of(connection, sharing)
    return any(stored.get(mark.order) != mark.generation for mark in marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What of the cache is stale in a snapshot, made anew.

    orders  whose cached ledger lines do not count
    rows    their ledger lines as the matcher reads them, in key order; none where no evidence is
            left
    """

    orders: frozenset[str] = frozenset()
    rows: tuple[TakingRow, ...] = ()


async def overlay_of(context: AppContext, connection: Connection, *, now: Instant) -> Overlay:
    """What arrived since the cache was brought up to date, and whose time has come since."""
    fresh: dict[str, ledger_line_store.Fresh] = {}
    async for stale in ledger_line_store.stale_orders(connection, now=now):
        for each in await _made_anew(context, connection, stale, now=now):
            fresh[each.order] = each
    made = [ledger_line_row(replace(f.taking, as_of=now)) for f in fresh.values() if f.taking]
    return Overlay(orders=frozenset(fresh), rows=tuple(sorted(made, key=lambda row: row[:2])))


async def _made_anew(
    context: AppContext, connection: Connection, stale: Sequence[tuple[str, int]], *, now: Instant
) -> list[ledger_line_store.Fresh]:
    """Ledger lines of these orders, and of those that share evidence with them."""
    generations = dict(stale)
    sharing = await history_store.contested_with(connection, generations) - generations.keys()
    generations |= {m.order: m.generation for m in await due_store.marks_of(connection, sharing)}
    histories = await history_store.gather(connection, generations)
    return [
        _fresh(context, history, generation=generations[order], now=now)
        for order, history in histories.items()
    ]


def _fresh(
    context: AppContext, history: History, *, generation: int, now: Instant
) -> ledger_line_store.Fresh:
    ledger = fold_or_log(history, policy=context.policy, as_of=history.instant_at(now))
    if ledger is None:
        return ledger_line_store.Fresh(
            order=history.order, generation=generation, until=now, taking=None
        )
    return ledger_line_store.Fresh(
        order=history.order,
        generation=generation,
        until=ledger.next_decision_at,
        taking=ledger_line_of(ledger),
    )


async def ledger_lines_now(
    connection: Connection,
    overlay: Overlay,
    *,
    as_of: Instant,
    within: ledger_line_store.KeyRange = ledger_line_store.EVERYTHING,
) -> AsyncIterator[list[TakingRow]]:
    """The cached ledger lines in key order, in the form of `flat_ledger_lines`, with what is stale
    among them replaced."""
    stale, waiting = overlay.orders, deque(row for row in overlay.rows if row.key in within)
    async for batch in ledger_line_store.flat_ledger_lines(connection, as_of=as_of, within=within):
        if stale:
            batch = [row for row in batch if row[1] not in stale]
        last = batch[-1][0] if batch else ""
        if waiting and waiting[0].key <= last:
            while waiting and waiting[0].key <= last:
                batch.append(waiting.popleft())
            batch.sort(key=itemgetter(0))
        yield batch
    yield list(waiting)


@asynccontextmanager
async def ledger_lines_then(
    context: AppContext, *, as_of: Instant, progress: Callable[[int], None]
) -> AsyncIterator[Connection]:
    """A scratch database with the ledger lines of all orders as they could have been known then."""
    async with scratch_database() as scratch:
        async with context.database.reading() as connection:
            async for histories in history_store.scan(connection):
                fresh = [_then(context, history, as_of) for history in histories]
                await ledger_line_store.store_ledger_lines(scratch, fresh)
                progress(len(fresh))
        yield scratch


def _then(context: AppContext, history: History, as_of: Instant) -> ledger_line_store.Fresh:
    ledger = fold_or_log(history, policy=context.policy, as_of=as_of)
    found = None if ledger is None else ledger_line_of(ledger)
    return ledger_line_store.Fresh(order=history.order, generation=0, until=None, taking=found)


# --- all that one matching reads ------------------------------------------------------------------

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What matching needs to know beside its rows; it can be pickled.

    as_of    of which instant it is
    period   None: of all time
    overlay  what of the cached ledger lines is stale
    joined   the dates of what belongs to one period with other orders; none without a period
    """

    as_of: Instant
    rules: MatchRules
    period: Period | None
    coverage: Coverage
    hands: tuple[HandMatch, ...]
    overlay: Overlay
    joined: Mapping[str, Instant]

    def terms(self) -> Terms:
        """What its matching goes by."""
        return Terms(rules=self.rules, as_of=self.as_of, coverage=self.coverage, hands=self.hands)

    def matching(self) -> Matching:
        """A matching that has seen nothing yet."""
        return Matching(
            rules=self.rules, as_of=self.as_of, coverage=self.coverage, hands=self.hands
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where the rows are: all on one snapshot. Ledger lines of the past have their own database.

    What it gives is read by code that `in_step` runs.
    """

    connection: Connection
    takings: Connection

    async def bank(self, known: Known) -> BankLeg | None:
        """Payouts against the bank. Raises as `bank_leg`."""
        return await bank_leg(
            self.connection, as_of=known.as_of, rules=known.rules, hands=known.hands
        )

    def merged(
        self,
        matching: Matching,
        known: Known,
        *,
        progress: Progress,
        keys: ledger_line_store.KeyRange = ledger_line_store.EVERYTHING,
        elsewhere: set[str] | None = None,
        outside: Callable[[Group], None] | None = None,
    ) -> Iterator[Decision]:
        """The first look of a matching, at a range of keys. elsewhere, outside: as of `within`."""
        at, first, beyond = known.as_of, keys.first, keys.beyond
        cached = ledger_lines_now(self.takings, known.overlay, as_of=at, within=keys)
        lines = book_line_store.book_rows(self.connection, as_of=at, first=first, beyond=beyond)
        stated = statement_store.statement_rows(
            self.connection, as_of=at, first=first, beyond=beyond
        )
        takings = matching_store.rows_of(cached, progress)
        # Bare tuples are enough for the matcher (`reconcile.matching.rows`).
        book = cast(Iterator[BookRow], matching_store.rows_of(lines, progress))
        statements = cast(Iterator[StatementRow], matching_store.rows_of(stated, progress))
        if known.period is not None:
            takings, book, statements = within(
                known.period,
                takings=(TakingRow(*row) for row in takings),
                book=map(BookRow._make, book),
                statements=map(StatementRow._make, statements),
                joined=known.joined,
                elsewhere=elsewhere,
                outside=outside,
            )
        return matching.by_key(takings=takings, book=book, statements=statements)


@asynccontextmanager
async def snapshot_of(
    context: AppContext, as_of: Instant | None, progress: Progress
) -> AsyncIterator[Snapshot]:
    """Everything as it is, or as it could have been known: then every order is folded for it."""
    async with AsyncExitStack() as stack:
        past = None
        if as_of is not None:
            folding = ledger_lines_then(context, as_of=as_of, progress=progress)
            past = await stack.enter_async_context(folding)
        connection = await stack.enter_async_context(context.database.reading())
        yield Snapshot(connection=connection, takings=past or connection)


# --- the bank, which lies in memory ---------------------------------------------------------------


MOST: Final = 1_000_000
"""Payouts, and bank lines, that are matched: half a kilobyte each, all in memory. They are
transfers; a shop that has more of them has payments in the column of payouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankSides:
    """What is matched with each other: payouts of statements, and what the bank booked."""

    payouts: list[Payout]
    lines: list[BankLine]


async def bank_sides(connection: Connection, *, as_of: Instant) -> BankSides | None:
    """Both sides as of an instant; None where no file of a bank was imported by then: what it
    has is unknown. Raises UsageError for more payouts or lines than MOST."""
    if not await bank_store.any_bank_line(connection, as_of=as_of):
        return None
    lines: list[BankLine] = []
    async for rows in bank_store.bank_lines(connection, as_of=as_of):
        lines += map(bank_store.bank_line_of, rows)
        _bounded(len(lines), "bank lines")
    paid = await bank_store.payouts(connection, as_of=as_of)
    _bounded(len(paid), "payouts")
    return BankSides(payouts=paid, lines=lines)


def leg_of(
    sides: BankSides, *, as_of: Instant, rules: MatchRules, hands: tuple[HandMatch, ...]
) -> BankLeg:
    """Both sides matched, which takes a processor's time and no connection. Raises UsageError for
    sums that do not fit in 64 bits."""
    try:
        return BankLeg(
            payouts=sides.payouts, lines=sides.lines, rules=rules, as_of=as_of, hands=hands
        )
    except ValueError as error:
        raise UsageError(f"{error}: correct them in their file, and import it again") from None


async def bank_leg(
    connection: Connection,
    *,
    as_of: Instant,
    rules: MatchRules,
    hands: tuple[HandMatch, ...],
) -> BankLeg | None:
    """Payouts against the bank as of an instant. None and errors as of `bank_sides` and
    `leg_of`."""
    sides = await bank_sides(connection, as_of=as_of)
    return None if sides is None else leg_of(sides, as_of=as_of, rules=rules, hands=hands)


def _bounded(count: int, what: str) -> None:
    if count > MOST:
        raise UsageError(
            f"there are more than {MOST:,} {what}: check which column of the statement's mapping "
            "is the payout"
        )


# --- what goes with them -------------------------------------------------------------------------


async def rows_ahead(context: AppContext, *, as_of: Instant | None) -> int:
    """About how many rows a matching will fold and read, for a progress bar."""
    async with context.database.reading() as connection:
        orders, lines = await matching_store.rows_to_read(connection)
        folded = orders
        if as_of is None:
            folded = await ledger_line_store.count_stale(connection, now=context.clock.now())
    return folded + orders + lines


async def known_in(
    context: AppContext,
    snapshot: Snapshot,
    *,
    as_of: Instant | None,
    rules: MatchRules,
    period: Period | None,
    ahead: matching_store.ImportedDates | None = None,
) -> Known:
    """What goes with a snapshot. ahead: dates that were read before it was taken."""
    connection, at = snapshot.connection, context.clock.now() if as_of is None else as_of
    overlay = Overlay()
    if as_of is None:
        overlay = await overlay_of(context, connection, now=at)
    known = Known(
        as_of=at,
        rules=rules,
        period=period,
        coverage=await matching_store.coverage(connection, as_of=at, ahead=ahead),
        hands=tuple(await break_store.hand_matches(connection, as_of=at)),
        overlay=overlay,
        joined={},
    )
    return known if period is None else replace(known, joined=await _joined(snapshot, known))


async def _joined(snapshot: Snapshot, known: Known) -> dict[str, Instant]:
    """The dates of what a group, a decision or a payment joins."""
    lines = await matching_store.joined_lines(snapshot.connection, known.hands, as_of=known.as_of)
    stale = known.overlay.orders
    takings = await ledger_line_store.ledger_lines_of_keys(
        snapshot.takings, lines.keys, as_of=known.as_of
    )
    takings = [row for row in takings if row.order not in stale]
    takings += [row for row in known.overlay.rows if row.key in lines.keys]
    return joined_dates(
        takings=takings,
        book=lines.book,
        statements=lines.statements,
        hands=known.hands,
        settles=known.terms().settles,
    )
