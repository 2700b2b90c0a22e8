"""Bundles of orders that had it otherwise: erased, shared, in the books, their source gone."""

import base64
import json
from pathlib import Path
from typing import Any

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.evidence.attachments import AttachRequest, attach
from app.evidence.verify import unpack
from app.evidence.verify_evidence import verify_evidence
from app.finance.imports import ImportRequest, import_book, import_statement
from app.orders.record_store import add_records
from app.privacy.erase import ErasureRequest, erase
from app.providers.profile import load_profile
from app.providers.source import Source
from reconcile.instants import SECOND, TICK
from tests.api.driving import Driver, driving, environ, event
from tests.contexts import with_settings, with_sources
from tests.database.builders import session_opened
from tests.evidence.conftest import build
from tests.evidence.world import LATER, NAME, PHONE, live_through
from tests.reconcile.build import T


def steps(archive: bytes) -> dict[str, bool | None]:
    """Return the result of each step."""
    return {each.name: each.passed for each in verify_evidence(archive).steps}


async def erased(driver: Driver, folder: Path) -> None:
    """Delete all personal data of the customer."""
    sources = compile_sources(load_settings(environ(folder)))
    done = await erase(
        with_sources(driver.context, sources),
        ErasureRequest(phone=PHONE, reason="asked for it", by=None),
        dry_run=False,
        progress=lambda count: None,
    )
    assert [each.order for each in done.orders] == ["ORD-1"]


