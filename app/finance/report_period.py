"""Compute the report of a period. Nothing is written."""

import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.jobs import silent
from app.core.text import counted
from app.core.zones import zone_named
from app.database.engine import Connection
from app.finance import reconcile_rows
from app.finance.bank_balances import accepted_differences
from app.finance.bank_store import withdrawals
from app.finance.break_store import hand_matches, latest_seen, steps_of
from app.finance.closed_periods import CLOSING_BASIS, closings_at, stated_before
from app.finance.files.rates import merchant_rates
from app.finance.ledger_line_store import whole_ledger_lines
from app.finance.match_rules import rules_known
from app.finance.matching_store import in_step, rows_of, wait_for
from app.finance.period_store import accepted_breaks, changed_outcomes, print_parts
from app.finance.reports.render import ReportFormat, render
from app.finance.statement_store import statement_rows
from app.finance.suspense import suspended_payments
from app.receiving.caught_up import must_have_read
from reconcile.canonical import canonical_json
from reconcile.instants import TICK, Instant, format_instant
from reconcile.matching.bank import BankLeg
from reconcile.matching.breaks import Break, Step, break_sentence, life, next_step
from reconcile.matching.control import FAMILIES, Control
from reconcile.matching.match import OtherPeriods
from reconcile.matching.period import Period
from reconcile.matching.rows import StatementRow
from reconcile.matching.rules import MatchRules
from reconcile.matching.wallets import Wallets
from reconcile.periods import Calendar
from reconcile.reporting import adjusting, journal
from reconcile.reporting.closing import Closing, adjustments, figures
from reconcile.reporting.inputs import BankView, BreakSeen, OrderSeen, merged
from reconcile.reporting.report import AdjustmentRow, MatchingRow, PeriodReport, Scope, Tie
from reconcile.reporting.tally import PeriodTally

Progress = Callable[[int], None]

AT_ONCE: Final = 500

MONTHS_MAX: Final = 120
"""Maximum number of months in a report: ten years."""


def check_scope(scope: Scope, *, now: Instant) -> None:
    """Raise UsageError for an invalid or long period."""
    if scope.start >= scope.end:
        raise UsageError("--from must be before --to")
    if scope.as_of > now:
        raise UsageError("--as-of is in the future: give a time that has passed")
    if scope.start > scope.as_of:
        raise UsageError("the period had not begun at --as-of: choose a later moment")
    calendar, month = Calendar(zone_named(scope.zone)), scope.start
    for _ in range(MONTHS_MAX):
        month = calendar.next_month(month)
    if scope.end > month:
        raise UsageError(f"a period has at most {MONTHS_MAX} months: choose a shorter one")


async def report_period(
    context: AppContext, scope: Scope, *, progress: Progress = silent
) -> PeriodReport:
    """Return the report of a period. Raise the errors of `check_scope`, and NotAllRead for
    deliveries unread at `as_of`."""
    check_scope(scope, now=context.clock.now())
    await must_have_read(context, as_of=scope.as_of)
    async with reconcile_rows.snapshot_of(context, scope.as_of, progress) as snapshot:
        report = await _reported(context, snapshot, scope, progress)
        adjusted: list[AdjustmentRow] = []
        for stated in await stated_before(snapshot.connection, scope):
            again = replace(
                scope,
                start=stated.month.start,
                end=stated.month.end,
                basis=CLOSING_BASIS,
                zone=stated.month.zone,
            )
            now = await _reported(context, snapshot, again, progress)
            adjusted += adjustments(stated, figures(now))
    return replace(report, adjustments=tuple(adjusted))


async def report_in(context: AppContext, scope: Scope, form: ReportFormat) -> bytes:
    """Return a period's report in one format."""
    return render(await report_period(context, scope), form)


