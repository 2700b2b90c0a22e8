"""Unsigned events, which anyone can write: they only make the service ask the provider."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.providers.sections import Profile
from tests.security.asked import Truth, asking
from tests.security.playing import OPEN, Act, Construction, Play, Target, pay, place

pytestmark = pytest.mark.slow

SOURCES = OPEN | {
    "SOURCES__MPESA__PROFILE": "mpesa_stk",
    "SOURCES__MPESA__CREDENTIALS": json.dumps(
        {
            "consumer": "k:s",
            "shortcode": "174379",
            "timestamp": "20261120100000",
            "password": "cA==",
        }
    ),
    "SOURCES__PESAPAL__PROFILE": "pesapal",
    "SOURCES__PESAPAL__CREDENTIALS": '{"consumer_key": "k", "consumer_secret": "s"}',
    "SOURCES__MOLLIE__PROFILE": "mollie_classic",
    "SOURCES__MOLLIE__CREDENTIALS": '{"api_key": "test_k"}',
}


def callback(session: str, *, code: Any = 0, amount: Any = 1500, receipt: str = "") -> Any:
    """Return Safaricom's callback for a push."""
    items = [
        {"Name": "Amount", "Value": amount},
        {"Name": "MpesaReceiptNumber", "Value": receipt or f"R-{session}"},
        {"Name": "TransactionDate", "Value": 20261120130000},
    ]
    stated = {"CheckoutRequestID": session, "ResultCode": code}
    return {"Body": {"stkCallback": stated | {"CallbackMetadata": {"Item": items}}}}


def ipn(session: str, order: str, kind: str = "IPNCHANGE") -> Any:
    """Return Pesapal's notification for a payment."""
    return {
        "OrderNotificationType": kind, "OrderTrackingId": session, "OrderMerchantReference": order
    }  # fmt: skip


