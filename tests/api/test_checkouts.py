"""The shop starts a payment through the API: only once despite repeats, with clear error
messages."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reconcile.instants import HOUR, MINUTE, SECOND, Duration, parse_instant
from tests.api.driving import Driver, driving, event
from tests.checkout.service import (
    EXPIRES,
    PHONE,
    TOKEN,
    Service,
    Write,
    answer,
    opened,
    service,
)
from tests.searching import every
from tests.waiting import PATIENCE_S, soon

PATH = "/checkout/sessions"
ASKED: dict[str, Any] = {
    "order": {"reference": "ORD-1", "amount": "1500.00", "currency": "KES"},
    "customer": {"phone": PHONE},
    "return_urls": {"success": "https://shop.test/ok", "cancel": "https://shop.test/no"},
}


@asynccontextmanager
async def shop(folder: Path, *script: Write, **more: Any) -> AsyncIterator[tuple[Driver, Service]]:
    """Run our service beside a payment service that follows the script."""
    async with service(*script) as pay:
        settings: dict[str, Any] = {
            "CHECKOUT__BASE_URL": f"http://127.0.0.1:{pay.port}",
            "CHECKOUT__TOKEN": TOKEN,
            **more,
        }
        async with driving(folder, **settings) as driver:
            yield driver, pay


async def start(driver: Driver, **changes: Any) -> httpx2.Response:
    """Request an order's session. `changes` replace members of its `order`, or beside it."""
    order = {k: v for k, v in changes.items() if k in ASKED["order"]}
    rest = {k: v for k, v in changes.items() if k not in order}
    return await driver.api("POST", PATH, json=ASKED | {"order": ASKED["order"] | order} | rest)


def code(response: httpx2.Response) -> tuple[int, str]:
    """Return the status and code of a refusal, which must be a problem document."""
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


async def test_the_first_call_opens_and_the_next_finds(tmp_path: Path) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        first, again = await start(driver), await start(driver, amount=1500)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.json() == {
        "reference": "cs_1",
        "status": "open",
        "checkout_url": "https://pay.test/checkout/cs_1",
        "expires_at": "2026-11-20T10:30:00Z",
        "order": {"reference": "ORD-1"},
        "idempotency_key": pay.seen[0].key,
    }
    assert len(pay.seen) == 1
    assert pay.seen[0].document["order"]["amount"] == Decimal(1500)


async def test_other_money_is_a_conflict_with_both(tmp_path: Path) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        await start(driver)
        for changes in ({"amount": "1600"}, {"currency": "USD"}):
            refused = await start(driver, **changes)
            assert code(refused) == (409, "payment_differs")
            now = {"amount": "1500.00", "currency": "KES"}
            assert refused.json()["before"] == now
            assert refused.json()["asked"] == now | changes | (
                {"amount": "1600.00"} if "amount" in changes else {}
            )
    assert len(pay.seen) == 1


