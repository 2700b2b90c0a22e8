"""Add up the report of a period, item by item."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, Generic, Literal, TypeVar

from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.matching.books import OF_WALLET, StatementKind
from reconcile.matching.breaks import at_risk
from reconcile.matching.causes import BREAK_CAUSES, BreakCause
from reconcile.matching.ledger_lines import LedgerLine, Taken
from reconcile.matching.rules import Coverage, Covered
from reconcile.matching.suspense import Suspended, age_of
from reconcile.matching.tally import Unsettled
from reconcile.matching.wallets import WalletSums
from reconcile.money import Money
from reconcile.periods import IN_UTC, Calendar
from reconcile.reporting import inputs, orders
from reconcile.reporting import report as r
from reconcile.reporting.own_currency import Rates, in_own_currency

# --- coverage rows of a report: days that imported files cover ------------------------------------

_KINDS: Final[tuple[Literal["statement", "bank", "book"], ...]] = ("statement", "bank", "book")


def coverage_rows(
    coverage: Coverage, *, captures: Mapping[str, int], start: Instant, end: Instant
) -> tuple[r.CoverageRow, ...]:
    """Return the report's coverage rows."""
    with_wallets = {each.name for each in coverage.wallets}
    sources = [each for each in coverage.statements if each.name not in with_wallets]
    known = {each.name for each in coverage.statements}
    sources += [Covered(name=name) for name in captures if name not in known]
    by_kind = {
        "statement": [*sources, *coverage.wallets],
        "bank": [*coverage.bank],
        "book": [*coverage.books],
    }
    return tuple(
        row
        for kind in _KINDS
        for each in sorted(by_kind[kind], key=lambda one: (one.name, one.wallet or ""))
        for row in _rows(kind, each, payments=captures.get(each.name, 0) if kind == "statement"
                         else 0, start=start, end=end)
    )  # fmt: skip


def _rows(
    kind: Literal["statement", "bank", "book"],
    covered: Covered,
    *,
    payments: int,
    start: Instant,
    end: Instant,
) -> Iterator[r.CoverageRow]:
    within: list[tuple[Instant | None, Instant | None]] = [
        (max(span.since, start), min(span.until, end))
        for span in covered.spans
        if span.since < end and span.until > start
    ]
    for since, until in within or [(None, None)]:
        yield r.CoverageRow(
            kind=kind,
            name=covered.name,
            wallet=covered.wallet,
            since=since,
            until=until,
            whole=(since, until) == (start, end),
            payments=payments,
            declared_by=", ".join(covered.declared_by),
        )


# --- all other sums of a report -------------------------------------------------------------------

Line = TypeVar("Line")

_AGES: Final = (1, 7, 30, 90)


class Bounded(Generic[Line]):
    """Sorted list that counts all lines and keeps the first `bound` lines."""

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
        """Return the lines that were kept, sorted."""
        return tuple(sorted(self._lines, key=self._key)[: self.bound])


