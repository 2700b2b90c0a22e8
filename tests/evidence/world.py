"""A service whose order ORD-1 has had a full life: a session, twenty deliveries, money back."""

from pathlib import Path
from typing import Any

from app.context.context import AppContext
from app.orders.record_store import add_records
from app.orders.refold import refold_until_quiet
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Instant, format_instant
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.api.driving import Driver, driving, event
from tests.reconcile.build import T

PHONE = "254711223344"
NAME = "Wanjiku Kamau"
CUSTOMER = {"phone": PHONE, "name": NAME}
LATER = T + 40 * DAY
"""Instant at which everything has been said."""

STORY: tuple[tuple[str, str, int, int, int, dict[str, Any]], ...] = (
    # event, claim, minutes after T at which it happened and arrived, arrivals, more of its data
    ("e1", "pending", 1, 1, 3, {}),
    ("e2", "declined", 2, 2, 2, {"payment": {"reason": "insufficient_funds"}}),
    ("e3", "pending", 4, 9, 3, {"payment": {"reference": "pay_2"}}),
    ("e4", "succeeded", 5, 5, 4, {"payment": {"reference": "pay_2"}}),
    ("e5", "refunded", 60, 61, 3,
     {"payment": {"reference": "pay_2"}, "refund": {"reference": "re_1", "amount": 500,
                                                    "currency": "KES"}}),
    ("e6", "disputed", 3000, 3001, 3,
     {"payment": {"reference": "pay_2"}, "refund": {"reference": "dp_1", "amount": 1000,
                                                    "currency": "KES"}}),
    ("e7", "dispute_won", 9000, 9002, 2,
     {"payment": {"reference": "pay_2"}, "refund": {"reference": "dp_1"}}),
)  # fmt: skip
"""Twenty deliveries of seven events, each repeated at intervals of two seconds."""

Words = dict[str, Any]


def record(name: str, kind: Any, at: Instant, **more: Any) -> Record:
    """Make a record of ORD-1 in a checkout session."""
    return Record(
        record_id=f"rec_{name}", recorded_at=at, kind=kind, order="ORD-1", at=at,
        **{"source": "shop", "key": "key_0001"} | more,
    )  # fmt: skip


async def open_session(context: AppContext) -> None:
    """Store what opening a checkout session leaves."""
    price = Money(minor=150_000, currency="KES")
    async with context.database.writing() as connection:
        asked = record("asked", "session_requested", T, money=price)
        await add_records(connection, [asked], details='{"digest":"00","return_urls":{}}')
        opened = record("opened", "session_opened", T + SECOND, session="cs_1",
                        expires_at=T + HOUR)  # fmt: skip
        await add_records(connection, [opened], details='{"reference":"cs_1","status":"open"}')


async def live_through(driver: Driver, *, customer: Words | None = None) -> None:
    """Play all of STORY, and the shop's statement. The clock ends at LATER."""
    await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
    await open_session(driver.context)
    for name, claim, happened, arrived, times, more in STORY:
        body = event(name, claim, customer=customer or CUSTOMER,
                     occurred_at=format_instant(T + happened * MINUTE), **more)  # fmt: skip
        for again in range(times):
            driver.clock.put(T + arrived * MINUTE + again * 2 * SECOND)
            assert (await driver.send(body)).status_code == 200
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
    driver.clock.put(LATER)
    await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)


async def make(folder: Path) -> None:
    """Leave a database of this world in a folder."""
    async with driving(folder, with_worker=False, looking=True) as driver:
        await live_through(driver)
