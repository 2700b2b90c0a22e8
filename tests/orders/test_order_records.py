"""An order needs a price of the shop's own, from the first start with the rule on."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from app.config.load import load_settings
from app.core.logs import configure_logging
from app.orders.read_orders import explain_order
from app.wiring.opening import open_context
from reconcile.instants import DAY, HOUR, MINUTE, NO_TIME
from tests.api.driving import Driver, driving, environ, event, of_order
from tests.checkout.service import TOKEN, opened, service
from tests.reconcile.build import T
from tests.rows import for_each

ON: dict[str, Any] = {"REQUIRE_ORDER_RECORD": "on"}
TOLD = {"amount": "1500.00", "currency": "KES"}


@pytest.fixture
def log() -> io.StringIO:
    """Capture the log of this during the test."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream


def noted(driver: Driver) -> list[int]:
    """Return the instant in the database, if there is one."""
    rows = driver.rows("SELECT value FROM meta WHERE name='order_record_required_since'")
    return [int(value) for (value,) in rows]


async def ships(driver: Driver, order: str) -> bool:
    """Return whether the order may be fulfilled; its money has come."""
    ledger = (await driver.api("GET", f"/orders/{order}")).json()
    assert ledger["outcome"] == "succeeded"
    return bool(ledger["fulfillable"])


async def test_an_order_without_a_price_of_the_shop_is_not_fulfillable(tmp_path: Path) -> None:
    """It says why, until the shop states its price; then it is, at that price alone."""
    async with driving(tmp_path, **ON) as driver:
        driver.clock.put(T + MINUTE)
        await driver.send(event("e1"))
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
        assert (ledger["outcome"], ledger["fulfillable"]) == ("succeeded", False)
        assert any("the shop" in sentence for sentence in ledger["explanation"])
        body = (await driver.api("PUT", "/orders/ORD-1", json=TOLD)).json()
        assert body["fulfillable"]
        await driver.send(of_order("ORD-2", "e2"))
        dearer = await driver.api("PUT", "/orders/ORD-2", json=TOLD | {"amount": "1500.01"})
        assert not dearer.json()["fulfillable"]


async def test_a_session_that_was_asked_for_here_is_the_shops_word(tmp_path: Path) -> None:
    """Its amount is the price."""
    async with service(opened("cs_1")) as pay:
        checkout: dict[str, Any] = {
            "CHECKOUT__BASE_URL": f"http://127.0.0.1:{pay.port}",
            "CHECKOUT__TOKEN": TOKEN,
        }
        async with driving(tmp_path, **ON, **checkout) as driver:
            driver.clock.put(T + MINUTE)
            asked = {
                "order": {"reference": "ORD-1", **TOLD},
                "customer": {"phone": "254700000001"},
                "return_urls": {"success": "https://s.test/a", "cancel": "https://s.test/b"},
            }
            assert (await driver.api("POST", "/checkout/sessions", json=asked)).status_code == 201
            await driver.send(event("e1"))
            assert await ships(driver, "ORD-1")


async def test_what_was_heard_of_before_the_first_start_with_it_on_is_left_alone(
    tmp_path: Path, log: io.StringIO
) -> None:
    """The instant is noted once, is reported, and never moves however often a service starts; all
    others judge by it, too."""
    async with driving(tmp_path) as driver:
        await driver.send(of_order("OLD", "e1"))
        assert noted(driver) == []
    for later in (HOUR, NO_TIME, 2 * HOUR, DAY):
        async with driving(tmp_path, at=T + later, **ON) as driver:
            assert noted(driver) == [T + HOUR]
            assert driver.context.policy.require_order_record_since == T + HOUR
    lines = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    assert len([line for line in lines if line.startswith("from now on an order")]) == 1
    async with driving(tmp_path, at=T + DAY, **ON) as driver:
        await driver.send(of_order("NEW", "e2"))
        assert await ships(driver, "OLD")
        assert not await ships(driver, "NEW")
    settings = load_settings(environ(tmp_path, **ON))
    async with open_context(settings, purpose="reading") as context:
        assert context.policy.require_order_record_since == T + HOUR
        assert not (await explain_order(context, "NEW")).fulfillable


async def test_switched_off_and_on_again_it_begins_again(tmp_path: Path, log: io.StringIO) -> None:
    """Off, it holds for nothing, and every order is judged anew, but what is fulfillable by that
    alone waits for a person; on again, it holds for what comes then."""
    async with driving(tmp_path, **ON) as driver:
        driver.clock.put(T + MINUTE)
        await driver.send(of_order("FIRST", "e1"))
        assert not await ships(driver, "FIRST")
        token = driver.token
    async with driving(tmp_path, at=T + HOUR, REQUIRE_ORDER_RECORD="off") as driver:
        assert noted(driver) == []
        driver.token = token
        await driver.send(of_order("BETWEEN", "e2"))
        assert not await ships(driver, "FIRST"), "only the setting makes it so: held for a person"
        body = (await driver.api("GET", "/orders/FIRST")).json()
        assert "held_back" in [each["code"] for each in body["findings"]]
        assert await ships(driver, "BETWEEN")
    assert "no longer need a price stated by the shop" in log.getvalue()
    async with driving(tmp_path, at=T + DAY, **ON) as driver:
        assert noted(driver) == [T + DAY]
        driver.token = token
        driver.clock.put(T + DAY + MINUTE)
        await driver.send(of_order("LAST", "e3"))
        found = [await ships(driver, order) for order in ("FIRST", "BETWEEN", "LAST")]
        assert found == [False, True, False]


async def test_a_command_notes_nothing(tmp_path: Path) -> None:
    """Neither one that only reads, nor one that writes, with the rule on or off."""
    async with driving(tmp_path, **ON) as driver:
        assert noted(driver) == [T]
    for values, since in ((ON, T), ({"REQUIRE_ORDER_RECORD": "off"}, None)):
        for purpose in ("reading", "writing", "alone"):
            kind: Any = purpose
            settings = load_settings(environ(tmp_path, **values))
            async with open_context(settings, purpose=kind) as context:
                assert context.policy.require_order_record_since == since
    async with driving(tmp_path, at=T + DAY, **ON) as driver:
        assert noted(driver) == [T]


@for_each(
    ("environment", "value", "required"),
    [
        ("live", None, True),
        ("live", "auto", True),
        ("live", "off", False),
        ("live", "FALSE", False),
        ("live", "0", False),
        ("sandbox", None, False),
        ("sandbox", "auto", False),
        ("sandbox", "on", True),
        ("sandbox", "true", True),
    ],
)
def test_where_it_is_on(
    tmp_path: Path, environment: str, value: str | None, required: bool
) -> None:
    """In live unless it is switched off by name, which is reported; in the sandbox only by name."""
    given = environ(tmp_path) | {"TALLYHOOK_ENVIRONMENT": environment}
    if value is not None:
        given["TALLYHOOK_REQUIRE_ORDER_RECORD"] = value
    settings = load_settings(given)
    assert settings.requires_order_record == required
    warned = [each for each in settings.warnings if "REQUIRE_ORDER_RECORD" in each]
    assert len(warned) == (environment == "live" and not required)
