"""Prove that every row is in one bucket and that the sums agree.

book        every book line, with the sums of the amounts
takings     every order, with the sums of the captures
settlement  every capture, with the sums of the amounts
statement   every statement line, with the sums of gross, fee and net
payouts     every payout, with the sums of the net amounts
bank        every bank line, with the sums of the amounts, debits negative
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, Literal, TypeVar, get_args

from reconcile.instants import Instant
from reconcile.matching.breaks import Break
from reconcile.matching.causes import BREAK_CAUSES, BreakCause
from reconcile.money import Money

Side = Literal["book", "takings", "settlement", "statement", "payouts", "bank"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)

Agreed = Literal[
    "by_reference",
    "by_payment",
    "by_group",
    "by_tolerance",
    "by_date_window",
    "by_hand",
    "by_exchange",
    "by_tender",
    "outside_providers",
    "nothing_due",
    "returned",
    "fee_line",
    "carried_line",
    "wallet_line",
    "other_business",
    "other_shop",
]
"""Buckets of rows that are matched or need no match.

by_tender          a tender or cash paid the rest of the price
outside_providers  an order paid without a provider, or the bank line that paid it
nothing_due        no money moved, and no file states that money moved
returned           all captured money went back, and the order book claims nothing
carried_line       money that the provider holds back or carries to another payout
other_business     a bank line that is no payout, or a payment to somebody else
"""

Waiting = Literal[
    "awaiting_book",
    "awaiting_money",
    "awaiting_settlement",
    "awaiting_refund",
    "awaiting_bank",
    "awaiting_statement",
    "not_covered",
]
"""Buckets of rows that wait because nothing is wrong yet."""

Bucket = Agreed | Waiting | BreakCause
AGREED: Final[tuple[Agreed, ...]] = get_args(Agreed)
WAITING: Final[tuple[Waiting, ...]] = get_args(Waiting)
BUCKETS: Final[tuple[Bucket, ...]] = (*AGREED, *WAITING, *BREAK_CAUSES)

_SAME_MONEY: Final = frozenset(("by_reference", "by_group", "by_date_window", "by_hand"))

Family = Literal["matched", "waiting", "break"]
FAMILIES: Final[dict[Bucket, Family]] = {
    **dict.fromkeys(AGREED, "matched"),
    **dict.fromkeys(WAITING, "waiting"),
    **dict.fromkeys(BREAK_CAUSES, "break"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLine:
    """Number and sums of rows by side, currency and bucket."""

    side: Side
    currency: str
    bucket: Bucket
    count: int
    sum: int
    fee: int = 0
    net: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Number and sums of read rows by side and currency."""

    side: Side
    currency: str
    count: int
    sum: int
    fee: int = 0
    net: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakTotal:
    """Number of breaks with one cause and currency, and their money at stake in minor units."""

    cause: BreakCause
    currency: str
    count: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """Two totals that must be equal, in minor units or rows."""

    name: str
    side: Side
    currency: str
    left: int
    right: int

    @property
    def holds(self) -> bool:
        return self.left == self.right

    @property
    def of_wallet(self) -> bool:
        """Check whether the equation is about a balance that a statement states."""
        return self.name.endswith(STATED_BALANCE)

    @property
    def sides(self) -> str:
        """Return both totals as text: numbers of rows, or money in major units."""
        if self.name == _ROWS or not self.currency:
            return f"{self.left:,} and {self.right:,}"
        left, right = (Money(minor=m, currency=self.currency) for m in (self.left, self.right))
        return f"{left} and {right}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletTie:
    """Balance of a wallet at the end of a period: computed from its movements, and as stated."""

    wallet: str
    currency: str
    moved: int
    stated: int


STATED_BALANCE: Final = "balance of the statement"

