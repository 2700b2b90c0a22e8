"""Start and end of alarms: within seconds, without a look every second."""

import asyncio
from pathlib import Path

import pytest

from app.monitoring.watchdog import AGAIN_S, SHOP_PATIENCE, Watchdog, Watched
from app.receiving import reader
from app.receiving.reader import read_some
from reconcile.instants import SECOND, TICK
from tests.api.driving import driving, event, reader_of
from tests.orders.test_notify_shop import Away, Serve, is_away, of_orders, serve, tried
from tests.receiving.test_reader import nothing
from tests.reconcile.build import T
from tests.waiting import soon

__all__ = ["serve"]


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the watchdog look only when something asks for it."""
    monkeypatch.setattr("app.wiring.service.REST_S", 10.0**6)


async def test_an_idle_reader_is_an_alarm_at_its_limit_until_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver knows the oldest unread delivery without asking the database."""
    monkeypatch.setattr(reader, "read_some", nothing)
    monkeypatch.setattr("app.monitoring.watchdog.AGAIN_S", 0.0)
    async with driving(tmp_path, looking=True, INBOX_ALARM_S="10") as driver:
        service = driver.service
        await driver.send(event("e1"))
        driver.clock.put(T + 10 * SECOND - TICK)
        assert not service.watchdog.reader_changed(service.inbox.writer.oldest)
        driver.clock.put(T + 10 * SECOND)
        await soon(lambda: set(service.watchdog.alarms) == {"reader"})
        await read_some(reader_of(service)._reading)
        await soon(lambda: service.watchdog.alarms == {})
        assert "reader" not in (await driver.client.get("/readyz")).json()


async def test_what_was_unread_at_the_start_counts_from_its_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "read_some", nothing)
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        came = driver.clock.now()
    async with driving(tmp_path, at=came + 60 * SECOND) as again:
        assert again.service.inbox.writer.oldest == came


async def test_a_state_that_lasts_is_looked_at_no_more_often_than_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the database disagrees with what the receiver knows."""
    async with driving(tmp_path, INBOX_ALARM_S="10") as driver:
        dog = Watchdog(Watched(driver.context))
        late = driver.clock.now() - 10 * SECOND
        asked = [dog.reader_changed(late) for _ in range(5)]
        assert asked == [True, False, False, False, False]
        at = asyncio.get_running_loop().time() + AGAIN_S
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: at)
        assert dog.reader_changed(late)


async def test_a_shop_that_is_away_is_an_alarm_at_the_end_of_the_patience_with_it(
    serve: Serve,
) -> None:
    """The task that notifies says when it goes and comes; the look after that knows when it is an
    alarm."""
    shop = Away()
    async with serve(shop, looking=True) as driver:
        dog = driver.service.watchdog
        await of_orders(driver, "A")
        await tried(driver, 1)
        await of_orders(driver, "B")
        await soon(lambda: is_away(driver))
        await soon(lambda: dog.due_in_s() < 100)
        assert dog.due_in_s() == SHOP_PATIENCE / SECOND
        assert dog.alarms == {}
        driver.clock.put(driver.clock.now() + SHOP_PATIENCE)
        assert dog.due_in_s() == AGAIN_S
        await dog.look()
        assert set(dog.alarms) == {"shop_away"}
        shop.is_away = False
        driver.clock.put(driver.clock.now() + 120 * SECOND)
        await soon(lambda: dog.alarms == {})
