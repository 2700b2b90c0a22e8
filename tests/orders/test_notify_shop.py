"""The shop is notified of every revision: signed, in order, again until taken, then given up."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from app.core.errors import ConfigurationError, NotFoundError
from app.core.http import Exchange, outgoing_client
from app.orders import notify_shop
from app.orders.notification_store import Notification
from app.orders.notify_shop import (
    GIVE_UP_AFTER,
    LONGEST_ASKED_PAUSE,
    LONGEST_PAUSE,
    judge,
    list_notifications,
    notification_id,
    notify_due,
    pause_after,
    probe_pause,
    redeliver,
)
from app.orders.published_store import Published
from app.wiring import service as wiring
from app.wiring import worker
from reconcile.instants import DAY, SECOND, TICK, format_instant
from tests.api.driving import Driver, driving, event, of_order
from tests.monitoring.alarms import told as alarm_told
from tests.reconcile.build import T
from tests.rows import for_each
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
        """Verify as an independent library does, and write down what it was notified of."""
        said = self.says.pop(0) if self.says else 204
        self.requests.append(request)
        self.heard.append((request.headers["webhook-id"], json.loads(request.content)))
        if isinstance(said, Exception):
            raise said
        return httpx2.Response(said, content=_nothing(), headers={"location": "https://other/"})

    def outcomes(self, order: str) -> list[str]:
        """List the outcomes heard of an order, in order of arrival."""
        said = [document["data"] for _, document in self.heard]
        return [each["outcome"] for each in said if each["order"] == order]


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Run a service that notifies this shop."""

    def make(shop: Shop, **more: Any) -> AbstractAsyncContextManager[Driver]:
        transport = httpx2.MockTransport(shop)
        monkeypatch.setattr(
            wiring,
            "outgoing_client",
            lambda timeout_s: outgoing_client(timeout_s=timeout_s, transport=transport),
        )
        settings: dict[str, Any] = {"SHOP__URL": URL, "SHOP__SECRET": SECRET}
        return driving(tmp_path, **{**settings, **more})

    monkeypatch.setattr(worker, "IDLE_S", 0.02)
    return make


async def tried(driver: Driver, times: int) -> None:
    """Wait until a notification was tried so often."""
    await soon(lambda: driver.rows("SELECT max(tries) FROM notifications") == [(times,)])


async def states(driver: Driver) -> list[tuple[str, int, str | None]]:
    """Return (state, tries, problem) of each notification, the oldest first."""
    found = await list_notifications(driver.context, state=None, limit=99)
    return [(each.state, each.tries, each.problem) for each in reversed(found)]


async def test_every_revision_is_notified_as_the_feed_gives_it(serve: Serve) -> None:
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
    assert shop.outcomes("ORD-1") == ["pending", "succeeded"]
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


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the result of each round of the task that notifies."""
    returned: list[int] = []

    async def noted(notifier: notify_shop.Notifier) -> int:
        returned.append(await notify_due(notifier))
        return returned[-1]

    monkeypatch.setattr(worker, "notify_due", noted)
    return returned


async def test_a_round_returns_what_it_sent(serve: Serve, rounds: list[int]) -> None:
    """One, several at once, taken or not; and nothing while what waits is not due yet."""
    shop = Shop(500)
    async with serve(shop) as driver:
        await of_orders(driver, "O1")
        await soon(lambda: sum(rounds) == 1)
        await of_orders(driver, "O2", "O3")
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(2,)])
        await quiet(driver)
        assert sum(rounds) == len(shop.heard) == 3
        driver.clock.put(driver.clock.now() + DAY)
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(3,)])
        await quiet(driver)
        assert sum(rounds) == len(shop.heard) == 4


async def test_while_nothing_is_due_the_task_rests(
    serve: Serve, rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look, and no other before its rest is over, so that it does not keep a core busy."""
    monkeypatch.setattr(worker, "IDLE_S", 3600.0)
    async with serve(Shop()) as driver:
        await soon(lambda: bool(rounds))
        await quiet(driver)
        assert rounds == [0]


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
    assert shop.outcomes("ORD-1") == ["pending"] * 5 + ["succeeded"]
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
        await soon(lambda: shop.outcomes("ORD-1")[2:] == ["disputed"])
        with pytest.raises(NotFoundError):
            await redeliver(driver.context, [1, 77])
        assert await redeliver(driver.context, None) == 1
        await soon(lambda: len(shop.heard) == 4)
        assert await redeliver(driver.context, [1, 1]) == 1
        await soon(lambda: len(shop.heard) == 5)
        asked = "SELECT subject FROM audit WHERE action='notifications_redelivered' ORDER BY number"
        assert driver.rows(asked) == [("all that were not accepted",), ("1",)]
    assert shop.heard[4][0] == shop.heard[3][0] == shop.heard[0][0]