async def test_a_first_start_over_another_amount_than_the_shop_has_put_sends_nothing(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        price = {"amount": "1600.00", "currency": "KES"}
        await driver.api("PUT", "/orders/ORD-1", json=price)
        refused = await start(driver)
        assert code(refused) == (409, "payment_differs")
        assert refused.json()["before"] == price
        assert refused.json()["asked"] == {"amount": "1500.00", "currency": "KES"}
        assert "costs KES 1,600.00" in refused.json()["detail"]
        assert pay.seen == []
        assert (await driver.api("GET", "/orders/ORD-1")).json()["outcome"] == "not_attempted"
        await driver.api("PUT", "/orders/ORD-1", json=price | {"amount": "1500.00"})
        assert (await start(driver)).status_code == 201
    assert len(pay.seen) == 1


async def test_a_first_start_is_over_what_is_due_beside_tenders(tmp_path: Path) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        card = {"tenders": [{"kind": "gift_card", "amount": "500.00"}]}
        price = {"amount": "2000.00", "currency": "KES"}
        await driver.api("PUT", "/orders/ORD-1", json=price | card)
        refused = await start(driver, amount="2000.00")
        assert code(refused) == (409, "payment_differs")
        assert refused.json()["before"] == {"amount": "1500.00", "currency": "KES"}
        assert "of which KES 1,500.00 is left to pay after tenders" in refused.json()["detail"]
        assert (await start(driver)).status_code == 201
    assert len(pay.seen) == 1


async def test_other_details_are_a_conflict_only_while_the_answer_is_open(tmp_path: Path) -> None:
    """The idempotency key goes with the bytes; both requests have the same price."""
    urls = {"return_urls": ASKED["return_urls"] | {"success": "https://shop.test/ok?try=2"}}
    async with shop(tmp_path, answer(302), opened()) as (driver, _pay):
        assert (await start(driver)).status_code == 202
        refused = await start(driver, **urls)
        assert code(refused) == (409, "payment_differs")
        assert refused.json()["before"] == refused.json()["asked"]
        assert "other return URLs; nothing was sent" in refused.json()["detail"]
        assert (await start(driver)).json()["status"] == "open"
        assert (await start(driver, **urls)).json()["status"] == "open"


async def test_two_hundred_calls_at_once_make_one_request(tmp_path: Path) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        await driver.api("GET", "/orders")  # the token
        answers = await asyncio.gather(*(start(driver) for _ in range(200)))
        assert sorted(each.status_code for each in answers) == [200] * 199 + [201]
        assert {each.json()["reference"] for each in answers} == {"cs_1"}
    assert len(pay.seen) == 1


async def cancel(driver: Driver) -> None:
    facts = {"amount": "1500.00", "currency": "KES", "canceled_at": "2026-11-20T09:00:00Z"}
    assert (await driver.api("PUT", "/orders/ORD-1", json=facts)).status_code == 200


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("new_payment", [False, True])
async def test_no_payment_of_an_order_that_the_shop_has_canceled(
    tmp_path: Path, begun: bool, new_payment: bool
) -> None:
    """Nothing is sent and no open session is returned: a payment would be owed back."""
    async with shop(tmp_path, opened(), opened("cs_2")) as (driver, pay):
        if begun:
            assert (await start(driver)).status_code == 201
            declined = event("e1", "declined", session={"reference": "cs_1"})
            assert (await driver.send(declined)).status_code == 200
        await cancel(driver)
        refused = await start(driver, new_payment=new_payment)
    assert code(refused) == (409, "order_canceled")
    assert "at 2026-11-20T09:00:00Z" in refused.json()["detail"]
    assert len(pay.seen) == begun


async def test_a_paid_order_that_was_canceled_is_called_paid(tmp_path: Path) -> None:
    async with shop(tmp_path, opened()) as (driver, _pay):
        await start(driver)
        await driver.send(event("e1"))
        await cancel(driver)
        assert (await start(driver)).json()["status"] == "paid"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ([event("e1")], "paid"),
        ([event("e1"), event("e2", "refunded", refund={"reference": "r", "amount": 1500})], "paid"),
        ([event("e1"), event("e2", "disputed")], "paid"),
        ([event("e1", payment={"amount": 1400})], "open"),
        ([event("e1", "pending")], "open"),
        ([event("e1", "declined")], "open"),
    ],
)
async def test_an_order_that_is_paid_is_called_paid_and_nothing_is_sent(
    tmp_path: Path, said: list[dict[str, Any]], status: str
) -> None:
    """It holds whatever became of the money later, but not where too little was paid."""
    async with shop(tmp_path, opened()) as (driver, pay):
        first = await start(driver)
        for each in said:
            assert (await driver.send(each)).status_code == 200
        again = await start(driver)
    assert again.status_code == 200
    body = again.json()
    detail = body.pop("detail", "")
    url = {"checkout_url": None} if status == "paid" else {}
    assert body == first.json() | {"status": status} | url
    assert ("paid, according to the verified event e1" in detail) == (status == "paid")
    assert len(pay.seen) == 1


@pytest.mark.parametrize("begun", [False, True], ids=["first payment", "new payment"])
async def test_what_comes_while_the_service_is_asked_is_looked_at(
    tmp_path: Path, begun: bool
) -> None:
    """A payment by other means, or a cancellation, arrives meanwhile. The customer is not sent to
    the session opened then."""
    meanwhile: list[Callable[[], Awaitable[Any]]] = []

    async def slowly(writer: asyncio.StreamWriter) -> None:
        await meanwhile.pop()()
        await opened("cs_2")(writer)

    first = [opened("cs_1")] if begun else []
    async with shop(tmp_path, *first, slowly) as (driver, pay):
        if begun:
            await start(driver)
            await driver.send(event("e0", "declined"))
        other = event("e1", session=None, payment={"reference": "pay_2"})
        meanwhile.append(lambda: driver.send(other))
        paid = await start(driver, new_payment=begun)
        assert (paid.status_code, paid.json()["status"]) == (200, "paid")
        assert "verified event e1" in paid.json()["detail"]
        assert paid.json()["checkout_url"] is None
        assert "was opened in the meantime; send no customer there" in paid.json()["detail"]
        assert len(pay.seen) == 1 + begun
    (tmp_path / "other").mkdir()
    async with shop(tmp_path / "other", slowly) as (driver, pay):
        meanwhile.append(lambda: cancel(driver))
        canceled = await start(driver)
        assert code(canceled) == (409, "order_canceled")
        assert "Its session cs_2 was opened in the meantime" in canceled.json()["detail"]


