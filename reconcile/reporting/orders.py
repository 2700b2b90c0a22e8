"""Sums of orders for a report."""

from bisect import bisect_right
from collections import Counter
from typing import Final, TypeVar

from reconcile.instants import DAY, Instant
from reconcile.ledger.ledger import OUTCOMES, Outcome
from reconcile.ledger.vocabulary import FINDING_CODES, FINDINGS, FindingCode
from reconcile.matching.ledger_lines import LedgerLine
from reconcile.periods import Calendar
from reconcile.reporting import report as r

GROUP_OF: Final[dict[Outcome, r.OutcomeGroup]] = {
    "succeeded": "success",
    "charged_back": "success",
    "refunded": "success",
    "partially_refunded": "success",
    "failed": "failure",
    "canceled": "failure",
    "expired": "timeout",
    "timed_out": "timeout",
    "unresolved": "open",
    "disputed": "open",
    "authorized": "open",
    "pending": "open",
    "not_attempted": "open",
}
"""Group of each outcome. Refunded orders count as success."""

NO_CURRENCY: Final = ""
"""Currency of an order whose price and money are unknown."""

DAILY_UP_TO: Final = 92 * DAY
"""Maximum length of a chart by day."""

WEEKLY_UP_TO: Final = 732 * DAY
"""Maximum length of a chart by week."""


def standing(taking: LedgerLine, scope: r.Scope, *, moved: bool) -> tuple[r.FlowStep, ...]:
    """Return an order's steps in the period, such as `new`."""
    closed = taking.closed_at
    if closed is not None:
        closed = max(closed, taking.opened_at)
    if taking.opened_at >= scope.end or (closed is not None and closed < scope.start):
        return ("other",) if moved else ()
    entered: r.FlowStep = "opening" if taking.opened_at < scope.start else "new"
    return (entered, "closing" if closed is None or closed >= scope.end else "closed")


Key = TypeVar("Key")


class Totals(dict[Key, list[int]]):
    """Lists of sums, one list for each key."""

    def add(self, key: Key, *values: int) -> None:
        sums = self.get(key)
        if sums is None:
            self[key] = list(values)
            return
        for place, value in enumerate(values):
            sums[place] += value


def flow_rows(flow: Totals[tuple[str, r.FlowStep]]) -> tuple[r.FlowRow, ...]:
    """Return a row for every step of every currency."""
    none = [0, 0]
    return tuple(
        r.FlowRow(currency=currency or None, step=step, count=count, sum=total)
        for currency in sorted({currency for currency, _ in flow})
        for step in r.STEPS
        for count, total in (flow.get((currency, step), none),)
    )


OutcomeBucket = Outcome | r.NoOrder
_BUCKETS: Final[tuple[OutcomeBucket, ...]] = (*OUTCOMES, "no_order")


class ControlSums:
    """Orders, prices and money for each currency and outcome."""

    def __init__(self) -> None:
        self._orders: Totals[tuple[str, OutcomeBucket]] = Totals()
        self._money: Counter[tuple[str, OutcomeBucket, str]] = Counter()

    def order(self, currency: str, outcome: Outcome, price: int) -> None:
        self._orders.add((currency, outcome), 1, price)

    def money(self, currency: str, bucket: OutcomeBucket, *, flow: str, minor: int) -> None:
        self._money[currency, bucket, flow] += minor

    def rows(self) -> tuple[r.ControlRow, ...]:
        """Return the rows sorted by currency and outcome."""
        keys = set(self._orders) | {(currency, bucket) for currency, bucket, _ in self._money}
        found = sorted(keys, key=lambda key: (key[0], _BUCKETS.index(key[1])))
        return tuple(
            r.ControlRow(
                currency=currency or None,
                bucket=bucket,
                count=count,
                sum=total,
                captured=self._money[currency, bucket, "captured"],
                refunded=self._money[currency, bucket, "refunded"],
                lost=self._money[currency, bucket, "lost_in_disputes"],
            )
            for currency, bucket in found
            for count, total in (self._orders.get((currency, bucket), [0, 0]),)
        )


class OutcomeSums:
    """Numbers of orders for each outcome and reason."""

    def __init__(self) -> None:
        self._orders: Counter[tuple[Outcome, str]] = Counter()
        self._odd: Counter[tuple[Outcome, str, str]] = Counter()
        self._findings: Counter[FindingCode] = Counter()

    def add(self, taking: LedgerLine) -> None:
        key = (taking.outcome, taking.reason)
        self._orders[key] += 1
        if len(taking.payments) > 1:
            self._odd[(*key, "further_attempts")] += 1
        for code in taking.findings:
            self._odd[(*key, code)] += 1
            self._findings[code] += 1

    def rows(self) -> tuple[r.OutcomeRow, ...]:
        """Return the rows sorted by outcome, then by reason."""
        found = sorted(self._orders, key=lambda key: (OUTCOMES.index(key[0]), key[1]))
        return tuple(
            r.OutcomeRow(
                outcome=outcome,
                group=GROUP_OF[outcome],
                reason=reason,
                orders=self._orders[outcome, reason],
                further_attempts=self._odd[outcome, reason, "further_attempts"],
                redelivered=self._odd[outcome, reason, "redelivered"],
                late=self._odd[outcome, reason, "delivered_late"],
                out_of_order=self._odd[outcome, reason, "out_of_order"],
            )
            for outcome, reason in found
        )

    def findings(self) -> tuple[r.FindingRow, ...]:
        """Return the number of orders for each finding."""
        return tuple(
            r.FindingRow(
                finding=code, severity=FINDINGS[code].severity, orders=self._findings[code]
            )
            for code in FINDING_CODES
            if code in self._findings
        )


class TimeSums:
    """Number of orders opened in each interval, by group."""

    def __init__(self, scope: r.Scope, calendar: Calendar) -> None:
        self._starts = stretches(scope.start, scope.end, calendar)
        self._counts: list[Counter[str]] = [Counter() for _ in self._starts]

    def add(self, taking: LedgerLine) -> None:
        """Add an order that was opened in the period."""
        place = bisect_right(self._starts, taking.opened_at) - 1
        self._counts[place][GROUP_OF[taking.outcome]] += 1

    def rows(self) -> tuple[r.TimeRow, ...]:
        """Return a row for every interval of the period."""
        return tuple(
            r.TimeRow(start=start, **{group: counts[group] for group in r.GROUPS})
            for start, counts in zip(self._starts, self._counts, strict=True)
        )


def stretches(start: Instant, end: Instant, calendar: Calendar) -> list[Instant]:
    """Return the starts of the chart's days, weeks or months."""
    length, found = end - start, list[Instant]()
    following = start
    while following < end or not found:
        found.append(following)
        if length > WEEKLY_UP_TO:
            following = calendar.next_month(following)
        else:
            following = calendar.next_day(following, days=1 if length <= DAILY_UP_TO else 7)
    return found
