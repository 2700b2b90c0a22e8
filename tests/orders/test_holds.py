"""Holds after an upgrade, over HTTP: shop, feed and reads agree that a held order waits."""

from pathlib import Path

import pytest

from app.orders.holds import release
from reconcile.instants import SECOND
from tests.api.driving import Driver, event, of_order
from tests.database.contract_holds import rules_of_before
from tests.orders.test_notify_shop import Serve, Shop, serve
from tests.reconcile.build import T
from tests.waiting import soon

__all__ = ["serve"]


def fulfillable(shop: Shop, order: str) -> list[tuple[str, bool]]:
    """List what the shop was notified of an order."""
    said = [document["data"] for _, document in shop.heard]
    return [(each["outcome"], each["fulfillable"]) for each in said if each["order"] == order]


async def in_feed(driver: Driver, order: str) -> list[tuple[str, bool]]:
    """List what the feed says of an order."""
    page = (await driver.api("GET", "/outcomes")).json()["outcomes"]
    return [(each["outcome"], each["fulfillable"]) for each in page if each["order"] == order]


OF_BEFORE, AS_HELD, RELEASED = ("unresolved", False), ("succeeded", False), ("succeeded", True)


@pytest.mark.parametrize("restarts", [0, 2])
async def test_the_shop_is_notified_of_nothing_to_ship_before_a_release(
    serve: Serve, tmp_path: Path, restarts: int
) -> None:
    """Whatever it reads: notification, feed, order, list, figures. News are notified at once; after
    the release the shop hears of the order once, as fulfillable."""
    shop = Shop()
    with rules_of_before():
        async with serve(shop) as driver:
            await driver.send(event("e1"))
            await soon(lambda: fulfillable(shop, "ORD-1") == [OF_BEFORE])
    for _ in range(restarts):
        async with serve(shop):
            await soon(lambda: fulfillable(shop, "ORD-1") == [OF_BEFORE, AS_HELD])
    async with serve(shop) as driver:
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
        assert not ledger["fulfillable"]
        assert "held_back" in {each["code"] for each in ledger["findings"]}
        await driver.send(of_order("O-2", "e2"))
        await soon(lambda: fulfillable(shop, "O-2") == [RELEASED])
        await soon(lambda: fulfillable(shop, "ORD-1") == [OF_BEFORE, AS_HELD])
        assert await in_feed(driver, "ORD-1") == [OF_BEFORE, AS_HELD]
        page = (await driver.api("GET", "/orders?finding=held_back")).json()["orders"]
        assert [(each["order"], each["fulfillable"]) for each in page] == [("ORD-1", False)]
        await driver.service.watchdog.look()
        assert "1 order is held" in (await driver.client.get("/readyz")).json()["held"][0]
        assert "tallyhook_held_alarm 1.0" in (await driver.client.get("/metrics")).text
        driver.clock.put(T + SECOND)
        await release(driver.context, ["ORD-1"], reason="rules_changed")
        await soon(lambda: fulfillable(shop, "ORD-1") == [OF_BEFORE, AS_HELD, RELEASED])
        assert (await driver.api("GET", "/orders/ORD-1")).json()["fulfillable"]
        await driver.service.watchdog.look()
        assert "held" not in (await driver.client.get("/readyz")).json()
    async with serve(shop) as driver:
        said = driver.rows("SELECT outcome, fulfillable FROM revisions WHERE order_key = 'ORD-1'")
        assert [(outcome, bool(may)) for outcome, may in said] == [OF_BEFORE, AS_HELD, RELEASED]


async def test_a_receiver_without_a_worker_reads_it_as_held(serve: Serve, tmp_path: Path) -> None:
    """The new receiver is up, and no new worker yet."""
    shop = Shop()
    with rules_of_before():
        async with serve(shop) as driver:
            await driver.send(event("e1"))
            await soon(lambda: fulfillable(shop, "ORD-1") == [OF_BEFORE])
    async with serve(shop, with_worker=False) as driver:
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
        assert (ledger["outcome"], ledger["fulfillable"]) == AS_HELD
        page = (await driver.api("GET", "/orders")).json()["orders"]
        assert [each["fulfillable"] for each in page] == [False]
        assert await in_feed(driver, "ORD-1") == [OF_BEFORE]
