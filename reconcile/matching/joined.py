"""What belongs together across orders, and to which date: groups, decisions of people, payments.

Leaves out: finding such rows; whoever has them says all of them at once. What is joined is matched
together, so it must belong to one period whole. That is the period of the earliest date on which
the book says that any of it was placed; without one, of its first money; without that, of its first
settlement; lines that bear no date, of when they were imported: the rule for a single order
(`period`), for all of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from reconcile.instants import Instant
from reconcile.matching.books import match_key
from reconcile.matching.rows import NO_KEY, BookRow, LedgerLineRow, StatementRow, subject_of
from reconcile.matching.rules import HandMatch

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
    takings: Iterable[LedgerLineRow], book: Iterable[BookRow], statements: Iterable[StatementRow]
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


def _first_money(row: LedgerLineRow) -> Instant:
    whole = row.whole
    if whole is None:
        return row.at
    return min([taken.at for taken in whole.taken], default=whole.opened_at)


def joined_dates(
    *,
    takings: Sequence[LedgerLineRow],
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
    takings: Sequence[LedgerLineRow],
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
    takings: Sequence[LedgerLineRow], statements: Sequence[StatementRow], settles: Settles
) -> Iterator[tuple[str, str]]:
    orders: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for taking in takings:
        for source, payment in _payments(taking):
            orders[payment].append((source, taking.key))
    for line in statements:
        for source, key in orders.get(line.payment or "", ()):
            if settles(line.source, source):
                yield place_of(line), key


def _payments(row: LedgerLineRow) -> Iterator[tuple[str, str]]:
    if row.whole is not None:
        yield from {(taken.source, taken.payment) for taken in row.whole.taken}
    elif row.minor:
        yield row.source, row.payment


def _own_dates(
    takings: Sequence[LedgerLineRow],
    book: Sequence[BookRow],
    statements: Sequence[StatementRow],
    sets: _Sets,
) -> dict[str, Dated]:
    rows: dict[str, tuple[list[LedgerLineRow], list[BookRow], list[StatementRow]]] = {}
    for place, name, row in (
        *((0, row.key, row) for row in takings),
        *((1, row.key, row) for row in book),
        *((2, place_of(row), row) for row in statements),
    ):
        if name in sets:
            rows.setdefault(name, ([], [], []))[place].append(row)  # type: ignore[arg-type]
    found = {name: first_date(*each) for name, each in rows.items()}
    return {name: dated for name, dated in found.items() if dated is not None}
