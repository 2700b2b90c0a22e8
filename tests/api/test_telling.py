"""Statements by the shop's programs over HTTP: who made them, and which payment belongs to which
order."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import issue_token
from reconcile.instants import TICK
from tests.api.driving import Driver, driving, event
from tests.api.test_checkouts import shop, start
from tests.checkout.service import answer, opened
from tests.database.test_crossing import crossing
from tests.reconcile.build import T

TOLD = {"amount": "1500.00", "currency": "KES"}
PAYMENT = {"source": "shop", "payment": "pay_1"}
SESSION = {"source": "shop", "session": "cs_1"}


def nameless(event_id: str, claim: str = "succeeded", **changes: Any) -> dict[str, Any]:
    """Return an event that names no order."""
    return event(event_id, claim, order=None, **changes)


async def put(driver: Driver, order: str, *references: dict[str, str], **more: Any) -> Any:
    """State facts of an order, and return the answer's status and document."""
    answer = await driver.api(
        "PUT", f"/orders/{order}", json={**TOLD, **more, "references": list(references)}
    )
    return answer.status_code, answer.json()


# --- whose payment is whose -----------------------------------------------------------------------


@pytest.mark.parametrize("reference", [PAYMENT, SESSION])
@pytest.mark.parametrize("event_first", [True, False])
async def test_naming_a_payment_of_an_order_pays_it_whichever_came_first(
    driver: Driver, reference: dict[str, str], event_first: bool
) -> None:
    if event_first:
        await driver.send(nameless("e1"))
        assert (await driver.api("GET", "/orders/ORD-1")).status_code == 404
    status, found = await put(driver, "ORD-1", reference)
    assert (status, found["fulfillable"]) == (200, event_first)
    if not event_first:
        await driver.send(nameless("e1"))
    ledger = (await driver.api("GET", "/orders/ORD-1")).json()
    assert (ledger["outcome"], ledger["fulfillable"]) == ("succeeded", True)
    assert [row["event"] for row in ledger["timeline"]] == ["e1"]


async def test_a_session_that_was_opened_here_needs_no_naming(tmp_path: Path) -> None:
    """Its events belong to the order, also where they name only the session."""
    async with shop(tmp_path, opened("cs_1")) as (driver, _pay):
        await start(driver)
        await driver.send(nameless("e1", payment={"reference": "pay_7"}))
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
    assert (ledger["outcome"], ledger["fulfillable"]) == ("succeeded", True)


async def test_one_payment_pays_one_order(driver: Driver) -> None:
    """A second order is refused the reference, told whose it is, and nothing is written."""
    await put(driver, "ORD-1", PAYMENT)
    status, refused = await put(driver, "ORD-2", PAYMENT)
    assert (status, refused["code"], refused["order"]) == (409, "reference_taken", "ORD-1")
    assert "pay_1 of source shop belongs to order ORD-1" in refused["detail"]
    assert driver.rows("SELECT DISTINCT order_key FROM records") == [("ORD-1",)]


async def test_a_payment_of_one_order_in_a_session_of_another_ships_neither(
    driver: Driver,
) -> None:
    """Each reference alone was free: only the event shows that they belong to one payment."""
    await put(driver, "ORD-1", PAYMENT)
    assert (await put(driver, "ORD-2", SESSION))[0] == 200
    await driver.send(nameless("e1"))
    for order in ("ORD-1", "ORD-2"):
        ledger = (await driver.api("GET", f"/orders/{order}")).json()
        assert (ledger["outcome"], ledger["fulfillable"]) == ("unresolved", False), order


async def test_a_payment_is_of_the_order_that_the_shop_named_and_of_no_other(
    driver: Driver,
) -> None:
    """What the shop named outranks the number in an event; it cannot name a payment of another."""
    await put(driver, "ORD-2", PAYMENT)
    await driver.api("PUT", "/orders/ORD-1", json=TOLD)
    await driver.send(event("e1"))
    assert (await driver.api("GET", "/orders/ORD-2")).json()["fulfillable"]
    assert (await driver.api("GET", "/orders/ORD-1")).json()["outcome"] == "not_attempted"
    await driver.send(event("e2", order={"reference": "ORD-3"}, payment={"reference": "pay_3"},
                            session=None))  # fmt: skip
    status, refused = await put(driver, "ORD-4", {"source": "shop", "payment": "pay_3"})
    assert (status, refused["order"]) == (409, "ORD-3")


