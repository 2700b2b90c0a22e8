"""Near misses: how far apart two lines are in each field, which is named, and who is looked at."""

from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from reconcile.instants import DAY, HOUR, MINUTE, TICK, Duration, Instant
from reconcile.ledger.ledger import Facts
from reconcile.matching import candidates
from reconcile.matching.breaks import Candidate
from reconcile.matching.rules import factor_between
from reconcile.money import Money
from tests.rows import for_each

T = Instant(1_790_812_800_000_000)


def line(
    name: str,
    reference: str = "ORD-1042",
    minor: int = 10_000,
    *,
    currency: str = "KES",
    at: Instant | None = T,
    more: str | None = None,
) -> candidates.Searchable:
    return candidates.entry_of(name, names=[reference, more], minor=minor, currency=currency, at=at)


WANTED = line("wanted")


def later(moment: int) -> Instant:
    return Instant(T + moment)


class Miss(NamedTuple):
    """A near miss: its points, and what is reported; `windowed`: with a window of two days."""

    entry: candidates.Searchable
    points: int | None
    apart: str
    facts: Facts = ()
    windowed: str | None = None


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


MISSES = [
    Miss(line("a-same"), 0, "nothing"),
    Miss(line("b-separators", "ORD-10-42"), 1, "separators"),
    Miss(line("c-one", "ORD-1043"), 2, "characters", (("characters", 1),)),
    Miss(line("d-two", "ORD-1053"), 3, "characters", (("characters", 2),)),
    Miss(line("e-three", "ORD-1153"), 6, "reference"),
    Miss(line("f-no-name", ""), 6, "reference"),
    Miss(line("g-larger", minor=1_000_000), 2, "factor", (("factor", 100), ("sense", "larger"))),
    Miss(line("h-smaller", minor=100), 2, "factor", (("factor", 100), ("sense", "smaller"))),
    Miss(line("i-near", minor=10_100), 2, "amount", (("difference", kes(100)),)),
    Miss(line("j-near", minor=9_900), 2, "amount", (("difference", kes(100)),)),
    Miss(line("k-far", minor=10_101), 6, "amount", (("difference", kes(101)),)),
    Miss(line("l-far", minor=9_899), 6, "amount", (("difference", kes(101)),)),
    Miss(line("m-currency", currency="UGX"), 4, "currency"),
    Miss(line("n-sep-far", "ORD-10-42", 20_000), 7, "amount", (("difference", kes(10_000)),)),
    Miss(line("o-one-near", "ORD-1043", 10_001), 4, "amount", (("difference", kes(1)),)),
    Miss(line("p-two-near", "ORD-1053", 10_001), 5, "characters", (("characters", 2),)),
    Miss(line("pz-other-near", "XYZ", 10_100), 8, "amount", (("difference", kes(100)),)),
    Miss(line("q-no-date", at=None), 0, "nothing"),
    Miss(line("r-a-day", at=later(DAY)), 0, "nothing"),
    Miss(line("s-more", at=later(DAY + TICK)), 1, "nothing"),
    Miss(line("t-before", at=later(-DAY - TICK)), 1, "nothing"),
    Miss(line("u-two-days", at=later(2 * DAY)), 1, "nothing"),
    Miss(line("v-a-week", at=later(8 * DAY - TICK)), 1, "nothing", (), "date"),
    Miss(line("w-a-week", at=later(8 * DAY)), 2, "nothing", (), "date"),
    Miss(line("x-two-weeks", at=later(15 * DAY)), 3, "nothing", (), "date"),
    Miss(line("y-three", at=later(22 * DAY)), 4, "nothing", (), "date"),
    Miss(line("z-ten", at=later(71 * DAY)), 4, "nothing", (), "date"),
    # Of two names the nearer counts.
    Miss(line("zz-other", "XYZ", more="ord 1042"), 0, "nothing"),
    Miss(line("zy-other", "XYZ", more="ORD-1043"), 2, "characters", (("characters", 1),)),
]
TOO_FAR = [
    line("char-far", "ORD-1043", 20_000),
    line("char-currency", "ORD-1043", currency="UGX"),
    line("other-far", "XYZ", 10_101),
    line("other-currency", "XYZ", currency="UGX"),
]


def found(*entries: candidates.Searchable, window: Duration | None = None) -> list[tuple[Any, ...]]:
    reported = candidates.Index(entries).nearest(WANTED, window=window)
    return [(each.line, each.apart, each.facts, each.days) for each in reported]


@for_each("miss", MISSES)
def test_the_field_that_differs_most_is_reported(miss: Miss) -> None:
    entry = miss.entry
    days = None if entry.at is None else abs(entry.at - T) // DAY
    assert found(entry) == [(entry.line, miss.apart, miss.facts, days)]
    ((_, apart, facts, _),) = found(entry, window=2 * DAY)
    assert apart == (miss.windowed or miss.apart)
    if miss.windowed:
        assert entry.at is not None
        assert facts == (("beyond_us", entry.at - T - 2 * DAY),)


@pytest.mark.parametrize("entry", TOO_FAR, ids=lambda entry: entry.line)
def test_what_differs_in_amount_or_currency_has_to_be_known_by_the_same(
    entry: candidates.Searchable,
) -> None:
    assert found(entry) == []


