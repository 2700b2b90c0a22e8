"""A second payment of an order over HTTP starts only when the first can bring no more money."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reconcile.instants import HOUR, MINUTE, SECOND, TICK, parse_instant
from tests.api.driving import event
from tests.api.test_checkouts import GRACE, cancel, code, shop, start
from tests.checkout.service import (
    EXPIRES,
    LATE,
    Write,
    answer,
    opened,
)


async def test_a_new_payment_only_when_the_earlier_one_is_over(tmp_path: Path) -> None:
    async with shop(tmp_path, opened("cs_1"), opened("cs_2")) as (driver, pay):
        first = await start(driver, new_payment=True)
        assert first.status_code == 201, "there is no earlier one"
        assert code(await start(driver, new_payment=True)) == (409, "payment_not_over")
        declined = event("e1", "declined", session={"reference": "cs_1"})
        assert (await driver.send(declined)).status_code == 200
        assert (await start(driver)).json()["reference"] == "cs_1"
        second = await start(driver, new_payment=True, amount="1600.00")
        again = await start(driver, new_payment=True, amount="1600.00")
        plain = await start(driver, amount="1600.00")
    assert [r.status_code for r in (second, again, plain)] == [201, 200, 200]
    assert {r.json()["reference"] for r in (second, again, plain)} == {"cs_2"}
    assert len(pay.seen) == len(pay.keys) == 2


@pytest.mark.parametrize("claim", ["pending", "authorized"])
async def test_what_may_be_paid_is_not_over(tmp_path: Path, claim: str) -> None:
    async with shop(tmp_path, opened("cs_1")) as (driver, pay):
        await start(driver)
        await driver.send(event("e1", claim, session={"reference": "cs_1"}))
        assert code(await start(driver, new_payment=True)) == (409, "payment_not_over")
    assert len(pay.seen) == 1


@pytest.mark.parametrize("first", [opened("cs_1"), answer(302)])
async def test_an_order_that_is_paid_gets_no_new_payment_and_says_that(
    tmp_path: Path, first: Write
) -> None:
    """It answers as without `new_payment`: asking later would change nothing."""
    async with shop(tmp_path, first) as (driver, pay):
        await start(driver)
        await driver.send(event("e1", session={"reference": "cs_1"}))
        paid = await start(driver, new_payment=True)
    assert (paid.status_code, paid.json()["status"]) == (200, "paid")
    assert len(pay.seen) == 1


@pytest.mark.parametrize("first", [opened("cs_1"), answer(302)])
async def test_an_order_that_is_canceled_gets_no_new_payment_and_says_that(
    tmp_path: Path, first: Write
) -> None:
    """Its payment is not over yet."""
    async with shop(tmp_path, first) as (driver, pay):
        await start(driver)
        await cancel(driver)
        assert code(await start(driver, new_payment=True)) == (409, "order_canceled")
    assert len(pay.seen) == 1


async def test_a_new_payment_waits_until_no_event_of_the_earlier_one_is_on_its_way(
    tmp_path: Path,
) -> None:
    """The wait is the session's time and the grace: an event of a payment made in time may be under
    way. The answer says when to ask again, as a moment and in seconds."""
    async with shop(tmp_path, opened("cs_1"), opened("cs_2", expires_at=LATE)) as (driver, pay):
        await start(driver)
        over = parse_instant(EXPIRES) + GRACE
        for before, seconds in (
            (40 * MINUTE, None),
            (GRACE, "300"),
            (SECOND + TICK, "2"),
            (TICK, "1"),
        ):
            driver.clock.put(over - before)
            refused = await start(driver, new_payment=True)
            assert code(refused) == (409, "payment_not_over")
            assert refused.json()["ask_again_at"] == "2026-11-20T10:35:00Z"
            assert "Try again at 2026-11-20T10:35:00Z" in refused.json()["detail"]
            assert refused.headers["retry-after"] == (seconds or "2400")
        driver.clock.put(over)
        again = await start(driver, new_payment=True)
    assert (again.status_code, again.json()["reference"]) == (201, "cs_2")
    assert len(pay.keys) == 2


@pytest.mark.parametrize("payment", [None, {"reference": "pay_1"}])
async def test_an_event_that_says_expired_ends_the_wait(
    tmp_path: Path, payment: dict[str, Any] | None
) -> None:
    """The event is of the session or of its payment, long before the session's time."""
    async with shop(tmp_path, opened("cs_1"), opened("cs_2")) as (driver, pay):
        await start(driver)
        await driver.send(event("e1", "pending", session={"reference": "cs_1"}))
        assert code(await start(driver, new_payment=True)) == (409, "payment_not_over")
        ended = event("e2", "expired", session={"reference": "cs_1"}, payment=payment)
        assert (await driver.send(ended)).status_code == 200
        again = await start(driver, new_payment=True)
    assert (again.status_code, again.json()["reference"]) == (201, "cs_2")
    assert len(pay.keys) == 2


async def test_a_session_that_ends_with_the_calendar_overflows_nothing(tmp_path: Path) -> None:
    never = opened("cs_1", expires_at="9999-12-31T23:59:59Z")
    async with shop(tmp_path, never, opened("cs_2")) as (driver, _pay):
        await start(driver)
        refused = await start(driver, new_payment=True)
        assert code(refused) == (409, "payment_not_over")
        assert refused.json()["ask_again_at"] == "9999-12-31T23:59:59.999999Z"
        assert (await driver.api("GET", "/orders/ORD-1")).json()["outcome"] == "pending"
        await driver.send(event("e1", "declined", session={"reference": "cs_1"}))
        assert (await start(driver, new_payment=True)).status_code == 201


async def test_where_nobody_knows_when_to_ask_again_it_is_soon(tmp_path: Path) -> None:
    """An authorized payment has no deadline."""
    async with shop(tmp_path, opened("cs_1")) as (driver, _pay):
        await start(driver)
        await driver.send(event("e1", "authorized", session={"reference": "cs_1"}))
        refused = await start(driver, new_payment=True)
    assert code(refused) == (409, "payment_not_over")
    assert "ask_again_at" not in refused.json()
    assert refused.headers["retry-after"] == "5"


async def test_what_is_unknown_is_not_over_though_its_deadline_has_passed(tmp_path: Path) -> None:
    async with shop(tmp_path, answer(409, retry_after="60")) as (driver, pay):
        await start(driver)
        driver.clock.put(driver.clock.now() + 2 * HOUR)
        assert (await driver.api("GET", "/orders/ORD-1")).json()["outcome"] == "timed_out"
        assert code(await start(driver, new_payment=True)) == (409, "payment_not_over")
        driver.clock.put(driver.clock.now() + 24 * HOUR)
        await start(driver, new_payment=True)
    assert len(pay.keys) == 2


async def test_many_who_ask_for_a_new_payment_at_once_get_one(tmp_path: Path) -> None:
    refusing = answer(422, {"detail": "No."})
    async with shop(tmp_path, refusing, opened("cs_2")) as (driver, pay):
        await start(driver)
        answers = await asyncio.gather(*(start(driver, new_payment=True) for _ in range(50)))
    assert {each.json()["reference"] for each in answers} == {"cs_2"}
    assert len(pay.seen) == len(pay.keys) == 2
