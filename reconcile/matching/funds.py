"""Captures, returns, doubts and surplus of an order, for matching."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.breaks import Break
from reconcile.matching.ledger_lines import Doubted, LedgerLine
from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from reconcile.money import MAX_MINOR, Money


class Capture(NamedTuple):
    """One amount of captured money."""

    key: str
    order: str
    source: str
    payment: str
    minor: int
    currency: str
    at: Instant
    cites: tuple[str, ...]
    part: str = ""
    """Text that distinguishes several captures of one payment in one event. Empty for the first
    capture."""

    @property
    def subject(self) -> str:
        """Return a text that distinguishes the captures of one order and payment."""
        return f"{self.source}:{self.part}" if self.part else self.source


class Return(NamedTuple):
    """One amount of money that went back; negative if money came back."""

    order: str
    kind: EntryKind
    source: str
    payment: str
    minor: int
    """Amount in minor units; negative if money came back, as after a won dispute."""
    currency: str
    at: Instant
    cites: tuple[str, ...]


@dataclass(slots=True)
class Funds:
    """Money of one order, or of several joined orders."""

    rows: tuple[TakingRow, ...]
    captures: list[Capture]
    returns: list[Return]
    findings: frozenset[FindingCode]
    unresolved: bool
    disputed: bool
    currency: str
    """Currency of the price if money came in it, or else of the first money."""
    others: bool
    """True if a capture in another currency is not yet reported."""
    captured: int
    """Captured sum in `currency`, without payments in doubt unless unresolved."""
    refunded: int
    """Sum of the refunds and chargebacks of these payments, as a positive number."""
    over: int
    """Part of `captured` above the price that is not `on_top`."""
    on_top: int
    """Part of `captured` that was paid on top of the price."""
    in_doubt: int
    """Further amount in `currency` that may have been captured. Only if unresolved."""
    doubted: tuple[Doubted, ...]
    """Payments in doubt."""
    at_doubt: tuple[Money, ...]
    """Money at stake in `doubted` for each currency. Empty if unresolved."""
    owed: tuple[Money, ...]
    """Money held beyond the price and owed back, for each currency."""
    tendered: int
    """Part of the orders' prices that no provider receives, in `currency`."""
    beside: tuple[Money, ...]
    """Money of statement lines that settle nothing."""
    at: Instant
    """Time when the last money came, or else when the order was opened."""

    @property
    def order(self) -> str:
        """Return the order's reference. For several orders, this is the first reference."""
        return self.rows[0].order

    @property
    def worth(self) -> int:
        """Return the captured money, without the parts beyond and on top of the price."""
        return self.captured - self.over - self.on_top

    @property
    def given_back(self) -> int:
        """Return the refunded part of the price."""
        back = max(0, self.refunded - self.over)
        return back - min(self.on_top, max(0, back - self.worth))

    @property
    def kept(self) -> int:
        """Return the part of the price that was captured and has not gone back."""
        return self.worth - self.given_back

    @property
    def at_stake(self) -> int:
        """Return the largest amount that may have moved, limited to MAX_MINOR."""
        return min(max(self.captured + self.in_doubt, self.refunded), MAX_MINOR)

    @property
    def moved(self) -> bool:
        """Check whether the order needs matching."""
        return bool(self.captures) or self.unresolved

    @property
    def late(self) -> bool:
        """Check whether money came after a cancellation, expiry or deadline."""
        return not self.findings.isdisjoint(("paid_after_cancel", "success_after_deadline"))

    @property
    def returned_at(self) -> Instant:
        """Return the last date on which money went back; `at` if none went back."""
        return max([each.at for each in self.returns], default=self.at)

    @property
    def payments(self) -> frozenset[tuple[str, str]]:
        """Return the source and payment of every attempt and of every movement of money."""
        wholes = [row.whole for row in self.rows if row.whole is not None]
        found = [payment for whole in wholes for payment in whole.payments]
        found += [(each.source, each.payment) for each in self.captures]
        found += [(each.source, each.payment) for each in self.returns]
        return frozenset(found)

    @property
    def cites(self) -> tuple[str, ...]:
        """Return the ids of the events about the money."""
        cites = [cite for each in self.captures for cite in each.cites]
        cites += [cite for each in self.returns for cite in each.cites]
        return tuple(dict.fromkeys(cites))

    def money(self, minor: int) -> Money:
        return Money(minor=minor, currency=self.currency)


