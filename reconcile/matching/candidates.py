"""Find the lines most similar to an unmatched row, as hints for a person."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from reconcile.instants import DAY, HOUR, MINUTE, Duration, Instant
from reconcile.ledger.ledger import Facts
from reconcile.matching.books import match_key
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.rules import CENTS, factor_between
from reconcile.matching.texts import named_in, order_names
from reconcile.money import Money, exponent_of

NEIGHBOURS: Final = 4
"""Maximum number of neighbours examined on each side."""

MOST: Final = 3
"""Maximum number of candidates that are shown for a break."""

SEPARATORS: Final = 1
"""Distance in points between references that differ only in separators such as dashes."""

FAR: Final = 6
"""Distance in points between references, or between amounts, that have nothing in common."""

CLOSE_PERCENT: Final = 5
"""Maximum percentage by which charges may change an amount."""

CHARGE: Final = 20
"""Maximum fixed charge on an amount, in major units.

The charge may not exceed a tenth of the amount.
"""


@dataclass(slots=True, frozen=True)
class Searchable:
    """Line that can be the partner of another line."""

    line: str
    """Id of the line, or the reference of an order."""
    reference: str
    """Reference to show to people."""
    keys: tuple[str, ...]
    """Match key of each reference."""
    minor: int
    currency: str
    at: Instant | None
    names: frozenset[str] = frozenset()
    """Keys by which other lines' texts can name this line."""
    named: frozenset[str] = frozenset()
    """Keys that this line's texts contain."""
    people: frozenset[str] = frozenset()
    """Keys of the orders of the customer whom the line paid, or the order's own key."""


def entry_of(
    line: str,
    *,
    names: Sequence[str | None],
    minor: int,
    currency: str,
    at: Instant | None,
    texts: Sequence[str | None] = (),
) -> Searchable:
    """Return a searchable line. The first reference is shown to people.

    line   id of the line
    texts  free texts in which references with a digit are searched
    """
    known = [name for name in names if name]
    return Searchable(
        line,
        known[0] if known else "",
        keys=tuple([match_key(name) for name in known]),
        minor=minor,
        currency=currency,
        at=at,
        names=frozenset([key for name in known for key in order_names(name)]),
        named=frozenset([key for key in named_in(texts) if any(map(str.isdigit, key))]),
    )