async def _reported(
    context: AppContext, snapshot: reconcile_rows.Snapshot, scope: Scope, progress: Progress
) -> PeriodReport:
    elsewhere: set[str] = set()
    known = await reconcile_rows.known_in(
        context,
        snapshot,
        as_of=scope.as_of,
        rules=await _rules_then(snapshot, scope.as_of),
        period=Period(since=scope.start, until=scope.end),
    )
    leg = await snapshot.bank(known)
    wallets = await snapshot.wallets(
        as_of=known.as_of, period=known.period, coverage=known.coverage
    )
    tally = PeriodTally(
        scope,
        calendar=Calendar(zone_named(scope.zone)),
        elsewhere=elsewhere,
        bank=None if leg is None else BankView(leg),
        rates=merchant_rates(context.settings.reports),
    )
    control = await in_step(
        snapshot.connection,
        lambda: _match(snapshot, known, tally, leg, progress, elsewhere=elsewhere, wallets=wallets),
    )
    await in_step(
        snapshot.connection,
        lambda: deque(map(tally.order, _orders_then(snapshot, scope.as_of, progress)), maxlen=0),
    )
    async for changed in changed_outcomes(
        snapshot.connection, start=scope.start, end=scope.end, as_of=scope.as_of
    ):
        tally.changed(changed)
    for payment in known.suspended:
        tally.suspended(payment)
    matching = tuple(
        MatchingRow(
            side=line.side,
            currency=line.currency,
            family=FAMILIES[line.bucket],
            bucket=line.bucket,
            count=line.count,
            sum=line.sum,
            fee=line.fee,
            net=line.net,
        )
        for line in control.lines
    )
    notes: tuple[str, ...] = ()
    if control.unsearched:
        notes = (
            f"{counted(control.unsearched, 'row was', 'rows were')} left over after matching by "
            "reference. That is too many for the search by payment, group and rule, so these rows "
            "are reported as breaks without candidates.",
        )
    notes += tuple(
        f"Data received from {format_instant(span.since)} to {format_instant(span.until)} may be "
        "lost (an accepted gap): money of that time may be missing from every figure."
        for span in known.coverage.lost
        if span.since < scope.end and scope.start < span.until
    )
    report = tally.report(
        matching=matching,
        matching_ties=_ties(control),
        wallets=wallets.sums,
        notes=notes,
        coverage=known.coverage,
    )
    calendar = Calendar(zone_named(scope.zone))
    balances = await accepted_differences(
        snapshot.connection,
        as_of=scope.as_of,
        first=calendar.day_of(scope.start),
        last=calendar.day_of(Instant(scope.end - TICK)),
    )
    return replace(report, balances=balances)


async def _rules_then(snapshot: reconcile_rows.Snapshot, as_of: Instant) -> MatchRules:
    return (await rules_known(snapshot.connection, as_of=as_of)).match


def _orders_then(
    snapshot: reconcile_rows.Snapshot, as_of: Instant, progress: Progress
) -> Iterator[OrderSeen]:
    takings = rows_of(whole_ledger_lines(snapshot.takings, as_of=as_of), progress)
    lines = rows_of(statement_rows(snapshot.connection, as_of=as_of), progress)
    return merged(takings, map(StatementRow._make, lines))


def _match(
    snapshot: reconcile_rows.Snapshot,
    known: reconcile_rows.Known,
    tally: PeriodTally,
    leg: BankLeg | None,
    progress: Progress,
    *,
    elsewhere: set[str],
    wallets: Wallets,
) -> Control:
    matching = known.matching()
    waiting: list[Break] = []
    others = OtherPeriods(known.terms())
    first = snapshot.merged(
        matching, known, progress=progress, elsewhere=elsewhere, outside=others.order
    )
    last = reconcile_rows.last_decisions(matching, leg, known.period)
    for decision in chain(first, last, wallets.decisions()):
        if isinstance(decision, Break):
            waiting.append(decision)
            if len(waiting) == AT_ONCE:
                _tell(snapshot, known, tally, waiting)
                waiting = []
    _tell(snapshot, known, tally, waiting)
    tally.never_notified_elsewhere(others.never_notified())
    control = matching.control() + wallets.control(known.as_of)
    tally.unsettled(matching.unsettled())
    return control if leg is None else control + leg.control(known.period)


