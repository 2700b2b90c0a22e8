"""Dates: one meaning, or none."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import UsageError
from app.finance.files.dates import (
    ABBREVIATIONS,
    AMBIGUOUS,
    DateForm,
    Dates,
    with_zones,
    zone_of,
)
from app.finance.files.tables import CellMoment, UnclearCell
from reconcile.instants import format_instant, parse_instant
from tests.rows import for_each

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


@for_each(("cell", "expected"), [
    ("2026-11-20", "2026-11-20T00:00:00Z"), ("2026/11/20", "2026-11-20T00:00:00Z"),
    ("2026-11-20 10:00", "2026-11-20T10:00:00Z"),
    ("2026-11-20T10:00:00+0300", "2026-11-20T07:00:00Z"),
    ("2026-11-20t10:00:00.5z", "2026-11-20T10:00:00.500Z"), ("  ", None), ("", None),
])  # fmt: skip
def test_iso_dates_need_no_declaration(cell: str, expected: str | None) -> None:
    assert read(cell) == expected


@for_each(("cell", "form", "said"), [
    ("02/03/2026", "iso", "day or with the month"), ("25/12/2026", "iso", "day or with the month"),
    ("13/13/2026", "day_first", "not a real day"), ("12/25/2026", "day_first", "not a real day"),
    ("31/04/2026", "day_first", "not a real day"), ("2026-02-30", "iso", "not a real day"),
    ("01/02/026", "day_first", "declared form"), ("20261320", "iso", "not a real day"),
    ("5-Sep-26", "iso", "two digits"), ("Sept 31, 2026", "iso", "not a real day"),
    ("5 Septembre 2026", "iso", "not a date"), ("2026-11-20 0:30 AM", "iso", "12-hour clock"),
    ("01/02/26", "iso", "with the day or with the month"),
    ("1763632800", "iso", "not a date"), ("yesterday", "iso", "not a date"),
    ("1969-12-31", "iso", "1970"), ("2026-11-20T25:00Z", "iso", "not a real day"),
    ("3/4/2026 13:00 PM", "day_first", "12-hour clock"), ("x", "unix_s", "whole number"),
    ("2026-11-20T10:00:00+99:00", "iso", "is not known"), ("2026-1/2", "iso", "not a date"),
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


WORDS = {"ist": "Asia/Kolkata", "ortszeit": "+03:00"}


@for_each(("cell", "expected"), [
    ("20260905", "2026-09-05T00:00:00Z"), ("20260905143012", "2026-09-05T14:30:12Z"),
    ("20260905T143012.25Z", "2026-09-05T14:30:12.250Z"),
    ("20260905 14:30", "2026-09-05T14:30:00Z"),
    ("Sep 5, 2026", "2026-09-05T00:00:00Z"), ("5 Sept 2026", "2026-09-05T00:00:00Z"),
    ("SEPTEMBER 5 2026", "2026-09-05T00:00:00Z"), ("05-Sep-2026", "2026-09-05T00:00:00Z"),
    ("5. May 2026", "2026-05-05T00:00:00Z"), ("2026-Dec-31", "2026-12-31T00:00:00Z"),
    ("Sep 4, 2026 1:05:07 AM PDT", "2026-09-04T08:05:07Z"),
    ("Sep 4, 2026, 12:05:07\u202fPM PDT", "2026-09-04T19:05:07Z"),
    ("2026-09-04 01:05 PM", "2026-09-04T13:05:00Z"),
    ("2026-09-04 01:05:07.125 p.m. EAT", "2026-09-04T10:05:07.125Z"),
    ("2026-09-04 10:00:00,5 Europe/Berlin", "2026-09-04T08:00:00.500Z"),
    ("2026-01-04 10:00 Europe/Berlin", "2026-01-04T09:00:00Z"),
    ("2026-09-04 10:00:00+03", "2026-09-04T07:00:00Z"),
    ("2026-09-04 10:00 GMT+3", "2026-09-04T07:00:00Z"),
    ("2026-09-04\u00a010:00", "2026-09-04T10:00:00Z"),
    ("2026-12-31T23:59:60Z", "2027-01-01T00:00:00Z"),
    ("4 Sep 2026 10:00 IST", "2026-09-04T04:30:00Z"),
    ("2026-09-04 10:00 Ortszeit", "2026-09-04T07:00:00Z"),
])  # fmt: skip
def test_a_date_with_one_meaning_is_read_in_every_form(cell: str, expected: str) -> None:
    for form in ("iso", "day_first", "month_first", "excel"):
        (found,) = Dates(form, UTC, WORDS).read([cell])
        assert found is not None
        assert format_instant(found) == expected


@for_each("form", ["day_first", "month_first"])
def test_a_year_of_two_digits_beside_a_months_name_needs_a_declared_form(form: DateForm) -> None:
    assert read("5-Sep-26", form) == "2026-09-05T00:00:00Z"


@for_each(("cell", "zone", "form", "expected"), [
    ("2026-09-04 10:00", "Europe/Berlin", "iso", "2026-09-04T08:00:00Z"),
    ("2026-12-04 10:00", "CET", "iso", "2026-12-04T09:00:00Z"),
    ("2026-09-04 10:00", "cdt", "iso", "2026-09-04T15:00:00Z"),
    ("04/09/2026 10:00", "UTC+03:00", "day_first", "2026-09-04T07:00:00Z"),
    ("46269.5", "EAT", "excel", "2026-09-04T09:00:00Z"),
    ("20260904100000", "WAT", "iso", "2026-09-04T09:00:00Z"),
    ("2026-09-04T10:00:00+02:00", "CEST", "iso", "2026-09-04T08:00:00Z"),
    ("2026-09-04", "PDT", "iso", "2026-09-04T00:00:00Z"),  # a day has no zone
    ("1788516000", "PDT", "unix_s", "2026-09-04T10:00:00Z"),
    ("2026-09-04 10:00", " ", "iso", "2026-09-04T10:00:00Z"),
])  # fmt: skip
def test_the_zone_in_a_column_counts_for_a_time_of_day(
    cell: str, zone: str, form: DateForm, expected: str
) -> None:
    (found,) = Dates(form, UTC).read(with_zones([cell], [zone]))
    assert found is not None
    assert format_instant(found) == expected


@for_each(("cell", "zone", "said"), [
    ("2026-09-04 10:00", "CST", r'-06:00 \(America/Chicago\) or .* \[zones\].*CST = "-06:00"'),
    ("2026-09-04 10:00 IST", "", r'\+05:30 \(Asia/Kolkata\).*IST = "\+05:30"'),
    ("2026-09-04 10:00", "XYZ", "has the zone 'XYZ', which is not known"),
    ("2026-09-04 10:00", "Mars/Base", "is not known"),
    ("2026-09-04 10:00", "../../etc/passwd", "is not known"),
    ("2026-09-04 10:00+03:00", "CET", "the row's zone column says 'CET'"),
])  # fmt: skip
def test_a_zone_of_several_meanings_or_of_none_is_refused(cell: str, zone: str, said: str) -> None:
    with pytest.raises(UnclearCell, match=said):
        Dates("iso", UTC).read(with_zones([cell], [zone]))


def test_abbreviations_agree_with_the_time_zone_database() -> None:
    used: dict[str, set[timedelta | None]] = {}
    for name in available_timezones() - {"Cuba", "America/Havana"}:
        for month in (1, 7):
            moment = datetime(2026, month, 15, tzinfo=ZoneInfo(name))
            used.setdefault((moment.tzname() or "").casefold(), set()).add(moment.utcoffset())
    for name, offset in ABBREVIATIONS.items():
        meant = datetime(2026, 1, 1, tzinfo=zone_of(offset)).utcoffset()
        assert used.get(name, {meant}) == {meant}
        assert name.upper() not in AMBIGUOUS


@for_each("name", ["Mars/Base", "../etc/passwd", "+3", "", "/etc/localtime"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a known time zone"):
        zone_of(name)


@for_each(
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
