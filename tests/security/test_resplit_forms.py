"""Signed fields joined without separators, cut at other places under the same signature: such a
form counts only once the provider has confirmed it."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from app.providers.sections import Profile
from tests.security.asked import Truth, asking
from tests.security.playing import OPEN, Act, Play, Target, deliver, signer

pytestmark = pytest.mark.slow

KEY = "df2ef3ec0c5f4a0c9a7d5ef0b3a1c2d4"
SOURCES = OPEN | {
    "SOURCES__PEACH__PROFILE": "peach_checkout",
    "SOURCES__PEACH__SECRETS": KEY + "aa",
    "SOURCES__PEACH__CREDENTIALS": '{"client_id": "c", "client_secret": "s", "merchant_id": "m"}',
    "SOURCES__PAYMOB__PROFILE": "paymob",
    "SOURCES__PAYMOB__SECRETS": KEY + "bb",
    "SOURCES__PAYMOB__CREDENTIALS": '{"api_key": "k"}',
    "SOURCES__MIDTRANS__PROFILE": "midtrans",
    "SOURCES__MIDTRANS__SECRETS": KEY + "cc",
    "SOURCES__MIDTRANS__CREDENTIALS": '{"server_key": "k:"}',
}
PEACH = signer("peach", "peach_checkout", [KEY + "aa"])
PAYMOB = signer("paymob", "paymob", [KEY + "bb"])
MIDTRANS = signer("midtrans", "midtrans", [KEY + "cc"])


async def resplit(target: Target, source: Any, genuine: bytes, cut: Any) -> None:
    """Sign a genuine body, cut it otherwise, and send it."""
    url = f"http://service/webhooks/{source.name}"
    made = source.signed(genuine, event_id="m", now=target.driver.clock.now(), url=url)
    body = cut(made.body)
    headers = [(name, value) for name, value in made.headers if name.lower() != "host"]
    answer = await target.driver.client.post(made.url, content=body, headers=headers)
    assert answer.status_code == 200, answer.status_code


# --- Peach: names and values, sorted and joined ---------------------------------------------------


def form(target: Target, **more: str) -> dict[str, str]:
    """Return a payment of the order, in Peach's form."""
    stated = {
        "amount": "1500.00", "checkoutId": f"co-{target.order}", "currency": "KES",
        "id": f"pp-{target.order}", "merchantTransactionId": target.order, "paymentType": "DB",
        "result.code": "000.000.000",
    }  # fmt: skip
    return stated | more


def joined(fields: dict[str, str]) -> str:
    return "".join(name + value for name, value in sorted(fields.items()))


def swallowed(last: str, **more: str) -> Act:
    """Let the shop sign a form for the browser in which the customer has written all fields after
    `last` into that field; cut at their names, it is a payment."""

    async def does(target: Target) -> None:
        payment = {last: "x"} | form(target, **more)
        text = joined(payment)
        kept = {name: value for name, value in payment.items() if name < last}
        signed_form = kept | {last: text[len(joined(kept)) + len(last) :]}
        assert joined(signed_form) == text
        assert "result.code" not in signed_form

        def cut(body: bytes) -> bytes:
            signature = dict(part.split("=", 1) for part in body.decode().split("&"))["signature"]
            return urlencode(payment | {"signature": signature}).encode()

        await resplit(target, PEACH, urlencode(signed_form).encode(), cut)

    return does


# --- Paymob: twenty fields ------------------------------------------------------------------------


def transaction(target: Target, **more: Any) -> dict[str, Any]:
    return {
        "amount_cents": 150000, "created_at": "2026-11-20T10:00:00", "currency": "KES",
        "error_occured": False, "has_parent_transaction": False, "id": f"pm-{target.order}",
        "integration_id": 7, "is_3d_secure": True, "is_auth": False, "is_capture": False,
        "is_refunded": False, "is_standalone_payment": True, "is_voided": False,
        "order": {"id": f"po-{target.order}"}, "owner": 1, "pending": False,
        "source_data": {"pan": "1", "sub_type": "V", "type": "card"}, "success": True,
    } | more  # fmt: skip


def shifted(before: dict[str, Any], after: dict[str, Any]) -> Act:
    """Send a genuine transaction with other members that join to the same text."""

    async def does(target: Target) -> None:
        await known_session(target)
        given, claimed = (
            {k: v.format(order=target.order) if type(v) is str else v for k, v in each.items()}
            for each in (before, after)
        )
        genuine = json.dumps({"obj": transaction(target, **given)}).encode()
        forged = json.dumps({"obj": transaction(target, **given) | claimed}).encode()
        await resplit(target, PAYMOB, genuine, lambda body: forged)

    return does


async def known_session(target: Target) -> None:
    named = [{"source": "paymob", "session": f"po-{target.order}"}]
    assert await target.put(references=named) == 200


# --- Midtrans: order, status code and amount ------------------------------------------------------


