"""Other merchants' genuine events that name our orders, under the provider's own key."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.providers.reader import EventReader
from app.providers.sections import Profile
from tests.providers.samples import private_key
from tests.security.asked import asking
from tests.security.playing import OPEN, Act, Play, Target, deliver, signer

pytestmark = pytest.mark.slow

RSA, EC = private_key("rsa-pkcs1-sha256"), private_key("ecdsa-p256-sha256")
OURS = "624f46f9e93f9f521c8308e7"
SOURCES = OPEN | {
    "PUBLIC_URL": "http://service",
    "SOURCES__PIX__PROFILE": "woovi",
    "SOURCES__PIX__SECRETS": json.dumps([RSA]),
    "SOURCES__PIX__ACCOUNT": OURS,
    "SOURCES__PAWA__PROFILE": "pawapay",
    "SOURCES__PAWA__KEYS": json.dumps({"HTTP_EC_P256_KEY:1": EC}),
    "SOURCES__PAWA__CREDENTIALS": '{"api_token": "t"}',
    "SOURCES__BITSO__PROFILE": "bitso",
    "SOURCES__BITSO__KEYS": json.dumps({"key-1": private_key("rsa-pss-sha256")}),
    "SOURCES__VA__PROFILE": "snap_winpay",
    "SOURCES__VA__SECRETS": json.dumps([private_key("rsa-pkcs1-sha512")]),
}
PIX = signer("pix", "woovi", [RSA])
PAWA = signer("pawa", "pawapay", {"HTTP_EC_P256_KEY:1": EC})
BITSO = signer("bitso", "bitso", {"key-1": private_key("rsa-pss-sha256")})
VA = signer("va", "snap_winpay", [private_key("rsa-pkcs1-sha512")])


def charge(target: Target, company: Any, **more: Any) -> dict[str, Any]:
    """Return a charge that was paid; `...`: it names no company."""
    stated = {
        "event": "OPENPIX:CHARGE_COMPLETED",
        "charge": {"value": 150000, "correlationID": target.order},
        "pix": {
            "value": 150000,
            "time": "2026-11-20T10:00:00.000Z",
            "endToEndId": f"E-{target.order}",
        },
        "company": company,
    } | more
    return {name: value for name, value in stated.items() if value is not ...}


def woovi(company: Any, **more: Any) -> Act:
    return by(PIX, lambda t: charge(t, company, **more), 401)


def woovi_bytes(change: Any, status: int) -> Act:
    """Send our charge with its bytes changed before they are signed."""
    return by(PIX, lambda t: change(json.dumps(charge(t, {"id": OURS}))).encode(), status)


def by(source: Any, make: Any, status: int = 200) -> Act:
    """Send what another merchant is told, in the same provider's name."""

    async def does(target: Target) -> None:
        found = await deliver(target, source, make(target))
        assert found == status, found

    return does


