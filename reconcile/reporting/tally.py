"""Add up a period, one order, break or change at a time, into its report.

Leaves out: gathering. Memory does not grow with the orders: everything is counted and dropped,
except for lists, which are bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Final, Generic, TypeVar

from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.matching.books import StatementKind
from reconcile.matching.breaks import BREAK_CAUSES, BreakCause, at_risk
from reconcile.matching.ledger_lines import LedgerLine, Taken
from reconcile.money import Money
from reconcile.periods import IN_UTC, Calendar
from reconcile.reporting.input import (
    BankView,
    BreakSeen,
    ChangeSeen,
    OrderSeen,
    SettledLine,
    settled,
)
from reconcile.reporting.orders import (
    NO_CURRENCY,
    ControlSums,
    FlowSums,
    OutcomeSums,
    TimeSums,
    standing,
)
from reconcile.reporting.report import (
    AGES,
    BANK_FLOWS,
    FLOWS,
    Age,
    BreakAgeRow,
    BreakLine,
    ChangeLine,
    ChangeRow,
    DelayRow,
    FeeRow,
    Flow,
    LateLine,
    LateRow,
    MatchingRow,
    MoneyRow,
    NoOrder,
    Note,
    PeriodReport,
    Scope,
    Tie,
    Unlisted,
    ties,
)

Line = TypeVar("Line")

_AGES: Final = (1, 7, 30, 90)
"""Upper ends of all age classes but the last, in whole days."""


class Bounded(Generic[Line]):
    """The first `bound` lines by `key`, and the number of all lines.

    It holds at most twice the bound, then drops the excess.
    """

    def __init__(self, bound: int, *, key: Callable[[Line], Any]) -> None:
        self.bound = bound
        self.seen = 0
        self._key = key
        self._lines: list[Line] = []

    def add(self, line: Line) -> None:
        self.seen += 1
        self._lines.append(line)
        if len(self._lines) > 2 * self.bound:
            self._lines = list(self.lines())

    def lines(self) -> tuple[Line, ...]:
        """Return the lines kept, sorted."""
        return tuple(sorted(self._lines, key=self._key)[: self.bound])


class BreakSums:
    """Breaks by cause, age, state and currency, and a list of the oldest."""

    def __init__(self, bound: int, *, as_of: Instant) -> None:
        self._as_of = as_of
        self._counts: Counter[tuple[BreakCause, Age, str, str]] = Counter()
        self._sums: Counter[tuple[BreakCause, Age, str, str]] = Counter()
        self._risks: Counter[tuple[BreakCause, Age, str, str]] = Counter()
        self.never_notified: set[str] = set()
        self._unknown: Counter[str] = Counter()
        self.lines: Bounded[BreakLine] = Bounded(
            bound, key=lambda line: (line.since, line.identity)
        )

    def add(self, seen: BreakSeen) -> None:
        found = seen.found
        aged = max(self._as_of - found.since, 0) // DAY
        key = (found.cause, AGES[bisect_left(_AGES, aged)], seen.state, found.money.currency)
        self._counts[key] += 1
        self._sums[key] += found.money.minor
        self._risks[key] += 0 if seen.state == "accepted" else at_risk(found)
        if found.cause == "settled_never_notified":
            self.never_notified.update(found.cites)
            for money in found.left:
                self._unknown[money.currency] -= money.minor
        self.lines.add(
            BreakLine(
                identity=found.identity,
                cause=found.cause,
                state=seen.state,
                order=found.order,
                payment=found.payment,
                currency=found.money.currency,
                sum=found.money.minor,
                since=found.since,
                age_days=aged,
                sentence=seen.sentence,
                next_step=seen.next_step,
                cites=found.cites,
            )
        )

    def rows(self) -> tuple[BreakAgeRow, ...]:
        """Return the rows by cause, age, state and currency."""
        found = sorted(
            self._counts, key=lambda key: (BREAK_CAUSES.index(key[0]), AGES.index(key[1]), key[2:])
        )
        return tuple(
            BreakAgeRow(
                cause=cause,
                age=age,
                state=state,
                currency=currency,
                count=self._counts[cause, age, state, currency],
                sum=self._sums[cause, age, state, currency],
                at_risk=self._risks[cause, age, state, currency],
            )
            for cause, age, state, currency in found
        )

    def ties(self, money: Sequence[MoneyRow]) -> Iterator[Tie]:
        """Yield that lines without a webhook are equal in the money table and among the breaks."""
        rows = [row for row in money if row.flow == "not_notified"]
        counted = sum(n for key, n in self._counts.items() if key[0] == "settled_never_notified")
        left, right = "money, not notified", "breaks, settled never notified"
        yield Tie(
            name="lines not notified",
            currency=None,
            left=left,
            left_value=sum(row.count for row in rows),
            right=right,
            right_value=counted,
        )
        for row in rows:
            yield Tie(
                name="not notified",
                currency=row.currency,
                left=left,
                left_value=row.sum,
                right=f"{right}, by sign",
                right_value=self._unknown[row.currency],
            )


class ChangeSums:
    """Changed outcomes of earlier orders, and a list of the first."""

    def __init__(self, bound: int) -> None:
        self._counts: Counter[tuple[Outcome, Outcome]] = Counter()
        self.lines: Bounded[ChangeLine] = Bounded(bound, key=lambda line: (line.at, line.order))

    def add(self, seen: ChangeSeen) -> None:
        self._counts[seen.before, seen.after] += 1
        self.lines.add(
            ChangeLine(
                order=seen.order,
                at=seen.at,
                before=seen.before,
                after=seen.after,
                because=" ".join(seen.because),
            )
        )

    def rows(self) -> tuple[ChangeRow, ...]:
        return tuple(
            ChangeRow(before=before, after=after, count=self._counts[before, after])
            for before, after in sorted(self._counts)
        )


FLOW_OF: Final[dict[EntryKind, Flow]] = {
    "captured": "captured",
    "refunded": "refunded",
    "reversed": "refunded",
    "dispute_lost": "lost_in_disputes",
}

DELAYS: Final[tuple[Duration, ...]] = (
    SECOND,
    5 * SECOND,
    30 * SECOND,
    MINUTE,
    5 * MINUTE,
    30 * MINUTE,
    HOUR,
    6 * HOUR,
    DAY,
)
"""Upper ends of the delay classes: from what nobody notices to what outlives a checkout."""


class MoneySums:
    """Number and sums of movements by currency and flow. Returned money is positive."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Flow]] = Counter()
        self._sums: Counter[tuple[str, Flow]] = Counter()

    def add(self, currency: str, flow: Flow, minor: int) -> None:
        self._counts[currency, flow] += 1
        self._sums[currency, flow] += minor

    def differ(self, missing: Money) -> None:
        """Add what the bank lacks of a payout; negative if it has too much."""
        self.add(missing.currency, "bank_differs", missing.minor)
        self._sums[missing.currency, "in_bank"] -= missing.minor

    def rows(self, *, bank: bool) -> tuple[MoneyRow, ...]:
        """Return every flow of every currency; flows of the bank only if `bank`."""
        abroad = any(flow == "other_currency" for _, flow in self._counts)
        flows = [flow for flow in FLOWS if bank or flow not in BANK_FLOWS]
        flows = [flow for flow in flows if abroad or flow != "other_currency"]
        currencies = sorted({currency for currency, _ in self._counts})
        for currency in currencies:
            moved = [(currency, flow) for flow in dict.fromkeys(FLOW_OF.values())]
            self._counts[currency, "net"] = sum(self._counts[each] for each in moved)
            gone = [self._sums[currency, f] for f in ("refunded", "lost_in_disputes", "fees")]
            self._sums[currency, "net"] = self._sums[currency, "captured"] - sum(gone)
        return tuple(
            MoneyRow(currency=c, flow=flow, count=self._counts[c, flow], sum=self._sums[c, flow])
            for c in currencies
            for flow in flows
        )


