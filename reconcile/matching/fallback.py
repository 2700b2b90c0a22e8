"""The second look: what no key brought together, by hand, by payment, by group and by rule.

Leaves out: what then stays alone (`match`).

Each way claims what it brings together, so a row is claimed once; the surest way comes first.
Where several rows fit equally, it is ambiguous and stays so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reconcile.instants import Duration, Instant
from reconcile.matching.books import match_key
from reconcile.matching.decide import Match, Pair, amounts_fit
from reconcile.matching.funds import Capture, Funds, Left, funds_of
from reconcile.matching.group import Deciding
from reconcile.matching.parts import are_parts
from reconcile.matching.rows import BookRow, StatementRow, lines_of, subject_of
from reconcile.matching.settling import by_source
from reconcile.money import Money

# --- which lines fit each other by amount and date alone, where a rule allows that ----------------


MOST_FITS: Final = 3
"""Fitting lines that one line is given. Two already make it ambiguous; no more are looked for."""


class Offer(NamedTuple):
    """One line that seeks a partner."""

    name: str
    currency: str
    minor: int
    at: Instant


@dataclass(slots=True)
class Fits:
    """pairs: those that fit only each other; open: every other line that fits some, by name, with
    the names of those it fits, first of one side and then of the other."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    left: dict[str, tuple[str, ...]] = field(default_factory=dict)
    right: dict[str, tuple[str, ...]] = field(default_factory=dict)


def fits(
    left: Iterable[Offer],
    right: Iterable[Offer],
    *,
    window: Duration,
    tolerance: Callable[[str], int],
) -> Fits:
    """What fits what: the currency is one, the amounts and the dates are near enough."""
    ordered_left, ordered_right = _ordered(left), _ordered(right)
    found = Fits()
    found.left = _each(ordered_left, ordered_right, window=window, tolerance=tolerance)
    found.right = _each(ordered_right, ordered_left, window=window, tolerance=tolerance)
    for name, others in list(found.left.items()):
        if len(others) == 1 and found.right[others[0]] == (name,):
            found.pairs.append((name, others[0]))
            del found.left[name], found.right[others[0]]
    return found


_Row = tuple[str, int, Instant, str]


def _ordered(offers: Iterable[Offer]) -> list[_Row]:
    return sorted([(each.currency, each.minor, each.at, each.name) for each in offers])


def _each(
    seeking: list[_Row], among: list[_Row], *, window: Duration, tolerance: Callable[[str], int]
) -> dict[str, tuple[str, ...]]:
    found = {}
    for currency, minor, at, name in seeking:
        near = tolerance(currency)
        low, high = (currency, minor - near, at - window), (minor + near, at + window)
        fitting = _within(among, low, most_minor=high[0], until=high[1])
        if fitting:
            found[name] = fitting
    return found


def _within(
    among: list[_Row], low: tuple[str, int, Instant], *, most_minor: int, until: Instant
) -> tuple[str, ...]:
    """The first names from `low` on; it goes from amount to amount, not from line to line."""
    currency, minor, since = low
    names: list[str] = []
    while len(names) < MOST_FITS:
        place = bisect_left(among, (currency, minor, since, ""))
        if place == len(among) or among[place][0] != currency or among[place][1] > most_minor:
            break
        reached = among[place][1]
        if reached == minor:
            names += _of_amount(among, place, minor=minor, until=until)
            minor += 1
        else:
            minor = reached
    return tuple(names[:MOST_FITS])


def _of_amount(among: list[_Row], place: int, *, minor: int, until: Instant) -> list[str]:
    """The names from this place on, as long as amount and date allow."""
    names = []
    for row in among[place : place + MOST_FITS]:
        if row[1] != minor or row[0] != among[place][0] or row[2] > until:
            break
        names.append(row[3])
    return names


# --- the second look ------------------------------------------------------------------------------


class Rest:
    """What is left of each kind, by name, in an order of its own; a way takes out what it claims.

    orders    by key and reference
    book      lines of one reference, by the id of the first
    captures  by order, source, payment and part of it
    lines     by their ids
    """

    def __init__(self, left: Left) -> None:
        left.sort()
        self.orders = {row.key + "\n" + row.order: row for row in left.orders}
        self.book: dict[str, tuple[BookRow, ...]] = {}
        self.put_back(left)
        self.captures = {"\n".join((*c[:4], c.part)): c for c in (*left.captures, *left.awaited)}
        self.lines = {row.line_id: row for row in left.lines}

    def put_back(self, left: Left) -> None:
        """Book lines that were put aside, at first or by a way that claimed too many."""
        self.book |= {rows[0].line_id: rows for rows in (*left.book, *left.idle)}
        left.book, left.idle = [], []

    def take_book(self, names: Sequence[str]) -> list[BookRow]:
        """Claim these book lines."""
        return [row for name in names for row in self.book.pop(name)]

    def take_orders(self, names: Sequence[str]) -> Funds:
        """Claim these orders."""
        return funds_of([self.orders.pop(name) for name in names])

    def take_captures(self, names: Sequence[str]) -> list[Capture]:
        """Claim these captures."""
        return [self.captures.pop(name) for name in names]

    def take_lines(self, names: Sequence[str]) -> list[StatementRow]:
        """Claim these statement lines."""
        return [self.lines.pop(name) for name in names]


