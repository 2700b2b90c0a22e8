"""Operators list, assign and dismiss unallocated payments with their own tokens; programs never."""

from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import TOKEN_SCOPES, issue_token
from tests.api.driving import Driver, driving, event
from tests.api.test_deciding import People


@pytest.fixture
async def people(tmp_path: Path) -> Any:
    async with driving(tmp_path, with_worker=False) as driver:
        found = People(driver)
        await found.begin()
        paid = {"reference": "till/1", "amount": 3250}
        await driver.send(event("e1", payment=paid, order=None, session=None))
        yield found


async def test_support_proposes_and_finance_decides(people: People) -> None:
    """The payment's reference holds a slash, which its address may hold, too."""
    [payment] = (await people.to("Sue", "GET", "unallocated")).json()["payments"]
    assert payment["held"] == {"amount": "3250.00", "currency": "KES"}
    assert payment["why"]["code"] == "names_no_order"
    asked = {"order": "ORD-1", "reason": "she rang"}
    proposed = await people.to("Sue", "POST", "unallocated/shop:till/1/assign", json=asked)
    assert (proposed.status_code, proposed.json()["state"]) == (202, "waiting")
    people.proposal = proposed.json()["id"]
    assert (await people.decide("Sam", "approve")).status_code == 409
    assert (await people.decide("Ben", "approve")).status_code == 200
    assert (await people.to("Ben", "GET", "unallocated")).json()["payments"] == []
    people.driver.token = await issue_token(people.driver.context, name="shop", by="Boss")
    order = (await people.driver.api("GET", "/orders/ORD-1")).json()
    assert "till/1" in {each["reference"] for each in order["attempts"]}
    again = await people.to("Ben", "POST", "unallocated/till/1/dismiss", json={
        "as": "to_refund", "reason": "x"
    })  # fmt: skip
    assert (again.status_code, again.json()["code"]) == (409, "placing_refused")
    assert "assigned it to order ORD-1" in again.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", "/shop:till/1/assign"), ("POST", "/shop:till/1/dismiss")],
)
async def test_no_program_sees_or_places_them(people: People, method: str, path: str) -> None:
    driver: Driver = people.driver
    driver.token = await issue_token(driver.context, name="all", scopes=TOKEN_SCOPES, by="Boss")
    body: Any = {"json": {"order": "ORD-1", "reason": "x"}} if method == "POST" else {}
    refused = await driver.api(method, f"/unallocated{path}", **body)
    assert refused.status_code in (401, 403), refused.text
    assert len((await people.to("Ben", "GET", "unallocated")).json()["payments"]) == 1