class BreakSums:
    """Breaks by cause, age, state and currency."""

    def __init__(self, bound: int, *, as_of: Instant) -> None:
        self._as_of = as_of
        self._sums: orders.Totals[tuple[BreakCause, r.Age, str, str]] = orders.Totals()
        self.never_notified: set[str] = set()
        self._unknown: Counter[str] = Counter()
        self.lines: Bounded[r.BreakLine] = Bounded(
            bound, key=lambda line: (line.since, line.identity)
        )

    def add(self, seen: inputs.BreakSeen) -> None:
        found = seen.found
        aged = max(self._as_of - found.since, 0) // DAY
        key = (found.cause, r.AGES[bisect_left(_AGES, aged)], seen.state, found.money.currency)
        risk = 0 if seen.state == "accepted" else at_risk(found)
        self._sums.add(key, 1, found.money.minor, risk)
        if found.cause == "settled_never_notified":
            self.never_notified.update(found.cites)
            for money in found.left:
                self._unknown[money.currency] -= money.minor
        self.lines.add(
            r.BreakLine(
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

    def rows(self) -> tuple[r.BreakAgeRow, ...]:
        """Return the rows sorted by cause, age, state and currency."""
        found = sorted(
            self._sums.items(),
            key=lambda one: (BREAK_CAUSES.index(one[0][0]), r.AGES.index(one[0][1]), one[0][2:]),
        )
        return tuple(
            r.BreakAgeRow(
                cause=cause,
                age=age,
                state=state,
                currency=currency,
                count=count,
                sum=total,
                at_risk=risk,
            )
            for (cause, age, state, currency), (count, total, risk) in found
        )

    def ties(self, money: Sequence[r.MoneyRow]) -> Iterator[r.Tie]:
        """Yield comparisons of the money table and the breaks."""
        rows = [row for row in money if row.flow == "not_notified"]
        counted = sum(s[0] for key, s in self._sums.items() if key[0] == "settled_never_notified")
        left, right = "money, not notified", "breaks, settled never notified"
        yield r.Tie(
            name="lines not notified",
            currency=None,
            left=left,
            left_value=sum(row.count for row in rows),
            right=right,
            right_value=counted,
        )
        for row in rows:
            yield r.Tie(
                name="not notified",
                currency=row.currency,
                left=left,
                left_value=row.sum,
                right=f"{right}, by sign",
                right_value=self._unknown[row.currency],
            )


FLOW_OF: Final[dict[EntryKind, r.Flow]] = {
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
"""Limits for the delay of a movement's arrival."""


class MoneySums:
    """Number and sum of movements by currency and flow."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, r.Flow]] = Counter()
        self._sums: Counter[tuple[str, r.Flow]] = Counter()
        self.day = ""
        self.by_day: Counter[tuple[str, str, str]] = Counter()

    def add(self, currency: str, flow: r.Flow, minor: int) -> None:
        self._counts[currency, flow] += 1
        self._sums[currency, flow] += minor
        if self.day:
            self.by_day[self.day, currency, flow] += minor

    def differ(self, missing: Money) -> None:
        """Add the difference between paid and booked money."""
        self.add(missing.currency, "bank_differs", missing.minor)
        self._sums[missing.currency, "in_bank"] -= missing.minor

    def rows(self, *, bank: bool) -> tuple[r.MoneyRow, ...]:
        """Return a row for every flow of every currency."""
        abroad = any(flow == "other_currency" for _, flow in self._counts)
        flows = [flow for flow in r.FLOWS if bank or flow not in r.BANK_FLOWS]
        flows = [flow for flow in flows if abroad or flow != "other_currency"]
        currencies = sorted({currency for currency, _ in self._counts})
        for currency in currencies:
            moved = [(currency, flow) for flow in dict.fromkeys(FLOW_OF.values())]
            self._counts[currency, "net"] = sum(self._counts[each] for each in moved)
            gone = [self._sums[currency, f] for f in ("refunded", "lost_in_disputes", "fees")]
            self._sums[currency, "net"] = self._sums[currency, "captured"] - sum(gone)
        return tuple(
            r.MoneyRow(currency=c, flow=flow, count=self._counts[c, flow], sum=self._sums[c, flow])
            for c in currencies
            for flow in flows
        )


BREAK_LINES_MAX: Final = 100_000
"""Maximum number of breaks in the report's list."""

_FLOW_OF_LINE: Final[dict[StatementKind, r.Flow]] = {
    "payment": "captured",
    "refund": "refunded",
    "returned": "refunded",
    "dispute": "lost_in_disputes",
}

LATE_LINES_MAX: Final = 10_000
"""Maximum number of late movements in the report's lists."""


class PeriodTally:
    """Sums of one period, from which its report is made."""

    def __init__(
        self,
        scope: r.Scope,
        *,
        calendar: Calendar = IN_UTC,
        elsewhere: Set[str] = frozenset(),
        break_lines: int = BREAK_LINES_MAX,
        bank: inputs.BankView | None = None,
        rates: Rates | None = None,
    ) -> None:
        """Begin with zero sums. Breaks must be added before orders."""
        self._rates = rates
        self._scope, self._elsewhere, self._bank = scope, elsewhere, bank
        self._money = MoneySums()
        if bank is not None:
            for missing in bank.differing(start=scope.start, end=scope.end):
                self._money.differ(missing)
        self._flow: orders.Totals[tuple[str, r.FlowStep]] = orders.Totals()
        self._control = orders.ControlSums()
        self._outcomes = orders.OutcomeSums()
        self._times = orders.TimeSums(scope, calendar)
        self._fees: orders.Totals[tuple[str, str]] = orders.Totals()
        self._settled_in: orders.Totals[tuple[str, str]] = orders.Totals()
        self._suspense: orders.Totals[tuple[str, r.SuspenseLine]] = orders.Totals()
        self._delays = [0] * (len(DELAYS) + 1)
        self._calendar = calendar
        self._late: orders.Totals[tuple[str, str, str]] = orders.Totals()
        self._late_lines: Bounded[r.LateLine] = Bounded(
            LATE_LINES_MAX, key=lambda one: (one.received_at, one.order, one.payment, one.cites)
        )
        self._breaks = BreakSums(break_lines, as_of=scope.as_of)
        self._changes: Counter[tuple[Outcome, Outcome]] = Counter()
        self._change_lines: Bounded[r.ChangeLine] = Bounded(
            LATE_LINES_MAX, key=lambda line: (line.at, line.order)
        )
        self._undated = 0
        self._captures: Counter[str] = Counter()
        self._unsettled: orders.Totals[tuple[str, r.Age]] = orders.Totals()

    def order(self, seen: inputs.OrderSeen) -> None:
        """Add an order, or statement lines without an order."""
        taking = seen.taking
        lines = inputs.settled(seen, strange=self._breaks.never_notified)
        self._undated += sum(each.line.settled_at is None for each in lines)
        if self._scope.basis == "settled":
            moved = self._money_by_statement(
                lines, "no_order" if taking is None else taking.outcome
            )
        else:
            moved = self._money_by_ledger(taking, lines)
        if taking is None:
            return
        self._settles(taking, lines)
        steps = orders.standing(taking, self._scope, moved=moved)
        if steps:
            price = taking.expected
            currency = orders.NO_CURRENCY if price is None else price.currency
            if price is None and taking.taken:
                currency = taking.taken[0].currency
            due = 0 if price is None else price.minor
            for step in steps:
                self._flow.add((currency, step), 1, due)
            self._control.order(currency, taking.outcome, due)
            self._outcomes.add(taking)
            if steps[0] == "new":
                self._times.add(taking)
        for taken in taking.taken:
            if taken.kind == "captured" and self._scope.start <= taken.at < self._scope.end:
                self._captures[taken.source] += 1
            if taken.at < self._scope.start <= taken.received_at < self._scope.end:
                month = self._calendar.day_of(taken.at)[:7]
                self._late.add((month, taken.kind, taken.currency), 1, taken.minor)
                self._late_lines.add(
                    r.LateLine(
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

    def _settles(self, taking: LedgerLine, lines: tuple[inputs.SettledLine, ...]) -> None:
        for taken in taking.taken:
            if taken.kind != "captured":
                continue
            of_it = [each for each in lines if any(one is taken for one in each.taken)]
            at: Instant | None = self._placed(taken)
            if self._scope.basis == "settled":
                at = of_it[0].line.settled_at if of_it else None
            if self._within(at):
                into = of_it[0].line.currency if of_it else orders.NO_CURRENCY
                # A line of several captures counts with the first: all have one currency.
                gross = sum(each.gross for each in of_it if each.taken[0] is taken)
                self._settled_in.add((taken.currency, into), 1, taken.minor, gross)

    def _settled_in_rows(self) -> tuple[r.SettledInRow, ...]:
        return tuple(
            r.SettledInRow(
                captured_in=currency,
                settled_in=into or None,
                count=count,
                captured=captured,
                settled=gross if into else None,
            )
            for (currency, into), (count, captured, gross) in sorted(self._settled_in.items())
        )

    def unsettled(self, captures: Iterable[Unsettled]) -> None:
        """Add captures that no statement line settles."""
        for each in captures:
            age = r.AGES[bisect_left(_AGES, each.days)]
            self._unsettled.add((each.currency, age), each.number, each.minor)

    def _unsettled_rows(self) -> tuple[r.UnsettledRow, ...]:
        found = {key: (count, total) for key, (count, total) in self._unsettled.items()}
        for row in self._breaks.rows():
            if row.cause == "not_settled" and row.state == "accepted":
                count, total = found.get((row.currency, row.age), (0, 0))
                found[row.currency, row.age] = (count - row.count, total - row.sum)
        return tuple(
            r.UnsettledRow(currency=currency, age=age, count=count, sum=total)
            for (currency, age), (count, total) in sorted(
                found.items(), key=lambda one: (one[0][0], r.AGES.index(one[0][1]))
            )
            if count > 0
        )

    def found(self, seen: inputs.BreakSeen) -> None:
        self._breaks.add(seen)

    def never_notified_elsewhere(self, lines: Set[str]) -> None:
        """Add ids of statement lines without a movement from other periods. Call this method before
        adding orders."""
        self._breaks.never_notified |= lines

    def suspended(self, payment: Suspended) -> None:
        """Add a payment that is, or was, unallocated."""
        start, end = self._scope.start, self._scope.end
        sums = self._suspense
        for step in payment.steps:
            at = step.known if self._scope.basis == "received" else step.at
            if at < start:
                sums.add((step.currency, "opening"), 0, step.minor)
            elif at < end:
                sign = 1 if step.flow == "received" else -1
                sums.add((step.currency, step.flow), 1, sign * step.minor)
        known = self._scope.basis == "received"
        opening = payment.held(before=start, known=known)
        for currency in opening:
            sums.add((currency, "opening"), 1, 0)
        for currency, minor in payment.held(before=end, known=known).items():
            age = age_of(payment, at=end)
            sums.add((currency, "closing"), 1, minor)
            sums.add((currency, age), 1, minor)

    def _suspense_rows(self) -> tuple[r.SuspenseRow, ...]:
        found = dict(self._suspense.items())
        return tuple(
            r.SuspenseRow(currency=currency, line=line, count=count, sum=total)
            for currency in sorted({currency for currency, _ in found})
            for line in r.SUSPENSE_LINES
            for count, total in [found.get((currency, line), (0, 0))]
        )

    def changed(self, seen: inputs.ChangeSeen) -> None:
        self._changes[seen.before, seen.after] += 1
        self._change_lines.add(
            r.ChangeLine(
                order=seen.order,
                at=seen.at,
                before=seen.before,
                after=seen.after,
                because=" ".join(seen.because),
            )
        )

    def report(
        self,
        *,
        matching: tuple[r.MatchingRow, ...] = (),
        matching_ties: tuple[r.Tie, ...] = (),
        wallets: tuple[WalletSums, ...] = (),
        notes: tuple[str, ...] = (),
        coverage: Coverage | None = None,
    ) -> r.PeriodReport:
        """Return the report."""
        flow, control = orders.flow_rows(self._flow), self._control.rows()
        money = self._money.rows(bank=self._bank is not None)
        suspense = self._suspense_rows()
        settled_in = self._settled_in_rows()
        own_rows, rates, unrated = in_own_currency(
            self._money.by_day, self._rates, settled=settled_in
        )
        own = (*r.ties(flow=flow, control=control, money=money), *r.suspense_ties(suspense))
        if self._scope.basis != "settled":
            own = (*own, *self._breaks.ties(money))
        lists: tuple[tuple[str, Bounded[Any]], ...] = (
            ("break_lines", self._breaks.lines),
            ("late_lines", self._late_lines),
            ("change_lines", self._change_lines),
        )
        return r.PeriodReport(
            scope=self._scope,
            ties=(*own, *matching_ties),
            flow=flow,
            control=control,
            money=money,
            matching=matching,
            outcomes=self._outcomes.rows(),
            findings=self._outcomes.findings(),
            times=self._times.rows(),
            delays=tuple(
                r.DelayRow(up_to=up_to, movements=count)
                for up_to, count in zip((*DELAYS, None), self._delays, strict=True)
            ),
            breaks=self._breaks.rows(),
            late=tuple(
                r.LateRow(month=month, kind=kind, currency=currency, count=count, sum=total)
                for (month, kind, currency), (count, total) in sorted(self._late.items())
            ),
            changes=tuple(
                r.ChangeRow(before=before, after=after, count=count)
                for (before, after), count in sorted(self._changes.items())
            ),
            fees=tuple(
                r.FeeRow(currency=currency, kind=kind, count=count, gross=gross, fee=fee, net=net)
                for (currency, kind), (count, gross, fee, net) in sorted(self._fees.items())
            ),
            settled_in=settled_in,
            suspense=suspense,
            coverage=coverage_rows(
                coverage or Coverage(),
                captures=self._captures,
                start=self._scope.start,
                end=self._scope.end,
            ),
            unsettled=self._unsettled_rows(),
            own=own_rows,
            rates=rates,
            wallets=wallets,
            break_lines=self._breaks.lines.lines(),
            late_lines=self._late_lines.lines(),
            change_lines=self._change_lines.lines(),
            unlisted=tuple(
                r.Unlisted(
                    table=table,
                    listed=min(each.seen, each.bound),
                    bound=each.bound,
                    left_out=max(each.seen - each.bound, 0),
                )
                for table, each in lists
            ),
            notes=tuple(r.Note(sentence=each) for each in (*self._notes(), *unrated, *notes)),
        )

    def _money_by_statement(
        self, lines: tuple[inputs.SettledLine, ...], bucket: Outcome | r.NoOrder
    ) -> bool:
        moved = False
        for each in lines:
            if not self._within(each.line.settled_at):
                continue
            moved = True
            self._on(each.line.settled_at)
            self._fee(each)
            if each.line.kind == "carried":
                self._money.add(each.line.currency, "no_movement", each.gross)
            elif each.line.kind in _FLOW_OF_LINE:
                flow = _FLOW_OF_LINE[each.line.kind]
                self._move(each.line.currency, bucket, flow=flow, minor=each.gross)
            for taken in each.taken:
                self._delays[bisect_left(DELAYS, taken.received_at - taken.at)] += 1
        return moved

    def _money_by_ledger(
        self, taking: LedgerLine | None, lines: tuple[inputs.SettledLine, ...]
    ) -> bool:
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
            self._on(self._placed(taken))
            flow = FLOW_OF[taken.kind]
            self._move(taken.currency, taking.outcome, flow=flow, minor=taken.minor)
            self._delays[bisect_left(DELAYS, taken.received_at - taken.at)] += 1
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
                self._on(each.line.settled_at)
                self._fee(each)
                if each.exchanged:
                    self._money.add(each.line.currency, "other_currency", -each.gross)
                elif each.taken:
                    apart[each.line.currency] -= each.gross
                elif each.line.line_id in self._breaks.never_notified:
                    self._money.add(each.line.currency, "not_notified", each.gross)
                elif each.gross and each.line.kind not in OF_WALLET:
                    self._money.add(each.line.currency, "no_movement", each.gross)
        for currency, minor in apart.items():
            if minor:
                self._money.add(currency, "differs", minor)
        return moved

    def _fee(self, each: inputs.SettledLine) -> None:
        line = each.line
        if line.kind in OF_WALLET:
            each = replace(each, gross=0, net=-each.fee)
        self._fees.add((line.currency, line.kind), 1, each.gross, each.fee, each.net)
        if line.kind in OF_WALLET and not each.fee:
            return
        self._money.add(each.line.currency, "settled", each.net)
        if self._bank is not None:
            self._money.add(each.line.currency, self._bank.flow_of(each.line), each.net)
        if each.fee:
            self._money.add(each.line.currency, "fees", each.fee)

    def _move(
        self, currency: str, bucket: Outcome | r.NoOrder, *, flow: r.Flow, minor: int
    ) -> None:
        amount = minor if flow == "captured" else -minor
        self._money.add(currency, flow, amount)
        self._control.money(currency, bucket, flow=flow, minor=amount)

    def _on(self, at: Instant | None) -> None:
        if self._rates is not None and at is not None:
            self._money.day = self._calendar.day_of(at)

    def _placed(self, taken: Taken) -> Instant:
        return taken.received_at if self._scope.basis == "received" else taken.at

    def _within(self, instant: Instant | None) -> bool:
        return instant is not None and self._scope.start <= instant < self._scope.end

    def _notes(self) -> Iterator[str]:
        scope = self._scope
        if scope.as_of < scope.end:
            yield "The period had not ended at the report's instant, so the report is preliminary."
        if self._undated and scope.basis == "settled":
            several = self._undated > 1
            yield (
                f"{self._undated:,} statement line{'s bear' if several else ' bears'} no "
                f"settlement date; on this basis {'they have' if several else 'it has'} no period."
            )
