"""An erasure destroys no money that nobody has read yet: what was refused or could not be read
stays with the orders that stay, and for as long as somebody may still mend why."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.database.statements import insert_rows
from app.orders.refold import refold_until_quiet
from app.orders.reindex import reindex
from app.privacy.erase_finding import Erasure
from app.privacy.erase_rules import kept_unknown
from app.privacy.pending_erasures import PendingErasures
from app.providers.source import Source
from app.receiving.framing import framed
from app.receiving.reverify import reverify
from app.receiving.unread import WINDOW
from reconcile.instants import DAY, HOUR, TICK, Duration, format_instant
from tests.api.driving import Driver, driving, of_order, secret, signed
from tests.contexts import with_sources
from tests.database.builders import arrival, received
from tests.database.builders import said as said_event
from tests.orders.test_reindex import WRONG, receive_with, source
from tests.privacy.test_erase import OTHER, PHONE, erased, held, paid, quiet
from tests.receiving.test_several_events import PROFILE, again, item, send, service
from tests.reconcile.build import T

THIRD = "254733000111"
NEW_KEY = b"what the provider signs with by now"


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service in which nobody folds in the background."""
    async with driving(tmp_path, with_worker=False) as driven:
        driven.context = driven.service.context
        yield driven


async def began(driver: Driver) -> None:
    """Let the customer of ORD-1 be about to pay."""
    pending = of_order("ORD-1", "e1", "pending")
    pending["data"]["customer"] = {"phone": PHONE}
    pending["occurred_at"] = format_instant(driver.clock.now())
    assert (await driver.send(pending)).json()["verdict"] == "stored"


async def refused(driver: Driver) -> str:
    """Pay ORD-1 while our secret is an old one."""
    body = json.dumps(paid("ORD-1", "e2")).encode()
    headers = signed(body, at=driver.clock.now(), key=NEW_KEY)
    assert (await driver.send(body, headers)).status_code == 401
    return str(driver.rows("SELECT id FROM rejections")[0][0])


async def unread(driver: Driver) -> str:
    """Pay ORD-1 while our profile is a wrong one."""
    right = driver.service.webhooks.receiver.sources["shop"]
    receive_with(driver, source(driver.path.parent, **WRONG["the amount stands elsewhere"]))
    assert (await driver.send(paid("ORD-1", "e2"))).json()["verdict"] == "unreadable"
    receive_with(driver, right)
    return str(driver.rows("SELECT id FROM deliveries WHERE verdict='unreadable'")[0][0])


async def mended(driver: Driver) -> None:
    """Put the secret and the profile right; judge and read everything again."""
    right = source(driver.path.parent)
    new = Source(name="shop", profile=right.profile, secrets=[secret(NEW_KEY)])
    await reverify(with_sources(driver.context, {"shop": new}), only=None, progress=quiet)
    await reindex(with_sources(driver.context, {"shop": right}), progress=quiet)


async def outcome(driver: Driver) -> str:
    """Return the outcome of ORD-1 after its deadline."""
    driver.clock.put(driver.clock.now() + 2 * HOUR)
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    return str((await driver.api("GET", "/orders/ORD-1")).json()["outcome"])


def kept(erasure: Erasure) -> list[tuple[str, str]]:
    """List what stays, and why."""
    return [(each.what, each.why) for each in erasure.kept]


COMMANDS = {
    "refused": "run `tallyhook deliveries reverify` and try again; otherwise it can be deleted ",
    "unread": "run `tallyhook reindex` and try again; otherwise it can be deleted ",
}
COMES = pytest.mark.parametrize("comes", [refused, unread], ids=lambda each: each.__name__)


@COMES
async def test_it_stays_with_an_order_that_is_not_over(driver: Driver, comes: Any) -> None:
    """However old it is; when it is mended the money is there, and then all of it goes."""
    name, why = await comes(driver), comes.__name__
    driver.clock.put(T + 40 * DAY)
    await began(driver)
    told = await erased(driver)
    assert kept(told) == [("ORD-1", "not_over"), (name, why)]
    assert told.kept[1].sentence.endswith(COMMANDS[why] + "with ORD-1")
    assert (told.deliveries, told.rejections) == ([], [])
    await mended(driver)
    assert await outcome(driver) == "succeeded"
    assert kept(await erased(driver)) == []
    assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NOT NULL") == [(0,)]


