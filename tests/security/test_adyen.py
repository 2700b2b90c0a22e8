"""Adyen's signed notifications through the receiver: what a movement's own reference may decide,
which payments capture by themselves, and the parts of an order that was closed unpaid."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.core.errors import ConfigurationError
from app.orders.refold import refold_until_quiet
from app.orders.reindex import reindex
from app.privacy.check import check_database
from app.providers.profile import load_profile
from app.providers.source import Source
from tests.api.driving import Driver, driving, environ
from tests.privacy.test_erase import quiet
from tests.reconcile.build import T

KEY = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
PAIR = "hooks:a long password"
GIVEN: dict[str, Any] = {
    "SOURCES__ADYEN__PROFILE": "adyen",
    "SOURCES__ADYEN__SECRETS": KEY,
    "SOURCES__ADYEN__CAPTURES": '["ideal"]',
    "SOURCES__ADYEN__CREDENTIALS": json.dumps({"webhook": PAIR}),
}
PRICE = {"amount": "10.00", "currency": "EUR"}
PROVIDER = Source(name="adyen", profile=load_profile("adyen"), secrets=[KEY])


def basic(pair: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Basic " + base64.b64encode(pair.encode())


async def sent(
    driver: Driver,
    code: str,
    reference: str,
    psp: str,
    *,
    success: bool = True,
    pair: str = PAIR,
    **members: Any,
) -> None:
    """Send one notification of EUR 10.00, as Adyen signs it."""
    item = {
        "amount": {"currency": "EUR", "value": 1000},
        "eventCode": code,
        "eventDate": "2026-11-20T10:00:00+00:00",
        "merchantAccountCode": "Shop",
        "merchantReference": reference,
        "pspReference": psp,
        "success": str(success).lower(),
        **members,
    }
    body = {"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}
    made = PROVIDER.signed(json.dumps(body).encode(), event_id="e", now=T, url="/")
    headers = [(b"content-type", b"application/json"), basic(pair)]
    answer = await driver.send(made.body, headers, source="adyen")
    assert answer.status_code == 200


async def outcomes(driver: Driver, *orders: str) -> list[str | None]:
    """Return the outcome of each order; None of one that nobody spoke of."""
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    answers = [await driver.api("GET", f"/orders/{each}") for each in orders]
    return [each.json().get("outcome") for each in answers]


async def test_a_movements_own_reference_decides_nothing(tmp_path: Path) -> None:
    """Not where it is another order's number and arrives first, and not where it alone names the
    placed order: then that is a suggestion. An event that may link decides."""
    async with driving(tmp_path, with_worker=False, **GIVEN) as driver:
        for order in ("A", "B", "100045", "100046"):
            await driver.api("PUT", f"/orders/{order}", json=PRICE)
        await sent(driver, "CAPTURE", "B", "C1", originalReference="P1")
        await sent(driver, "REFUND", "71", "R2", originalReference="P2")
        assert await outcomes(driver, "A", "B", "71") == ["not_attempted", "not_attempted", None]
        await sent(driver, "AUTHORISATION", "A", "P1")
        assert await outcomes(driver, "A", "B", "71") == ["succeeded", "not_attempted", None]
        await sent(driver, "AUTHORISATION", "cart-17", "P3")
        await sent(driver, "CAPTURE", "100045", "C3", originalReference="P3")
        assert await outcomes(driver, "100045", "cart-17") == ["not_attempted", "succeeded"]
        suggested = "SELECT suggested FROM events WHERE payment='P3' AND suggested IS NOT NULL"
        assert driver.rows(suggested) == [("100045",)]
        await sent(driver, "AUTHORISATION", "cart-18", "P4")
        await sent(driver, "CAPTURE", "own", "C4", originalReference="P4")
        await sent(driver, "PENDING", "100046", "P4")
        assert await outcomes(driver, "100046", "own") == ["succeeded", None]
        assert (await check_database(driver.context, deep=True, progress=quiet)).problems == []


async def test_a_method_captures_by_itself_where_the_provider_itself_says_so(
    tmp_path: Path,
) -> None:
    """Nothing signs the method, so it counts in requests with the source's password alone, also
    where they are read again. A CAPTURE beside it is no second one."""
    async with driving(tmp_path, with_worker=False, **GIVEN) as driver:
        for order in ("ideal", "visa", "forged"):
            await driver.api("PUT", f"/orders/{order}", json=PRICE)
        await sent(driver, "AUTHORISATION", "ideal", "P1", paymentMethod="ideal")
        await sent(driver, "CAPTURE", "ideal", "C1", originalReference="P1", paymentMethod="ideal")
        await sent(driver, "AUTHORISATION", "visa", "P2", paymentMethod="visa")
        await sent(driver, "AUTHORISATION", "forged", "P3", paymentMethod="ideal", pair="hooks:no")
        expected = ["succeeded", "authorized", "authorized"]
        assert await outcomes(driver, "ideal", "visa", "forged") == expected
        paid = (await driver.api("GET", "/orders/ideal")).json()
        assert paid["totals"]["captured"]["amount"] == "10.00"
        await reindex(driver.context, progress=quiet)
        assert await outcomes(driver, "ideal", "visa", "forged") == expected
        heads = [headers for (headers,) in driver.rows("SELECT headers FROM deliveries")]
        assert not any(basic(PAIR)[1].decode() in each for each in heads)


@pytest.mark.parametrize("method", [{}, ["ideal"], 7, None])
async def test_a_method_that_is_no_text_captures_nothing(tmp_path: Path, method: Any) -> None:
    """Nothing signs it, so whoever has one signed notification can send it with any other."""
    async with driving(tmp_path, with_worker=False, **GIVEN) as driver:
        await driver.api("PUT", "/orders/A", json=PRICE)
        await sent(driver, "AUTHORISATION", "A", "P1", paymentMethod=method)
        assert await outcomes(driver, "A") == ["authorized"]


async def test_an_order_closed_unpaid_holds_the_parts_that_it_lists(tmp_path: Path) -> None:
    """Each is a delivery of its own, in any order of arrival; only a refund moves their money."""
    async with driving(tmp_path, with_worker=False, **GIVEN) as driver:
        await driver.api("PUT", "/orders/A", json=PRICE)
        parts = {f"order-{number}-pspReference": psp for number, psp in ((1, "G1"), (2, "P1"))}
        await sent(driver, "ORDER_CLOSED", "A", "O1", success=False, additionalData=parts)
        await sent(driver, "AUTHORISATION", "A", "P1")
        assert await outcomes(driver, "A") == ["authorized"]
        await sent(driver, "CAPTURE", "own", "C1", originalReference="P1")
        held = (await driver.api("GET", "/orders/A")).json()
        assert (held["outcome"], held["fulfillable"]) == ("succeeded", False)
        assert [each["code"] for each in held["findings"]] == ["refund_pending"]
        before = await outcomes(driver, "A", "O1")
        await reindex(driver.context, progress=quiet)
        assert await outcomes(driver, "A", "O1") == before == ["succeeded", None]
        await sent(driver, "REFUND", "own", "R1", originalReference="P1")
        done = (await driver.api("GET", "/orders/A")).json()
        assert (done["outcome"], done["findings"]) == ("refunded", [])
        assert (await check_database(driver.context, deep=True, progress=quiet)).problems == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"SOURCES__ADYEN__CREDENTIALS": "{}"}, "nothing signs the payment method"),
        ({"SOURCES__ADYEN__CREDENTIALS": '{"webhook": "no"}'}, "nothing signs the payment method"),
        ({"SOURCES__SHOP__CAPTURES": "card"}, "profile checkout captures by no method"),
    ],
)
def test_methods_that_capture_need_a_password_of_the_provider(
    given: dict[str, str], problem: str, tmp_path: Path
) -> None:
    settings = load_settings(environ(tmp_path, **{**GIVEN, **given}), serving=True)
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        compile_sources(settings)
