"""What one matching reads: three streams in key order, and what goes with them, on one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, cast

from app.core.errors import UsageError
from app.database.engine import Connection
from app.finance.bank_store import any_bank_line, bank_line_of, bank_lines, payouts
from app.finance.book_line_store import book_rows
from app.finance.break_store import hand_matches
from app.finance.joined_store import joined_lines
from app.finance.ledger_line_store import EVERYTHING, KeyRange, count_stale, ledger_lines_of_keys
from app.finance.ledger_lines import Overlay, ledger_lines_now, ledger_lines_then, overlay_of
from app.finance.matching_store import ImportedDates, coverage, rows_of, rows_to_read
from app.finance.statement_store import statement_rows
from app.receiving.context import AppContext
from reconcile.instants import Instant
from reconcile.matching.bank import BankLeg, BankLine, Payout
from reconcile.matching.joined import joined_dates
from reconcile.matching.match import Decision, Matching
from reconcile.matching.period import Period, within
from reconcile.matching.rows import BookRow, LedgerLineRow, StatementRow
from reconcile.matching.rules import Coverage, HandMatch, MatchRules, Terms
from reconcile.matching.tally import Group

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
        keys: KeyRange = EVERYTHING,
        elsewhere: set[str] | None = None,
        outside: Callable[[Group], None] | None = None,
    ) -> Iterator[Decision]:
        """The first look of a matching, at a range of keys. elsewhere, outside: as of `within`."""
        at, first, beyond = known.as_of, keys.first, keys.beyond
        cached = ledger_lines_now(self.takings, known.overlay, as_of=at, within=keys)
        lines = book_rows(self.connection, as_of=at, first=first, beyond=beyond)
        told = statement_rows(self.connection, as_of=at, first=first, beyond=beyond)
        takings = rows_of(cached, progress)
        # Bare tuples are enough for the matcher (`reconcile.matching.rows`).
        book = cast(Iterator[BookRow], rows_of(lines, progress))
        statements = cast(Iterator[StatementRow], rows_of(told, progress))
        if known.period is not None:
            takings, book, statements = within(
                known.period,
                takings=(LedgerLineRow(*row) for row in takings),
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
        connection = await stack.enter_async_context(context.store.reading())
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
    """Both sides as of an instant; None where no file of a bank was imported by then: nobody says
    what it has. Raises UsageError for more payouts or lines than MOST."""
    if not await any_bank_line(connection, as_of=as_of):
        return None
    lines: list[BankLine] = []
    async for rows in bank_lines(connection, as_of=as_of):
        lines += map(bank_line_of, rows)
        _bounded(len(lines), "bank lines")
    paid = await payouts(connection, as_of=as_of)
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
    async with context.store.reading() as connection:
        orders, lines = await rows_to_read(connection)
        folded = orders
        if as_of is None:
            folded = await count_stale(connection, now=context.clock.now())
    return folded + orders + lines


async def known_in(
    context: AppContext,
    snapshot: Snapshot,
    *,
    as_of: Instant | None,
    rules: MatchRules,
    period: Period | None,
    ahead: ImportedDates | None = None,
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
        coverage=await coverage(connection, as_of=at, ahead=ahead),
        hands=tuple(await hand_matches(connection, as_of=at)),
        overlay=overlay,
        joined={},
    )
    return known if period is None else replace(known, joined=await _joined(snapshot, known))


async def _joined(snapshot: Snapshot, known: Known) -> dict[str, Instant]:
    """The dates of what a group, a decision or a payment joins."""
    lines = await joined_lines(snapshot.connection, known.hands, as_of=known.as_of)
    stale = known.overlay.orders
    takings = await ledger_lines_of_keys(snapshot.takings, lines.keys, as_of=known.as_of)
    takings = [row for row in takings if row.order not in stale]
    takings += [row for row in known.overlay.rows if row.key in lines.keys]
    return joined_dates(
        takings=takings,
        book=lines.book,
        statements=lines.statements,
        hands=known.hands,
        settles=known.terms().settles,
    )