@COMES
async def test_it_stays_with_an_order_that_the_law_keeps(driver: Driver, comes: Any) -> None:
    await began(driver)
    name = await comes(driver)
    driver.clock.put(T + 40 * DAY)
    told = await erased(driver, minimum=41)
    assert kept(told) == [("ORD-1", "minimum"), (name, comes.__name__)]
    driver.clock.put(T + 41 * DAY)
    told = await erased(driver, minimum=41)
    assert (kept(told), [*told.deliveries, *told.rejections]) == ([], [name])


async def test_a_refused_one_stays_with_the_order_that_it_names(driver: Driver) -> None:
    await began(driver)
    name = await refused(driver)
    told = await erased(driver, phone=None, order="ORD-1")
    assert kept(told) == [("ORD-1", "not_over"), (name, "refused")]
    assert driver.rows("SELECT count(*) FROM rejections") == [(1,)]


@COMES
async def test_it_stays_a_while_where_no_order_is_known(driver: Driver, comes: Any) -> None:
    """There may be none for no other reason; and an order without it is over before it is paid."""
    name = await comes(driver)
    driver.clock.put(T + WINDOW - TICK)
    told = await erased(driver)
    assert kept(told) == [(name, comes.__name__)]
    assert told.kept[0].sentence.endswith(COMMANDS[comes.__name__] + "after 2026-11-27T10:00:00Z")
    await mended(driver)
    assert await outcome(driver) == "succeeded"


@COMES
async def test_it_stays_no_longer_than_that(driver: Driver, comes: Any) -> None:
    """Anybody may send what is refused, and what was never mended may never be."""
    name = await comes(driver)
    driver.clock.put(T + WINDOW)
    told = await erased(driver)
    assert (kept(told), [*told.deliveries, *told.rejections]) == ([], [name])
    assert driver.rows("SELECT count(*) FROM rejections") == [(0,)]
    assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NOT NULL") == [(0,)]


async def test_a_young_one_of_an_order_that_is_over_stays(driver: Driver) -> None:
    """It is over as unpaid because this was refused."""
    await began(driver)
    name = await refused(driver)
    assert await outcome(driver) == "timed_out"
    told = await erased(driver)
    assert ([each.order for each in told.orders], kept(told)) == (["ORD-1"], [(name, "refused")])
    await mended(driver)
    assert await outcome(driver) == "succeeded"


def test_until_when_it_stays_by_itself() -> None:
    """The law's minimum may be longer than what a mend takes, and is named then."""
    words: dict[str, Any] = {"why": "refused", "beside": None}
    for minimum, at, why in (
        (0, T + WINDOW - TICK, "refused"),
        (0, T + WINDOW, None),
        (90, T + WINDOW - TICK, "refused"),
        (90, T + WINDOW, "minimum"),
        (90, T + 90 * DAY, None),
    ):
        found = kept_unknown("dlv", T, Duration(minimum * DAY), as_of=at, **words)
        assert (found and found.why) == why
    found = kept_unknown("dlv", T, Duration(90 * DAY), as_of=T, **words)
    assert found is not None
    assert found.sentence.endswith("it can be deleted after 2027-02-18T10:00:00Z")


async def test_one_that_was_read_goes_though_no_order_is_known(driver: Driver) -> None:
    """Its event is kept, and finds its order all the same."""
    nameless = paid("ORD-1", "e2")
    del nameless["data"]["order"], nameless["data"]["session"]
    nameless["data"]["payment"]["reference"] = "pay_x"
    await driver.send(nameless)
    await began(driver)
    told = await erased(driver)
    assert (kept(told), len(told.deliveries)) == ([("ORD-1", "not_over")], 1)
    assert {row[0] for row in driver.rows("SELECT thing FROM phones")} == {"ORD-1"}
    named = of_order("ORD-1", "e3", "pending")
    named["data"]["payment"]["reference"] = "pay_x"
    await driver.send(named)
    assert await outcome(driver) == "succeeded"


CUSTOMERS = PROFILE + '[customer]\nphone = "json:phone"\n'
NUMBERED = CUSTOMERS.replace('payment = "json:payment"', 'payment = "{json:payment}"')
"""Profile that reads a payment reference that is a number."""


