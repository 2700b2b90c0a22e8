"""The drawing of a timeline: nothing overlaps, and what is too much is left out from the front."""

from itertools import pairwise

from app.evidence.bundle_letter import MAX_COLUMNS, WIDTH, Spoken, drawing
from reconcile.instants import DAY, HOUR, MINUTE, NO_TIME, Duration
from tests.reconcile.build import T


def spoken(number: int, *, at: Duration, after: Duration = NO_TIME) -> Spoken:
    return Spoken(number=number, at=T + at, received_at=T + at + after)


def test_moments_stand_in_order_with_what_lies_between() -> None:
    """A second and a week are both legible; a day is written where it begins."""
    drawn = drawing(
        [spoken(1, at=NO_TIME), spoken(2, at=HOUR, after=MINUTE), spoken(3, at=2 * DAY)]
    )
    assert [each.time for each in drawn.columns] == ["10:00:00", "11:00:00", "11:01:00", "10:00:00"]
    assert [each.gap for each in drawn.columns] == ["", "1 h", "1 min", "1 d 22 h"]
    assert [each.day for each in drawn.columns] == ["2026-11-20", "", "", "2026-11-22"]
    places = {each.time + each.day: each.x for each in drawn.columns}
    assert drawn.marks[1].happened_x == places["11:00:00"]
    assert drawn.marks[1].reached_x == places["11:01:00"]


def test_columns_keep_their_distance_however_many_there_are() -> None:
    """Forty events that were each late: the last that fit, as wide as the page at most."""
    drawn = drawing([spoken(n, at=n * HOUR, after=7 * MINUTE) for n in range(1, 41)])
    assert len(drawn.columns) <= MAX_COLUMNS
    assert [each.number for each in drawn.marks] == [35, 36, 37, 38, 39, 40]
    places = [each.x for each in drawn.columns]
    assert min(right - left for left, right in pairwise(places)) >= 42
    assert places[-1] <= WIDTH - 20


def test_events_of_one_moment_stand_above_each_other() -> None:
    drawn = drawing([spoken(1, at=NO_TIME), spoken(2, at=NO_TIME), spoken(3, at=NO_TIME)])
    assert len({each.set_off for each in drawn.marks}) == 3
    assert len(drawn.columns) == 1
    assert drawing([]).columns == ()