OTHER: dict[str, Any] = {"session": None, "payment": {"reference": "pay_2"}}

IN_DOUBT: dict[str, list[dict[str, Any]]] = {
    "amount": [
        event("e1", **OTHER),
        event("e2", session=None, payment={**OTHER["payment"], "amount": 1400}),
    ],
    "currency": [event("e1", session=None, payment={**OTHER["payment"], "currency": "USD"})],
    "refund": [event("e1", "refunded", **OTHER, refund={"reference": "r", "amount": 1500})],
}


@pytest.mark.parametrize("said", IN_DOUBT.values(), ids=IN_DOUBT.keys())
async def test_where_it_is_in_doubt_what_was_paid_nobody_is_sent_to_pay(
    tmp_path: Path, said: list[dict[str, Any]]
) -> None:
    """Neither an open session nor a new one is returned: the customer might pay twice."""
    async with shop(tmp_path, opened()) as (driver, pay):
        await driver.send(event("e0", "pending", order={"reference": "ORD-2"}))
        await start(driver)
        for each in (*said, *({**e, "id": f"{e['id']}-2"} for e in map(of_second, said))):
            assert (await driver.send(each)).status_code == 200
        for reference in ("ORD-1", "ORD-2"):
            for new_payment in (False, True):
                found = await start(driver, reference=reference, new_payment=new_payment)
                assert (found.status_code, found.json()["status"]) == (200, "unresolved"), reference
                assert "is not settled" in found.json()["detail"]
                assert found.json()["checkout_url"] is None
    assert len(pay.seen) == 1


def of_second(said: dict[str, Any]) -> dict[str, Any]:
    """Return the same event for another order and payment."""
    data = said["data"]
    order = {**data["order"], "reference": "ORD-2"}
    return {
        **said,
        "data": {**data, "order": order, "payment": {**data["payment"], "reference": "p"}},
    }


@pytest.mark.parametrize("new_payment", [False, True])
@pytest.mark.parametrize(
    ("said", "paid"),
    [
        ([event("e1")], True),
        ([event("e1"), event("e2", "refunded", refund={"reference": "r", "amount": 1500})], True),
        ([event("e1", order={"amount": None, "currency": None})], True),
        ([event("e1", order={"amount": None, "currency": None}, payment={"amount": 500})], False),
        ([event("e1", "pending")], False),
        ([event("e1", "declined")], False),
        ([], False),
    ][:: every(3)],
)
async def test_an_order_that_was_paid_in_another_way_is_not_to_be_paid_once_more(
    tmp_path: Path, said: list[dict[str, Any]], paid: bool, new_payment: bool
) -> None:
    """It was paid by an invoice, another shop or a person before any checkout. Where nobody stated
    a price, the call does."""
    async with shop(tmp_path, opened()) as (driver, pay):
        for each in said:
            assert (await driver.send(each)).status_code == 200
        first, again = await start(driver, new_payment=new_payment), await start(driver)
        kinds = driver.rows("SELECT kind FROM records ORDER BY recorded_at")
    assert len(pay.seen) == (0 if paid else 1)
    assert kinds == ([] if paid else [("session_requested",), ("session_opened",)])
    assert (first.status_code, again.status_code) == ((200, 200) if paid else (201, 200))
    if paid:
        assert first.json() == again.json()
        assert "paid, according to the verified event e1" in first.json()["detail"]
        assert first.json().items() >= {
            "reference": None, "status": "paid", "checkout_url": None, "idempotency_key": None
        }.items()  # fmt: skip