def funds_of(rows: Sequence[TakingRow]) -> Funds:
    captures = [each for row in rows for each in captures_of(row)]
    returns = [
        Return(row.order, t.kind, t.source, t.payment, -t.minor, t.currency, t.at, t.cites)
        for row in rows
        for t in (() if row.whole is None else row.whole.taken)
        if t.kind != "captured"
    ]
    wholes = [row.whole for row in rows if row.whole is not None]
    unresolved = any(whole.outcome == "unresolved" for whole in wholes)
    doubts = [money for whole in wholes for money in whole.in_doubt]
    doubted = tuple([each for whole in wholes for each in whole.doubted])
    aside = set() if unresolved else {(each.source, each.payment) for each in doubted}
    moved = [each.currency for each in captures or doubts or returns]
    priced = [whole.expected.currency for whole in wholes if whole.expected is not None]
    currency = rows[0].currency
    if moved:
        currency = priced[0] if priced and priced[0] in moved else moved[0]
    elif priced:
        currency = priced[0]
    came = [e for e in captures if e.currency == currency and e[2:4] not in aside]
    back = [e for e in returns if e.currency == currency and (e.source, e.payment) not in aside]
    return Funds(
        rows=tuple(rows),
        captures=captures,
        returns=returns,
        findings=frozenset([code for whole in wholes for code in whole.findings]),
        unresolved=unresolved,
        disputed=any(
            whole.outcome == "disputed" or "dispute_open" in whole.findings for whole in wholes
        ),
        currency=currency,
        others=any(_is_other(each, rows, currency) for each in captures),
        captured=sum([each.minor for each in came]),
        refunded=sum([each.minor for each in back]),
        over=0 if unresolved else sum([_over(whole, came, currency) for whole in wholes]),
        on_top=sum([_on_top(whole, currency) for whole in wholes]),
        in_doubt=sum([money.minor for money in doubts if money.currency == currency]),
        doubted=doubted,
        at_doubt=_at_doubt([w for w in wholes if w.outcome != "unresolved"]),
        owed=_summed([money for whole in wholes for money in whole.owed]),
        tendered=sum(
            [
                whole.tendered
                for whole in wholes
                if whole.expected is not None and whole.expected.currency == currency
            ]
        ),
        beside=left_of([money for row in rows for money in row.beside]),
        at=max([each.at for each in captures], default=max([row.opened_at for row in rows])),
    )


def captures_of(row: TakingRow) -> list[Capture]:
    if row.whole is None:
        if not row.minor:
            return []
        place = (row.key, row.order, row.source, row.payment)
        return [Capture(*place, row.minor, row.currency, row.at, (row.cite,))]
    known: Counter[tuple[str, ...]] = Counter()
    found = []
    for t in row.whole.taken:
        if t.kind != "captured":
            continue
        payment, part = (t.source, t.payment), ""
        known[payment] += 1
        if known[payment] > 1:
            part = t.cites[0]
            known[*payment, part] += 1
            if known[*payment, part] > 1:
                part = f"{part}#{known[*payment, part]}"
        place = (row.key, row.order, t.source, t.payment)
        found.append(Capture(*place, t.minor, t.currency, t.at, t.cites, part))
    return found


def _is_other(capture: Capture, rows: Sequence[TakingRow], currency: str) -> bool:
    if capture.currency == currency:
        return False
    whole = next(row.whole for row in rows if row.order == capture.order)
    return (
        whole is None
        or whole.outcome == "unresolved"
        or whole.expected is None
        or whole.expected.currency != currency
    )


