"""Count rows twice: as they are read, and by bucket as they are decided.

The counts agree only if every row was put into one bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from reconcile.instants import EARLIEST, Instant
from reconcile.matching.breaks import Break
from reconcile.matching.control import BreakTotal, Bucket, Control, ControlLine, Read, Side
from reconcile.matching.decide import Decision
from reconcile.matching.funds import Capture, captures_of
from reconcile.matching.rows import BookRow, StatementRow, TakingRow

COUNT, SUM, FEE, NET = range(4)

Sums = list[int]
"""Number of rows, sum, fee and net, in this order."""


class Sheet(dict[str, Sums]):
    """Counts and sums of rows for each currency."""

    def __missing__(self, currency: str) -> Sums:
        self[currency] = sums = [0, 0, 0, 0]
        return sums


class Unsettled(NamedTuple):
    """Captures of one source, currency and age that no statement line settles.

    The age is in whole days.
    """

    source: str
    currency: str
    days: int
    number: int
    minor: int


class Tally:
    """Counts, matches and breaks of one matching, or of a part.

    plain      ordinary orders that agree with the book, and their book lines
    settled    ordinary captures with their statement line
    unsettled  captures that no statement line settles yet, by source, currency and age in days
    """

    def __init__(self, home: str) -> None:
        """Begin with zero counts. The currency `home` stands for an unknown currency."""
        self._home = home
        self.read: dict[Side, Sheet] = {
            side: Sheet() for side in ("book", "takings", "settlement", "statement")
        }
        self.placed: dict[tuple[Side, Bucket], Sheet] = {}
        self.breaks: dict[tuple[str, str], Sums] = {}
        self.plain, self.settled = Sheet(), Sheet()
        self.unsettled: dict[tuple[str, str, int], Sums] = {}
        self.unsearched = 0
        self._decisions: list[Decision] = []

    # --- as they are read: in batches, column by column, because every row passes here

    def takings(self, rows: Iterable[TakingRow]) -> Iterator[TakingRow]:
        """Yield the orders' rows unchanged, and count them."""
        return chain.from_iterable(map(self._read_takings, _batches(rows)))

    def _read_takings(self, rows: list[TakingRow]) -> list[TakingRow]:
        orders, captures = self.read["takings"], self.read["settlement"]
        plain = [row for row in rows if row[9] is None]
        if len(plain) < len(rows):
            for row in rows:
                if row[9] is not None:
                    for each in row[9].taken:
                        if each.kind == "captured":
                            _add(captures[each.currency], each.minor)
                    self._add_order(orders, row)
        for currency, own in _by_currency(plain, 3):
            minors = [row[2] for row in own]
            came = len(minors) - minors.count(0)
            _plus(orders[currency or self._home], (len(minors), sum(minors)))
            if came:
                _plus(captures[currency], (came, sum(minors)))
        return rows

    def book(self, rows: Iterable[BookRow]) -> Iterator[BookRow]:
        return chain.from_iterable(map(self._read_book, _batches(rows)))

    def _read_book(self, rows: list[BookRow]) -> list[BookRow]:
        for currency, own in _by_currency(rows, 5):
            _plus(self.read["book"][currency], (len(own), sum([row[4] for row in own])))
        return rows

    def statements(self, rows: Iterable[StatementRow]) -> Iterator[StatementRow]:
        return chain.from_iterable(map(self._read_statements, _batches(rows)))

    def _read_statements(self, rows: list[StatementRow]) -> list[StatementRow]:
        for currency, own in _by_currency(rows, 5):
            gross, fee = sum([row[6] for row in own]), sum([row[7] for row in own])
            net = sum([row[8] for row in own])
            _plus(self.read["statement"][currency], (len(own), gross, fee, net))
        return rows

    # --- as they are decided

    def place_orders(self, rows: Iterable[TakingRow], bucket: Bucket) -> None:
        for row in rows:
            self._add_order(self._sheet("takings", bucket), row)

    def _add_order(self, sheet: Sheet, row: TakingRow) -> None:
        sums: dict[str, int] = {}
        for capture in captures_of(row):
            sums[capture.currency] = sums.get(capture.currency, 0) + capture.minor
        for currency, minor in (sums or {row.currency or self._home: 0}).items():
            _add(sheet[currency], minor)

    def place_book(self, rows: Iterable[BookRow], bucket: Bucket) -> None:
        sheet = self._sheet("book", bucket)
        for row in rows:
            _add(sheet[row.currency], row.minor)

    def place_captures(self, captures: Iterable[Capture], bucket: Bucket) -> None:
        sheet = self._sheet("settlement", bucket)
        for capture in captures:
            _add(sheet[capture.currency], capture.minor)

    def keep_unsettled(self, capture: Capture, *, days: int) -> None:
        """Count a capture that has had no statement line for `days` days."""
        key = (capture.source, capture.currency, days)
        sums = self.unsettled.setdefault(key, [0, 0, 0, 0])
        _add(sums, capture.minor)

    def place_lines(self, rows: Iterable[StatementRow], bucket: Bucket) -> None:
        sheet = self._sheet("statement", bucket)
        for row in rows:
            _add(sheet[row.currency], row.gross, fee=row.fee, net=row.net)

    def _sheet(self, side: Side, bucket: Bucket) -> Sheet:
        found = self.placed.get((side, bucket))
        if found is None:
            found = self.placed[side, bucket] = Sheet()
        return found

    def report(self, decision: Decision) -> None:
        """Store a match or break until `take_decisions` returns it. Breaks are also counted."""
        if isinstance(decision, Break):
            money = decision.money
            sums = self.breaks.setdefault((decision.cause, money.currency), [0, 0, 0, 0])
            _add(sums, money.minor)
        self._decisions.append(decision)

    def take_decisions(self) -> list[Decision]:
        """Return the matches and breaks that were reported since the last call."""
        if not self._decisions:
            return _NOTHING
        decisions, self._decisions = self._decisions, []
        return decisions

    def absorb(self, other: Tally) -> None:
        for side, sheet in other.read.items():
            _merge(self.read[side], sheet)
        for place, sheet in other.placed.items():
            _merge(self.placed.setdefault(place, Sheet()), sheet)
        _merge(self.plain, other.plain)
        _merge(self.settled, other.settled)
        for cause, sums in other.breaks.items():
            _plus(self.breaks.setdefault(cause, [0, 0, 0, 0]), sums)
        for age, sums in other.unsettled.items():
            _plus(self.unsettled.setdefault(age, [0, 0, 0, 0]), sums)
        self.unsearched += other.unsearched

    def control(self, as_of: Instant) -> Control:
        whole = Tally(self._home)
        for place, sheet in self.placed.items():
            _merge(whole.placed.setdefault(place, Sheet()), sheet)
        # `merge` counted plain orders once for all sides.
        for side in ("book", "takings"):
            _merge(whole._sheet(side, "by_reference"), self.plain)
        _merge(whole._sheet("statement", "by_reference"), self.settled)
        captures = {c: sums[: SUM + 1] for c, sums in self.settled.items()}
        _merge(whole._sheet("settlement", "by_reference"), captures)
        lines = [
            ControlLine(
                side=side, currency=c, bucket=bucket, count=s[0], sum=s[1], fee=s[2], net=s[3]
            )
            for (side, bucket), sheet in whole.placed.items()
            for c, s in sheet.items()
            if s[COUNT]
        ]
        return Control(
            as_of=as_of,
            lines=tuple(sorted(lines, key=lambda e: (e.side, e.currency, e.bucket))),
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


class KeepingTally(Tally):
    """Counts of a matching, with rows of one bucket."""

    def __init__(self, home: str, *, side: Side, bucket: Bucket, currency: str, most: int) -> None:
        super().__init__(home)
        self.rows: list[TakingRow | BookRow | Capture | StatementRow] = []
        self._place, self._currency, self._most = (side, bucket), currency, most

    def _keep(self, side: Side, bucket: Bucket, rows: Iterable[Any]) -> None:
        if (side, bucket) == self._place:
            for row in rows:
                own = (
                    {each.currency for each in captures_of(row)} or {row.currency or self._home}
                    if isinstance(row, TakingRow)
                    else {row.currency}
                )
                if self._currency in own and len(self.rows) < self._most:
                    self.rows.append(row)

    def place_orders(self, rows: Iterable[TakingRow], bucket: Bucket) -> None:
        some = list(rows)
        super().place_orders(some, bucket)
        self._keep("takings", bucket, some)

    def place_book(self, rows: Iterable[BookRow], bucket: Bucket) -> None:
        some = list(rows)
        super().place_book(some, bucket)
        self._keep("book", bucket, some)

    def place_captures(self, captures: Iterable[Capture], bucket: Bucket) -> None:
        some = list(captures)
        super().place_captures(some, bucket)
        self._keep("settlement", bucket, some)

    def place_lines(self, rows: Iterable[StatementRow], bucket: Bucket) -> None:
        some = list(rows)
        super().place_lines(some, bucket)
        self._keep("statement", bucket, some)


_NOTHING: Final[list[Decision]] = []


def _add(sums: Sums, minor: int, *, fee: int = 0, net: int = 0) -> None:
    sums[COUNT] += 1
    sums[SUM] += minor
    sums[FEE] += fee
    sums[NET] += net


def _merge(into: Sheet, sheet: Mapping[str, Sums]) -> None:
    for currency, sums in sheet.items():
        _plus(into[currency], sums)


def _plus(into: Sums, sums: Sequence[int]) -> None:
    for place, value in enumerate(sums):
        into[place] += value


Row = TypeVar("Row", TakingRow, BookRow, StatementRow)

BATCH_ROWS: Final = 500
"""Number of rows that are counted in one batch."""


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    more = iter(rows)
    while batch := list(islice(more, BATCH_ROWS)):
        yield batch


def _by_currency(rows: list[Row], place: int) -> Iterator[tuple[str, list[Row]]]:
    of: Callable[[Row], Any] = itemgetter(place)
    currencies: set[str] = set(map(of, rows))
    for currency in currencies:
        yield currency, rows if len(currencies) == 1 else [r for r in rows if of(r) == currency]


# --- three sorted streams, a key at a time -------------------------------------------------------


END: Final = "\U0010ffff" * 64
"""Key that sorts after every other key."""

_NO_LEDGER_LINE: Final = TakingRow(END, "", 0, "", "", "", "", EARLIEST, EARLIEST)
_NO_BOOK: Final = BookRow(END, "", "", "order", 0, "")
_NO_LINE: Final = StatementRow(END, "", None, None, "fee", "", 0, 0, 0)

MOST_AT_ONCE: Final = 10_000
"""Maximum number of rows of one stream that a group may have.

A larger group means that a wrong column was mapped as the key.
"""


class Group(NamedTuple):
    """All rows of the three streams that have one key."""

    key: str
    takings: list[TakingRow]
    book: list[BookRow]
    statements: list[StatementRow]


class Plain(NamedTuple):
    """Counters and functions for ordinary orders that agree with the book."""

    agreed: Sheet
    """Sums in which book and ledger lines are counted."""
    settled: Sheet
    """Sums in which statement lines are counted."""
    fee_fits: Callable[[TakingRow, StatementRow], bool] | None
    """Checks whether a line's fee is the expected fee. None without expected fees."""
    unsettled: Callable[[TakingRow], None]
    """Called with each ordinary order whose capture has no statement line."""


def merge(
    takings: Iterator[TakingRow],
    book: Iterator[BookRow],
    lines: Iterator[StatementRow],
    *,
    plain: Plain | None,
) -> Iterator[Group]:
    """Merge three streams by key, and yield the rows that need a closer look.

    Raises ValueError if a stream is not sorted by key.
    """
    fast = plain is not None
    agreed, settled, fee_fits, unsettled = plain or Plain(Sheet(), Sheet(), None, lambda _: None)
    t, b, s = next(takings, _NO_LEDGER_LINE), next(book, _NO_BOOK), next(lines, _NO_LINE)
    t2, b2, s2 = next(takings, _NO_LEDGER_LINE), next(book, _NO_BOOK), next(lines, _NO_LINE)
    last, count, captured, fees, net = "", 0, 0, 0, 0
    while True:
        # Positions instead of names: this runs for every order.
        key = t[0]
        if (
            fast
            and t2[0] > key == b[0] < b2[0]
            and t[9] is None
            and (minor := t[2])
            and minor == b[4]
            and (currency := t[3]) == b[5]
            and not b[9]  # nothing refunded; the next line is the status
            and (b[7] == "paid" or b[7] is None)
            and (
                (unseen := s[0] > key)
                or (s[0] == key < s2[0] and _is_of(s, t) and (not fee_fits or fee_fits(t, s)))
            )
        ):
            if unseen:
                _plus(agreed[currency], (1, minor))
                unsettled(TakingRow(*t))
            else:
                if currency != last:
                    _agree(agreed, settled, last, (count, captured, fees, net))
                    last, count, captured, fees, net = currency, 0, 0, 0, 0
                count, captured = count + 1, captured + minor
                fees, net = fees + s[7], net + s[8]
                s, s2 = s2, next(lines, _NO_LINE)
            t, t2 = t2, next(takings, _NO_LEDGER_LINE)
            b, b2 = b2, next(book, _NO_BOOK)
            continue
        _agree(agreed, settled, last, (count, captured, fees, net))
        count = captured = fees = net = 0
        if (key := min(t[0], b[0], s[0])) == END:
            return
        group = Group(key, [], [], [])
        t, t2 = _gather(group.takings, key, t, t2, rows=takings, none=_NO_LEDGER_LINE)
        b, b2 = _gather(group.book, key, b, b2, rows=book, none=_NO_BOOK)
        s, s2 = _gather(group.statements, key, s, s2, rows=lines, none=_NO_LINE)
        yield group


def _agree(agreed: Sheet, settled: Sheet, currency: str, sums: Sequence[int]) -> None:
    if sums[COUNT]:
        _plus(settled[currency], sums)
        _plus(agreed[currency], sums[: SUM + 1])


def _is_of(s: StatementRow, t: TakingRow) -> bool:
    return (
        s[6] == t[2]
        and s[5] == t[3]
        and s[4] == "payment"
        and (s[2] == t[5] or s[2] is None)
        and (s[11] == t[4] or not s[11])
    )


def _gather(
    into: list[Row], key: str, one: Row, two: Row, *, rows: Iterator[Row], none: Row
) -> tuple[Row, Row]:
    make: Callable[..., Row] = type(none)
    while one[0] == key:
        if len(into) == MOST_AT_ONCE:
            return one, two
        into.append(make(*one))
        one, two = two, next(rows, none)
    if one[0] < key:
        raise ValueError(f"the rows are not in the order of their keys after {key[:40]!r}")
    return one, two