def _tell(
    snapshot: reconcile_rows.Snapshot,
    known: reconcile_rows.Known,
    tally: PeriodTally,
    found: list[Break],
) -> None:
    names, as_of = [each.identity for each in found], known.as_of
    lives = wait_for(steps_of(snapshot.connection, names, as_of=as_of))
    for name, seen in zip(names, found, strict=True):
        steps = lives.get(name, [])
        # A break dated only by this run is as old as its first step.
        each = replace(seen, since=steps[0].at) if steps and seen.since == as_of else seen
        # The state is what people decided, as if a run found the break now with this money.
        now = Step(at=as_of, kind="changed", money=each.money, left=each.left)
        state = life([*(step for step in steps if step.kind != "closed"), now]).state
        tally.found(
            BreakSeen(
                found=each,
                state=state,
                sentence=break_sentence(each),
                next_step=next_step(each),
            )
        )


def _ties(control: Control) -> tuple[Tie, ...]:
    found = []
    for tie in control.ties():
        left, _, right = tie.name.partition(" = ")
        rows = left.startswith("rows")
        found.append(
            Tie(
                name=f"{tie.side} in {tie.currency}" if rows else tie.side,
                currency=None if rows else tie.currency,
                left=left,
                left_value=tie.left,
                right=right,
                right_value=tie.right,
            )
        )
    return tuple(found)


@dataclass(slots=True)
class JournalTotals:
    """Totals of a written journal."""

    transactions: int = 0
    sums: Counter[tuple[journal.Role, str]] = field(default_factory=Counter)
    named: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, transaction: journal.Transaction) -> None:
        self.transactions += 1
        for posting in transaction.postings:
            if posting.account is None:
                self.sums[posting.role, transaction.currency] += posting.minor
            else:
                self.named[posting.account, transaction.currency] += posting.minor


async def report_journal(
    context: AppContext,
    scope: Scope,
    *,
    write: Callable[[journal.Transaction], None],
    revenue: journal.Revenue | None = None,
    progress: Progress = silent,
) -> JournalTotals:
    """Write every transaction of a period's journal. Closed months stay as closed, and adjustments
    follow in the first open month."""
    check_scope(scope, now=context.clock.now())
    await must_have_read(context, as_of=scope.as_of)
    totals = JournalTotals()
    async with reconcile_rows.snapshot_of(context, scope.as_of, progress) as snapshot:
        rules = await _rules_then(snapshot, scope.as_of)
        hands = tuple(await hand_matches(snapshot.connection, as_of=scope.as_of))
        leg = await reconcile_rows.bank_leg(
            snapshot.connection, as_of=scope.as_of, rules=rules, hands=hands
        )
        bank = None if leg is None else BankView(leg)
        withdrawn = (await withdrawals(snapshot.connection, as_of=scope.as_of)).keys()
        openings = (await snapshot.wallets(as_of=scope.as_of)).openings
        payments = await suspended_payments(
            snapshot.connection, policy=context.policy, as_of=scope.as_of
        )
        suspense = {(each.source, each.payment): each for each in payments}

        def made_now(
            start: Instant, end: Instant, revenue: journal.Revenue | None
        ) -> Iterator[journal.Transaction]:
            for seen in _orders_then(snapshot, scope.as_of, progress):
                yield from journal.transactions(
                    seen,
                    start=start,
                    end=end,
                    bank=bank,
                    rates=rules.rates,
                    suspense=suspense,
                    revenue=revenue,
                    withdrawn=withdrawn,
                )
            for payment in payments:
                yield from journal.of_suspense(payment, start=start, end=end, revenue=revenue)
            yield from journal.opened(openings, start=start, end=end)
            if bank is not None:
                yield from journal.confirmed(bank, start=start, end=end)
            yield from _written_off(snapshot, as_of=scope.as_of, start=start, end=end)

        closed = await closings_at(snapshot.connection, scope.as_of)

        def work() -> None:
            for each in _on_the_books(snapshot, closed, scope, made_now, revenue=revenue):
                totals.add(each)
                write(each)

        await in_step(snapshot.connection, work)
    return totals


