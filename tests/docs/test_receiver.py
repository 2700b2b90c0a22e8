"""The documented receiver of notifications ships exactly once, whatever comes how often."""

import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.access.tokens import issue_token
from app.core.clock import SystemClock
from app.core.ids import new_token
from app.orders.holds import release_all
from app.orders.notify_shop import (
    Notifier,
    Shop,
    notification_body,
    notification_id,
    notify_due,
)
from app.orders.published_store import Published
from app.orders.refold import refold_until_quiet
from app.orders.shop_facts_store import ShopFacts
from app.privacy.backup import after_restore, back_up, restore
from app.privacy.replay_erasures import ErasureReplay, Replayed
from app.providers.profile import load_profile
from app.providers.source import Source
from app.receiving.inbox import Inbox
from reconcile.instants import MINUTE, SECOND, format_instant
from tests.api.driving import Driver, driving, environ, of_order
from tests.contexts import settings_of
from tests.reconcile.build import T

DOCUMENT = Path(__file__).resolve().parents[2] / "app" / "providers" / "CALLING.md"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0"
SHOP = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET], strict=False)

MODULES = ("asking", "outcomes", "payments", "shop_store")
"""Modules of the client that the receiver has installed."""

Send = Callable[..., Any]


def revision(number: int, order: str, *, fulfillable: bool) -> Published:
    """Build a revision of an order."""
    return Published(
        seq=number, order=order, at=T, outcome="succeeded" if fulfillable else "pending",
        fulfillable=fulfillable, before_outcome=None, before_fulfillable=None, because=("So.",),
    )  # fmt: skip


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Run the receiver as it stands in the text, in an empty folder."""
    for name in ("tallyhook_client", *(f"tallyhook_client.{each}" for each in MODULES)):
        own = name.replace("tallyhook_client", "app.client")
        monkeypatch.setitem(sys.modules, name, import_module(own))
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TALLYHOOK_SHOP__SECRET", SECRET)
    room: dict[str, Any] = {}
    exec(compile(code, str(DOCUMENT), "exec"), room)
    yield room
    room["shop"].close()


@asynccontextmanager
async def listening(receiver: dict[str, Any]) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client of the receiver."""
    transport = httpx2.ASGITransport(app=receiver["app"])
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


@pytest.fixture
async def send(receiver: dict[str, Any]) -> Any:
    """Yield a function that posts a signed revision to the receiver."""
    async with listening(receiver) as client:

        async def send(published: Published, *, body: bytes | None = None) -> int:
            genuine = notification_body(published, ShopFacts())
            headers = SHOP.sign(
                genuine, event_id=notification_id(published), now=SystemClock().now()
            )
            content = genuine if body is None else body
            answer = await client.post("/payments/outcomes", content=content, headers=headers)
            return answer.status_code

        yield send


def parcels() -> list[str]:
    """Return the orders that the shop has packed."""
    with closing(sqlite3.connect("shop.db")) as shop:
        return [row[0] for row in shop.execute("SELECT ref FROM parcels")]


async def test_it_ships_exactly_once(send: Send) -> None:
    """Repeats, and an older notification that is redelivered late, pack nothing more."""
    pending, paid = revision(1, "A", fulfillable=False), revision(2, "A", fulfillable=True)
    refunded, again = revision(3, "A", fulfillable=False), revision(4, "A", fulfillable=True)
    assert await send(pending) == 204
    assert parcels() == []
    for each in (paid, paid, pending, paid, refunded, paid, again):
        assert await send(each) == 204
    assert parcels() == ["A"]


async def test_what_is_late_does_not_ship(send: Send) -> None:
    assert await send(revision(9, "B", fulfillable=False)) == 204
    assert await send(revision(8, "B", fulfillable=True)) == 204
    assert parcels() == []


async def test_what_is_not_genuine_is_refused(send: Send) -> None:
    forged = notification_body(revision(1, "C", fulfillable=True), ShopFacts())
    assert await send(revision(1, "C", fulfillable=False), body=forged) == 401
    assert parcels() == []


# --- across a restore ----------------------------------------------------------------------------

Hear = Callable[[Driver, dict[str, Any]], Awaitable[None]]


async def by_notifications(driver: Driver, receiver: dict[str, Any]) -> None:
    """Post everything that waits to the receiver."""
    async with listening(receiver) as client:
        context = replace(driver.context, clock=SystemClock())
        shop = Shop(url="http://shop/payments/outcomes", signer=SHOP)
        while await notify_due(Notifier(context=context, shop=shop, client=client)):
            pass


async def by_the_feed(driver: Driver, receiver: dict[str, Any]) -> None:
    """Let the receiver read on to the end of the feed."""
    if not driver.token:
        driver.token = await issue_token(driver.context, name=f"shop-{new_token('')[:8]}")
    await receiver["catch_up"](driver.client, driver.token)


