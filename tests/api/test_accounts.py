"""Genuine events of other merchants, aimed at our orders over HTTP, have no effect."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.evidence.bundle import BundleRequest, build_evidence
from app.evidence.verify_evidence import verify_evidence
from app.finance.files.line_forms import Understanding
from app.finance.files.mapping import read_mapping
from app.finance.files.opening import open_table
from app.finance.files.statements import StatementForm
from app.finance.read_lines import lines_naming
from app.orders.read_orders import order_document
from app.orders.refold import refold_until_quiet
from app.orders.reindex import reindex
from app.providers.profile import load_profile
from app.providers.questions import Questions
from app.providers.source import Source
from app.receiving.reverify import reverify
from reconcile.ledger.events import Event
from tests.api.driving import Driver, driving, environ, event, secret, signed
from tests.contexts import with_sources
from tests.evidence.world import LATER
from tests.privacy.test_erase import quiet
from tests.providers.samples import private_key
from tests.reconcile.build import T

RSA = private_key("rsa-pkcs1-sha256")
PIX: dict[str, Any] = {
    "SOURCES__PIX__PROFILE": "woovi",
    "SOURCES__PIX__SECRETS": json.dumps([RSA]),
    "SOURCES__PIX__ACCOUNT": "624f46f9e93f9f521c8308e7",
}
OTHERS: list[Any] = [{"id": "624f"}, {"id": None}, {}, None, {"id": "624F46F9E93F9F521C8308E7"}]


def charge(company: Any, event_id: str = "E1", **more: Any) -> dict[str, Any]:
    paid = {"value": 150000, "time": "2026-11-20T10:00:00.000Z", "endToEndId": event_id}
    return {
        "event": "OPENPIX:CHARGE_COMPLETED",
        "charge": {"value": 150000, "correlationID": "ORD-1"},
        "pix": paid,
        "company": company,
        **more,
    }


async def send(
    driver: Driver, profile: str, key: Any, document: Any, *, to: str, body: bytes = b""
) -> httpx2.Response:
    """Send an event signed as the provider signs every merchant's events."""
    source = Source(name=to, profile=load_profile(profile), secrets=key, strict=False)
    content = body or json.dumps(document).encode()
    url = f"/webhooks/{to}"
    made = source.signed(content, event_id="msg_1", now=driver.clock.now(), url=url)
    return await driver.client.post(url, content=made.body, headers=dict(made.headers))


async def folded(driver: Driver, order: str) -> Any:
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    return await order_document(driver.context, order, as_of=T)


@pytest.mark.parametrize("company", OTHERS)
async def test_another_merchants_event_is_answered_like_a_forged_one(
    company: Any, tmp_path: Path
) -> None:
    """It is kept as `wrong_account`, and the order does not change."""
    async with driving(tmp_path, with_worker=False, **PIX) as driver:
        answer = await send(driver, "woovi", [RSA], charge(company), to="pix")
        forged = await driver.client.post("/webhooks/pix", content=b"{}")
        assert answer.status_code == forged.status_code == 401
        body, of_forged = answer.json(), forged.json()
        assert body["code"] == "signature_invalid"
        assert body.keys() == of_forged.keys()
        assert {k: v for k, v in body.items() if k != "delivery"} == {
            k: v for k, v in of_forged.items() if k != "delivery"
        }
        verdicts = driver.rows("SELECT verdict FROM rejections ORDER BY verdict")
        assert verdicts == [("signature_missing",), ("wrong_account",)]
        assert driver.rows("SELECT count(*) FROM events") == [(0,)]


async def test_our_own_event_counts_and_woovis_test_is_answered(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **PIX) as driver:
        own = charge({"id": PIX["SOURCES__PIX__ACCOUNT"]})
        assert (await send(driver, "woovi", [RSA], own, to="pix")).status_code == 200
        test = {"data_criacao": "2024-01-23T20:32:14.429Z", "event": "OPENPIX:CHARGE_COMPLETED"}
        assert (await send(driver, "woovi", [RSA], test, to="pix")).status_code == 200
        assert driver.rows("SELECT count(*) FROM deliveries") == [(1,)]
        assert (await folded(driver, "ORD-1"))["totals"]["captured"]["amount"] == "1500.00"


async def test_a_body_that_cannot_be_read_is_refused_too(tmp_path: Path) -> None:
    """It is signed under the shared key, but names no account."""
    async with driving(tmp_path, with_worker=False, **PIX) as driver:
        for body in (b"[1", b"[]", b"7", b'{"company": {"id": 1e999}}'):
            answer = await send(driver, "woovi", [RSA], None, to="pix", body=body)
            assert answer.status_code == 401
        assert driver.rows("SELECT DISTINCT verdict FROM rejections") == [("wrong_account",)]


async def test_it_is_judged_again_after_the_account_was_put_right(tmp_path: Path) -> None:
    """`reverify` accepts what was refused for a wrong ACCOUNT; `reindex` drops what is not ours."""
    async with driving(tmp_path, with_worker=False, **PIX) as driver:
        await send(driver, "woovi", [RSA], charge({"id": "m2"}), to="pix")
        words: dict[str, Any] = {"only": None, "progress": quiet}
        unchanged = await reverify(with_sources(driver.context, sources(tmp_path)), **words)
        assert unchanged.refused == {"wrong_account": 1}
        right = sources(tmp_path, SOURCES__PIX__ACCOUNT="m2")
        done = await reverify(with_sources(driver.context, right), **words)
        assert [verdict for _, verdict in done.accepted] == ["stored"]
        again = await reindex(with_sources(driver.context, sources(tmp_path)), progress=quiet)
        assert (again.events, again.unreadable) == (0, 1)


