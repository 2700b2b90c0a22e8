"""Lists that end at a bound, and breaks and changes of outcome, which are counted and listed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from reconcile.instants import DAY, Duration, Instant
from reconcile.ledger.ledger import Outcome
from reconcile.matching.breaks import BREAK_CAUSES, BreakCause
from reconcile.reporting.input import BreakSeen, ChangeSeen
from reconcile.reporting.report import AGES, Age, BreakLine, BreakRow, ChangeLine, ChangeRow

Line = TypeVar("Line")

_AGES: Final[tuple[Duration, ...]] = (DAY, 7 * DAY, 30 * DAY, 90 * DAY)
"""Upper ends of the age classes but the last."""


class Bounded(Generic[Line]):
    """The first `bound` of all lines in the order of `key`, and how many came in all.

    Memory is that of twice the bound: what is too much is let go once it has doubled.
    """

    def __init__(self, bound: int, *, key: Callable[[Line], Any]) -> None:
        self.bound = bound
        self.seen = 0
        self._key = key
        self._lines: list[Line] = []

    def add(self, line: Line) -> None:
        """One more."""
        self.seen += 1
        self._lines.append(line)
        if len(self._lines) > 2 * self.bound:
            self._lines = list(self.lines())

    def lines(self) -> tuple[Line, ...]:
        """Those that are kept, sorted."""
        return tuple(sorted(self._lines, key=self._key)[: self.bound])


class BreakSums:
    """Breaks by cause, age, state and currency, and the oldest of them one by one."""

    def __init__(self, bound: int, *, as_of: Instant) -> None:
        self._as_of = as_of
        self._counts: Counter[tuple[BreakCause, Age, str, str]] = Counter()
        self._sums: Counter[tuple[BreakCause, Age, str, str]] = Counter()
        self.lines: Bounded[BreakLine] = Bounded(
            bound, key=lambda line: (line.since, line.identity)
        )

    def add(self, seen: BreakSeen) -> None:
        """One break."""
        found = seen.found
        aged = max(self._as_of - found.since, 0)
        key = (found.cause, AGES[bisect_left(_AGES, aged)], seen.state, found.money.currency)
        self._counts[key] += 1
        self._sums[key] += found.money.minor
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
                age_days=aged // DAY,
                sentence=seen.sentence,
                next_step=seen.next_step,
                cites=found.cites,
            )
        )

    def rows(self) -> tuple[BreakRow, ...]:
        """By cause and age, in the order of their vocabularies, then by state and currency."""
        found = sorted(
            self._counts, key=lambda key: (BREAK_CAUSES.index(key[0]), AGES.index(key[1]), key[2:])
        )
        return tuple(
            BreakRow(
                cause=cause,
                age=age,
                state=state,
                currency=currency,
                count=self._counts[cause, age, state, currency],
                sum=self._sums[cause, age, state, currency],
            )
            for cause, age, state, currency in found
        )


class ChangeSums:
    """Changed outcomes of earlier orders, and the first of them one by one."""

    def __init__(self, bound: int) -> None:
        self._counts: Counter[tuple[Outcome, Outcome]] = Counter()
        self.lines: Bounded[ChangeLine] = Bounded(bound, key=lambda line: (line.at, line.order))

    def add(self, seen: ChangeSeen) -> None:
        """One order whose outcome changed."""
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
        """By what it was and what it is."""
        return tuple(
            ChangeRow(before=before, after=after, count=self._counts[before, after])
            for before, after in sorted(self._counts)
        )