async def test_after_an_erasure_the_bundle_holds_and_has_nothing_personal(tmp_path: Path) -> None:
    """Even the full one: digests, proofs and the ledger are left, and still verify."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await live_through(driver)
        before = await build(driver)
        await erased(driver, tmp_path)
        assert driver.rows("SELECT order_key, key FROM order_keys") == [(None, None)]
        after = await build(driver, reason="to see that it is gone")
        redacted = await build(driver)
    for each in (PHONE, PHONE[3:], NAME):
        assert each.encode() not in after + redacted
    found = steps(after)
    held = ("inclusion", "readings", "checkpoint", "ledger", "deliveries")
    assert all(found[name] for name in held)
    assert found["completeness"] is None
    unread = [each.sentence for each in verify_evidence(after).steps if each.name == "bodies"]
    assert unread == ["The bundle has no bodies, because they were deleted before it was built."]
    old, new = unpack(before), unpack(after)
    for name in ("ledger.json", "history.json", "explanation.txt"):
        assert old[name] == new[name]
    # Nobody can tell any more which order the log's leaves name.
    logs = [json.loads(each["log.json"]) for each in (old, new)]
    assert (logs[1]["order"], logs[1]["tree"]) == (None, None)
    assert logs[1]["parts"] == logs[0]["parts"]
    kept = [[each["leaf"] for each in log["leaves"]] for log in logs]
    assert [each for each in kept[0] if '"kind":"orders"' not in each] == kept[1]
    name = next(each for each in new if each.startswith("delivery-"))
    delivery = json.loads(new[name])
    assert delivery["body"] is delivery["headers"] is delivery["signed"] is None
    assert delivery["let_go_at"] is not None
    assert "the body was deleted" in delivery["signature"]["sentence"]


async def test_an_order_that_shares_a_payment_tells_the_other_side(tmp_path: Path) -> None:
    """What another order claims of its payment is evidence of both, and folds as it did."""
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        await driver.send(event("e2", order={"reference": "ORD-2"}))
        driver.clock.put(LATER)
        archive = await build(driver)
    files = unpack(archive)
    assert json.loads(files["ledger.json"])["outcome"] == "unresolved"
    assert len([each for each in files if each.startswith("delivery-")]) == 2
    found = verify_evidence(archive)
    assert found.valid
    (said,) = (each for each in found.not_proven if "that these parts belong to this order" in each)
    assert "to this order, 1: dlv_" in said


async def test_a_session_that_was_opened_for_another_order_is_reported(tmp_path: Path) -> None:
    """It is why this order is not paid: the letter names the other one."""
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        async with driver.context.database.writing() as connection:
            await add_records(connection, [session_opened("ORD-2", "cs_1")])
        driver.clock.put(LATER)
        archive = await build(driver)
    files = unpack(archive)
    assert json.loads(files["ledger.json"])["outcome"] == "not_attempted"
    assert "of another order, ORD-2" in files["report.html"].decode()
    assert verify_evidence(archive).valid


async def test_a_source_that_is_gone_leaves_its_evidence(tmp_path: Path) -> None:
    """Its profile and its secrets are not known any more; everything else holds."""
    secret = "whsec_" + base64.b64encode(b"another key, of enough bytes").decode()
    signer = Source(name="other", profile=load_profile("checkout"), secrets=[secret])
    body = json.dumps(event("e1")).encode()
    headers = [(n.encode(), v.encode()) for n, v in signer.sign(body, event_id="m", now=T)]
    other: dict[str, Any] = {
        "SOURCES__OTHER__PROFILE": "checkout",
        "SOURCES__OTHER__SECRETS": secret,
    }
    async with driving(tmp_path, looking=True, **other) as driver:
        assert (await driver.send(body, headers, source="other")).status_code == 200
        driver.clock.put(LATER)
        settings, sources = driver.context.settings, driver.context.sources
        left = with_settings(driver.context, sources={"shop": settings.sources["shop"]})
        driver.context = with_sources(left, {"shop": sources["shop"]})
        archive = await build(driver, reason="why")
    files = unpack(archive)
    (name,) = (each for each in files if each.startswith("delivery-") and each.endswith(".json"))
    assert "no longer configured" in json.loads(files[name])["signature"]["sentence"]
    assert not [each for each in files if each.startswith("profile-")]
    assert steps(archive)["bodies"] is None
    assert verify_evidence(archive).valid


async def test_lines_of_the_books_are_in_it_as_known_then(tmp_path: Path) -> None:
    """By the order's reference however it is written, and by its payment; not another order's."""
    book, statement = tmp_path / "book.csv", tmp_path / "statement.csv"
    book.write_text(
        "reference,kind,amount,currency,placed_at,status\n"
        "ord 1,order,1500.00,KES,2026-11-20T10:00:00Z,paid\n"
        "ORD-2,order,9.00,KES,2026-11-20T10:00:00Z,paid\n"
    )
    statement.write_text(
        "payment_reference,gross,fee,net,currency,settled_at,payout,type\n"
        "pay_1,1500.00,30.00,1470.00,KES,2026-11-21T00:00:00Z,po_1,payment\n"
    )
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        driver.clock.put(LATER - TICK)
        await import_book(driver.context, ImportRequest(path=book))
        await import_statement(driver.context, ImportRequest(path=statement), source="shop")
        driver.clock.put(LATER)
        now = json.loads(unpack(await build(driver))["books.json"])
        then = json.loads(unpack(await build(driver, as_of=LATER - 2))["books.json"])
    assert [(each["from"], each.get("reference"), each.get("payment")) for each in now] == [
        ("order book", "ord 1", None), ("statement", None, "pay_1"),
    ]  # fmt: skip
    assert now[1]["fee"] == {"amount": "30.00", "currency": "KES"}
    assert then == []


async def test_an_erased_attachment_is_counted_as_removed(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await live_through(driver)
        await attach(
            driver.context,
            AttachRequest(about="order", subject="ORD-1", name="a.txt", content=b"a receipt",
                          kind="receipt", by=None),
        )  # fmt: skip
        await erased(driver, tmp_path)
        driver.clock.put(LATER + SECOND)
        archive = await build(driver, as_of=None, attachments=True, reason="to see it")
    (each,) = json.loads(unpack(archive)["attachments.json"])
    assert (each["content"], each["details"]) == (None, None)
    assert each["removed"]["reason"] == "asked for it"
    found = verify_evidence(archive)
    assert found.valid, found.steps