def _from_the_nearest(miss: Miss) -> tuple[int, int, str]:
    """Return points, then the time between, then the name."""
    at = miss.entry.at
    assert miss.points is not None
    return miss.points, 0 if at is None else abs(at - T), miss.entry.line


def test_the_points_of_all_fields_add_up() -> None:
    for one, other in combinations(MISSES, 2):
        ordered = sorted((one, other), key=_from_the_nearest)
        reported = [name for name, *_ in found(other.entry, one.entry)]
        assert reported == [each.entry.line for each in ordered]


@for_each(("mine", "its", "apart"), [
    ("AB1", "AB2", "characters"), ("A1", "A2", "reference"), ("ABCD12", "ABCD34", "characters"),
    ("ABC12", "ABC34", "reference"), ("ABCDEF123", "ABCDEF456", "reference"),
    # Of the wanted line's reference, not of the other.
    ("ABC12", "ABC1234", "reference"), ("ABC1234", "ABC12", "characters"),
])  # fmt: skip
def test_a_third_of_a_reference_may_differ(mine: str, its: str, apart: str) -> None:
    reported = candidates.Index([line("it", its)]).nearest(line("wanted", mine), window=None)
    assert [each.apart for each in reported] == [apart]
    both = candidates.Index([line("a", "ZZZZZZZZZ"), line("it", its)]).nearest(
        line("wanted", mine), window=None
    )
    assert [each.line for each in both] == (["it", "a"] if apart == "characters" else ["a", "it"])


def test_a_date_beyond_the_window_is_reported_by_what_is_beyond() -> None:
    assert found(line("in", at=later(2 * DAY)), window=2 * DAY) == [("in", "nothing", (), 2)]
    beyond = found(line("out", at=later(-2 * DAY - TICK)), window=2 * DAY)
    assert beyond == [("out", "date", (("beyond_us", TICK),), 2)]


@for_each(("one", "other", "edits"), [
    ("", "", 0), ("a", "", 1), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "xbc", 1),
    ("abc", "ab", 1), ("abc", "bc", 1), ("abc", "abcd", 1), ("aab", "ab", 1), ("ab", "ba", 2),
    ("abcd", "axyd", 2), ("abc", "xyz", 3), ("aaa", "aa", 1), ("aaaa", "aa", 2), ("a", "b", 1),
    ("abxcd", "abycd", 1), ("abcde", "xbcdy", 5),
])  # fmt: skip
def test_how_long_the_stretch_is_that_differs(one: str, other: str, edits: int) -> None:
    assert candidates.edits_between(one, other) == candidates.edits_between(other, one) == edits


@for_each(("apart", "days"), [
    (0, 0), (DAY - TICK, 0), (DAY, 1), (-DAY, 1), (-DAY + TICK, 0), (3 * DAY + HOUR, 3),
])  # fmt: skip
def test_days_between_are_whole(apart: int, days: int) -> None:
    assert candidates.days_between(T, later(apart)) == days
    assert candidates.days_between(None, T) is None
    assert candidates.days_between(T, None) is None


# --- who is looked at ---------------------------------------------------------------------------