class Away(Shop):
    """A shop that takes nothing while it is away, whatever it is sent."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.is_away, self.refused = True, refused

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Take it down as heard, and answer."""
        order = json.loads(request.content)["data"]["order"]
        self.says = [503 if self.is_away or order in self.refused else 204]
        return super().__call__(request)


async def of_orders(driver: Driver, *orders: str) -> None:
    """Pay each order and publish it before the next: the shop hears of them in this order."""
    for order in orders:
        await driver.send(of_order(order, f"evt-{order}"))
        asked = f"SELECT count(*) FROM revisions WHERE order_key='{order}'"
        await soon(lambda asked=asked: driver.rows(asked) == [(1,)])


async def quiet(driver: Driver) -> None:
    """Let the task that notifies go round some times."""
    await asyncio.sleep(0.2)


async def test_a_shop_that_is_away_hears_of_one_at_a_time_and_then_of_all(serve: Serve) -> None:
    """While it takes nothing, one notification is tried in 5 s, 20 s and then every minute, each
    time the newest of those that were never tried. The first that is taken sends all that wait, at
    once and in order for each order, though much of the clock's time is left to their next try."""
    shop = Away()
    orders = [f"O{number:02}" for number in range(20)]
    async with serve(shop) as driver:
        await of_orders(driver, orders[0])
        await tried(driver, 1)
        await of_orders(driver, orders[1])
        await soon(lambda: is_away(driver))
        await of_orders(driver, *orders[2:])
        await driver.send(of_order("O00", "evt-more", "disputed"))
        await quiet(driver)
        assert len(shop.heard) == 2
        for number, pause in enumerate((20, 60, 60, 60)):
            driver.clock.put(driver.clock.now() + pause * SECOND - TICK)
            await quiet(driver)
            assert len(shop.heard) == 2 + number
            driver.clock.put(driver.clock.now() + TICK)
            await soon(lambda number=number: len(shop.heard) == 3 + number)
            await soon(lambda number=number: _failures(driver) == [(3 + number,)])
        tried_ones = {document["data"]["order"] for _, document in shop.heard}
        assert tried_ones == {*orders[:2], *orders[-4:]}
        shop.is_away = False
        driver.clock.put(driver.clock.now() + 60 * SECOND)
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(21,)])
        assert _failures(driver) == []
        assert len(shop.heard) == 6 + 21
        assert shop.outcomes("O00")[-2:] == ["succeeded", "disputed"]


def is_away(driver: Driver) -> bool:
    return driver.rows("SELECT 1 FROM destinations_away WHERE only_seq IS NULL") != []


def _failures(driver: Driver) -> list[tuple[Any, ...]]:
    return driver.rows("SELECT failures FROM destinations_away")


async def test_a_start_finds_the_shop_as_it_was(serve: Serve) -> None:
    """A service that is started again while the shop is away goes on with its probes; another
    address has a health of its own."""
    shop = Away()
    async with serve(shop) as driver:
        await of_orders(driver, *(f"O{number}" for number in range(9)))
        await soon(lambda: is_away(driver))
        await quiet(driver)
        before = len(shop.heard)
    async with serve(shop) as driver:
        await quiet(driver)
        assert len(shop.heard) == before
        driver.clock.put(driver.clock.now() + 20 * SECOND)
        await soon(lambda: len(shop.heard) == before + 1)
        await quiet(driver)
        assert len(shop.heard) == before + 1
    shop.is_away = False
    async with serve(shop, SHOP__URL="https://other.example/") as driver:
        driver.clock.put(driver.clock.now() + 120 * SECOND)
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(9,)])


async def test_one_that_is_refused_holds_up_no_other(serve: Serve) -> None:
    """A shop that takes others is not away: what it refuses is tried by its own pauses, and where
    it is all that there was to send, what comes is tried before it is tried again."""
    shop = Away("BAD")
    shop.is_away = False
    async with serve(shop) as driver:
        await of_orders(driver, "BAD")
        await soon(lambda: _failures(driver) == [(1,)])
        await of_orders(driver, "A", "B", "C")
        driver.clock.put(driver.clock.now() + 5 * SECOND)
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(3,)])
        await soon(lambda: driver.rows("SELECT max(tries) FROM notifications") == [(2,)])
        assert {shop.heard[1][1]["data"]["order"]} <= {"A", "B", "C"}