def _over(whole: LedgerLine, came: Sequence[Capture], currency: str) -> int:
    price = whole.expected
    if price is None or price.currency != currency:
        return 0
    captured = sum([each.minor for each in came if each.order == whole.order])
    return max(0, captured - _on_top(whole, currency) - price.minor)


def _on_top(whole: LedgerLine, currency: str) -> int:
    return sum([each.money.minor for each in whole.on_top if each.money.currency == currency])


def _at_doubt(wholes: Sequence[LedgerLine]) -> tuple[Money, ...]:
    taken = [money for whole in wholes for money in whole.in_doubt]
    back: list[Money] = []
    for whole in wholes:
        doubted = {(each.source, each.payment) for each in whole.doubted}
        for each in whole.taken:
            if (each.source, each.payment) in doubted:
                money = Money(minor=abs(each.minor), currency=each.currency)
                (taken if each.minor > 0 else back).append(money)
    sums = Counter({money.currency: money.minor for money in _summed(taken)})
    sums |= Counter({money.currency: money.minor for money in _summed(back)})
    return _moneys(sums)


def left_of(amounts: Iterable[Money]) -> tuple[Money, ...]:
    """Add up amounts for each currency, without sums of zero."""
    sums: Counter[str] = Counter()
    for money in amounts:
        sums[money.currency] += money.minor
    return tuple([Money(minor=minor, currency=c) for c, minor in sorted(sums.items()) if minor])


def _summed(amounts: Sequence[Money]) -> tuple[Money, ...]:
    sums: Counter[str] = Counter()
    for money in amounts:
        sums[money.currency] += money.minor
    return _moneys(sums)


def _moneys(sums: Counter[str]) -> tuple[Money, ...]:
    return tuple(
        [Money(minor=min(m, MAX_MINOR), currency=c) for c, m in sorted(sums.items()) if m > 0]
    )


MOST_LEFT: Final = 30_000
"""Maximum number of unmatched rows of each kind in memory."""

Kept = TypeVar("Kept")


class RefundDue(NamedTuple):
    """Break about a refund that has not arrived, with the rows of its order and book."""

    found: Break
    orders: tuple[TakingRow, ...]
    book: tuple[BookRow, ...]


@dataclass(slots=True)
class Left:
    """Rows for which no partner with an equal key was found."""

    orders: list[TakingRow] = field(default_factory=list)
    """Orders that have money but no book line that fits."""
    book: list[tuple[BookRow, ...]] = field(default_factory=list)
    """Book lines that say that money came, by reference."""
    idle: list[tuple[BookRow, ...]] = field(default_factory=list)
    """Book lines that say that no money came, by reference."""
    captures: list[Capture] = field(default_factory=list)
    """Captures that a statement should already have."""
    awaited: list[Capture] = field(default_factory=list)
    """Captures that need no statement line yet."""
    lines: list[StatementRow] = field(default_factory=list)
    """Statement lines of unknown payments."""
    suspended: list[StatementRow] = field(default_factory=list)
    """Statement lines of unallocated payments."""
    paid_out: list[StatementRow] = field(default_factory=list)
    """Disbursements: payments to customers or other people."""
    refunds: list[RefundDue] = field(default_factory=list)
    """Orders with a refund that the book states and that has not arrived."""
    together: dict[str, str] = field(default_factory=dict)
    """First book line of each order that may also have paid lines of its group."""

    def sort(self) -> None:
        """Sort the rows of each kind."""
        self.orders.sort(key=lambda row: (row.key, row.order))
        for book in (self.book, self.idle):
            book.sort(key=lambda rows: (rows[0].key, rows[0].line_id))
        for captures in (self.captures, self.awaited):
            captures.sort(key=lambda c: (c.key, c.order, c.source, c.payment, c.part))
        self.lines.sort(key=lambda row: row.line_id)
        self.paid_out.sort(key=lambda row: row.line_id)
        self.refunds.sort(key=lambda each: each.found.identity)


def keep(pool: list[Kept], row: Kept) -> bool:
    """Add a row for further matching. Return False if the limit is reached."""
    if len(pool) >= MOST_LEFT:
        return False
    pool.append(row)
    return True