def recut(order: slice | None, **said: str) -> Act:
    """Cut a notification of the thief's own order so that it names the target: all names end in a
    digit that may as well begin the status code."""

    async def does(target: Target) -> None:
        genuine = {
            "order_id": target.order if order is None else target.order[order],
            "status_code": "201", "gross_amount": "1500.00", "currency": "KES",
            "transaction_status": "pending", "transaction_id": f"mt-{target.order}",
        }  # fmt: skip
        claimed = genuine | {"transaction_status": "settlement", "fraud_status": "accept"} | said
        if order is not None:
            claimed |= {"order_id": target.order, "status_code": "01"}
        whole = "".join(claimed[name] for name in ("order_id", "status_code", "gross_amount"))
        assert whole == "".join(
            genuine[name] for name in ("order_id", "status_code", "gross_amount")
        )

        def cut(body: bytes) -> bytes:
            key = json.loads(body)["signature_key"]
            return json.dumps(claimed | {"signature_key": key}).encode()

        await resplit(target, MIDTRANS, json.dumps(genuine).encode(), cut)

    return does


SPLITS: dict[str, dict[str, Act]] = {
    "peach": {
        "the customer's street holds the rest of a payment": swallowed("billing.street1"),
        "the amount holds it": swallowed("amount"),
        "the custom field of the cart holds it": swallowed("cart"),
        "it says that the payment was refunded": swallowed("cart", paymentType="RF"),
        "it says that it was declined": swallowed("cart", **{"result.code": "800.100.151"}),
        "it is of ten shillings": swallowed("billing.street1", amount="10.00"),
    },
    "paymob": {
        "digits of the date end the amount": shifted(
            {"amount_cents": 1500, "created_at": "002026-11-20T10:00:00"},
            {"amount_cents": 150000, "created_at": "2026-11-20T10:00:00"},
        ),
        "digits of the amount begin the date": shifted(
            {"amount_cents": 150000, "created_at": "2026-11-20T10:00:00"},
            {"amount_cents": 15, "created_at": "00002026-11-20T10:00:00"},
        ),
        "digits of the integration end the payment's number": shifted(
            {"id": "pm-{order}", "integration_id": 77}, {"id": "pm-{order}7", "integration_id": 7}
        ),
        "another order's transaction named by the unsigned merchant_order_id": shifted(
            {"order": {"id": "99"}}, {"order": {"id": "99", "merchant_order_id": "x"}}
        ),
    },
    "midtrans": {
        "a pending notification called settled": recut(None),
        "the last digit of another order begins the code": recut(slice(None, -1)),
        "called canceled": recut(None, transaction_status="cancel"),
        "called denied": recut(None, transaction_status="deny", fraud_status="deny"),
        "called refunded whole": recut(None, transaction_status="refund", refund_amount="1500.00"),
        "called charged back": recut(None, transaction_status="chargeback"),
        "in another currency": recut(None, currency="USD"),
        "of another payment": recut(None, transaction_id="mt-other"),
    },
}


def by_midtrans(truth: Truth) -> Act:
    """Pay genuinely, confirmed by Midtrans."""

    async def pays(target: Target) -> None:
        stated = {
            "order_id": target.order, "status_code": "200", "gross_amount": "1500.00",
            "currency": "KES", "transaction_status": "settlement", "fraud_status": "accept",
            "transaction_id": f"mt-{target.order}", "transaction_time": "2026-11-20 17:00:00",
        }  # fmt: skip
        truth.known[target.order] = stated
        assert await deliver(target, MIDTRANS, stated) == 200

    return pays


def by_peach(truth: Truth) -> Act:
    """Pay at Peach, by the checkout that the constructions use."""

    async def pays(target: Target) -> None:
        answer = form(target)
        code = answer.pop("result.code")
        truth.known[f"co-{target.order}"] = answer | {"result": {"code": code}}
        body = urlencode(form(target)).encode()
        assert await deliver(target, PEACH, body) == 200

    return pays


def by_paymob(truth: Truth) -> Act:

    async def pays(target: Target) -> None:
        await known_session(target)
        truth.known[f"pm-{target.order}"] = transaction(target)
        assert await deliver(target, PAYMOB, {"obj": transaction(target)}) == 200

    return pays


PAYERS = {"peach": by_peach, "paymob": by_paymob, "midtrans": by_midtrans}


async def test_a_form_that_is_cut_otherwise_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pays no order, and one that the provider has confirmed stays paid."""
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        for provider, payer in PAYERS.items():
            play = Play(driver, f"{provider[:3]}-", paid=payer(truth), settled=truth.ask)
            assert await play.breaks(SPLITS[provider]) == []


async def test_where_the_provider_is_not_asked_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Profile, "unconfirmed", property(lambda profile: False))
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        for provider, payer in PAYERS.items():
            play = Play(driver, f"{provider[:3]}-", paid=payer(truth), settled=truth.ask)
            broken = await play.breaks(dict([*SPLITS[provider].items()][:1]))
            assert [each for each in broken if "an unpaid order is fulfillable" in each], provider
