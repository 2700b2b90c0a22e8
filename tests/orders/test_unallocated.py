"""A verified payment that names no order is folded, listed and counted until it is placed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import NotFoundError
from app.database.statements import PlainConnection
from app.finance.place_payment import suggested_orders
from app.orders import unallocated, unallocated_store
from app.orders.find_orders import find_orders
from app.orders.unallocated import (
    MOST_COUNTED,
    Unallocated,
    UnallocatedRequest,
    list_unallocated,
    read_unallocated,
    unallocated_totals,
)
from reconcile.instants import MINUTE
from reconcile.ledger.plain import UNALLOCATED
from reconcile.money import Money, to_json
from tests.api.driving import Driver, driving, event
from tests.reconcile.build import T


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    async with driving(tmp_path, with_worker=False) as driven:
        yield driven


def till(event_id: str, claim: str = "succeeded", *, receipt: str = "R1", **more: Any) -> Any:
    """Return an event of a payment into the till: it names no order."""
    given = {"session": None, "payment": {"reference": receipt, "amount": 3250}, **more}
    return event(event_id, claim, order=None, **given)


async def listed(driver: Driver, **asked: Any) -> list[Unallocated]:
    return (await list_unallocated(driver.context, UnallocatedRequest(**asked))).payments


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


async def test_a_payment_of_no_order_is_listed_with_its_money_and_why(driver: Driver) -> None:
    await driver.send(till("e1", customer={"phone": "254711223344"}))
    driver.clock.put(T + MINUTE)
    refund = {"reference": "re_1", "amount": 250, "currency": "KES"}
    await driver.send(till("e2", "refunded", refund=refund))
    [found] = await listed(driver)
    assert found == await read_unallocated(driver.context, "R1")
    assert found == await read_unallocated(driver.context, "shop:R1")
    assert (found.id, found.outcome, found.state) == ("shop:R1", "succeeded", "open")
    assert (found.captured, found.refunded, found.held) == (kes(325000), kes(25000), kes(300000))
    assert (found.phone, found.standing) == ("+254 ••• ••• •44", "signed")
    assert (found.why, found.received_at, found.changed_at) == ("names_no_order", T, T + MINUTE)
    document = found.document(now=T + MINUTE)
    assert (document["age_s"], document["held"]) == (60, to_json(kes(300000)))


async def test_payments_are_folded_in_batches_whose_keys_are_read_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query for their keys reads every event without an order."""
    reads: list[int] = []
    unplaced_keys = unallocated_store.unplaced_keys

    def reading(connection: PlainConnection, **asked: Any) -> Any:
        reads.append(asked["limit"])
        return unplaced_keys(connection, **asked)

    monkeypatch.setattr(unallocated_store, "unplaced_keys", reading)
    monkeypatch.setattr(unallocated, "AT_ONCE", 2)
    for number in range(5):
        await driver.send(till(f"e{number}", receipt=f"R{number}"))
    totals = await unallocated_totals(driver.context)
    assert (totals.count, totals.held, totals.more) == (5, (kes(5 * 325000),), False)
    assert reads == [MOST_COUNTED]
    reads.clear()
    monkeypatch.setattr(unallocated, "MOST_COUNTED", 3)
    assert [each.id for each in await listed(driver)] == [f"shop:R{n}" for n in range(5)]
    assert reads == [3, 3]


@pytest.mark.parametrize("source", [None, "shop"])
async def test_events_of_orders_are_not_read_to_find_payments_without_one(
    driver: Driver, source: str | None
) -> None:
    """The watchdog asks every few seconds, and most events are of orders."""

    def planned(connection: PlainConnection) -> str:
        class Explaining:
            dialect, plans = connection.dialect, ""

            def ask(self, sql: str, values: Any) -> list[Any]:
                self.plans += str(connection.ask(f"EXPLAIN QUERY PLAN {sql}", values))
                return []

        explaining: Any = Explaining()
        unallocated_store.unplaced_keys(explaining, source=source, after=0, limit=9)
        return str(explaining.plans)

    plan = await driver.context.database.on_snapshot(planned)
    assert "USING INDEX ix_events_standalone" in plan
    assert "ix_events_order_key (order_key>?)" not in plan


@pytest.fixture
async def by_references(tmp_path: Path) -> AsyncIterator[Driver]:
    settings: dict[str, Any] = {"SOURCES__SHOP__LINK_BY": "references"}
    async with driving(tmp_path, with_worker=False, **settings) as driven:
        yield driven


async def test_an_order_that_may_not_link_is_a_suggestion_that_search_and_answer_show(
    by_references: Driver,
) -> None:
    driver = by_references
    body = {"amount": "3250.00", "currency": "KES"}
    assert (await driver.api("PUT", "/orders/ORD-7", json=body)).is_success
    await driver.send(event("e1", order={"reference": "ORD-7"}, session=None))
    [found] = await listed(driver)
    assert (found.why, found.suggested, found.named) == ("may_not_link", ("ORD-7",), ())
    search = await find_orders(driver.context, "ORD-7", limit=5)
    assert [each["id"] for each in search.unallocated] == [found.id]
    answer = (await driver.api("GET", "/orders/ORD-7")).json()
    assert answer["outcome"] == "not_attempted"
    assert [each["payment"] for each in answer["unallocated"]] == [found.id]
    assert "may be for this one" in answer["plain"]["answer"][0]
    other = {"reference": "pay_1", "amount": 900, "currency": "KES"}
    await driver.send(event("e1", order={"reference": "ORD-7"}, session=None, payment=other))
    answer = (await driver.api("GET", "/orders/ORD-7")).json()
    assert [each["money"] for each in answer["unallocated"]] == [None]
    assert "A payment of an unclear amount belongs to no order yet" in answer["plain"]["answer"][0]
    assert f"The payment {found.id} of an unclear amount belongs to no order" in " ".join(
        answer["staff"]
    )