def deposit(target: Target, status: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    return {
        "depositId": f"dep-{target.order}", "status": status, "amount": "1500.00",
        "currency": "KES", "metadata": {"orderId": target.order},
    } | more  # fmt: skip


def intent(target: Target, status: str, **more: Any) -> dict[str, Any]:
    stated = {
        "id": f"int-{target.order}", "external_ref": target.order, "amount": 1500,
        "asset": "KES", "status": status, "type": "PAY_WITH_BITSO",
    }  # fmt: skip
    return {"event": "payment_intent", "payload": stated | more}


def account(target: Target, **more: Any) -> dict[str, Any]:
    return {
        "trxId": target.order, "paymentRequestId": f"va-{target.order}",
        "paidAmount": {"value": "1500.00", "currency": "KES"},
    } | more  # fmt: skip


WOOVI = {
    "another company": woovi({"id": "624f46f9e93f9f521c8308e8"}),
    "the beginning of ours": woovi({"id": OURS[:-1]}),
    "ours in capitals": woovi({"id": OURS.upper()}),
    "ours with a blank behind it": woovi({"id": OURS + " "}),
    "no company": woovi(...),
    "a company that is null": woovi(None),
    "a company without an id": woovi({}),
    "an id that is null": woovi({"id": None}),
    "an id that is an empty text": woovi({"id": ""}),
    "an id in a list": woovi({"id": [OURS]}),
    "an id in an object": woovi({"id": {"id": OURS}}),
    "an id that is a number": woovi({"id": 624}),
    "an id that is true": woovi({"id": True}),
    "companies in a list": woovi([{"id": OURS}]),
    "ours as the company itself": woovi(OURS),
    "ours elsewhere in the body": woovi({"id": "624f"}, account={"id": OURS}),
    "ours under another spelling of the member": woovi({"ID": OURS}),
    "an expired charge of another company": woovi({"id": "624f"}, event="OPENPIX:CHARGE_EXPIRED"),
    "an unread kind of another company": woovi({"id": "624f"}, event="OPENPIX:REFUND_RECEIVED"),
    "both companies under one key": woovi_bytes(
        lambda text: text.replace('"company": {', '"company": {"id": "x"}, "company": {'), 401
    ),
    "both ids under one key": woovi_bytes(
        lambda text: text.replace('"company": {', '"company": {"id": "x", '), 401
    ),
    "ours behind the end of the document": woovi_bytes(lambda text: "[]" + text, 401),
}
OTHERS = {
    "pawapay: a deposit that pawaPay does not know as ours": by(PAWA, deposit),
    "pawapay: one of a hundred times the price": by(PAWA, lambda t: deposit(t, amount="150000.00")),
    "pawapay: one that failed": by(PAWA, lambda t: deposit(t, "FAILED")),
    "pawapay: a refund": by(PAWA, lambda t: deposit(t, refundId=f"ref-{t.order}")),
    "pawapay: a status that is not documented": by(PAWA, lambda t: deposit(t, "CHARGEBACK")),
    "pawapay: a deposit that names the order's own payment": by(
        PAWA, lambda t: deposit(t, depositId=t.payment)
    ),
    "bitso: an intent that was completed": by(BITSO, lambda t: intent(t, "COMPLETED")),
    "bitso: an intent that failed": by(BITSO, lambda t: intent(t, "FAILED")),
    "bitso: an intent that expired": by(BITSO, lambda t: intent(t, "EXPIRED")),
    "bitso: a kind that is not documented": by(BITSO, lambda t: intent(t, "REFUNDED")),
    "bitso: an intent that names the order's own payment": by(
        BITSO, lambda t: intent(t, "FAILED", id=t.payment)
    ),
    "winpay: an account that was paid": by(VA, account),
    "winpay: an account that was paid ten": by(
        VA, lambda t: account(t, paidAmount={"value": "10.00", "currency": "KES"})
    ),
    "winpay: a refund": by(
        VA, lambda t: account(t, originalReferenceNo=f"va-{t.order}", latestTransactionStatus="04")
    ),
    "winpay: a cancellation": by(
        VA, lambda t: account(t, originalReferenceNo=f"va-{t.order}", latestTransactionStatus="05")
    ),
    "winpay: a status that is not documented": by(
        VA, lambda t: account(t, originalReferenceNo=f"va-{t.order}", latestTransactionStatus="99")
    ),
}


async def in_reais(target: Target) -> None:
    """Let the shop state its price in Woovi's currency."""
    assert await target.put(currency="BRL") == 200


async def by_our_charge(target: Target) -> None:
    """Pay genuinely, to our own account."""
    paid = {"value": 150000, "time": "2026-11-20T10:00:00.000Z", "endToEndId": f"O-{target.order}"}
    assert await deliver(target, PIX, charge(target, {"id": OURS}, pix=paid)) == 200


async def test_another_merchants_event_is_nobodys_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is genuine and about our orders, and neither pays nor stops any."""
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        at_woovi = Play(driver, "PIX", placed=in_reais, paid=by_our_charge)
        assert await at_woovi.breaks(WOOVI) == []
        others = Play(driver, "OTH", settled=truth.ask)
        assert await others.breaks(OTHERS) == []


async def test_our_own_deposit_pays_under_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        target = Target(driver, "PAWA")
        assert await target.put() == 200
        truth.known["dep-PAWA"] = {"status": "FOUND", "data": deposit(target)}
        assert await deliver(target, PAWA, deposit(target)) == 200
        assert not (await target.ledger())["fulfillable"]
        await truth.ask()
        assert (await target.ledger())["fulfillable"]


async def test_where_nobody_looks_at_the_account_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Profile, "unconfirmed", property(lambda profile: False))
    monkeypatch.setattr(EventReader, "_are_foreign", lambda reader, several: False)
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, _):
        for name, source, make in (
            ("woo", PIX, lambda t: charge(t, {"id": "x"})),
            ("paw", PAWA, deposit),
            ("bit", BITSO, lambda t: intent(t, "COMPLETED")),
            ("vir", VA, account),
        ):
            target = Target(driver, f"{name}-1")
            assert await target.put(currency="BRL" if source is PIX else "KES") == 200
            assert await deliver(target, source, make(target)) == 200
            assert (await target.ledger())["fulfillable"], name
