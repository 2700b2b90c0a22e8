"""Prices that the shop did not state: by an event, by another token, or none; and a price that the
shop's own token lowers."""

from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import issue_token, withdraw_token
from app.api import routes as web_api
from reconcile.instants import HOUR, MINUTE
from tests.api.driving import Driver, driving
from tests.checkout.service import TOKEN, opened, service
from tests.reconcile.build import T
from tests.security.playing import OPEN, PRICE, Act, Play, Target, events

pytestmark = pytest.mark.slow

CHEAP = {"amount": "10.00", "currency": "KES"}
TEN = {"amount": 10, "currency": "KES"}


def stating(price: dict[str, Any], paid: dict[str, Any] = TEN, **more: Any) -> Act:
    """Pay as a stranger, by an event that states this price of the order."""
    return events(lambda t: t.stranger("p", order=price, payment=paid, **more))


BY_EVENTS = {
    "the price that was paid": stating(TEN),
    "a price of zero": stating({"amount": 0, "currency": "KES"}),
    "a price of zero, and zero paid": stating(
        {"amount": 0, "currency": "KES"}, {"amount": 0, "currency": "KES"}
    ),
    "a price of one minor unit": stating({"amount": 0.01, "currency": "KES"}),
    "a negative price": stating({"amount": -1, "currency": "KES"}),
    "the price's number in a currency worth less": stating(
        {"amount": 1500, "currency": "UGX"}, {"amount": 1500, "currency": "UGX"}
    ),
    "a price without a currency": stating({"amount": 10}),
    "a price as a text": stating({"amount": "10", "currency": "KES"}),
    "a far higher price": stating({"amount": 10**9, "currency": "KES"}),
    "another price in an event that is pending": stating(TEN, type="payment.pending"),
    "another price in an event of an unknown kind": stating(TEN, type="order.repriced"),
    "two prices by two events": events(
        lambda t: t.stranger("p", order=TEN, payment=TEN),
        lambda t: t.stranger("q", order={"amount": 20, "currency": "KES"}, payment=TEN),
    ),
    "a payment of no stated amount, of an order that is said to cost ten": events(
        lambda t: t.stranger("p", order=TEN, payment={"amount": None, "currency": "KES"})
    ),
}


