"""What a matching tells: a match that is not plain, or a break.

Leaves out: plain matches (one order, one reference, equal amounts). They are only counted.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from reconcile.canonical import fingerprint
from reconcile.ledger.ledger import Facts
from reconcile.matching.breaks import Break
from reconcile.money import Money
from reconcile.values import frozen

MatchKind = Literal["by_payment", "by_group", "by_tolerance", "by_date_window", "by_hand"]
MATCH_KINDS: Final[tuple[MatchKind, ...]] = get_args(MatchKind)
"""How lines came together whose match is not plain."""


@frozen
class Match:
    """Lines that belong together though reference or amount alone does not say so.

    order   the order's reference, where a ledger is part of it
    lines   ids of the book and statement lines that it claims, sorted
    money   what was captured, or where no ledger is part of it the sum of the lines
    facts   what was different and was let pass: `difference`, `apart_us`, …
    """

    kind: MatchKind
    order: str | None
    payment: str | None
    lines: tuple[str, ...]
    money: Money
    facts: Facts = ()

    @property
    def identity(self) -> str:
        """The same for the same match in every run: `mat_` and 20 hex digits."""
        told = fingerprint([self.kind, self.order, self.payment, list(self.lines)])
        return "mat_" + told.removeprefix("sha256:")[:20]


Decision = Match | Break