class Index:
    """Sorted lists of lines, in which similar lines are found quickly."""

    def __init__(self, entries: Iterable[Searchable]) -> None:
        found = list(entries)
        named = [(key, each.line, each) for each in found for key in each.keys]
        self._forward = sorted(named, key=lambda one: one[:2])
        self._backward = sorted([(k[::-1], line, e) for k, line, e in named], key=lambda x: x[:2])
        priced = [(e.currency, e.minor, e.at or 0, e.line, e) for e in found]
        self._priced = sorted(priced, key=lambda one: one[:4])
        daily = [(e.currency, e.at // DAY, e.minor, e.line, e) for e in found if e.at is not None]
        self._daily = sorted(daily, key=lambda one: one[:4])
        self._by_name: dict[str, list[Searchable]] = defaultdict(list)
        self._by_text: dict[str, list[Searchable]] = defaultdict(list)
        self._by_person: dict[str, list[Searchable]] = defaultdict(list)
        for each in found:
            for by, keys in (
                (self._by_name, each.names),
                (self._by_text, each.named),
                (self._by_person, each.people),
            ):
                for key in keys:
                    by[key].append(each)

    def nearest(
        self, wanted: Searchable, *, window: Duration | None, charges: bool = False
    ) -> tuple[Candidate, ...]:
        """Return up to three lines that are most similar to the wanted line.

        window   maximum time between the dates; None if dates do not matter
        charges  whether a charge may have been taken from the lines
        """
        index = {"charged" if charges else "plain": (self,)}
        return nearest_of(wanted, **index, window=window)

    def neighbours(self, wanted: Searchable, *, charges: bool) -> list[Searchable]:
        """Return the neighbours of the wanted line in every sorted list."""
        found: dict[str, Searchable] = {}
        for key in wanted.keys:
            for order, sought in ((self._forward, key), (self._backward, key[::-1])):
                place = bisect_left(order, sought, key=lambda one: one[0])
                for _, line, entry in order[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]:
                    found[line] = entry
        whole, part = divmod(wanted.minor, CENTS)
        for minor in (wanted.minor, wanted.minor * CENTS, *([] if part else [whole])):
            sought_price = (wanted.currency, minor, wanted.at or 0)
            place = bisect_left(self._priced, sought_price, key=lambda one: one[:3])
            for *_, line, entry in self._priced[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]:
                found[line] = entry
        days: Iterable[int] = ()
        if charges and wanted.at is not None:
            days = range(wanted.at // DAY - 1, wanted.at // DAY + 2)
        for day in days:
            sought_day = (wanted.currency, day, wanted.minor)
            place = bisect_left(self._daily, sought_day, key=lambda one: one[:3])
            for *_, line, entry in self._daily[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]:
                found[line] = entry
        for by, keys in ((self._by_name, wanted.named), (self._by_text, wanted.names)):
            for key in keys & by.keys():
                found |= {entry.line: entry for entry in by[key][:NEIGHBOURS]}
        for key in wanted.people & self._by_person.keys():
            same = [each for each in self._by_person[key] if each.minor == wanted.minor]
            found |= {entry.line: entry for entry in same[:NEIGHBOURS]}
        return list(found.values())


def nearest_of(
    wanted: Searchable,
    *,
    plain: Iterable[Index] = (),
    charged: Iterable[Index] = (),
    window: Duration | None,
) -> tuple[Candidate, ...]:
    """Return up to three lines that are most similar to the wanted line.

    plain    indexes of lines with full amounts
    charged  indexes of lines from which a charge may have been taken
    window   maximum time between the dates; None if dates do not matter
    """
    found = []
    for index, charges in (*[(i, False) for i in plain], *[(i, True) for i in charged]):
        for entry in index.neighbours(wanted, charges=charges):
            points, apart, facts = _apart(wanted, entry, window=window, charges=charges)
            if points is not None:
                between = 0
                if wanted.at is not None and entry.at is not None:
                    between = abs(wanted.at - entry.at)
                if not wanted.people.isdisjoint(entry.people):
                    points -= FAR  # nearer than any other line with this sum
                found.append((points, between, entry.line, entry, apart, facts))
    found.sort(key=lambda one: one[:3])
    return tuple(
        [
            Candidate(
                line=line,
                reference=entry.reference,
                money=Money(minor=entry.minor, currency=entry.currency),
                apart=apart,
                facts=(*facts, *_beside(wanted, entry)),
                days=days_between(wanted.at, entry.at),
            )
            for *_, line, entry, apart, facts in found[:MOST]
        ]
    )


def _beside(one: Searchable, other: Searchable) -> Facts:
    found: Facts = (("named", True),) if _names(one, other) else ()
    if not one.people.isdisjoint(other.people):
        found = (*found, ("same_number", True))
    if one.at is not None and other.at is not None and 0 < abs(one.at - other.at) < HOUR:
        found = (*found, ("minutes", abs(one.at - other.at) // MINUTE))
    return found


def _names(one: Searchable, other: Searchable) -> bool:
    return not (one.named.isdisjoint(other.names) and other.named.isdisjoint(one.names))


def days_between(one: Instant | None, other: Instant | None) -> int | None:
    """Return the number of whole days between two dates."""
    return None if one is None or other is None else abs(one - other) // DAY


_Field = tuple[int, str, Facts]


def _apart(
    one: Searchable, other: Searchable, *, window: Duration | None, charges: bool
) -> tuple[int | None, str, Facts]:
    amount, named = _amount(one, other, charges=charges), _names(one, other)
    currency: _Field = (0 if one.currency == other.currency else 4, "currency", ())
    if amount[0] >= FAR or currency[0]:
        # Consecutive numbers differ in one character too: with another amount that means nothing.
        its = {key.replace("-", "") for key in other.keys}
        if not named and not any(key.replace("-", "") in its for key in one.keys):
            return None, "", ()
    references = [_keys(mine, its) for mine in one.keys for its in other.keys]
    if named:
        references = [(0, "reference", ())]
    reference = min(references, default=(FAR, "reference", ()))
    date = _date(one, other, window=window)
    fields = [amount, currency] if window is None else [amount, currency, date]
    if reference[0] < FAR or not any(points for points, _, _ in fields):
        # References that have nothing in common say less than the other fields.
        fields.append(reference)
    worst = max(fields, key=lambda field: field[0])
    points = reference[0] + amount[0] + currency[0] + date[0]
    return points, worst[1] if worst[0] else "nothing", worst[2]


def _keys(mine: str, its: str) -> _Field:
    if mine == its:
        return 0, "reference", ()
    if mine.replace("-", "") == its.replace("-", ""):
        return SEPARATORS, "separators", ()
    edits = edits_between(mine, its)
    if edits <= 2 and edits * 3 <= len(mine):
        return 1 + edits, "characters", (("characters", edits),)
    return FAR, "reference", ()


def edits_between(one: str, other: str) -> int:
    """Return the length of the differing part of two texts."""
    first = 0
    shorter = min(len(one), len(other))
    while first < shorter and one[first] == other[first]:
        first += 1
    last = 0
    while last < shorter - first and one[-1 - last] == other[-1 - last]:
        last += 1
    return max(len(one), len(other)) - first - last


def _amount(one: Searchable, other: Searchable, *, charges: bool) -> _Field:
    difference = other.minor - one.minor
    if not difference:
        return 0, "amount", ()
    factor = factor_between(one.minor, other.minor, other.currency)
    if factor is not None:
        larger = "larger" if abs(difference) == difference else "smaller"
        return 2, "factor", (("factor", factor), ("sense", larger))
    money = Money(minor=abs(difference), currency=other.currency)
    facts: Facts = (("difference", money),)
    if abs(difference) * CENTS <= abs(one.minor):
        return 2, "amount", facts
    of_a_day = one.at is not None and other.at is not None and abs(one.at - other.at) <= DAY
    close = charges and of_a_day and _is_close(one.minor, other.minor, other.currency)
    return (3 if close else FAR), "amount", facts


def _is_close(one: int, other: int, currency: str) -> bool:
    difference, sum_of_one = abs(one - other), abs(one)
    charge = min(CHARGE * int(10 ** exponent_of(currency)), sum_of_one // 10)
    return difference * 100 <= CLOSE_PERCENT * sum_of_one or difference <= charge


def _date(one: Searchable, other: Searchable, *, window: Duration | None) -> _Field:
    if one.at is None or other.at is None:
        return 0, "date", ()
    apart = abs(one.at - other.at)
    allowed = DAY if window is None else window
    if apart <= allowed:
        return 0, "date", ()
    facts: Facts = (("beyond_us", apart - allowed),)
    return min(1 + (apart - allowed) // (7 * DAY), 4), "date", facts


MatchReason = Literal[
    "same_reference",
    "same_but_separators",
    "nearly_same_reference",
    "named_in_text",
    "same_number",
    "same_amount",
    "nearly_same_amount",
    "amount_by_factor",
    "amount_less_a_charge",
    "within_an_hour",
    "within_a_day",
    "within_a_week",
    "nothing_apart",
    "no_other",
]

WEIGHTS: Final[Mapping[MatchReason, int]] = {
    "same_reference": 45,
    "same_but_separators": 40,
    "nearly_same_reference": 25,
    "named_in_text": 45,
    "same_number": 25,
    "same_amount": 35,
    "nearly_same_amount": 15,
    "amount_by_factor": 15,
    "amount_less_a_charge": 10,
    "within_an_hour": 10,
    "within_a_day": 10,
    "within_a_week": 5,
    "nothing_apart": 5,
    "no_other": 5,
}
"""Points of each reason for a match."""

REASON_WORDS: Final[Mapping[MatchReason, str]] = {
    "same_reference": "the reference is the same",
    "same_but_separators": "the reference is the same except for separators",
    "nearly_same_reference": "the reference differs in one or two adjacent characters",
    "named_in_text": "the bank's text contains the reference",
    "same_number": "the money went to the phone number of the order",
    "same_amount": "the amount is the same",
    "nearly_same_amount": "the amounts differ by at most one per cent",
    "amount_by_factor": "the amount is the same except for a factor of minor units",
    "amount_less_a_charge": "the amounts of one day differ by no more than a usual charge",
    "within_an_hour": "the times are less than an hour apart",
    "within_a_day": "the dates are less than a day apart",
    "within_a_week": "the dates are less than a week apart",
    "nothing_apart": "no compared field contradicts the match",
    "no_other": "no other row is similar",
}

WEEK: Final = 7
"""Number of days below which two dates count as near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Candidate for a match, with the reasons for it."""

    candidate: Candidate
    reasons: tuple[MatchReason, ...]

    @property
    def score(self) -> int:
        """Return the score of the suggestion, from 0 to 100."""
        return sum([WEIGHTS[each] for each in self.reasons])


def suggestions(found: Break) -> tuple[Suggestion, ...]:
    """Return the suggested matches for a break, the highest score first."""
    scored = [
        Suggestion(candidate=each, reasons=tuple(_reasons(found, each)))
        for each in found.candidates
    ]
    # Among equal scores, the nearest stays first.
    return tuple(sorted(scored, key=lambda each: -each.score))


def the_one(found: Break, *, least: int) -> Suggestion | None:
    """Return the only suggestion with the highest score."""
    first, *others = suggestions(found) or (None,)
    if first is None or first.score < least:
        return None
    return None if any(each.score == first.score for each in others) else first


def _reasons(found: Break, candidate: Candidate) -> Iterator[MatchReason]:
    names = [found.order, found.payment, dict(found.facts).get("payout")]
    likeness = [_of_names(match_key(n), candidate.reference) for n in names if isinstance(n, str)]
    known = [each for each in likeness if each is not None]
    facts = dict(candidate.facts)
    if "named" in facts:
        known.append("named_in_text")
    if "same_number" in facts:
        known.append("same_number")
    if known:
        yield max(known, key=lambda each: WEIGHTS[each])
    mine, its = found.money.minor, abs(candidate.money.minor)  # a break's money is never negative
    if mine and found.money.currency == candidate.money.currency:
        if mine == its:
            yield "same_amount"
        elif factor_between(mine, its, found.money.currency) is not None:
            yield "amount_by_factor"
        elif abs(mine - its) * CENTS <= mine:
            yield "nearly_same_amount"
        elif candidate.days == 0 and _is_close(mine, its, found.money.currency):
            yield "amount_less_a_charge"
    if "minutes" in facts:
        yield "within_an_hour"
    elif candidate.days is not None and candidate.days < WEEK:
        yield "within_a_week" if candidate.days else "within_a_day"
    if candidate.apart in ("nothing", "fits"):
        yield "nothing_apart"
    if len(found.candidates) == 1:
        yield "no_other"


def _of_names(mine: str, reference: str) -> MatchReason | None:
    its = match_key(reference)
    if not its:
        return None
    if mine == its:
        return "same_reference"
    if mine.replace("-", "") == its.replace("-", ""):
        return "same_but_separators"
    edits = edits_between(mine, its)
    return "nearly_same_reference" if edits <= 2 and edits * 3 <= len(mine) else None
