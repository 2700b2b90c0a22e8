"""What the merchant chose about matching, what is covered, and what people have decided.

Leaves out: the file that rules are written in. Every tolerance is zero and every rule that matches
without a common reference is off until someone switches it on; what it matches shows as its own
kind of match.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from reconcile.instants import DAY, Duration, Instant
from reconcile.matching.control import Waiting
from reconcile.matching.rows import StatementRow, TakingRow, name_of
from reconcile.money import exponent_of
from reconcile.values import frozen

_OF_A_MOVEMENT: Final = frozenset(("not_settled", "ambiguous", "refund_not_settled"))
"""Causes of breaks whose subject is no line: that of a capture is its source, that of what went
back an event."""


@frozen
class Tolerance:
    """By how many minor units two amounts of a currency may differ and still be one."""

    currency: str
    minor: int


@frozen
class ExpectedFee:
    """What a source charges for a payment: `per_million` of the gross plus `fixed` minor units.

    tolerance  minor units by which the fee may differ, for the provider's own rounding
    """

    source: str
    currency: str
    per_million: int = 0
    fixed: int = 0
    tolerance: int = 1


@frozen
class ExpectedRate:
    """At which rate money of a currency is expected to be exchanged into another: `micros`
    millionths of one major unit for one major unit.

    tolerance_per_million  of what is expected, by which the bank's sum may differ
    """

    currency: str
    into: str
    micros: int
    tolerance_per_million: int = 0


@frozen
class MatchRules:
    """The choices. Durations are microseconds.

    tolerances     per currency; a currency that is not named has none
    date_window    two lines without a common reference may be one if amount and currency agree
                   and their dates are at most this far apart; None: never
    settle_margin  captured money may be without a statement line for this long: most providers
                   pay out within a week
    book_margin    the book may lag this far behind the money: exports are made daily
    money_margin   the money may lag this far behind a book line that says paid
    refund_margin  a refund that the book speaks of may take this long to come
    fees           a source and currency that is not named has no expected fee
    bank_margin    a payout may take this long to the bank; by amount and date alone, it is matched
                   with a line that was booked within it
    bank_payers    who pays out: texts of which one stands in a bank line that is a payout's, in
                   whatever case. None: everything that came to the bank may be one
    rates          a pair of currencies that is not named has no expected rate
    currency       the merchant's own: in it an amount of nothing is stated where none is known
    """

    tolerances: tuple[Tolerance, ...] = ()
    date_window: Duration | None = None
    settle_margin: Duration = 7 * DAY
    book_margin: Duration = DAY
    money_margin: Duration = DAY
    refund_margin: Duration = 10 * DAY
    fees: tuple[ExpectedFee, ...] = ()
    bank_margin: Duration = 5 * DAY
    bank_payers: tuple[str, ...] = ()
    rates: tuple[ExpectedRate, ...] = ()
    currency: str = "KES"


@frozen
class Span:
    """From `since` to `until`, both included."""

    since: Instant
    until: Instant


@frozen
class Reach:
    """How far a source's statements reach: the first and last `settled_at` that was imported."""

    source: str
    span: Span


@frozen
class Coverage:
    """What was there to be matched. What lies outside is awaited; it is never a break.

    book        the dates that the imported books speak of, earliest to latest; None: no book
    statements  by source; a source that is not named has no statements
    takings     from when on the provider's webhooks came to us; None: from the beginning
    """

    book: Span | None = None
    statements: tuple[Reach, ...] = ()
    takings: Instant | None = None


@frozen
class HandMatch:
    """A person says that two belong together: each is the subject of a book or statement line
    (`match_rows.subject_of`), or the reference of an order."""

    one: str
    other: str


def hand_match(cause: str, *, order: str | None, subject: str | None, given: str) -> HandMatch:
    """What a person said who gave a line, or an order, to a break: it belongs with the line that
    the break is about, or else with its order."""
    one = order if cause in _OF_A_MOVEMENT else subject or order
    assert one is not None, "every break is about a line or an order"
    return HandMatch(one=one, other=name_of(given))


# --- rules, coverage and decisions of people, as one matching asks for them -----------------------


CENTS: Final = 100
"""A currency without decimals is mistaken by the hundred that most others have."""


_NOBODY: Final[frozenset[str]] = frozenset()


