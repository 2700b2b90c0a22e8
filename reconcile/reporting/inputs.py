"""Types of a report's input."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.matching.bank import BankLeg, Link
from reconcile.matching.books import OF_WALLET, Payout, StatementKind, StatementLine, match_key
from reconcile.matching.breaks import Break
from reconcile.matching.control import Bucket
from reconcile.matching.exchange import exchanges, exchanges_back
from reconcile.matching.ledger_lines import LedgerLine, Taken
from reconcile.matching.returning import balance_of
from reconcile.matching.rows import StatementRow
from reconcile.money import Money
from reconcile.reporting.report import Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSeen:
    """One order with its statement lines. `taking` is None for lines without an order."""

    taking: LedgerLine | None
    lines: tuple[StatementLine, ...] = ()
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakSeen:
    """One break with its state and description."""

    found: Break
    state: str
    sentence: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSeen:
    """Order whose published outcome changed during the period."""

    order: str
    at: Instant
    before: Outcome
    after: Outcome
    because: tuple[str, ...]


def merged(takings: Iterable[LedgerLine], rows: Iterable[StatementRow]) -> Iterator[OrderSeen]:
    """Merge ledger lines and statement lines into orders. Both streams must be sorted by match
    key."""
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
    shares: list[list[StatementLine]] = [[] for _ in takings]
    for row in rows:
        paid = [n for n, t in enumerate(takings) if row.payment in [p for _, p in t.payments]]
        named = [n for n, t in enumerate(takings) if t.order == row.order]
        shares[(paid or named or [0])[0]].append(line_of(row))
    for taking, share in zip(takings, shares, strict=True):
        yield OrderSeen(taking=taking, lines=tuple(share), shared=len(takings) > 1)


def line_of(row: StatementRow) -> StatementLine:
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
        wallet=row.wallet,
        refund=row.refund,
        details=row.details,
    )


_SETTLES: Final[dict[StatementKind, tuple[EntryKind, ...]]] = {
    "payment": ("captured",),
    "refund": ("refunded", "reversed"),
    "dispute": ("dispute_lost",),
    "fee": (),
    "carried": (),
    "returned": (),
    **dict.fromkeys(OF_WALLET, ()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledLine:
    """Statement line with the ledger movements that the line settles. A charged fee is positive."""

    line: StatementLine
    taken: tuple[Taken, ...]
    fresh: tuple[Taken, ...]
    gross: int
    fee: int
    net: int
    exchanged: bool = False


def settled(seen: OrderSeen, *, strange: Set[str] = frozenset()) -> tuple[SettledLine, ...]:
    """Return the order's lines with the movements they settle."""
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
"""Movements and statement lines that settle them in another currency."""


def settled_abroad(seen: OrderSeen) -> Abroad:
    """Return the captures that were settled in another currency."""
    if seen.taking is None or seen.shared:
        return []
    captures = [each for each in seen.taking.taken if each.kind == "captured"]
    return [((taken,), lines) for taken, lines in exchanges(captures, seen.lines)]


def taken_abroad(seen: OrderSeen) -> Abroad:
    """Return the refunds that were settled in another currency."""
    if seen.taking is None or seen.shared:
        return []
    returns = [each for each in seen.taking.taken if each.kind != "captured"]
    if not returns:  # as with most of millions of orders
        return []
    return [(tuple(parts), lines) for parts, lines in exchanges_back(returns, seen.lines)]


def _beside(
    line: StatementLine, left: list[Taken], claimed: list[Taken], gross: int
) -> tuple[tuple[Taken, ...], tuple[Taken, ...]]:
    kinds = [_SETTLES[line.kind]]
    if line.kind == "payment" and gross < 0:
        kinds.insert(0, _SETTLES["refund"])
    for each in kinds:
        fitting = tuple([one for one in left if _fits(line, one, each)])
        equal = tuple([one for one in fitting if one.minor == gross][:1])
        adds_up = sum([one.minor for one in fitting]) == gross
        fresh = equal or (fitting if adds_up else fitting[:1])
        taken = fresh or tuple([one for one in claimed if _fits(line, one, each)][:1])
        if taken:
            return fresh, taken
    if line.kind == "dispute" and line.payment is not None:
        alike = [one for one in left if one.minor == gross and _fits(line, one, ("reversed",))]
        return tuple(alike[:1]), tuple(alike[:1])
    return (), ()


def _fits(line: StatementLine, taken: Taken, kinds: tuple[EntryKind, ...]) -> bool:
    return (
        taken.kind in kinds
        and taken.currency == line.currency
        and (line.payment is None or match_key(line.payment) == match_key(taken.payment))
    )


def signed(line: StatementLine) -> tuple[int, int, int]:
    """Return the line's gross, fee and net. Amounts that increase the balance are positive, and
    charged fees too."""
    if line.kind == "fee":
        return 0, -line.net, line.net
    gross = balance_of(line)
    return gross, line.fee, line.net if gross == line.gross else gross - line.fee


_UNBOOKED: Final[frozenset[Bucket]] = frozenset({"bank_line_unknown", "awaiting_statement"})

Key = tuple[str, str | None, str]
"""Source, payout and currency of a transfer to the bank."""


def key_of(payout: Payout) -> Key:
    return payout.source, payout.reference, payout.currency


def stays_in_wallet(line: StatementLine, withdrawn: Set[Key]) -> bool:
    """Check if a line's money goes into a wallet."""
    key = (line.source, line.payout, line.currency)
    return line.wallet is not None and (line.payout is None or key in withdrawn)


class BankView:
    """Result of matching with the bank, by payout."""

    def __init__(self, leg: BankLeg) -> None:
        self.links = leg.links
        self._flows: dict[Key, Flow] = {}
        self._covered: set[Key] = set()
        for link in leg.links:
            flow: Flow = "in_bank" if link.expected is None else "exchanged"
            for each in link.payouts:
                self._flows[key_of(each)] = flow
        waiting = [e.payout for e in leg.alone if e.payout and e.bucket != "not_covered"]
        self._covered |= self._flows.keys()
        self._covered |= {key_of(each) for each in waiting}
        self.withdrawn = frozenset(
            [
                key_of(each)
                for each in (*waiting, *(each for link in leg.links for each in link.payouts))
                if each.withdrawn
            ]
        )
        self.unbooked = tuple(
            [e.line for e in leg.alone if e.line is not None and e.bucket in _UNBOOKED]
        )

    def flow_of(self, line: StatementLine) -> Flow:
        """Return a line's flow: wallet, bank or in transit."""
        if stays_in_wallet(line, self.withdrawn):
            return "in_wallet"
        if line.payout is None:
            return "no_payout"
        return self._flows.get((line.source, line.payout, line.currency), "not_in_bank")

    def on_its_way(self, line: StatementLine) -> bool:
        """Check if bank files cover the line's payout."""
        return (line.source, line.payout, line.currency) in self._covered

    def differing(self, *, start: Instant, end: Instant) -> Iterator[Money]:
        """Yield each transfer's paid amount minus the booked amount."""
        for link in self.links:
            if any(payout.withdrawn for payout in link.payouts):
                continue
            if link.expected is None and link.missing.minor and start <= link.at < end:
                yield link.missing


def dated(link: Link) -> Instant:
    """Return the booking date of the transfer's last bank line."""
    return max([each.booked_at for each in link.lines])
