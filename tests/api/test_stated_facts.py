"""Facts that the shop states about its orders are returned: shipped, canceled, free, paid
otherwise."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.context.configured import signer_of_section
from app.orders.notify_shop import Notifier, Shop, notify_due
from app.orders.refold import refold_until_quiet
from app.privacy.backup import after_restore
from app.privacy.replay_erasures import ErasureReplay
from reconcile.instants import HOUR, MINUTE, Instant, format_instant
from reconcile.ledger.plain import FORGOTTEN, STATE_AGAIN
from tests.api.driving import Driver, driving, event
from tests.reconcile.build import T

PRICE = {"amount": "1500.00", "currency": "KES"}
SHIPPED, LATER = "2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0"


async def put(driver: Driver, order: str = "ORD-1", **more: Any) -> dict[str, Any]:
    """State facts of an order, and return the answer's document."""
    answer = await driver.api("PUT", f"/orders/{order}", json={**PRICE, **more})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def seen(driver: Driver, order: str = "ORD-1") -> list[tuple[Any, Any]]:
    """Return (fulfilled_at, canceled_at) in the document, the list and the feed."""
    await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
    document = (await driver.api("GET", f"/orders/{order}")).json()
    (row,) = (await driver.api("GET", "/orders")).json()["orders"]
    *_, entry = (await driver.api("GET", "/outcomes")).json()["outcomes"]
    return [(each["fulfilled_at"], each["canceled_at"]) for each in (document, row, entry)]


