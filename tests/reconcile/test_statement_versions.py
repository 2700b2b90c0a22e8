"""Versions of a statement: rows of a later one find their known lines. Money neither doubles nor
disappears."""

from collections import Counter
from dataclasses import replace
from functools import partial
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from reconcile.instants import DAY, EARLIEST, HOUR, MINUTE, TICK, Instant
from reconcile.matching.rows import Moved, is_like, is_same, paired
from reconcile.periods import IN_UTC, Calendar
from tests.rows import for_each

D = EARLIEST + 20_000 * DAY


def moved(
    kind: str = "refund",
    *,
    gross: int = -500,
    currency: str = "KES",
    settled_at: Instant | None = D,
    payout: str | None = "po_1",
    fee: int = 0,
) -> Moved:
    return Moved(
        kind=kind, stated=(gross, currency, settled_at, payout, fee), money=(currency, gross),
        settled_at=settled_at, payout=payout,
    )  # fmt: skip


def pairs(
    *, stated: list[Moved], known: list[Moved], calendar: Calendar = IN_UTC
) -> list[int | None]:
    return paired(stated=stated, known=known, same=partial(is_same, calendar=calendar))


MOVED = st.builds(
    moved,
    gross=st.sampled_from([-500, -300]),
    settled_at=st.sampled_from([None, D, D + HOUR, D + DAY]),
    payout=st.sampled_from([None, "po_1", "po_2"]),
)
FILES = st.lists(MOVED, max_size=5)


@given(rows=FILES)
def test_the_same_file_again_speaks_of_the_same_lines(rows: list[Moved]) -> None:
    for again in (rows, rows[::-1]):
        places = pairs(stated=again, known=rows)
        assert sorted(place for place in places if place is not None) == list(range(len(rows)))
        assert all(
            rows[place] == row
            for row, place in zip(again, places, strict=True)
            if place is not None
        )


@given(rows=FILES, known=FILES)
def test_no_line_is_claimed_twice_and_equal_ones_come_first(
    rows: list[Moved], known: list[Moved]
) -> None:
    places = pairs(stated=rows, known=known)
    claimed = [place for place in places if place is not None]
    assert len(claimed) == len(set(claimed))
    equal = Counter(row.stated for row in rows) & Counter(line.stated for line in known)
    same = [p for row, p in zip(rows, places, strict=True) if p is not None and known[p] == row]
    assert len(same) == equal.total()


@for_each(("change", "same"), [
    ({"fee": 7}, True),
    ({"settled_at": D + HOUR}, True),
    ({"settled_at": D + 3 * DAY}, True),
    ({"settled_at": None}, True),
    ({"payout": None}, True),
    ({"payout": None, "settled_at": D + DAY}, False),
    ({"payout": "po_2"}, False),
    ({"gross": -300}, False),
    ({"currency": "USD"}, False),
])  # fmt: skip
def test_a_refund_that_differs_is_another_unless_it_can_only_be_the_same(
    change: dict[str, object], same: bool
) -> None:
    known = moved()
    stated = moved(**change)  # type: ignore[arg-type]
    assert pairs(stated=[stated], known=[known]) == [0 if same else None]
    assert pairs(stated=[known], known=[stated]) == [0 if same else None]


@for_each(("change", "like"), [
    ({"gross": -300}, True),
    ({"gross": -300, "payout": None}, True),
    ({"gross": -300, "payout": "po_2"}, False),
    ({"gross": -300, "payout": None, "settled_at": D + DAY}, False),
    ({"fee": 7}, False),
    ({"gross": 500}, False),
])  # fmt: skip
def test_a_refund_of_another_amount_may_correct_one_of_its_payout_or_day(
    change: dict[str, object], like: bool
) -> None:
    known = moved()
    stated = moved(**change)  # type: ignore[arg-type]
    assert is_like(stated, known) is is_like(known, stated) is like


def test_the_amount_of_a_payment_may_be_corrected_for_it_is_captured_once() -> None:
    known = moved("payment", gross=1500)
    assert pairs(stated=[moved("payment", gross=1400)], known=[known]) == [0]
    assert pairs(stated=[moved("payment", gross=1400, payout="po_2")], known=[known]) == [None]


@for_each("taken", [1500, 400])
def test_what_takes_a_payment_back_in_a_later_file_does_not_replace_it(taken: int) -> None:
    """A charge that failed may be available on the day of its charge, and be in another export."""
    charge, failure = moved("payment", gross=1500), moved("payment", gross=-taken)
    assert pairs(stated=[failure], known=[charge]) == [None]
    assert pairs(stated=[charge], known=[failure]) == [None]


TEN = D + 10 * HOUR + 7 * MINUTE
"""A time of day; a day alone is a midnight, and zones lie a quarter of an hour apart at least."""


