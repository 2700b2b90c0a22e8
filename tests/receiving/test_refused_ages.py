"""Genuine deliveries that are refused for their age: when that shows a wrong clock, or not."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.monitoring.watchdog import REST_S
from app.receiving.refusals import (
    KEPT,
    WINDOW,
    RefusedAges,
)
from reconcile.instants import HOUR, MINUTE, SECOND, TICK, Duration, Instant
from tests.api.driving import Driver, driving, of_order, signed
from tests.monitoring.alarms import told
from tests.reconcile.build import T


def ages(*bodies: str, at: Instant = T, source: str = "shop") -> RefusedAges:
    """Make the memory of a receiver that refused these bodies, all at once."""
    found = RefusedAges()
    for body in bodies:
        found.refused(source, digest=body, at=at, problem="It is 15 min old.")
    return found


@pytest.mark.parametrize(
    ("bodies", "alarm"),
    [("aab", True), ("abc", True), ("ab", False), ("aaaaaa", False), ("", False)],
)
def test_how_many_tell_of_a_clock(bodies: str, alarm: bool) -> None:
    """Three refusals of two bodies do; fewer, or one body again and again, do not."""
    assert (ages(*bodies).alarm(T) is not None) is alarm


@pytest.mark.parametrize(
    ("after", "alarm"),
    [(0, True), (WINDOW, True), (WINDOW + 1, False), (-1, False)],
)
def test_how_long_they_tell_of_it(after: Duration, alarm: bool) -> None:
    """For a quarter of an hour; and not to a clock that says that they are still to come."""
    assert (ages(*"abc").alarm(T + after) is not None) is alarm


def test_one_that_is_taken_ends_it() -> None:
    """A delivery of the same source that is taken does, and one of another source does not."""
    found = ages(*"abc")
    found.taken("other")
    assert found.alarm(T) is not None
    found.taken("shop")
    assert found.alarm(T) is None
    found.refused("shop", digest="d", at=T, problem="It is old.")
    assert found.alarm(T) is None


def test_each_source_is_judged_by_itself() -> None:
    """Refusals of two sources are not added, for each has a sender with a clock of its own."""
    found = ages(*"ab")
    found.refused("other", digest="c", at=T, problem="It is old.")
    assert found.alarm(T) is None


def test_what_it_says() -> None:
    """How many of which source, by how much the latest was off, and what to do."""
    found = ages(*"abc")
    for number in range(3):
        found.refused("till", digest=str(number), at=T + TICK, problem="It lies 2 h ahead.")
    alarm = found.alarm(T + TICK)
    assert alarm is not None
    for part in ("6 genuine deliveries", "3 of shop, 3 of till", "It lies 2 h ahead: set"):
        assert part in alarm.sentence
    assert "`tallyhook doctor`" in alarm.sentence
    assert "15 min old" not in alarm.sentence


def test_it_is_reported_within_a_minute() -> None:
    """The time between two looks leaves time for the look itself."""
    assert REST_S <= 50


def test_a_replay_does_not_hide_it() -> None:
    """However often one body is sent, the others are remembered; of all, only so many are, and
    those that were refused last."""
    found = ages("a", "b", *"c" * KEPT * 10)
    alarm = found.alarm(T)
    assert alarm is not None
    assert "1,002 genuine deliveries" in alarm.sentence
    alarm = ages(*(str(number) for number in range(KEPT + 1))).alarm(T)
    assert alarm is not None
    assert f"{KEPT} genuine deliveries" in alarm.sentence
    others = [str(number) for number in range(KEPT - 1)]
    alarm = ages("again", *others, "again", "new").alarm(T)
    assert alarm is not None
    assert f"{KEPT + 1} genuine deliveries" in alarm.sentence


async def send(driver: Driver, event_id: str, *, at: Instant) -> int:
    """Deliver an event that was signed at this time. Returns the status."""
    body = json.dumps(of_order(event_id, event_id)).encode()
    return (await driver.send(body, signed(body, at=at))).status_code


@pytest.mark.parametrize(
    ("minutes", "fault"),
    [(15, "is 15 min old"), (-15, "lies 15 min ahead of our clock")],
)
async def test_a_clock_that_is_set(tmp_path: Path, minutes: int, fault: str) -> None:
    """A clock that is set forward or back is reported with the third refusal, even where deliveries
    were taken in the minutes that it repeats, until it is right and a delivery is taken."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        for minute in range(-20, 1, 5):
            driver.clock.put(T + minute * MINUTE)
            assert await send(driver, f"before{minute}", at=T + minute * MINUTE) == 200
        driver.clock.put(T + minutes * MINUTE)
        for number in range(3):
            assert await told(driver, "clock") == []
            assert await send(driver, f"e{number}", at=T) == 401
        (sentence,) = await told(driver, "clock")
        assert "3 of shop), and none was accepted" in sentence
        assert fault in sentence
        driver.clock.put(T + SECOND)
        assert await send(driver, "e0", at=T) == 200
        assert await told(driver, "clock") == []


async def test_what_does_not_tell_of_a_clock(tmp_path: Path) -> None:
    """Whoever does not know the secret raises no alarm, nor does who sends old requests again while
    others are taken."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        for number in range(5):
            body = json.dumps(of_order("A", f"e{number}")).encode()
            wrong: Any = [(name, value) for name, value in signed(b"other", at=T - HOUR)]
            assert (await driver.send(body, wrong)).status_code == 401
        assert await told(driver, "clock") == []
        for number in range(5):
            assert await send(driver, f"e{number}", at=T - HOUR) == 401
        assert await told(driver, "clock") != []
        assert await send(driver, "now", at=T) == 200
        assert await told(driver, "clock") == []
