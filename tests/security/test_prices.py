"""Who else than the shop says what an order costs: an event, a token that is not for it, or nobody.
And what is to be seen where the shop's own token lowers a price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import issue_token, withdraw_token
from app.api import routes as web_api
from reconcile.instants import HOUR, MINUTE
from tests.api.driving import Driver, driving
from tests.checkout.service import TOKEN, opened, service
from tests.reconcile.build import T
from tests.security.playing import OPEN, PRICE, Act, Construction, Play, Target, events

pytestmark = pytest.mark.slow

CHEAP = {"amount": "10.00", "currency": "KES"}
TEN = {"amount": 10, "currency": "KES"}


def stating(price: dict[str, Any], paid: dict[str, Any] = TEN, **more: Any) -> Act:
    """A stranger's payment, whose event states this price of the order."""
    return events(lambda t: t.stranger("p", order=price, payment=paid, **more))


BY_EVENTS = [
    Construction("the price that was paid", stating({"amount": 10, "currency": "KES"})),
    Construction("a price of zero", stating({"amount": 0, "currency": "KES"})),
    Construction(
        "a price of zero, and zero paid",
        stating({"amount": 0, "currency": "KES"}, {"amount": 0, "currency": "KES"}),
    ),
    Construction("a price of one minor unit", stating({"amount": 0.01, "currency": "KES"})),
    Construction("a negative price", stating({"amount": -1, "currency": "KES"})),
    Construction(
        "the price's number in a currency worth less",
        stating({"amount": 1500, "currency": "UGX"}, {"amount": 1500, "currency": "UGX"}),
    ),
    Construction("a price without a currency", stating({"amount": 10})),
    Construction("a price as a text", stating({"amount": "10", "currency": "KES"})),
    Construction("a far higher price", stating({"amount": 10**9, "currency": "KES"})),
    Construction(
        "another price in an event that is pending",
        stating({"amount": 10, "currency": "KES"}, type="payment.pending"),
    ),
    Construction(
        "another price in an event of an unknown kind",
        stating({"amount": 10, "currency": "KES"}, type="order.repriced"),
    ),
    Construction(
        "two prices by two events",
        events(
            lambda t: t.stranger("p", order={"amount": 10, "currency": "KES"}, payment=TEN),
            lambda t: t.stranger("q", order={"amount": 20, "currency": "KES"}, payment=TEN),
        ),
    ),
    Construction(
        "a payment of no stated amount, of an order that is said to cost ten",
        events(lambda t: t.stranger("p", order=TEN, payment={"amount": None, "currency": "KES"})),
    ),
]


async def test_no_event_says_what_an_order_costs(tmp_path: Path) -> None:
    """The shop has: whatever a payment's event states of the order, its price stands."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        assert await Play(driver, "PRI").breaks(BY_EVENTS) == []


# --- without a record of the shop -----------------------------------------------------------------

LIVE: dict[str, Any] = OPEN | {"ENVIRONMENT": "live"}


async def nothing(target: Target) -> None:
    """The shop has said nothing of the order."""
    await target.send(target.event("seen", "pending"))


async def told_at_last(target: Target) -> None:
    """The genuine payment, and now the shop's own word."""
    assert await target.send(target.event("paid")) == 200
    assert await target.put() == 200


@pytest.mark.disk
async def test_in_live_an_event_alone_pays_no_order(tmp_path: Path) -> None:
    """The record is required there unless somebody switched that off by name."""
    async with driving(tmp_path, with_worker=False, **LIVE) as driver:
        driver.clock.put(T + MINUTE)
        play = Play(driver, "REQ", placed=nothing, paid=told_at_last, environment="live")
        assert await play.breaks(BY_EVENTS) == []


@pytest.mark.disk
async def test_switched_off_they_would(tmp_path: Path) -> None:
    """Then an order is paid at the price that its event states."""
    async with driving(tmp_path, with_worker=False, **LIVE, REQUIRE_ORDER_RECORD="off") as driver:
        driver.clock.put(T + MINUTE)
        play = Play(driver, "OFF", placed=nothing, paid=told_at_last, environment="live")
        broken = await play.breaks(BY_EVENTS[:1])
    assert [each for each in broken if "an unpaid order is fulfillable" in each] != []


async def test_a_session_that_was_asked_for_here_fixes_the_price(tmp_path: Path) -> None:
    """It is the shop's word as a record is: no event lowers it."""
    names = [f"SES{state}{n:03}A2" for state in "up" for n in range(len(BY_EVENTS))]
    async with service(*(opened(f"cs-{name}") for name in names)) as pay:
        checkout: dict[str, Any] = {
            "CHECKOUT__BASE_URL": f"http://127.0.0.1:{pay.port}",
            "CHECKOUT__TOKEN": TOKEN,
            "REQUIRE_ORDER_RECORD": "on",
        }
        async with driving(tmp_path, with_worker=False, **OPEN, **checkout) as driver:
            driver.clock.put(T + MINUTE)
            assert await Play(driver, "SES", placed=started).breaks(BY_EVENTS) == []


