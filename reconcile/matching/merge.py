"""Three sorted streams side by side, a key at a time; what plainly agrees is counted on the way.

Leaves out: everything that is not plain: such keys are given on as a `Group`.

The quick way is for one order with one capture, one book line and at most one statement line, all
of one key and of equal money. It looks at a dozen plain fields and makes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from reconcile.matching.tally import Sheet

END: Final = "\U0010ffff" * 64
"""Comes after every key. References are shorter, and none begins with this noncharacter."""

_NO_TAKING: Final = TakingRow(END, "", 0, "", "", "", "", 0, 0)
_NO_BOOK: Final = BookRow(END, "", "", "order", 0, "")
_NO_LINE: Final = StatementRow(END, "", None, None, "fee", "", 0, 0, 0)

MOST_AT_ONCE: Final = 10_000
"""Rows of one stream and key that are looked at together: no order has so many lines, but a file
whose reference column is the wrong one has, and lines that name no order all have one key. What
is beyond comes as a further group of that key."""

_TAKEN_AS_PAID: Final = ("paid", None)


class Group(NamedTuple):
    """The rows of one key."""

    key: str
    takings: list[TakingRow]
    book: list[BookRow]
    statements: list[StatementRow]


class Plain(NamedTuple):
    """Where the quick way leaves its counts: book and takings in `agreed`, statements in `settled`.

    fee_fits  whether a statement line's fee is the expected one; None where none is known
    unsettled is told of a plain order whose capture has no statement line
    """

    agreed: Sheet
    settled: Sheet
    fee_fits: Callable[[TakingRow, StatementRow], bool] | None
    unsettled: Callable[[TakingRow], None]


def merge(
    takings: Iterator[TakingRow],
    book: Iterator[BookRow],
    lines: Iterator[StatementRow],
    *,
    plain: Plain,
) -> Iterator[Group]:
    """Every key that does not plainly agree. Raises ValueError for a stream that is not sorted."""
    agreed, settled, fee_fits, unsettled = plain
    t, b, s = next(takings, _NO_TAKING), next(book, _NO_BOOK), next(lines, _NO_LINE)
    t2, b2, s2 = next(takings, _NO_TAKING), next(book, _NO_BOOK), next(lines, _NO_LINE)
    while True:
        # Positions instead of names: this is done once for each order there is.
        key = t[0]
        if (
            key == b[0]
            and t2[0] > key < b2[0]
            and t[9] is None
            and (minor := t[2])
            and minor == b[4]
            and (currency := t[3]) == b[5]
            and b[7] in _TAKEN_AS_PAID
            and (
                (unseen := s[0] > key)
                or (s[0] == key < s2[0] and _is_of(s, t) and (not fee_fits or fee_fits(t, s)))
            )
        ):
            if unseen:
                unsettled(t)
            else:
                sums = settled[currency]
                sums[0] += 1
                sums[1] += minor
                sums[2] += s[7]
                sums[3] += s[8]
                s, s2 = s2, next(lines, _NO_LINE)
            sums = agreed[currency]
            sums[0] += 1
            sums[1] += minor
            t, t2 = t2, next(takings, _NO_TAKING)
            b, b2 = b2, next(book, _NO_BOOK)
            continue
        key = min(t[0], b[0], s[0])
        if key == END:
            return
        group = Group(key, [], [], [])
        t, t2 = _gather(group.takings, key, t, t2, rows=takings, none=_NO_TAKING)
        b, b2 = _gather(group.book, key, b, b2, rows=book, none=_NO_BOOK)
        s, s2 = _gather(group.statements, key, s, s2, rows=lines, none=_NO_LINE)
        yield group


def _is_of(s: StatementRow, t: TakingRow) -> bool:
    return (
        s[6] == t[2]
        and s[5] == t[3]
        and s[4] == "payment"
        and (s[2] == t[5] or s[2] is None)
        and (s[11] == t[4] or not s[11])
    )


Row = TypeVar("Row", TakingRow, BookRow, StatementRow)


def _gather(
    into: list[Row], key: str, one: Row, two: Row, *, rows: Iterator[Row], none: Row
) -> tuple[Row, Row]:
    """Put the rows of the key into the list; the two that come after them."""
    while one[0] == key:
        if len(into) == MOST_AT_ONCE:
            return one, two
        into.append(one)
        one, two = two, next(rows, none)
    if one[0] < key:
        raise ValueError(f"the rows are not in the order of their keys after {key[:40]!r}")
    return one, two
