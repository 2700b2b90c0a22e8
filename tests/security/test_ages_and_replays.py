"""One genuine delivery that was overheard, sent again elsewhere, later, earlier, changed around its
signed bytes, or marked as of another environment. It counts once, for one source, in its time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.providers.reader import EventReader
from app.providers.source import Source
from reconcile.instants import DAY, SECOND
from tests.api.driving import Driver, Header, driving, secret, signed
from tests.reconcile.build import T
from tests.security.playing import OPEN, Act, Construction, Play, Target
from tests.waiting import LOOK_S, PATIENCE_S

pytestmark = pytest.mark.slow

TILL_KEY = b"another key for tests, no secret"
TWO: dict[str, Any] = OPEN | {"SOURCES__TILL__SECRETS": secret(TILL_KEY)}
HALF = {"amount": 750, "currency": "KES"}


def half(target: Target) -> bytes:
    """Half of the price, by the order's own payment: sent twice it must not be the whole."""
    return json.dumps(target.event("half", payment=HALF)).encode()


async def post(
    driver: Driver, path: str, body: bytes, headers: Sequence[Header], method: str = "POST"
) -> int:
    """The status of the answer. A 503 of a disk that is slow for a moment is sent again, as
    providers do."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + PATIENCE_S
    while True:
        answer = await driver.client.request(method, path, content=body, headers=list(headers))
        if answer.status_code != 503 or loop.time() > ends:
            return answer.status_code
        await asyncio.sleep(LOOK_S)


def again(
    *statuses: int,
    path: str = "/webhooks/shop",
    after: int = 0,
    headers: Any = None,
    by: str = "POST",
) -> Act:
    """The half payment, which is taken; then the same bytes with the same signature once more,
    which is answered by one of these.

    after    seconds by which the service's clock has moved meanwhile
    headers  what the attacker makes of the headers
    """

    async def does(target: Target) -> None:
        driver, body = target.driver, half(target)
        heard = signed(body)
        assert await post(driver, "/webhooks/shop", body, heard) == 200
        driver.clock.put(T + after * SECOND)
        sent = heard if headers is None else headers(heard)
        try:
            found = await post(driver, path, body, sent, by)
            assert found in statuses, found
        finally:
            driver.clock.put(T)

    return does


def first(after: int, status: int) -> Act:
    """The whole price, held back by whoever heard it, and sent so many seconds later for the first
    time."""

    async def does(target: Target) -> None:
        body = json.dumps(target.event("held-back")).encode()
        target.driver.clock.put(T + after * SECOND)
        try:
            assert await post(target.driver, "/webhooks/shop", body, signed(body)) == status
        finally:
            target.driver.clock.put(T)

    return does


def stamped(stamp: str) -> Any:
    """The same headers with another time."""
    return lambda heard: [
        (name, stamp.encode() if name == b"webhook-timestamp" else value) for name, value in heard
    ]


def repeated(name: bytes, value: bytes | None = None) -> Any:
    """The same headers with one of them twice, the second as it was or with this value."""
    return lambda heard: [
        *heard,
        *((n, v if value is None else value) for n, v in heard if n == name),
    ]


def renamed(heard: Sequence[Header]) -> list[Header]:
    """Another id of the message around the same body."""
    return [(name, b"msg_2" if name == b"webhook-id" else value) for name, value in heard]


def forged(change: Any) -> Act:
    """The signature of one body with another body."""

    async def does(target: Target) -> None:
        heard = signed(half(target))
        body = json.dumps(change(target)).encode()
        assert await post(target.driver, "/webhooks/shop", body, heard) == 401

    return does


TOO_LATE = 2 * DAY // SECOND

REPLAYS = [
    Construction("at another source", again(401, path="/webhooks/till")),
    Construction("at a source that does not exist", again(404, path="/webhooks/tills")),
    Construction("at the source's name in capitals", again(404, path="/webhooks/SHOP")),
    Construction("under the path with a slash behind it", again(200, path="/webhooks/shop/")),
    Construction("under the path with an escape in it", again(200, path="/webhooks/%73hop")),
    Construction("under a path that climbs", again(404, 200, path="/webhooks/till/../shop")),
    Construction("under the path of the API", again(401, 404, 405, path="/api/v1/orders")),
    Construction("with a query", again(200, path="/webhooks/shop?again=1")),
    Construction("with the source in a query", again(401, path="/webhooks/till?source=shop")),
    Construction("by another method", again(405, by="PUT")),
    Construction("at once", again(200)),
    Construction("at the last second of the tolerance", again(200, after=300)),
    Construction("after the tolerance", again(401, after=301)),
    Construction("days later", again(401, after=TOO_LATE)),
    Construction("before the tolerance", again(401, after=-301)),
    Construction("at the first second of the tolerance", again(200, after=-300)),
    Construction(
        "after the tolerance, under a new time",
        again(401, after=400, headers=stamped(str(T // SECOND + 400))),
    ),
    Construction(
        "without its time", again(401, headers=lambda heard: [heard[0], heard[1], heard[3]])
    ),
    Construction("with a time of zero", again(401, headers=stamped("0"))),
    Construction("with its time as a fraction", again(401, headers=stamped(f"{T // SECOND}.0"))),
    Construction("with the time twice", again(401, headers=repeated(b"webhook-timestamp"))),
    Construction(
        "with a second, newer time",
        again(
            401, after=400, headers=repeated(b"webhook-timestamp", str(T // SECOND + 400).encode())
        ),
    ),
    Construction("with the id twice", again(401, headers=repeated(b"webhook-id"))),
    Construction("with another id of the message", again(401, headers=renamed)),
    Construction(
        "with a second id of the message", again(401, headers=repeated(b"webhook-id", b"msg_2"))
    ),
    Construction(
        "with the signature twice", again(200, 401, headers=repeated(b"webhook-signature"))
    ),
    Construction(
        "with a forged signature beside it",
        again(200, 401, headers=repeated(b"webhook-signature", b"v1,AAAA")),
    ),
    Construction("its signature around another amount", forged(lambda t: t.event("half"))),
    Construction(
        "its signature around another order",
        forged(lambda t: t.event("half", order={"reference": "other"})),
    ),
    Construction("its signature around nothing", forged(lambda t: {})),
    Construction("held back, and sent a second too late", first(301, 401)),
    Construction("held back for days", first(TOO_LATE, 401)),
    Construction("sent a second too early", first(-301, 401)),
]


async def half_or_whole(target: Target) -> None:
    """The rest of the price, or all of it: the order's own payments."""
    assert (
        await target.send(target.event("rest", payment={"reference": f"r-{target.order}"})) == 200
    )


