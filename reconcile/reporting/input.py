"""What a report is made from, one order or break at a time; and where the money of each statement
line is, which a journal needs, too.

Leaves out: where it comes from, and matching (`matching.bank`). Whoever gathers it gives every
order, line and break once, in any order; nothing here is kept. A line's money is on its way from
the statement's date on, where the bank is there to say when it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import groupby
from typing import Final

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.matching.bank import BankLeg, Link
from reconcile.matching.books import StatementKind, StatementLine, match_key
from reconcile.matching.breaks import Break
from reconcile.matching.control import Bucket
from reconcile.matching.exchange import exchanges, exchanges_back
from reconcile.matching.ledger_lines import LedgerLine, Taken
from reconcile.matching.returning import balance_of
from reconcile.matching.rows import StatementRow
from reconcile.money import Money
from reconcile.reporting.report import Flow
from reconcile.values import frozen


@frozen
class OrderSeen:
    """One order with the statement lines that are its own; `taking` is None for lines that no
    ledger knows of.

    shared  whether another order has the same key, so that it is not sure whose the lines are
    """

    taking: LedgerLine | None
    lines: tuple[StatementLine, ...] = ()
    shared: bool = False


@frozen
class BreakSeen:
    """One break, what people made of it, and its words.

    state  `open`, `assigned` or `accepted`
    """

    found: Break
    state: str
    sentence: str
    next_step: str


@frozen
class ChangeSeen:
    """An order whose published outcome differs between the period's start and its end.

    at       when the last revision in the period was published, and `because` its sentences
    before   what was published last before the start
    """

    order: str
    at: Instant
    before: Outcome
    after: Outcome
    because: tuple[str, ...]


# --- orders and statement lines in key order, brought together order by order ---------------------


def merged(takings: Iterable[LedgerLine], rows: Iterable[StatementRow]) -> Iterator[OrderSeen]:
    """Every ledger line and every statement line once; both streams ascend by key."""
    orders = groupby(takings, key=lambda taking: taking.key)
    lines = groupby(rows, key=lambda row: row.key)
    order, line = next(orders, None), next(lines, None)
    while order is not None or line is not None:
        if order is None or (line is not None and line[0] < order[0]):
            assert line is not None
            yield from (OrderSeen(taking=None, lines=(line_of(row),)) for row in line[1])
            line = next(lines, None)
        elif line is None or order[0] < line[0]:
            yield from (OrderSeen(taking=taking) for taking in order[1])
            order = next(orders, None)
        else:
            yield from _together(list(order[1]), list(line[1]))
            order, line = next(orders, None), next(lines, None)


def _together(takings: list[LedgerLine], rows: list[StatementRow]) -> Iterator[OrderSeen]:
    """Orders whose references are written differently have one key: a line goes to the one that
    knows its payment, else to the one whose reference it has, else to the first."""
    shares: list[list[StatementLine]] = [[] for _ in takings]
    for row in rows:
        shares[_place(takings, row)].append(line_of(row))
    for taking, share in zip(takings, shares, strict=True):
        yield OrderSeen(taking=taking, lines=tuple(share), shared=len(takings) > 1)


def _place(takings: list[LedgerLine], row: StatementRow) -> int:
    for place, taking in enumerate(takings):
        if any(payment == row.payment for _, payment in taking.payments):
            return place
    named = [place for place, taking in enumerate(takings) if taking.order == row.order]
    return named[0] if named else 0


def line_of(row: StatementRow) -> StatementLine:
    """The line of a row."""
    return StatementLine(
        line_id=row.line_id,
        payment=row.payment,
        order=row.order,
        kind=row.kind,
        currency=row.currency,
        gross=row.gross,
        fee=row.fee,
        net=row.net,
        settled_at=row.settled_at,
        payout=row.payout,
        source=row.source,
    )


# --- statement lines beside the movements that they settle ----------------------------------------


_SETTLES: Final[dict[StatementKind, tuple[EntryKind, ...]]] = {
    "payment": ("captured",),
    "refund": ("refunded", "reversed"),
    "dispute": ("dispute_lost",),
    "fee": (),
    "carried": (),
}


@frozen
class SettledLine:
    """A statement line and the movements that it settles; none where the ledger has none.

    fresh            of `taken` those that no line before it settles a part of
    gross, fee, net  as they change the merchant's balance: see `signed`
    exchanged        whether it settles its movement in another currency
    """

    line: StatementLine
    taken: tuple[Taken, ...]
    fresh: tuple[Taken, ...]
    gross: int
    fee: int
    net: int
    exchanged: bool = False


def settled(seen: OrderSeen, *, strange: Set[str] = frozenset()) -> tuple[SettledLine, ...]:
    """Every line of the order, each with its movements: of those of its payment that no line has,
    the one with its amount, else all if they add up to it, else the first. A line for which
    nothing is left is a further part of the first movement of its payment. strange: the ids of
    lines that the matching found to be of no movement."""
    if not seen.lines:
        return ()
    left = [] if seen.taking is None else list(seen.taking.taken)
    abroad = {
        line.line_id: taken
        for taken, lines in (*settled_abroad(seen), *taken_abroad(seen))
        for line in lines
        if line.line_id not in strange
    }
    gone = {id(each) for some in abroad.values() for each in some}
    left = [each for each in left if id(each) not in gone]
    claimed: list[Taken] = []
    found: list[SettledLine] = []
    fresh: tuple[Taken, ...]
    for line in seen.lines:
        gross, fee, net = signed(line)
        if line.line_id in abroad:
            of = abroad[line.line_id]
            fresh = () if any(each.taken == of for each in found) else of
            found.append(
                SettledLine(
                    line=line, taken=of, fresh=fresh, gross=gross, fee=fee, net=net, exchanged=True
                )
            )
            continue
        fresh, taken = ((), ()) if line.line_id in strange else _beside(line, left, claimed, gross)
        gone = set(map(id, fresh))  # one event may state two movements of one amount
        left = [each for each in left if id(each) not in gone]
        claimed += fresh
        found.append(
            SettledLine(line=line, taken=taken, fresh=fresh, gross=gross, fee=fee, net=net)
        )
    return tuple(found)


Abroad = list[tuple[tuple[Taken, ...], list[StatementLine]]]
"""Movements, and the lines that settle them in another currency."""


def settled_abroad(seen: OrderSeen) -> Abroad:
    """The captures of the order that its lines settle in another currency, each with them."""
    if seen.taking is None or seen.shared:
        return []
    captures = [each for each in seen.taking.taken if each.kind == "captured"]
    return [((taken,), lines) for taken, lines in exchanges(captures, seen.lines)]


def taken_abroad(seen: OrderSeen) -> Abroad:
    """The same of what went back."""
    if seen.taking is None or seen.shared:
        return []
    returns = [each for each in seen.taking.taken if each.kind != "captured"]
    if not returns:  # as with most orders, of which there may be millions
        return []
    return [(tuple(parts), lines) for parts, lines in exchanges_back(returns, seen.lines)]


def _beside(
    line: StatementLine, left: list[Taken], claimed: list[Taken], gross: int
) -> tuple[tuple[Taken, ...], tuple[Taken, ...]]:
    """The movements of the line that no line had before, and its movements. A negative payment is
    what some providers write for a refund or a reversal, else it corrects what came. A dispute may
    be just what a reversal took (`returning.is_of`)."""
    kinds = [_SETTLES[line.kind]]
    if line.kind == "payment" and gross < 0:
        kinds.insert(0, _SETTLES["refund"])
    for each in kinds:
        fresh = _chosen([one for one in left if _fits(line, one, each)], gross)
        taken = fresh or tuple([one for one in claimed if _fits(line, one, each)][:1])
        if taken:
            return fresh, taken
    if line.kind == "dispute" and line.payment is not None:
        fitting = [one for one in left if one.minor == gross and _fits(line, one, ("reversed",))]
        return tuple(fitting[:1]), tuple(fitting[:1])
    return (), ()


def _chosen(fitting: list[Taken], gross: int) -> tuple[Taken, ...]:
    for each in fitting:
        if each.minor == gross:
            return (each,)
    if sum([each.minor for each in fitting]) == gross:
        return tuple(fitting)
    return tuple(fitting[:1])


def _fits(line: StatementLine, taken: Taken, kinds: tuple[EntryKind, ...]) -> bool:
    return (
        taken.kind in kinds
        and taken.currency == line.currency
        and (line.payment is None or match_key(line.payment) == match_key(taken.payment))
    )


def signed(line: StatementLine) -> tuple[int, int, int]:
    """Gross, fee and net as they change the merchant's balance (`balance_of`); a line that is only
    a fee has no gross."""
    if line.kind == "fee":
        return 0, -line.net, line.net
    gross = balance_of(line)
    return gross, line.fee, line.net if gross == line.gross else gross - line.fee


# --- where the money of each statement line is ----------------------------------------------------

_UNBOOKED: Final[frozenset[Bucket]] = frozenset({"bank_line_unknown", "awaiting_statement"})
"""Bank lines of a provider of which no payout is known."""

Key = tuple[str, str | None, str]
"""(source, payout, currency)"""


class BankView:
    """A leg, by the payouts that statement lines name."""

    def __init__(self, leg: BankLeg) -> None:
        self.links = leg.links
        self._flows: dict[Key, Flow] = {}
        self._covered: set[Key] = set()
        for link in leg.links:
            flow: Flow = "in_bank" if link.expected is None else "exchanged"
            for each in link.payouts:
                self._flows[each.source, each.reference, each.currency] = flow
                self._covered.add((each.source, each.reference, each.currency))
        for alone in leg.alone:
            if alone.payout is not None and alone.bucket != "not_covered":
                payout = alone.payout
                self._covered.add((payout.source, payout.reference, payout.currency))
        self.unbooked = tuple(
            [e.line for e in leg.alone if e.line is not None and e.bucket in _UNBOOKED]
        )

    def flow_of(self, line: StatementLine) -> Flow:
        """Where the net of a statement line is."""
        if line.payout is None:
            return "no_payout"
        return self._flows.get((line.source, line.payout, line.currency), "not_in_bank")

    def on_its_way(self, line: StatementLine) -> bool:
        """Whether the bank is there to say when the line's money came."""
        return (line.source, line.payout, line.currency) in self._covered

    def differing(self, *, start: Instant, end: Instant) -> Iterator[Money]:
        """By how much the bank has less than was paid out, of each transfer of the period."""
        for link in self.links:
            if link.expected is None and link.missing.minor and start <= link.at < end:
                yield link.missing


def dated(link: Link) -> Instant:
    """When the whole of a transfer had been booked."""
    return max([each.booked_at for each in link.lines])
