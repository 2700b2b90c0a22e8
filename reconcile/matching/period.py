"""Select the rows of a period from three streams."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.instants import Instant
from reconcile.matching.books import match_key
from reconcile.matching.rows import NO_KEY, BookRow, StatementRow, TakingRow, subject_of
from reconcile.matching.rules import HandMatch
from reconcile.matching.tally import Group

Dated = tuple[int, Instant]
"""Pair of the kind of a date and the date.

PLACED outranks MONEY, MONEY outranks SETTLED, and SETTLED outranks KNOWN.
"""

PLACED, MONEY, SETTLED, KNOWN = range(4)

Settles = Callable[[str, str], bool]
"""Function that tells whether a source's line may settle another source's payment."""

_LINE: Final = "\x00"


def place_of(row: StatementRow) -> str:
    """Return the line's match key, or a unique name."""
    return row.key if row.key != NO_KEY else _LINE + subject_of(row.line_id)


def first_date(
    takings: Iterable[TakingRow], book: Iterable[BookRow], statements: Iterable[StatementRow]
) -> Dated | None:
    """Return the date that decides these rows' period."""
    placed = [row.placed_at for row in book if row.placed_at is not None]
    if placed:
        return PLACED, min(placed)
    moved = [
        row.at
        if row.whole is None
        else min([taken.at for taken in row.whole.taken], default=row.whole.opened_at)
        for row in takings
    ]
    if moved:
        return MONEY, min(moved)
    settled = [row.settled_at for row in statements if row.settled_at is not None]
    if settled:
        return SETTLED, min(settled)
    known = [row.known_at for row in statements if row.known_at is not None]
    return (KNOWN, min(known)) if known else None


def joined_dates(
    *,
    takings: Sequence[TakingRow],
    book: Sequence[BookRow],
    statements: Sequence[StatementRow],
    hands: Iterable[HandMatch],
    settles: Settles,
) -> dict[str, Instant]:
    """Return the date that decides the period of rows matched together.

    Pass all rows that a group, a match by hand or a payment can join.
    """
    sets = _Sets()
    for booked in book:
        if booked.group:
            # One payment for a group is known by the group's name, or by a member's.
            sets.join(booked.key, match_key(booked.group))
    places = {subject_of(row.line_id): row.key for row in book}
    places |= {subject_of(row.line_id): place_of(row) for row in statements}
    for hand in hands:
        one, other = (places.get(each) or match_key(each) for each in (hand.one, hand.other))
        sets.join(one, other)
    orders: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for taking in takings:
        for source, payment in _payments(taking):
            orders[payment].append((source, taking.key))
    for line in statements:
        for source, key in orders.get(line.payment or "", ()):
            if settles(line.source, source):
                sets.join(place_of(line), key)
    own = _own_dates(takings, book, statements, sets)
    best: dict[str, Dated] = {}
    for name, dated in own.items():
        root = sets.root(name)
        best[root] = min(best.get(root, dated), dated)
    return {
        name: best[root][1]
        for name in sets.names()
        if (root := sets.root(name)) in best and own.get(name) != best[root]
    }


class _Sets:
    """Disjoint sets of names that can be joined."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        parent = self._parent
        while (above := parent.get(name, name)) != name:
            parent[name] = parent.get(above, above)
            name = above
        return name

    def join(self, one: str, other: str) -> None:
        root, under = sorted((self.root(one), self.root(other)))
        self._parent.setdefault(root, root)
        self._parent[under] = root

    def names(self) -> Iterator[str]:
        yield from self._parent

    def __contains__(self, name: str) -> bool:
        return name in self._parent


def _payments(row: TakingRow) -> Iterator[tuple[str, str]]:
    if row.whole is not None:
        yield from {(taken.source, taken.payment) for taken in row.whole.taken}
    elif row.minor:
        yield row.source, row.payment


def _own_dates(
    takings: Sequence[TakingRow],
    book: Sequence[BookRow],
    statements: Sequence[StatementRow],
    sets: _Sets,
) -> dict[str, Dated]:
    rows: dict[str, tuple[list[TakingRow], list[BookRow], list[StatementRow]]] = {}
    for place, name, row in (
        *((0, row.key, row) for row in takings),
        *((1, row.key, row) for row in book),
        *((2, place_of(row), row) for row in statements),
    ):
        if name in sets:
            rows.setdefault(name, ([], [], []))[place].append(row)  # type: ignore[arg-type]
    found = {name: first_date(*each) for name, each in rows.items()}
    return {name: dated for name, dated in found.items() if dated is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Period from `since` to just before `until`. None means no limit on that side."""

    since: Instant | None = None
    until: Instant | None = None

    def __contains__(self, at: Instant | None) -> bool:
        if at is None:
            return True
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


NOTHING_JOINED: Final[Mapping[str, Instant]] = {}


def _plainly_settled(takings: list[TakingRow], statements: list[StatementRow]) -> bool:
    if len(takings) != 1 or len(statements) != 1 or takings[0].whole is not None:
        return False
    taking, line = takings[0], statements[0]
    if line.kind != "payment" or line.payment not in (None, taking.payment):
        return False
    if line.source not in ("", taking.source):
        return False  # probably another source's payment with an equal reference
    return (line.gross, line.currency) == (taking.minor, taking.currency)


Streams = tuple[Iterator[TakingRow], Iterator[BookRow], Iterator[StatementRow]]


def within(
    period: Period,
    *,
    takings: Iterable[TakingRow],
    book: Iterable[BookRow],
    statements: Iterable[StatementRow],
    joined: Mapping[str, Instant] = NOTHING_JOINED,
    elsewhere: set[str] | None = None,
    outside: Callable[[Group], None] | None = None,
) -> Streams:
    """Return the three streams without the orders of other periods.

    joined     date that decides the period of orders that are matched together
    elsewhere  receives the ids of unusual statement lines dated outside the period
    outside    called with each unusual order or line outside the period
    """
    sieve = _Sieve(period, joined, takings, book, statements)
    sieve.elsewhere, sieve.outside = elsewhere, outside
    return sieve.stream(0), sieve.stream(1), sieve.stream(2)


class _Sieve:
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
        kept = self._kept[place]
        while kept or self._advance():
            while kept:
                yield kept.popleft()

    def _advance(self) -> bool:
        key = min((head[0] for head in self._heads if head is not None), default=None)
        if key is None:
            return False
        found: list[list[Any]] = [[], [], []]
        for place, rows in enumerate(found):
            while (head := self._heads[place]) is not None and head[0] == key:
                rows.append(self._take(place))
                if key == NO_KEY:
                    break
            if key == NO_KEY and rows:
                break  # a row without a key joins no others
        takings, book, statements = found
        name = key if key != NO_KEY or not statements else place_of(statements[0])
        date = self._joined.get(name)
        if date is None and (own := first_date(*found)) is not None:
            date = own[1]
        inside = date in self._period
        settled = bool(statements) and _plainly_settled(takings, statements)
        if inside:
            for kept, rows in zip(self._kept, found, strict=True):
                kept += rows
        elif self.outside is not None:
            # A lone book line, or one of a group, may still join other rows.
            joinable = len(book) > 1 or (book and book[0].group)
            if joinable or not settled:
                self.outside(Group(key, *found))
        if self.elsewhere is not None and statements and not settled:
            dates = ((row, row.settled_at) for row in statements)
            self.elsewhere |= {
                row.line_id
                for row, at in dates
                if (at is not None and at in self._period) != inside
            }
        return True

    def _take(self, place: int) -> Any:
        head = self._heads[place]
        self._heads[place] = next(self._sources[place], None)
        return head
