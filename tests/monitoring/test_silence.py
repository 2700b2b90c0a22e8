"""Alarm of silence: true silence, and what only looks like it."""

from pathlib import Path

import pytest

from app.monitoring.arrivals import DAYS, Arrivals, silence, usual_of
from app.monitoring.watchdog import Watchdog
from app.orders.refold import refold_until_quiet
from app.receiving import caught_up, reader
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Instant, format_instant
from tests.api.driving import Driver, driving, of_order
from tests.reconcile.build import T

BUSY = [10] * DAYS


def heard(
    *,
    last: Instant | None = T - HOUR,
    usual: list[int] | None = None,
    opened: list[int] | None = None,
) -> Arrivals:
    """Build arrivals up to T; sessions were opened so many minutes ago."""
    sessions = [T - minutes * MINUTE for minutes in opened or []]
    return Arrivals(now=T, last=last, usual=BUSY if usual is None else usual, sessions=sessions)


@pytest.mark.parametrize(
    ("usual", "alarm"),
    [
        (BUSY, True),
        ([10, 0, 10, 0, 10, 0, 10], True),  # on four of seven days, this weekday among them
        ([10, 10, 10, 10, 10, 10, 9], False),  # the same day a week ago was quiet
        ([0, 0, 0, 0, 10, 10, 10], False),  # most days are quiet
        ([9] * 7, False),
        ([0] * 7, False),
        ([10] * 6, False),  # not known for a week
    ],
)
def test_what_usually_comes(usual: list[int], alarm: bool) -> None:
    found = silence(heard(usual=usual))
    assert (found is not None) is alarm
    if found is not None:
        assert found.reason == "usual_events_missing"
        assert format_instant(T - HOUR) in found.sentence


@pytest.mark.parametrize(
    ("opened", "alarm"),
    [
        ([15, 2, 1], True),
        ([14, 13, 12], False),
        ([90, 80], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("last", [None, T - 2 * HOUR])
def test_sessions_of_which_nothing_is_heard(
    last: Instant | None, opened: list[int], alarm: bool
) -> None:
    found = silence(heard(last=last, usual=[0] * DAYS, opened=opened))
    assert (found is not None) is alarm
    assert found is None or found.reason == "sessions_without_events"


def test_nothing_ever_is_no_silence() -> None:
    """A new installation."""
    assert silence(heard(last=None, usual=[0] * DAYS)) is None


def test_the_usual() -> None:
    assert usual_of([1, 2, 3, 4, 5, 6, 7]) == 4
    assert usual_of([5, 5, 5, 5, 5, 5, 1]) == 1
    assert usual_of([]) == 0


async def fill(driver: Driver, days: int) -> None:
    """Send twelve deliveries in the hour before T's time of day, on each day before and at T."""
    for day in range(days, -1, -1):
        for number in range(12):
            driver.clock.put(T - day * DAY + number * 5 * MINUTE)
            await driver.send(of_order(f"O{day}-{number}", f"e{day}-{number}"))


async def test_the_watchdog(tmp_path: Path) -> None:
    """An hour without deliveries is an alarm until the next delivery."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        dog: Watchdog = driver.service.watchdog
        await fill(driver, 7)
        last = driver.clock.now()
        for after, alarm in (
            (MINUTE, False),
            (23 * HOUR, False),
            (24 * HOUR, True),
            (9 * DAY, True),
        ):
            driver.clock.put(last + after)
            await dog.look()
            assert ("silence" in dog.alarms) is alarm, after
        ready = await driver.client.get("/readyz")
        assert ready.status_code == 200
        assert "No verified event has come" in ready.json()["silence"][0]
        assert "tallyhook_silence_alarm 1.0" in (await driver.client.get("/metrics")).text
        feed = (await driver.api("GET", "/outcomes")).json()
        assert feed["alarms"] == ready.json()["silence"]
        await driver.send(of_order("O-9", "e-9"))
        driver.clock.put(driver.clock.now() + SECOND)
        await dog.look()
        assert not dog.alarms
        assert "silence" not in (await driver.client.get("/readyz")).json()
        assert "alarms" not in (await driver.api("GET", "/outcomes")).json()
        assert "tallyhook_silence_alarm 0.0" in (await driver.client.get("/metrics")).text


async def test_what_is_accepted_and_not_read_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(reading: object, **_: object) -> int:
        return 0

    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await fill(driver, 7)
        monkeypatch.setattr(reader, "read_some", nothing)
        monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.05)
        driver.clock.put(driver.clock.now() + DAY)
        await driver.send(of_order("O-9", "e-9"))
        driver.clock.put(driver.clock.now() + HOUR)
        await driver.service.watchdog.look()
        assert set(driver.service.watchdog.alarms) == {"reader"}


async def test_orders_that_shop_and_money_disagree_on(tmp_path: Path) -> None:
    async with driving(
        tmp_path, with_worker=False, FULFILLMENT_WINDOW_S="60", looking=True
    ) as driver:
        await driver.send(of_order("PAID", "e1"))
        told = {"amount": "1500.00", "currency": "KES"}
        await driver.api("PUT", "/orders/PAID", json=told)
        told["fulfilled_at"] = format_instant(T)
        await driver.api("PUT", "/orders/SHIPPED", json=told)
        driver.clock.put(T + HOUR)
        await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
        await driver.service.watchdog.look()
        ready = (await driver.client.get("/readyz")).json()
        disagree = {"paid_but_not_fulfilled": 1, "fulfilled_but_not_paid": 1}
        assert ready["findings"] == {**disagree, "unread_money_event": 0}
        text = (await driver.client.get("/metrics")).text
        assert "tallyhook_orders_fulfilled_but_not_paid 1.0" in text
