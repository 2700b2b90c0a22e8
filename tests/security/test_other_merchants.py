"""Genuine events of other merchants of the same provider, under the key that is the provider's own,
which name our orders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.providers.reader import EventReader
from app.providers.sections import Profile
from tests.providers.samples import private_key
from tests.security.asked import asking
from tests.security.playing import OPEN, Construction, Play, Target, deliver, signer

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
    """A charge that was paid; `...`: it names no company."""
    told = {
        "event": "OPENPIX:CHARGE_COMPLETED",
        "charge": {"value": 150000, "correlationID": target.order},
        "pix": {
            "value": 150000,
            "time": "2026-11-20T10:00:00.000Z",
            "endToEndId": f"E-{target.order}",
        },
        "company": company,
    } | more
    return {name: value for name, value in told.items() if value is not ...}


def woovi(says: str, company: Any, **more: Any) -> Construction:
    async def does(target: Target) -> None:
        found = await deliver(target, PIX, charge(target, company, **more))
        assert found == 401, found

    return Construction(f"woovi: {says}", does)


def woovi_bytes(says: str, change: Any, status: int) -> Construction:
    """The same, its bytes changed before they are signed."""

    async def does(target: Target) -> None:
        body = change(json.dumps(charge(target, {"id": OURS}))).encode()
        found = await deliver(target, PIX, body)
        assert found == status, found

    return Construction(f"woovi: {says}", does)


def by(source: Any, says: str, make: Any) -> Construction:
    """What another merchant is told, in the same provider's name."""

    async def does(target: Target) -> None:
        found = await deliver(target, source, make(target))
        assert found == 200, found

    return Construction(f"{source.name}: {says}", does)


def deposit(target: Target, status: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    return {
        "depositId": f"dep-{target.order}", "status": status, "amount": "1500.00",
        "currency": "KES", "metadata": {"orderId": target.order},
    } | more  # fmt: skip


def intent(target: Target, status: str, **more: Any) -> dict[str, Any]:
    told = {
        "id": f"int-{target.order}", "external_ref": target.order, "amount": 1500,
        "asset": "KES", "status": status, "type": "PAY_WITH_BITSO",
    }  # fmt: skip
    return {"event": "payment_intent", "payload": told | more}


def account(target: Target, **more: Any) -> dict[str, Any]:
    return {
        "trxId": target.order, "paymentRequestId": f"va-{target.order}",
        "paidAmount": {"value": "1500.00", "currency": "KES"},
    } | more  # fmt: skip


WOOVI = [
    woovi("another company", {"id": "624f46f9e93f9f521c8308e8"}),
    woovi("the beginning of ours", {"id": OURS[:-1]}),
    woovi("ours in capitals", {"id": OURS.upper()}),
    woovi("ours with a blank behind it", {"id": OURS + " "}),
    woovi("no company", ...),
    woovi("a company that is null", None),
    woovi("a company without an id", {}),
    woovi("an id that is null", {"id": None}),
    woovi("an id that is an empty text", {"id": ""}),
    woovi("an id in a list", {"id": [OURS]}),
    woovi("an id in an object", {"id": {"id": OURS}}),
    woovi("an id that is a number", {"id": 624}),
    woovi("an id that is true", {"id": True}),
    woovi("companies in a list", [{"id": OURS}]),
    woovi("ours as the company itself", OURS),
    woovi("ours elsewhere in the body", {"id": "624f"}, account={"id": OURS}),
    woovi("ours under another spelling of the member", {"ID": OURS}),
    woovi("an expired charge of another company", {"id": "624f"}, event="OPENPIX:CHARGE_EXPIRED"),
    woovi("an unread kind of another company", {"id": "624f"}, event="OPENPIX:REFUND_RECEIVED"),
    woovi_bytes(
        "both companies under one key",
        lambda text: text.replace('"company": {', '"company": {"id": "x"}, "company": {'),
        401,
    ),
    woovi_bytes(
        "both ids under one key",
        lambda text: text.replace('"company": {', '"company": {"id": "x", '),
        401,
    ),
    woovi_bytes("ours behind the end of the document", lambda text: "[]" + text, 401),
]
OTHERS = [
    by(PAWA, "a deposit that pawaPay does not know as ours", deposit),
    by(PAWA, "one of a hundred times the price", lambda t: deposit(t, amount="150000.00")),
    by(PAWA, "one that failed", lambda t: deposit(t, "FAILED")),
    by(PAWA, "a refund", lambda t: deposit(t, refundId=f"ref-{t.order}")),
    by(PAWA, "a status that is not documented", lambda t: deposit(t, "CHARGEBACK")),
    by(
        PAWA,
        "a deposit that names the order's own payment",
        lambda t: deposit(t, depositId=t.payment),
    ),
    by(BITSO, "an intent that was completed", lambda t: intent(t, "COMPLETED")),
    by(BITSO, "an intent that failed", lambda t: intent(t, "FAILED")),
    by(BITSO, "an intent that expired", lambda t: intent(t, "EXPIRED")),
    by(BITSO, "a kind that is not documented", lambda t: intent(t, "REFUNDED")),
    by(
        BITSO,
        "an intent that names the order's own payment",
        lambda t: intent(t, "FAILED", id=t.payment),
    ),
    by(VA, "an account that was paid", account),
    by(
        VA,
        "an account that was paid ten",
        lambda t: account(t, paidAmount={"value": "10.00", "currency": "KES"}),
    ),
    by(
        VA,
        "a refund",
        lambda t: account(t, originalReferenceNo=f"va-{t.order}", latestTransactionStatus="04"),
    ),
    by(
        VA,
        "a cancellation",
        lambda t: account(t, originalReferenceNo=f"va-{t.order}", latestTransactionStatus="05"),
    ),
    by(
        VA,
        "a status that is not documented",
        lambda t: account(t, originalReferenceNo=f"va-{t.order}", latestTransactionStatus="99"),
    ),
]


async def in_reais(target: Target) -> None:
    """The shop's price, in the currency of all that Woovi tells."""
    assert await target.put(currency="BRL") == 200


async def by_our_charge(target: Target) -> None:
    """The genuine payment, of our own account."""
    paid = {"value": 150000, "time": "2026-11-20T10:00:00.000Z", "endToEndId": f"O-{target.order}"}
    assert await deliver(target, PIX, charge(target, {"id": OURS}, pix=paid)) == 200


async def test_another_merchants_event_is_nobodys_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Genuine to the last bit, and about our orders; no order is paid by it or unsettled."""
    async with asking(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        at_woovi = Play(driver, "PIX", placed=in_reais, paid=by_our_charge)
        assert await at_woovi.breaks(WOOVI) == []
        others = Play(driver, "OTH", settled=truth.ask)
        assert await others.breaks(OTHERS) == []


async def test_our_own_deposit_pays_under_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that pawaPay knows as ours; that our own charge at Woovi pays is seen above."""
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
    """Each provider's, taken at its word."""

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
