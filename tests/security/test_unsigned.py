"""Events that nobody signs: whoever knows the address writes them. None says anything of an order
but that its provider should be asked."""

from __future__ import annotations

import json
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
    """What Safaricom tells of a push."""
    items = [
        {"Name": "Amount", "Value": amount},
        {"Name": "MpesaReceiptNumber", "Value": receipt or f"R-{session}"},
        {"Name": "TransactionDate", "Value": 20261120130000},
    ]
    told = {"CheckoutRequestID": session, "ResultCode": code}
    return {"Body": {"stkCallback": told | {"CallbackMetadata": {"Item": items}}}}


def ipn(session: str, order: str, kind: str = "IPNCHANGE") -> Any:
    """What Pesapal tells of a payment."""
    return {
        "OrderNotificationType": kind, "OrderTrackingId": session, "OrderMerchantReference": order
    }  # fmt: skip


async def post(target: Target, source: str, body: Any) -> None:
    """Anybody's request."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    answer = await target.driver.client.post(f"/webhooks/{source}", content=content)
    assert answer.status_code == 200, answer.text


def mpesa(says: str, make: Any, **more: bool) -> Construction:
    """A callback about the target's push, or about another."""

    async def does(target: Target) -> None:
        await post(target, "mpesa", make(target))

    return Construction(f"mpesa: {says}", does, **more)


def pesapal(says: str, make: Any, *, get: bool = False) -> Construction:
    """A notification in Pesapal's name."""

    async def does(target: Target) -> None:
        if get:
            answer = await target.driver.client.get("/webhooks/pesapal", params=make(target))
            assert answer.status_code == 200
        else:
            await post(target, "pesapal", make(target))

    return Construction(f"pesapal: {says}", does)


def mollie(says: str, make: Any) -> Construction:
    """A form in Mollie's name."""

    async def does(target: Target) -> None:
        await post(target, "mollie", make(target))

    return Construction(f"mollie: {says}", does)


def of_shop(says: str, source: str, make: Any) -> Construction:
    """Against an order that is paid by the signed source."""

    async def does(target: Target) -> None:
        await post(target, source, make(target))

    return Construction(f"signed: {says}", does)


MPESA = [
    mpesa("a success of a push that Safaricom does not know", lambda t: callback(f"no-{t.order}")),
    mpesa("it is called canceled by the customer", lambda t: callback(t.session, code=1032)),
    mpesa("it is called declined", lambda t: callback(t.session, code=1)),
    mpesa("it is called timed out", lambda t: callback(t.session, code=1037)),
    mpesa("it has a code that does not exist", lambda t: callback(t.session, code=98765)),
    mpesa("its code is a word for a refund", lambda t: callback(t.session, code="refund")),
    mpesa(
        "its code is a word for a chargeback", lambda t: callback(t.session, code="chargeback_lost")
    ),
    mpesa("it names no payment", lambda t: callback(t.session, code=1032, receipt=" ") | {}),
    mpesa(
        "its receipt is another push's",
        lambda t: callback(f"no-{t.order}", receipt=f"R-{t.session}"),
    ),
    mpesa(
        "another push's decline with its receipt",
        lambda t: callback(f"no-{t.order}", code=1, receipt=f"R-{t.session}"),
    ),
    mpesa(
        "of one shilling, under another receipt",
        lambda t: callback(t.session, amount=1, receipt=f"X-{t.session}"),
    ),
    mpesa("of one shilling, under its receipt", lambda t: callback(t.session, amount=1)),
    mpesa("of a hundred times the price", lambda t: callback(t.session, amount=150000)),
    mpesa("of a negative amount", lambda t: callback(t.session, amount=-5)),
    mpesa(
        "of its amount, under a receipt that sorts first",
        lambda t: callback(t.session, receipt=f"A-{t.session}"),
    ),
]


def priced(target: Target) -> Any:
    """A notification that states what happened, and how much it was."""
    return ipn(f"no-{target.order}", target.order) | {"status_code": 1, "amount": 1500}


