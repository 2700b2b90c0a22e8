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
from dataclasses import dataclass

from reconcile.instants import Instant
from reconcile.matching.control import Control
from reconcile.matching.decision import MATCH_KINDS, Decision, Match, MatchKind
from reconcile.matching.end import second_look
from reconcile.matching.group import Deciding
from reconcile.matching.merge import Plain, merge
from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from reconcile.matching.rules import Coverage, HandMatch, MatchRules
from reconcile.matching.tally import Tally
from reconcile.matching.terms import Terms
from reconcile.matching.unmatched import Left

__all__ = ["MATCH_KINDS", "Decision", "Match", "MatchKind", "Matching", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """What one range of keys counted and left over. It can be pickled."""

    tally: Tally
    left: Left


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
        terms = Terms(rules=rules, as_of=as_of, coverage=coverage, hands=hands)
        self._terms, self._tally, self._left = terms, Tally(rules.currency), Left()
        self._deciding = Deciding(terms, self._tally, self._left)

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
        tally, deciding = self._tally, self._deciding
        plain = Plain(
            agreed=tally.plain,
            settled=tally.settled,
            fee_fits=self._terms.fee_fits if self._terms.any_fees else None,
            unsettled=deciding.plainly_unsettled,
        )
        groups = merge(
            tally.takings(takings), tally.book(book), tally.statements(statements), plain=plain
        )
        for group in groups:
            deciding.group(group)
            yield from tally.told()
        yield from tally.told()

    def part(self) -> Part:
        """What `by_key` counted and left over, to be absorbed elsewhere."""
        return Part(self._tally, self._left)

    def absorb(self, part: Part) -> None:
        """Take over what another matching under the same rules counted and left over.

        What is beyond the bound of the second look is decided at once; `rest` tells of it.
        """
        self._tally.absorb(part.tally)
        self._deciding.absorb(part.left)

    def rest(self) -> Iterator[Decision]:
        """The second look: what no key brought together, by hand, payment, group and rule; then
        the breaks of what is left, with their nearest candidates."""
        yield from self._tally.told()
        yield from second_look(self._deciding)

    def control(self) -> Control:
        """The totals of all that was decided so far; complete after `rest`."""
        return self._tally.control(self._terms.as_of)
