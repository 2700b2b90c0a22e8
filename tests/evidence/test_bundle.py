"""Bundles: the same bytes for one order and instant, and nothing personal in a redacted one."""

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
import rfc8785

from app.access.operator_store import audit_entries
from app.access.operators import Role, register_operator
from app.core.errors import NotFoundError, UsageError
from app.core.masking import Masking
from app.evidence import prove_sealed, verify
from app.evidence.bundle import bundle_of
from app.evidence.gather_evidence import Dossier
from app.evidence.keys import EvidenceKey
from app.evidence.prove_sealed import SealedParts
from app.evidence.verify import MANIFEST, NAME, main, unpack
from app.evidence.verify_evidence import verify_evidence
from app.orders.record_store import add_records
from reconcile.instants import MINUTE, format_instant
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.transparency.evidence import history_of, ledger_of
from tests.api.driving import driving, event, signed
from tests.evidence.conftest import Bundles, build
from tests.evidence.world import LATER, PHONE, live_through, record
from tests.evidence.world import NAME as CUSTOMER
from tests.reconcile.build import T

OTHER = "254799000111"
WIFE = "254 733 000 222"
MAIL = "wanjiku.k@example.org"

HOSTILE = (
    "../../etc/passwd", "/etc/passwd", "C:\\Windows\\x", "..", ".", "a/b", "a\\b", "verify.py",
    "con", "nul.txt", "<script>alert(1)</script>", "{{ 7*7 }}", "$(id)", "`id`", "a\u202eb",
    "é" * 60,
    "=1+1", "-rf", "%2e%2e%2f", "x" * 200,
)  # fmt: skip
"""References that an archive must never take for a path, a page for markup, a shell for words."""


def test_two_builds_are_byte_identical(bundles: Bundles) -> None:
    """Also after more has happened and more was sealed: an instant's bundle never changes."""
    assert bundles.again == bundles.redacted


def test_a_manifest_is_to_the_byte_what_others_write(bundles: Bundles) -> None:
    """Its digest is signed: the reference implementation of RFC 8785 must give the same bytes."""
    for archive in (bundles.full, bundles.redacted):
        manifest = unpack(archive)[MANIFEST]
        assert manifest == rfc8785.dumps(json.loads(manifest))


def test_every_step_passes_or_says_why_it_was_not_made(bundles: Bundles) -> None:
    found = verify_evidence(bundles.full)
    assert found.valid
    assert (found.order, found.as_of) == ("ORD-1", "2026-12-30T10:00:00Z")
    assert {each.name: each.passed for each in found.steps} == dict.fromkeys(
        ("archive", "manifest", "digests", "signature", "deliveries", "inclusion", "readings",
         "completeness", "checkpoint", "ledger", "bodies", "rendered"), True,
    ) | {"provider_signatures": None}  # fmt: skip
    redacted = {each.name: each.passed for each in verify_evidence(bundles.redacted).steps}
    assert redacted["inclusion"]
    assert redacted["ledger"]
    assert redacted["bodies"] is None


def test_what_is_in_it(bundles: Bundles) -> None:
    """Seven events with verdict, key and age, and their thirteen redeliveries; the session with its
    key; what was published."""
    files = unpack(bundles.full)
    deliveries = [json.loads(files[each]) for each in files if re.match(r"delivery-.*\.json", each)]
    assert [each["verdict"] for each in deliveries] == ["stored"] * 7
    assert {each["signature"]["age_at_arrival"] for each in deliveries} == {"0 ms"}
    (key,) = {each["signature"]["key"] for each in deliveries}
    assert re.fullmatch(r"[0-9a-f]{16}", key)
    sessions = json.loads(files["sessions.json"])
    assert [each["kind"] for each in sessions] == ["session_requested", "session_opened"]
    assert sessions[0]["key"] == "key_0001"
    assert json.loads(sessions[1]["details"]) == {"reference": "cs_1", "status": "open"}
    assert json.loads(files["revisions.json"])[-1]["outcome"] == "partially_refunded"
    history = json.loads(files["history.json"])
    assert ledger_of(history) == json.loads(files["ledger.json"])
    assert history_of(history)[1] == Policy()
    assert len(history_of(history)[0].deliveries) == 20
    again = [len(each["again"]) for each in history["deliveries"]]
    assert again == [2, 1, 3, 2, 2, 2, 1]
    signed = next(each for each in files if each.endswith(".signed"))
    assert files[signed].endswith(files[signed.replace(".signed", ".body")])


