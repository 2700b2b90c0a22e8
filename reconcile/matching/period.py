"""What of three streams belongs to a period: orders whole, with all their lines, or not at all.

Leaves out: what is known; that is an instant's affair, not a period's. An order belongs to when the
book says it was placed, else to the first date of its money, else to when it was first spoken of.
A statement line of no order belongs to its own date, or bearing none to when it was imported. A
book line without a date and without money belongs to every period. What a group, a decision of a
person or a payment joins belongs to one date whole (`joined`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from reconcile.instants import Instant
from reconcile.matching.joined import first_date, place_of
from reconcile.matching.rows import NO_KEY, BookRow, LedgerLineRow, StatementRow
from reconcile.matching.tally import Group
from reconcile.values import frozen


@frozen
class Period:
    """From `since` on and before `until`; None: without that end."""

    since: Instant | None = None
    until: Instant | None = None

    def __contains__(self, at: Instant | None) -> bool:
        if at is None:
            return True
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


NOTHING_JOINED: Final[Mapping[str, Instant]] = {}


def _plainly_settled(
    takings: list[LedgerLineRow], _book: list[BookRow], statements: list[StatementRow]
) -> bool:
    if len(takings) != 1 or len(statements) != 1 or takings[0].whole is not None:
        return False
    taking, line = takings[0], statements[0]
    if line.kind != "payment" or line.payment not in (None, taking.payment):
        return False
    if line.source not in ("", taking.source):
        return False  # another source's payment of this reference, unless the matching finds it
    return (line.gross, line.currency) == (taking.minor, taking.currency)


def _says_nothing(
    takings: list[LedgerLineRow], book: list[BookRow], statements: list[StatementRow]
) -> bool:
    """Whether nothing of this order is left for any other line: all of it is settled plainly, and
    it has no book line that a person or a group could bring to another."""
    if len(book) > 1 or (book and book[0].group):
        return False
    return _plainly_settled(takings, book, statements)


Streams = tuple[Iterator[LedgerLineRow], Iterator[BookRow], Iterator[StatementRow]]


def within(
    period: Period,
    *,
    takings: Iterable[LedgerLineRow],
    book: Iterable[BookRow],
    statements: Iterable[StatementRow],
    joined: Mapping[str, Instant] = NOTHING_JOINED,
    elsewhere: set[str] | None = None,
    outside: Callable[[Group], None] | None = None,
) -> Streams:
    """Three streams in key order, without the orders that do not belong to the period.

    joined     the date of what belongs together with other keys (`joined_dates`)
    elsewhere  is given the ids of statement lines that are not of the period of their own date; not
               those that plainly settle their order, of which nothing else is to be told
    outside    is given every order, and every line of none, that does not belong to the period and
               of which there is more to tell than that its line settles it
    """
    sieve = _Sieve(period, joined, takings, book, statements)
    sieve.elsewhere, sieve.outside = elsewhere, outside
    return sieve.stream(0), sieve.stream(1), sieve.stream(2)


class _Sieve:
    """Reads all three in step, order by order, and keeps what was read ahead of being asked."""

    def __init__(
        self, period: Period, joined: Mapping[str, Instant], *sources: Iterable[Any]
    ) -> None:
        self._period, self._joined = period, joined
        self.elsewhere: set[str] | None = None
        self.outside: Callable[[Group], None] | None = None
        self._sources = [iter(each) for each in sources]
        self._heads: list[Any] = [next(each, None) for each in self._sources]
        self._kept: list[deque[Any]] = [deque() for _ in sources]

    def stream(self, place: int) -> Iterator[Any]:
        """One of the three, sifted."""
        kept = self._kept[place]
        while kept or self._advance():
            while kept:
                yield kept.popleft()

    def _advance(self) -> bool:
        """Read the next order, or the next line of none; False at the end."""
        key = min((head[0] for head in self._heads if head is not None), default=None)
        if key is None:
            return False
        found = self._order(key) if key != NO_KEY else self._line()
        inside = self._date(key, found) in self._period
        if inside:
            for kept, rows in zip(self._kept, found, strict=True):
                kept += rows
        elif self.outside is not None and not _says_nothing(*found):
            self.outside(Group(key, *found))
        if self.elsewhere is not None and found[2] and not _plainly_settled(*found):
            own = ((row, row.settled_at) for row in found[2])
            self.elsewhere |= {
                row.line_id for row, at in own if (at is not None and at in self._period) != inside
            }
        return True

    def _date(self, key: str, found: list[list[Any]]) -> Instant | None:
        name = key if key != NO_KEY or not found[2] else place_of(found[2][0])
        whole = self._joined.get(name)
        if whole is not None:
            return whole
        own = first_date(*found)
        return None if own is None else own[1]

    def _order(self, key: str) -> list[list[Any]]:
        found: list[list[Any]] = [[], [], []]
        for place, rows in enumerate(found):
            while (head := self._heads[place]) is not None and head[0] == key:
                rows.append(self._take(place))
        return found

    def _line(self) -> list[list[Any]]:
        """Rows without a key are each by themselves."""
        place = next(n for n, head in enumerate(self._heads) if head is not None and not head[0])
        return [[self._take(place)] if each == place else [] for each in range(3)]

    def _take(self, place: int) -> Any:
        head = self._heads[place]
        self._heads[place] = next(self._sources[place], None)
        return head
