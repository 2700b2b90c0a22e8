"""Payments of no order: counted with their money, and an alarm where nobody decides about them."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.monitoring.watchdog import unallocated_words
from app.orders.unallocated import UnallocatedTotals
from reconcile.instants import HOUR, MINUTE, SECOND, Instant
from reconcile.money import Money
from tests.api.driving import Driver, driving, event
from tests.monitoring.alarms import told
from tests.reconcile.build import T

NAMELESS: dict[str, Any] = {"order": None, "session": None}


async def figures(driver: Driver) -> set[str]:
    await driver.service.watchdog.look()
    text = (await driver.client.get("/metrics")).text
    return {line for line in text.splitlines() if line.startswith("tallyhook_unallocated_")}


async def test_an_alarm_is_raised_once_a_payment_of_no_order_has_waited(tmp_path: Path) -> None:
    """Count and money at once; over as soon as an order has the payment."""
    settings: dict[str, Any] = {"UNALLOCATED_ALARM_S": "3600"}
    async with driving(tmp_path, with_worker=False, looking=True, **settings) as driver:
        assert "tallyhook_unallocated_payments 0.0" in await figures(driver)
        await driver.send(event("e1", **NAMELESS))
        driver.clock.put(Instant(T + MINUTE))
        other = {"reference": "pay_2", "amount": 20, "currency": "USD"}
        await driver.send(event("e2", payment=other, **NAMELESS))
        assert await figures(driver) >= {
            "tallyhook_unallocated_payments 2.0",
            'tallyhook_unallocated_minor_units{currency="KES"} 150000.0',
            'tallyhook_unallocated_minor_units{currency="USD"} 2000.0',
            "tallyhook_unallocated_alarm 0.0",
        }
        driver.clock.put(Instant(T + HOUR - SECOND))
        assert await told(driver, "unallocated") == []
        driver.clock.put(Instant(T + HOUR))
        (sentence,) = await told(driver, "unallocated")
        assert sentence.startswith(
            "2 payments are in no order (KES 1,500.00, USD 20.00), the oldest since 2026-11-20T"
        )
        values = dict(line.split() for line in await figures(driver))
        assert float(values["tallyhook_unallocated_since_seconds"]) == T // SECOND
        references = [{"source": "shop", "payment": "pay_1"}]
        stated = {"amount": "1500.00", "currency": "KES", "references": references}
        assert (await driver.api("PUT", "/orders/ORD-1", json=stated)).status_code == 200
        assert await told(driver, "unallocated") == []
        assert "tallyhook_unallocated_payments 1.0" in await figures(driver)


async def said_of_unallocated(driver: Driver) -> list[str]:
    """Look; return what readiness says, whatever other alarms there are."""
    await driver.service.watchdog.look()
    said: list[str] = (await driver.client.get("/readyz")).json().get("unallocated", [])
    return said


@pytest.mark.parametrize("paid_first", [False, True])
@pytest.mark.parametrize("claim", ["refunded", "disputed"])
async def test_money_that_goes_back_of_a_shop_not_known_is_an_alarm_at_once(
    claim: str, paid_first: bool, tmp_path: Path
) -> None:
    """It is over as soon as evidence that pays it says whose payment it is."""
    only = json.dumps({"data.shop": ["north"]})
    async with driving(
        tmp_path, with_worker=False, looking=True, SOURCES__SHOP__ONLY=only
    ) as driver:
        if paid_first:
            await driver.send(event("e1", session=None))
            assert await said_of_unallocated(driver) == []
        money = {"reference": "re_1", "amount": 1500, "currency": "KES"}
        place = "refund" if claim == "refunded" else "dispute"
        await driver.send(event("r1", claim, **NAMELESS, **{place: money}))
        (sentence,) = await said_of_unallocated(driver)
        assert sentence.startswith(
            "Money went back on 1 payment, and it may be another shop's money"
        )
        assert "(shop:pay_1): look each payment up" in sentence
        await driver.send(event("e2", session=None, shop="north"))
        assert await said_of_unallocated(driver) == []


def test_what_is_not_known_of_them_is_said() -> None:
    held = (Money(minor=100, currency="KES"),)
    found = UnallocatedTotals(count=3, held=held, unclear=2, oldest_at=T, more=True)
    said = "3 payments are in no order (KES 1.00, 2 amounts unclear, or more)"
    assert unallocated_words(found) == said