async def post(target: Target, source: str, body: Any) -> None:
    """Send an unsigned request."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    answer = await target.driver.client.post(f"/webhooks/{source}", content=content)
    assert answer.status_code == 200, answer.text


def posting(source: str, make: Any) -> Act:
    async def does(target: Target) -> None:
        await post(target, source, make(target))

    return does


mpesa = partial(posting, "mpesa")
pesapal = partial(posting, "pesapal")
mollie = partial(posting, "mollie")


async def by_get(target: Target) -> None:
    params = ipn(f"no-{target.order}", target.order)
    answer = await target.driver.client.get("/webhooks/pesapal", params=params)
    assert answer.status_code == 200


MPESA = {
    "a success of a push that Safaricom does not know": mpesa(lambda t: callback(f"no-{t.order}")),
    "it is called canceled by the customer": mpesa(lambda t: callback(t.session, code=1032)),
    "it is called declined": mpesa(lambda t: callback(t.session, code=1)),
    "it is called timed out": mpesa(lambda t: callback(t.session, code=1037)),
    "it has a code that does not exist": mpesa(lambda t: callback(t.session, code=98765)),
    "its code is a word for a refund": mpesa(lambda t: callback(t.session, code="refund")),
    "its code is a word for a chargeback": mpesa(
        lambda t: callback(t.session, code="chargeback_lost")
    ),
    "it names no payment": mpesa(lambda t: callback(t.session, code=1032, receipt=" ") | {}),
    "its receipt is another push's": mpesa(
        lambda t: callback(f"no-{t.order}", receipt=f"R-{t.session}")
    ),
    "another push's decline with its receipt": mpesa(
        lambda t: callback(f"no-{t.order}", code=1, receipt=f"R-{t.session}")
    ),
    "of one shilling, under another receipt": mpesa(
        lambda t: callback(t.session, amount=1, receipt=f"X-{t.session}")
    ),
    "of one shilling, under its receipt": mpesa(lambda t: callback(t.session, amount=1)),
    "of a hundred times the price": mpesa(lambda t: callback(t.session, amount=150000)),
    "of a negative amount": mpesa(lambda t: callback(t.session, amount=-5)),
    "of its amount, under a receipt that sorts first": mpesa(
        lambda t: callback(t.session, receipt=f"A-{t.session}")
    ),
}


def priced(target: Target) -> Any:
    """Return a notification with status and amount."""
    return ipn(f"no-{target.order}", target.order) | {"status_code": 1, "amount": 1500}


PESAPAL = {
"a tracking id that nobody knows": pesapal(lambda t: ipn(f"no-{t.order}", t.order)),
"by GET": by_get,
"its tracking id for the thief's order": pesapal(lambda t: ipn(t.session, f"thief-{t.order}")),
"the thief's paid tracking id for the order": pesapal(lambda t: ipn("paid-by-thief", t.order)),
"the thief's refunded tracking id": pesapal(lambda t: ipn("refunded-to-thief", t.order)),
"a kind that is not documented": pesapal(lambda t: ipn(t.session, t.order, "REFUND")),
"a kind that speaks of a chargeback": pesapal(lambda t: ipn(t.session, t.order, "CHARGEBACK")),
"a recurring kind": pesapal(lambda t: ipn(t.session, t.order, "RECURRING")),
"its own ids once more": pesapal(lambda t: ipn(t.session, t.order)),
"amount and status beside the ids": pesapal(priced),
}  # fmt: skip
MOLLIE = {
    "a payment that Mollie does not know": mollie(lambda t: f"id=tr_no{t.order}"),
    "the thief's paid payment": mollie(lambda t: "id=tr_thief"),
    "its own payment once more": mollie(lambda t: f"id=tr_{t.order}"),
    "its own payment with an order beside it": mollie(
        lambda t: f"id=tr_{t.order}&metadata[order_id]=x"
    ),
    "two ids in one form": mollie(lambda t: f"id=tr_thief&id=tr_{t.order}"),
    "an id that climbs to another address": mollie(
        lambda t: f"id=../payments/tr_thief%3F{t.order}"
    ),
    "an amount beside the id": mollie(lambda t: f"id=tr_no{t.order}&amount=1500&status=paid"),
}
OF_SHOP = {
    "a notification names the paid order": pesapal(lambda t: ipn(f"no-{t.order}", t.order)),
    "it names its session as well": pesapal(lambda t: ipn(t.session, t.order)),
    "it links its session to the thief's order": pesapal(
        lambda t: ipn(t.session, f"thief-{t.order}")
    ),
    "a refund is claimed": pesapal(lambda t: ipn(t.session, t.order, "REFUND")),
    "a dispute is claimed": pesapal(lambda t: ipn(t.session, t.order, "DISPUTE_LOST")),
    "an unread kind": pesapal(lambda t: ipn(t.session, t.order, "SOMETHING")),
    "a callback names its session": mpesa(lambda t: callback(t.session)),
    "a callback names its payment, of another amount": mpesa(
        lambda t: callback(t.session, amount=1, receipt=t.payment)
    ),
    "a callback names its payment as canceled": mpesa(
        lambda t: callback(t.session, code=1032, receipt=t.payment)
    ),
    "a form names its payment": mollie(lambda t: f"id={t.payment}"),
}


def by_mpesa(truth: Truth) -> Act:
    """Pay a push, confirmed by Safaricom."""

    async def pays(target: Target) -> None:
        truth.known[target.session] = {"ResponseCode": "0", "ResultCode": "0"}
        await post(target, "mpesa", callback(target.session))

    return pays


async def pushed(target: Target) -> None:
    """Let the shop name the push that it has started, with its amount."""
    push = {"source": "mpesa", "session": target.session, "amount": "1500.00", "currency": "KES"}
    assert await target.put(references=[push]) == 200


def by_pesapal(truth: Truth) -> Act:
    async def pays(target: Target) -> None:
        truth.known[target.session] = {
            "status_code": 1, "amount": 1500, "currency": "KES",
            "merchant_reference": target.order, "confirmation_code": f"C-{target.order}",
        }  # fmt: skip
        await post(target, "pesapal", ipn(target.session, target.order))

    return pays


def by_mollie(truth: Truth) -> Act:
    async def pays(target: Target) -> None:
        truth.known[f"tr_{target.order}"] = paid_at_mollie(f"tr_{target.order}", target.order, 1500)
        await post(target, "mollie", f"id=tr_{target.order}")

    return pays


def paid_at_mollie(payment: str, order: str, amount: int) -> Any:
    return {
        "id": payment, "status": "paid", "metadata": {"order_id": order},
        "amount": {"value": f"{amount}.00", "currency": "KES"},
    }  # fmt: skip


def thieves(truth: Truth) -> None:
    """Let the providers know what the thief has paid for an own order."""
    truth.known["tr_thief"] = paid_at_mollie("tr_thief", "THIEF", 1500)
    stated = {"amount": 1500, "currency": "KES", "merchant_reference": "THIEF"}
    truth.known["paid-by-thief"] = stated | {"status_code": 1, "confirmation_code": "C-1"}
    truth.known["refunded-to-thief"] = stated | {"status_code": 3, "confirmation_code": "C-2"}


FAMILIES: dict[str, tuple[dict[str, Act], Any, Act]] = {
    "mpesa": (MPESA, by_mpesa, pushed),
    "pesapal": (PESAPAL, by_pesapal, place),
    "mollie": (MOLLIE, by_mollie, place),
    "signed": (OF_SHOP, lambda truth: pay, place),
}


async def test_what_nobody_signs_contradicts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pays no order, and unsettles none that a provider or a signature calls paid."""
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        thieves(truth)
        broken = []
        for name, (constructions, payer, placed) in FAMILIES.items():
            play = Play(driver, f"{name}-", placed=placed, paid=payer(truth), settled=truth.ask)
            broken += await play.breaks(constructions)
        assert broken == []