async def happen(driver: Driver, hear: Hear, receiver: dict[str, Any], *bodies: Any) -> None:
    """Deliver one after another, and let the receiver hear of each."""
    for body in bodies:
        assert (await driver.send(body)).status_code == 200
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
        await hear(driver, receiver)


def revisions() -> dict[str, int]:
    """Return the last number that the shop has of each order."""
    with closing(sqlite3.connect("shop.db")) as shop:
        return dict(shop.execute("SELECT ref, revision FROM tallyhook_told").fetchall())


async def nobody(inbox: Inbox) -> Replayed:
    """Erase nobody after the restore."""
    return Replayed()


@pytest.mark.parametrize("hear", [by_notifications, by_the_feed])
async def test_it_ships_exactly_once_across_a_restore(
    tmp_path: Path, receiver: dict[str, Any], hear: Hear
) -> None:
    """Later numbers from before the restore hide no success, and nothing is packed twice. What may
    have been shipped meanwhile waits until the shop has stated that it was not."""
    url, file = environ(tmp_path)["TALLYHOOK_DATABASE_URL"], tmp_path / "one.backup"
    shop: dict[str, Any] = {"SHOP__URL": "http://127.0.0.1:9/", "SHOP__SECRET": SECRET}
    words: dict[str, Any] = {"progress": lambda done, total: None}
    async with driving(tmp_path, with_worker=False, **shop) as driver:
        await happen(driver, hear, receiver, of_order("A", "a"), of_order("B", "b0", "pending"))
        await back_up(settings_of(url), file, replace=False, **words)
        later = [of_order(n, f"{n}-{c}", c) for n, c in (("C", "pending"), ("B", "declined"))]
        await happen(driver, hear, receiver, *later, of_order("D", "d"))
    assert revisions() == {"A": 1, "B": 4, "C": 3, "D": 5}
    assert parcels() == ["A", "D"]
    clock = SystemClock()
    restored = await restore(
        settings_of(url),
        file,
        replace=True,
        clock=clock,
        erase_again=nobody,
        **words,
        accepts="a test",
    )
    first = restored.followed.first
    assert first > clock.now() // SECOND * 2**20 - 60 * 2**20
    async with driving(tmp_path, with_worker=False, at=T + MINUTE, **shop) as driver:
        await hear(driver, receiver)  # what waited when the backup was made, if anything did
        again = [of_order("B", "b1"), of_order("D", "d"), of_order("C", "c"), of_order("A", "a")]
        await happen(driver, hear, receiver, *again)
        assert sorted(parcels()) == ["A", "D"]
        await by_the_feed(driver, receiver)
        assert sorted(parcels()) == ["A", "D"]
        stated = {"amount": "1500.00", "currency": "KES", "fulfilled_at": None}
        driver.clock.put(clock.now() + MINUTE)
        for order in ("B", "C"):
            assert (await driver.api("PUT", f"/orders/{order}", json=stated)).status_code == 200
        await by_the_feed(driver, receiver)
        assert sorted(parcels()) == ["A", "D"]  # the money of B and C may have gone back meanwhile
        await release_all(driver.context, reason="gap_accepted")
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
        await by_the_feed(driver, receiver)
        numbers = [row[0] for row in driver.rows("SELECT seq FROM revisions ORDER BY seq")]
    assert numbers[:3] == [1, 2, first]  # none of what comes after it has a number of before
    assert numbers[2:] == list(range(first, first + len(numbers) - 2))
    assert min(revisions().values()) > first  # all were held, and released
    assert sorted(parcels()) == ["A", "B", "C", "D"]


async def test_a_reader_beyond_the_head_reads_on(tmp_path: Path, receiver: dict[str, Any]) -> None:
    """After a copy was restored by hand, the answer says from where to read on."""
    async with driving(tmp_path, with_worker=False) as driver:
        await happen(driver, by_the_feed, receiver, of_order("A", "a"))
        with receiver["shop"] as shop:
            shop.execute("UPDATE tallyhook_feed SET place = 7")
        answer = await driver.api("GET", "/outcomes?after=7&wait=30")
        assert answer.status_code == 410
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["read_from"] == 0
        await happen(driver, by_the_feed, receiver, of_order("B", "b"))
        assert parcels() == ["A", "B"]
        again = ErasureReplay(driver.context, progress=lambda count: None)
        done, _ = await after_restore(again, without=None)
        beyond = await driver.api("GET", f"/outcomes?after={done.first}")
        assert beyond.json()["read_from"] == done.first - 1
        assert (await driver.api("GET", "/outcomes?after=2")).json()["cursor"] == 2
        new = of_order("C", "c") | {"occurred_at": format_instant(T + MINUTE)}
        await happen(driver, by_the_feed, receiver, new)
        assert parcels() == ["A", "B", "C"]
