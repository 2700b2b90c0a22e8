"""An order's money as a match looks at it: what was captured, what went back, and what is odd.

Also what no key brought together, kept for the fallback and bounded in number. Leaves out: books
and statements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.ledger_lines import Doubted, LedgerLine, Taken
from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from reconcile.money import MAX_MINOR, Money


class Capture(NamedTuple):
    """Money that came once; `minor` is positive.

    part  empty for the first of its payment; of one that was captured in several parts what
          distinguishes the others from it and from each other: an event that they rest on
    """

    key: str
    order: str
    source: str
    payment: str
    minor: int
    currency: str
    at: Instant
    cites: tuple[str, ...]
    part: str = ""

    @property
    def subject(self) -> str:
        """What distinguishes it from other captures of its order and payment: source and part."""
        return f"{self.source}:{self.part}" if self.part else self.source


class Return(NamedTuple):
    """Money that went back once; `minor` is positive."""

    order: str
    kind: EntryKind
    source: str
    payment: str
    minor: int
    currency: str
    at: Instant
    cites: tuple[str, ...]


@dataclass(slots=True)
class Funds:
    """The money of one order, or of several that a group or a person puts together.

    currency   of the price, where money of it came, else of the first money that moved, or may have
    others     whether money of another currency came as well, and nothing
               distinguishes it from the order's
    captured, refunded   in `currency`, both positive; of an order that is not unresolved without
               its payments in doubt
    over       what of `captured` came beyond the price, whether it is still held or went back
    in_doubt   what may have been captured beside, in `currency`: of an unresolved order only
    doubted    payments in doubt, and of an order that is not unresolved what is at stake in them
    at_doubt   in each currency
    owed       what is held beyond the price and owed back, in each currency
    beside     what statement lines that its break in doubt reports leave to be settled
    at         when the last money came, else when the order was opened
    """

    rows: tuple[TakingRow, ...]
    captures: list[Capture]
    returns: list[Return]
    findings: frozenset[FindingCode]
    unresolved: bool
    disputed: bool
    currency: str
    others: bool
    captured: int
    refunded: int
    over: int
    in_doubt: int
    doubted: tuple[Doubted, ...]
    at_doubt: tuple[Money, ...]
    owed: tuple[Money, ...]
    beside: tuple[Money, ...]
    at: Instant

    @property
    def order(self) -> str:
        """The order's reference; the first of several."""
        return self.rows[0].order

    @property
    def worth(self) -> int:
        """What came, but for what came beyond the price."""
        return self.captured - self.over

    @property
    def given_back(self) -> int:
        """What went back, but for what of it came beyond the price."""
        return max(0, self.refunded - self.over)

    @property
    def kept(self) -> int:
        """What came and has not gone back, but for what is held beyond the price."""
        return self.captured - self.refunded - max(0, self.over - self.refunded)

    @property
    def at_stake(self) -> int:
        """What may have been taken or given back, whichever is more; at most what can be kept."""
        return min(max(self.captured + self.in_doubt, self.refunded), MAX_MINOR)

    @property
    def moved(self) -> bool:
        """Whether there is anything to reconcile: money, or doubt about it."""
        return bool(self.captures) or self.unresolved

    @property
    def late(self) -> bool:
        """Whether money came after cancellation, expiry or deadline."""
        return not self.findings.isdisjoint(("paid_after_cancel", "success_after_deadline"))

    @property
    def returned_at(self) -> Instant:
        """When money last went back; `at` where none did."""
        return max([each.at for each in self.returns], default=self.at)

    @property
    def payments(self) -> frozenset[tuple[str, str]]:
        """(source, payment) of every attempt of its orders, and of all money that moved."""
        wholes = [row.whole for row in self.rows if row.whole is not None]
        found = [payment for whole in wholes for payment in whole.payments]
        found += [(each.source, each.payment) for each in self.captures]
        found += [(each.source, each.payment) for each in self.returns]
        return frozenset(found)

    @property
    def cites(self) -> tuple[str, ...]:
        """The events that its movements rest on, each once."""
        cites = [cite for each in self.captures for cite in each.cites]
        cites += [cite for each in self.returns for cite in each.cites]
        return tuple(dict.fromkeys(cites))

    def money(self, minor: int) -> Money:
        """An amount in its currency."""
        return Money(minor=minor, currency=self.currency)


def funds_of(rows: Sequence[TakingRow]) -> Funds:
    """The money of these orders."""
    captures = [each for row in rows for each in captures_of(row)]
    returns = [each for row in rows for each in _returns_of(row)]
    wholes = [row.whole for row in rows if row.whole is not None]
    unresolved = any(whole.outcome == "unresolved" for whole in wholes)
    doubts = [money for whole in wholes for money in whole.in_doubt]
    doubted = tuple([each for whole in wholes for each in whole.doubted])
    aside = set() if unresolved else {(each.source, each.payment) for each in doubted}
    moved = captures or doubts or returns
    currency = _currency(rows, [each.currency for each in moved])
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
        in_doubt=sum([money.minor for money in doubts if money.currency == currency]),
        doubted=doubted,
        at_doubt=_at_doubt([w for w in wholes if w.outcome != "unresolved"]),
        owed=_summed([money for whole in wholes for money in whole.owed]),
        beside=left_of([money for row in rows for money in row.beside]),
        at=max([each.at for each in captures], default=max([row.opened_at for row in rows])),
    )