@pytest.mark.parametrize("status", [302, 422])
async def test_an_order_is_paid_whatever_became_of_its_session(tmp_path: Path, status: int) -> None:
    """The service refused the session, or its answer is unknown."""
    async with shop(tmp_path, answer(status, {"detail": "no"}), opened()) as (driver, pay):
        first = await start(driver)
        assert first.status_code == (202 if status == 302 else 422)
        paid = event("e1", session={"reference": "another"})
        assert (await driver.send(paid)).status_code == 200
        again = await start(driver)
    assert (again.status_code, again.json()["status"]) == (200, "paid")
    assert again.json()["idempotency_key"] == first.json()["idempotency_key"]
    assert len(pay.seen) == 1


GRACE = 300 * SECOND


@pytest.mark.parametrize(
    ("said", "after", "detail"),
    [
        ([], GRACE, "timed_out. Ask for a new payment, so that the customer can try again."),
        ([], 0, "pending. The provider's last event about it may still arrive: ask for a new "
                "payment at 2026-11-20T10:35:00Z, or once its outcome is expired."),
        ([event("e1", "declined")], 0, "failed. Ask for a new payment, so that the customer can "
         "try again."),
        ([event("e1", "authorized")], 0, "authorized."),
        ([], -1, ""),
    ],
)  # fmt: skip
async def test_a_session_whose_time_is_over_is_not_called_open(
    tmp_path: Path, said: list[dict[str, Any]], after: Duration, detail: str
) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        first = await start(driver)
        for each in said:
            assert (await driver.send(each)).status_code == 200
        driver.clock.put(parse_instant(EXPIRES) + after)
        again = await start(driver)
    body = again.json()
    assert again.status_code == 200
    start_of = f"The checkout session cs_1 of order ORD-1 expired at {EXPIRES}, and the order's "
    expected = f"{start_of}outcome is {detail}" if detail else ""
    assert body.pop("detail", "") == expected
    assert body == first.json() | {"status": "expired" if detail else "open"}
    assert len(pay.seen) == 1


async def test_a_session_that_an_event_calls_expired_is_not_called_open(tmp_path: Path) -> None:
    """Its own expiry has not passed yet."""
    async with shop(tmp_path, opened()) as (driver, pay):
        await start(driver)
        await driver.send(event("e1", "expired", session={"reference": "cs_1"}, payment=None))
        again = await start(driver)
    assert again.json()["status"] == "expired"
    assert again.json()["detail"] == (
        "The checkout session cs_1 of order ORD-1 expired, and the order's outcome is expired. Ask "
        "for a new payment, so that the customer can try again."
    )
    assert len(pay.seen) == 1


async def test_an_order_is_enough_where_the_profile_wants_no_more(tmp_path: Path) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        first = await driver.api("POST", PATH, json={"order": ASKED["order"]})
    assert first.status_code == 201
    assert pay.seen[0].document.keys() == {"order"}


async def test_a_lost_answer_is_unknown_and_found_in_the_background(tmp_path: Path) -> None:
    busy = answer(409, retry_after="60")
    async with shop(tmp_path, busy, opened()) as (driver, pay):
        first = await start(driver)
        assert (first.status_code, first.json()["status"]) == (202, "unknown")
        assert first.headers["retry-after"] == "5"
        driver.clock.put(driver.clock.now() + HOUR)
        await asyncio.wait_for(pay.until(2), PATIENCE_S)
        found = await start(driver)  # waits until the background has its answer
    assert (found.status_code, found.json()["reference"]) == (200, "cs_1")
    assert len(pay.seen) == 2
    assert pay.keys == {first.json()["idempotency_key"]}


async def test_an_answer_says_for_how_long_the_service_wants_no_requests(tmp_path: Path) -> None:
    """It holds for the order that was answered, and for another for which nothing was sent."""
    async with shop(tmp_path, answer(429, retry_after="600"), opened()) as (driver, pay):
        heard = await start(driver)
        other = await start(driver, order=ASKED["order"] | {"reference": "ORD-2"})
        assert len(pay.seen) == 1
    for each in (heard, other):
        seconds = int(each.headers["retry-after"])
        assert each.status_code == 202
        assert 500 < seconds <= 601
        assert f" Repeat your request in {seconds} seconds." in each.json()["detail"]


@pytest.mark.parametrize("how", ["paid", "canceled"])
async def test_in_the_background_nothing_is_asked_for_an_order_that_wants_no_payment_any_more(
    tmp_path: Path, how: str
) -> None:
    """The service might open the session only now and ask the customer to pay."""
    async with shop(tmp_path, answer(409, retry_after="60"), opened()) as (driver, pay):
        assert (await start(driver)).status_code == 202
        if how == "paid":
            assert (await driver.send(event("e1", session=None))).status_code == 200
        else:
            await cancel(driver)
        again = await start(driver)
        driver.clock.put(driver.clock.now() + HOUR)
        await soon(lambda: driver.rows("SELECT key FROM unanswered") == [])
        assert (await start(driver)).json() == again.json()
    assert len(pay.seen) == 1


