"""Facts that the shop states of an order, one after another."""

from pathlib import Path

from app.orders.order_facts import OrderFacts, tell_order
from reconcile.instants import DAY, HOUR, MINUTE
from reconcile.money import Money
from tests.api.driving import driving, event
from tests.reconcile.build import T


def priced(minor: int) -> OrderFacts:
    return OrderFacts(order="ORD-1", money=Money(minor=minor, currency="KES"))


async def test_the_price_stated_last_counts_though_the_clock_was_ahead(tmp_path: Path) -> None:
    """The clock is an hour ahead, then set right, and the price is corrected upwards: the money
    for the earlier one does not ship the order, and the correction is written down once."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.clock.put(T + HOUR)
        await tell_order(driver.context, priced(150_000))
        driver.clock.put(T + MINUTE)
        written = [len(await tell_order(driver.context, priced(180_000))) for _ in range(3)]
        assert written == [1, 0, 0]
        paid = {"reference": "ORD-1", "amount": 1800, "currency": "KES"}
        await driver.send(event("e1", order=paid))
        for now in (T + 2 * MINUTE, T + 2 * DAY):
            driver.clock.put(now)
            ledger = (await driver.api("GET", "/orders/ORD-1")).json()
            assert (ledger["outcome"], ledger["fulfillable"]) == ("unresolved", False)