async def test_many_that_are_refused_are_a_line_a_minute(serve: Serve, log: io.StringIO) -> None:
    """The shop takes others, so that none of them is the shop's own state."""
    bad = [f"BAD{number}" for number in range(9)]
    shop = Away(*bad)
    shop.is_away = False
    async with serve(shop) as driver:
        for number, order in enumerate(bad):
            await of_orders(driver, f"GOOD{number}")
            await of_orders(driver, order)
        await soon(lambda: len(shop.heard) >= 18)
        await quiet(driver)
    lines = [json.loads(each) for each in log.getvalue().splitlines()]
    failed = [each for each in lines if each["event"] == "a notification was not delivered"]
    assert [(each["reason"], each["count"]) for each in failed] == [("status_503", 1)]


async def test_one_that_is_refused_again_and_again_is_stuck_and_the_shop_is_not_away(
    serve: Serve,
) -> None:
    """It has an alarm and a state of its own, and is tried with growing pauses while others are
    taken at once."""
    shop = Away("BAD")
    shop.is_away = False
    async with serve(shop) as driver:
        since = driver.clock.now()
        await of_orders(driver, "BAD")
        await tried(driver, 1)
        for number, pause in enumerate((5, 20, 80)):
            await of_orders(driver, f"O{number}")
            count = "SELECT count(delivered_at) FROM notifications"
            await soon(lambda n=number, count=count: driver.rows(count) == [(n + 1,)])
            heard = len(shop.heard)
            driver.clock.put(driver.clock.now() + pause * SECOND * 17 // 16)
            await tried(driver, 2 + number)
            assert len(shop.heard) == heard + 1
        assert not is_away(driver)
        assert [each[0] for each in await states(driver)] == ["stuck", *["delivered"] * 3]
        (stuck,) = await list_notifications(driver.context, state="stuck", limit=9)
        assert (stuck.order, stuck.problem) == ("BAD", "status_503")
        (sentence,) = await alarm_told(driver, "notification_stuck")
        for part in ("order BAD", format_instant(since), "status_503", "--state stuck"):
            assert part in sentence
        shop.refused = ()
        driver.clock.put(driver.clock.now() + DAY)
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(4,)])
        assert await alarm_told(driver, "notification_stuck") == []


async def test_many_that_are_refused_hold_up_no_new_one(serve: Serve) -> None:
    """A shop that refuses all that there was looks away; what is new is tried next, and taken,
    though others have waited for longer, tried or not."""
    shop = Away("A", "B", "C", "D")
    shop.is_away = False
    async with serve(shop) as driver:
        await of_orders(driver, "A")
        await tried(driver, 1)
        await of_orders(driver, "B", "C", "D")
        await soon(lambda: is_away(driver))
        await quiet(driver)
        before = len(shop.heard)
        await of_orders(driver, "NEW")
        driver.clock.put(driver.clock.now() + 20 * SECOND)
        await soon(lambda: len(shop.heard) > before)
        assert shop.heard[before][1]["data"]["order"] == "NEW"


async def test_a_shop_that_is_away_is_reported(serve: Serve) -> None:
    """Readiness, which stays 200, the figures and the feed say since when, what fails and what to
    do, once a restart would be over; and no more when it is back."""
    shop = Away()
    async with serve(shop) as driver:
        since = driver.clock.now()
        await of_orders(driver, "A")
        await tried(driver, 1)
        await of_orders(driver, "B")
        await soon(lambda: is_away(driver))
        assert await alarm_told(driver, "shop_away") == []
        driver.clock.put(since + 30 * SECOND)
        await soon(lambda: _failures(driver) == [(3,)])
        (sentence,) = await alarm_told(driver, "shop_away")
        for part in (format_instant(since), "3 tries", "status_503", "2 waiting", "redeliver"):
            assert part in sentence
        figures = (await driver.client.get("/metrics")).text
        (figure,) = re.findall(r"^tallyhook_shop_away_since_seconds (.*)$", figures, re.MULTILINE)
        assert float(figure) == since // SECOND
        shop.is_away = False
        driver.clock.put(since + 120 * SECOND)
        await soon(lambda: _failures(driver) == [])
        assert await alarm_told(driver, "shop_away") == []
        assert "tallyhook_shop_away_since_seconds 0.0" in (await driver.client.get("/metrics")).text