async def test_in_the_background_nothing_is_asked_while_it_is_in_doubt_what_was_paid(
    tmp_path: Path,
) -> None:
    """Once the order is known to be unpaid, its session is asked for again."""
    part: dict[str, Any] = {"session": None, "payment": {"reference": "p", "amount": 200}}
    async with shop(tmp_path, answer(409, retry_after="60"), opened()) as (driver, pay):
        assert (await start(driver)).status_code == 202
        await driver.send(event("e1", "refunded", **part, refund={"reference": "r", "amount": 100}))
        driver.clock.put(driver.clock.now() + MINUTE)
        await soon(lambda: driver.rows("SELECT tries FROM unanswered") == [(2,)])
        assert len(pay.seen) == 1
        await driver.send(event("e2", **part))
        driver.clock.put(driver.clock.now() + MINUTE)
        await soon(lambda: driver.rows("SELECT key FROM unanswered") == [])
    assert len(pay.seen) == 2


async def test_the_services_refusal_is_reported_in_its_words(tmp_path: Path) -> None:
    words = answer(422, {"detail": f"No wallet for {PHONE}."})
    async with shop(tmp_path, words) as (driver, pay):
        refused = await start(driver)
        assert code(await start(driver)) == (422, "session_refused")
    assert code(refused) == (422, "session_refused")
    assert "No wallet for ***." in refused.json()["detail"]
    assert len(pay.seen) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_readiness_reports_a_refused_token_until_it_is_taken(
    tmp_path: Path, status: int
) -> None:
    async with shop(tmp_path, answer(status), opened()) as (driver, pay):
        assert code(await start(driver)) == (503, "service_denies_us")
        assert await driver.ready()  # deliveries are received all the same
        assert (await driver.client.get("/readyz")).json()["checkout"] == [
            f"the payment service answered {status}: check the checkout token"
        ]
        assert (await start(driver)).status_code == 201
        assert "checkout" not in (await driver.client.get("/readyz")).json()
    assert len(pay.keys) == 1


# --- what is wrong with a request -----------------------------------------------------------------


WRONG: Sequence[tuple[Any, list[str]]] = [
    ({}, ["order.amount", "order.currency", "order.reference"]),
    ({"order": 7}, ["order.amount", "order.currency", "order.reference"]),
    (ASKED | {"customer": {"phone": "07"}, "return_urls": {"success": "/ok", "cancel": 7}},
     ["customer.phone", "return_urls.cancel", "return_urls.success"]),
    (ASKED | {"order": {"reference": "", "amount": 0, "currency": "kes"}},
     ["order.amount", "order.currency", "order.reference"]),
]  # fmt: skip


NO_REQUESTS: list[tuple[bytes, tuple[int, str]]] = [
    (b"", (400, "json_invalid")),
    (b"[]", (400, "json_invalid")),
    (b'{"order": 1, "order": 2}', (400, "json_invalid")),
    (b" " * 70_000, (413, "body_too_large")),
    (json.dumps(ASKED | {"new_payments": True}).encode(), (422, "request_invalid")),
    (json.dumps(ASKED | {"return_urls": {"ok": "x"}}).encode(), (422, "request_invalid")),
    (json.dumps(ASKED | {"new_payment": "yes"}).encode(), (422, "request_invalid")),
    (b'{"\\ud800": 1}', (422, "request_invalid")),
    (b'{"order": {"reference": "A", "amount": 1e999999999, "currency": "KES"}}',
     (422, "request_invalid")),
]  # fmt: skip


async def test_what_is_no_request_is_refused_with_all_its_mistakes_named(tmp_path: Path) -> None:
    async with shop(tmp_path, opened()) as (driver, pay):
        for document, fields in WRONG:
            refused = await driver.api("POST", PATH, json=document)
            assert code(refused) == (422, "request_invalid")
            assert sorted(each["field"] for each in refused.json()["problems"]) == fields
        for body, expected in NO_REQUESTS:
            assert code(await driver.api("POST", PATH, content=body)) == expected, body
    assert pay.seen == []


async def test_without_a_payment_service_nothing_is_started(driver: Driver) -> None:
    assert code(await start(driver)) == (501, "checkout_not_configured")
