"""Counting: what came in, as it comes, and where each row was placed, as it is decided.

Leaves out: what it adds up to; `match_control` has the equations. Rows are counted twice, apart:
by the streams, before anyone has looked at them, and by the bucket they were placed in. Only if
every row was placed once do the two agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconcile.instants import Instant
from reconcile.matching.breaks import Break
from reconcile.matching.control import BreakTotal, Bucket, Control, ControlLine, Read, Side
from reconcile.matching.decision import Decision
from reconcile.matching.funds import Capture, captures_of
from reconcile.matching.rows import BookRow, StatementRow, TakingRow

COUNT, SUM, FEE, NET = range(4)

Sums = list[int]
"""COUNT, SUM, FEE, NET."""


class Sheet(dict[str, Sums]):
    """Sums by currency."""

    def __missing__(self, currency: str) -> Sums:
        self[currency] = sums = [0, 0, 0, 0]
        return sums


class Tally:
    """The counts of one matching, or of a part of it; and what there is to tell, until taken.

    plain   what agrees on all sides at once: counted once here for book and takings
    settled plain captures with their statement line
    """

    def __init__(self, home: str) -> None:
        """`home`: the currency in which nothing is counted where none is known."""
        self._home = home
        self.read: dict[Side, Sheet] = {
            side: Sheet() for side in ("book", "takings", "settlement", "statement")
        }
        self.placed: dict[tuple[Side, Bucket], Sheet] = {}
        self.breaks: dict[tuple[str, str], Sums] = {}
        self.plain, self.settled = Sheet(), Sheet()
        self.unsearched = 0
        self._told: list[Decision] = []

    # --- as they come

    def takings(self, rows: Iterable[TakingRow]) -> Iterator[TakingRow]:
        """The same rows, counted."""
        orders, captures = self.read["takings"], self.read["settlement"]
        for row in rows:
            minor = row[2]
            if row[9] is not None:
                self._read_whole(row)
            else:
                sums = orders[row[3] or self._home]
                sums[COUNT] += 1
                if minor:
                    sums[SUM] += minor
                    sums = captures[row[3]]
                    sums[COUNT] += 1
                    sums[SUM] += minor
            yield row

    def _read_whole(self, row: TakingRow) -> None:
        assert row.whole is not None
        for each in row.whole.taken:
            if each.kind == "captured":
                sums = self.read["settlement"][each.currency]
                sums[COUNT] += 1
                sums[SUM] += each.minor
        self._add_order(self.read["takings"], row)

    def book(self, rows: Iterable[BookRow]) -> Iterator[BookRow]:
        """The same rows, counted."""
        read = self.read["book"]
        for row in rows:
            sums = read[row[5]]
            sums[COUNT] += 1
            sums[SUM] += row[4]
            yield row

    def statements(self, rows: Iterable[StatementRow]) -> Iterator[StatementRow]:
        """The same rows, counted."""
        read = self.read["statement"]
        for row in rows:
            sums = read[row[5]]
            sums[COUNT] += 1
            sums[SUM] += row[6]
            sums[FEE] += row[7]
            sums[NET] += row[8]
            yield row

    # --- as they are decided

    def place_orders(self, rows: Iterable[TakingRow], bucket: Bucket) -> None:
        """These orders stand in this bucket."""
        for row in rows:
            self._add_order(self._sheet("takings", bucket), row)

    def _add_order(self, sheet: Sheet, row: TakingRow) -> None:
        """Once in each currency that it captured; without money, in that of its price."""
        sums: dict[str, int] = {}
        for capture in captures_of(row):
            sums[capture.currency] = sums.get(capture.currency, 0) + capture.minor
        for currency, minor in (sums or {row.currency or self._home: 0}).items():
            _add(sheet[currency], minor)

    def place_book(self, rows: Iterable[BookRow], bucket: Bucket) -> None:
        """These book lines stand in this bucket."""
        sheet = self._sheet("book", bucket)
        for row in rows:
            _add(sheet[row.currency], row.minor)

    def place_captures(self, captures: Iterable[Capture], bucket: Bucket) -> None:
        """These captures stand in this bucket."""
        sheet = self._sheet("settlement", bucket)
        for capture in captures:
            _add(sheet[capture.currency], capture.minor)

    def place_lines(self, rows: Iterable[StatementRow], bucket: Bucket) -> None:
        """These statement lines stand in this bucket."""
        sheet = self._sheet("statement", bucket)
        for row in rows:
            _add(sheet[row.currency], row.gross, fee=row.fee, net=row.net)

    def _sheet(self, side: Side, bucket: Bucket) -> Sheet:
        found = self.placed.get((side, bucket))
        if found is None:
            found = self.placed[side, bucket] = Sheet()
        return found

    def tell(self, decision: Decision) -> None:
        """Count a break, and keep it or a match until it is taken."""
        if isinstance(decision, Break):
            money = decision.money
            sums = self.breaks.setdefault((decision.cause, money.currency), [0, 0, 0, 0])
            _add(sums, money.minor)
        self._told.append(decision)

    def told(self) -> list[Decision]:
        """What was told since this was last asked."""
        if not self._told:
            return _NOTHING
        told, self._told = self._told, []
        return told

    # --- in the end

    def absorb(self, other: Tally) -> None:
        """Add what another tally has counted."""
        for side, sheet in other.read.items():
            _merge(self.read[side], sheet)
        for place, sheet in other.placed.items():
            _merge(self.placed.setdefault(place, Sheet()), sheet)
        _merge(self.plain, other.plain)
        _merge(self.settled, other.settled)
        for cause, sums in other.breaks.items():
            _plus(self.breaks.setdefault(cause, [0, 0, 0, 0]), sums)
        self.unsearched += other.unsearched

    def control(self, as_of: Instant) -> Control:
        """The totals."""
        return Control(
            as_of=as_of,
            lines=tuple(sorted(self._lines(), key=lambda e: (e.side, e.currency, e.bucket))),
            read=tuple(
                Read(side=side, currency=c, count=s[0], sum=s[1], fee=s[2], net=s[3])
                for side, sheet in sorted(self.read.items())
                for c, s in sorted(sheet.items())
            ),
            breaks=tuple(
                BreakTotal(cause=cause, currency=currency, count=sums[COUNT], minor=sums[SUM])  # type: ignore[arg-type]
                for (cause, currency), sums in sorted(self.breaks.items())
            ),
            unsearched=self.unsearched,
        )

    def _lines(self) -> Iterator[ControlLine]:
        whole = Tally(self._home)
        whole.placed = {place: _copy(sheet) for place, sheet in self.placed.items()}
        for side, sheet in _sides_of(self.plain, self.settled):
            _merge(whole._sheet(side, "by_reference"), sheet)
        for (side, bucket), sheet in whole.placed.items():
            for currency, s in sheet.items():
                if s[COUNT]:
                    yield ControlLine(
                        side=side,
                        currency=currency,
                        bucket=bucket,
                        count=s[0],
                        sum=s[1],
                        fee=s[2],
                        net=s[3],
                    )


_NOTHING: Final[list[Decision]] = []


def _sides_of(plain: Sheet, settled: Sheet) -> Iterator[tuple[Side, Sheet]]:
    """What the quick ways counted once, for each side that it counts for."""
    yield "book", plain
    yield "takings", plain
    yield "statement", settled
    captures = Sheet()
    for currency, sums in settled.items():
        captures[currency] = [sums[COUNT], sums[SUM], 0, 0]
    yield "settlement", captures


def _add(sums: Sums, minor: int, *, fee: int = 0, net: int = 0) -> None:
    sums[COUNT] += 1
    sums[SUM] += minor
    sums[FEE] += fee
    sums[NET] += net


def _merge(into: Sheet, sheet: Mapping[str, Sums]) -> None:
    for currency, sums in sheet.items():
        _plus(into[currency], sums)


def _plus(into: Sums, sums: Sums) -> None:
    for place, value in enumerate(sums):
        into[place] += value


def _copy(sheet: Mapping[str, Sums]) -> Sheet:
    copied = Sheet()
    _merge(copied, sheet)
    return copied