PESAPAL = [
    pesapal("a tracking id that nobody knows", lambda t: ipn(f"no-{t.order}", t.order)),
    pesapal("by GET", lambda t: ipn(f"no-{t.order}", t.order), get=True),
    pesapal("its tracking id for the thief's order", lambda t: ipn(t.session, f"thief-{t.order}")),
    pesapal("the thief's paid tracking id for the order", lambda t: ipn("paid-by-thief", t.order)),
    pesapal("the thief's refunded tracking id", lambda t: ipn("refunded-to-thief", t.order)),
    pesapal("a kind that is not documented", lambda t: ipn(t.session, t.order, "REFUND")),
    pesapal("a kind that speaks of a chargeback", lambda t: ipn(t.session, t.order, "CHARGEBACK")),
    pesapal("a recurring kind", lambda t: ipn(t.session, t.order, "RECURRING")),
    pesapal("its own ids once more", lambda t: ipn(t.session, t.order)),
    pesapal("amount and status beside the ids", priced),
]  # fmt: skip
MOLLIE = [
    mollie("a payment that Mollie does not know", lambda t: f"id=tr_no{t.order}"),
    mollie("the thief's paid payment", lambda t: "id=tr_thief"),
    mollie("its own payment once more", lambda t: f"id=tr_{t.order}"),
    mollie(
        "its own payment with an order beside it", lambda t: f"id=tr_{t.order}&metadata[order_id]=x"
    ),
    mollie("two ids in one form", lambda t: f"id=tr_thief&id=tr_{t.order}"),
    mollie(
        "an id that climbs to another address", lambda t: f"id=../payments/tr_thief%3F{t.order}"
    ),
    mollie("an amount beside the id", lambda t: f"id=tr_no{t.order}&amount=1500&status=paid"),
]
OF_SHOP = [
    of_shop(
        "a notification names the paid order", "pesapal", lambda t: ipn(f"no-{t.order}", t.order)
    ),
    of_shop("it names its session as well", "pesapal", lambda t: ipn(t.session, t.order)),
    of_shop(
        "it links its session to the thief's order",
        "pesapal",
        lambda t: ipn(t.session, f"thief-{t.order}"),
    ),
    of_shop("a refund is claimed", "pesapal", lambda t: ipn(t.session, t.order, "REFUND")),
    of_shop("a dispute is claimed", "pesapal", lambda t: ipn(t.session, t.order, "DISPUTE_LOST")),
    of_shop("an unread kind", "pesapal", lambda t: ipn(t.session, t.order, "SOMETHING")),
    of_shop("a callback names its session", "mpesa", lambda t: callback(t.session)),
    of_shop(
        "a callback names its payment, of another amount",
        "mpesa",
        lambda t: callback(t.session, amount=1, receipt=t.payment),
    ),
    of_shop(
        "a callback names its payment as canceled",
        "mpesa",
        lambda t: callback(t.session, code=1032, receipt=t.payment),
    ),
    of_shop("a form names its payment", "mollie", lambda t: f"id={t.payment}"),
]


def by_mpesa(truth: Truth) -> Act:
    """A push that was paid, by Safaricom's own word."""

    async def pays(target: Target) -> None:
        truth.known[target.session] = {"ResponseCode": "0", "ResultCode": "0"}
        await post(target, "mpesa", callback(target.session))

    return pays


async def pushed(target: Target) -> None:
    """The shop has started the push, and names it, with its amount."""
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
    """What the thief has really paid, for an order of the thief's own."""
    truth.known["tr_thief"] = paid_at_mollie("tr_thief", "THIEF", 1500)
    told = {"amount": 1500, "currency": "KES", "merchant_reference": "THIEF"}
    truth.known["paid-by-thief"] = told | {"status_code": 1, "confirmation_code": "C-1"}
    truth.known["refunded-to-thief"] = told | {"status_code": 3, "confirmation_code": "C-2"}


FAMILIES: dict[str, tuple[list[Construction], Any, Act]] = {
    "mpesa": (MPESA, by_mpesa, pushed),
    "pesapal": (PESAPAL, by_pesapal, place),
    "mollie": (MOLLIE, by_mollie, place),
    "signed": (OF_SHOP, lambda truth: pay, place),
}


async def test_what_nobody_signs_contradicts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pays no order, and unsettles none that its provider, or a signature, says is paid."""
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
    """A part of the price was pushed and paid: callbacks that state more, under any receipt, make
    it no more. Where the shop named no amount, nobody knows what it was, once they differ."""
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
    """A thief pays a push of one shilling and posts its callback with our receipt, or posts ours
    with the receipt of another's."""
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
    """An event that names both the target's payment and the thief's order, and the payment's own
    event, which names no order: the shop has named it for the target."""
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
    """Whatever an unsigned event links to the thief's order, before it is paid or after."""
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
    """Taken at its word, a callback pays a push, and another unsettles one that was paid."""
    monkeypatch.setattr(Profile, "unconfirmed", property(lambda profile: False))
    chosen = [
        mpesa("success", lambda t: callback(t.session), paid=False),
        mpesa("one shilling", lambda t: callback(t.session, amount=1), unpaid=False),
    ]
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        play = Play(driver, "mp-", placed=pushed, paid=by_mpesa(truth), settled=truth.ask)
        broken = await play.breaks(chosen)
    assert [each.partition(" order")[0] for each in broken] == [
        "mpesa: success: an unpaid",
        "mpesa: one shilling: a paid",
    ]