@pytest.fixture
async def batches(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service that has one request of two events: the second could not be read."""
    async with service(tmp_path, CUSTOMERS, with_worker=False) as driven:
        driven.context = driven.service.context
        await send(driven, item(1, phone=PHONE), item(2, payment=2, phone=OTHER))
        driven.clock.put(T + 40 * DAY)
        yield driven


async def test_an_event_is_read_from_the_whole_body_that_it_shares(
    batches: Driver, tmp_path: Path
) -> None:
    """So what came with it stays, however old it is, until it is read."""
    part = batches.rows("SELECT id FROM deliveries WHERE verdict='unreadable'")[0][0]
    told = await erased(batches)
    assert (kept(told), told.orders) == ([("O-1", "beside_unread")], [])
    assert f"an event that could not be read yet ({part})" in told.kept[0].sentence
    assert batches.rows("SELECT count(body) FROM deliveries") == [(2,)]
    (tmp_path / "batches.toml").write_text(NUMBERED)
    assert (await again(batches, tmp_path)).unreadable == 0
    assert batches.rows("SELECT order_key FROM events ORDER BY 1") == [("O-1",), ("O-2",)]
    told = await erased(batches)
    assert ([each.order for each in told.orders], kept(told)) == (["O-1"], [])
    assert batches.rows("SELECT body FROM envelopes") == [(None,)]


async def test_an_unread_event_that_goes_keeps_nothing(batches: Driver) -> None:
    """It is of the same customer, and too old to be waited for."""
    await send(batches, item(3, phone=THIRD), item(4, payment=4, phone=THIRD))
    batches.clock.put(T + 80 * DAY)
    told = await erased(batches, phone=THIRD)
    assert ([each.order for each in told.orders], len(told.deliveries)) == (["O-3"], 1)
    assert (kept(told), held(batches.path.parent, THIRD)) == ([], set())


async def test_an_unread_event_does_not_go_from_under_another(
    batches: Driver, tmp_path: Path
) -> None:
    """Both are read from one body."""
    await send(batches, item(3), item(4, payment=4, phone=THIRD), item(5, payment=5))
    batches.clock.put(T + 80 * DAY)
    told = await erased(batches, phone=THIRD)
    assert [each.why for each in told.kept] == ["beside_unread"]
    (tmp_path / "batches.toml").write_text(NUMBERED)
    assert (await again(batches, tmp_path)).unreadable == 0


async def test_a_delivery_that_is_set_aside_stays_until_it_was_read(driver: Driver) -> None:
    """Found by its bytes or by its orders, and a damaged one by its row. Only one whose id is known
    can be restricted, and is so while it is set aside."""
    one = received(arrival(said_event("e9", order="A"), body=f"of {PHONE}".encode()))
    damaged = f"\0 of {PHONE}".encode()
    rows = [("", framed([one])), ("", damaged), (f"B\nORD-{PHONE}", b"\0"), ("B", b"\0")]
    columns = ("received_at", "tries", "aside", "orders", "record")
    new = [(T, 3, 1, *each) for each in rows]
    await driver.context.database.writer.commit(
        insert_rows, table="suspects", columns=columns, rows=new
    )
    told = await erased(driver)
    assert [(each.what, each.why, each.kind) for each in told.kept] == [
        (one.delivery_id, "set_aside", "delivery"),
        ("row 2", "set_aside", None),
        ("row 3", "set_aside", None),
    ]
    assert told.aside == {"suspects.record": 2, "suspects.orders": 1}
    stays = {each.where: each.stays for each in told.places()}
    assert (stays["suspects.record"], stays["suspects.orders"]) == (2, 1)
    of_order = await erased(driver, phone=None, order="B")
    assert [each.what for each in of_order.kept] == ["row 3", "row 4"]
    restricted = "SELECT thing, why FROM restrictions"
    for day, left in ((1, [(one.delivery_id, "set_aside")]), (2, [])):
        driver.clock.put(T + day * DAY)
        await PendingErasures(driver.context).work()
        assert driver.rows(restricted) == left
        async with driver.context.database.writing() as connection:
            await connection.execute(text("DELETE FROM suspects"))
