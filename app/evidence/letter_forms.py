"""Make the letter that answers a dispute as HTML or PDF."""

import asyncio
import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from app.access.operators import note_in_trail, who_may
from app.context.context import AppContext
from app.core.child import ChildLimits, ChildStopped, run_in_child
from app.core.errors import UsageError
from app.core.pages import letters, paper
from app.core.text import capital
from app.evidence import dispute_case, gather_evidence, seal
from app.evidence.attachments import ENDINGS
from app.evidence.dispute_letter import (
    OF_ONE_EXHIBIT,
    Exhibit,
    Letter,
    LetterMomentDocument,
    SealedHeadDocument,
    letter_of,
)
from app.evidence.letter_limits import SentFile, fault_of_sending
from app.orders.holds import hold_if_due
from app.receiving.caught_up import must_have_read

LetterForm = Literal["pdf", "html"]

MOST_PAGES: Final = 20
"""Maximum number of pages of an appended exhibit. A longer exhibit is sent separately."""

OF_ONE_LETTER: Final = ChildLimits(memory_mib=4_096, processor_s=90, duration_s=60, result_mib=256)


def letter_form(path: Path) -> LetterForm:
    """Return a letter's format by file name. Raise UsageError if unknown."""
    forms: dict[str, LetterForm] = {".pdf": "pdf", ".html": "html", ".htm": "html"}
    found = forms.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"{path}: name a file that ends in .pdf or .html")
    return found


async def take_letter(
    context: AppContext,
    asked: dispute_case.CaseRequest,
    form: LetterForm | None,
    *,
    lines: gather_evidence.ReadsLines,
    name: str = "letter.pdf",
) -> tuple[Letter, bytes]:
    """Make the letter and its bytes, with an audit entry.

    Without `form`, only the letter is made. Raise UsageError if refused.
    """
    who = await who_may(context, by=asked.by, action="letter_taken")
    await must_have_read(context, as_of=asked.as_of)
    await hold_if_due(context, [asked.order])
    await seal.seal_all(context, await seal.open_signer(context))
    letter = await letter_of(context, asked, lines=lines, personal=form is not None)
    if form is None:
        return letter, b""
    content = await letter_in(letter, form, name=name)
    async with context.database.writing() as connection:
        facts = {"sha256": hashlib.sha256(content).hexdigest(), "form": form}
        await note_in_trail(
            connection, who, action="letter_taken", subject=asked.order,
            at=context.clock.now(), facts=facts,
        )  # fmt: skip
    return letter, content


async def letter_in(letter: Letter, form: LetterForm, *, name: str = "letter.pdf") -> bytes:
    """Return the letter's bytes. Raise UsageError for a failed or too large PDF."""
    if form == "html":
        pictures = {
            _file(each): (each.media, each.content)
            for each in letter.exhibits
            if each.media.startswith("image/")
        }
        shown = {each.number: 1 for each in letter.exhibits if _file(each) in pictures}
        page = await asyncio.to_thread(letters.html_of, blocks_of(letter, shown), pictures)
        return page.encode("utf-8", "backslashreplace")
    content, pages = await _pdf(letter)
    fault = _fault(letter, content, pages, name)
    if fault is not None and any(each.media.startswith("image/") for each in letter.exhibits):
        letter = replace(letter, exhibits=tuple([await _smaller(each) for each in letter.exhibits]))
        content, pages = await _pdf(letter)
        fault = _fault(letter, content, pages, name)
    if fault is not None:
        raise UsageError(f"{letter.case.limits.who} would not accept the letter: {fault}")
    return content


def _fault(letter: Letter, content: bytes, pages: Mapping[int, int], name: str) -> str | None:
    exhibits = [
        SentFile(
            name=f"exhibit {each.number}, {shown['name']}", ending=ENDINGS[each.media],
            size=len(each.content), pages=pages.get(each.number, 0),
            behind=bool(each.text or pages.get(each.number)),
        )
        for each, shown in zip(letter.exhibits, letter.document["exhibits"], strict=True)
    ]  # fmt: skip
    count, ending = len(_PAGE.findall(content)), Path(name).suffix.removeprefix(".").lower()
    own = SentFile(name=name, ending=ending, size=len(content), pages=count)
    return fault_of_sending(own, exhibits, letter.case.limits)


_PAGE: Final = re.compile(rb"/Type\s*/Page\b")

PICTURE_PPI: Final = 150
"""Resolution of a reduced picture, in dots per inch."""