async def test_a_payment_that_may_not_link_counts_once_the_shop_names_it(
    by_references: Driver,
) -> None:
    driver = by_references
    body = {"amount": "1500.00", "currency": "KES"}
    await driver.send(event("e1", order={"reference": "ORD-8"}, session=None))
    named = {"references": [{"source": "shop", "payment": "pay_1"}]}
    assert (await driver.api("PUT", "/orders/ORD-7", json=body | named)).is_success
    assert (await driver.api("GET", "/orders/ORD-7")).json()["outcome"] == "succeeded"
    assert await listed(driver) == []
    assert (await driver.api("GET", "/orders/ORD-8")).status_code == 404


async def test_a_session_without_a_payment_of_its_own_is_no_second_payment(driver: Driver) -> None:
    await driver.send(till("e1", session={"reference": "cs_7"}))
    await driver.send(event("e2", order=None, payment=None, session={"reference": "cs_7"}))
    await driver.send(event("e3", order=None, payment=None, session={"reference": "cs_8"}))
    assert [(each.reference, each.events) for each in await listed(driver)] == [
        ("R1", ("e1", "e2")),
        ("cs_8", ("e3",)),
    ]
    assert (await read_unallocated(driver.context, "cs_7")).id == "shop:R1"


async def test_pages_go_through_the_list_in_the_order_of_arrival(driver: Driver) -> None:
    for number in (3, 1, 2):
        await driver.send(till(f"e{number}", receipt=f"R{number}"))
    first = await list_unallocated(driver.context, UnallocatedRequest(limit=2))
    assert [each.reference for each in first.payments] == ["R3", "R1"]
    rest = await list_unallocated(driver.context, UnallocatedRequest(after=first.next or ""))
    assert ([each.reference for each in rest.payments], rest.next) == (["R2"], None)
    assert await listed(driver, source="other") == []


async def test_what_waits_is_counted_and_summed_by_currency(driver: Driver) -> None:
    await driver.send(till("e1"))
    driver.clock.put(T + MINUTE)
    await driver.send(till("e2", receipt="R2", payment={"reference": "R2", "amount": 50}))
    await driver.send(till("e3", "declined", receipt="R3"))
    await driver.send(till("e4", "reversed", receipt="R4"))
    totals = await unallocated_totals(driver.context)
    assert (totals.count, totals.held, totals.oldest_at) == (2, (kes(330000),), T)
    assert [each.reference for each in await listed(driver)] == ["R1", "R2"]
    assert len(await listed(driver, everything=True)) == 4


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(event("e1"), id="it names an order that the shop never stated"),
        pytest.param(till("e1", type="payment.invented"), id="its kind is unknown"),
    ],
)
async def test_other_evidence_makes_no_unallocated_payment(driver: Driver, document: Any) -> None:
    await driver.send(document)
    assert await listed(driver, everything=True) == []
    with pytest.raises(NotFoundError, match="no unallocated payment"):
        await read_unallocated(driver.context, "pay_1")


async def test_a_payment_leaves_the_list_when_a_later_event_names_its_order(driver: Driver) -> None:
    await driver.send(till("e1"))
    await driver.send(event("e2", payment={"reference": "R1", "amount": 3250}))
    assert await listed(driver) == []


PAYER = {"phone": "254711223344", "name": "Wanjiku Kamau"}


@pytest.mark.parametrize(
    ("customer", "amount", "fits"),
    [
        (PAYER, 3250, True),
        ({**PAYER, "phone": "254700000001"}, 3250, False),
        ({"name": PAYER["name"]}, 3250, False),
        (PAYER, 3249, False),
    ],
    ids=["number and amount", "the name alone", "the name without a number", "the number alone"],
)
async def test_an_unpaid_order_names_the_payment_that_may_be_for_it(
    driver: Driver, customer: dict[str, str], amount: int, fits: bool
) -> None:
    """It is the amount due, and the payer has a phone number of the order's customer."""
    await driver.api("PUT", "/orders/ORD-1", json={"amount": "3250.00", "currency": "KES"})
    await driver.send(event("e1", "declined", customer=PAYER))
    await driver.send(till("e2", customer=customer, payment={"reference": "R1", "amount": amount}))
    order = (await driver.api("GET", "/orders/ORD-1")).json()
    payments = order.get("unallocated", [])
    assert [each["payment"] for each in payments] == (["shop:R1"] if fits else [])
    said = UNALLOCATED.format(money=f"KES {amount:,}.00")
    assert (order["plain"]["answer"][0] == said) is fits
    assert any("tallyhook unallocated show shop:R1" in each for each in order["staff"]) is fits
    payment = await read_unallocated(driver.context, "R1")
    suggested = await suggested_orders(driver.context, payment)
    assert [each.order for each in suggested if each.fits] == (["ORD-1"] if fits else [])


async def test_a_paid_order_names_no_payment_of_the_same_customer(driver: Driver) -> None:
    await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
    await driver.send(event("e1", customer=PAYER))
    await driver.send(till("e2", customer=PAYER, payment={"reference": "R1", "amount": 1500}))
    order = (await driver.api("GET", "/orders/ORD-1")).json()
    assert (order["outcome"], "unallocated" in order) == ("succeeded", False)