def test_a_redacted_bundle_can_be_matched_to_a_full_one(bundles: Bundles) -> None:
    """What both have is equal, but for headers and query; of the rest the redacted one states the
    digests."""
    full, redacted = unpack(bundles.full), unpack(bundles.redacted)
    manifests = [json.loads(each["manifest.json"]) for each in (full, redacted)]
    shared = redacted.keys() - {"manifest.json", "manifest.json.minisig"}
    for name in shared:
        if name.startswith("delivery-"):
            stated = [json.loads(each[name]) for each in (full, redacted)]
            masked = {"headers_shown": None, "address": None}
            assert stated[0] | masked == stated[1] | masked
        else:
            assert full[name] == redacted[name], name
    alike = [
        {name: entry for name, entry in files.items() if not name.startswith("delivery-") or
         not name.endswith(".json")}
        for files in ({**manifests[1]["files"], **manifests[1]["left_out"]}, manifests[0]["files"])
    ]  # fmt: skip
    assert alike[0] == alike[1]
    assert {name.rpartition(".")[2] for name in manifests[1]["left_out"]} == {
        "body", "headers", "signed", "details",
    }  # fmt: skip


def test_nothing_personal_is_in_a_redacted_bundle(bundles: Bundles) -> None:
    for each in (PHONE, PHONE[3:], CUSTOMER):
        assert each.encode() not in bundles.redacted
        assert each.encode() in bundles.full


async def test_a_number_in_a_reference_is_masked_everywhere(tmp_path: Path) -> None:
    """An order that is named by its customer's number: the bundle says so nowhere, and holds."""
    async with driving(tmp_path, looking=True) as driver:
        body = event("e1", order={"reference": PHONE}, customer={"phone": PHONE})
        await driver.send(body)
        driver.clock.put(LATER)
        archive = await build(driver, PHONE)
    assert PHONE[4:].encode() not in archive
    found = verify_evidence(archive)
    assert found.valid, found.steps
    assert found.order == "+254 ••• ••• •44"


async def test_a_number_in_a_header_or_an_answer_is_masked(tmp_path: Path) -> None:
    """What is shown of headers and of the service's answer, by name, too, where no body says whose
    number it is; a full bundle has both as they came."""
    async with driving(tmp_path, looking=True) as driver:
        body = json.dumps(event("e1", customer={"phone": PHONE})).encode()
        others = [(b"x-mobile", OTHER.encode()), (b"x-customer-name", CUSTOMER.encode())]
        others += [(b"x-note", f"call +{WIFE}".encode()), (b"x-from", MAIL.encode())]
        headers = [*signed(body), (b"x-msisdn", PHONE.encode()), *others]
        address = f"/webhooks/shop?payer={quote(f'+{WIFE} {MAIL}')}&first_name={CUSTOMER}"
        await driver.client.post(address, content=body, headers=headers)
        opened = record("opened", "session_opened", T, session="cs_1")
        async with driver.context.database.writing() as connection:
            await add_records(connection, [opened], details=f'{{"phone": "{PHONE}"}}')
        driver.clock.put(LATER)
        redacted = await build(driver)
        full = await build(driver, reason="why")
    for each in (PHONE, OTHER, CUSTOMER, WIFE, MAIL, quote(WIFE), quote(MAIL)):
        assert each.encode() not in redacted
        assert each.encode() in full
    assert b"webhook-signature" in redacted
    assert verify_evidence(redacted).valid
    assert verify_evidence(full).valid


