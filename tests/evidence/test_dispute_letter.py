"""The letter about a dispute: facts to the second in the merchant's time, what each rests on, the
exhibits behind it, and what is missing before the deadline."""

import asyncio
import base64
import io
import json
import random
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typst
from pypdf import PdfReader

from app.core.child import ChildLimits
from app.core.errors import UsageError
from app.core.masking import masked_phone
from app.evidence import letter_forms
from app.evidence.attachments import Attachment, AttachRequest, attach
from app.evidence.dispute import FAMILIES, CaseFacts, Family, dispute_checklist, family_of
from app.evidence.dispute_case import CaseRequest, dispute_case
from app.evidence.dispute_letter import Exhibit, Letter, _signature_words
from app.evidence.gather_evidence import DeliveryEvidence, ProvenSignature
from app.evidence.letter_forms import LetterForm, letter_form, letter_in, take_letter
from app.finance.read_lines import lines_naming
from app.orders.refold import refold_until_quiet
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Instant, format_instant
from reconcile.ledger.events import CLAIM_KINDS, Standing
from tests.api.driving import KEY, Driver, driving, event, secret, signed
from tests.contexts import with_settings
from tests.reconcile.build import T
from tests.rows import for_each

PHONE = "254711223344"
TILL = b"another key for tests, no secret"
MERCHANT = {"merchant": "Duka Bora Ltd", "merchant_address": "Moi Avenue 12, Nairobi"}
OPENED, DUE = Instant(T + 20 * DAY), Instant(T + 34 * DAY)