class Terms:
    """What one matching goes by."""

    def __init__(
        self,
        *,
        rules: MatchRules,
        as_of: Instant,
        coverage: Coverage,
        hands: Iterable[HandMatch] = (),
    ) -> None:
        self.rules, self.as_of, self.coverage = rules, as_of, coverage
        self._tolerances = {each.currency: each.minor for each in rules.tolerances}
        self._fees = {(each.source, each.currency): each for each in rules.fees}
        self._reaches = {each.source: each.span for each in coverage.statements}
        self._hands: dict[str, frozenset[str]] = {}
        for hand in hands:
            for one, other in ((hand.one, hand.other), (hand.other, hand.one)):
                self._hands[one] = self.partners(one) | {other}

    @property
    def any_fees(self) -> bool:
        """Whether any fee is expected at all."""
        return bool(self._fees)

    @property
    def any_hands(self) -> bool:
        """Whether people have matched anything."""
        return bool(self._hands)

    def partners(self, name: str) -> frozenset[str]:
        """What people said belongs together with this line or order."""
        return self._hands.get(name, _NOBODY)

    def within(self, difference: int, currency: str) -> bool:
        """Whether a rule lets two amounts of the currency that differ by this much be one."""
        return abs(difference) <= self._tolerances.get(currency, 0)

    def tolerance(self, currency: str) -> int:
        """By how much two amounts of the currency may differ, in minor units."""
        return self._tolerances.get(currency, 0)

    def expected_fee(self, gross: int, *, source: str, currency: str) -> tuple[int, int] | None:
        """The fee for a payment, rounded half up, and its tolerance; None where none is known."""
        rule = self._fees.get((source, currency))
        if rule is None:
            return None
        return (gross * rule.per_million + 500_000) // 1_000_000 + rule.fixed, rule.tolerance

    def fee_fits(self, taking: TakingRow, line: StatementRow) -> bool:
        """Whether the line's fee is the expected one, or none is known. It is asked of every plain
        order: positions instead of names."""
        rule = self._fees.get((taking[4], line[5]))
        if rule is None:
            return True
        due = (line[6] * rule.per_million + 500_000) // 1_000_000 + rule.fixed
        return -rule.tolerance <= line[7] - due <= rule.tolerance

    def waits_for_book(self, at: Instant, *, opened_at: Instant) -> Waiting | None:
        """Why money of this date need not be in the book; None if it must be."""
        span = self.coverage.book
        if span is None or opened_at < span.since:
            return "not_covered"
        if at > span.until or at + self.rules.book_margin > self.as_of:
            return "awaiting_book"
        return None

    def book_lags(self, at: Instant) -> bool:
        """Whether the book may still lag behind what happened at `at`."""
        return at + self.rules.book_margin > self.as_of

    def waits_for_money(self, placed_at: Instant | None) -> Waiting | None:
        """Why a line that says paid need not have its money; None if it must have it."""
        if placed_at is None:
            return None
        if self.coverage.takings is not None and placed_at < self.coverage.takings:
            return "not_covered"
        return "awaiting_money" if placed_at + self.rules.money_margin > self.as_of else None

    def settles(self, line_source: str, source: str) -> bool:
        """Whether a statement's line may be of a payment of this source: of its own, of one that
        has no statements and so may share them, or of any where nobody knows whose it is."""
        return not line_source or line_source == source or source not in self._reaches

    def waits_for_settlement(self, at: Instant, *, source: str) -> Waiting | None:
        """Why money captured at `at` need not be in a statement; None if it must be.

        It must be where the margin has passed, and a statement that reaches beyond it is there.
        """
        span = self._reaches.get(source)
        if span is None or at < span.since:
            return "not_covered"
        due = at + self.rules.settle_margin
        return "awaiting_settlement" if due > min(span.until, self.as_of) else None


@cache
def _factors(currency: str) -> tuple[int, ...]:
    """Minor units in a major one, as the currency has them and as most have."""
    return tuple(sorted({int(10 ** exponent_of(currency)), CENTS} - {1}))


def factor_between(one: int, other: int, currency: str) -> int | None:
    """By which factor the two differ if someone took major units for minor ones, else None."""
    if one == 0 or other == 0:
        return None
    for factor in _factors(currency):
        if one == other * factor or other == one * factor:
            return factor
    return None
