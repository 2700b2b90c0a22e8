"""Payments without an order on the console: listed, explained, assigned or proposed."""

from typing import Any

import httpx2
import pytest

from app.access.tokens import TokenScope, issue_token
from app.finance.match_rules import save_rules
from tests.api.driving import event
from tests.console.conftest import RunningConsole, send
from tests.console.test_pages import shown

PATH = "/unallocated/shop%3Atill-1"
ASSIGN = "/do/assign-payment?payment=shop:till-1"
SCOPES: tuple[TokenScope, ...] = ("read", "orders")
PHONE = {"phone": "254799000111"}


@pytest.fixture
async def till(console: RunningConsole) -> RunningConsole:
    """Receive a payment into the till, and the open order of its payer for the same amount."""
    driver = console.driver
    paid = {"reference": "till-1", "amount": 3250}
    await driver.send(event("t1", order=None, session=None, payment=paid, customer=PHONE))
    driver.token = await issue_token(console.context, name="shop", scopes=SCOPES, by="a admin")
    body = {"amount": "3250.00", "currency": "KES"}
    assert (await driver.api("PUT", "/orders/ORD-77", json=body)).status_code == 200
    asked = event("t2", "pending", customer=PHONE, payment=None, session={"reference": "cs-77"})
    asked["data"]["order"] = {"reference": "ORD-77", "amount": 3250, "currency": "KES"}
    await driver.send(asked)
    return console


async def listed(client: httpx2.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/unallocated.json")).json()
    return found


async def test_finance_assigns_in_one_click_to_the_only_order_that_fits(
    till: RunningConsole,
) -> None:
    await save_rules(till.context, '[accept_alone_max]\nKES = "5000.00"\n', by="a admin")
    async with till.signed_in("finance") as client:
        document = await listed(client)
        assert (document["waiting"], document["held"]) == (
            1,
            [{"amount": "3250.00", "currency": "KES"}],
        )
        page = await client.get(PATH)
        assert "Assign to ORD-77…" in page.text
        assert "this amount is what is still due, its customer has the payer's" in shown(page.text)
        sent = await send(client, f"{ASSIGN}&order=ORD-77", order="ORD-77", reason="it fits")
        assert (sent.status_code, (await listed(client))["payments"]) == (303, [])
        assert "It was assigned to order ORD-77" in shown((await client.get(PATH)).text)
    order = (await till.driver.api("GET", "/orders/ORD-77")).json()
    assert (order["outcome"], order["fulfillable"]) == ("succeeded", True)


async def test_support_proposes(till: RunningConsole) -> None:
    async with till.signed_in("support") as client:
        form = await client.get(f"{ASSIGN}&order=ORD-77")
        assert "Support proposes this, and finance decides" in shown(form.text)
        sent = await send(client, ASSIGN, order="ORD-77", reason="she rang")
        assert "Proposed to a second person" in shown(sent.text)
        assert "it waits for a second person" in shown((await client.get(PATH)).text)
        assert len((await listed(client))["payments"]) == 1


async def test_the_second_of_two_people_is_told(till: RunningConsole) -> None:
    """The form holds what its reader saw."""
    await save_rules(till.context, '[accept_alone_max]\nKES = "5000.00"\n', by="a admin")
    async with till.signed_in("finance") as client:
        late = await send(client, ASSIGN, order="ORD-77", reason="it fits", replaces="rec_before")
        assert late.status_code == 400
        assert "since you looked, so nothing was done" in shown(late.text)


async def test_the_list_is_a_table_for_a_spreadsheet(till: RunningConsole) -> None:
    async with till.signed_in("support") as client:
        table = (await client.get("/unallocated.csv")).text
    assert "shop:till-1" in table
    assert "254799000111" not in table
