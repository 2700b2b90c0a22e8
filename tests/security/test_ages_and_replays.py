"""An overheard delivery, sent again elsewhere, at another time, with changes around its signed
bytes, or marked with another environment: it counts once, for one source, in its time."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.providers.reader import EventReader
from app.providers.source import Source
from reconcile.instants import DAY, SECOND
from tests.api.driving import Driver, Header, driving, secret, signed
from tests.reconcile.build import T
from tests.security.playing import OPEN, Act, Play, Table, Target
from tests.waiting import LOOK_S, PATIENCE_S

pytestmark = pytest.mark.slow

TILL_KEY = b"another key for tests, no secret"
TWO: dict[str, Any] = OPEN | {"SOURCES__TILL__SECRETS": secret(TILL_KEY)}
HALF = {"amount": 750, "currency": "KES"}


def half(target: Target) -> bytes:
    """Return half of the price by the order's own payment: sent twice it must not be the whole."""
    return json.dumps(target.event("half", payment=HALF)).encode()


async def post(
    driver: Driver, path: str, body: bytes, headers: Sequence[Header], method: str = "POST"
) -> int:
    """Return the status of the answer. A 503 of a slow disk is sent again, as providers do."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + PATIENCE_S
    while True:
        answer = await driver.client.request(method, path, content=body, headers=list(headers))
        if answer.status_code != 503 or loop.time() > ends:
            return answer.status_code
        await asyncio.sleep(LOOK_S)


@contextmanager
def moved(driver: Driver, after: int) -> Iterator[None]:
    """Set the service's clock so many seconds ahead until the block ends."""
    driver.clock.put(T + after * SECOND)
    try:
        yield
    finally:
        driver.clock.put(T)


def again(
    *statuses: int,
    path: str = "/webhooks/shop",
    after: int = 0,
    headers: Any = None,
    by: str = "POST",
) -> Act:
    """Send the half payment, then the same signed bytes again, answered by one of the statuses.

    after    seconds by which the service's clock has moved meanwhile
    headers  changes the headers
    """

    async def does(target: Target) -> None:
        driver, body = target.driver, half(target)
        heard = signed(body)
        assert await post(driver, "/webhooks/shop", body, heard) == 200
        sent = heard if headers is None else headers(heard)
        with moved(driver, after):
            found = await post(driver, path, body, sent, by)
        assert found in statuses, found

    return does


def first(after: int, status: int) -> Act:
    """Hold the whole price back, and send it for the first time so many seconds later."""

    async def does(target: Target) -> None:
        body = json.dumps(target.event("held-back")).encode()
        with moved(target.driver, after):
            assert await post(target.driver, "/webhooks/shop", body, signed(body)) == status

    return does


def stamped(stamp: str) -> Any:
    return lambda heard: [
        (name, stamp.encode() if name == b"webhook-timestamp" else value) for name, value in heard
    ]


def repeated(name: bytes, value: bytes | None = None) -> Any:
    """Repeat one of the headers, as it was or with this value."""
    return lambda heard: [
        *heard,
        *((n, v if value is None else value) for n, v in heard if n == name),
    ]


def renamed(heard: Sequence[Header]) -> list[Header]:
    """Change the message id around the same body."""
    return [(name, b"msg_2" if name == b"webhook-id" else value) for name, value in heard]


def forged(change: Any) -> Act:
    """Send the signature of one body with another body."""

    async def does(target: Target) -> None:
        heard = signed(half(target))
        body = json.dumps(change(target)).encode()
        assert await post(target.driver, "/webhooks/shop", body, heard) == 401

    return does


TOO_LATE = 2 * DAY // SECOND