async def _smaller(exhibit: Exhibit) -> Exhibit:
    if not exhibit.media.startswith("image/"):
        return exhibit
    with tempfile.TemporaryDirectory(prefix="tallyhook-letter-") as folder, suppress(ChildStopped):
        root, file = Path(folder), _file(exhibit)
        await asyncio.to_thread((root / file).write_bytes, exhibit.content)
        made = await run_in_child(paper.scaled, root, file, PICTURE_PPI, limits=OF_ONE_EXHIBIT)
        if len(made) < len(exhibit.content):
            return replace(exhibit, content=made, media="image/png", smaller=True)
    return exhibit


def _file(exhibit: Exhibit) -> str:
    ending = ENDINGS[exhibit.media]
    return "" if ending == "txt" else f"exhibit-{exhibit.number}.{ending}"


async def _pdf(letter: Letter) -> tuple[bytes, dict[int, int]]:
    if find_spec("typst") is None:
        raise UsageError(
            "PDF needs typst, which is not installed: run `pip install typst` in the environment "
            "of Tallyhook, or name a file that ends in .html"
        )
    with tempfile.TemporaryDirectory(prefix="tallyhook-letter-") as folder:
        root, pages = Path(folder), dict[int, int]()
        template = Path(shutil.copy(letters.TYPST, root))
        for exhibit in letter.exhibits:
            if file := _file(exhibit):
                await asyncio.to_thread((root / file).write_bytes, exhibit.content)
                with suppress(ChildStopped):
                    pages[exhibit.number] = await run_in_child(
                        paper.pages_of, root, file, MOST_PAGES, limits=OF_ONE_EXHIBIT
                    )
        document = blocks_of(letter, pages)
        try:
            made = await run_in_child(letters.pdf_of, document, template, limits=OF_ONE_LETTER)
        except ChildStopped as error:
            if error.reason == "failed":
                raise
            raise UsageError(
                f"the letter cannot be laid out as a PDF: {error}; name a file that ends in .html, "
                "or attach fewer files"
            ) from None
        return made, pages


def unshown(letter: Letter) -> str:
    """Return a sentence on characters that the PDF cannot show."""
    return paper.unshown_in(letters.pdf_values(blocks_of(letter, {})))


_SUM: Final = re.compile(r"\b([A-Z]{3}) (?=\d)")


def _unbroken(sentence: str) -> str:
    return _SUM.sub("\\1\u00a0", sentence)


def blocks_of(letter: Letter, pages: Mapping[int, int]) -> letters.LetterDocument:
    """Return the letter as blocks."""
    said, order = letter.document, f"Order {letter.document['order']}"
    merchant: Mapping[str, Any] = said["merchant"]
    parts = {part: words or f"[merchant's {part} is not set]" for part, words in merchant.items()}
    sender = [letters.Phrase(words, line=True) for words in parts.values()]
    sender[0] = letters.Phrase(parts["name"], "strong")
    zone = "UTC" if said["zone"] == "UTC" else f"those of {said['zone']}"
    about = f"{order}, as known at {_at(said['as_of'])}. Times are {zone}."
    blocks: list[letters.Block] = [
        letters.Paragraph(sender),
        letters.Heading(said["title"], level=1),
        letters.Paragraph(about, "quiet"),
        letters.LetterTable(
            rows=[*_of_dispute(said["dispute"]), *said["money"]], widths=(0, 1), labels=True
        ),
        letters.Paragraph(_unbroken(" ".join(said["answer"])), "strong"),
        letters.Paragraph(_unbroken(said["asked_for"]), "strong"),
        *_of_payment(said),
        letters.Heading("What happened"),
        *_happened(said),
    ]
    if said["earlier_orders"]:
        rows = [(e["order"], _at(e["paid_at"]), e["words"]) for e in said["earlier_orders"]]
        blocks += [
            letters.Heading("Earlier orders of the same customer"),
            letters.Paragraph(
                "They were paid by a customer with the same phone number, and no dispute of any of "
                "them is known."
            ),
            letters.LetterTable(
                rows=rows, widths=(1, 0, 0), head=("Order", "Paid", "Amount"), numbers=(2,)
            ),
        ]
    shown = {
        each.number: "Appended to this letter, at a lower resolution."
        if each.smaller
        else ("Appended to this letter.")
        for each in letter.exhibits
        if each.text or pages.get(each.number)
    }
    blocks += [letters.Heading("Exhibits"), _listed(said["exhibits"], shown)]
    blocks += [letters.Heading("How this can be checked"), letters.Paragraph(_checked(said["log"]))]
    for exhibit in letter.exhibits:
        name = said["exhibits"][exhibit.number - 1]["name"]
        if exhibit.number in shown:
            behind = letters.ShownExhibit(
                title=f"Exhibit {exhibit.number}: {name}", text=exhibit.text,
                file=_file(exhibit), pages=pages.get(exhibit.number, 0),
            )  # fmt: skip
            blocks.append(behind)
    return letters.LetterDocument(
        title=f"{said['title']}: {order}", author=merchant["name"],
        sheet=(merchant["name"], order), stamp=said["stamp"], blocks=blocks,
    )  # fmt: skip


