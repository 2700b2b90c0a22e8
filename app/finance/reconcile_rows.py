"""Provide the inputs of one matching from one snapshot."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final, cast

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.jobs import silent
from app.database.engine import Connection, scratch_database
from app.finance import (
    bank_store,
    book_line_store,
    break_store,
    coverage_store,
    ledger_line_store,
    matching_store,
    statement_store,
)
from app.finance.suspense import suspended_payments
from app.orders import history_store
from app.orders.refold import fold_or_log
from app.receiving import due_store
from app.receiving.phone_store import orders_of_recipients
from reconcile.instants import Instant
from reconcile.matching.bank import BankLeg
from reconcile.matching.books import BankLine, BookLine, Payout, match_key
from reconcile.matching.funds import captures_of
from reconcile.matching.ledger_lines import ledger_line_of
from reconcile.matching.match import Decision, Matching
from reconcile.matching.period import Period, joined_dates, within
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, ledger_line_row
from reconcile.matching.rules import Coverage, HandMatch, MatchRules, Terms
from reconcile.matching.suspense import Suspended, Suspense
from reconcile.matching.tally import Group, KeepingTally
from reconcile.matching.wallets import WalletRow, Wallets

# --- ledger lines ---------------------------------------------------------------------------------

FEW: Final = 2_000
"""Maximum number of orders in the last round of refreshing."""

ROUNDS: Final = 5
"""Maximum number of rounds of refreshing."""


async def refresh_ledger_lines(context: AppContext, *, progress: Callable[[int], None]) -> int:
    """Compute stale ledger lines again. Return the number of orders."""
    total = 0
    for _ in range(ROUNDS):
        now, folded = context.clock.now(), 0
        async with context.database.reading() as connection:
            async for stale in ledger_line_store.stale_orders(connection, now=now):
                fresh = await _made_anew(context, connection, stale, now=now)
                async with context.database.writing() as writer:
                    await ledger_line_store.store_ledger_lines(writer, fresh)
                folded += len(stale)
                progress(len(stale))
        total += folded
        if folded <= FEW:
            break
    return total


async def is_behind(connection: Connection, order: str) -> bool:
    """Check if an order has newer evidence than its ledger line."""
    sharing = await history_store.contested_with(connection, [order]) | {order}
    stored = {
        row[1]: row[11]
        for row in (await ledger_line_store.stored_ledger_lines(connection, list(sharing))).values()
    }
    marks = await due_store.marks_of(connection, sharing)
    return any(stored.get(mark.order) != mark.generation for mark in marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """New ledger lines in place of stale cached lines."""

    orders: frozenset[str] = frozenset()
    rows: tuple[TakingRow, ...] = ()


async def overlay_of(context: AppContext, connection: Connection, *, now: Instant) -> Overlay:
    """Compute the ledger lines that became stale meanwhile."""
    fresh: dict[str, ledger_line_store.FreshLine] = {}
    async for stale in ledger_line_store.stale_orders(connection, now=now):
        for each in await _made_anew(context, connection, stale, now=now):
            fresh[each.order] = each
    made = [ledger_line_row(replace(f.taking, as_of=now)) for f in fresh.values() if f.taking]
    return Overlay(orders=frozenset(fresh), rows=tuple(sorted(made, key=lambda row: row[:2])))


async def _made_anew(
    context: AppContext, connection: Connection, stale: Sequence[tuple[str, int]], *, now: Instant
) -> list[ledger_line_store.FreshLine]:
    generations = dict(stale)
    sharing = await history_store.contested_with(connection, generations) - generations.keys()
    generations |= {m.order: m.generation for m in await due_store.marks_of(connection, sharing)}
    made = []
    for order, history in (await history_store.gather(connection, generations)).items():
        ledger = fold_or_log(history, policy=context.policy, as_of=history.instant_at(now))
        line = ledger_line_store.FreshLine(
            order=history.order,
            generation=generations[order],
            until=now if ledger is None else ledger.next_decision_at,
            taking=None if ledger is None else ledger_line_of(ledger),
        )
        made.append(line)
    return made


async def ledger_lines_now(
    connection: Connection,
    overlay: Overlay,
    *,
    as_of: Instant,
    within: ledger_line_store.KeyRange = ledger_line_store.EVERYTHING,
) -> AsyncIterator[list[TakingRow]]:
    """Yield current ledger lines in batches sorted by key."""
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
    """Yield a connection to an earlier instant's ledger lines."""
    async with scratch_database() as scratch:
        async with context.database.reading(settled=True) as connection:
            async for histories in history_store.scan(connection):
                fresh = []
                for history in histories:
                    ledger = fold_or_log(history, policy=context.policy, as_of=as_of)
                    line = None if ledger is None else ledger_line_of(ledger)
                    fresh.append(
                        ledger_line_store.FreshLine(
                            order=history.order, generation=0, until=None, taking=line
                        )
                    )
                await ledger_line_store.store_ledger_lines(scratch, fresh)
                progress(len(fresh))
        yield scratch


