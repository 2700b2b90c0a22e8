"""What of three streams belongs to a period: orders whole, with all their lines, or not at all.

Leaves out: what is known; that is an instant's affair, not a period's. An order belongs to when the
book says it was placed, else to the first date of its money, else to when it was first spoken of. A
statement line of no order belongs to its own date, or bearing none to when it was imported. A book
line without a date and without money belongs to every period.

What groups, decisions of people and payments join across orders is matched together, so it must
belong to one period whole. That is the period of the earliest date on which the book says that any
of it was placed; without one, of its first money; without that, of its first settlement; lines that
bear no date, of when they were imported: the rule for a single order, for all of it. Whoever has
such rows says all of them at once; finding them is left out, too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from reconcile.instants import Instant
from reconcile.matching.books import match_key
from reconcile.matching.rows import NO_KEY, BookRow, StatementRow, TakingRow, subject_of
from reconcile.matching.rules import HandMatch
from reconcile.matching.tally import Group
from reconcile.values import frozen

# --- what belongs together across orders ----------------------------------------------------------

Dated = tuple[int, Instant]
"""How much a date says (PLACED before MONEY before SETTLED before KNOWN), and the date."""

PLACED, MONEY, SETTLED, KNOWN = range(4)

Settles = Callable[[str, str], bool]
"""(source of a statement's line, source of a payment): whether the one may be of the other."""

_LINE: Final = "\x00"
"""Begins the name of a statement line that has no key; no key has the character."""


def place_of(row: StatementRow) -> str:
    """What a statement line stands in: its key, or where it has none it stands by itself."""
    return row.key if row.key != NO_KEY else _LINE + subject_of(row.line_id)


def first_date(
    takings: Iterable[TakingRow], book: Iterable[BookRow], statements: Iterable[StatementRow]
) -> Dated | None:
    """The date to which these rows belong together; None where none of them has one."""
    placed = [row.placed_at for row in book if row.placed_at is not None]
    if placed:
        return PLACED, min(placed)
    moved = [_first_money(row) for row in takings]
    if moved:
        return MONEY, min(moved)
    settled = [row.settled_at for row in statements if row.settled_at is not None]
    if settled:
        return SETTLED, min(settled)
    known = [row.known_at for row in statements if row.known_at is not None]
    return (KNOWN, min(known)) if known else None


def _first_money(row: TakingRow) -> Instant:
    whole = row.whole
    if whole is None:
        return row.at
    return min([taken.at for taken in whole.taken], default=whole.opened_at)


def joined_dates(
    *,
    takings: Sequence[TakingRow],
    book: Sequence[BookRow],
    statements: Sequence[StatementRow],
    hands: Iterable[HandMatch],
    settles: Settles,
) -> dict[str, Instant]:
    """By key, or by `place_of` a line without one: the date of all that it is joined with, where
    that is another than its own.

    The rows are all those of keys that a group, a decision or a payment may join; others may be
    among them.
    """
    sets = _Sets()
    for one, other in _pairs(takings, book, statements, hands, settles):
        sets.join(one, other)
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
    """Disjoint sets of names, with path halving."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        """The name that stands for its set."""
        parent = self._parent
        while (above := parent.get(name, name)) != name:
            parent[name] = parent.get(above, above)
            name = above
        return name

    def join(self, one: str, other: str) -> None:
        """Put two into one set; which of the names stands for it does not matter."""
        root, under = sorted((self.root(one), self.root(other)))
        self._parent.setdefault(root, root)
        self._parent[under] = root

    def names(self) -> Iterator[str]:
        """Every name that was joined with any."""
        yield from self._parent

    def __contains__(self, name: str) -> bool:
        return name in self._parent


def _pairs(
    takings: Sequence[TakingRow],
    book: Sequence[BookRow],
    statements: Sequence[StatementRow],
    hands: Iterable[HandMatch],
    settles: Settles,
) -> Iterator[tuple[str, str]]:
    for row in book:
        if row.group:
            # One payment for a group is known by the group's name, or by a member's.
            yield row.key, match_key(row.group)
    places = {subject_of(row.line_id): row.key for row in book}
    places |= {subject_of(row.line_id): place_of(row) for row in statements}
    for hand in hands:
        yield _named(hand.one, places), _named(hand.other, places)
    yield from _of_payments(takings, statements, settles)


def _named(name: str, places: Mapping[str, str]) -> str:
    """Where a line of this subject stands, or the key of an order of this reference."""
    return places.get(name) or match_key(name)


def _of_payments(
    takings: Sequence[TakingRow], statements: Sequence[StatementRow], settles: Settles
) -> Iterator[tuple[str, str]]:
    orders: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for taking in takings:
        for source, payment in _payments(taking):
            orders[payment].append((source, taking.key))
    for line in statements:
        for source, key in orders.get(line.payment or "", ()):
            if settles(line.source, source):
                yield place_of(line), key


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


# --- what belongs to a period ---------------------------------------------------------------------


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
    takings: list[TakingRow], _book: list[BookRow], statements: list[StatementRow]
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
    takings: list[TakingRow], book: list[BookRow], statements: list[StatementRow]
) -> bool:
    """Whether nothing of this order is left for any other line: all of it is settled plainly, and
    it has no book line that a person or a group could bring to another."""
    if len(book) > 1 or (book and book[0].group):
        return False
    return _plainly_settled(takings, book, statements)


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
    """Three streams in key order, without the orders that do not belong to the period.

    joined     the date of what belongs together with other keys (`joined_dates`)
    elsewhere  is given the ids of statement lines that are not of the period of their own date; not
               those that plainly settle their order, of which nothing else is to be reported
    outside    is given every order, and every line of none, that does not belong to the period and
               of which there is more to report than that its line settles it
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