CROWD = [
    *[line(f"z{n}", f"Q{n}7", 10_000 + n // 2) for n in range(-12, 12)],
    *[line(f"y{n}", f"R{n}7", 20_000) for n in range(5)],
]
"""Lines that are nearer by amount than 10,090 is, directly and by a factor."""


def names(entries: list[candidates.Searchable]) -> list[str]:
    return [name for name, *_ in found(*entries)]


def test_four_amounts_on_each_side_are_looked_at() -> None:
    seen = [("m", -1), ("b", -4), ("o", -2), ("p", -3), ("q", 0), ("r", 1), ("s", 2), ("c", 3)]
    moments = [*seen, ("a", -5), ("a", 4)]
    entries = [line(name, "", at=later(moment)) for name, moment in moments]
    ends = [line(f"e{n}", "", 9_000 + 2_000 * (n % 2)) for n in range(10)]
    looked_at = candidates.Index([*entries, *ends]).neighbours(WANTED, charges=False)
    assert {each.line for each in looked_at if each in entries} == {name for name, _ in seen}
    assert names([*entries, *ends]) == ["q", "m", "r"]


@for_each(("minor", "moment", "charges", "seen"), [
    (10_500, 0, True, True),  # five per cent
    (10_501, 0, True, True),  # less than a tenth, and than 20.00
    (11_000, 0, True, True),
    (11_001, 0, True, False),
    (10_500, DAY, True, True),
    (10_500, DAY + TICK, True, False),
    (10_500, 0, False, False),
])  # fmt: skip
def test_sums_of_a_day_may_differ_by_a_usual_charge(
    minor: int, moment: int, charges: bool, seen: bool
) -> None:
    crowd = [line(f"c{n}", "", 20_000 + n, at=later(moment)) for n in range(50)]
    index = candidates.Index([*crowd, line("it", "", minor, at=later(moment))])
    reported = index.nearest(line("wanted", ""), window=None, charges=charges)
    assert [each.line for each in reported] == (["it"] if seen else [])


def test_a_text_that_names_an_order_finds_it_whatever_the_sum() -> None:
    text = candidates.entry_of(
        "bank", names=["bnk_1"], minor=9_999_999, currency="KES", at=T,
        texts=["Bestellung #10740", "Jane Doe"],
    )  # fmt: skip
    order = line("order", "ORD-10740", 5)
    assert text.named.isdisjoint({"janedoe", "jane"})
    for one, other in ((text, order), (order, text)):
        (found_it,) = candidates.Index([other]).nearest(one, window=None)
        assert ("named", True) in found_it.facts
    assert candidates.Index([line("order", "ORD-10741", 5)]).nearest(text, window=None) == ()


@for_each("minor", [1_000_000, 100])
def test_amounts_by_a_factor_are_looked_at(minor: int) -> None:
    crowd = [line(f"c{n}{m}", f"C{n}", 10_000 + m) for n in range(9) for m in (-200, 200)]
    assert names([*crowd, line("factor", "F", minor)]) == ["factor"]
    assert names([*crowd, line("factor", "F", minor, currency="UGX")]) == []


@for_each(("apart", "facts"), [
    (0, ()), (TICK, (("minutes", 0),)), (-MINUTE, (("minutes", 1),)),
    (HOUR - TICK, (("minutes", 59),)), (HOUR, ()),
])  # fmt: skip
def test_less_than_an_hour_is_stated_in_minutes(apart: int, facts: Facts) -> None:
    assert found(line("it", at=later(apart))) == [("it", "nothing", facts, 0)]


def test_a_candidate_states_its_line_money_and_difference() -> None:
    it = line("it", "ord 1043", 10_001, at=later(3 * DAY))
    reported = candidates.Index([it]).nearest(WANTED, window=None)
    assert reported == (
        Candidate(
            line="it",
            reference="ord 1043",
            money=kes(10_001),
            apart="amount",
            facts=(("difference", kes(1)),),
            days=3,
        ),
    )


def test_a_line_that_paid_the_same_customer_is_the_first() -> None:
    customer = frozenset({"ord9"})
    paid = replace(line("z-paid", "", at=later(3 * DAY)), people=customer)
    index = candidates.Index([line("a-one", "ORD-1043"), line("b-none", ""), paid])
    reported = index.nearest(replace(WANTED, people=customer), window=None)
    assert [each.line for each in reported] == ["z-paid", "a-one", "b-none"]
    assert [("same_number", True) in each.facts for each in reported] == [True, False, False]


def test_an_amount_that_is_no_whole_hundred_is_none_of_minor_units() -> None:
    """10,050 may be 100.50, but never 100."""
    wanted = line("wanted", minor=10_050)
    crowd = [line(f"c{n}", f"C{n}", 9_000) for n in range(9)]
    reported = candidates.Index([*crowd, line("hundred", "F", 100)]).nearest(wanted, window=None)
    assert reported == ()


@for_each(("reference", "seen"), [
    ("ORD-1043", True),  # the end differs: by its beginning
    ("XRD-1042", True),  # the beginning differs: by its end
    ("ORX-1042", True),
])  # fmt: skip
def test_references_are_looked_at_from_both_ends(reference: str, seen: bool) -> None:
    assert (names([*CROWD, line("near", reference, 10_090)])[0] == "near") == seen


@for_each("side", [-1, 1])
@for_each(("place", "seen"), [(1, True), (4, True), (5, False), (9, False)])
def test_four_references_on_each_side_are_looked_at(side: int, place: int, seen: bool) -> None:
    letters = "abcdefghi" if side > 0 else "zyxwvutsr"
    # Each is farther from the wanted one than the one before it; by their ends others are nearer.
    row = [f"ORD-1042{each}{n}" if side > 0 else f"ORD-1041{each}{n}"
           for n, each in enumerate(letters, 1)]  # fmt: skip
    ends = [each for n in range(5) for each in (f"AA{n}1042", f"{n}Z1042")]
    beside = [*ends, *(name for n, name in enumerate(row, 1) if n != place)]
    others = [line(f"x{n}", name, 9_999_999) for n, name in enumerate(beside)]
    reported = names([*CROWD, *others, line("near", row[place - 1], 10_090)])
    assert ("near" in reported) == seen


@for_each(("one", "other", "currency", "factor"), [
    (5, 500, "KES", 100), (5, 501, "KES", None), (5, 5_000, "KES", None), (1, 100, "KES", 100),
    (5, 500, "UGX", 100), (5, 50, "UGX", None), (5, 5_000, "KWD", 1_000), (5, 500, "KWD", 100),
    (5, 5, "KES", None), (5, 5, "UGX", None), (0, 0, "KES", None), (0, 100, "KES", None),
    (-5, -500, "KES", 100), (-5, 500, "KES", None), (-1, -100, "KES", 100),
])  # fmt: skip
def test_the_factor_of_mistaken_minor_units(
    one: int, other: int, currency: str, factor: int | None
) -> None:
    assert factor_between(one, other, currency) == factor_between(other, one, currency) == factor