# --- all input of one matching --------------------------------------------------------------------

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts that a matching needs besides its rules."""

    as_of: Instant
    rules: MatchRules
    period: Period | None
    coverage: Coverage
    hands: tuple[HandMatch, ...]
    overlay: Overlay
    joined: Mapping[str, Instant]
    suspended: tuple[Suspended, ...] = ()
    recipients: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def terms(self) -> Terms:
        return Terms(
            rules=self.rules,
            as_of=self.as_of,
            coverage=self.coverage,
            hands=self.hands,
            suspense=self._suspense(),
        )

    def matching(self, *, keeping: KeepingTally | None = None) -> Matching:
        return Matching(
            keeping=keeping,
            rules=self.rules,
            as_of=self.as_of,
            coverage=self.coverage,
            hands=self.hands,
            suspense=self._suspense(),
            recipients=self.recipients,
        )

    def _suspense(self) -> Suspense:
        if self.period is None:
            return Suspense(self.suspended)
        return Suspense(self.suspended, since=self.period.since, until=self.period.until)


NOTHING_COVERED: Final = Coverage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Connections to the rows of one snapshot."""

    connection: Connection
    takings: Connection

    async def bank(self, known: Known) -> BankLeg | None:
        """Match payouts with the bank."""
        return await bank_leg(
            self.connection,
            as_of=known.as_of,
            rules=known.rules,
            hands=known.hands,
            takings=self.takings,
        )

    async def wallets(
        self,
        *,
        as_of: Instant,
        period: Period | None = None,
        coverage: Coverage = NOTHING_COVERED,
    ) -> Wallets:
        """Check the balances of wallets."""

        def work() -> Wallets:
            rows = matching_store.rows_of(
                statement_store.wallet_rows(self.connection, as_of=as_of), silent
            )
            return Wallets(
                map(WalletRow._make, rows), period=period, as_of=as_of, coverage=coverage
            )

        try:
            return await matching_store.in_step(self.connection, work)
        except ValueError as error:
            raise UsageError(
                f"{error}: check the column that the mapping names for the type"
            ) from None

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
        """Match the rows of a range, and yield the decisions."""
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
    """Yield a snapshot of what is known at an instant."""
    async with AsyncExitStack() as stack:
        past = None
        if as_of is not None:
            folding = ledger_lines_then(context, as_of=as_of, progress=progress)
            past = await stack.enter_async_context(folding)
        connection = await stack.enter_async_context(context.database.reading(settled=True))
        yield Snapshot(connection=connection, takings=past or connection)


# --- the bank, in memory --------------------------------------------------------------------------


MOST: Final = 1_000_000
"""Maximum number of payouts and of bank lines."""

BankSides = tuple[list[Payout], list[BankLine], list[BookLine], Coverage]
"""Input of bank matching: (payouts, bank lines, orders, coverage)."""