class FeeSums:
    """Number and sums of statement lines by currency and kind."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sums: Counter[tuple[str, str, str]] = Counter()

    def add(self, each: SettledLine) -> None:
        key = (each.line.currency, each.line.kind)
        self._counts[key] += 1
        self._sums[(*key, "gross")] += each.gross
        self._sums[(*key, "fee")] += each.fee
        self._sums[(*key, "net")] += each.net

    def rows(self) -> tuple[FeeRow, ...]:
        """Return the rows by currency and kind."""
        return tuple(
            FeeRow(
                currency=currency,
                kind=kind,
                count=self._counts[currency, kind],
                gross=self._sums[currency, kind, "gross"],
                fee=self._sums[currency, kind, "fee"],
                net=self._sums[currency, kind, "net"],
            )
            for currency, kind in sorted(self._counts)
        )


class DelaySums:
    """Number of movements by their delay until they became known."""

    def __init__(self) -> None:
        self._counts = [0] * (len(DELAYS) + 1)

    def add(self, taken: Taken) -> None:
        self._counts[bisect_left(DELAYS, taken.received_at - taken.at)] += 1

    def rows(self) -> tuple[DelayRow, ...]:
        """Return every class, also the empty ones."""
        return tuple(
            DelayRow(up_to=up_to, movements=count)
            for up_to, count in zip((*DELAYS, None), self._counts, strict=True)
        )


class LateSums:
    """Movements of earlier months that became known in the period."""

    def __init__(self, bound: int, calendar: Calendar) -> None:
        self._calendar = calendar
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._sums: Counter[tuple[str, str, str]] = Counter()
        self.lines: Bounded[LateLine] = Bounded(
            bound, key=lambda line: (line.received_at, line.order, line.payment, line.cites)
        )

    def add(self, taking: LedgerLine, taken: Taken) -> None:
        key = (self._calendar.day_of(taken.at)[:7], taken.kind, taken.currency)
        self._counts[key] += 1
        self._sums[key] += taken.minor
        self.lines.add(
            LateLine(
                order=taking.order,
                kind=taken.kind,
                source=taken.source,
                payment=taken.payment,
                currency=taken.currency,
                sum=taken.minor,
                at=taken.at,
                received_at=taken.received_at,
                cites=taken.cites,
            )
        )

    def rows(self) -> tuple[LateRow, ...]:
        """Return the rows by month, kind and currency."""
        return tuple(
            LateRow(
                month=month,
                kind=kind,
                currency=currency,
                count=self._counts[month, kind, currency],
                sum=self._sums[month, kind, currency],
            )
            for month, kind, currency in sorted(self._counts)
        )


BREAK_LINES_MAX: Final = 100_000
"""Breaks listed: as many as a person can filter in a spreadsheet; about 100 MB of memory."""

_FLOW_OF_LINE: Final[dict[StatementKind, Flow]] = {
    "payment": "captured",
    "refund": "refunded",
    "dispute": "lost_in_disputes",
}

LATE_LINES_MAX: Final = 10_000
"""Late movements, and changes of outcome, listed."""


class PeriodTally:
    """The sums of one period. All input must be as known at `scope.as_of`."""

    def __init__(
        self,
        scope: Scope,
        *,
        calendar: Calendar = IN_UTC,
        elsewhere: Set[str] = frozenset(),
        break_lines: int = BREAK_LINES_MAX,
        bank: BankView | None = None,
    ) -> None:
        """Begin with nothing. Add breaks before orders.

        calendar   of the scope's zone
        elsewhere  ids of statement lines that the matching places outside of the period of their
                   own date (`within`); complete once every break was added
        bank       None without bank files
        """
        self._scope, self._elsewhere, self._bank = scope, elsewhere, bank
        self._money = MoneySums()
        if bank is not None:
            for missing in bank.differing(start=scope.start, end=scope.end):
                self._money.differ(missing)
        self._flow = FlowSums()
        self._control = ControlSums()
        self._outcomes = OutcomeSums()
        self._times = TimeSums(scope, calendar)
        self._fees = FeeSums()
        self._delays = DelaySums()
        self._late = LateSums(LATE_LINES_MAX, calendar)
        self._breaks = BreakSums(break_lines, as_of=scope.as_of)
        self._changes = ChangeSums(LATE_LINES_MAX)
        self._undated = 0

    def order(self, seen: OrderSeen) -> None:
        """Add an order, or lines without one."""
        taking = seen.taking
        lines = settled(seen, strange=self._breaks.never_notified)
        self._undated += sum(each.line.settled_at is None for each in lines)
        if self._scope.basis == "settled":
            moved = self._money_by_statement(
                lines, "no_order" if taking is None else taking.outcome
            )
        else:
            moved = self._money_by_ledger(taking, lines)
        if taking is None:
            return
        steps = standing(taking, self._scope, moved=moved)
        if steps:
            price = taking.expected
            currency = NO_CURRENCY if price is None else price.currency
            if price is None and taking.taken:
                currency = taking.taken[0].currency
            due = 0 if price is None else price.minor
            self._flow.add(currency, steps, due)
            self._control.order(currency, taking.outcome, due)
            self._outcomes.add(taking)
            if steps[0] == "new":
                self._times.add(taking)
        for taken in taking.taken:
            if taken.at < self._scope.start <= taken.received_at < self._scope.end:
                self._late.add(taking, taken)

    def found(self, seen: BreakSeen) -> None:
        self._breaks.add(seen)

    def never_notified_elsewhere(self, lines: Set[str]) -> None:
        """Add ids of lines without a movement on orders of other periods (`OtherPeriods`).

        Call it before adding orders. Such lines of this period's orders are known by their breaks.
        """
        self._breaks.never_notified |= lines

    def changed(self, seen: ChangeSeen) -> None:
        self._changes.add(seen)

    def report(
        self,
        *,
        matching: tuple[MatchingRow, ...] = (),
        matching_ties: tuple[Tie, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> PeriodReport:
        """Return the report. `matching`: the totals of the run that found the breaks."""
        flow, control = self._flow.rows(), self._control.rows()
        money = self._money.rows(bank=self._bank is not None)
        own = ties(flow=flow, control=control, money=money)
        if self._scope.basis != "settled":
            own = (*own, *self._breaks.ties(money))
        lists: tuple[tuple[str, Bounded[Any]], ...] = (
            ("break_lines", self._breaks.lines),
            ("late_lines", self._late.lines),
            ("change_lines", self._changes.lines),
        )
        return PeriodReport(
            scope=self._scope,
            ties=(*own, *matching_ties),
            flow=flow,
            control=control,
            money=money,
            matching=matching,
            outcomes=self._outcomes.rows(),
            findings=self._outcomes.findings(),
            times=self._times.rows(),
            delays=self._delays.rows(),
            breaks=self._breaks.rows(),
            late=self._late.rows(),
            changes=self._changes.rows(),
            fees=self._fees.rows(),
            break_lines=self._breaks.lines.lines(),
            late_lines=self._late.lines.lines(),
            change_lines=self._changes.lines.lines(),
            unlisted=tuple(
                Unlisted(
                    table=table,
                    listed=min(each.seen, each.bound),
                    bound=each.bound,
                    left_out=max(each.seen - each.bound, 0),
                )
                for table, each in lists
            ),
            notes=tuple(Note(sentence=each) for each in (*self._notes(), *notes)),
        )

    def _money_by_statement(
        self, lines: tuple[SettledLine, ...], bucket: Outcome | NoOrder
    ) -> bool:
        """Place lines by their own dates; return whether any is in the period."""
        moved = False
        for each in lines:
            if not self._within(each.line.settled_at):
                continue
            moved = True
            self._fee(each)
            if each.line.kind == "carried":
                self._money.add(each.line.currency, "no_movement", each.gross)
            elif each.line.kind != "fee":
                flow = _FLOW_OF_LINE[each.line.kind]
                self._move(each.line.currency, bucket, flow=flow, minor=each.gross)
            for taken in each.taken:
                self._delays.add(taken)
        return moved

    def _money_by_ledger(self, taking: LedgerLine | None, lines: tuple[SettledLine, ...]) -> bool:
        """Place movements by their dates, and lines by their first movement, else by their own.

        Return whether any is in the period.
        """
        moved = False
        apart: Counter[str] = Counter()
        # By identity: one event may state two equal movements.
        abroad = {id(taken) for each in lines if each.exchanged for taken in each.taken}
        settled_by_now = {id(taken) for each in lines for taken in each.taken}
        for taken in () if taking is None else taking.taken:
            if not self._within(self._placed(taken)):
                continue
            assert taking is not None
            moved = True
            flow = FLOW_OF[taken.kind]
            self._move(taken.currency, taking.outcome, flow=flow, minor=taken.minor)
            self._delays.add(taken)
            if id(taken) in abroad:
                self._money.add(taken.currency, "other_currency", taken.minor)
            elif id(taken) in settled_by_now:
                apart[taken.currency] += taken.minor
            else:
                self._money.add(taken.currency, "not_settled", taken.minor)
        for each in lines:
            if each.taken:
                here = self._within(self._placed(each.taken[0]))
            else:  # a line without a movement is placed where its break is
                elsewhere = each.line.line_id in self._elsewhere
                here = self._within(each.line.settled_at) != elsewhere
            if here:
                moved = True
                self._fee(each)
                if each.exchanged:
                    self._money.add(each.line.currency, "other_currency", -each.gross)
                elif each.taken:
                    apart[each.line.currency] -= each.gross
                elif each.line.line_id in self._breaks.never_notified:
                    self._money.add(each.line.currency, "not_notified", each.gross)
                elif each.gross:
                    self._money.add(each.line.currency, "no_movement", each.gross)
        for currency, minor in apart.items():
            if minor:
                self._money.add(currency, "differs", minor)
        return moved

    def _fee(self, each: SettledLine) -> None:
        """Add net and fee of a line placed in the period."""
        self._fees.add(each)
        self._money.add(each.line.currency, "settled", each.net)
        if self._bank is not None:
            self._money.add(each.line.currency, self._bank.flow_of(each.line), each.net)
        if each.fee:
            self._money.add(each.line.currency, "fees", each.fee)

    def _move(self, currency: str, bucket: Outcome | NoOrder, *, flow: Flow, minor: int) -> None:
        amount = minor if flow == "captured" else -minor
        self._money.add(currency, flow, amount)
        self._control.money(currency, bucket, flow=flow, minor=amount)

    def _placed(self, taken: Taken) -> Instant:
        return taken.received_at if self._scope.basis == "received" else taken.at

    def _within(self, instant: Instant | None) -> bool:
        return instant is not None and self._scope.start <= instant < self._scope.end

    def _notes(self) -> Iterator[str]:
        scope = self._scope
        if scope.as_of < scope.end:
            yield "The period had not ended when this was known: the report is preliminary."
        if self._undated and scope.basis == "settled":
            several = self._undated > 1
            yield (
                f"{self._undated:,} statement line{'s bear' if several else ' bears'} no date of "
                f"settlement; on this basis {'they' if several else 'it'} can stand in no period."
            )