def captures_of(row: TakingRow) -> list[Capture]:
    """Every capture of one order."""
    if row.whole is None:
        if not row.minor:
            return []
        place = (row.key, row.order, row.source, row.payment)
        return [Capture(*place, row.minor, row.currency, row.at, (row.cite,))]
    known: Counter[tuple[str, ...]] = Counter()
    return [
        Capture(
            row.key, row.order, t.source, t.payment, t.minor, t.currency, t.at, t.cites,
            _part_of(t, known),
        )
        for t in row.whole.taken
        if t.kind == "captured"
    ]  # fmt: skip


def _part_of(taken: Taken, known: Counter[tuple[str, ...]]) -> str:
    """What distinguishes a capture from the known ones of its payment, which it is added to."""
    payment = (taken.source, taken.payment)
    known[payment] += 1
    if known[payment] == 1:
        return ""
    event = taken.cites[0]
    known[*payment, event] += 1
    number = known[*payment, event]
    return event if number == 1 else f"{event}#{number}"


def _returns_of(row: TakingRow) -> Iterator[Return]:
    for taken in () if row.whole is None else row.whole.taken:
        if taken.kind != "captured":
            minor, currency = -taken.minor, taken.currency
            place = (row.order, taken.kind, taken.source, taken.payment)
            yield Return(*place, minor, currency, taken.at, taken.cites)


def _currency(rows: Sequence[TakingRow], moved: Sequence[str]) -> str:
    prices = [row.whole.expected for row in rows if row.whole is not None]
    stated = [price.currency for price in prices if price is not None]
    if not moved:
        return stated[0] if stated else rows[0].currency
    return stated[0] if stated and stated[0] in moved else moved[0]


def _is_other(capture: Capture, rows: Sequence[TakingRow], currency: str) -> bool:
    """Whether it came in another currency, and its order does not say apart what is owed back."""
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
    """What came on one order beyond its price."""
    price = whole.expected
    if price is None or price.currency != currency:
        return 0
    return max(0, sum([each.minor for each in came if each.order == whole.order]) - price.minor)


def _at_doubt(wholes: Sequence[LedgerLine]) -> tuple[Money, ...]:
    """What may have been taken or given back on payments in doubt, whichever is more."""
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
    """What these leave together, of either sign: by currency, without those of nothing."""
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
    """By currency; at most what can be kept."""
    return tuple(
        [Money(minor=min(m, MAX_MINOR), currency=c) for c, m in sorted(sums.items()) if m > 0]
    )


MOST_LEFT: Final = 30_000
"""Rows kept of each kind: about a kilobyte each with its break and the indexes that it is searched
by, so that all six kinds together, all of them full, take about 200 MB. What is beyond is decided
at once, by its key alone, and says so; `Control.unsearched` counts it."""

Kept = TypeVar("Kept")


@dataclass(slots=True)
class Left:
    """Rows that wait for the second look.

    orders    orders with money, and no book line of their own that fits
    book      lines of one reference that claim money that was not found
    idle      lines of one reference that claim nothing, in case their payment went astray
    captures  money that a statement ought to hold
    awaited   money that a statement may hold later, in case a stray line is of it
    lines     statement lines of payments that nobody knows
    together  of an order with lines of its own that may have paid others of their group, too, the
              first of these lines: whoever takes them over has both
    """

    orders: list[TakingRow] = field(default_factory=list)
    book: list[tuple[BookRow, ...]] = field(default_factory=list)
    idle: list[tuple[BookRow, ...]] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)
    awaited: list[Capture] = field(default_factory=list)
    lines: list[StatementRow] = field(default_factory=list)
    together: dict[str, str] = field(default_factory=dict)

    def sort(self) -> None:
        """In an order that does not depend on how they came."""
        self.orders.sort(key=lambda row: (row.key, row.order))
        self.book.sort(key=_of_book)
        self.idle.sort(key=_of_book)
        self.captures.sort(key=_of_capture)
        self.awaited.sort(key=_of_capture)
        self.lines.sort(key=lambda row: row.line_id)


def keep(pool: list[Kept], row: Kept) -> bool:
    """Put it aside; False where there is no room."""
    if len(pool) >= MOST_LEFT:
        return False
    pool.append(row)
    return True


def _of_book(rows: tuple[BookRow, ...]) -> tuple[str, str]:
    return rows[0].key, rows[0].line_id


def _of_capture(capture: Capture) -> tuple[str, ...]:
    return (capture.key, capture.order, capture.source, capture.payment, capture.part)