@for_each("payout", ["po_1", None])
@for_each(("gross", "settled_at", "same"), [
    (900, TEN + 5 * HOUR + MINUTE, False),    # a payment of 1,500 that was captured in two parts
    (900, TEN + 7 * TICK, False),
    (600, TEN + 5 * HOUR + MINUTE, True),     # its time was corrected
    (900, TEN, True),                         # its amount was
    (900, TEN + 3 * HOUR, True),              # and it was read in another zone
    (900, D, True),                           # and only its day is stated
    (900, None, True),
])  # fmt: skip
def test_a_payment_of_another_amount_at_another_time_of_day_is_another_part_of_it(
    gross: int, settled_at: Instant | None, same: bool, payout: str | None
) -> None:
    known = moved("payment", gross=600, settled_at=TEN, payout=payout)
    stated = moved("payment", gross=gross, settled_at=settled_at, payout=payout)
    assert pairs(stated=[stated], known=[known]) == [0 if same else None]
    assert pairs(stated=[known], known=[stated]) == [0 if same else None]


def test_the_second_of_two_equal_refunds_is_new() -> None:
    assert pairs(stated=[moved(), moved()], known=[moved()]) == [0, None]


def test_a_changed_row_takes_no_line_from_an_equal_one() -> None:
    first = replace(moved(fee=1), stated=("first",))
    assert pairs(stated=[moved(fee=2), first], known=[first]) == [None, 0]


def test_equal_ones_and_those_that_may_be_the_same_are_paired_in_their_order() -> None:
    assert pairs(stated=[moved(), moved()], known=[moved()] * 3) == [0, 1]
    known = [moved(fee=1), moved(fee=2), moved(fee=3)]
    assert pairs(stated=[moved(fee=7), moved(fee=8)], known=known) == [0, 1]
    assert pairs(stated=[moved(fee=7), moved(fee=1), moved(fee=8)], known=known) == [1, 0, 2]


@for_each(("settled_at", "same"), [
    (D - TICK, False), (D, True), (D + DAY - TICK, True), (D + DAY, False),
])  # fmt: skip
def test_a_day_of_settlement_ends_with_its_last_moment(settled_at: Instant, same: bool) -> None:
    row = moved(settled_at=settled_at, payout=None)
    assert pairs(stated=[row], known=[moved(fee=1)]) == [0 if same else None]


@for_each(("zone", "settled_at", "same"), [
    ("Africa/Nairobi", D - 3 * HOUR, True), ("Africa/Nairobi", D - 3 * HOUR - TICK, False),
    ("Africa/Nairobi", D - 27 * HOUR, False), ("Pacific/Kiritimati", D - 14 * HOUR, True),
    ("Pacific/Kiritimati", D + 10 * HOUR, False), ("America/New_York", D + 4 * HOUR, True),
    ("America/New_York", D + 4 * HOUR + TICK, False), ("America/New_York", D + 28 * HOUR, False),
])  # fmt: skip
def test_a_day_alone_that_was_read_as_one_of_utc_is_the_same_day_in_a_zone(
    zone: str, settled_at: Instant, same: bool
) -> None:
    """The merchant's zone was set between two imports."""
    row, known = moved(settled_at=settled_at, payout=None), moved(payout=None)
    found = pairs(stated=[row], known=[known], calendar=Calendar(ZoneInfo(zone)))
    assert found == [0 if same else None]


@for_each(("settled_at", "same"), [
    (D - 3 * HOUR, True), (D - 14 * HOUR, True), (D - 15 * HOUR, False), (D + 5 * HOUR, True),
    (D - 3 * HOUR + 15 * MINUTE, True), (D - 3 * HOUR + MINUTE, False), (D - 27 * HOUR, False),
])  # fmt: skip
def test_a_day_alone_that_was_read_in_a_zone_is_the_same_day_of_utc(
    settled_at: Instant, same: bool
) -> None:
    row, known = moved(payout=None), moved(settled_at=settled_at, payout=None)
    assert pairs(stated=[row], known=[known]) == [0 if same else None]
    later = replace(row, settled_at=D + HOUR)
    if settled_at < D:
        assert pairs(stated=[later], known=[known]) == [None]


@for_each(("one", "other", "same"), [(1, 5, True), (0, 5, True), (-1, 5, False), (0, -5, False)])
def test_only_amounts_of_one_sign_correct_each_other(one: int, other: int, same: bool) -> None:
    first, second = (
        Moved(kind="payment", stated=(), money=("KES", minor), settled_at=None, payout=None)
        for minor in (one, other)
    )
    assert (is_same(first, second), is_same(second, first)) == (same, same)
    assert (is_like(first, second), is_like(second, first)) == (same, same)


def test_rows_are_asked_about_known_lines_in_that_order() -> None:
    assert paired(stated=[1, 5], known=[9, 2], same=lambda row, known: row < known) == [0, None]
    assert paired(stated=[1, 2], known=[2, 1], same=lambda row, known: False) == [1, 0]
