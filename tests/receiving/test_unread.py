"""Genuine deliveries that nobody could read, and were acknowledged all the same."""

from pathlib import Path

from app.orders.reindex import reindex
from app.receiving.unread import ENOUGH, WINDOW, unread
from reconcile.instants import MINUTE
from tests.api.driving import driving, of_order
from tests.contexts import with_sources
from tests.database.builders import quiet
from tests.monitoring.alarms import told
from tests.orders.test_reindex import receive_with, source


def test_none_is_no_alarm() -> None:
    """Where everything could be read, nothing is said."""
    assert unread({}) is None


def test_what_it_says() -> None:
    """How many, of which sources, and what to do about them."""
    alarm = unread({"till": 1, "shop": 2})
    assert alarm is not None
    assert alarm.sentence.startswith(
        "In the last 7 days 3 genuine deliveries could not be read (2 of shop, 1 of till), "
    )
    for command in ("`tallyhook deliveries list --verdict unreadable`", "`tallyhook reindex`"):
        assert command in alarm.sentence


def test_where_there_are_more_than_are_counted() -> None:
    """A count that met its bound is not reported as the whole."""
    assert "1,000 genuine deliveries or more" in str(unread({"shop": ENOUGH}))
    assert "999 genuine deliveries could" in str(unread({"shop": ENOUGH - 1}))


async def test_an_alarm_for_a_week(tmp_path: Path) -> None:
    """A body that was acknowledged and could not be read is reported until a week has passed."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(of_order("A", "e1"))
        assert not await told(driver, "unreadable")
        answer = await driver.send(b'{"id": ')
        assert (answer.status_code, answer.json()["verdict"]) == (200, "unreadable")
        assert await told(driver, "unreadable")
        sent = driver.clock.now()
        driver.clock.put(sent + WINDOW - MINUTE)
        assert await told(driver, "unreadable")
        driver.clock.put(sent + WINDOW + MINUTE)
        assert not await told(driver, "unreadable")


async def test_an_alarm_until_they_are_read(tmp_path: Path) -> None:
    """Where the profile was wrong, its correction and a reindex end the alarm."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        right = driver.service.sources["shop"]
        receive_with(driver, source(tmp_path, id='"json:number"'))
        await driver.send(of_order("A", "e1"))
        await driver.send(of_order("B", "e2"))
        assert await told(driver, "unreadable")
        assert "2 genuine deliveries" in driver.service.watchdog.alarms["unreadable"].sentence
        await reindex(with_sources(driver.context, {"shop": right}), progress=quiet)
        assert not await told(driver, "unreadable")
        assert driver.rows("SELECT DISTINCT verdict FROM deliveries") == [("stored",)]
