"""The shop is told of every revision: signed, in order, again until it takes it, then given up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from app import bootstrap
from app.errors import ConfigurationError, NotFoundError
from app.operations.orders import notify_shop
from app.operations.orders.notify_shop import (
    GIVE_UP_AFTER,
    LONGEST_PAUSE,
    list_notifications,
    notification_id,
    pause_after,
    redeliver,
)
from app.outbound.http import outgoing_client
from app.store.folding.published import Published
from reconcile.instants import DAY, SECOND
from tests.app.web.driving import Driver, driving, event, of_order
from tests.waiting import soon

SECRET = "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE="
URL = "https://shop.example/payments/outcomes?from=tallyhook"

Serve = Callable[..., AbstractAsyncContextManager[Driver]]


class Shop:
    """The shop's endpoint. `says` is asked for each answer: a status, or an error to raise."""

    def __init__(self, *says: int | Exception) -> None:
        self.says = list(says)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Verify as an independent library does, and write down what was told."""
        said = self.says.pop(0) if self.says else 204
        self.requests.append(request)
        self.heard.append((request.headers["webhook-id"], json.loads(request.content)))
        if isinstance(said, Exception):
            raise said
        return httpx2.Response(said, content=_nothing(), headers={"location": "https://other/"})

    def told(self, order: str) -> list[str]:
        """The outcomes heard of an order, in the order of their coming."""
        said = [document["data"] for _, document in self.heard]
        return [each["outcome"] for each in said if each["order"] == order]


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A service that tells this shop."""

    def make(shop: Shop, **more: str) -> AbstractAsyncContextManager[Driver]:
        transport = httpx2.MockTransport(shop)
        monkeypatch.setattr(
            bootstrap,
            "outgoing_client",
            lambda timeout_s: outgoing_client(timeout_s=timeout_s, transport=transport),
        )
        settings = {"SHOP__URL": URL, "SHOP__SECRET": SECRET}
        return driving(tmp_path, **{**settings, **more})

    monkeypatch.setattr(bootstrap, "IDLE_S", 0.02)
    return make


async def tried(driver: Driver, times: int) -> None:
    """Wait until a notification was tried so often."""
    await soon(lambda: driver.rows("SELECT max(tries) FROM notifications") == [(times,)])


async def states(driver: Driver) -> list[tuple[str, int, str | None]]:
    """(state, tries, problem) of each notification, the oldest first."""
    found = await list_notifications(driver.desk, state=None, limit=99)
    return [(each.state, each.tries, each.problem) for each in reversed(found)]


async def test_every_revision_is_told_as_the_feed_tells_it(serve: Serve) -> None:
    """One POST for each revision, in order for each order, genuine to an independent verifier,
    with the feed's own entry; then nothing more. Any 2xx is the shop's yes."""
    shop = Shop(200, 299)
    async with serve(shop) as driver:
        await driver.send(event("e1", "pending"))
        await soon(lambda: len(shop.heard) == 1)
        await driver.send(event("e2"))
        await driver.send(of_order("ORD-2", "e3"))
        await soon(lambda: len(shop.heard) == 3)
        feed = (await driver.api("GET", "/outcomes")).json()["outcomes"]
        assert sorted((d["data"] for _, d in shop.heard), key=lambda d: d["id"]) == feed
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(3,)])
    assert shop.told("ORD-1") == ["pending", "succeeded"]
    assert len({name for name, _ in shop.heard}) == 3
    assert {(*document,) for _, document in shop.heard} == {("type", "timestamp", "data")}
    for request in shop.requests:
        assert str(request.url) == URL
        assert request.headers["content-type"] == "application/json"
        stamp = int(request.headers["webhook-timestamp"])
        mac = Webhook(SECRET).sign(
            request.headers["webhook-id"], _moment(stamp), request.content.decode()
        )
        assert mac == request.headers["webhook-signature"]


def _moment(stamp: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(stamp, UTC)


async def test_what_is_not_taken_is_sent_again_with_the_same_id(serve: Serve) -> None:
    """An error, a redirect, a broken connection and a lapse of time are tries; the bytes and the
    id stay; what comes after it of its order waits."""
    shop = Shop(500, 302, httpx2.ConnectError("planned"), httpx2.ReadTimeout("planned"))
    async with serve(shop) as driver:
        await driver.send(event("e1", "pending"))
        await soon(lambda: len(shop.heard) == 1)
        await driver.send(event("e2"))
        for tries in range(1, 5):
            await tried(driver, tries)
            assert len(shop.heard) == tries
            driver.clock.put(driver.clock.now() + DAY // 4)
        await soon(lambda: len(shop.heard) == 6)
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(2,)])
        assert await states(driver) == [("delivered", 5, None), ("delivered", 1, None)]
    assert shop.told("ORD-1") == ["pending"] * 5 + ["succeeded"]
    assert len({request.content for request in shop.requests[:5]}) == 1
    assert [name for name, _ in shop.heard[:5]] == [shop.heard[0][0]] * 5
    assert {request.url.host for request in shop.requests} == {"shop.example"}