# --- by hand -------------------------------------------------------------------------------------


def orders_by_hand(rest: Rest, deciding: Deciding) -> None:
    """Orders and book lines that people paired: one with one, or several of one side."""
    partners = deciding.terms.partners
    named = {subject_of(row.line_id): name for name, rows in rest.book.items() for row in rows}
    orders = {row.order: name for name, row in rest.orders.items()}
    for subject, name in sorted(named.items()):
        several = sorted(partners(subject) & orders.keys())
        if len(several) > 1 and name in rest.book:
            funds = rest.take_orders([orders.pop(each) for each in several])
            deciding.pair(funds, rest.take_book([name]), kind="by_hand")
    for order, name in sorted(orders.items()):
        lines = {named[each] for each in partners(order) & named.keys()} & rest.book.keys()
        if lines:
            funds = rest.take_orders([name])
            deciding.pair(funds, rest.take_book(sorted(lines)), kind="by_hand")


def lines_by_hand(rest: Rest, deciding: Deciding) -> None:
    """Statement lines that people paired with an order's only open capture, which several may be
    parts of, or with a book line."""
    captures: dict[str, list[str]] = {}
    for name, capture in rest.captures.items():
        captures.setdefault(capture.order, []).append(name)
    named = {subject_of(row.line_id): name for name, rows in rest.book.items() for row in rows}
    parts: dict[str, list[str]] = {}
    for line_id, row in list(rest.lines.items()):
        for partner in sorted(deciding.terms.partners(subject_of(line_id))):
            names = captures.get(partner, ())
            if len(names) == 1:
                parts.setdefault(names[0], []).append(line_id)
                break
            if named.get(partner) in rest.book and _is_of(row, rest.book[named[partner]]):
                _book_with_line(rest, deciding, names=(named[partner], line_id))
                break
    for name, line_ids in parts.items():
        lines = rest.take_lines(line_ids)
        deciding.settling.join(rest.take_captures([name]), lines, kind="by_hand")


def _is_of(row: StatementRow, rows: Sequence[BookRow]) -> bool:
    lines = lines_of(rows)
    return lines.currencies == {row.currency} and lines.charge == row.gross


def _book_with_line(rest: Rest, deciding: Deciding, *, names: tuple[str, str]) -> None:
    """Book and statement agree, and no webhook will ever come: a person said so."""
    rows, lines = rest.take_book(names[:1]), rest.take_lines(names[1:])
    ids = [row.line_id for row in rows] + [line.line_id for line in lines]
    money = Money(minor=lines[0].gross, currency=lines[0].currency)
    found = Match(
        kind="by_hand",
        order=None,
        payment=lines[0].payment,
        lines=tuple(sorted(ids)),
        money=money,
    )
    deciding.tally.report(found)
    deciding.tally.place_book(rows, "by_hand")
    deciding.tally.place_lines(lines, "by_hand")


# --- by payment ----------------------------------------------------------------------------------


def by_payment(rest: Rest, deciding: Deciding) -> None:
    """Statement lines and captures of one payment, though they name different orders or none."""
    captures: dict[str, list[str]] = {}
    for name, capture in rest.captures.items():
        captures.setdefault(capture.payment, []).append(name)
    lines: dict[str, list[str]] = {}
    for name, row in rest.lines.items():
        if row.payment in captures:
            lines.setdefault(row.payment, []).append(name)
    for payment, names in lines.items():
        of = {rest.captures[name]: name for name in captures[payment]}
        named = [rest.lines[name] for name in names]
        for fitting, rows in by_source(list(of), named, terms=deciding.terms):
            if not fitting:
                continue
            taken = rest.take_captures([of[each] for each in fitting])
            lines_left = rest.take_lines([row.line_id for row in rows])
            if are_parts(taken):
                taken, lines_left = deciding.settling.join_parts(
                    taken, lines_left, kind="by_payment"
                )
            if taken and lines_left:
                deciding.settling.join(taken, lines_left, kind="by_payment")
            else:
                rest.captures |= {of[each]: each for each in taken}
                rest.lines |= {row.line_id: row for row in lines_left}


# --- by group ------------------------------------------------------------------------------------