async def started(target: Target) -> None:
    """The shop has us open a session."""
    asked = {
        "order": {"reference": target.order, **PRICE},
        "customer": {"phone": "254700000001"},
        "return_urls": {"success": "https://s.test/a", "cancel": "https://s.test/b"},
    }
    answer = await target.driver.api("POST", "/checkout/sessions", json=asked)
    assert answer.status_code == 201


# --- tokens ---------------------------------------------------------------------------------------


def telling(token: str, *statuses: int, pay_ten: bool = True, **told: Any) -> Act:
    """A PUT with this token, after ten were paid, or with none at all."""

    async def does(target: Target) -> None:
        if pay_ten:
            assert await target.send(target.stranger("ten", payment=TEN)) == 200
        given = TOKENS.get(token, token)
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        client = target.driver.client
        path = f"/api/v1/orders/{target.order}"
        answer = await client.put(path, json=CHEAP | told, headers=headers)
        assert answer.status_code in statuses, answer.status_code

    return does


TOKENS: dict[str, str] = {}
"""Of the service that is running, by what they are."""


async def issue(driver: Driver) -> None:
    """A token for each scope, one that has ended and one that was revoked."""
    for name in ("read", "checkout", "finance", "evidence"):
        TOKENS[name] = await issue_token(driver.context, name=name, scopes=[name])
    TOKENS["ended"] = await issue_token(driver.context, name="ended", until="1h")
    TOKENS["revoked"] = await issue_token(driver.context, name="revoked")
    await withdraw_token(driver.context, name="revoked")
    driver.clock.put(T + HOUR)


NOT_ITS_OWN = [
    Construction("no token", telling("", 401)),
    Construction("a token that was made up", telling("thk_sandbox_" + "A" * 43, 401)),
    Construction("a token for reading", telling("read", 403)),
    Construction("a token for starting payments", telling("checkout", 403)),
    Construction("a token for finance", telling("finance", 403)),
    Construction("a token for evidence", telling("evidence", 403)),
    Construction("a token that has ended", telling("ended", 401)),
    Construction("a token that was revoked", telling("revoked", 401)),
    Construction(
        "a cancellation with a token for reading",
        telling("read", 403, canceled_at="2026-11-20T10:00:00Z"),
    ),
    Construction(
        "a higher price with a token that has ended", telling("ended", 401, amount="9999.00")
    ),
    Construction(
        "a price in another currency with a token for reading", telling("read", 403, currency="UGX")
    ),
    Construction(
        "a stranger's payment named as its own with a token for reading",
        telling("read", 403, references=[{"source": "shop", "payment": "theirs"}]),
    ),
]

MALFORMED = [
    Construction("a price of zero", telling("shop", 422, amount="0.00")),
    Construction("a negative price", telling("shop", 422, amount="-10.00")),
    Construction("a price of a fraction of a minor unit", telling("shop", 422, amount="0.001")),
    Construction("a price that is true", telling("shop", 422, amount=True)),
    Construction("a price without end", telling("shop", 422, amount="1e-9")),
    Construction("a price in a currency that does not exist", telling("shop", 422, currency="KSH")),
    Construction("a price in small letters", telling("shop", 422, currency="kes")),
    Construction(
        "a price in digits of another script", telling("shop", 422, amount="\u0661\u0660")
    ),
]


async def test_a_token_that_is_not_for_orders_changes_no_price(tmp_path: Path) -> None:
    """Nor does a price that is none, whoever tells it."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        await issue(driver)
        TOKENS["shop"] = driver.token = await issue_token(driver.context, name="shop")
        assert await Play(driver, "TOK").breaks(NOT_ITS_OWN + MALFORMED) == []


async def test_where_scopes_and_ends_mean_nothing_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each PUT that is refused above then pays its order with ten shillings."""

    async def anyone(*given: Any, **words: Any) -> str:
        return "anyone"

    monkeypatch.setattr(web_api, "admit", anyone)
    careless = [
        Construction(name, telling(name, 200)) for name in ("read", "checkout", "ended", "revoked")
    ]
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        await issue(driver)
        broken = await Play(driver, "TOK").breaks(careless)
    lowered = [each.partition(":")[0] for each in broken if "unpaid" in each]
    assert lowered == [each.says for each in careless]


async def test_a_price_that_a_token_for_orders_lowers_is_seen(tmp_path: Path) -> None:
    """It is the shop's own word: the order is paid at it, and says with both prices who changed
    it, in the ledger and in the trail."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        target = Target(driver, "LOW-1")
        assert await target.put() == 200
        assert await target.send(target.stranger("ten", payment=TEN)) == 200
        assert not (await target.ledger())["fulfillable"]
        told = await issue_token(driver.context, name="warehouse", scopes=["orders"])
        bearer = {"Authorization": f"Bearer {told}"}
        address = "/api/v1/orders/LOW-1"
        answer = await driver.client.put(address, json=CHEAP, headers=bearer)
        assert answer.status_code == 200
        ledger = await target.ledger()
        (found,) = [each for each in ledger["findings"] if each["code"] == "price_changed"]
        assert found["severity"] == "warning"
        for word in ("1500.00", "10.00", "token:warehouse"):
            assert word in found["sentence"].replace(",", ""), found
        trail = driver.rows("SELECT * FROM audit WHERE action='price_changed'")
        assert "warehouse" in str(trail)