def _at(moment: LetterMomentDocument) -> str:
    if moment["local"] is None:
        return "not stated"
    same = moment["utc"] == f"{moment['local'][-8:]} UTC"
    return f"{moment['local']} UTC" if same else f"{moment['local']} ({moment['utc']})"


def _of_dispute(found: Mapping[str, Any] | None) -> list[tuple[str, letters.Phrases]]:
    if found is None:
        return []
    late = "; it had passed when this letter was written" if found["overdue"] else ""
    due = (letters.Phrase(f"{_at(found['respond_by'])}{late}", "strong"),)
    return [
        ("Dispute", found["reference"] or "no reference was given"),
        ("Payment", found["payment"] or "no reference was given"),
        ("Reason", capital(found["reason"])),
        ("Reason code", found["code"] or "no message states one"),
        ("Disputed amount", found["words"] or "not stated"),
        ("Opened", _at(found["opened_at"])),
        *([("Answer due", due)] if found["respond_by"]["at"] or found["open"] else []),
        ("State", capital(found["state"])),
    ]


def _of_payment(said: Mapping[str, Any]) -> list[letters.Block]:
    rows = [(each["name"], "; ".join(each["values"])) for each in said["stated"]]
    lacking = ", ".join(said["not_stated"])
    blocks: list[letters.Block] = [letters.Heading("The payment")]
    blocks += [letters.LetterTable(rows=rows, widths=(0, 1), labels=True)] if rows else []
    if lacking:
        words = f"No message that was read states: {lacking}."
        blocks.append(letters.Paragraph(words, "quiet"))
    for each in said["rules"]:
        source = f" (by {each['source']}, read {each['read']})"
        blocks.append(
            letters.Paragraph((letters.Phrase(each["sentence"]), letters.Phrase(source, "quiet")))
        )
    return blocks


def _happened(said: Mapping[str, Any]) -> list[letters.Block]:
    if not said["facts"]:
        return [letters.Paragraph("Nothing is known about this order yet.")]
    left = said["facts_left_out"]
    note = f"{left} earlier facts are in the evidence bundle of this order."
    rows = []
    for each in said["facts"]:
        at, utc = each["at"]["local"], each["at"]["utc"]
        when = (
            (letters.Phrase(at),)
            if _at(each["at"]).endswith("UTC")
            else (letters.Phrase(at), letters.Phrase(utc, "quiet", line=True))
        )
        rows.append(
            (when, _unbroken(each["fact"]), (letters.Phrase(f"{each['rests_on']}.", "quiet"),))
        )
    head = ("When", "What", "Evidence")
    table = letters.LetterTable(rows=rows, widths=(0, 1, 1.25), head=head)
    return [*([letters.Paragraph(note, "quiet")] if left else []), table]


def _listed(exhibits: Sequence[Mapping[str, Any]], shown: Mapping[int, str]) -> letters.Block:
    rows: list[tuple[letters.Phrases, ...]] = []
    for each in exhibits:
        parcel = f"{each['carrier']} {each['tracking']}".strip()
        what = [letters.Phrase(capital(each["words"]) + (f": {parcel}" if parcel else ""))]
        what += [letters.Phrase(each["note"], line=True)] if each["note"] else []
        where = shown.get(each["number"], "Sent as a separate file.")
        name = (letters.Phrase(each["name"]), letters.Phrase(where, "quiet", line=True))
        rows.append(((letters.Phrase(str(each["number"]), "strong"),), what, name))
        rows.append(
            ((letters.Phrase("SHA-256 ", "quiet"), letters.Phrase(each["sha256"], "code")),)
        )
    if not rows:
        return letters.Paragraph("None are attached.")
    return letters.LetterTable(rows=rows, widths=(0, 1, 1), head=("", "What it is", "File"))


def _checked(log: SealedHeadDocument | None) -> letters.Phrases:
    said = (
        "Each message was verified when it arrived, before it was parsed. The shop's evidence "
        "bundle of this order contains the digests of the messages, the proofs, and a program "
        "that checks them without the shop"
    )
    if log is None:
        return f"{said}."
    lie = f"{said}. The entries named above are in the log {log['origin']} of {log['size']} "
    signed = f". The shop's evidence key is {log['key']}."
    return (
        letters.Phrase(f"{lie}entries, whose signed head is "),
        letters.Phrase(log["head"], "code"),
        letters.Phrase(signed),
    )
