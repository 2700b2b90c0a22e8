"""Sentences tell a zone's times, and nothing else of them changes."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from app.core.zones import local_text, typed_deadline, typed_instant, zone_named
from reconcile.instants import Instant, format_instant, parse_instant, plain_instant

NAIROBI = ZoneInfo("Africa/Nairobi")
NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("It came at 2026-10-17T21:00:00Z, alone", "It came on 2026-10-18, alone"),
        ("It came at 2026-10-17T21:00:00.5Z.", "It came at 2026-10-18 00:00."),
        ("It came at 2026-10-17T20:59:59.999Z.", "It came at 2026-10-17 23:59."),
        ("beyond 2026-10-17T21:00:00Z", "beyond 2026-10-18 00:00"),
        ("2026-10-16T09:05:00Z", "2026-10-16 12:05"),
        ("Paid on 5 October 2026, 05:02 UTC.", "Paid on 5 October 2026, 08:02."),
        ("Paid on 31 December 2026, 21:00 UTC.", "Paid on 1 January 2027."),
        ("until 31 December 2026, 21:00 UTC", "until 1 January 2027, 00:00"),
        ("`show --as-of 2026-10-16T09:05:00Z`", "`show --as-of 2026-10-16T09:05:00Z`"),
        ("a ` at 2026-10-16T09:05:00Z", "a ` at 2026-10-16 12:05"),
        ("of 2026-13-45T99:00:00Z", "of 2026-13-45T99:00:00Z"),
        ("of 31 February 2026, 05:02 UTC", "of 31 February 2026, 05:02 UTC"),
        ("PO-2026-10-16T09:05:00Zx", "PO-2026-10-16T09:05:00Zx"),
        ("ends 9999-12-31T23:59:59.999999Z", "ends 9999-12-31 23:59"),
    ],
)
def test_moments_are_local_to_the_minute_and_midnights_days(said: str, shown: str) -> None:
    assert local_text(said, NAIROBI) == shown


def test_a_zone_is_named_beside_times_of_day_as_it_is_called_then() -> None:
    said = "at 2026-07-01T10:00:00Z, at 2026-12-01T10:00:00Z, at 2026-10-17T21:00:00Z"
    assert local_text(said, NAIROBI, named=True) == (
        "at 2026-07-01 13:00 EAT, at 2026-12-01 13:00 EAT, on 2026-10-18"
    )
    assert local_text(said, NEW_YORK, named=True) == (
        "at 2026-07-01 06:00 EDT, at 2026-12-01 05:00 EST, at 2026-10-17 17:00 EDT"
    )
    assert local_text("by 9999-12-31T23:59:59Z", NAIROBI, named=True) == "by 9999-12-31 23:59 UTC"
    assert local_text("by 2026-10-17T00:00:00Z", UTC, named=True) == "by 2026-10-17 00:00 UTC"


def test_every_month_is_read_as_it_is_said() -> None:
    for month in range(1, 13):
        at: Instant = parse_instant(f"2026-{month:02}-09T10:05:00Z")
        said = f"since {plain_instant(at)}"
        assert local_text(said, UTC, named=True) == said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2026-11-20 12:00", "2026-11-20T09:00:00Z"),
        ("2026-11-20T12:00:05", "2026-11-20T09:00:05Z"),
        ("2026-11-20", "2026-11-19T21:00:00Z"),
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z"),
        ("2026-11-20T12:00:00+01:00", "2026-11-20T11:00:00Z"),
    ],
)
def test_a_typed_moment_is_of_the_zones_clocks_unless_it_names_another(
    typed: str, meant: str
) -> None:
    assert format_instant(typed_instant(typed, zone_named("Africa/Nairobi"))) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("2026-11-20", "2026-11-20T20:59:59Z"), ("2026-11-20 12:00", "2026-11-20T09:00:00Z")],
)
def test_a_deadline_of_a_day_alone_is_its_last_second(typed: str, meant: str) -> None:
    assert format_instant(typed_deadline(typed, zone_named("Africa/Nairobi"))) == meant


def test_a_day_whose_last_hour_comes_twice_ends_with_the_second_one() -> None:
    """Chile's clocks go back at midnight."""
    ends = typed_deadline("2026-04-04", zone_named("America/Santiago"))
    assert format_instant(ends) == "2026-04-05T03:59:59Z"


def test_of_an_hour_that_comes_twice_the_first_one_is_typed() -> None:
    autumn = typed_instant("2026-10-25 02:30", zone_named("Europe/Berlin"))
    assert format_instant(autumn) == "2026-10-25T00:30:00Z"


@pytest.mark.parametrize(
    "typed", ["", "20.11.2026", "2026-13-01", "2026-11-20 25:00", "0001-01-01"]
)
def test_what_is_no_moment_is_answered_with_one(typed: str) -> None:
    with pytest.raises(ValueError, match="write a time such as 2026-11-20 12:00"):
        typed_instant(typed, zone_named("Africa/Nairobi"))