async def test_personal_data_take_a_reason_and_a_role_and_leave_a_trail(tmp_path: Path) -> None:
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        driver.clock.put(LATER)
        staff: dict[str, Role] = {"Boss": "admin", "Sue": "support", "Fin": "finance"}
        for name, role in staff.items():
            await register_operator(driver.context, name=name, role=role, by="Boss")
        with pytest.raises(UsageError, match="the role must be admin or support"):
            await build(driver, by="Fin", reason="because")
        with pytest.raises(UsageError, match="name an operator with the role"):
            await build(driver)
        with pytest.raises(UsageError, match="--reason must say why"):
            await build(driver, by="Sue", reason="  ")
        await build(driver, by="Fin")
        await build(driver, by="Sue", reason="dispute 12")
        async with driver.context.database.reading() as connection:
            done = await audit_entries(connection, limit=10, subject="ORD-1")
    assert [(each.who, each.action, each.reason) for each in done] == [
        ("Fin", "evidence_built", ""),
        ("Sue", "evidence_built", "dispute 12"),
        ("Sue", "unmasked", "dispute 12"),
    ]
    assert [each.facts.get("kind") for each in done] == ["redacted", "full", None]


async def test_what_cannot_be_built_is_said(tmp_path: Path) -> None:
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        with pytest.raises(NotFoundError, match="nothing is known"):
            await build(driver, "ORD-2", as_of=None)
        with pytest.raises(NotFoundError, match=r"as of .*Z; evidence arrived later"):
            await build(driver, as_of=T - 1)
        with pytest.raises(UsageError, match="is in the future"):
            await build(driver, as_of=T + 1)


async def test_a_bundle_beyond_its_bounds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do: an earlier instant knows less."""
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        driver.clock.put(LATER)
        for bounded, name in ((prove_sealed, "AT_ONCE"), (verify, "MAX_BYTES")):
            with monkeypatch.context() as patch:
                patch.setattr(bounded, name, 0)
                with pytest.raises(UsageError, match="give an earlier --as-of"):
                    await build(driver)
        monkeypatch.setattr("app.evidence.verify.MAX_MEMBERS", 9)
        with pytest.raises(UsageError, match="too large to verify"):
            await build(driver)


async def test_an_order_of_which_nothing_arrived(tmp_path: Path) -> None:
    """What the shop did and the service never said is evidence, too."""
    async with driving(tmp_path, looking=True) as driver:
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "5.00", "currency": "KES"})
        driver.clock.put(LATER)
        found = verify_evidence(await build(driver))
    assert found.valid, found.steps


def test_no_reference_becomes_the_name_of_a_file(forger: EvidenceKey) -> None:
    """300 hostile references: every file lies flat, under a name of ours; the letter is text."""
    names: set[str] = set()
    for number in range(300):
        reference = HOSTILE[number % len(HOSTILE)] + ("" if number < 20 else str(number))
        dossier = Dossier(
            history=History(order=reference), policy=Policy(), as_of=T, deliveries=(), details={},
            revisions=(), profiles=(), lines=(), sealed=SealedParts(),
            masking=Masking(), full=False,
        )  # fmt: skip
        files = unpack(bundle_of(dossier, forger))
        names |= files.keys()
        assert b"<script>" not in files["report.html"]
        assert json.loads(files["manifest.json"])["order"] == reference
    assert len(names) == 17
    assert all(NAME.fullmatch(name) and "/" not in name for name in names)


async def test_a_bundle_is_the_same_whoever_serves_beside_it(tmp_path: Path) -> None:
    """Built from the command's own store while the service runs and seals on its own."""
    async with driving(tmp_path, with_worker=True, looking=True) as driver:
        await live_through(driver)
        driver.clock.put(LATER + MINUTE)  # what the worker still concludes is of after LATER
        first = await build(driver)
        assert await build(driver) == first


def test_a_sound_bundle_is_verified_by_verify_py_alone(
    bundles: Bundles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.zip").write_bytes(bundles.redacted)
    assert main([str(tmp_path / "b.zip"), format_instant(LATER)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Every check that was made passed; not checked: signature, ")
    assert main([str(tmp_path / "b.zip"), "2026-11-20T10:00:00Z"]) == 1
    assert "later than this computer's clock" in capsys.readouterr().out
