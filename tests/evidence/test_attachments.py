"""Attachments: kept once by their digest, sealed, in a bundle only where they are asked for, and
gone with an erasure."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.access.operators import Role, register_operator
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.evidence import attachments
from app.evidence.attachments import (
    Attachment,
    AttachRequest,
    attach,
    attachments_of,
    detach,
    fault_of,
    media_of,
    read_attachment,
)
from app.evidence.keys import EvidenceKey
from app.evidence.seal import open_signer
from app.evidence.verify import unpack
from app.evidence.verify_evidence import VerifiedBundle, verify_evidence
from reconcile.instants import HOUR
from tests.api.driving import Driver, driving, of_order
from tests.evidence.conftest import Bundles, Forge, build, changed
from tests.evidence.world import LATER
from tests.rows import for_each

PDF = b"%PDF-1.7 the parcel was signed for by W. Kamau\nstartxref\n0\n%%EOF\n"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1 and so on IEND" + b"\0" * 4
JPEG = b"\xff\xd8\xff\xe0 a picture \xff\xd9"


def asked(content: bytes = PDF, **words: Any) -> AttachRequest:
    """Ask to attach a file: to ORD-1, a delivery, unless said otherwise."""
    given: dict[str, Any] = {
        "about": "order", "subject": "ORD-1",
        "name": "Kamau.png" if content == PNG else "Kamau.pdf", "content": content,
        "kind": "delivery", "note": "signed by the neighbour", "by": None,
    } | words  # fmt: skip
    return AttachRequest(**given)


async def one(context: AppContext, content: bytes = PDF, **words: Any) -> Attachment:
    return await attach(context, asked(content, **words))


@for_each(
    ("content", "media"),
    [
        (PDF, "application/pdf"),
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0 a picture", "image/jpeg"),
        (b"Liebe Frau Kamau,\n\tdanke\r\n", "text/plain"),
        (b"", None),
        (b"  \n", None),
        (b"MZ\x90\0 a program", None),
        (b"caf\xe9", None),
        (b"text with \x1b[2J", None),
        (b"PK\3\4 a document", None),
    ],
)
def test_a_file_is_what_its_bytes_say(content: bytes, media: str | None) -> None:
    assert media_of(content) == media


@for_each(
    ("content", "name", "others"),
    [
        (PDF, "A.PDF", ("a.png", "a.jpg", "a.txt")),
        (PNG, "a.png", ("a.pdf", "a.JPEG", "a.txt")),
        (JPEG, "a.jpeg", ("a.pdf", "a.png", "a.txt")),
        (b"a note", "a.txt", ("a.pdf", "a.png", "a.jpg")),
    ],
)
def test_a_file_is_whole_and_what_its_name_says(
    content: bytes, name: str, others: tuple[str, ...]
) -> None:
    """A name that says nothing may be of any; what stands behind the end may, too; text ends
    anywhere."""
    media = media_of(content)
    assert media is not None
    for good in (name, "mail.eml", "scan"):
        assert fault_of(good, content, media) is None
        assert fault_of(good, content + b" " * 3_000, media) is None
    for other in others:
        assert f"{other} is " in (fault_of(other, content, media) or "")
    cut = fault_of(name, content[:-5], media)
    assert (cut or "").count("cut off or is damaged") == (media != "text/plain")


async def lived(driver: Driver) -> AppContext:
    """Make a service that knows ORD-1 and ORD-2."""
    await driver.send(of_order("ORD-1", "e1"))
    await driver.send(of_order("ORD-2", "e2"))
    return driver.service.context


async def test_it_is_kept_once_listed_detached_and_the_trail_tells(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        context = await lived(driver)
        first = await one(context, carrier="DHL", tracking="JD0146")
        other = await one(context, subject="ORD-2", kind="terms")
        assert driver.rows("SELECT sha256, body FROM attachment_files") == [
            (hashlib.sha256(PDF).hexdigest(), PDF)
        ]
        (shown,) = [dict(each.document()) for each in await attachments_of(context, order="ORD-1")]
        parts = ("name", "note", "carrier", "tracking", "gone_at")
        assert tuple(shown[part] for part in parts) == (
            "Kamau.pdf", "signed by the neighbour", "DHL", "JD0146", None,
        )  # fmt: skip
        assert (await read_attachment(context, first.record.attachment_id, by=None))[1] == PDF
        gone = await detach(context, first.record.attachment_id, reason="another's", by=None)
        assert gone.gone
        assert driver.rows("SELECT count(*) FROM attachment_files") == [(1,)]
        await detach(context, other.record.attachment_id, reason="of no use", by=None)
        assert driver.rows("SELECT count(*) FROM attachment_files") == [(0,)]
        (left,) = [each.document() for each in await attachments_of(context, order="ORD-1")]
        assert (left["name"], left["sha256"]) == ("", shown["sha256"])
        assert [row[0] for row in driver.rows("SELECT action FROM audit ORDER BY number")] == [
            "attached", "attached", "attachment_read", "detached", "detached",
        ]  # fmt: skip
        for again in (detach(context, first.record.attachment_id, reason="twice", by=None),
                      read_attachment(context, first.record.attachment_id, by=None)):  # fmt: skip
            with pytest.raises(UsageError, match="was deleted on"):
                await again


async def test_what_is_not_taken_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        context = await lived(driver)
        with pytest.raises(UsageError, match="print the file to a PDF"):
            await one(context, b"MZ\0")
        with pytest.raises(UsageError, match="does not end as one"):
            await one(context, PDF[:30])
        with pytest.raises(UsageError, match="its name says a PDF"):
            await one(context, b"not a PDF at all")
        with pytest.raises(UsageError, match="only attachments of the kind delivery have"):
            await one(context, kind="terms", carrier="DHL")
        with pytest.raises(UsageError, match="the note must have at most 500"):
            await one(context, note="x" * 501)
        with pytest.raises(NotFoundError):
            await one(context, subject="ORD-404")
        with pytest.raises(NotFoundError, match="breaks list"):
            await one(context, about="break", subject="brk_1")
        kept = await one(context)
        with pytest.raises(UsageError, match=kept.record.attachment_id):
            await one(context)
        monkeypatch.setattr(attachments, "MAX_BYTES_OF_ONE", len(PDF) + 10)
        with pytest.raises(UsageError, match="attached"):
            await one(context, PNG)
        monkeypatch.setattr(attachments, "MOST_OF_ONE", 1)
        with pytest.raises(UsageError, match="several pages into one PDF"):
            await one(context, PNG)
        monkeypatch.setattr(attachments, "MAX_FILE_BYTES", 10)
        with pytest.raises(UsageError, match="larger than"):
            await one(context, PNG)


async def test_only_finance_and_support_attach_and_look(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        context = await lived(driver)
        roles: dict[str, Role] = {"Ann": "admin", "Sue": "support", "Vic": "viewer"}
        for name, role in roles.items():
            by = None if name == "Ann" else "Ann"
            await register_operator(context, name=name, role=role, by=by)
        kept = await one(context, by="Sue")
        assert kept.record.who == "Sue"
        for refused in (
            one(context, PNG, by="Vic"),
            detach(context, kept.record.attachment_id, reason="why", by="Vic"),
            read_attachment(context, kept.record.attachment_id, by="Vic"),
        ):
            with pytest.raises(UsageError, match="the role must be"):
                await refused


async def test_what_was_attached_to_a_break_is_its_orders_too(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        context = await lived(driver)
        async with context.database.writing() as connection:
            await connection.execute(
                text(
                    "INSERT INTO breaks (id, cause, order_ref, payment, subject) "
                    "VALUES ('brk_1', 'not_settled', 'ORD-1', 'pay_1', 'pay_1')"
                )
            )
        await one(context, about="break", subject="brk_1", kind="correspondence")
        (of_break,) = await attachments_of(context, break_="brk_1")
        assert await attachments_of(context, order="ORD-1") == [of_break]


# --- in bundles -----------------------------------------------------------------------------------


@for_each(("high", "wide"), [(7_016, 4_960), (50_000, 1_001), (65_535, 65_535)])
def test_a_picture_of_billions_of_pixels_is_refused(high: int, wide: int) -> None:
    """A megabyte of a PNG took a gigabyte to be laid out, and ten took the machine's memory."""
    png = PNG.replace(b"\0\0\0\1\0\0\0\1", wide.to_bytes(4) + high.to_bytes(4))
    frame = b"\xff\xc2\0\x11\x08" + high.to_bytes(2) + wide.to_bytes(2) + b"\3"
    jpeg = JPEG.replace(b" a picture", b"\xff\xc0\0\x11\x08\0\1\0\1\3" + frame)
    for name, content, media in (("a.png", png, "image/png"), ("a.jpg", jpeg, "image/jpeg")):
        fault = fault_of(name, content, media)
        assert (fault is None) == (high * wide <= 50_000_000)
        assert fault is None or "more than 50,000,000 pixels" in fault


