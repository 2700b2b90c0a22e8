"""Adds a period up, one order, break or change at a time, and makes the report of it.

Leaves out: gathering. Memory does not grow with the orders: everything is counted and forgotten,
but for the lists, which are bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from reconcile.instants import Instant
from reconcile.ledger.ledger import Outcome
from reconcile.matching.books import StatementKind
from reconcile.matching.ledger_lines import Taken, Taking
from reconcile.reporting.input import BreakSeen, ChangeSeen, OrderSeen
from reconcile.reporting.lists import Bounded, BreakSums, ChangeSums
from reconcile.reporting.money_section import FLOW_OF, DelaySums, FeeSums, LateSums, MoneySums
from reconcile.reporting.orders import (
    NO_CURRENCY,
    ControlSums,
    FlowSums,
    OutcomeSums,
    TimeSums,
    standing,
)
from reconcile.reporting.report import (
    Flow,
    MatchingRow,
    NoOrder,
    Note,
    PeriodReport,
    Scope,
    Tie,
    Unlisted,
)
from reconcile.reporting.settled import Settled, settled
from reconcile.reporting.ties import ties

BREAK_LINES_MAX: Final = 100_000
"""Breaks listed: what a person can still filter in a spreadsheet; about 100 MB of memory."""

_FLOW_OF_LINE: Final[dict[StatementKind, Flow]] = {
    "payment": "captured",
    "refund": "refunded",
    "dispute": "lost_in_disputes",
}

LATE_LINES_MAX: Final = 10_000
"""Late movements, and changes of outcome, that are listed."""


class PeriodTally:
    """One period being added up. Everything given must be as it was known at `scope.as_of`."""

    def __init__(self, scope: Scope, *, break_lines: int = BREAK_LINES_MAX) -> None:
        self._scope = scope
        self._flow = FlowSums()
        self._control = ControlSums()
        self._outcomes = OutcomeSums()
        self._times = TimeSums(scope)
        self._money = MoneySums()
        self._fees = FeeSums()
        self._delays = DelaySums()
        self._late = LateSums(LATE_LINES_MAX)
        self._breaks = BreakSums(break_lines, as_of=scope.as_of)
        self._changes = ChangeSums(LATE_LINES_MAX)
        self._undated = 0

    def order(self, seen: OrderSeen) -> None:
        """One order, or lines without one."""
        taking = seen.taking
        lines = settled(seen)
        self._undated += sum(each.line.settled_at is None for each in lines)
        if self._scope.basis == "settled":
            moved = self._money_by_statement(
                lines, "no_order" if taking is None else taking.outcome
            )
        else:
            moved = self._money_by_ledger(taking, lines)
        if taking is not None:
            self._count(taking, moved=moved)
            self._learned_late(taking)

    def found(self, seen: BreakSeen) -> None:
        """One break of an order of the period."""
        self._breaks.add(seen)

    def changed(self, seen: ChangeSeen) -> None:
        """One order whose published outcome changed in the period."""
        self._changes.add(seen)

    def report(
        self,
        *,
        matching: tuple[MatchingRow, ...] = (),
        matching_ties: tuple[Tie, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> PeriodReport:
        """Everything added up so far. `matching`: the totals of the run that found the breaks."""
        flow, control, money = self._flow.rows(), self._control.rows(), self._money.rows()
        own = ties(flow=flow, control=control, money=money)
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
            unlisted=self._unlisted(),
            notes=tuple(Note(sentence=each) for each in (*self._notes(), *notes)),
        )

    # --- orders ----------------------------------------------------------------------------------

    def _count(self, taking: Taking, *, moved: bool) -> None:
        steps = standing(taking, self._scope, moved=moved)
        if not steps:
            return
        price = taking.expected
        currency = _currency(taking)
        due = 0 if price is None else price.minor
        self._flow.add(currency, steps, due)
        self._control.order(currency, taking.outcome, due)
        self._outcomes.add(taking)
        if steps[0] == "new":
            self._times.add(taking)

    def _learned_late(self, taking: Taking) -> None:
        start, end = self._scope.start, self._scope.end
        for taken in taking.taken:
            if taken.at < start <= taken.received_at < end:
                self._late.add(taking, taken)

    # --- money -----------------------------------------------------------------------------------

    def _money_by_statement(self, lines: tuple[Settled, ...], bucket: Outcome | NoOrder) -> bool:
        moved = False
        for each in lines:
            if not self._within(each.line.settled_at):
                continue
            moved = True
            self._fee(each)
            if each.line.kind != "fee":
                flow = _FLOW_OF_LINE[each.line.kind]
                self._move(each.line.currency, bucket, flow=flow, minor=each.gross)
            for taken in each.taken:
                self._delays.add(taken)
        return moved

    def _money_by_ledger(self, taking: Taking | None, lines: tuple[Settled, ...]) -> bool:
        """Movements by their dates; a line by that of its first movement, else by its own."""
        moved = False
        apart: Counter[str] = Counter()
        settled_by_now = {taken for each in lines for taken in each.taken}
        for taken in () if taking is None else taking.taken:
            if not self._within(self._placed(taken)):
                continue
            assert taking is not None
            moved = True
            flow = FLOW_OF[taken.kind]
            self._move(taken.currency, taking.outcome, flow=flow, minor=taken.minor)
            self._delays.add(taken)
            if taken in settled_by_now:
                apart[taken.currency] += taken.minor
            else:
                self._money.add(taken.currency, "not_settled", taken.minor)
        for each in lines:
            placed = self._placed(each.taken[0]) if each.taken else each.line.settled_at
            if self._within(placed):
                moved = True
                self._fee(each)
                if each.taken:
                    apart[each.line.currency] -= each.gross
                elif each.gross:
                    self._money.add(each.line.currency, "not_notified", each.gross)
        for currency, minor in apart.items():
            if minor:
                self._money.add(currency, "differs", minor)
        return moved

    def _fee(self, each: Settled) -> None:
        self._fees.add(each)
        self._money.add(each.line.currency, "settled", each.net)
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

    def _unlisted(self) -> tuple[Unlisted, ...]:
        lists: tuple[tuple[str, Bounded[Any]], ...] = (
            ("break_lines", self._breaks.lines),
            ("late_lines", self._late.lines),
            ("change_lines", self._changes.lines),
        )
        return tuple(
            Unlisted(
                table=table,
                listed=min(each.seen, each.bound),
                bound=each.bound,
                left_out=max(each.seen - each.bound, 0),
            )
            for table, each in lists
        )


def _currency(taking: Taking) -> str:
    """The order's own: that of its price, else of its first money."""
    if taking.expected is not None:
        return taking.expected.currency
    return taking.taken[0].currency if taking.taken else NO_CURRENCY
