"""What the merchant chose about matching, what is covered, and what people have decided.

Leaves out: the file that rules are written in. Every tolerance is zero and every rule that matches
without a common reference is off until someone switches it on; what it matches shows as its own
kind of match.
"""

from __future__ import annotations

from typing import Final

from reconcile.instants import DAY, Duration, Instant
from reconcile.matching.rows import name_of
from reconcile.values import frozen

_OF_A_CAPTURE: Final = frozenset(("not_settled", "ambiguous"))
"""Causes of breaks whose subject is no line: that of a capture is its source."""


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
    currency       the merchant's own: an amount of nothing is told in it where no currency is known
    """

    tolerances: tuple[Tolerance, ...] = ()
    date_window: Duration | None = None
    settle_margin: Duration = 7 * DAY
    book_margin: Duration = DAY
    money_margin: Duration = DAY
    refund_margin: Duration = 10 * DAY
    fees: tuple[ExpectedFee, ...] = ()
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
    one = order if cause in _OF_A_CAPTURE else subject or order
    assert one is not None, "every break is about a line or an order"
    return HandMatch(one=one, other=name_of(given))