@pytest.mark.parametrize("named", [True, False])
async def test_a_push_counts_once(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callbacks that state more, under any receipt, make a part of the price no more. If the shop
    named no amount and callbacks differ, the amount is unknown."""
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        target = Target(driver, "PART-1")
        push = {"source": "mpesa", "session": target.session}
        assert await target.put(references=[push | (SHILLINGS_500 if named else {})]) == 200
        truth.known[target.session] = {"ResponseCode": "0", "ResultCode": "0"}
        await post(target, "mpesa", callback(target.session, amount=500))
        await truth.ask()
        await post(target, "mpesa", callback(target.session, amount=1500, receipt="A-more"))
        await truth.ask()
        ledger = await target.ledger()
        captured = ledger["totals"]["captured"]["amount"]
        assert (captured, ledger["outcome"]) == ("500.00" if named else "0.00", "unresolved")


async def test_the_receipt_of_anothers_payment_leads_it_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thief pays a push of one shilling and posts its callback with our receipt, or ours with
    another's receipt."""
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        targets = [Target(driver, f"OURS-{number}") for number in range(3)]
        thief = Target(driver, "THIEF-1")
        for each in (*targets, thief):
            await pushed(each)
            truth.known[each.session] = {"ResponseCode": "0", "ResultCode": "0"}
        for each in targets[:2]:
            await post(each, "mpesa", callback(each.session))
        for each in targets:
            await post(
                each, "mpesa", callback(thief.session, amount=1, receipt=f"R-{each.session}")
            )
        await post(
            targets[0], "mpesa", callback(targets[1].session, receipt=f"R-{targets[0].session}")
        )
        await truth.ask()
        await post(targets[2], "mpesa", callback(targets[2].session))
        await truth.ask()
        for each in targets:
            ledger = await each.ledger()
            assert (ledger["outcome"], ledger["fulfillable"]) == ("succeeded", True)


SHILLINGS_500 = {"amount": "500.00", "currency": "KES"}


async def nameless(target: Target, source: str, body: Any, *, first: bool) -> None:
    """Send an event that links the target's payment to the thief's order, and the payment's own
    event without an order; the shop has named the payment for the target."""
    payment = f"nameless-{target.order}"
    paid = target.event("nameless", order=None, session=None, payment={"reference": payment})
    assert await target.put(references=[{"source": "shop", "payment": payment}]) == 200
    if first:
        await post(target, source, body(payment))
    assert await target.send(paid) == 200
    if not first:
        await post(target, source, body(payment))


@pytest.mark.parametrize("first", [True, False])
async def test_a_nameless_payment_stays_with_the_order_that_the_shop_named_it_for(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        thief, target = Target(driver, "THIEF-1"), Target(driver, "OURS-1")
        assert await thief.put() == 200
        bodies = {
            "pesapal": lambda payment: ipn(payment, thief.order),
            "mpesa": lambda payment: callback(thief.session, receipt=payment),
            "mollie": lambda payment: f"id={payment}",
        }
        for source, body in bodies.items():
            await nameless(target, source, body, first=first)
        await truth.ask()
        assert (await target.ledger())["fulfillable"]
        assert not (await thief.ledger())["fulfillable"]


async def test_where_a_profile_is_believed_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback pays a push, and another unsettles one that was paid."""
    monkeypatch.setattr(Profile, "unconfirmed", property(lambda profile: False))
    chosen = {
        "success": Construction(mpesa(lambda t: callback(t.session)), paid=False),
        "one shilling": Construction(mpesa(lambda t: callback(t.session, amount=1)), unpaid=False),
    }
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        play = Play(driver, "mp-", placed=pushed, paid=by_mpesa(truth), settled=truth.ask)
        broken = await play.breaks(chosen)
    assert [each.partition(" order")[0] for each in broken] == [
        "success: an unpaid",
        "one shilling: a paid",
    ]
