"""What a report and a journal need of the bank: where the money of each statement line is.

Leaves out: matching (`matching.bank`). A line's money is on its way from the statement's date on,
where the bank is there to say when it came.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reconcile.instants import Instant
from reconcile.matching.bank import BankLeg, Link
from reconcile.matching.books import StatementLine
from reconcile.matching.control import Bucket
from reconcile.money import Money
from reconcile.reporting.report import Flow

_UNBOOKED: Final[frozenset[Bucket]] = frozenset({"bank_line_unknown", "awaiting_statement"})
"""Bank lines of a provider of which no payout is known."""

Key = tuple[str, str | None, str]
"""(source, payout, currency)"""


class BankView:
    """A leg, by the payouts that statement lines name."""

    def __init__(self, leg: BankLeg) -> None:
        self.links = leg.links
        self._flows: dict[Key, Flow] = {}
        self._covered: set[Key] = set()
        for link in leg.links:
            flow: Flow = "in_bank" if link.expected is None else "exchanged"
            for each in link.payouts:
                self._flows[each.source, each.reference, each.currency] = flow
                self._covered.add((each.source, each.reference, each.currency))
        for alone in leg.alone:
            if alone.payout is not None and alone.bucket != "not_covered":
                payout = alone.payout
                self._covered.add((payout.source, payout.reference, payout.currency))
        self.unbooked = tuple(
            [e.line for e in leg.alone if e.line is not None and e.bucket in _UNBOOKED]
        )

    def flow_of(self, line: StatementLine) -> Flow:
        """Where the net of a statement line is."""
        if line.payout is None:
            return "no_payout"
        return self._flows.get((line.source, line.payout, line.currency), "not_in_bank")

    def on_its_way(self, line: StatementLine) -> bool:
        """Whether the bank is there to say when the line's money came."""
        return (line.source, line.payout, line.currency) in self._covered

    def differing(self, *, start: Instant, end: Instant) -> Iterator[Money]:
        """By how much the bank has less than was paid out, of each transfer of the period."""
        for link in self.links:
            if link.expected is None and link.missing.minor and start <= link.at < end:
                yield link.missing


def dated(link: Link) -> Instant:
    """When the whole of a transfer had been booked."""
    return max([each.booked_at for each in link.lines])