REPLAYS: dict[str, Act] = {
    "at another source": again(401, path="/webhooks/till"),
    "at a source that does not exist": again(404, path="/webhooks/tills"),
    "at the source's name in capitals": again(404, path="/webhooks/SHOP"),
    "under the path with a slash behind it": again(200, path="/webhooks/shop/"),
    "under the path with an escape in it": again(200, path="/webhooks/%73hop"),
    "under a path that climbs": again(404, 200, path="/webhooks/till/../shop"),
    "under the path of the API": again(401, 404, 405, path="/api/v1/orders"),
    "with a query": again(200, path="/webhooks/shop?again=1"),
    "with the source in a query": again(401, path="/webhooks/till?source=shop"),
    "by another method": again(405, by="PUT"),
    "at once": again(200),
    "at the last second of the tolerance": again(200, after=300),
    "after the tolerance": again(401, after=301),
    "days later": again(401, after=TOO_LATE),
    "before the tolerance": again(401, after=-301),
    "at the first second of the tolerance": again(200, after=-300),
    "after the tolerance, under a new time": again(
        401, after=400, headers=stamped(str(T // SECOND + 400))
    ),
    "without its time": again(401, headers=lambda heard: [heard[0], heard[1], heard[3]]),
    "with a time of zero": again(401, headers=stamped("0")),
    "with its time as a fraction": again(401, headers=stamped(f"{T // SECOND}.0")),
    "with the time twice": again(401, headers=repeated(b"webhook-timestamp")),
    "with a second, newer time": again(
        401, after=400, headers=repeated(b"webhook-timestamp", str(T // SECOND + 400).encode())
    ),
    "with the id twice": again(401, headers=repeated(b"webhook-id")),
    "with another id of the message": again(401, headers=renamed),
    "with a second id of the message": again(401, headers=repeated(b"webhook-id", b"msg_2")),
    "with the signature twice": again(200, 401, headers=repeated(b"webhook-signature")),
    "with a forged signature beside it": again(
        200, 401, headers=repeated(b"webhook-signature", b"v1,AAAA")
    ),
    "its signature around another amount": forged(lambda t: t.event("half")),
    "its signature around another order": forged(
        lambda t: t.event("half", order={"reference": "other"})
    ),
    "its signature around nothing": forged(lambda t: {}),
    "held back, and sent a second too late": first(301, 401),
    "held back for days": first(TOO_LATE, 401),
    "sent a second too early": first(-301, 401),
}


async def half_or_whole(target: Target) -> None:
    """Pay the whole price by another payment of the order."""
    rest = target.event("rest", payment={"reference": f"r-{target.order}"})
    assert await target.send(rest) == 200


async def test_an_overheard_delivery_counts_once_in_its_time(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **TWO) as driver:
        assert await Play(driver, "REP", paid=half_or_whole).breaks(REPLAYS) == []


async def test_where_age_and_signature_are_not_looked_at_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other source takes what was signed for the first, and what was held back counts."""
    monkeypatch.setattr(Source, "verify", lambda *given, **words: None)

    async def play(target: Target, says: str) -> None:
        try:
            await REPLAYS[says](target)
        except AssertionError:
            return  # it was taken, and should not have been
        raise AssertionError(says)

    careless: Table = {
        says: partial(play, says=says) for says in ("at another source", "held back for days")
    }
    async with driving(tmp_path, with_worker=False, **TWO) as driver:
        broken = await Play(driver, "REP", paid=half_or_whole).breaks(careless)
    assert [each.partition(":")[0] for each in broken if "unpaid" in each] == [*careless]


# --- environments ---------------------------------------------------------------------------------

LIVE: dict[str, Any] = OPEN | {"ENVIRONMENT": "live", "REQUIRE_ORDER_RECORD": "on"}


def marked(word: Any, *statuses: int, key: str = "environment", **more: Any) -> Act:
    """Pay the whole price with this word for its environment; `...`: without one."""

    async def does(target: Target) -> None:
        document = target.stranger("env", **more)
        del document["environment"]
        if word is not ...:
            document[key] = word
        found = await target.send(document)
        assert found in statuses, found

    return does


async def twice_said(target: Target) -> None:
    """State both environments in one body, in either order."""
    document = target.stranger("env")
    del document["environment"]
    for words in (("live", "sandbox"), ("sandbox", "live")):
        both = "".join(f'"environment": "{word}", ' for word in words)
        assert await target.send(("{" + both + json.dumps(document)[1:]).encode()) == 200


async def of_sandbox_key(target: Target) -> None:
    """Sign with the key of a sandbox account, and call it live."""
    body = json.dumps(target.stranger("env")).encode()
    headers = signed(body, key=b"a sandbox key, no secret of ours")
    assert await target.send(body, headers=headers) == 401


REFUSED, UNREADABLE = 403, 200
ENVIRONMENTS = {
    "an event of the sandbox": marked("sandbox", REFUSED),
    "one that does not say where it is from": marked(..., REFUSED),
    "one that says null": marked(None, REFUSED),
    "LIVE in capitals": marked("LIVE", UNREADABLE),
    "Live with one capital": marked("Live", UNREADABLE),
    "live with a blank behind it": marked("live ", UNREADABLE),
    "live with a Cyrillic letter": marked("l\u0456ve", UNREADABLE),
    "production": marked("production", UNREADABLE),
    "an empty word": marked("", UNREADABLE, REFUSED),
    "true": marked(True, UNREADABLE),
    "a number": marked(1, UNREADABLE),
    "a list with the right word": marked(["live"], UNREADABLE),
    "an object with the right word": marked({"live": True}, UNREADABLE),
    "the member spelled with a capital": marked("live", REFUSED, key="Environment"),
    "the member spelled with a blank": marked("live", REFUSED, key="environment "),
    "both, under one key": twice_said,
    "live, signed with a sandbox account's key": of_sandbox_key,
    "a refund of the sandbox": marked("sandbox", REFUSED, type="payment.refunded"),
    "a dispute of the sandbox": marked("sandbox", REFUSED, type="payment.disputed"),
}


@pytest.mark.disk
async def test_no_event_of_a_sandbox_moves_a_live_order(tmp_path: Path) -> None:
    """Neither does one that hides or misspells its environment."""
    async with driving(tmp_path, with_worker=False, **LIVE) as driver:
        assert await Play(driver, "ENV", environment="live").breaks(ENVIRONMENTS) == []


@pytest.mark.disk
async def test_where_nobody_looks_at_the_environment_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of the sandbox, and events without a word, are taken and pay."""
    monkeypatch.setattr(EventReader, "_environment_of", lambda reader, facts: None)
    async with driving(tmp_path, with_worker=False, **LIVE) as driver:
        played = {str(word): marked(word, 200) for word in ("sandbox", None, "LIVE")}
        broken = await Play(driver, "ENV", environment="live").breaks(played)
    assert [each.partition(":")[0] for each in broken] == ["sandbox", "None", "LIVE"]