_ROWS: Final = "rows read = rows placed"
_BANK_SIDES: Final = ("payouts", "bank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Totals of a matching, or of a part of a matching. Parts are added with `+`.

    lines, read, breaks  sorted by side, currency and bucket or cause
    """

    as_of: Instant
    lines: tuple[ControlLine, ...] = ()
    read: tuple[Read, ...] = ()
    breaks: tuple[BreakTotal, ...] = ()
    wallets: tuple[WalletTie, ...] = ()
    """Balances that statements state."""
    unsearched: int = 0
    """Rows beyond `funds.MOST_LEFT`, whose partner was searched only by key."""

    def __add__(self, other: Control) -> Control:
        return Control(
            as_of=max(self.as_of, other.as_of),
            lines=_added(self.lines + other.lines, ("side", "currency", "bucket")),
            read=_added(self.read + other.read, ("side", "currency")),
            breaks=_added(self.breaks + other.breaks, ("cause", "currency")),
            wallets=self.wallets + other.wallets,
            unsearched=self.unsearched + other.unsearched,
        )

    def ties(self) -> tuple[Equation, ...]:
        """Return every equation for the totals, with both sides."""
        found: list[Equation] = []
        places = {(e.side, e.currency) for e in self.read}
        for side, currency in sorted(places | {(e.side, e.currency) for e in self.lines}):
            read = [e for e in self.read if (e.side, e.currency) == (side, currency)]
            lines = [e for e in self.lines if (e.side, e.currency) == (side, currency)]
            parts = sum([total(lines, family) for family in get_args(Family)])
            sums = [
                (_ROWS, sum([e.count for e in read]), sum([e.count for e in lines])),
                ("read = matched + waiting + breaks", sum([e.sum for e in read]), parts),
            ]
            if side == "statement":
                fees, net = sum([e.fee for e in lines]), sum([e.net for e in lines])
                sums.append(("fees read = fees placed", sum([e.fee for e in read]), fees))
                sums.append(("gross - fees = net", parts - fees, net))
            for name, left, right in sums:
                found.append(
                    Equation(name=name, side=side, currency=currency, left=left, right=right)
                )
        for currency in sorted({each.currency for each in self.lines}):
            taken, settled = (_sum(self.lines, s, currency) for s in ("takings", "settlement"))
            name = "captured against the book = captured against the statements"
            found.append(
                Equation(name=name, side="settlement", currency=currency, left=taken, right=settled)
            )
        of_bank = [e for e in self.lines if e.bucket in _SAME_MONEY and e.side in _BANK_SIDES]
        for currency in sorted({each.currency for each in of_bank}):
            paid, booked = (_sum(of_bank, side, currency) for side in _BANK_SIDES)
            name = "payouts found in the bank = what the bank booked for them"
            found.append(
                Equation(name=name, side="bank", currency=currency, left=paid, right=booked)
            )
        for each in self.wallets:
            name = f"{each.wallet}: opening balance and movements = {STATED_BALANCE}"
            found.append(
                Equation(
                    name=name,
                    side="statement",
                    currency=each.currency,
                    left=each.moved,
                    right=each.stated,
                )
            )
        return tuple(found)

    @property
    def holds(self) -> bool:
        return all(tie.holds for tie in self.ties())


def _sum(lines: Iterable[ControlLine], side: str, currency: str) -> int:
    return sum([each.sum for each in lines if (each.side, each.currency) == (side, currency)])


def total(lines: Iterable[ControlLine], family: Family) -> int:
    """Return the sum of a bucket family's lines, in minor units."""
    return sum([line.sum for line in lines if FAMILIES[line.bucket] == family])


Counted = TypeVar("Counted", ControlLine, Read, BreakTotal)
_SUMMED: Final = frozenset({"count", "sum", "fee", "net", "minor"})


def _added(parts: Iterable[Counted], names: Sequence[str]) -> tuple[Counted, ...]:
    found: dict[tuple[str, ...], Counted] = {}
    for part in parts:
        key = tuple([getattr(part, name) for name in names])
        if (one := found.get(key)) is not None:
            summed = [each.name for each in fields(part) if each.name in _SUMMED]
            part = replace(part, **{n: getattr(one, n) + getattr(part, n) for n in summed})
        found[key] = part
    return tuple([found[key] for key in sorted(found)])


def break_totals(breaks: Iterable[Break]) -> tuple[BreakTotal, ...]:
    """Return the number and the money of the breaks for each cause and currency."""
    sums: dict[tuple[BreakCause, str], list[int]] = {}
    for found in breaks:
        each = sums.setdefault((found.cause, found.money.currency), [0, 0])
        each[0] += 1
        each[1] += found.money.minor
    return tuple(
        BreakTotal(cause=cause, currency=currency, count=count, minor=minor)
        for (cause, currency), (count, minor) in sorted(sums.items())
    )


def control_text(control: Control) -> str:
    return json.dumps(asdict(control), separators=(",", ":"))


def control_in(text: str) -> Control:
    given = json.loads(text)
    return Control(
        as_of=given["as_of"],
        lines=tuple(ControlLine(**each) for each in given["lines"]),
        read=tuple(Read(**each) for each in given["read"]),
        breaks=tuple(BreakTotal(**each) for each in given["breaks"]),
        wallets=tuple(WalletTie(**each) for each in given["wallets"]),
        unsearched=given["unsearched"],
    )
