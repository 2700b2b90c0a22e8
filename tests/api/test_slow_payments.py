"""A debit that takes days, from its webhook to the documents that the shop reads."""

import tomllib
from pathlib import Path
from typing import Any

from app.orders.refold import refold_until_quiet
from app.providers.profile import SHIPPED
from reconcile.instants import DAY, HOUR, format_instant
from tests.api.driving import Driver, driving, event
from tests.reconcile.build import T

SLOW = """
[slow]
claims = "payment.pending"
method = "json:data.payment.method"

[slow.windows]
sepa_debit = 14
card = 0

[slow.revocable]
sepa_debit = 56
"""
EXPECTED = "2026-12-10T10:00:00Z"
WINDOW = ("expected_by", "method_class", "revocable_until")


def profile(folder: Path) -> str:
    """Write the default profile with a section [slow]; return its path."""
    path = folder / "slow_shop.toml"
    path.write_text((SHIPPED / "checkout.toml").read_text() + SLOW)
    assert tomllib.loads(path.read_text())["slow"]
    return str(path)


def debit(event_id: str, claim: str = "pending", **changes: Any) -> dict[str, Any]:
    return event(event_id, claim, payment={"method": "sepa_debit"}, **changes)


async def seen(driver: Driver) -> list[tuple[Any, ...]]:
    """Return the outcome and window in the document, the list and the feed."""
    await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
    document = (await driver.api("GET", "/orders/ORD-1")).json()
    (row,) = (await driver.api("GET", "/orders")).json()["orders"]
    *_, entry = (await driver.api("GET", "/outcomes")).json()["outcomes"]
    return [(each["outcome"], *(each[name] for name in WINDOW)) for each in (document, row, entry)]


async def test_a_debit_is_pending_until_the_bank_has_said_how_it_ended(tmp_path: Path) -> None:
    source: dict[str, Any] = {"SOURCES__SHOP__PROFILE": profile(tmp_path)}
    async with driving(tmp_path, with_worker=False, **source) as driver:
        await driver.send(debit("e1"))
        assert await seen(driver) == [("pending", EXPECTED, "sepa_debit", None)] * 3
        driver.clock.put(T + HOUR)
        assert await seen(driver) == [("pending", EXPECTED, "sepa_debit", None)] * 3
        driver.clock.put(T + 20 * DAY)
        assert await seen(driver) == [("pending", EXPECTED, "sepa_debit", None)] * 3
        document = (await driver.api("GET", "/orders/ORD-1")).json()
        assert "should have said by" in document["explanation"][0]
        assert document["next_decision_at"] is None
        feed = (await driver.api("GET", "/outcomes")).json()["outcomes"]
        assert [each["outcome"] for each in feed] == ["pending", "pending"]
        await driver.send(debit("e2", "succeeded", occurred_at=format_instant(T + 20 * DAY)))
        until = format_instant(T + 76 * DAY)
        assert await seen(driver) == [("succeeded", None, "sepa_debit", until)] * 3


async def test_a_card_payment_has_no_window(tmp_path: Path) -> None:
    source: dict[str, Any] = {"SOURCES__SHOP__PROFILE": profile(tmp_path)}
    async with driving(tmp_path, with_worker=False, **source) as driver:
        await driver.send(event("e1", "pending", payment={"method": "card"}))
        assert await seen(driver) == [("pending", None, None, None)] * 3
        driver.clock.put(T + HOUR)
        assert await seen(driver) == [("timed_out", None, None, None)] * 3
