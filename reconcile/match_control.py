"""Control totals: every row in exactly one bucket, and sums that must tie.

Leaves out: which bucket a row belongs in. Four sides are counted, each for itself:

book        every book line; its sum is what the line is for
takings     every order, against the book; its sum is what was captured, in each of its currencies
settlement  every capture, against the statements; its sum is what was captured
statement   every statement line; its sum is the gross, beside fee and net

A bucket is of one family: `matched` (the sides agree), `waiting` (nothing is wrong yet: a margin
has not passed, or there is nothing to compare with) or `break`, whose buckets are named for causes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

from reconcile.breaks import BREAK_CAUSES, BreakCause
from reconcile.instants import Instant
from reconcile.values import frozen

Side = Literal["book", "takings", "settlement", "statement"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)

Agreed = Literal[
    "by_reference",
    "by_payment",
    "by_group",
    "by_tolerance",
    "by_date_window",
    "by_hand",
    "nothing_due",
    "returned",
    "fee_line",
]
"""Matched. by_reference: by the order's reference, amounts equal; the five after it stand each in
a line of their own. nothing_due: no money moved, and nobody says that it did. returned: what came
went back, and the book claims nothing. fee_line: a statement line that is a fee of its own."""

Waiting = Literal[
    "awaiting_book", "awaiting_money", "awaiting_settlement", "awaiting_refund", "not_covered"
]
"""Nothing is wrong yet. not_covered: there is no book, statement or webhook to compare it with."""

Bucket = Agreed | Waiting | BreakCause
AGREED: Final[tuple[Agreed, ...]] = get_args(Agreed)
WAITING: Final[tuple[Waiting, ...]] = get_args(Waiting)
BUCKETS: Final[tuple[Bucket, ...]] = (*AGREED, *WAITING, *BREAK_CAUSES)

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
class Tie:
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


@frozen
class Control:
    """The totals of a matching, or of a part of it; parts add up with `+`.

    lines, read, breaks  sorted by side, currency and bucket (cause), none of them twice
    unsearched           rows for which the second look was too much (`match_left.MOST_LEFT`)
    """

    as_of: Instant
    lines: tuple[ControlLine, ...] = ()
    read: tuple[Read, ...] = ()
    breaks: tuple[BreakTotal, ...] = ()
    unsearched: int = 0

    def __add__(self, other: Control) -> Control:
        """The totals of two parts of one matching."""
        raise NotImplementedError

    def ties(self) -> tuple[Tie, ...]:
        """Every equation with both its sides: rows and sums read = matched + waiting + breaks on
        each side; captured against the book = captured against the statements; gross − fee = net.
        """
        raise NotImplementedError

    @property
    def holds(self) -> bool:
        """Whether every tie holds."""
        return all(tie.holds for tie in self.ties())


def total(lines: Iterable[ControlLine], family: Family) -> int:
    """The sum of the lines whose bucket is of the family."""
    return sum([line.sum for line in lines if FAMILIES[line.bucket] == family])
