"""Days and months begin and end where the calendar of a zone says."""

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest

from reconcile.instants import DAY, HOUR, LATEST, TICK, Instant, format_instant, parse_instant
from reconcile.periods import IN_UTC, Calendar, Month, day_of, month_named
from tests.rows import for_each


@for_each(
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
    assert month.end == IN_UTC.following(month).start
    assert month.is_of_utc
    assert IN_UTC.month(name).is_of_utc


def test_twelve_months_on_it_is_the_same_month_of_the_next_year() -> None:
    month, names = Month(year=2026, number=12), []
    for _ in range(12):
        month = IN_UTC.following(month)
        names.append(month.name)
    assert names == [*(f"2027-{number:02d}" for number in range(1, 13))]


@for_each("name", ["", "2026", "2026-13", "2026-1", "10-2026", "٢٠٢٦-10", "2026-10 ", "9999-12"])
def test_what_is_no_month_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match="a period is a month, such as 2026-10"):
        month_named(name)


def test_a_day_is_that_of_utc() -> None:
    start = parse_instant("2026-10-12T00:00:00Z")
    assert day_of(start) == day_of(start + DAY - TICK) == "2026-10-12"
    assert day_of(start - TICK) == "2026-10-11"


NAIROBI, NEW_YORK = ZoneInfo("Africa/Nairobi"), ZoneInfo("America/New_York")
CAIRO = ZoneInfo("Africa/Cairo")


@for_each(
    ("zone", "day", "start", "hours"),
    [
        # zone, day, its first moment, how many hours it has
        (UTC, "2026-10-25", "2026-10-25T00:00:00Z", 24),
        (NAIROBI, "2026-10-25", "2026-10-24T21:00:00Z", 24),
        (NEW_YORK, "2026-03-08", "2026-03-08T05:00:00Z", 23),
        (NEW_YORK, "2026-11-01", "2026-11-01T04:00:00Z", 25),
        (NEW_YORK, "2026-11-02", "2026-11-02T05:00:00Z", 24),
        # Where clocks are put forward at midnight, the day begins at one o'clock.
        (CAIRO, "2026-04-24", "2026-04-23T22:00:00Z", 23),
    ],
)
def test_a_day_begins_at_its_own_midnight(zone: tzinfo, day: str, start: str, hours: int) -> None:
    calendar = Calendar(zone)
    first, after = calendar.day(day)
    assert (format_instant(first), (after - first) // HOUR) == (start, hours)
    assert calendar.day_of(first) == calendar.day_of(after - TICK) == day
    assert calendar.day_of(after) != day != calendar.day_of(first - TICK)
    assert calendar.next_day(first) == after


@for_each("zone", [UTC, NAIROBI, NEW_YORK, CAIRO])
def test_months_of_a_zone_follow_each_other_without_a_gap(zone: tzinfo) -> None:
    calendar = Calendar(zone)
    month = calendar.month("2026-01")
    for _ in range(24):
        after = calendar.following(month)
        assert month.end == after.start == calendar.next_month(month.start)
        assert calendar.month_at(month.start) == calendar.month_at(month.end - TICK) == month
        assert month.zone == str(zone)
        month = after


@for_each(
    ("before", "zone", "start", "end"),
    [
        # zone of the closed October, zone now, and the November that follows
        (UTC, NAIROBI, "2026-11-01T00:00:00Z", "2026-11-30T21:00:00Z"),
        (UTC, NEW_YORK, "2026-11-01T00:00:00Z", "2026-12-01T05:00:00Z"),
        (NEW_YORK, NAIROBI, "2026-11-01T04:00:00Z", "2026-11-30T21:00:00Z"),
        (NAIROBI, NEW_YORK, "2026-10-31T21:00:00Z", "2026-12-01T05:00:00Z"),
        (NAIROBI, NAIROBI, "2026-10-31T21:00:00Z", "2026-11-30T21:00:00Z"),
    ],
)
def test_a_change_of_zone_begins_with_the_first_open_month(
    before: tzinfo, zone: tzinfo, start: str, end: str
) -> None:
    closed = Calendar(before).month("2026-10")
    calendar = Calendar(zone, closed=closed)
    month = calendar.month("2026-11")
    assert (format_instant(month.start), format_instant(month.end)) == (start, end)
    assert month.start == closed.end
    assert calendar.following(closed) == month
    assert calendar.following(month).start == month.end
    for at in (closed.end - TICK, closed.start, closed.start - 40 * DAY):
        with pytest.raises(ValueError, match="closed"):
            calendar.month_at(Instant(at))
    for at in (month.start, month.end - TICK):
        assert calendar.month_at(at) == month


@for_each("text", ["", "2026-02-30", "2026-1-01", "20261001", "1969-12-31"])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"day|month"):
        IN_UTC.day(text)


@for_each("zone", [UTC, NAIROBI, NEW_YORK])
def test_the_ends_of_the_calendar_are_days(zone: tzinfo) -> None:
    calendar = Calendar(zone)
    assert calendar.day("1970-01-01")[0] >= 0
    assert calendar.day("9999-12-31")[1] == LATEST
    assert calendar.day_of(LATEST) == "9999-12-31"