@for_each(
    ("reason", "family"),
    [
        ("10.4", "fraud"), ("4837", "fraud"), ("F29", "fraud"), ("UA02", "fraud"),
        ("fraudulent", "fraud"), ("UNAUTHORISED", "fraud"), ("NO_KNOWLEDGE", "fraud"),
        ("13.1", "not_received"), ("4855", "not_received"), ("C08", "not_received"),
        ("MERCHANDISE_OR_SERVICE_NOT_RECEIVED", "not_received"),
        ("13.3", "not_as_described"), ("product_unacceptable", "not_as_described"),
        ("Product Unsatisfactory", "not_as_described"),
        ("12.6.1", "duplicate"), ("P08", "duplicate"), ("PAID_BY_OTHER_MEANS", "duplicate"),
        ("13.6", "credit_not_processed"), ("4860", "credit_not_processed"),
        ("13.2", "subscription_canceled"), ("subscription_canceled", "subscription_canceled"),
        ("CANCELED_RECURRING_BILLING", "subscription_canceled"), ("C28", "subscription_canceled"),
        ("debit_not_authorized", "debit_not_authorized"), ("12.5", "processing_error"),
        ("12.1", "processing_error"), ("12.6.2", "duplicate"),
        ("4853", None), ("general", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_a_reason_is_of_the_family_that_its_network_or_provider_says(
    reason: str | None, family: Family | None
) -> None:
    """Mastercard's 4853 is of several: a person says which."""
    assert family_of(reason) == family


BARE = CaseFacts(
    respond_by=None, missing_merchant=("TALLYHOOK_MERCHANT",), attachments=(), fulfilled=False,
    refunded=False, payments=2, earlier=0,
)  # fmt: skip


def _attached(*kinds: str) -> tuple[Attachment, ...]:
    from app.evidence.attachment_store import AttachmentRecord

    return tuple(
        Attachment(
            record=AttachmentRecord(
                attachment_id=f"att_{kind}", about="order", subject="ORD-1", order="ORD-1",
                kind=kind, media="application/pdf", sha256="", size=1, who="Sue", at=T,
                audit_number=1,
            ),
            carrier="DHL" if kind == "delivery" else "",
            tracking="JD01" if kind == "delivery" else "",
        )
        for kind in kinds
    )  # fmt: skip


@for_each("family", FAMILIES)
def test_a_checklist_says_what_is_missing_and_then_nothing(family: Family) -> None:
    """Each item is missing of a bare case, with what brings it, and there in a whole one."""
    for each in dispute_checklist(BARE, family):
        assert not each.there
        assert each.document()["do"]
    whole = CaseFacts(
        respond_by=DUE, missing_merchant=(), fulfilled=True, refunded=True, payments=1, earlier=2,
        attachments=_attached("receipt", "delivery", "correspondence", "terms", "refund_policy",
                              "other"),
    )  # fmt: skip
    for each in dispute_checklist(whole, family):
        assert each.there, each
        assert each.document()["do"] == ""


def test_families_ask_for_different_things() -> None:
    asked = {
        family: tuple(each.name for each in dispute_checklist(BARE, family)) for family in FAMILIES
    }
    assert len(set(asked.values())) == len(FAMILIES)
    assert "earlier_orders" in asked["fraud"]
    assert "tracking" in asked["not_received"]
    assert "refund_policy" in asked["not_as_described"]
    assert "one_payment" in asked["duplicate"]
    assert "refunded" in asked["credit_not_processed"]
    assert "terms" in asked["subscription_canceled"]


@for_each("family", FAMILIES)
def test_a_decided_dispute_needs_no_date(family: Family) -> None:
    items = dispute_checklist(replace(BARE, decided=True), family)
    assert [each.there for each in items if each.name == "deadline"] == [True]


# --- the letter -----------------------------------------------------------------------------------


def _body(order: str, name: str, kind: str, payment: str, at: int, **more: Any) -> dict[str, Any]:
    body = event(name)
    body["type"] = f"payment.{kind}"
    body["occurred_at"] = format_instant(Instant(at))
    money = {"amount": 1500, "currency": "KES"}
    body["data"] = {
        "order": {"reference": order, **money}, "payment": {"reference": payment, **money},
        "customer": {"phone": PHONE}, **more,
    }  # fmt: skip
    return body


async def disputed(driver: Driver) -> None:
    """Make a paid and shipped order that is disputed; three earlier ones, one of them disputed,
    too; and one that came later."""
    for number in range(3):
        at = T - HOUR + number * MINUTE
        await driver.send(_body(f"ORD-{number}", f"p{number}", "succeeded", f"pay_{number}", at))
    refund = {"reference": "dp_1", "amount": 1500, "currency": "KES"}
    await driver.send(_body("ORD-2", "d2", "disputed", "pay_2", T, refund=refund))
    order = "/orders/ORD-1042"
    placed = {"amount": "1500.00", "currency": "KES", "placed_at": format_instant(T)}
    await driver.api("PUT", order, json=placed)
    await driver.send(_body("ORD-1042", "e1", "declined", "pay_a", T + 5 * SECOND))
    driver.clock.put(T + 2 * MINUTE)
    for _ in range(2):
        await driver.send(_body("ORD-1042", "e2", "succeeded", "pay_b", T + MINUTE + 250_000))
    await driver.send(_body("ORD-9", "p9", "succeeded", "pay_9", T + 2 * MINUTE))
    shipped = {"fulfilled_at": format_instant(Instant(T + DAY))}
    driver.clock.put(T + DAY)
    await driver.api("PUT", order, json=placed | shipped)
    driver.clock.put(OPENED)
    refund = {
        "reference": "dp_77", "amount": 1500, "currency": "KES",
        "reason": "product_not_received", "respond_by": format_instant(DUE),
    }  # fmt: skip
    await driver.send(_body("ORD-1042", "e3", "disputed", "pay_b", OPENED, refund=refund))
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
    driver.clock.put(OPENED + DAY)


def _pdf(pages: int) -> bytes:
    text = "#pagebreak()".join(f"Delivered, page {number}" for number in range(pages))
    written: bytes = typst.compile(f'#set page(paper: "a6")\n{text}'.encode())
    return written


async def exhibits(driver: Driver) -> None:
    """Attach a PDF of two pages, a picture, a text, and a file that only begins and ends as a PDF
    does."""
    picture = typst.compile(b"#set page(width: 2cm, height: 2cm)\nPaid", format="png")
    for name, content, kind, more in (
        ("parcel.pdf", _pdf(2), "delivery", {"carrier": "DHL", "tracking": "JD01"}),
        ("receipt.png", picture, "receipt", {"note": "KES <b>1,500</b> #pagebreak()"}),
        ("mail.txt", b"Where is it?\n#panic()", "correspondence", {}),
        ("broken.pdf", b"%PDF-1.7 and no more, startxref 0 %%EOF", "other", {}),
    ):
        words: dict[str, Any] = more
        asked = AttachRequest(
            about="order", subject="ORD-1042", name=name, content=content, kind=kind,  # type: ignore[arg-type]
            by=None, **words,
        )  # fmt: skip
        await attach(driver.context, asked)


def whole(document: Mapping[str, Any]) -> Any:
    """Return a document without the types of its members, which may be null."""
    return document


async def write(driver: Driver, folder: Path, **words: Any) -> Letter:
    letter, _ = await take_letter(
        with_settings(driver.context, **MERCHANT),
        CaseRequest(order="ORD-1042", **words),
        "html",
        lines=lines_naming,
    )
    return letter


@pytest.fixture(scope="module")
def letter(tmp_path_factory: pytest.TempPathFactory) -> Letter:
    """Write a letter in Nairobi."""
    folder = tmp_path_factory.mktemp("letter")

    async def world() -> Letter:
        async with driving(folder, with_worker=False, looking=True) as driver:
            driver.context = with_settings(driver.service.context, timezone="Africa/Nairobi")
            await disputed(driver)
            await exhibits(driver)
            found = await write(driver, folder)
            assert driver.rows("SELECT action, subject FROM audit WHERE action = 'letter_taken'")
            return found

    return asyncio.run(world())


def test_it_tells_the_bank_nothing_that_is_meant_for_the_shop(letter: Letter) -> None:
    """What became of the order, and not whether to ship it."""
    answer = " ".join(letter.document["answer"])
    assert answer
    assert "ship" not in answer.lower()


def test_it_says_who_answers_what_until_when(letter: Letter) -> None:
    document = whole(letter.document)
    assert document["title"] == "Response to a payment dispute"
    assert document["missing"] == ["TALLYHOOK_MERCHANT_CONTACT"]
    assert document["stamp"] == "SANDBOX"
    found = document["dispute"]
    assert (found["reference"], found["payment"], found["words"]) == (
        "dp_77",
        "pay_b",
        "KES 1,500.00",
    )
    assert found["reason"] == "the customer says that nothing was delivered"
    assert found["respond_by"]["at"] == format_instant(DUE)
    assert found["respond_by"]["local"].endswith(" 13:00:00")
    assert found["respond_by"]["utc"] == "10:00:00 UTC"


def test_facts_are_written_in_order_to_the_second_with_what_they_rest_on(letter: Letter) -> None:
    facts = letter.document["facts"]
    assert [each["fact"] for each in facts] == [
        "The customer placed the order of KES 1,500.00.",
        "A payment attempt was declined.",
        "The customer paid KES 1,500.00.",
        "The shop shipped the order.",
        "The customer disputed KES 1,500.00.",
    ]
    paid = facts[2]
    assert (paid["at"]["local"], paid["at"]["utc"]) == ("20 Nov 2026, 13:01:00", "10:01:00 UTC")
    assert re.fullmatch(
        r"Message of the payment service, received 20 Nov 2026, 13:02:00 and 1 time more; its "
        r"signature was checked again for this letter; entry \d+ of the sealed log",
        paid["rests_on"],
    )
    assert facts[0]["rests_on"].startswith(
        "The shop's own record, made 20 Nov 2026, 13:00:00; entry"
    )


def test_no_code_and_no_number_of_the_customer_is_in_it(letter: Letter) -> None:
    """What people read: facts, answer, reason and state. The codes of a program are in none."""
    document = whole(letter.document)
    text = json.dumps(
        [document["facts"], document["answer"], document["dispute"]["reason"], document["title"]]
    )
    codes = {each for each in CLAIM_KINDS if "_" in each} | {"evt_", "rec_", "dlv_"}
    assert [each for each in codes if each in text] == []
    assert PHONE not in json.dumps(document)


def test_earlier_orders_are_those_that_nobody_disputed(letter: Letter) -> None:
    """Neither the disputed one of before, nor the one that was paid afterwards."""
    assert [each["order"] for each in letter.document["earlier_orders"]] == ["ORD-0", "ORD-1"]


async def test_each_sheet_of_the_page_says_whose_letter_it_is_and_which_page(
    letter: Letter,
) -> None:
    """And a picture taller than a sheet is made smaller: it went on over the next one, behind a
    sheet with its heading alone. No text of others ends the style."""
    page = (await letter_in(letter, "html")).decode()
    style = page[: page.index("</style>", page.index("@top-left"))]
    (stated,) = re.findall(r'@top-left \{ content: "([^"]*)"', style)
    said = re.sub(r"\\([0-9a-f]{6})", lambda each: chr(int(each[1], 16)), stated)
    assert said == f"Duka Bora Ltd · Order {letter.document['order']}"
    assert 'counter(page) " / " counter(pages)' in style
    assert ".exhibit img { max-height: 235mm }" in style


async def test_a_pdf_has_two_pages_and_the_exhibits_behind_them(letter: Letter) -> None:
    """The PDF's two, the picture's and the text's; what cannot be laid out is sent by itself. No
    text of a file or a note is markup."""
    pages = texts(await letter_in(letter, "pdf"))
    assert len(pages) == 2 + 4
    assert all("SANDBOX: made with a test account, no money moved" in each for each in pages)
    front = " ".join(pages[0].split()) + " ".join(pages[1].split())
    assert "Moi Avenue 12, Nairobi" in front
    assert "merchant's contact is not set" in front
    assert "\u200b" not in front
    assert "DHL JD01" in front
    assert front.count("Appended to this letter") == 3
    assert front.count("Sent as a separate file") == 1
    assert "Delivered, page 1" in pages[3]
    assert "#panic()" in pages[5]


def texts(pdf: bytes) -> list[str]:
    """Read the text of each page."""
    return [each.extract_text() for each in PdfReader(io.BytesIO(pdf)).pages]


async def test_an_exhibit_that_goes_over_a_limit_is_sent_by_itself(
    letter: Letter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever typst makes of a hostile file, the letter is laid out, or the refusal says why."""
    short = ChildLimits(memory_mib=2_048, processor_s=10, duration_s=0.001)
    monkeypatch.setattr(letter_forms, "OF_ONE_EXHIBIT", short)
    pages = texts(await letter_in(letter, "pdf"))
    assert len(pages) == 2 + 1
    assert " ".join(" ".join(pages[:2]).split()).count("Sent as a separate file") == 3
    monkeypatch.setattr(letter_forms, "OF_ONE_LETTER", short)
    with pytest.raises(UsageError, match=r"as a PDF: it takes more than 0.001 s; name a file"):
        await letter_in(letter, "pdf")


async def test_a_pdf_that_ends_its_reader_is_sent_by_itself(letter: Letter) -> None:
    """Arrays within arrays overflow typst's stack, and its process dies by a signal."""
    parts = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</A " + "[" * 200_000
        + "]" * 200_000 + ">>>>",
    ]  # fmt: skip
    text = "%PDF-1.7\n"
    for number, part in enumerate(parts, 1):
        text += f"{number} 0 obj\n{part}\nendobj\n"
    text += "trailer\n<</Size 4/Root 1 0 R>>\n%%EOF"
    hostile = Exhibit(number=1, media="application/pdf", content=text.encode())
    made = await letter_in(replace(letter, exhibits=(hostile, *letter.exhibits[1:])), "pdf")
    front = " ".join(" ".join(texts(made)[:2]).split())
    assert (front.count("Appended to this letter"), front.count("Sent as a separate file")) == (
        2,
        2,
    )


async def test_a_page_needs_nothing_beside_it(letter: Letter) -> None:
    page = (await letter_in(letter, "html")).decode()
    assert "data:image/png;base64," in page
    assert "KES &lt;b&gt;1,500&lt;/b&gt;" in page
    assert "#panic()" in page
    assert page.count("Sent as a separate file") == 2
    assert "http" not in page.replace("http-equiv", "")


def test_the_form_is_said_by_the_files_name() -> None:
    assert (letter_form(Path("a.PDF")), letter_form(Path("b.html"))) == ("pdf", "html")
    with pytest.raises(UsageError, match=r"\.pdf or \.html"):
        letter_form(Path("c.docx"))


async def test_without_a_dispute_it_is_a_statement_and_a_person_says_the_rest(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(_body("ORD-1042", "e1", "succeeded", "pay_1", T))
        driver.clock.put(T + DAY)
        found = await write(driver, tmp_path, family="fraud", respond_by=DUE)
        case = await dispute_case(
            with_settings(driver.context, **MERCHANT), CaseRequest(order="ORD-1042")
        )
    assert found.document["title"] == "Statement on the payment of order ORD-1042"
    assert whole(found.document)["dispute"] is None
    assert found.document["zone"] == "UTC"
    document = found.case.document()
    assert (document["family"], document["respond_by"]) == ("fraud", format_instant(DUE))
    assert document["deadline"] == f"The bank accepts an answer until {format_instant(DUE)}."
    assert {each["item"] for each in document["items"] if each["there"]} == {"deadline"}
    assert (case.family, case.respond_by) == ("other", None)


@pytest.mark.parametrize(
    ("backs", "told"),
    [
        ([{"refund": {"amount": 100, "currency": "KES"}}] * 2, ["KES 100.00", "KES 100.00"]),
        ([{"refunded_total": 100}, {"refunded_total": 250}], ["KES 100.00", "KES 150.00"]),
        ([{"refund": {"reference": "re_1", "amount": 100, "currency": "KES"}}] * 2, ["KES 100.00"]),
    ],
)
async def test_its_facts_add_up_to_what_was_given_back_and_is_disputed(
    tmp_path: Path, backs: list[dict[str, Any]], told: list[str]
) -> None:
    """Each refund is a fact, also where it has no reference or is told as a sum, and one that is
    told twice is one. So is each other amount that a dispute is said to be about."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(_body("ORD-1042", "e1", "succeeded", "pay_1", T))
        for number, back in enumerate(backs, 1):
            at = T + number * MINUTE
            await driver.send(_body("ORD-1042", f"r{number}", "refunded", "pay_1", at, **back))
        for number, amount in enumerate((300, 600, 600), 1):
            refund = {"reference": "dp_1", "amount": amount, "currency": "KES"}
            body = _body(
                "ORD-1042", f"d{number}", "disputed", "pay_1", T + number * HOUR, refund=refund
            )
            await driver.send(body)
        driver.clock.put(T + DAY)
        found = await write(driver, tmp_path)
    assert [each["fact"] for each in found.document["facts"]] == [
        "The customer paid KES 1,500.00.",
        *(f"{each} was given back to the customer." for each in told),
        "The customer disputed KES 300.00.",
        "The disputed amount was stated as KES 600.00.",
    ]
    assert whole(found.document)["dispute"]["words"] == "KES 600.00"


@pytest.mark.parametrize("end", ["lost", "won"])
async def test_a_dispute_stands_in_it_as_in_the_ledger(tmp_path: Path, end: str) -> None:
    """Of an end that the provider dates to the moment of the opening, and that came before it,
    too: the order is decided, and so is its dispute; no answer is due."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(_body("ORD-1042", "e1", "succeeded", "pay_1", T))
        refund = {"reference": "dp_1", "amount": 300, "currency": "KES"}
        for name, kind in (("d1", f"dispute_{end}"), ("d2", "disputed")):
            body = _body("ORD-1042", name, kind, "pay_1", T + HOUR, refund=refund)
            await driver.send(body)
            driver.clock.put(Instant(driver.clock.now() + MINUTE))
        driver.clock.put(T + DAY)
        found = await write(driver, tmp_path)
    shop = {"lost": "customer", "won": "shop"}[end]
    assert whole(found.document)["dispute"]["state"] == f"decided for the {shop}"
    assert found.document["title"] == "Statement on a payment dispute that was decided"
    assert found.document["asked_for"].startswith("This letter asks for nothing")
    assert "Answer due" not in (await letter_in(found, "html")).decode()


async def test_a_dispute_that_was_won_for_a_part_is_told_with_what_stays_lost(
    tmp_path: Path,
) -> None:
    """In its state, among the facts and in the words on its deadline: the money says the same."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(_body("ORD-1042", "e1", "succeeded", "pay_1", T))
        told = (("disputed", 1500), ("dispute_lost", 1500), ("dispute_won", 600))
        for number, (kind, amount) in enumerate(told, 1):
            refund = {"reference": "dp_1", "amount": amount, "currency": "KES"}
            at = T + number * HOUR
            await driver.send(_body("ORD-1042", f"d{number}", kind, "pay_1", at, refund=refund))
        driver.clock.put(T + DAY)
        found = await write(driver, tmp_path)
    part = "decided for the shop in part: KES 900.00"
    assert found.document["facts"][-2]["fact"] == "The dispute was decided for the customer."
    assert whole(found.document)["dispute"]["state"] == f"{part} remains lost"
    assert found.document["facts"][-1]["fact"] == f"The dispute was {part} remained lost."
    assert ["Lost in disputes", "KES 900.00"] in found.document["money"]
    assert whole(found.case.document())["dispute"]["still_lost"]["amount"] == "900.00"
    assert f"is {part} remains lost. No answer is due" in found.case.document()["deadline"]


@pytest.mark.parametrize("open_at", ["shop", "till"])
async def test_a_dispute_is_told_from_one_of_another_source_whose_event_has_its_id(
    tmp_path: Path, open_at: str
) -> None:
    """Numbers that each source counts for itself: the one is lost and the other open."""
    till: dict[str, Any] = {
        "SOURCES__TILL__SECRETS": secret(TILL),
        "SOURCES__TILL__PROFILE": "checkout",
    }
    async with driving(tmp_path, with_worker=False, looking=True, **till) as driver:
        for source, minutes in (("shop", 0), ("till", 1)):
            kind = "disputed" if source == open_at else "dispute_lost"
            of = {"reference": "7", "amount": 1500, "currency": "KES"}
            at = T + minutes * MINUTE
            paid = _body("ORD-1042", "1", "succeeded", f"pay_{source}", at)
            gone = _body("ORD-1042", "2", kind, f"pay_{source}", at + HOUR, refund=of)
            for each in (paid, gone):
                content, key = json.dumps(each).encode(), KEY if source == "shop" else TILL
                headers = signed(content, at=driver.clock.now(), key=key)
                assert (await driver.send(content, headers, source=source)).status_code == 200
        driver.clock.put(T + DAY)
        found = await write(driver, tmp_path)
    dispute = found.case.dispute
    assert dispute is not None
    assert (dispute.source, dispute.state) == (open_at, "open")
    assert whole(found.document)["dispute"]["state"] == "not decided yet"


async def test_a_dispute_that_was_lost_in_part_is_told_with_what_was_lost(tmp_path: Path) -> None:
    """It was told as lost in full."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(_body("ORD-1042", "e1", "succeeded", "pay_1", T))
        for number, (kind, amount) in enumerate((("disputed", 1500), ("dispute_lost", 400)), 1):
            refund = {"reference": "dp_1", "amount": amount, "currency": "KES"}
            at = T + number * HOUR
            await driver.send(_body("ORD-1042", f"d{number}", kind, "pay_1", at, refund=refund))
        driver.clock.put(T + DAY)
        found = await write(driver, tmp_path)
    part = "decided for the customer in part: KES 400.00"
    assert whole(found.document)["dispute"]["state"] == f"{part} remains lost"
    assert whole(found.document)["dispute"]["words"] == "KES 1,500.00"
    assert found.document["facts"][-1]["fact"] == f"The dispute was {part} remained lost."
    assert ["Lost in disputes", "KES 400.00"] in found.document["money"]
    assert whole(found.case.document())["dispute"]["still_lost"]["amount"] == "400.00"


async def test_its_answer_tells_times_in_the_merchants_zone_and_names_it(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = with_settings(driver.service.context, timezone="Africa/Nairobi")
        await driver.send(_body("ORD-1042", "e1", "pending", "pay_1", T))
        driver.clock.put(T + DAY)
        found = await write(driver, tmp_path)
    answer = " ".join(found.document["answer"])
    assert "by 20 November 2026, 13:35 EAT nobody" in answer
    assert "UTC" not in answer


async def test_a_deadline_that_is_over_is_said_to_be_with_what_still_can_be_done(
    tmp_path: Path,
) -> None:
    """A microsecond after it, and not at it; once the dispute is decided, no answer is due."""
    async with driving(tmp_path, with_worker=False) as driver:
        refund = {"reference": "dp_1", "amount": 1500, "currency": "KES"}
        due = format_instant(DUE)
        opened = refund | {"respond_by": due}
        await driver.send(_body("ORD-1042", "e1", "succeeded", "pay_1", T))
        await driver.send(_body("ORD-1042", "e2", "disputed", "pay_1", OPENED, refund=opened))
        driver.clock.put(DUE)
        last = await write(driver, tmp_path)
        driver.clock.put(Instant(DUE + 1))
        late = await write(driver, tmp_path)
        lost = _body("ORD-1042", "e3", "dispute_lost", "pay_1", DUE + 1, refund=refund)
        await driver.send(lost)
        driver.clock.put(Instant(DUE + DAY))
        decided = await write(driver, tmp_path)
    assert [each.case.overdue for each in (last, late, decided)] == [False, True, False]
    assert last.case.deadline == f"The bank accepts an answer until {due}."
    assert late.case.deadline.startswith(
        f"The deadline has passed: the bank accepted an answer until {due}. "
    )
    assert "Ask the payment service today whether it still accepts one" in late.case.deadline
    assert decided.case.deadline == ("The dispute is decided for the customer. No answer is due.")
    assert [whole(each.document)["dispute"]["overdue"] for each in (last, late)] == [False, True]
    for form in ("html", "pdf"):
        words = [await _words(each, form) for each in (last, late)]
        assert ["had passed" in each for each in words] == [False, True]


async def _words(letter: Letter, form: LetterForm) -> str:
    content = await letter_in(letter, form)
    return content.decode() if form == "html" else texts(content)[0]


@for_each(
    ("standing", "scheme", "words"),
    [
        ("said", "hmac-sha256", "its signature was checked again for this letter"),
        ("said", "token", "it contained the secret that the payment service shares with the shop"),
        ("fetched", None, "the shop requested it, and such an answer is not signed"),
        ("unconfirmed", None, "it was not signed"),
    ],
)
def test_no_signature_is_claimed_where_there_is_none(
    standing: Standing, scheme: str | None, words: str
) -> None:
    proven = ProvenSignature(sentence="", scheme=scheme, key=None if scheme is None else "00")
    evidence = DeliveryEvidence(
        arrived=None, body=None, method="POST", url="", headers=(), proven=proven,  # type: ignore[arg-type]
    )  # fmt: skip
    assert _signature_words(evidence, standing) == words


# --- what messages state of a card payment --------------------------------------------------------

CARD = {
    "network": "visa", "card": "**** 4242", "credential": "fp_7", "descriptor": "DUKA BORA NAIROBI",
    "avs": "pass", "cvv": "pass", "three_ds": "authenticated", "network_id": "976910110049114",
}  # fmt: skip
BUYER = {
    "phone": PHONE, "name": "Amina Otieno", "email": "amina@example.com", "ip": "192.0.2.7",
    "device": "D-5512-AB", "account": f"+{PHONE}",
    "billing": {"line1": "Moi Avenue 12", "city": "Nairobi"},
}  # fmt: skip


async def card_dispute(driver: Driver, code: str = "10.4") -> None:
    """Make a payment by card that the customer says they did not make, and three before it by the
    same card: one of them too late. Somebody else has the name, and a card that ends alike."""
    body = _body("ORD-8", "p8", "succeeded", "pay_8", T - 250 * DAY)
    body["data"]["payment"] |= CARD | {"credential": "fp_8"}
    other = {"phone": "254722000111", "name": BUYER["name"]}
    await driver.send(body | {"data": body["data"] | {"customer": other}})
    for number, days in enumerate((300, 200, 30)):
        body = _body(f"ORD-{number}", f"p{number}", "succeeded", f"pay_{number}", T - days * DAY)
        body["data"]["payment"] |= CARD
        await driver.send(body | {"data": body["data"] | {"customer": BUYER}})
    paid = _body("ORD-1042", "e1", "succeeded", "pay_b", T)
    paid["data"]["payment"] |= CARD
    paid["data"]["order"]["description"] = "Two solar lamps, model SL-20"
    await driver.send(paid | {"data": paid["data"] | {"customer": BUYER}})
    driver.clock.put(OPENED)
    refund = {
        "reference": "dp_77", "amount": 1500, "currency": "KES", "reason": "fraudulent",
        "reason_code": code, "respond_by": format_instant(DUE),
    }  # fmt: skip
    await driver.send(_body("ORD-1042", "e3", "disputed", "pay_b", OPENED, refund=refund))
    driver.clock.put(OPENED + DAY)


@pytest.fixture(scope="module")
def of_card(tmp_path_factory: pytest.TempPathFactory) -> Letter:
    folder = tmp_path_factory.mktemp("card")

    async def world() -> Letter:
        async with driving(folder, with_worker=False, looking=True) as driver:
            driver.context = with_settings(driver.service.context, timezone="Africa/Nairobi")
            await card_dispute(driver)
            return await write(driver, folder)

    return asyncio.run(world())


def test_it_says_what_messages_state_of_the_payment_and_what_none_states(of_card: Letter) -> None:
    """With the customer's number masked, as everywhere."""
    stated = {each["name"]: each["values"] for each in of_card.document["stated"]}
    assert stated == {
        "Card network": ["visa"], "Card ends in": ["4242"], "What was sold":
        ["Two solar lamps, model SL-20"], "Customer": ["Amina Otieno"],
        "Email address": ["amina@example.com"], "Billing address": ["Moi Avenue 12, Nairobi"],
        "Account at the shop": [masked_phone(PHONE)], "IP address": ["192.0.2.7"],
        "Device": ["D-5512-AB"], "Shown on the bank statement": ["DUKA BORA NAIROBI"],
        "Network transaction id": ["976910110049114"], "Address check (AVS)": ["pass"],
        "Card code check (CVV)": ["pass"], "3-D Secure": ["authenticated"],
    }  # fmt: skip
    assert of_card.document["not_stated"] == ["ARN", "Shipping address"]
    assert whole(of_card.document)["dispute"]["code"] == "10.4"
    assert of_card.document["asked_for"] == (
        "We ask the bank to decide dispute dp_77 in the shop's favor, so that the shop "
        "keeps KES 1,500.00."
    )
    assert PHONE not in json.dumps(of_card.document)


async def test_it_says_whether_earlier_payments_by_the_card_qualify(of_card: Letter) -> None:
    earlier = [each["order"] for each in of_card.document["earlier_orders"]]
    assert earlier == ["ORD-0", "ORD-1", "ORD-2"]
    (rule,) = of_card.document["rules"]
    assert (rule["rule"], rule["orders"]) == ("Visa Compelling Evidence 3.0", ["ORD-0", "ORD-1"])
    page = (await letter_in(of_card, "html")).decode()
    assert "This payment qualifies for Visa Compelling Evidence 3.0: orders ORD-0 and" in page
    assert f"(by {rule['source']}, read 2026-11-29)" in page


async def test_a_letter_that_is_only_looked_at_names_no_customer(tmp_path: Path) -> None:
    """Nor does the API's: the trail notes who takes one that does."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await card_dispute(driver, code="13.1")
        asked = CaseRequest(order="ORD-1042", family="fraud")
        seen, _ = await take_letter(driver.context, asked, None, lines=lines_naming)
    text = json.dumps(seen.document)
    assert "Two solar lamps" in text
    assert [each for each in ("Amina", "amina@", "192.0.2.7", "Moi Avenue") if each in text] == []
    assert "for reason code 10.4, and this dispute has 13.1" in text


# --- what the bank's channel takes ----------------------------------------------------------------


def noise(width: int, height: int) -> bytes:
    """Make a PNG that nothing makes smaller but fewer dots."""
    rows = b"".join(b"\0" + random.Random(n).randbytes(width * 3) for n in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize(
    ("size", "refused"),
    [pytest.param((2400, 330), None, marks=pytest.mark.costly),
     ((1000, 760), r"^checkout for Visa would not accept the letter: its "
      r"size is 2\.\d MB, but the maximum is 2 MB: drop exhibit 1, scan\.png \(2\.3 MB\)")],
)  # fmt: skip
async def test_a_picture_is_made_smaller_or_the_letter_is_refused_with_what_to_drop(
    tmp_path: Path, size: tuple[int, int], refused: str | None
) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await card_dispute(driver)
        content = noise(*size)
        asked = AttachRequest(
            about="order", subject="ORD-1042", name="scan.png", content=content, kind="receipt",
            by=None,
        )  # fmt: skip
        await attach(driver.context, asked)
        found = await write(driver, tmp_path)
    assert found.case.document()["limits"]["bytes"] == 2_000_000
    if refused is not None:
        with pytest.raises(UsageError, match=refused):
            await letter_in(found, "pdf")
        return
    made = await letter_in(found, "pdf")
    assert len(content) > 2_000_000 > len(made)
    assert "Appended to this letter, at a lower resolution." in " ".join(
        " ".join(texts(made)[:2]).split()
    )
    case = replace(found.case, limits=replace(found.case.limits, name_chars=16))
    with pytest.raises(UsageError, match=r"such as letter\.pdf"):
        await letter_in(replace(found, case=case), "pdf", name="letter-ORD-1042.pdf")


async def test_mail_is_shown_as_text_and_long_words_and_digests_are_copied_whole(
    tmp_path: Path,
) -> None:
    long = "R" * 180
    mail = (
        "From: amina@example.com\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n"
        f"Content-Transfer-Encoding: base64\n\n{base64.b64encode(b'Thanks, it came.').decode()}\n"
    )
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(_body("ORD-1042", "e1", "succeeded", "pay_1", T))
        asked = AttachRequest(
            about="order", subject="ORD-1042", name="re.eml", content=mail.encode(),
            kind="correspondence", note=long, by=None,
        )  # fmt: skip
        await attach(driver.context, asked)
        found = await write(driver, tmp_path)
    digest = found.document["exhibits"][0]["sha256"]
    pages = texts(await letter_in(found, "pdf"))
    assert "Thanks, it came." in pages[-1]
    assert "base64" not in pages[-1]
    assert digest in pages[0]
    assert "\u200b" not in "".join(pages)
    assert long in pages[0].replace("\n", "")
    assert len(max(pages[0].split("\n"), key=len)) < 180
    page = (await letter_in(found, "html")).decode()
    assert f"<code>{digest}</code>" in page
    assert "Thanks, it came." in page