def sources(folder: Path, **more: str) -> Any:
    return compile_sources(load_settings(environ(folder, **{**PIX, **more})))


async def test_what_never_counts_by_itself_leaves_the_order_pending(tmp_path: Path) -> None:
    """The provider names no account, and nobody can be asked."""
    snap: dict[str, Any] = {
        "SOURCES__VA__PROFILE": "snap_winpay",
        "SOURCES__VA__SECRETS": json.dumps([RSA]),
    }
    paid = {
        "trxId": "ORD-1",
        "paymentRequestId": "1",
        "paidAmount": {"value": "1500.00", "currency": "KES"},
    }
    async with driving(tmp_path, with_worker=False, **snap) as driver:
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "1500.00", "currency": "KES"})
        assert (await send(driver, "snap_winpay", [RSA], paid, to="va")).status_code == 200
        ledger = await folded(driver, "ORD-1")
        assert (ledger["outcome"], ledger["fulfillable"]) == ("pending", False)
        assert driver.rows("SELECT standing FROM events") == [("unconfirmed",)]
        assert driver.rows("SELECT count(*) FROM confirmations") == [(0,)]
        compiled = compile_sources(load_settings(environ(tmp_path, **snap)))
        await reindex(with_sources(driver.context, compiled), progress=quiet)
        assert driver.rows("SELECT count(*) FROM confirmations") == [(0,)]


LIVE: dict[str, Any] = {"ENVIRONMENT": "live"}


@pytest.mark.disk
@pytest.mark.parametrize("said", [None, ...])
async def test_live_takes_no_event_that_hides_its_environment(said: Any, tmp_path: Path) -> None:
    """The profile names the member, and it is null or absent."""
    document = event("e1", environment="live")
    document["environment"] = said
    if said is ...:
        del document["environment"]
    async with driving(tmp_path, with_worker=False, **LIVE) as driver:
        answer = await driver.send(document)
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_environment")
        assert driver.rows("SELECT verdict FROM rejections") == [("wrong_environment",)]
    folder = tmp_path / "sandbox"
    folder.mkdir()
    async with driving(folder, with_worker=False) as driver:
        assert (await driver.send(document)).status_code == 200


KEY = b"another key for tests, no secret"
TILL: dict[str, Any] = {"SOURCES__TILL__SECRETS": secret(KEY), "SOURCES__TILL__ORDERS": "own"}


async def test_orders_of_its_own_never_meet_the_shops(tmp_path: Path) -> None:
    """The till's order ORD-1 is named @till:ORD-1 in the API; it shares no price, payment or
    finding with the shop's ORD-1."""
    async with driving(tmp_path, with_worker=False, **TILL) as driver:
        shops = {"amount": "1500.00", "currency": "KES"}
        await driver.api("PUT", "/orders/ORD-1", json=shops)
        body = json.dumps(event("e1")).encode()
        at_till = signed(body, at=driver.clock.now(), key=KEY)
        assert (await driver.send(body, at_till, source="till")).status_code == 200
        found = await folded(driver, "ORD-1")
        assert (found["outcome"], found["fulfillable"]) == ("not_attempted", False)
        put = await driver.api("PUT", "/orders/@till:ORD-1", json=shops)
        assert (put.status_code, put.json()["fulfillable"]) == (200, True)
        reserved = event("e2", order={"reference": "@till:ORD-1"}, payment={"reference": "p2"})
        assert (await driver.send(reserved)).json()["verdict"] == "unreadable"
        await driver.send(event("e3"))
        for order in ("ORD-1", "@till:ORD-1"):
            ledger = await folded(driver, order)
            assert (ledger["outcome"], ledger["findings"]) == ("succeeded", []), order


async def test_its_evidence_holds(tmp_path: Path) -> None:
    """A stranger who reads the bodies again finds the order under its name here."""
    async with driving(tmp_path, **TILL) as driver:
        body = json.dumps(event("e1")).encode()
        await driver.send(body, signed(body, at=driver.clock.now(), key=KEY), source="till")
        driver.clock.put(LATER)
        built = await build_evidence(
            driver.context,
            BundleRequest(order="@till:ORD-1", as_of=LATER, reason="why"),
            lines=lines_naming,
        )
    steps = {each.name: each.passed for each in verify_evidence(built.archive, now=LATER).steps}
    assert steps["bodies"], steps


def test_its_statement_speaks_of_its_orders_and_its_provider_hears_its_own_name(
    tmp_path: Path,
) -> None:
    """The provider writes 1001 in files and is asked for 1001; the order here is @till:1001."""
    mapping = read_mapping(b"", StatementForm.FIELDS)
    form = StatementForm(mapping, source="till", own_orders=True)
    text = "Payment reference,Order reference,Gross,Currency\np1,1001,10.00,KES\np2,,1.00,KES\n"
    path = tmp_path / "s.csv"
    path.write_text(text)
    table = open_table(path, mapping, form.FIELDS)
    rows = [
        form.shown(row)
        for batch in table.batches()
        for row in Understanding(table, form, mapping).batch(batch).rows
    ]
    assert [row["order_reference"] for row in rows] == ["@till:1001", None]
    rule = load_profile("midtrans").fetch_back
    assert rule is not None
    asked = Questions("till", rule, environment="live", credentials={"server_key": "k:"})
    said = Event(
        source="till",
        event_id="e",
        digest="d" * 64,
        kind="k",
        claim="pending",
        order="@till:1001",
        standing="unconfirmed",
    )
    question = asked.about(said)
    assert question is not None
    assert question.url == "https://api.midtrans.com/v2/1001/status"
