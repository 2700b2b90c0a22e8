"""Control totals: every row in exactly one bucket, and sums that must tie.

Leaves out: which bucket a row belongs in. Six sides are counted, each for itself:

book        every book line; its sum is what the line is for
takings     every order, against the book; its sum is what was captured, in each of its currencies
settlement  every capture, against the statements; its sum is what was captured
statement   every statement line; its sum is the gross, beside fee and net
payouts     every payout, against the bank; its sum is the net of its statement lines
bank        every bank line; its sum is what was booked, debits negative

A bucket is of one family: `matched` (the sides agree), `waiting` (nothing is wrong yet: a margin
has not passed, or there is nothing to compare with) or `break`, whose buckets are named for causes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import Final, Literal, TypeVar, get_args

from reconcile.instants import Instant
from reconcile.matching.breaks import BREAK_CAUSES, BreakCause
from reconcile.money import Money
from reconcile.values import frozen

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
    "nothing_due",
    "returned",
    "fee_line",
    "carried_line",
    "other_business",
]
"""Matched. by_reference: by the order's or payout's reference, amounts equal; the six after it
stand each in a line of their own. by_exchange: a payout that the bank booked in another currency.
nothing_due: no money moved, and nobody says that it did. returned: what came went back, and the
book claims nothing. fee_line: a statement line that is a fee of its own. carried_line: one of
what is carried from one payout to another, or kept back. other_business: a bank line that is no
payout's."""

Waiting = Literal[
    "awaiting_book",
    "awaiting_money",
    "awaiting_settlement",
    "awaiting_refund",
    "awaiting_bank",
    "awaiting_statement",
    "not_covered",
]
"""Nothing is wrong yet. awaiting_bank: a payout that the bank may still book. awaiting_statement: a
bank line of after the last payout that is known. not_covered: there is no book, statement, webhook
or bank to compare it with."""

Bucket = Agreed | Waiting | BreakCause
AGREED: Final[tuple[Agreed, ...]] = get_args(Agreed)
WAITING: Final[tuple[Waiting, ...]] = get_args(Waiting)
BUCKETS: Final[tuple[Bucket, ...]] = (*AGREED, *WAITING, *BREAK_CAUSES)

_SAME_MONEY: Final = frozenset(("by_reference", "by_group", "by_date_window", "by_hand"))
"""Buckets in which payouts and bank lines have one sum."""

Family = Literal["matched", "waiting", "break"]
FAMILIES: Final[dict[Bucket, Family]] = {
    **dict.fromkeys(AGREED, "matched"),
    **dict.fromkeys(WAITING, "waiting"),
    **dict.fromkeys(BREAK_CAUSES, "break"),
}


@frozen
class ControlLine:
    """How many rows of one side and currency stand in one bucket, and their sums in minor units.

    fee, net  of statement lines; zero on the other sides
    """

    side: Side
    currency: str
    bucket: Bucket
    count: int
    sum: int
    fee: int = 0
    net: int = 0


@frozen
class Read:
    """How many rows of one side and currency came in, and their sums: counted as they came,
    apart from any bucket."""

    side: Side
    currency: str
    count: int
    sum: int
    fee: int = 0
    net: int = 0


@frozen
class BreakTotal:
    """How many breaks of one cause and currency there are, and the money at stake in them."""

    cause: BreakCause
    currency: str
    count: int
    minor: int


@frozen
class Equation:
    """One equation that must hold, in minor units or rows: `name` says which, and of what."""

    name: str
    side: Side
    currency: str
    left: int
    right: int

    @property
    def holds(self) -> bool:
        """Whether both sides are equal."""
        return self.left == self.right

    @property
    def sides(self) -> str:
        """Both sides for people: rows, or money in major units."""
        if self.name == _ROWS or not self.currency:
            return f"{self.left:,} and {self.right:,}"
        left, right = (Money(minor=m, currency=self.currency) for m in (self.left, self.right))
        return f"{left} and {right}"


_ROWS: Final = "rows read = rows placed"