async def bank_sides(
    connection: Connection,
    *,
    as_of: Instant,
    rules: MatchRules,
    hands: tuple[HandMatch, ...],
    takings: Connection | None = None,
) -> BankSides | None:
    """Return the input of bank matching; None without bank files."""
    if not await bank_store.any_bank_line(connection, as_of=as_of):
        return None
    lines: list[BankLine] = []
    async for rows in bank_store.bank_lines(connection, as_of=as_of):
        lines += map(bank_store.bank_line_of, rows)
        _bounded(len(lines), "bank lines")
    paid = await bank_store.payouts(connection, as_of=as_of)
    _bounded(len(paid), "payouts")
    named = {name for hand in hands for name in (hand.one, hand.other) if name.startswith("bok_")}
    orders = await book_line_store.outside_orders(
        connection, methods=rules.methods, named=named, as_of=as_of
    )
    _bounded(len(orders), "orders paid outside providers")
    # If a provider captured money for an order, a transfer for the order is a second payment, which
    # pays the order only if a person says so.
    keys = [match_key(each.reference) for each in orders]
    of_keys = ledger_line_store.ledger_lines_of_keys(takings or connection, keys, as_of=as_of)
    captured = {row.key for row in await of_keys if captures_of(row)}
    orders = [
        replace(each, method=None) if key in captured else each
        for key, each in zip(keys, orders, strict=True)
    ]
    return paid, lines, orders, await coverage_store.coverage(connection, as_of=as_of)


def leg_of(
    sides: BankSides, *, as_of: Instant, rules: MatchRules, hands: tuple[HandMatch, ...]
) -> BankLeg:
    """Match payouts with the bank."""
    paid, lines, orders, covered = sides
    try:
        return BankLeg(
            payouts=paid,
            lines=lines,
            orders=orders,
            rules=rules,
            as_of=as_of,
            coverage=covered,
            hands=hands,
        )
    except ValueError as error:
        raise UsageError(
            f"{error}: correct these amounts in their file, and import the file again"
        ) from None


async def bank_leg(
    connection: Connection,
    *,
    as_of: Instant,
    rules: MatchRules,
    hands: tuple[HandMatch, ...],
    takings: Connection | None = None,
) -> BankLeg | None:
    """Match payouts with the bank as of an instant; None without bank files."""
    sides = await bank_sides(connection, as_of=as_of, rules=rules, hands=hands, takings=takings)
    return None if sides is None else leg_of(sides, as_of=as_of, rules=rules, hands=hands)


def last_decisions(
    matching: Matching, bank: BankLeg | None, period: Period | None
) -> Iterator[Decision]:
    """Yield the remaining decisions, those about the bank last."""
    if bank is None:
        yield from matching.rest()
        return
    yield from matching.rest(beside=bank.credits_alone())
    bank.expect(matching.unsettled())
    yield from bank.decisions(period, unpaid=matching.unpaid)


def _bounded(count: int, what: str) -> None:
    if count > MOST:
        raise UsageError(
            f"there are more than {MOST:,} {what}: check the columns that the mapping names for "
            "the payout and the method"
        )


# --- facts that a matching needs besides its rows -------------------------------------------------


async def rows_ahead(context: AppContext, *, as_of: Instant | None) -> int:
    """Return an estimate of the rows to read and compute."""
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
) -> Known:
    """Return the facts that the matching of this snapshot needs."""
    connection, at = snapshot.connection, context.clock.now() if as_of is None else as_of
    overlay = Overlay()
    if as_of is None:
        overlay = await overlay_of(context, connection, now=at)
    known = Known(
        as_of=at,
        rules=rules,
        period=period,
        coverage=await coverage_store.coverage(connection, as_of=at),
        hands=tuple(await break_store.hand_matches(connection, as_of=at)),
        overlay=overlay,
        joined={},
        suspended=await suspended_payments(connection, policy=context.policy, as_of=at),
        recipients={
            payment: frozenset(map(match_key, orders))
            for payment, orders in (await orders_of_recipients(connection, as_of=at)).items()
        },
    )
    return known if period is None else replace(known, joined=await _joined(snapshot, known))


async def _joined(snapshot: Snapshot, known: Known) -> dict[str, Instant]:
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
