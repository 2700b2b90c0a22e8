"""Instants: RFC 3339 in and out, exact to the microsecond, and nothing that is no moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.instants import (
    DAY,
    EARLIEST,
    HOUR,
    LATEST,
    MINUTE,
    SECOND,
    Duration,
    Instant,
    add_business_days,
    format_duration,
    format_instant,
    moment_of,
    parse_instant,
)
from tests.rows import for_each

instants = st.integers(EARLIEST, LATEST).map(Instant)


@given(instants)
def test_every_instant_survives_text(instant: Instant) -> None:
    assert parse_instant(format_instant(instant)) == instant


@given(instants, instants)
def test_text_of_whole_microseconds_sorts_like_time(one: Instant, other: Instant) -> None:
    """Texts of equal precision sort like integers."""
    one, other = (EARLIEST + each // SECOND * SECOND for each in (one, other))
    assert (format_instant(one) < format_instant(other)) == (one < other)


@for_each(
    ("text", "same"),
    [
        ("2026-11-20T10:00:00.123Z", "2026-11-20T10:00:00.123Z"),
        ("2026-11-20T13:00:00+03:00", "2026-11-20T10:00:00Z"),
        ("2026-11-20 05:30:00-04:30", "2026-11-20T10:00:00Z"),
        ("2026-11-20t10:00:00z", "2026-11-20T10:00:00Z"),
        ("2026-11-20T10:00:00-00:00", "2026-11-20T10:00:00Z"),
        ("2026-11-20T10:00:00+23:59", "2026-11-19T10:01:00Z"),
        ("2026-11-20T10:00:00.1234567+23:59", "2026-11-19T10:01:00.123456Z"),
        ("2026-11-20T10:00:00.1234567+05:30", "2026-11-20T04:30:00.123456Z"),
        ("2026-11-20T10:00:00.1234567-05:30", "2026-11-20T15:30:00.123456Z"),
        ("2017-01-01T02:59:60+03:00", "2017-01-01T00:00:00Z"),
        ("2016-12-31T18:59:60-05:00", "2017-01-01T00:00:00Z"),
        ("2026-11-20T10:00:00.123456789Z", "2026-11-20T10:00:00.123456Z"),
        ("2026-11-20T10:00:00.9999999Z", "2026-11-20T10:00:00.999999Z"),
        ("2026-11-20T10:00:00.1Z", "2026-11-20T10:00:00.100Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_forms_of_one_moment(text: str, same: str) -> None:
    assert format_instant(parse_instant(text)) == same


@for_each(
    "text",
    [
        "",
        "now",
        "1795168800",
        "2026-11-20",
        "2026-11-20T10:00:00",
        "2026-11-20T10:00Z",
        "2026-11-20T10:00:00.Z",
        "2026-11-20T10:00:00,5Z",
        "2026-11-20T10:00:00+0300",
        "2026-11-20T10:00:00+24:00",
        "2026-11-20T10:00:00+03:60",
        "2026-11-20t10:00:00+24:00",
        "2026-11-20t10:00:00-03:60",
        "2026-13-01T10:00:00Z",
        "2027-02-29T10:00:00Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T10:00:61Z",
        "1969-12-31T23:59:59Z",
        "1969-12-31 23:59:59Z",
        "9999-12-31t23:59:59-00:01",
        "1970-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "0000-01-01T00:00:00Z",
        "٢٠٢٦-11-20T10:00:00Z",
        " 2026-11-20T10:00:00Z",
        "2026-11-20T10:00:00Z\n",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|outside"):
        parse_instant(text)


@for_each(
    ("duration", "words"),
    [
        (0, "0 ms"),
        (999, "0 ms"),
        (300_000, "300 ms"),
        (SECOND - 1, "999 ms"),
        (SECOND, "1 s"),
        (45 * SECOND, "45 s"),
        (2 * HOUR + 5 * MINUTE + SECOND, "2 h 5 min"),
        (3 * DAY + MINUTE, "3 d 1 min"),
        (-90 * SECOND, "-1 min 30 s"),
    ],
)
def test_durations_in_words(duration: Duration, words: str) -> None:
    assert format_duration(duration) == words


@for_each(
    ("start", "days", "end"),
    [
        ("2026-11-20T10:00:00Z", 1, "2026-11-23T10:00:00Z"),  # from a Friday
        ("2026-11-21T10:00:00Z", 1, "2026-11-23T10:00:00Z"),  # from the Saturday
        ("2026-11-22T10:00:00Z", 1, "2026-11-23T10:00:00Z"),  # from the Sunday
        ("2026-11-20T10:00:00Z", 6, "2026-11-30T10:00:00Z"),
        ("2026-11-20T10:00:00Z", 14, "2026-12-10T10:00:00Z"),
        ("2026-11-25T10:00:00Z", 0, "2026-11-25T10:00:00Z"),
        ("2026-11-21T10:00:00Z", 0, "2026-11-21T10:00:00Z"),  # on the Saturday itself
        ("1970-01-03T10:00:00Z", 5, "1970-01-09T10:00:00Z"),
        ("9999-12-30T10:00:00Z", 14, "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_business_days_leave_out_weekends(start: str, days: int, end: str) -> None:
    assert format_instant(add_business_days(parse_instant(start), days)) == end


@given(st.integers(EARLIEST, LATEST - 100 * DAY).map(Instant), st.integers(1, 60))
def test_business_days_are_those_counted_one_by_one(start: Instant, days: int) -> None:
    day = start
    for _ in range(days):
        day += DAY
        while moment_of(day).weekday() > 4:
            day += DAY
    assert add_business_days(start, days) == day