async def test_no_event_says_what_an_order_costs(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        assert await Play(driver, "PRI").breaks(BY_EVENTS) == []


# --- without a record of the shop -----------------------------------------------------------------

LIVE: dict[str, Any] = OPEN | {"ENVIRONMENT": "live"}


async def nothing(target: Target) -> None:
    """Let a pending event come without any word of the shop."""
    await target.send(target.event("seen", "pending"))


async def told_at_last(target: Target) -> None:
    """Pay genuinely, and now let the shop state the price."""
    assert await target.send(target.event("paid")) == 200
    assert await target.put() == 200


@pytest.mark.disk
async def test_in_live_an_event_alone_pays_no_order(tmp_path: Path) -> None:
    """The shop's record is required there unless a setting says otherwise."""
    async with driving(tmp_path, with_worker=False, **LIVE) as driver:
        driver.clock.put(T + MINUTE)
        play = Play(driver, "REQ", placed=nothing, paid=told_at_last, environment="live")
        assert await play.breaks(BY_EVENTS) == []


@pytest.mark.disk
async def test_switched_off_they_would(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **LIVE, REQUIRE_ORDER_RECORD="off") as driver:
        driver.clock.put(T + MINUTE)
        play = Play(driver, "OFF", placed=nothing, paid=told_at_last, environment="live")
        broken = await play.breaks(
            {"the price that was paid": BY_EVENTS["the price that was paid"]}
        )
    assert [each for each in broken if "an unpaid order is fulfillable" in each] != []


async def test_a_session_that_was_asked_for_here_fixes_the_price(tmp_path: Path) -> None:
    """No event lowers it, as none lowers a record."""
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
    """Let the shop open a session here."""
    asked = {
        "order": {"reference": target.order, **PRICE},
        "customer": {"phone": "254700000001"},
        "return_urls": {"success": "https://s.test/a", "cancel": "https://s.test/b"},
    }
    answer = await target.driver.api("POST", "/checkout/sessions", json=asked)
    assert answer.status_code == 201


# --- tokens ---------------------------------------------------------------------------------------


def telling(token: str, status: int, **stated: Any) -> Act:
    """Pay ten, then PUT a price of ten with this token, or with none."""

    async def does(target: Target) -> None:
        assert await target.send(target.stranger("ten", payment=TEN)) == 200
        given = TOKENS.get(token, token)
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        client = target.driver.client
        path = f"/api/v1/orders/{target.order}"
        answer = await client.put(path, json=CHEAP | stated, headers=headers)
        assert answer.status_code == status, answer.status_code

    return does


TOKENS: dict[str, str] = {}
"""Tokens of the running service by name."""


async def issue(driver: Driver) -> None:
    """Issue a token for each scope, one that has ended, and one that is revoked."""
    for name in ("read", "checkout", "finance", "evidence"):
        TOKENS[name] = await issue_token(driver.context, name=name, scopes=[name])
    TOKENS["ended"] = await issue_token(driver.context, name="ended", until="1h")
    TOKENS["revoked"] = await issue_token(driver.context, name="revoked")
    await withdraw_token(driver.context, name="revoked")
    driver.clock.put(T + HOUR)


NOT_ITS_OWN = {
    "no token": telling("", 401),
    "a token that was made up": telling("thk_sandbox_" + "A" * 43, 401),
    "a token for reading": telling("read", 403),
    "a token for starting payments": telling("checkout", 403),
    "a token for finance": telling("finance", 403),
    "a token for evidence": telling("evidence", 403),
    "a token that has ended": telling("ended", 401),
    "a token that was revoked": telling("revoked", 401),
    "a cancellation with a token for reading": telling(
        "read", 403, canceled_at="2026-11-20T10:00:00Z"
    ),
    "a higher price with a token that has ended": telling("ended", 401, amount="9999.00"),
    "a price in another currency with a token for reading": telling("read", 403, currency="UGX"),
    "a stranger's payment named as its own with a token for reading": telling(
        "read", 403, references=[{"source": "shop", "payment": "theirs"}]
    ),
}

MALFORMED = {
    "a price of zero": telling("shop", 422, amount="0.00"),
    "a negative price": telling("shop", 422, amount="-10.00"),
    "a price of a fraction of a minor unit": telling("shop", 422, amount="0.001"),
    "a price that is true": telling("shop", 422, amount=True),
    "a price without end": telling("shop", 422, amount="1e-9"),
    "a price in a currency that does not exist": telling("shop", 422, currency="KSH"),
    "a price in small letters": telling("shop", 422, currency="kes"),
    "a price in digits of another script": telling("shop", 422, amount="\u0661\u0660"),
}


async def test_a_token_that_is_not_for_orders_changes_no_price(tmp_path: Path) -> None:
    """Neither does an invalid price, whoever states it."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        await issue(driver)
        TOKENS["shop"] = driver.token = await issue_token(driver.context, name="shop")
        assert await Play(driver, "TOK").breaks(NOT_ITS_OWN | MALFORMED) == []


async def test_where_scopes_and_ends_mean_nothing_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each PUT that is refused above then lets ten shillings pay its order."""

    async def anyone(*given: Any, **words: Any) -> str:
        return "anyone"

    monkeypatch.setattr(web_api, "admit", anyone)
    careless = {name: telling(name, 200) for name in ("read", "checkout", "ended", "revoked")}
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        await issue(driver)
        broken = await Play(driver, "TOK").breaks(careless)
    lowered = [each.partition(":")[0] for each in broken if "unpaid" in each]
    assert lowered == [*careless]


async def test_a_price_that_a_token_for_orders_lowers_is_seen(tmp_path: Path) -> None:
    """Ledger and trail have both prices and the token that changed them."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        target = Target(driver, "LOW-1")
        assert await target.put() == 200
        assert await target.send(target.stranger("ten", payment=TEN)) == 200
        assert not (await target.ledger())["fulfillable"]
        token = await issue_token(driver.context, name="warehouse", scopes=["orders"])
        bearer = {"Authorization": f"Bearer {token}"}
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