@frozen
class Control:
    """The totals of a matching, or of a part of it; parts add up with `+`.

    lines, read, breaks  sorted by side, currency and bucket (cause), none of them twice
    unsearched           rows for which the second look was too much (`funds.MOST_LEFT`)
    """

    as_of: Instant
    lines: tuple[ControlLine, ...] = ()
    read: tuple[Read, ...] = ()
    breaks: tuple[BreakTotal, ...] = ()
    unsearched: int = 0

    def __add__(self, other: Control) -> Control:
        """The totals of two parts of one matching."""
        return Control(
            as_of=max(self.as_of, other.as_of),
            lines=_added(self.lines + other.lines, ("side", "currency", "bucket")),
            read=_added(self.read + other.read, ("side", "currency")),
            breaks=_added(self.breaks + other.breaks, ("cause", "currency")),
            unsearched=self.unsearched + other.unsearched,
        )

    def ties(self) -> tuple[Equation, ...]:
        """Every equation with both its sides, for each side and currency: what was read =
        matched + waiting + breaks, in rows and in money; gross - fee = net; and for each currency
        captured by the takings = captured by the settlement side.
        """
        found: list[Equation] = []
        places = {(e.side, e.currency) for e in self.read}
        for side, currency in sorted(places | {(e.side, e.currency) for e in self.lines}):
            read = [e for e in self.read if (e.side, e.currency) == (side, currency)]
            lines = [e for e in self.lines if (e.side, e.currency) == (side, currency)]
            for name, left, right in _equations(side, read=read, lines=lines):
                found.append(
                    Equation(name=name, side=side, currency=currency, left=left, right=right)
                )
        return (*found, *self._captured(), *self._in_bank())

    def _captured(self) -> Iterator[Equation]:
        name = "captured against the book = captured against the statements"
        for currency in sorted({each.currency for each in self.lines}):
            of = [each for each in self.lines if each.currency == currency]
            left = sum([each.sum for each in of if each.side == "takings"])
            right = sum([each.sum for each in of if each.side == "settlement"])
            yield Equation(name=name, side="settlement", currency=currency, left=left, right=right)

    def _in_bank(self) -> Iterator[Equation]:
        name = "payouts found in the bank = what the bank booked for them"
        of = [each for each in self.lines if each.bucket in _SAME_MONEY]
        for currency in sorted({each.currency for each in of if each.side in ("payouts", "bank")}):
            left, right = (
                sum([e.sum for e in of if (e.side, e.currency) == (side, currency)])
                for side in ("payouts", "bank")
            )
            yield Equation(name=name, side="bank", currency=currency, left=left, right=right)

    @property
    def holds(self) -> bool:
        """Whether every tie holds."""
        return all(tie.holds for tie in self.ties())


def total(lines: Iterable[ControlLine], family: Family) -> int:
    """The sum of the lines whose bucket is of the family."""
    return sum([line.sum for line in lines if FAMILIES[line.bucket] == family])


def _equations(
    side: Side, *, read: Sequence[Read], lines: Sequence[ControlLine]
) -> Iterator[tuple[str, int, int]]:
    parts = sum([total(lines, family) for family in get_args(Family)])
    yield _ROWS, sum([e.count for e in read]), sum([e.count for e in lines])
    yield "read = matched + waiting + breaks", sum([each.sum for each in read]), parts
    if side == "statement":
        fees = sum([each.fee for each in read])
        yield "fees read = fees placed", fees, sum([each.fee for each in lines])
        net = sum([each.net for each in lines])
        yield "gross - fees = net", parts - sum([each.fee for each in lines]), net


Counted = TypeVar("Counted", ControlLine, Read, BreakTotal)
_SUMMED: Final = frozenset({"count", "sum", "fee", "net", "minor"})


def _added(parts: Iterable[Counted], names: Sequence[str]) -> tuple[Counted, ...]:
    """One value for each combination of `names`, sorted by them."""
    found: dict[tuple[str, ...], Counted] = {}
    for part in parts:
        key = tuple([getattr(part, name) for name in names])
        found[key] = part if key not in found else _plus(found[key], part)
    return tuple([found[key] for key in sorted(found)])


def _plus(one: Counted, other: Counted) -> Counted:
    summed = [each.name for each in fields(one) if each.name in _SUMMED]
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in summed})


# --- control totals as text, to be kept with their run and read again -----------------------------


def control_text(control: Control) -> str:
    """As JSON that `control_in` reads again."""
    return json.dumps(asdict(control), separators=(",", ":"))


def control_in(text: str) -> Control:
    """The totals that `control_text` wrote."""
    given = json.loads(text)
    return Control(
        as_of=given["as_of"],
        lines=tuple(ControlLine(**each) for each in given["lines"]),
        read=tuple(Read(**each) for each in given["read"]),
        breaks=tuple(BreakTotal(**each) for each in given["breaks"]),
        unsearched=given["unsearched"],
    )
