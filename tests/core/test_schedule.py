"""Due times of schedule entries, by table: pure, in any zone, on days when clocks change."""

from typing import get_args
from zoneinfo import ZoneInfo

import pytest

from app.core.schedule import (
    FORMS,
    LATE,
    ScheduleEntry,
    due_time,
    is_late,
    next_time,
    schedule_entries,
)
from app.finance.reports.render import ReportFormat
from reconcile.instants import TICK, Instant, format_instant, parse_instant

BERLIN, NAIROBI = ZoneInfo("Europe/Berlin"), ZoneInfo("Africa/Nairobi")


def entry(cron: str) -> ScheduleEntry:
    """Build an entry of this time."""
    (found,) = schedule_entries(f"x | {cron} | reconcile")
    return found


def at(text: str) -> Instant:
    """Return an instant of 2026, in UTC."""
    return parse_instant(f"2026-{text}:00Z")


TIMES = (
    # every day at half past two: the hour that is left out is made up at its end
    ("30 2 * * *", BERLIN, "03-28T12:00", ("03-29T01:00", "03-30T00:30", "03-31T00:30")),
    # and the hour that comes twice counts the first time, also for who looks in the second
    ("30 2 * * *", BERLIN, "10-24T12:00", ("10-25T00:30", "10-26T01:30", "10-27T01:30")),
    ("30 2 * * *", BERLIN, "10-25T00:45", ("10-26T01:30", "10-27T01:30")),
    ("30 2 * * *", BERLIN, "10-25T01:10", ("10-26T01:30",)),
    # every hour: each hour that passes, neither more nor fewer
    ("30 * * * *", BERLIN, "03-29T00:00", ("03-29T00:30", "03-29T01:30", "03-29T02:30")),
    ("30 * * * *", BERLIN, "10-24T23:31", ("10-25T00:30", "10-25T01:30", "10-25T02:30")),
    # a zone that knows no summer time
    ("0 6 12 * *", NAIROBI, "03-01T00:00", ("03-12T03:00", "04-12T03:00", "05-12T03:00")),
    ("0 0 1 * *", NAIROBI, "10-31T20:00", ("10-31T21:00", "11-30T21:00")),
    ("0 6 L * *", NAIROBI, "02-01T00:00", ("02-28T03:00", "03-31T03:00", "04-30T03:00")),
    ("15 9 * * MON-FRI", NAIROBI, "10-30T07:00", ("11-02T06:15", "11-03T06:15")),
)


@pytest.mark.parametrize(("cron", "zone", "after", "times"), TIMES)
def test_when_an_entry_comes(cron: str, zone: ZoneInfo, after: str, times: tuple[str, ...]) -> None:
    found = []
    last: Instant | None = at(after)
    for _ in times:
        assert last is not None
        last = next_time(entry(cron), after=last, zone=zone)
        assert last is not None
        found.append(format_instant(last)[5:16])
    assert found == list(times)


DUE = (
    # (since, now, due)
    ("10-01T00:00", "10-01T23:29", None),
    ("10-01T00:00", "10-01T23:30", "10-01T23:30"),
    ("10-01T23:30", "10-02T20:00", None),
    ("10-01T00:00", "10-20T12:00", "10-19T23:30"),  # missed nineteen times, due once
)


@pytest.mark.parametrize(("since", "now", "due"), DUE)
def test_what_is_due(since: str, now: str, due: str | None) -> None:
    found = due_time(entry("30 2 * * *"), since=at(since), now=at(now), zone=NAIROBI)
    assert found == (None if due is None else at(due))


def test_what_begins_long_after_its_time_is_late() -> None:
    assert not is_late(at("10-01T00:00"), began=Instant(at("10-01T00:00") + LATE))
    assert is_late(at("10-01T00:00"), began=Instant(at("10-01T00:00") + LATE + TICK))


def test_entries_are_read_as_they_are_written() -> None:
    nightly, month = schedule_entries(
        "nightly | 30 2 * * * | reconcile ;\n"
        "month|0  6 12 * *|reconcile month xlsx pdf mail folder;"
    )
    assert nightly == ScheduleEntry(name="nightly", cron="30 2 * * *", reconcile=True)
    assert month == ScheduleEntry(
        name="month",
        cron="0 6 12 * *",
        reconcile=True,
        span="month",
        forms=("pdf", "xlsx"),
        ways=("folder", "mail"),
    )
    (log,) = schedule_entries("log | 0 7 * * * | checkpoint mail post")
    assert log == ScheduleEntry(
        name="log", cron="0 7 * * *", reconcile=False, ways=("mail", "post"), checkpoint=True
    )
    assert schedule_entries("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nightly 30 2 * * *", "must be entries such as"),
        ("Nightly! | 30 2 * * * | reconcile", "must name each entry"),
        ("a | 30 2 * * | reconcile", "five cron fields"),
        ("a | * 2 * * * | reconcile", "the minute must be a number"),
        ("a | 61 2 * * * | reconcile", "Bad minute"),
        ("a | 0 0 31 2 * | reconcile", "Bad day-of-month"),
        ("a | 30 2 * * * |", "names no task"),
        ("a | 30 2 * * * | reconcil", "reconcil is not one of"),
        ("a | 30 2 * * * | month pdf", "needs month or day"),
        ("a | 30 2 * * * | month day pdf folder", "needs month or day"),
        ("a | 30 2 * * * | folder", "needs month or day"),
        ("a | 30 2 * * * | checkpoint", "a checkpoint needs a way"),
        ("a | 30 2 * * * | checkpoint pdf folder", "needs month or day"),
        ("a | 1 2 * * * | reconcile; a | 2 2 * * * | reconcile", "two entries named a"),
        (";".join(f"a{n} | 1 2 * * * | reconcile" for n in range(21)), "20 entries at most"),
        ("a" * 5_000, "4,000 characters"),
    ],
)
def test_what_is_no_entry_is_reported_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schedule_entries(text)


def test_every_form_is_one_that_reports_have() -> None:
    assert set(FORMS) < set(get_args(ReportFormat))
