"""A shop that lost its store, or reads one of yesterday, ships nothing again."""

import sqlite3
from pathlib import Path

import httpx2

from app.access.tokens import issue_token
from app.client.asking import AsyncSender, ask, ask_async
from app.client.outcomes import UNKNOWN, News, follow
from app.client.payments import NOT_SO, tell_order
from app.client.shop_store import SqliteKeeper
from app.orders.refold import refold_until_quiet
from app.privacy.backup import after_restore
from app.privacy.replay_erasures import ErasureReplay
from reconcile.instants import HOUR, MINUTE, format_instant
from tests.api.driving import Driver, driving, of_order
from tests.client.test_crashes import Power, feed
from tests.client.world import entry
from tests.reconcile.build import T

ORDERS = [f"ORD-{number}" for number in range(1, 24)]


class Shop:
    """A shop's program with a store of its own, empty at first."""

    def __init__(self, driver: Driver, token: str) -> None:
        self.driver = driver
        self.parcels: list[str] = []
        self.store = sqlite3.connect(":memory:")
        self.keeper = SqliteKeeper(self.store, self.act)
        self.send = AsyncSender(driver.client, token, failures=(httpx2.HTTPError,))

    def act(self, store: sqlite3.Connection, news: News, ship: bool) -> None:
        if ship:
            self.parcels.append(news.order)

    async def read(self) -> list[str]:
        """Read the feed to its end; return the orders of all parcels."""
        await refold_until_quiet(self.driver.context, limit=50, progress=lambda count: None)
        await ask_async(follow(self.keeper), self.send)
        return self.parcels

    async def state(self, order: str, fulfilled_at: str) -> None:
        self.driver.clock.put(self.driver.clock.now() + MINUTE)
        stated = tell_order(order, "1500.00", "KES", fulfilled_at=fulfilled_at)
        await ask_async(stated, self.send)

    def of_yesterday(self, store: sqlite3.Connection) -> None:
        """Go on with this store in place of the present one."""
        self.parcels, self.store = [], store
        self.keeper = SqliteKeeper(store, self.act)


async def opened(driver: Driver) -> Shop:
    """Open a shop of which every order is paid, and has shipped."""
    for order in ORDERS:
        await driver.send(of_order(order, f"paid-{order}"))
    shop = Shop(driver, await issue_token(driver.context, name="shop", scopes=("read", "orders")))
    assert sorted(await shop.read()) == sorted(ORDERS)
    return shop


async def test_a_shop_with_an_empty_store_ships_only_what_was_not_shipped(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        shop = await opened(driver)
        for order in ORDERS[:-1]:
            await shop.state(order, format_instant(T))
        shop.of_yesterday(sqlite3.connect(":memory:"))
        assert await shop.read() == ORDERS[-1:]


async def test_a_shop_with_an_old_backup_ships_only_what_was_not_shipped(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        shop = await opened(driver)
        await driver.send(of_order("NEW-1", "n1"))
        await driver.send(of_order("NEW-2", "n2"))
        backup = sqlite3.connect(":memory:")
        shop.store.backup(backup)
        assert (await shop.read())[-2:] == ["NEW-1", "NEW-2"]
        await shop.state("NEW-1", format_instant(T))
        shop.of_yesterday(backup)
        assert await shop.read() == ["NEW-2"]


async def test_a_shop_without_a_store_waits_for_what_a_restored_tallyhook_does_not_know(
    tmp_path: Path,
) -> None:
    """What was stated before the backup is known; the rest ships once the shop has stated it."""
    async with driving(tmp_path, with_worker=False) as driver:
        shop = await opened(driver)
        await shop.state("ORD-1", format_instant(T))
        driver.clock.put(T + HOUR)
        again = ErasureReplay(driver.context, progress=lambda count: None)
        await after_restore(again, without=None)
        shop.of_yesterday(sqlite3.connect(":memory:"))
        assert await shop.read() == []
        await shop.state("ORD-22", NOT_SO)
        await shop.state("ORD-23", format_instant(T))
        for _ in ORDERS:
            await shop.read()
        assert shop.parcels == ["ORD-22"]


def test_what_waits_is_asked_about_in_turn_and_shipped_once() -> None:
    """More orders wait than one reading asks about."""
    shipped: list[str] = []
    keeper = SqliteKeeper(
        sqlite3.connect(":memory:"),
        lambda store, news, ship: shipped.append(news.order) if ship else None,
    )
    entries = [
        entry(number, f"A{number:02}", fulfillable=True, fulfilled_at=UNKNOWN)
        for number in range(1, 46)
    ]
    ask(follow(keeper), feed(entries, Power(10**9)))
    assert shipped == []
    stated = [{**each, "fulfilled_at": None} for each in entries]
    for _ in range(3):
        ask(follow(keeper), feed(stated, Power(10**9)))
    assert sorted(shipped) == [each["order"] for each in entries]