async def test_what_the_shop_stated_is_in_every_answer_as_of_the_reading(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await put(driver)
        await driver.send(event("e1"))
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
        assert await seen(driver) == [(None, None)] * 3
        await put(driver, fulfilled_at=SHIPPED)
        assert await seen(driver) == [(SHIPPED, None)] * 3
        await put(driver)  # an absent member states nothing
        assert await seen(driver) == [(SHIPPED, None)] * 3
        await put(driver, fulfilled_at=None, canceled_at=LATER)
        assert await seen(driver) == [(None, LATER)] * 3
        first, *_ = (await driver.api("GET", "/outcomes")).json()["outcomes"]
        assert (first["fulfillable"], first["canceled_at"]) == (True, LATER)


async def test_a_notification_has_what_is_stated_when_it_is_sent(tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []

    async def take(request: Request) -> Response:
        sent.append((await request.json())["data"])
        return Response(status_code=503 if len(sent) == 1 else 204)

    shop: dict[str, Any] = {"SHOP__URL": "http://127.0.0.1:9/", "SHOP__SECRET": SECRET}
    async with driving(tmp_path, with_worker=False, **shop) as driver:
        await driver.send(event("e1"))
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
        app = Starlette(routes=[Route("/", take, methods=["POST"])])
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            told = Shop(url="http://shop/", signer=signer_of_section("shop", SecretStr(SECRET)))
            notifier = Notifier(context=driver.context, shop=told, client=client)
            await notify_due(notifier)
            await put(driver, fulfilled_at=SHIPPED)
            driver.clock.put(driver.clock.now() + HOUR)
            await notify_due(notifier)
    assert [each["fulfilled_at"] for each in sent] == [None, SHIPPED]
    assert sent[0]["id"] == sent[1]["id"]


async def test_null_takes_back_what_was_stated_and_is_written_once(driver: Driver) -> None:
    steps = (
        ({"fulfilled_at": SHIPPED}, SHIPPED),
        ({"fulfilled_at": SHIPPED}, SHIPPED),
        ({"fulfilled_at": None}, None),
        ({"fulfilled_at": None}, None),
        ({"fulfilled_at": SHIPPED}, SHIPPED),
    )
    for body, wanted in steps:
        driver.clock.put(driver.clock.now() + MINUTE)
        assert (await put(driver, **body))["fulfilled_at"] == wanted
    kinds = driver.rows("SELECT kind FROM records ORDER BY recorded_at, id")
    assert [kind for (kind,) in kinds if kind != "order_placed"] == [
        "order_fulfilled",
        "order_not_fulfilled",
        "order_fulfilled",
    ]


async def test_a_cancellation_that_is_taken_back_lets_the_order_ship(driver: Driver) -> None:
    await driver.send(event("e1"))
    assert not (await put(driver, canceled_at=SHIPPED))["fulfillable"]
    driver.clock.put(T + HOUR)
    assert (await put(driver, canceled_at=None))["fulfillable"]


async def test_what_was_known_then_is_shown_then(driver: Driver) -> None:
    await put(driver)
    before = driver.clock.now()
    driver.clock.put(before + MINUTE)
    await put(driver, fulfilled_at=SHIPPED)
    document = await driver.api("GET", f"/orders/ORD-1?as_of={format_instant(before)}")
    assert document.json()["fulfilled_at"] is None


# --- after a restore of Tallyhook -----------------------------------------------------------------


async def restored(driver: Driver) -> None:
    """Record that the driver's database was restored from a backup just now."""
    again = ErasureReplay(driver.context, progress=lambda count: None)
    await after_restore(again, without=None)


async def test_after_a_restore_nothing_is_known_that_was_not_stated(tmp_path: Path) -> None:
    """Until the shop states it: also what it denied before the backup may have happened since."""
    async with driving(tmp_path, with_worker=False) as driver:
        await put(driver, "SHIPPED", fulfilled_at=SHIPPED)
        await put(driver, "DENIED", fulfilled_at=None, canceled_at=None)
        await put(driver, "OPEN")
        driver.clock.put(T + HOUR)
        await restored(driver)

        async def stated(order: str) -> tuple[Any, Any]:
            found = (await driver.api("GET", f"/orders/{order}")).json()
            return found["fulfilled_at"], found["canceled_at"]

        assert await stated("SHIPPED") == (SHIPPED, "unknown")
        assert await stated("DENIED") == ("unknown", "unknown")
        assert await stated("OPEN") == ("unknown", "unknown")
        driver.clock.put(T + 2 * HOUR)
        await put(driver, "OPEN", fulfilled_at=None)
        await put(driver, "DENIED", fulfilled_at=LATER, canceled_at=None)
        assert await stated("OPEN") == (None, "unknown")
        assert await stated("DENIED") == (LATER, None)


async def test_nobody_reads_that_an_order_can_be_shipped_which_may_have_been(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await put(driver)
        await driver.send(event("e1"))
        driver.clock.put(T + HOUR)
        await restored(driver)
        found = (await driver.api("GET", "/orders/ORD-1")).json()
        assert (found["fulfillable"], found["fulfilled_at"]) == (True, "unknown")
        assert FORGOTTEN in found["plain"]["answer"]
        assert found["staff"][0] == STATE_AGAIN
        driver.clock.put(T + 2 * HOUR)
        found = await put(driver, fulfilled_at=None)
        assert "The order can be shipped." in found["plain"]["answer"]


@pytest.mark.parametrize(
    ("dated", "wanted"),
    [(T + 30 * MINUTE, "unknown"), (T + 90 * MINUTE, None)],
    ids=["an event of before the restore, redelivered", "an event of after the restore"],
)
async def test_only_an_order_that_began_after_the_restore_is_known(
    tmp_path: Path, dated: Instant, wanted: str | None
) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        driver.clock.put(T + HOUR)
        await restored(driver)
        driver.clock.put(T + 2 * HOUR)
        await put(driver)
        await driver.send(event("e1", occurred_at=format_instant(dated)))
        assert (await seen(driver))[0] == (wanted, wanted)
        await put(driver, placed_at=format_instant(T))
        assert (await seen(driver))[0] == ("unknown", "unknown")


# --- free orders and tenders ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"amount": "0"}, '"free": true'),
        ({"amount": 0, "free": False}, '"free": true'),
        ({"amount": "1.00", "free": True}, "free may be true only with the amount 0"),
        ({"amount": "0", "free": "yes"}, "free must be true or false"),
        ({"tenders": "30"}, "tenders must be a list"),
        ({"tenders": [{"kind": "gift_card", "amount": "1.00"}] * 21}, "tenders must be a list"),
        ({"tenders": ["30"]}, "tenders[0] must have a kind and an amount"),
        ({"tenders": [{"kind": "gift_card"}]}, "tenders[0] must have a kind and an amount"),
        ({"tenders": [{"kind": "gift card 1234", "amount": "1.00"}]}, "tenders[0].kind"),
        ({"tenders": [{"kind": 7, "amount": "1.00"}]}, "tenders[0].kind"),
        ({"tenders": [{"kind": "gift_card", "amount": "0.00"}]}, "more than zero"),
        ({"tenders": [{"kind": "gift_card", "amount": "1.001"}]}, "decimals"),
        ({"tenders": [{"kind": "gift_card", "amount": "1500.01"}]}, "must not exceed the amount"),
        ({"tenders": [{"kind": "a", "amount": "800"}] * 2}, "must not exceed the amount"),
        (
            {"amount": "0", "free": True, "tenders": [{"kind": "a", "amount": "1"}]},
            "must not exceed",
        ),
    ],
)
async def test_each_mistake_of_a_price_is_named(
    one_driver: Driver, body: dict[str, Any], word: str
) -> None:
    answer = await one_driver.api("PUT", "/orders/NONE", json={**PRICE, **body})
    assert answer.status_code == 422
    assert word in answer.json()["detail"]
    assert one_driver.rows("SELECT * FROM records WHERE order_key='NONE'") == []


async def test_a_free_order_ships_when_its_session_ended_with_zero(driver: Driver) -> None:
    document = await put(driver, amount="0", free=True)
    assert (document["outcome"], document["fulfillable"]) == ("not_attempted", False)
    await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
    assert (await driver.api("GET", "/outcomes")).json()["outcomes"] == []
    nothing = {"amount": 0, "currency": "KES"}
    await driver.send(
        event("e1", order={"reference": "ORD-1", **nothing}, payment={"reference": "p", **nothing})
    )
    document = (await driver.api("GET", "/orders/ORD-1")).json()
    assert (document["outcome"], document["fulfillable"]) == ("succeeded", True)


async def test_tenders_stay_until_the_shop_states_others(driver: Driver) -> None:
    """What is due is the price less the tenders."""
    card = [{"kind": "gift_card", "amount": "500.00"}]
    steps: tuple[tuple[dict[str, Any], str], ...] = (
        ({"tenders": card}, "1000.00"),
        ({}, "1000.00"),
        ({"amount": "1600.00"}, "1100.00"),
        ({"amount": "1600.00", "tenders": []}, "1600.00"),
        ({"amount": "1600.00", "tenders": [*card, *card]}, "600.00"),
    )
    for body, due in steps:
        driver.clock.put(driver.clock.now() + MINUTE)
        totals = (await put(driver, **body))["totals"]
        assert totals["expected"] == {"amount": due, "currency": "KES"}
    assert totals["price"] == {"amount": "1600.00", "currency": "KES"}
    assert [each["amount"] for each in totals["tenders"]] == ["500.00", "500.00"]


@pytest.mark.parametrize(
    "body", [{"amount": "400.00"}, {"currency": "USD"}], ids=["a lower price", "another currency"]
)
async def test_a_price_that_earlier_tenders_do_not_fit_is_refused(
    driver: Driver, body: dict[str, str]
) -> None:
    await put(driver, tenders=[{"kind": "gift_card", "amount": "500.00"}])
    answer = await driver.api("PUT", "/orders/ORD-1", json={**PRICE, **body})
    assert answer.status_code == 422
    assert "tenders of order ORD-1 are KES 500.00" in answer.json()["detail"]
    assert len(driver.rows("SELECT * FROM records")) == 1


async def test_tenders_that_change_what_is_due_are_in_the_trail(driver: Driver) -> None:
    await put(driver)
    driver.clock.put(T + HOUR)
    document = await put(driver, tenders=[{"kind": "store_credit", "amount": "1499.00"}])
    assert "price_changed" in [each["code"] for each in document["findings"]]
    (facts,) = driver.rows("SELECT facts FROM audit WHERE action='price_changed'")
    assert json.loads(facts[0]) == {"before": "KES 1,500.00", "after": "KES 1.00"}