@pytest.fixture(scope="module")
def exhibits(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """Build a redacted and a full bundle with what was attached; `again`: one that did not ask."""
    folder = tmp_path_factory.mktemp("attachments")

    async def world() -> Bundles:
        async with driving(folder, with_worker=False, looking=True) as driver:
            context = await lived(driver)
            await one(context, carrier="DHL", tracking="JD0146")
            await one(context, PNG, name="receipt.png", kind="receipt")
            gone = await one(context, b"wrong customer", name="x.txt", kind="other")
            await detach(context, gone.record.attachment_id, reason="another's", by=None)
            driver.clock.put(LATER)
            redacted = await build(driver, attachments=True)
            full = await build(driver, attachments=True, reason="dispute 12")
            without = await build(driver, reason="dispute 12")
            signer = await open_signer(driver.context)
            return Bundles(redacted, full, without, signer.key)

    return asyncio.run(world())


def outcomes(archive: bytes) -> dict[str, bool | None]:
    found = verify_evidence(archive)
    return {each.name: each.passed for each in found.steps}


def test_a_full_bundle_has_the_files_and_a_redacted_one_their_digests(exhibits: Bundles) -> None:
    full, redacted = unpack(exhibits.full), unpack(exhibits.redacted)
    assert PDF in full.values()
    assert PNG in full.values()
    listed = json.loads(redacted["attachments.json"])
    facts = [each["attached"]["facts"]["kind"] for each in listed]
    assert facts == ["delivery", "receipt", "other"]
    assert [bool(each["removed"]) for each in listed] == [False, False, True]
    assert {each["attached"]["who"] for each in listed} == {"•••"}
    left_out = json.loads(redacted["manifest.json"])["left_out"]
    for each in listed[:2]:
        assert left_out[each["content"]["file"]]["sha256"] == each["content"]["sha256"]
    for personal in (PDF, b"Kamau.pdf", b"neighbour", b"JD0146"):
        assert personal not in exhibits.redacted
        assert personal in exhibits.full
    counted = json.loads(unpack(exhibits.again)["attachments.json"])
    assert [each["content"] for each in counted] == [None] * 3
    for archive in (exhibits.full, exhibits.redacted, exhibits.again):
        assert False not in outcomes(archive).values(), verify_evidence(archive).steps


def test_the_verdict_says_what_an_attachment_proves(exhibits: Bundles) -> None:
    def of(found: VerifiedBundle) -> bool:
        return any("attached files show" in each for each in found.not_proven)

    assert of(verify_evidence(exhibits.full))
    said = "what attached files show that are not in the bundle (attachments.json), of 2 of 3"
    assert said in verify_evidence(exhibits.again).not_proven


def _other_kind(listed: list[dict[str, Any]]) -> None:
    listed[0]["attached"]["facts"]["kind"] = "receipt"


def _one_more(listed: list[dict[str, Any]]) -> None:
    listed.append({**listed[0], "attached": listed[0]["attached"] | {"number": 99}})


def _kept_though_removed(members: dict[str, bytes]) -> None:
    """Put the entry of a removal beside a file that is here."""

    def change(listed: list[dict[str, Any]]) -> None:
        listed[0]["removed"] = listed[2]["removed"]

    changed("attachments.json", change)(members)


def _another_file(members: dict[str, bytes]) -> None:
    """Change the file, its digest in attachments.json and in the entry: all but the leaf."""
    name = next(each for each in members if each.endswith(".pdf"))
    members[name] = b"%PDF-1.7 another"
    digest = hashlib.sha256(members[name]).hexdigest()

    def change(listed: list[dict[str, Any]]) -> None:
        listed[0]["content"] |= {"sha256": digest, "size": len(members[name])}
        listed[0]["attached"]["facts"].update(sha256=digest, size=len(members[name]))

    changed("attachments.json", change)(members)


@for_each(
    ("step", "change"),
    [
        ("deliveries", lambda members: members.update(
            {next(each for each in members if each.endswith(".pdf")): b"%PDF-1.7 another"})),
        ("inclusion", _another_file),
        ("deliveries", changed("attachments.json", lambda said: said[0].update(content=None))),
        ("deliveries", _kept_though_removed),
        ("completeness", changed("attachments.json", lambda said: said.pop(0))),
        ("completeness", changed("attachments.json", list.clear)),
        ("completeness", changed("attachments.json", lambda said: said[2].update(removed=None))),
        ("inclusion", changed("attachments.json", _other_kind)),
        ("deliveries", changed(
            "attachments.json", lambda said: said[0]["attached"].update(subject="ORD-2"))),
        ("inclusion", changed("attachments.json", _one_more)),
    ],
)  # fmt: skip
def test_a_forged_attachment_is_found(
    exhibits: Bundles, forge: Forge, step: str, change: Callable[[dict[str, bytes]], None]
) -> None:
    """With the shop's own key: another file, kind, order, one that nobody attached, one or all left
    out, or a removal."""
    key: EvidenceKey = exhibits.key
    found = outcomes(forge(exhibits.full, change, key=key))
    assert found[step] is False
    assert found["digests"], "the forger has signed everything anew"


async def test_as_of_an_instant_before_it_was_attached_it_is_not_there(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        context = await lived(driver)
        before = driver.clock.now()
        driver.clock.put(LATER)
        await one(context)
        driver.clock.put(LATER + HOUR)
        archive = await build(driver, as_of=before, attachments=True)
    assert json.loads(unpack(archive)["attachments.json"]) == []