@pytest.mark.parametrize(
    ("references", "word"),
    [
        ({}, "a list"),
        ([{}] * 51, "a list"),
        (["pay_1"], "references[0] must have a source"),
        ([PAYMENT, {"source": "shop"}], "references[1] must have a source"),
        ([{**PAYMENT, "session": "cs_1"}], "either a session or a payment"),
        ([{**PAYMENT, "order": "x"}], "either a session or a payment"),
        ([{"source": "elsewhere", "payment": "pay_1"}], "references[0].source must be one of shop"),
        ([{"source": ["shop"], "payment": "pay_1"}], "references[0].source must be one of shop"),
        ([{"source": "shop", "payment": ""}], "1 to 200 characters"),
        ([{"source": "shop", "payment": 7}], "1 to 200 characters"),
        ([{"source": "shop", "session": "x" * 201}], "1 to 200 characters"),
        ([{"source": "shop", "session": "a\nb"}], "1 to 200 characters"),
        ([{"source": "shop", "session": "\ud800"}], "1 to 200 characters"),
    ],
)
async def test_each_mistake_of_references_is_named_with_its_place(
    one_driver: Driver, references: Any, word: str
) -> None:
    body = json.dumps(TOLD | {"references": references, "placed_at": "x"}).encode()
    answer = await one_driver.api("PUT", "/orders/ORD-1", content=body)
    assert answer.status_code == 422
    assert word in answer.json()["detail"]
    assert "placed_at" in answer.json()["detail"]
    assert one_driver.rows("SELECT * FROM records") == []


# --- who stated it --------------------------------------------------------------------------------


async def test_each_record_says_who_stated_it(tmp_path: Path) -> None:
    """It names the program's token, or the service whose answer it is."""
    async with shop(tmp_path, opened("cs_1"), answer(422, {"detail": "no"})) as (driver, _pay):
        await start(driver)
        facts = {"placed_at": "2026-11-20T09:00:00Z", "fulfilled_at": "2026-11-20T12:00:00Z"}
        driver.clock.put(T + TICK)
        await put(driver, "ORD-1", PAYMENT, **facts)
        found = driver.rows("SELECT kind, author FROM records ORDER BY kind")
    assert found == [
        ("order_fulfilled", "token:shop"),
        ("order_placed", "token:shop"),
        ("reference_named", "token:shop"),
        ("session_opened", "service"),
        ("session_requested", "token:shop"),
    ]


async def test_another_price_is_recorded_with_both_and_with_who_changed_it(driver: Driver) -> None:
    """It is a finding of the order over HTTP, and an audit entry."""
    await driver.api("PUT", "/orders/ORD-1", json=TOLD)
    token = await issue_token(driver.context, name="till-3")
    driver.clock.put(T + TICK)
    cheaper = await driver.client.put(
        "/api/v1/orders/ORD-1",
        headers={"Authorization": f"Bearer {token}"},
        json={"amount": "1.00", "currency": "KES"},
    )
    ledger = (await driver.api("GET", "/orders/ORD-1")).json()
    assert cheaper.json()["findings"] == ledger["findings"]
    (finding,) = [each for each in ledger["findings"] if each["code"] == "price_changed"]
    records = driver.rows("SELECT id FROM records ORDER BY recorded_at")
    assert finding["severity"] == "warning"
    assert sorted(finding["cites"]) == sorted(row[0] for row in records)
    assert finding["facts"]["before"] == {"amount": "1500.00", "currency": "KES"}
    assert finding["facts"]["after"] == {"amount": "1.00", "currency": "KES"}
    assert "token:till-3" in finding["sentence"]
    entries = driver.rows(
        "SELECT who, role, action, subject, facts FROM audit WHERE subject='ORD-1'"
    )
    facts = '{"after":"KES 1.00","before":"KES 1,500.00"}'
    assert entries == [("token:till-3", "token", "price_changed", "ORD-1", facts)]


# --- how long it takes ----------------------------------------------------------------------------


async def test_who_tells_crosses_into_the_databases_thread_five_times(tmp_path: Path) -> None:
    """Each crossing waits for a turn of a loop that a burst keeps full. A write keeps other
    processes from writing meanwhile, so all writes cross together once."""
    async with driving(tmp_path, with_worker=False) as driver:  # a fold may hold a connection
        await put(driver, "ORD-1")  # connections are made, what is remembered is
        with crossing() as crossings:
            status, _ = await put(driver, "ORD-2", PAYMENT)
    # The token · all that is written · what is unread of the database, and of the file · the order.
    assert (status, len(crossings)) == (200, 5)


async def test_who_starts_a_payment_crosses_eleven_times(tmp_path: Path) -> None:
    """The payment service's answer lies between them."""
    script = opened("cs_1"), opened("cs_2")
    async with shop(tmp_path, *script, with_worker=False) as (driver, _pay):
        await start(driver)
        with crossing() as crossings:
            await start(driver, reference="ORD-2")
    # The token · what is known · what is unread, twice · the order · all that is written · what is
    # known now · the answer, written · what came meanwhile: what is unread, twice, and the order.
    assert len(crossings) == 11
