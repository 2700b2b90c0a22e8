"""Ledgers, order book and statements side by side: what agrees, what differs, and why.

Leaves out: reading and storing. Three streams of rows go in, in key order (`match_rows`); matches
and breaks come out as they are decided, and the control totals at the end. Memory does not grow
with the streams: what agrees is counted and forgotten, and what is left over is bounded in number.

    matching = Matching(rules=rules, as_of=as_of, coverage=coverage, hands=hands)
    for decision in matching.decide(takings=…, book=…, statements=…): ...   # Match or Break
    matching.control()

To match on several cores, cut the keys into ranges: `by_key` for each range in a process of its
own, then `absorb` every `Part` in one process and take what `rest` yields there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, get_args

from reconcile.breaks import Break
from reconcile.canonical import fingerprint
from reconcile.instants import Instant
from reconcile.ledger import Facts
from reconcile.match_control import Control
from reconcile.match_rows import BookRow, StatementRow, TakingRow
from reconcile.match_rules import Coverage, HandMatch, MatchRules
from reconcile.money import Money
from reconcile.values import frozen

MatchKind = Literal["by_payment", "by_group", "by_tolerance", "by_date_window", "by_hand"]
MATCH_KINDS: Final[tuple[MatchKind, ...]] = get_args(MatchKind)
"""How lines came together whose match is not plain. Plain ones (one order, one reference, equal
amounts) are counted in the control totals and not told one by one."""


@frozen
class Match:
    """Lines that belong together though reference or amount alone does not say so.

    order   the order's reference, where a ledger is part of it
    lines   ids of the book and statement lines that it claims, sorted
    money   what was captured, or where no ledger is part of it the sum of the book lines
    facts   what was different and was let pass: `difference`, `apart_us`, …
    """

    kind: MatchKind
    order: str | None
    payment: str | None
    lines: tuple[str, ...]
    money: Money
    facts: Facts = ()

    @property
    def identity(self) -> str:
        """The same for the same match in every run: `mat_` and 20 hex digits."""
        told = fingerprint([self.kind, self.order, self.payment, list(self.lines)])
        return "mat_" + told.removeprefix("sha256:")[:20]


Decision = Match | Break


class Matching:
    """One matching under one set of rules, as of one instant."""

    def __init__(
        self,
        *,
        rules: MatchRules,
        as_of: Instant,
        coverage: Coverage,
        hands: Iterable[HandMatch] = (),
    ) -> None:
        """`hands` speak of what matching by key leaves open or ambiguous; they undo no match."""
        self._rules, self._as_of, self._coverage = rules, as_of, coverage
        self._hands = tuple(hands)

    def decide(
        self,
        *,
        takings: Iterable[TakingRow],
        book: Iterable[BookRow],
        statements: Iterable[StatementRow],
    ) -> Iterator[Decision]:
        """`by_key` and then `rest`: everything, on one core."""
        yield from self.by_key(takings=takings, book=book, statements=statements)
        yield from self.rest()

    def by_key(
        self,
        *,
        takings: Iterable[TakingRow],
        book: Iterable[BookRow],
        statements: Iterable[StatementRow],
    ) -> Iterator[Decision]:
        """Merge three streams in key order. Raises ValueError for a stream that is not."""
        raise NotImplementedError

    def part(self) -> Part:
        """What `by_key` counted and left over: to be absorbed elsewhere. It can be pickled."""
        raise NotImplementedError

    def absorb(self, part: Part) -> None:
        """Take over what another matching under the same rules counted and left over."""
        raise NotImplementedError

    def rest(self) -> Iterator[Decision]:
        """The second look: what no key brought together, by hand, payment, group and rule; then
        the breaks of what is left, with their nearest candidates."""
        raise NotImplementedError

    def control(self) -> Control:
        """The totals of all that was decided so far; complete after `rest`."""
        raise NotImplementedError


class Part:
    """What one range of keys came to."""
