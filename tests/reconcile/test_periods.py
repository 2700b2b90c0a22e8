"""Months begin and end where the calendar of UTC says."""

from __future__ import annotations

import pytest

from reconcile.instants import DAY, TICK, parse_instant
from reconcile.periods import Month, day_of, month_named


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("2026-10", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        ("2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("2028-02", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
    ],
)
def test_a_month_holds_its_first_moment_and_not_its_end(name: str, start: str, end: str) -> None:
    month = month_named(name)
    assert (month.name, month.start, month.end) == (name, parse_instant(start), parse_instant(end))
    assert month.end == month.following.start


def test_twelve_months_on_it_is_the_same_month_of_the_next_year() -> None:
    """From a December, one month at a time."""
    month, names = Month(year=2026, number=12), []
    for _ in range(12):
        month = month.following
        names.append(month.name)
    assert names == [*(f"2027-{number:02d}" for number in range(1, 13))]


@pytest.mark.parametrize(
    "name", ["", "2026", "2026-13", "2026-1", "10-2026", "٢٠٢٦-10", "2026-10 ", "9999-12"]
)
def test_what_is_no_month_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match="a period is a month, such as 2026-10"):
        month_named(name)


def test_a_day_is_that_of_utc() -> None:
    """Its last microsecond belongs to it."""
    start = parse_instant("2026-10-12T00:00:00Z")
    assert day_of(start) == day_of(start + DAY - TICK) == "2026-10-12"
    assert day_of(start - TICK) == "2026-10-11"