def by_group(rest: Rest, deciding: Deciding) -> None:
    """One payment for several lines of a group, or several payments for the group's lines."""
    groups: dict[str, list[str]] = {}
    for name, rows in rest.book.items():
        for group in sorted({row.group for row in rows if row.group}):
            groups.setdefault(group, []).append(name)
    keyed: dict[str, list[str]] = {}
    for name, row in rest.orders.items():
        keyed.setdefault(row.key, []).append(name)
    for group, members in sorted(groups.items()):
        names = [name for name in members if name in rest.book]
        keys = {match_key(group), *[row.key for name in names for row in rest.book[name]]}
        orders = [n for key in sorted(keys) for n in keyed.get(key, ()) if n in rest.orders]
        if names and orders:
            _one_group(rest, deciding, names=names, orders=orders)


def _one_group(rest: Rest, deciding: Deciding, *, names: list[str], orders: list[str]) -> None:
    lines = lines_of([row for name in names for row in rest.book[name]])

    def fit(chosen: Sequence[str]) -> bool:
        funds = funds_of([rest.orders[name] for name in chosen])
        return not funds.unresolved and amounts_fit(Pair(funds, lines, deciding.terms))

    fitting = [name for name in orders if fit([name])]
    if len(fitting) > 1:
        rows = rest.take_book(names)
        deciding.ambiguous([rest.take_orders([name]) for name in fitting], rows)
    elif fitting or fit(orders):
        funds = rest.take_orders(fitting or orders)
        deciding.pair(funds, rest.take_book(names), kind="by_group")


# --- by amount and date --------------------------------------------------------------------------


def orders_by_date(rest: Rest, deciding: Deciding) -> None:
    """Orders and book lines without a common reference, where the rules have a date window."""
    window = deciding.terms.rules.date_window
    if window is None:
        return
    # A line of the order's own reference, if of another amount, is nearer than any date.
    own = {row.key for row in rest.orders.values()} & {rows[0].key for rows in rest.book.values()}
    found = _fitting(deciding, _paid(rest, own), _booked(rest, own), window=window)
    for order, name in found.pairs:
        deciding.pair(rest.take_orders([order]), rest.take_book([name]), kind="by_date_window")
    rows = {name: rest.take_book([name]) for name in found.right}
    for order, names in found.left.items():
        fitting = [row for name in names for row in rows.get(name, ())]
        deciding.report_ambiguous(rest.take_orders([order]), fitting)
    for taken in rows.values():
        deciding.tally.place_book(taken, "ambiguous")


def lines_by_date(rest: Rest, deciding: Deciding) -> None:
    """Statement lines that name no payment, and captures, where the rules have a date window."""
    window = deciding.terms.rules.date_window
    if window is None:
        return
    captures = [Offer(n, c.currency, c.minor, c.at) for n, c in rest.captures.items()]
    lines = [
        Offer(name, row.currency, row.gross, row.settled_at)
        for name, row in rest.lines.items()
        if row.payment is None and row.settled_at is not None
    ]
    found = _fitting(deciding, captures, lines, window=window)
    for capture, line in found.pairs:
        taken = rest.take_captures([capture])
        deciding.settling.join(taken, rest.take_lines([line]), kind="by_date_window")
    rows = {name: rest.take_lines([name])[0] for name in found.right}
    # What a line leaves to be settled is reported once, with the first capture that it fits.
    first = {name: names[0] for name, names in found.right.items()}
    for capture, names in found.left.items():
        lines_left = [rows[name] for name in names if name in rows]
        own = [rows[name] for name, of in first.items() if of == capture]
        deciding.settling.report_ambiguous(rest.take_captures([capture])[0], lines_left, own=own)
    deciding.tally.place_lines(rows.values(), "ambiguous")


def _fitting(
    deciding: Deciding, left: Sequence[Offer], right: Sequence[Offer], *, window: Duration
) -> Fits:
    return fits(left, right, window=window, tolerance=deciding.terms.tolerance)


def _paid(rest: Rest, own: Set[str]) -> list[Offer]:
    found = []
    for name, row in rest.orders.items():
        if row.key in own:
            continue
        funds = funds_of([row])
        plain = not (funds.unresolved or funds.others or funds.over or funds.owed)
        if plain and not funds.doubted and funds.kept > 0:
            found.append(Offer(name, funds.currency, funds.captured, funds.at))
    return found


def _booked(rest: Rest, own: Set[str]) -> list[Offer]:
    found = []
    for name, rows in rest.book.items():
        if rows[0].key in own:
            continue
        lines = lines_of(rows)
        if lines.placed_at is not None and len(lines.currencies) == 1 and lines.charge:
            found.append(Offer(name, lines.currency, lines.charge, lines.placed_at))
    return found


WAYS = (orders_by_hand, lines_by_hand, by_payment, by_group, orders_by_date, lines_by_date)
"""The surest first."""