async def test_an_overheard_delivery_counts_once_in_its_time(tmp_path: Path) -> None:
    """Wherever, whenever and in whatever wrapping it comes again."""
    async with driving(tmp_path, with_worker=False, **TWO) as driver:
        assert await Play(driver, "REP", paid=half_or_whole).breaks(REPLAYS) == []


async def test_where_age_and_signature_are_not_looked_at_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other source takes what was signed for the first, and what was held back counts."""
    chosen = [each for each in REPLAYS if each.says in ("at another source", "held back for days")]
    monkeypatch.setattr(Source, "verify", lambda *given, **words: None)

    async def play(target: Target, each: Construction) -> None:
        try:
            await each.does(target)
        except AssertionError:
            return  # it was taken, and should not have been
        raise AssertionError(each.says)

    careless = [Construction(each.says, partial(play, each=each)) for each in chosen]
    async with driving(tmp_path, with_worker=False, **TWO) as driver:
        broken = await Play(driver, "REP", paid=half_or_whole).breaks(careless)
    assert [each.partition(":")[0] for each in broken if "unpaid" in each] == [
        each.says for each in chosen
    ]


# --- environments ---------------------------------------------------------------------------------

LIVE: dict[str, Any] = OPEN | {"ENVIRONMENT": "live", "REQUIRE_ORDER_RECORD": "on"}


def marked(word: Any, *statuses: int, key: str = "environment", **more: Any) -> Act:
    """A payment of the whole price that says this of its environment; `...`: it does not say."""

    async def does(target: Target) -> None:
        document = target.stranger("env", **more)
        del document["environment"]
        if word is not ...:
            document[key] = word
        found = await target.send(document)
        assert found in statuses, found

    return does


async def twice_said(target: Target) -> None:
    """The member stands twice, first as one, then as the other."""
    document = target.stranger("env")
    del document["environment"]
    for words in (("live", "sandbox"), ("sandbox", "live")):
        both = "".join(f'"environment": "{word}", ' for word in words)
        assert await target.send(("{" + both + json.dumps(document)[1:]).encode()) == 200


async def of_sandbox_key(target: Target) -> None:
    """Signed with the key of a sandbox account, and called live."""
    body = json.dumps(target.stranger("env")).encode()
    assert (
        await target.send(body, headers=signed(body, key=b"a sandbox key, no secret of ours"))
        == 401
    )


REFUSED, UNREADABLE = 403, 200
ENVIRONMENTS = [
    Construction("an event of the sandbox", marked("sandbox", REFUSED)),
    Construction("one that does not say where it is from", marked(..., REFUSED)),
    Construction("one that says null", marked(None, REFUSED)),
    Construction("LIVE in capitals", marked("LIVE", UNREADABLE)),
    Construction("Live with one capital", marked("Live", UNREADABLE)),
    Construction("live with a blank behind it", marked("live ", UNREADABLE)),
    Construction("live with a Cyrillic letter", marked("l\u0456ve", UNREADABLE)),
    Construction("production", marked("production", UNREADABLE)),
    Construction("an empty word", marked("", UNREADABLE, REFUSED)),
    Construction("true", marked(True, UNREADABLE)),
    Construction("a number", marked(1, UNREADABLE)),
    Construction("a list with the right word", marked(["live"], UNREADABLE)),
    Construction("an object with the right word", marked({"live": True}, UNREADABLE)),
    Construction("the member spelled with a capital", marked("live", REFUSED, key="Environment")),
    Construction("the member spelled with a blank", marked("live", REFUSED, key="environment ")),
    Construction("both, under one key", twice_said),
    Construction("live, signed with a sandbox account's key", of_sandbox_key),
    Construction("a refund of the sandbox", marked("sandbox", REFUSED, type="payment.refunded")),
    Construction("a dispute of the sandbox", marked("sandbox", REFUSED, type="payment.disputed")),
]


@pytest.mark.disk
async def test_no_event_of_a_sandbox_moves_a_live_order(tmp_path: Path) -> None:
    """Nor one that hides where it is from, or spells it otherwise."""
    async with driving(tmp_path, with_worker=False, **LIVE) as driver:
        assert await Play(driver, "ENV", environment="live").breaks(ENVIRONMENTS) == []


@pytest.mark.disk
async def test_where_nobody_looks_at_the_environment_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the sandbox, and those that say nothing, are taken and pay."""

    def taken(word: Any) -> Construction:
        return Construction(str(word), marked(word, 200))

    monkeypatch.setattr(EventReader, "_environment_of", lambda reader, facts: None)
    async with driving(tmp_path, with_worker=False, **LIVE) as driver:
        played = [taken("sandbox"), taken(None), taken("LIVE")]
        broken = await Play(driver, "ENV", environment="live").breaks(played)
    assert [each.partition(":")[0] for each in broken] == ["sandbox", "None", "LIVE"]
