"""Join rows for which no partner with an equal key was found.

A row that fits several rows equally well is not joined.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconcile.instants import Duration, Instant
from reconcile.matching.books import match_key
from reconcile.matching.breaks import Break
from reconcile.matching.control import Bucket
from reconcile.matching.decide import Match, MatchKind, Pair, amounts_fit
from reconcile.matching.funds import Capture, Funds, Left, funds_of, left_of
from reconcile.matching.group import Deciding
from reconcile.matching.parts import are_parts
from reconcile.matching.rows import BookRow, StatementRow, lines_of, subject_of
from reconcile.matching.settling import by_source, unsettled_by
from reconcile.money import Money

MOST_FITS: Final = 3
"""Maximum number of fitting lines to search for."""


class Offer(NamedTuple):
    """Line that seeks a partner, with its amount and date."""

    currency: str
    minor: int
    at: Instant
    name: str


@dataclass(slots=True)
class Fits:
    """Names of the fitting lines of two sides."""

    pairs: list[tuple[str, str]]
    """Lines that fit each other and no other line."""
    left: dict[str, tuple[str, ...]]
    """Remaining lines of the first side, each with all lines that it fits."""
    right: dict[str, tuple[str, ...]]
    """Remaining lines of the second side, each with all lines that it fits."""


def fits(
    left: Iterable[Offer],
    right: Iterable[Offer],
    *,
    window: Duration,
    tolerance: Callable[[str], int],
) -> Fits:
    """Find the lines of two sides whose amounts and dates are near enough.

    window     maximum time between the dates
    tolerance  function that returns the maximum difference of amounts in a currency
    """
    lefts, rights = sorted(left), sorted(right)
    found = Fits([], {}, {})
    for seeking, among, sides in ((lefts, rights, found.left), (rights, lefts, found.right)):
        for each in seeking:
            fitting = _within(among, each, window=window, near=tolerance(each.currency))
            if fitting:
                sides[each.name] = fitting
    for name, others in list(found.left.items()):
        if len(others) == 1 and found.right[others[0]] == (name,):
            found.pairs.append((name, others[0]))
            del found.left[name], found.right[others[0]]
    return found


def _within(among: list[Offer], wanted: Offer, *, window: Duration, near: int) -> tuple[str, ...]:
    currency, minor = wanted.currency, wanted.minor - near
    since, until = wanted.at - window, wanted.at + window
    names: list[str] = []
    while len(names) < MOST_FITS:
        place = bisect_left(among, (currency, minor, since, ""))
        if place == len(among) or among[place].currency != currency:
            break
        reached = among[place].minor
        if reached > wanted.minor + near:
            break
        if reached == minor:
            for each in among[place : place + MOST_FITS]:
                if (each.currency, each.minor) != (currency, minor) or each.at > until:
                    break
                names.append(each.name)
            minor += 1
        else:
            minor = reached
    return tuple(names[:MOST_FITS])


class Rest:
    """Unmatched rows of each kind, sorted.

    orders    orders, by match key and reference
    book      groups of book lines with one reference, by the id of the first line
    captures  captures, by order, source, payment and part of the payment
    refunds   refunds that the book states and that have not arrived
    """

    def __init__(self, left: Left) -> None:
        left.sort()
        self.orders = {row.key + "\n" + row.order: row for row in left.orders}
        self.book: dict[str, tuple[BookRow, ...]] = {}
        self.put_back(left)
        self.captures = {"\n".join((*c[:4], c.part)): c for c in (*left.captures, *left.awaited)}
        self.lines = {row.line_id: row for row in left.lines}
        self.paid_out = {row.line_id: row for row in left.paid_out}
        self.refunds = left.refunds

    def put_back(self, left: Left) -> None:
        """Move the unmatched book lines of `left` into this object."""
        self.book |= {rows[0].line_id: rows for rows in (*left.book, *left.idle)}
        left.book, left.idle = [], []

    def take_book(self, names: Sequence[str]) -> list[BookRow]:
        return [row for name in names for row in self.book.pop(name)]

    def take_orders(self, names: Sequence[str]) -> Funds:
        return funds_of([self.orders.pop(name) for name in names])

    def take_captures(self, names: Sequence[str]) -> list[Capture]:
        return [self.captures.pop(name) for name in names]

    def take_lines(self, names: Sequence[str]) -> list[StatementRow]:
        return [self.lines.pop(name) for name in names]


def orders_by_hand(rest: Rest, deciding: Deciding) -> None:
    """Join the orders with the lines of the order book that people matched to them."""
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
    """Join statement lines with the order or book line that a person chose."""
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
            if named.get(partner) not in rest.book:
                continue
            booked = lines_of(rest.book[named[partner]])
            if booked.currencies == {row.currency}:
                # A person said that no webhook will ever come.
                rows = rest.take_book([named[partner]])
                _without_webhook(rows, rest.take_lines([line_id])[0], booked.money, deciding)
                break
    for name, line_ids in parts.items():
        lines = rest.take_lines(line_ids)
        deciding.settling.join(rest.take_captures([name]), lines, kind="by_hand")


def _without_webhook(
    rows: list[BookRow], line: StatementRow, booked: Money, deciding: Deciding
) -> None:
    settled = Money(minor=line.gross, currency=line.currency)
    ids = [line.line_id, *[each.line_id for each in rows]]
    bucket: Bucket = "by_hand" if settled == booked else "amount_differs"
    if settled == booked:
        deciding.tally.report(
            Match(kind="by_hand", payment=line.payment, lines=tuple(sorted(ids)), money=settled)
        )
    else:
        apart = Money(minor=abs(settled.minor - booked.minor), currency=line.currency)
        dates = [line.settled_at, *[each.placed_at for each in rows]]
        found = Break(
            cause="amount_differs",
            order=rows[0].reference,
            payment=line.payment,
            subject=subject_of(line.line_id),
            money=apart,
            since=max([at for at in dates if at is not None], default=deciding.terms.as_of),
            cites=tuple(ids),
            facts=(
                ("settled", settled),
                ("booked", booked),
                ("difference", apart),
                ("against", "book"),
            ),
            left=left_of([unsettled_by(line)]),
        )
        deciding.tally.report(found)
    deciding.tally.place_book(rows, bucket)
    deciding.tally.place_lines([line], bucket)


def by_payment(rest: Rest, deciding: Deciding) -> None:
    """Join statement lines with captures of the named payment."""
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


def refunds_paid_out(rest: Rest, deciding: Deciding) -> None:
    """Join refunds in the book with disbursements that pay them out.

    An equal amount alone is only suggested, because a wage can have that amount.
    """
    named: dict[str, list[StatementRow]] = {}
    for line in rest.paid_out.values():
        if line.key:
            named.setdefault(line.key, []).append(line)
    for due in list(rest.refunds):
        order = due.found.order or ""
        partners = deciding.terms.partners(order)
        given = [e for e in rest.paid_out.values() if subject_of(e.line_id) in partners]
        lines = given or [e for e in named.get(match_key(order), ()) if e.line_id in rest.paid_out]
        sent = Money(minor=-sum([e.gross for e in lines]), currency=due.found.money.currency)
        if not lines or sent != due.found.money or {e.currency for e in lines} != {sent.currency}:
            continue
        rest.refunds.remove(due)
        kind: MatchKind = "by_hand" if given else "by_payment"
        for line in lines:
            del rest.paid_out[line.line_id]
        ids = [*[e.line_id for e in lines], *[row.line_id for row in due.book]]
        deciding.tally.report(Match(kind=kind, order=order, lines=tuple(sorted(ids)), money=sent))
        deciding.tally.place_orders(due.orders, kind)
        deciding.tally.place_book(due.book, kind)
        deciding.tally.place_lines(lines, kind)


def by_group(rest: Rest, deciding: Deciding) -> None:
    """Join orders with the book lines of a group."""
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


def orders_by_date(rest: Rest, deciding: Deciding) -> None:
    """Join orders with book lines of a fitting amount and date."""
    window = deciding.terms.rules.date_window
    if window is None:
        return
    # A line with the order's reference is nearer than any date, even if its amount differs.
    own = {row.key for row in rest.orders.values()} & {rows[0].key for rows in rest.book.values()}
    paid, booked = [], []
    for name, row in rest.orders.items():
        if row.key not in own:
            funds = funds_of([row])
            odd = funds.unresolved or funds.others or funds.over or funds.owed or funds.doubted
            if funds.kept > 0 and not odd:
                paid.append(Offer(funds.currency, funds.captured, funds.at, name))
    for name, own_rows in rest.book.items():
        if own_rows[0].key not in own and not deciding.terms.outside_providers(own_rows):
            lines = lines_of(own_rows)
            if lines.placed_at is not None and len(lines.currencies) == 1 and lines.charge:
                booked.append(Offer(lines.currency, lines.charge, lines.placed_at, name))
    found = fits(paid, booked, window=window, tolerance=deciding.terms.tolerance)
    for order, name in found.pairs:
        deciding.pair(rest.take_orders([order]), rest.take_book([name]), kind="by_date_window")
    rows = {name: rest.take_book([name]) for name in found.right}
    for order, names in found.left.items():
        fitting = [row for name in names for row in rows.get(name, ())]
        deciding.report_ambiguous(rest.take_orders([order]), fitting)
    for taken in rows.values():
        deciding.tally.place_book(taken, "ambiguous")


def lines_by_date(rest: Rest, deciding: Deciding) -> None:
    """Join captures with statement lines of a fitting amount and date."""
    window = deciding.terms.rules.date_window
    if window is None:
        return
    captures = [Offer(c.currency, c.minor, c.at, name) for name, c in rest.captures.items()]
    lines = [
        Offer(row.currency, row.gross, row.settled_at, name)
        for name, row in rest.lines.items()
        if row.payment is None and row.settled_at is not None
    ]
    found = fits(captures, lines, window=window, tolerance=deciding.terms.tolerance)
    for capture, line in found.pairs:
        taken = rest.take_captures([capture])
        deciding.settling.join(taken, rest.take_lines([line]), kind="by_date_window")
    rows = {name: rest.take_lines([name])[0] for name in found.right}
    # The unsettled money of a line is stated once, with the first capture that it fits.
    first = {name: names[0] for name, names in found.right.items()}
    for capture, names in found.left.items():
        lines_left = [rows[name] for name in names if name in rows]
        own = [rows[name] for name, of in first.items() if of == capture]
        deciding.settling.report_ambiguous(rest.take_captures([capture])[0], lines_left, own=own)
    deciding.tally.place_lines(rows.values(), "ambiguous")


WAYS = (
    orders_by_hand,
    lines_by_hand,
    by_payment,
    refunds_paid_out,
    by_group,
    orders_by_date,
    lines_by_date,
)
"""Methods of joining rows, the most certain first."""