async def test_a_person_may_have_it_tried_at_once(serve: Serve) -> None:
    """`redeliver` without ids takes what waits for its next try, too, and does not wait for the
    next probe; what was never tried comes right behind."""
    shop = Away()
    async with serve(shop) as driver:
        await of_orders(driver, "A")
        await tried(driver, 1)
        await of_orders(driver, "B")
        await soon(lambda: is_away(driver))
        await of_orders(driver, "C")
        shop.is_away = False
        await quiet(driver)
        assert len(shop.heard) == 2
        assert await redeliver(driver.context, None) == 2
        await soon(lambda: driver.rows("SELECT count(delivered_at) FROM notifications") == [(3,)])


async def test_a_probe_of_a_clock_that_was_ahead(serve: Serve) -> None:
    """A clock that is set back does not put the next probe off."""
    shop = Away()
    async with serve(shop) as driver:
        driver.clock.put(driver.clock.now() + DAY)
        await of_orders(driver, "A")
        await tried(driver, 1)
        shop.is_away = False
        driver.clock.put(driver.clock.now() - DAY)
        # The correction of the clock may have published another one meanwhile.
        delivered = "SELECT delivered_at IS NOT NULL FROM notifications WHERE seq = 1"
        await soon(lambda: driver.rows(delivered) == [(1,)])


async def test_a_shop_that_hangs_does_not_hold_up_the_door(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the shop is waited for, deliveries are stored, folded and read."""
    release = asyncio.Event()

    async def hang(*arguments: Any, **words: Any) -> Any:
        await release.wait()
        return Exchange(status=204)

    monkeypatch.setattr(notify_shop, "post_signed", hang)
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

    monkeypatch.setattr(worker, "notify_due", fail)
    async with serve(Shop()) as driver:
        await driver.service.stopped()
        assert driver.service.broken == ["the task that notifies the shop failed"]
        assert not await driver.ready()


def test_pauses_grow_and_end() -> None:
    """5 s, then four times as long each time up to an hour; the shop may ask for longer; the number
    of the notification adds a sixteenth at most. Between probes no more than a minute, or what the
    shop asks for, up to a quarter of an hour."""
    pauses = [pause_after(tries, seq=0, headers={}) // SECOND for tries in range(7)]
    assert pauses == [5, 20, 80, 320, 1280, 3600, 3600]
    assert [probe_pause(n, headers={}) // SECOND for n in range(1, 6)] == [5, 20, 60, 60, 60]
    assert probe_pause(9999, headers={"retry-after": "120"}) == 120 * SECOND
    assert probe_pause(1, headers={"retry-after": "99999"}) == LONGEST_ASKED_PAUSE
    assert pause_after(0, seq=0, headers={"retry-after": "900"}) == 900 * SECOND
    assert pause_after(0, seq=0, headers={"retry-after": "1"}) == 5 * SECOND
    assert pause_after(0, seq=0, headers={"retry-after": "999999"}) == LONGEST_PAUSE
    for odd in ("soon", "-1", "", "9" * 99, "１"):
        assert pause_after(0, seq=0, headers={"retry-after": odd}) == 5 * SECOND
    spread = {pause_after(3, seq=seq, headers={}) for seq in range(32)}
    assert len(spread) == 16
    assert max(spread) <= 320 * SECOND * 17 // 16


@for_each(("status", "longest_s"), [(429, 60), (503, 3600), (400, 3600)])
def test_one_that_came_when_the_shop_had_too_many_waits_a_minute(
    status: int, longest_s: int
) -> None:
    """However often that was: 429 is of the moment, not of the notification. Another refusal may be
    of the notification, and is tried ever more rarely."""
    published = Published(
        seq=16, order="ORD-1", at=T, outcome="succeeded", fulfillable=True, before_outcome=None,
        before_fulfillable=None, because=("So.",),
    )  # fmt: skip
    refused = Notification(published=published, since=T, tries=9, until=T)
    answers = [Exchange(status=204), Exchange(status=status)]
    health, results = judge([refused, refused], answers, before=None, now=T)
    assert health is None
    assert results[0].delivered
    assert results[1].again_at == T + longest_s * SECOND


def test_ids_are_of_one_revision() -> None:
    """The same revision has the same id; one that says otherwise under its number has another."""
    words: dict[str, Any] = {"seq": 7, "order": "A", "at": 5, "outcome": "pending",
                             "fulfillable": False, "before_outcome": None,
                             "before_fulfillable": None}  # fmt: skip
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
