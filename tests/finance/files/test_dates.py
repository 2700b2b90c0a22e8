"""Dates: one meaning, or none."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import UsageError
from app.finance.files.mapping import DateForm, Dates, zone_of
from app.finance.files.tables import CellMoment, UnclearCell
from reconcile.instants import format_instant, parse_instant

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(9998, 12, 31))
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def read(cell: str, form: DateForm = "iso", zone: str = "UTC") -> str | None:
    (found,) = Dates(form, zone_of(zone)).read([cell])
    return None if found is None else format_instant(found)


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(moment=MOMENTS, zone=OFFSETS)
def test_rfc_3339_says_its_own_zone(moment: datetime, zone: timezone) -> None:
    stated = moment.replace(tzinfo=zone)
    assert Dates("iso", UTC).read([stated.isoformat()]) == [micros(stated)]


@given(moment=MOMENTS.map(lambda m: m.replace(second=0, microsecond=0)), zone=OFFSETS,
       mark=st.sampled_from("/.-"))  # fmt: skip
def test_the_declared_form_and_zone_decide(moment: datetime, zone: timezone, mark: str) -> None:
    expected = [micros(moment.replace(tzinfo=zone))]
    year = f"{moment.year:04}"
    day_first = f"{moment.day}{mark}{moment.month:02}{mark}{year} {moment:%H:%M}"
    month_first = f"{moment.month}{mark}{moment.day:02}{mark}{year} {moment:%I:%M %p}"
    assert Dates("day_first", zone).read([day_first]) == expected
    assert Dates("month_first", zone).read([month_first]) == expected


@pytest.mark.parametrize(("cell", "expected"), [
    ("2026-11-20", "2026-11-20T00:00:00Z"), ("2026/11/20", "2026-11-20T00:00:00Z"),
    ("2026-11-20 10:00", "2026-11-20T10:00:00Z"),
    ("2026-11-20T10:00:00+0300", "2026-11-20T07:00:00Z"),
    ("2026-11-20t10:00:00.5z", "2026-11-20T10:00:00.500Z"), ("  ", None), ("", None),
])  # fmt: skip
def test_iso_dates_need_no_declaration(cell: str, expected: str | None) -> None:
    assert read(cell) == expected


@pytest.mark.parametrize(("cell", "form", "said"), [
    ("02/03/2026", "iso", "day or with the month"), ("25/12/2026", "iso", "day or with the month"),
    ("13/13/2026", "day_first", "calendar"), ("12/25/2026", "day_first", "calendar"),
    ("31/04/2026", "day_first", "calendar"), ("2026-02-30", "iso", "calendar"),
    ("01/02/026", "day_first", "declared form"), ("20261120", "iso", "not a date"),
    ("01/02/26", "iso", "with the day or with the month"),
    ("1763632800", "iso", "not a date"), ("yesterday", "iso", "not a date"),
    ("1969-12-31", "iso", "1970"), ("2026-11-20T25:00Z", "iso", "calendar"),
    ("3/4/2026 13:00 PM", "day_first", "twelve hours"), ("x", "unix_s", "whole number"),
    ("2026-11-20T10:00:00+99:00", "iso", "calendar"), ("2026-1/2", "iso", "not a date"),
])  # fmt: skip
def test_what_is_not_clear_is_refused_with_the_reason(cell: str, form: DateForm, said: str) -> None:
    with pytest.raises(UnclearCell, match=said):
        read(cell, form)


def test_an_iso_date_stays_clear_where_another_form_is_declared() -> None:
    assert read("2026-03-02", "day_first") == "2026-03-02T00:00:00Z"
    assert read(CellMoment("2026-03-02T10:00:00"), "month_first") == "2026-03-02T10:00:00Z"


def test_numbers_of_seconds_and_milliseconds_are_declared() -> None:
    assert (
        read("1763632800", "unix_s") == read("1763632800000", "unix_ms") == "2025-11-20T10:00:00Z"
    )


def test_a_zone_with_summer_time_is_followed() -> None:
    assert read("2026-07-01 12:00", zone="Europe/Berlin") == "2026-07-01T10:00:00Z"
    assert read("2026-01-01 12:00", zone="Europe/Berlin") == "2026-01-01T11:00:00Z"
    assert zone_of("Africa/Nairobi") == ZoneInfo("Africa/Nairobi")
    first = parse_instant("2026-10-25T00:30:00Z")
    assert Dates("iso", zone_of("Europe/Berlin")).read(["2026-10-25 02:30"]) == [first]


@pytest.mark.parametrize("name", ["Mars/Base", "../etc/passwd", "+3", "", "/etc/localtime"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no time zone"):
        zone_of(name)


@pytest.mark.parametrize(
    ("cell", "form", "expected"),
    [
        # A time of day means nothing until somebody says of which zone; a day alone is one of UTC.
        ("2026-11-20 10:00", "iso", None),
        ("2026-11-20T00:00:00", "iso", None),
        ("20/11/2026 10:00", "day_first", None),
        ("20/11/2026 12:30 AM", "day_first", None),
        (CellMoment("2026-11-20T10:00:00"), "iso", None),
        (CellMoment("2026-11-20T00:00:00"), "iso", "2026-11-20T00:00:00Z"),
        (CellMoment("2026-11-20"), "month_first", "2026-11-20T00:00:00Z"),
        ("2026-11-20", "iso", "2026-11-20T00:00:00Z"),
        ("20/11/2026", "day_first", "2026-11-20T00:00:00Z"),
        ("05.10.26", "day_first", "2026-10-05T00:00:00Z"),  # as German savings banks write it
        ("10/05/26", "month_first", "2026-10-05T00:00:00Z"),
        ("2026-11-20T10:00:00+03:00", "iso", "2026-11-20T07:00:00Z"),
        ("1763632800", "unix_s", "2025-11-20T10:00:00Z"),
    ],
)
def test_a_local_time_of_no_zone_is_refused_until_somebody_says_which(
    cell: str, form: DateForm, expected: str | None
) -> None:
    dates = Dates(form, None)
    if expected is None:
        with pytest.raises(UnclearCell, match="set TALLYHOOK_TIMEZONE"):
            dates.read([cell])
        (found,) = Dates(form, zone_of("Africa/Nairobi")).read([cell])
        assert found is not None
    else:
        (found,) = dates.read([cell])
        assert found is not None
        assert format_instant(found) == expected