async def adjusted_money(context: AppContext, *, as_of: Instant) -> adjusting.AdjustedMoney:
    """Return the adjustments of closed months as of an instant."""
    found = adjusting.AdjustedMoney()
    async with context.database.reading() as connection:
        closed = await closings_at(connection, as_of)
    if closed:
        opens = closed[-1].month.end
        scope = Scope(
            start=opens,
            end=opens + TICK,
            as_of=as_of,
            basis=CLOSING_BASIS,
            environment=context.database.environment or "",
            zone=str(context.calendar_zone),
        )
        await report_journal(context, scope, write=found.add)
    return found


def _on_the_books(
    snapshot: reconcile_rows.Snapshot,
    closed: Sequence[Closing],
    scope: Scope,
    made_now: Callable[[Instant, Instant, journal.Revenue | None], Iterator[journal.Transaction]],
    *,
    revenue: journal.Revenue | None,
) -> Iterator[journal.Transaction]:
    start, end = scope.start, scope.end
    if not closed:
        yield from made_now(start, end, revenue)
        return
    first, opens = closed[0].month.start, closed[-1].month.end
    for each in closed:
        if start < each.month.end and each.month.start < end:
            yield from (one for one in _frozen(snapshot, each) if start <= one.at < end)
    if start <= opens < end:
        following = Calendar(zone_named(scope.zone)).day(f"{closed[-1].month.following_name}-01")
        at = following[0] if opens <= following[0] < end else opens
        months = [
            adjusting.FrozenMonth(
                month=each.month,
                calendar=Calendar(zone_named(each.month.zone)),
                transactions=_frozen(snapshot, each),
            )
            for each in closed
        ]
        spans = [(start, first, revenue)] if start < first else []
        spans += [(e.month.start, e.month.end, e.revenue) for e in closed]
        spans.append((opens, end, revenue))
        fresh = chain.from_iterable(
            made_now(some[0][0], some[-1][1], posted)
            for posted, found in groupby(spans, key=lambda span: span[2])
            for some in [list(found)]
        )
        yield from adjusting.with_adjusting(fresh, months, at=at)
    elif start < first or opens < end:
        yield from (one for one in made_now(start, end, revenue) if not first <= one.at < opens)


TRANSACTIONS: Final = "transactions"
"""Name of the file with a closed month's transactions."""


def kept_line(transaction: journal.Transaction) -> bytes:
    return canonical_json(adjusting.transaction_document(transaction)) + b"\n"


async def kept_transactions(
    connection: Connection, closing: Closing
) -> AsyncIterator[list[journal.Transaction]]:
    """Yield the stored transactions of a closed month in batches."""
    name, version = closing.month.name, closing.version
    async for part in print_parts(connection, name, TRANSACTIONS, version=version):
        yield [adjusting.transaction_of(json.loads(line)) for line in part.splitlines()]


def _frozen(snapshot: reconcile_rows.Snapshot, closing: Closing) -> Iterator[journal.Transaction]:
    return rows_of(kept_transactions(snapshot.connection, closing), silent)


def _written_off(
    snapshot: reconcile_rows.Snapshot, *, as_of: Instant, start: Instant, end: Instant
) -> Iterator[journal.Transaction]:
    accepted = wait_for(accepted_breaks(snapshot.connection, as_of=as_of))
    for begin in range(0, len(accepted), AT_ONCE):
        names = accepted[begin : begin + AT_ONCE]
        seen = wait_for(latest_seen(snapshot.connection, names))
        steps = wait_for(steps_of(snapshot.connection, names, as_of=as_of))
        for name in names:
            yield from journal.written_off(seen[name], steps[name], start=start, end=end)