async def test_after_three_days_it_is_given_up(serve: Serve) -> None:
    """A dead letter is counted in the figures, does not hold up its order, and is sent again when
    a person asks, with the id it had."""
    shop = Shop(500, 500)
    async with serve(shop) as driver:
        await driver.send(event("e1"))
        await tried(driver, 1)
        driver.clock.put(driver.clock.now() + GIVE_UP_AFTER)
        await tried(driver, 2)
        assert await states(driver) == [("dead", 2, "status_500")]
        figures = (await driver.client.get("/metrics")).text
        assert "tallyhook_notifications_given_up 1.0" in figures
        await driver.send(event("e2", "disputed"))
        await soon(lambda: shop.told("ORD-1")[2:] == ["disputed"])
        with pytest.raises(NotFoundError):
            await redeliver(driver.desk, [1, 77])
        assert await redeliver(driver.desk, None) == 1
        await soon(lambda: len(shop.heard) == 4)
        assert await redeliver(driver.desk, [1, 1]) == 1
        await soon(lambda: len(shop.heard) == 5)
        asked = "SELECT subject FROM audit WHERE action='notifications_redelivered' ORDER BY number"
        assert driver.rows(asked) == [("all that were given up",), ("1",)]
    assert shop.heard[4][0] == shop.heard[3][0] == shop.heard[0][0]


async def test_a_shop_that_hangs_does_not_hold_up_the_door(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the shop is waited for, deliveries are stored, folded and read."""
    release = asyncio.Event()

    async def hang(*arguments: Any, **words: Any) -> Any:
        await release.wait()
        return notify_shop.Exchange(status=204)

    monkeypatch.setattr(notify_shop, "exchange", hang)
    async with serve(Shop()) as driver:
        await driver.send(event("e1"))
        page = (await driver.api("GET", "/outcomes?wait=60")).json()
        assert len(page["outcomes"]) == 1
        for number in range(5):
            answer = await driver.send(of_order(f"X{number}", f"x{number}"))
            assert answer.status_code == 200
        assert await driver.ready()
        release.set()


async def test_the_task_that_fails_ends_the_service(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that stays turns readiness red."""

    async def fail(*arguments: Any) -> int:
        raise RuntimeError("planned")

    monkeypatch.setattr(bootstrap, "notify_due", fail)
    async with serve(Shop()) as driver:
        await driver.service.stopped()
        assert driver.service.broken == ["the task that notifies the shop failed"]
        assert not await driver.ready()


def test_pauses_grow_and_end() -> None:
    """5 s, then four times as long each time up to eight hours; the shop may ask for longer; the
    number of the notification adds a sixteenth at most."""
    pauses = [pause_after(tries, seq=0, headers={}) // SECOND for tries in range(9)]
    assert pauses == [5, 20, 80, 320, 1280, 5120, 20480, 28800, 28800]
    assert pause_after(0, seq=0, headers={"retry-after": "900"}) == 900 * SECOND
    assert pause_after(0, seq=0, headers={"retry-after": "1"}) == 5 * SECOND
    assert pause_after(0, seq=0, headers={"retry-after": "999999"}) == LONGEST_PAUSE
    for odd in ("soon", "-1", "", "9" * 99, "１"):
        assert pause_after(0, seq=0, headers={"retry-after": odd}) == 5 * SECOND
    spread = {pause_after(3, seq=seq, headers={}) for seq in range(32)}
    assert len(spread) == 16
    assert max(spread) <= 320 * SECOND * 17 // 16


def test_ids_are_of_one_revision() -> None:
    """The same revision has the same id; one that says otherwise under its number has another."""
    words = {"seq": 7, "order": "A", "at": 5, "outcome": "pending", "fulfillable": False,
             "before_outcome": None, "before_fulfillable": None}  # fmt: skip
    first = notification_id(Published(**words, because=("One.",)))
    assert first == notification_id(Published(**words, because=("One.",)))
    assert first != notification_id(Published(**words, because=("Other.",)))
    # A shop knows by the id what it has seen, before an upgrade of ours and after.
    assert first == "ntf_7_9bba77a6af0a68aa"


async def test_a_secret_that_cannot_sign_is_refused_at_the_start(serve: Serve) -> None:
    """The secret's form is checked before anything is received, and its variable is named."""
    with pytest.raises(ConfigurationError, match="TALLYHOOK_SHOP__SECRET"):
        async with serve(Shop(), SHOP__SECRET="whsec_dG9vLXNob3J0LWZvci11cw=="):
            pass
