"""Adds up money: from captured to settled, fees, delays, and what was learned late.

Leaves out: orders. Every movement and line comes with the instant that the basis places it at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Duration, format_instant
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.ledger_lines import Taken, Taking
from reconcile.reporting.lists import Bounded
from reconcile.reporting.report import (
    FLOWS,
    DelayRow,
    FeeRow,
    Flow,
    LateLine,
    LateRow,
    MoneyRow,
)
from reconcile.reporting.settled import Settled

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
    """Movements and sums by currency and flow. What went back counts positive."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Flow]] = Counter()
        self._sums: Counter[tuple[str, Flow]] = Counter()

    def add(self, currency: str, flow: Flow, minor: int) -> None:
        """One movement, or one line."""
        self._counts[currency, flow] += 1
        self._sums[currency, flow] += minor

    def currencies(self) -> list[str]:
        """Those in which anything moved."""
        return sorted({currency for currency, _ in self._counts})

    def sum(self, currency: str, *flows: Flow) -> int:
        """The sums of these flows together."""
        return sum(self._sums[currency, flow] for flow in flows)

    def net(self, currency: str) -> int:
        """Captured less what went back, was lost, and was charged."""
        gone = self.sum(currency, "refunded", "lost_in_disputes", "fees")
        return self.sum(currency, "captured") - gone

    def rows(self) -> tuple[MoneyRow, ...]:
        """Every flow of every currency, in the order of the way."""
        return tuple(self._row(currency, flow) for currency in self.currencies() for flow in FLOWS)

    def _row(self, currency: str, flow: Flow) -> MoneyRow:
        if flow == "net":
            moved = sum(self._counts[currency, each] for each in dict.fromkeys(FLOW_OF.values()))
            return MoneyRow(currency=currency, flow=flow, count=moved, sum=self.net(currency))
        key = (currency, flow)
        return MoneyRow(currency=currency, flow=flow, count=self._counts[key], sum=self._sums[key])


class FeeSums:
    """Statement lines by currency and kind."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sums: Counter[tuple[str, str, str]] = Counter()

    def add(self, each: Settled) -> None:
        """One line placed in the period."""
        key = (each.line.currency, each.line.kind)
        self._counts[key] += 1
        self._sums[(*key, "gross")] += each.gross
        self._sums[(*key, "fee")] += each.fee
        self._sums[(*key, "net")] += each.net

    def rows(self) -> tuple[FeeRow, ...]:
        """By currency and kind."""
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
    """Movements by how long they took to reach us."""

    def __init__(self) -> None:
        self._counts = [0] * (len(DELAYS) + 1)

    def add(self, taken: Taken) -> None:
        """One movement placed in the period."""
        self._counts[bisect_left(DELAYS, taken.received_at - taken.at)] += 1

    def rows(self) -> tuple[DelayRow, ...]:
        """Every class, the empty ones too."""
        return tuple(
            DelayRow(up_to=up_to, movements=count)
            for up_to, count in zip((*DELAYS, None), self._counts, strict=True)
        )


class LateSums:
    """Movements of earlier months that became known in the period."""

    def __init__(self, bound: int) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._sums: Counter[tuple[str, str, str]] = Counter()
        self.lines: Bounded[LateLine] = Bounded(
            bound, key=lambda line: (line.received_at, line.order, line.payment, line.cites)
        )

    def add(self, taking: Taking, taken: Taken) -> None:
        """One such movement."""
        key = (format_instant(taken.at)[:7], taken.kind, taken.currency)
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
        """By month, kind and currency."""
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
