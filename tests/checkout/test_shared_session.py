"""A payment service that gives two orders one session: neither is paid by its money."""

from pathlib import Path

from app.checkout.open_checkout import open_checkout
from app.orders.order_facts import OrderFacts, tell_order
from app.orders.refold import refold_until_quiet
from reconcile.money import Money
from tests.api.driving import driving, event
from tests.checkout.service import asked, opened, service

PRICE = Money(minor=150_000, currency="KES")


async def test_one_payment_does_not_ship_two_orders(tmp_path: Path) -> None:
    """The provider names the session only; both orders wait for somebody to settle it."""
    async with (
        driving(tmp_path, with_worker=False) as driver,
        service(opened("cs_1")) as answering,
        answering.client() as client,
    ):
        for order in ("ORD-A", "ORD-B"):
            await tell_order(driver.context, OrderFacts(order=order, money=PRICE))
            await open_checkout(driver.context, client, request=asked(order))
        await driver.send(event("e1", order=None))
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
        outcomes = (await driver.api("GET", "/outcomes")).json()["outcomes"]
    last = {each["order"]: (each["outcome"], each["fulfillable"]) for each in outcomes}
    assert last == {"ORD-A": ("unresolved", False), "ORD-B": ("unresolved", False)}
