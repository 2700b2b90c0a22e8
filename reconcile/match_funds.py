"""An order's money as a match looks at it: what was captured, what went back, and what is odd.

Leaves out: books and statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconcile.instants import Instant
from reconcile.ledger import EntryKind, FindingCode
from reconcile.match_rows import TakingRow
from reconcile.money import MAX_MINOR, Money


class Capture(NamedTuple):
    """Money that came once; `minor` is positive."""

    key: str
    order: str
    source: str
    payment: str
    minor: int
    currency: str
    at: Instant
    cites: tuple[str, ...]


class Return(NamedTuple):
    """Money that went back once; `minor` is positive."""

    kind: EntryKind
    payment: str
    minor: int
    currency: str
    at: Instant
    cites: tuple[str, ...]


@dataclass(slots=True)
class Funds:
    """The money of one order, or of several that a group or a person puts together.

    currency   of the price, where money of it came, else of the first money that moved, or may have
    others     whether money of another currency came as well
    captured, refunded   in `currency`, both positive
    in_doubt   what may have been captured beside, in `currency`: of an unresolved order only
    owed       what is held beyond the price because it was paid twice
    at         when the last money came, else when the order was opened
    """

    rows: tuple[TakingRow, ...]
    captures: list[Capture]
    returns: list[Return]
    findings: frozenset[FindingCode]
    unresolved: bool
    disputed: bool
    currency: str
    others: bool
    captured: int
    refunded: int
    in_doubt: int
    owed: int
    at: Instant

    @property
    def order(self) -> str:
        """The order's reference; the first of several."""
        return self.rows[0].order

    @property
    def kept(self) -> int:
        """What came and has not gone back."""
        return self.captured - self.refunded

    @property
    def at_stake(self) -> int:
        """What may have been taken or given back, whichever is more; at most what can be kept."""
        return min(max(self.captured + self.in_doubt, self.refunded), MAX_MINOR)

    @property
    def moved(self) -> bool:
        """Whether there is anything to reconcile: money, or doubt about it."""
        return bool(self.captures) or self.unresolved

    @property
    def late(self) -> bool:
        """Whether money came after cancellation, expiry or deadline."""
        return not self.findings.isdisjoint(("paid_after_cancel", "success_after_deadline"))

    @property
    def returned_at(self) -> Instant:
        """When money last went back; `at` where none did."""
        return max([each.at for each in self.returns], default=self.at)

    @property
    def cites(self) -> tuple[str, ...]:
        """The events that its movements rest on, each once."""
        told = [cite for each in self.captures for cite in each.cites]
        told += [cite for each in self.returns for cite in each.cites]
        return tuple(dict.fromkeys(told))

    def money(self, minor: int) -> Money:
        """An amount in its currency."""
        return Money(minor=minor, currency=self.currency)


def funds_of(rows: Sequence[TakingRow]) -> Funds:
    """The money of these orders."""
    captures = [each for row in rows for each in captures_of(row)]
    returns = [each for row in rows for each in _returns_of(row)]
    wholes = [row.whole for row in rows if row.whole is not None]
    doubts = [money for whole in wholes for money in whole.in_doubt]
    moved = captures or doubts or returns
    currency = _currency(rows, [each.currency for each in moved])
    captured = sum([each.minor for each in captures if each.currency == currency])
    refunded = sum([each.minor for each in returns if each.currency == currency])
    return Funds(
        rows=tuple(rows),
        captures=captures,
        returns=returns,
        findings=frozenset([code for whole in wholes for code in whole.findings]),
        unresolved=any(whole.outcome == "unresolved" for whole in wholes),
        disputed=any(whole.outcome == "disputed" for whole in wholes),
        currency=currency,
        others=any(each.currency != currency for each in captures),
        captured=captured,
        refunded=refunded,
        in_doubt=sum([money.minor for money in doubts if money.currency == currency]),
        owed=_owed(rows, captured - refunded),
        at=max([each.at for each in captures], default=max([row.opened_at for row in rows])),
    )


def captures_of(row: TakingRow) -> list[Capture]:
    """Every capture of one order."""
    if row.whole is None:
        if not row.minor:
            return []
        place = (row.key, row.order, row.source, row.payment)
        return [Capture(*place, row.minor, row.currency, row.at, (row.cite,))]
    return [
        Capture(row.key, row.order, t.source, t.payment, t.minor, t.currency, t.at, t.cites)
        for t in row.whole.taken
        if t.kind == "captured"
    ]


def _returns_of(row: TakingRow) -> Iterator[Return]:
    for taken in () if row.whole is None else row.whole.taken:
        if taken.kind != "captured":
            minor, currency = -taken.minor, taken.currency
            yield Return(taken.kind, taken.payment, minor, currency, taken.at, taken.cites)


def _currency(rows: Sequence[TakingRow], moved: Sequence[str]) -> str:
    prices = [row.whole.expected for row in rows if row.whole is not None]
    stated = [price.currency for price in prices if price is not None]
    if not moved:
        return stated[0] if stated else rows[0].currency
    return stated[0] if stated and stated[0] in moved else moved[0]


def _owed(rows: Sequence[TakingRow], kept: int) -> int:
    whole = rows[0].whole
    if len(rows) > 1 or whole is None or whole.expected is None:
        return 0
    return max(0, kept - whole.expected.minor) if "paid_twice" in whole.findings else 0
