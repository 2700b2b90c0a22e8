"""How much speaks for a near miss of a break: a score made of named reasons, each with its weight.

Leaves out: finding near misses (`candidates`), and deciding. A score says how much agrees, out of a
hundred, and the field that differs most stands beside it: a person decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, get_args

from reconcile.matching.books import match_key
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.candidates import edits_between
from reconcile.matching.rules import CENTS, factor_between
from reconcile.values import frozen

Reason = Literal[
    "same_reference",
    "same_but_separators",
    "nearly_same_reference",
    "same_amount",
    "nearly_same_amount",
    "amount_by_factor",
    "within_a_day",
    "within_a_week",
    "nothing_apart",
    "no_other",
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

WEIGHTS: Final[Mapping[Reason, int]] = {
    "same_reference": 45,
    "same_but_separators": 40,
    "nearly_same_reference": 25,
    "same_amount": 35,
    "nearly_same_amount": 15,
    "amount_by_factor": 15,
    "within_a_day": 10,
    "within_a_week": 5,
    "nothing_apart": 5,
    "no_other": 5,
}
"""Points of each. Of a reference one reason counts, of an amount, and of a date: together at most
100. What has no reference in common stays below 60, at which many are matched at once: a popular
price of one day is no reference."""

REASON_WORDS: Final[Mapping[Reason, str]] = {
    "same_reference": "the reference is the same",
    "same_but_separators": "the reference is the same but for separators",
    "nearly_same_reference": "the reference differs in one or two characters that lie together",
    "same_amount": "the amount is the same",
    "nearly_same_amount": "the amount is the same to one per cent",
    "amount_by_factor": "the amount is the same but for its minor units",
    "within_a_day": "the dates are less than a day apart",
    "within_a_week": "the dates are less than a week apart",
    "nothing_apart": "no field that was compared keeps them apart",
    "no_other": "nothing else comes near",
}


WEEK: Final = 7
"""Days: statements pay out daily or weekly."""


@frozen
class Suggestion:
    """A near miss, and what speaks for it."""

    candidate: Candidate
    reasons: tuple[Reason, ...]

    @property
    def score(self) -> int:
        """From 0 to 100."""
        return sum([WEIGHTS[each] for each in self.reasons])


def suggestions(found: Break) -> tuple[Suggestion, ...]:
    """The near misses of a break with what speaks for each, the most first."""
    told = [
        Suggestion(candidate=each, reasons=tuple(_reasons(found, each)))
        for each in found.candidates
    ]
    # Of equal ones the nearest stays first.
    return tuple(sorted(told, key=lambda each: -each.score))


def the_one(found: Break, *, least: int) -> Suggestion | None:
    """The suggestion that has the most points, if it has at least these and no other has as
    many."""
    first, *others = suggestions(found) or (None,)
    if first is None or first.score < least:
        return None
    return None if any(each.score == first.score for each in others) else first


def _reasons(found: Break, candidate: Candidate) -> Iterator[Reason]:
    names = [_of_names(name, candidate.reference) for name in _names(found)]
    known = [each for each in names if each is not None]
    if known:
        yield max(known, key=lambda each: WEIGHTS[each])
    amount = _of_amounts(found, candidate)
    if amount is not None:
        yield amount
    if candidate.days is not None and candidate.days < WEEK:
        yield "within_a_week" if candidate.days else "within_a_day"
    if candidate.apart in ("nothing", "fits"):
        yield "nothing_apart"
    if len(found.candidates) == 1:
        yield "no_other"


def _names(found: Break) -> Iterator[str]:
    told = [found.order, found.payment, dict(found.facts).get("payout")]
    yield from (match_key(each) for each in told if isinstance(each, str))


def _of_names(mine: str, reference: str) -> Reason | None:
    its = match_key(reference)
    if not its:
        return None
    if mine == its:
        return "same_reference"
    if mine.replace("-", "") == its.replace("-", ""):
        return "same_but_separators"
    edits = edits_between(mine, its)
    return "nearly_same_reference" if edits <= 2 and edits * 3 <= len(mine) else None


def _of_amounts(found: Break, candidate: Candidate) -> Reason | None:
    """By their size: a break's money is never negative."""
    mine, its = found.money.minor, abs(candidate.money.minor)
    if not mine or found.money.currency != candidate.money.currency:
        return None
    if mine == its:
        return "same_amount"
    if factor_between(mine, its, found.money.currency) is not None:
        return "amount_by_factor"
    return "nearly_same_amount" if abs(mine - its) * CENTS <= mine else None
