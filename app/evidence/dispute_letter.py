"""The letter that answers a dispute: what happened, to the second, what each fact rests on, and the
exhibits. Two pages, and the exhibits behind them.

    1 case     the dispute, what is attached, earlier orders           dispute_case.py
    2 dossier  signatures checked again, and the log's entries         gather_evidence.py
    3 letter   one document, of which every form is made
    4 form     HTML, or PDF by typst, an extra (`pdf`)

All text goes into a form as JSON, so that none can be markup. A file that typst cannot lay out is
listed, and said to be sent by itself. Leaves out codes: what a program needs is in the evidence
bundle.
"""

import asyncio
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from app.access.operators import note_in_trail, who_may
from app.context.context import AppContext
from app.core.child import ChildLimits, ChildStopped, run_in_child
from app.core.errors import UsageError
from app.core.pages import letters, paper
from app.core.pages.letters import Block, Heading, Paragraph, Run, ShownExhibit, Table, Text
from app.core.text import counted
from app.core.zones import local_text
from app.evidence import attachments, dispute, dispute_case, gather_evidence, keys, seal
from app.evidence.bundle_letter import STAMP, price_rows
from app.evidence.letter_limits import SentFile, fault_of_sending
from app.evidence.mail_text import is_mail, mail_text
from app.orders.holds import hold_if_due
from app.providers.schemes import TOKENS
from app.receiving.caught_up import must_have_read
from reconcile.instants import Instant
from reconcile.ledger.correlate import Heard
from reconcile.ledger.events import ANSWERS, UNCONFIRMED, Standing
from reconcile.ledger.ledger import Ledger, Movement
from reconcile.ledger.plain import UNREAD, plain_outcome
from reconcile.ledger.unheard import Unheard
from reconcile.money import Money, to_json

STATED: Final[Mapping[str, str]] = {
    "network": "Card network", "card": "Card ends in", "arn": "ARN",
    "network_id": "Network transaction id", "descriptor": "Shown on the bank statement",
    "sold": "What was sold", "name": "Customer", "email": "Email address",
    "account": "Account at the shop", "billing": "Billing address",
    "shipping": "Shipping address", "ip": "IP address", "device": "Device",
    "avs": "Check of the address (AVS)", "cvv": "Check of the card code (CVV)",
    "three_ds": "3-D Secure",
}  # fmt: skip
"""What messages may state of the payment, as a letter calls it."""

PERSONAL: Final = frozenset(("name", "email", "account", "billing", "shipping", "ip", "device"))

MOST_FACTS: Final = 16
"""Rows of the letter: as many as fit on a page. The evidence bundle has all."""

_RECORDS: Final[Mapping[str, str]] = {
    "order_placed": "The customer placed the order",
    "order_canceled": "The shop canceled the order",
    "order_fulfilled": "The shop shipped the order",
    "session_opened": "The payment page was opened for the customer",
}
"""Records of the shop that a bank asks about."""

_CLAIMS: Final[Mapping[str, str]] = {
    "authorized": "{money} was reserved on the customer's account",
    "succeeded": "The customer paid {money}",
    "declined": "A try to pay was declined",
    "refunded": "{money} was given back to the customer",
    "refund_failed": "A refund of {money} failed",
    "reversed": "The payment of {money} was taken back",
    "disputed": "The customer disputed {money}",
    "dispute_won": "The dispute was decided for the shop",
    "dispute_lost": "The dispute was decided for the customer",
}
"""What a message of the payment service says, once each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A file behind the letter.

    text     what is shown of a text or a mail
    smaller  whether `content` is a picture made smaller than the file
    """

    number: int
    media: str
    content: bytes = field(repr=False)
    text: str = field(default="", repr=False)
    smaller: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The letter as values, the files behind it, and what is missing for it."""

    document: dict[str, Any]
    exhibits: tuple[Exhibit, ...]
    case: dispute_case.DisputeCase


async def letter_of(
    context: AppContext,
    asked: dispute_case.CaseRequest,
    *,
    lines: gather_evidence.ReadsLines,
    personal: bool = False,
) -> Letter:
    """Make the letter, and note nothing: `take_letter` notes who takes one away.

    personal  whether it says who the customer is, as far as messages state that

    Raise NotFoundError for an order of which nothing was known.
    """
    case = await dispute_case.dispute_case(context, asked)
    dossier = await gather_evidence.gather_dossier(
        context, asked.order, as_of=case.as_of, full=False, lines=lines
    )
    async with context.database.reading() as connection:
        contents = [
            await attachments.attachment_bytes(connection, each.record) for each in case.attachments
        ]
    exhibits = []
    for number, (each, content) in enumerate(zip(case.attachments, contents, strict=True), 1):
        media = each.record.media
        text = await _text(content) if media == "text/plain" else ""
        exhibits.append(Exhibit(number=number, media=media, content=content, text=text))
    writer = _Writer(context, case, dossier, personal=personal)
    return Letter(document=writer.document(), exhibits=tuple(exhibits), case=case)


class _Writer:
    """Writes a case in the merchant's own time."""

    def __init__(
        self,
        context: AppContext,
        case: dispute_case.DisputeCase,
        dossier: gather_evidence.Dossier,
        *,
        personal: bool,
    ) -> None:
        self._case = case
        self._members = [each for each in STATED if personal or each not in PERSONAL]
        self._dossier = dossier
        self._merchant = dispute_case.merchant_of(context.settings)
        self._environment = context.database.environment or ""
        self._zone = context.calendar_zone
        self._leaves = {each.subject: each.number for each in dossier.sealed.leaves}
        self._deliveries = {each.arrived.delivery_id: each for each in dossier.deliveries}

    def document(self) -> dict[str, Any]:
        """Return all that is in the letter."""
        case, merchant = self._case, self._merchant
        rows = sorted([*self._of_records(), *self._of_messages()], key=lambda each: each[0])
        title = "Statement on a payment dispute that was decided"
        if case.dispute is None:
            title = f"Statement on the payment of order {case.order}"
        elif case.dispute.state == "open":
            title = "Response to a payment dispute"
        sealed, log = self._dossier.sealed, None
        if sealed.checkpoint:  # the signed head that the entries lie under, and the log's key
            origin, size, head = sealed.checkpoint.split("\n")[:3]
            key = keys.key_name(keys.PublicKey(bytes.fromhex(sealed.keys[-1])))
            log = {"origin": origin, "size": size, "head": head, "key": key}
        return {
            "title": title,
            "stamp": STAMP if self._environment == "sandbox" else "",
            "environment": self._environment,
            "merchant": {
                "name": merchant.name, "address": merchant.address, "contact": merchant.contact,
            },
            "missing": list(merchant.missing()),
            "order": case.order,
            "as_of": self._moment(case.as_of),
            "zone": str(self._zone),
            "dispute": self._dispute(),
            "stated": [
                {"name": STATED[each], "values": list(case.stated[each])}
                for each in self._members
                if each in case.stated
            ],
            "not_stated": [STATED[each] for each in self._members if each not in case.stated],
            "asked_for": self._asked_for(),
            "rules": [each.document() for each in case.rules],
            "answer": [
                *([UNREAD] if case.unheard.messages else []),
                *(local_text(each, self._zone, named=True) for each in plain_outcome(case.ledger)),
            ],
            "money": _money(case.ledger, unheard=case.unheard),
            "facts": [
                {"at": self._moment(at), "fact": f"{fact}.", "rests_on": rests}
                for at, fact, rests in rows[-MOST_FACTS:]
            ],
            "facts_left_out": max(0, len(rows) - MOST_FACTS),
            "exhibits": self._exhibits(),
            "earlier_orders": [
                {
                    "order": each.order,
                    "paid_at": self._moment(each.paid_at),
                    "money": to_json(each.money),
                    "words": str(each.money),
                }
                for each in case.earlier
            ],
            "log": log,
        }  # fmt: skip

    def _moment(self, instant: Instant | None) -> dict[str, str | None]:
        """Write the merchant's time and UTC beside it, with its day where that is another one."""
        if instant is None:
            return {"at": None, "local": None, "utc": None}
        local, utc = (
            dispute_case.local_words(instant, self._zone),
            dispute_case.local_words(instant, UTC),
        )
        day, _, time = utc.partition(", ")
        return {
            "at": dispute_case.exact(instant),
            "local": local,
            "utc": f"{time} UTC" if local.startswith(day) else f"{utc} UTC",
        }

    def _dispute(self) -> dict[str, Any] | None:
        found = self._case.dispute
        if found is None:
            return None
        return {
            "reference": found.reference,
            "payment": found.payment,
            "reason": dispute.FAMILY_WORDS[self._case.family],
            "family": self._case.family,
            "code": " and ".join(self._case.stated.get("reason_code", ())) or found.reason,
            "money": None if found.money is None else to_json(found.money),
            "words": None if found.money is None else str(found.money),
            "opened_at": self._moment(found.opened_at),
            "respond_by": self._moment(self._case.respond_by),
            "overdue": self._case.overdue,
            "state": found.words,
            "open": found.state == "open",
        }

    def _asked_for(self) -> str:
        """Say in one sentence what the bank is to do."""
        found = self._case.dispute
        if found is None or found.state != "open":
            return "Nothing is asked for: no dispute of it is open, as far as is known."
        about = "the dispute" if found.reference is None else f"dispute {found.reference}"
        if not any(each.captured - each.refunded for each in self._case.ledger.balances):
            return f"We ask the bank to close {about}: the money has been given back."
        of = "the disputed amount" if found.money is None else str(found.money)
        return f"We ask the bank to decide {about} for the shop, and to leave {of} with it."

    # --- facts -----------------------------------------------------------------------------------

    def _of_records(self) -> Iterable[tuple[Instant, str, str]]:
        filed = self._case.ledger.case.filed
        stated = [each for each in self._case.history.records if each.order == self._case.order]
        stated.sort(key=lambda each: (each.recorded_at, each.record_id))
        # Placed once, on the day that the shop stated, and not where it stated none.
        placed = [each for each in stated if each.dated and each.at == filed.placed_at][:1]
        price = None if filed.placed is None else filed.placed.money
        since = {  # unless the shop has denied it since
            "order_canceled": filed.canceled,
            "order_fulfilled": filed.fulfilled,
            "session_opened": next(iter(stated), None),
        }
        for each in stated:
            first = since.get(each.kind)
            if each in placed or (first is not None and each.recorded_at >= first.recorded_at):
                priced = each.kind == "order_placed" and price is not None
                words = _RECORDS[each.kind] + (f" of {price}" if priced else "")
                noted = dispute_case.local_words(each.recorded_at, self._zone)
                entry = self._entry(each.record_id)
                yield each.at, words, f"The shop's own record, noted {noted}{entry}"

    def _entry(self, subject: str) -> str:
        place = self._leaves.get(subject)
        return "" if place is None else f"; entry {place:,} of the sealed log"

    def _of_messages(self) -> Iterable[tuple[Instant, str, str]]:
        """Yield money that moved, once for each movement and with its amount, so that the lines add
        up to what was paid and given back; and what else was stated of one thing, once."""
        moved: dict[tuple[str, object], Movement] = {}
        for movement in self._case.ledger.movements:
            for heard in movement.heard:
                if _MOVES.get(movement.kind) == heard.event.claim:
                    moved.setdefault((heard.event.claim, heard.event.key), movement)
        seen = set[object]()
        for each in self._case.ledger.case.heard:
            claim, event = each.event.claim, each.event
            if claim not in _CLAIMS:
                continue
            known = moved.get((claim, event.key))
            thing: tuple[object, ...] = (claim, event.source, event.payment, event.movement)
            what = thing
            if known is not None:
                what = (*thing, id(known))
            elif claim == "disputed" and event.money is not None:
                what = (*thing, event.money)
            if what in seen:
                continue
            money = event.money
            if known is not None and known.money is not None:
                money = known.money  # of a sum, what it is more by
            stated = "an amount that was not stated" if money is None else str(money)
            words = _CLAIMS[claim].format(money=stated)
            words = words[0].upper() + words[1:]
            if claim in ("dispute_won", "dispute_lost"):
                lost = dispute.still_lost([each], self._case.ledger)
                words += "" if lost is None else f" in part, and {lost} of it stayed lost"
            if claim == "disputed" and thing in seen:
                words = f"The disputed amount was stated as {event.money}"
            seen |= {thing, what}
            yield each.at, words, self._rests_on_message(each)

    def _rests_on_message(self, heard: Heard) -> str:
        arrivals = sorted(
            (each.received_at, each.delivery_id)
            for each in self._case.history.deliveries
            if each.event.key == heard.event.key
        )
        evidence = self._deliveries.get(arrivals[0][1]) if arrivals else None
        at = dispute_case.local_words(heard.first, self._zone)
        words = f"Message of the payment service, received {at}"
        words += f" and {counted(heard.count - 1, 'time')} more" if heard.count > 1 else ""
        words += f"; {_signature_words(evidence, heard.event.standing)}"
        return words + (self._entry(arrivals[0][1]) if arrivals else "")

    def _exhibits(self) -> list[dict[str, Any]]:
        found = []
        for number, each in enumerate(self._case.attachments, 1):
            document = each.document()
            parts = ("attachment", "kind", "name", "note", "carrier", "tracking", "media", "size")
            found.append(
                {
                    "number": number,
                    **{part: document[part] for part in parts},
                    "words": attachments.KIND_WORDS[each.record.kind],
                    "sha256": each.record.sha256,
                    "attached_at": self._moment(each.record.at),
                }
            )
        return found


_MOVES: Final = {"captured": "succeeded", "refunded": "refunded", "reversed": "reversed"}
"""The claim that states a movement, by its kind."""


def _signature_words(evidence: gather_evidence.DeliveryEvidence | None, standing: Standing) -> str:
    if standing in ANSWERS:
        return "the shop had asked for it, and such an answer is not signed"
    if standing == UNCONFIRMED:
        return "it was not signed"
    if evidence is None or evidence.proven.key is None:
        return "it was verified when it arrived"
    if evidence.proven.scheme in TOKENS:
        return "it brought the secret that the payment service shares with the shop"
    return "its signature was checked again for this letter"


def _money(ledger: Ledger, *, unheard: Unheard) -> list[list[str]]:
    priced = price_rows(ledger, price="Price of the order", due="Due at the payment service")
    rows = [list(each) for each in priced]
    for balance in ledger.balances:
        amounts = (
            ("Paid", balance.captured, True), ("Given back", balance.refunded, True),
            ("Taken back", balance.reversed, False), ("Lost in disputes", balance.lost, False),
        )  # fmt: skip
        rows += [
            [what, str(Money(minor=minor, currency=balance.currency))]
            for what, minor, always in amounts
            if minor or always
        ]
    paid = "not known" if unheard.messages or unheard.may_lack else "nothing"
    return rows if ledger.balances else [*rows, ["Paid", paid]]


# --- its forms ------------------------------------------------------------------------------------

LetterForm = Literal["pdf", "html"]

MOST_PAGES: Final = 20
"""Pages of one exhibit behind the letter: a longer one is listed, and sent by itself."""

MOST_TEXT: Final = 20_000
"""Characters of a text that stand behind the letter: some eight pages."""

OF_ONE_EXHIBIT: Final = ChildLimits(memory_mib=2_048, processor_s=15, duration_s=20)
"""A picture of MAX_PIXELS takes 400 MiB and a second; most files take a tenth of a second."""

OF_ONE_LETTER: Final = ChildLimits(memory_mib=4_096, processor_s=90, duration_s=60, result_mib=256)

_ENDINGS: Final = {"application/pdf": "pdf", "image/png": "png", "image/jpeg": "jpg"}


def letter_form(path: Path) -> LetterForm:
    """Return the form that a file's name asks for. Raise UsageError."""
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
    """Make the letter and its bytes in a form; the trail notes who takes them away before they have
    them. Without a form the letter is only looked at.

    name  of the file that a PDF is kept in

    Raise UsageError for who may not, for a PDF where typst is not installed, and for one that is
    more than the bank's channel takes; NotFoundError for an order of which nothing was known.
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
    """Return the bytes of one form. Raise UsageError as `_pdf` does, and for a PDF that is more
    than the bank's channel takes, also with its pictures made smaller."""
    if form == "html":
        pictures = {
            _file(each): (each.media, each.content)
            for each in letter.exhibits
            if each.media.startswith("image/")
        }
        shown = {each.number: 1 for each in letter.exhibits if _file(each) in pictures}
        page = await asyncio.to_thread(letters.html_of, blocks_of(letter, shown), pictures)
        return page.encode("utf-8", "backslashreplace")
    limits = letter.case.limits
    content, pages = await _pdf(letter)
    fault = fault_of_sending(_sent(letter, content, pages, name), limits)
    if fault is not None and any(each.media.startswith("image/") for each in letter.exhibits):
        letter = replace(letter, exhibits=tuple([await _smaller(each) for each in letter.exhibits]))
        content, pages = await _pdf(letter)
        fault = fault_of_sending(_sent(letter, content, pages, name), limits)
    if fault is not None:
        raise UsageError(f"the letter is more than {limits.who} takes: {fault}")
    return content


def _sent(letter: Letter, content: bytes, pages: Mapping[int, int], name: str) -> list[SentFile]:
    """Return the files that are sent: the letter, and the exhibits that are not behind it."""
    names = {
        each.number: f"exhibit {each.number}, {shown['name']}"
        for each, shown in zip(letter.exhibits, letter.document["exhibits"], strict=True)
    }
    behind = [
        (names[each.number], len(each.content), pages[each.number])
        for each in letter.exhibits
        if pages.get(each.number)
    ]
    alone = [
        SentFile(name=names[each.number], size=len(each.content), pages=None)
        for each in letter.exhibits
        if not each.text and not pages.get(each.number)
    ]
    own = SentFile(name=name, size=len(content), pages=len(_PAGE.findall(content)), behind=behind)
    return [own, *alone]


_PAGE: Final = re.compile(rb"/Type\s*/Page\b")
"""A page's object in a PDF that typst writes: it compresses none of these."""

PICTURE_PPI: Final = 150
"""Dots an inch of a picture that is made smaller, across the sheet: small print stays legible."""


async def _smaller(exhibit: Exhibit) -> Exhibit:
    """Return a picture as one of fewer dots where that takes fewer bytes, else the exhibit."""
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
    ending = _ENDINGS.get(exhibit.media)
    return f"exhibit-{exhibit.number}.{ending}" if ending else ""


async def _text(content: bytes) -> str:
    """Return what is shown of a text: of a mail its head, its words, and what is attached to it."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    if is_mail(content):
        with suppress(ChildStopped):
            text = await run_in_child(mail_text, content, limits=OF_ONE_EXHIBIT)
    rest = "\n[…] The rest is in the file." if len(text) > MOST_TEXT else ""
    return text[:MOST_TEXT] + rest


async def _pdf(letter: Letter) -> tuple[bytes, dict[int, int]]:
    """Lay out the letter, and behind it each exhibit that typst can lay out; return how many pages
    of each exhibit are there, too.

    Typst reads the exhibits, which are strangers' files, in child processes: first each by itself,
    so that none spoils the letter. Raise UsageError.
    """
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
    """Say which characters of the letter its PDF cannot show, and what to do; empty for none."""
    return paper.unshown_in(letters.pdf_values(blocks_of(letter, {})))


_SUM: Final = re.compile(r"\b([A-Z]{3}) (?=\d)")


def _unbroken(sentence: str) -> str:
    """Return a sentence with amounts that no line breaks."""
    return _SUM.sub("\\1\u00a0", sentence)


def blocks_of(letter: Letter, pages: Mapping[int, int]) -> letters.LetterDocument:
    """Return the letter as its forms are made of it.

    pages  of each exhibit by its number, as many as the form shows behind the letter
    """
    said, order = letter.document, f"Order {letter.document['order']}"
    merchant: dict[str, str] = said["merchant"]
    parts = {part: words or f"[merchant's {part} is not set]" for part, words in merchant.items()}
    sender = [Run(words, line=True) for words in parts.values()]
    sender[0] = Run(parts["name"], "strong")
    zone = "UTC" if said["zone"] == "UTC" else f"those of {said['zone']}"
    about = f"{order}, as known at {_at(said['as_of'])}. Times are {zone}."
    blocks: list[Block] = [
        Paragraph(sender),
        Heading(said["title"], level=1),
        Paragraph((Run(about, "quiet"),)),
        Table(rows=[*_of_dispute(said["dispute"]), *said["money"]], widths=(0, 1), labels=True),
        Paragraph((Run(_unbroken(" ".join(said["answer"])), "strong"),)),
        Paragraph((Run(_unbroken(said["asked_for"]), "strong"),)),
        *_of_payment(said),
        Heading("What happened"),
        *_happened(said),
    ]
    if said["earlier_orders"]:
        rows = [(e["order"], _at(e["paid_at"]), e["words"]) for e in said["earlier_orders"]]
        blocks += [
            Heading("Earlier orders of the same customer"),
            Paragraph(
                "They were paid by a customer with the same phone number, and no dispute of any of "
                "them is known."
            ),
            Table(rows=rows, widths=(1, 0, 0), head=("Order", "Paid", "Amount"), numbers=(2,)),
        ]
    shown = {
        each.number: "Behind this letter, made smaller." if each.smaller else "Behind this letter."
        for each in letter.exhibits
        if each.text or pages.get(each.number)
    }
    blocks += [Heading("Exhibits"), _listed(said["exhibits"], shown)]
    blocks += [Heading("How this can be checked"), Paragraph(_checked(said["log"]))]
    for exhibit in letter.exhibits:
        name = said["exhibits"][exhibit.number - 1]["name"]
        if exhibit.number in shown:
            behind = ShownExhibit(
                title=f"Exhibit {exhibit.number}: {name}", text=exhibit.text,
                file=_file(exhibit), pages=pages.get(exhibit.number, 0),
            )  # fmt: skip
            blocks.append(behind)
    return letters.LetterDocument(
        title=f"{said['title']}: {order}", author=merchant["name"],
        sheet=(merchant["name"], order), stamp=said["stamp"], blocks=blocks,
    )  # fmt: skip


def _at(moment: Mapping[str, str | None]) -> str:
    """Write a moment in a line: the merchant's time, and UTC where that is another."""
    if moment["local"] is None:
        return "not stated"
    same = moment["utc"] == f"{moment['local'][-8:]} UTC"
    return f"{moment['local']} UTC" if same else f"{moment['local']} ({moment['utc']})"


def _of_dispute(found: Mapping[str, Any] | None) -> list[tuple[str, Text]]:
    if found is None:
        return []
    late = "; it had passed when this was written" if found["overdue"] else ""
    due = (Run(f"{_at(found['respond_by'])}{late}", "strong"),)
    return [
        ("Dispute", found["reference"] or "no reference was given"),
        ("Payment", found["payment"] or "no reference was given"),
        ("Reason", _upper(found["reason"])),
        ("Reason code", found["code"] or "no message states one"),
        ("Disputed amount", found["words"] or "not stated"),
        ("Opened", _at(found["opened_at"])),
        *([("Answer due", due)] if found["respond_by"]["at"] or found["open"] else []),
        ("State", _upper(found["state"])),
    ]


def _of_payment(said: Mapping[str, Any]) -> list[Block]:
    """Return what messages state of the payment, and the rules on earlier payments."""
    rows = [(each["name"], "; ".join(each["values"])) for each in said["stated"]]
    lacking = ", ".join(said["not_stated"])
    blocks: list[Block] = [Heading("The payment")]
    blocks += [Table(rows=rows, widths=(0, 1), labels=True)] if rows else []
    if lacking:
        words = f"No message that was read states: {lacking}."
        blocks.append(Paragraph((Run(words, "quiet"),)))
    for each in said["rules"]:
        source = f" (by {each['source']}, read {each['read']})"
        blocks.append(Paragraph((Run(each["sentence"]), Run(source, "quiet"))))
    return blocks


def _upper(words: str) -> str:
    return words[:1].upper() + words[1:]


def _happened(said: Mapping[str, Any]) -> list[Block]:
    if not said["facts"]:
        return [Paragraph("Nothing is known of it yet.")]
    left = said["facts_left_out"]
    note = f"{left} earlier facts are in the evidence bundle of this order."
    rows = []
    for each in said["facts"]:
        at, utc = each["at"]["local"], each["at"]["utc"]
        when = (
            (Run(at),)
            if _at(each["at"]).endswith("UTC")
            else (Run(at), Run(utc, "quiet", line=True))
        )
        rows.append((when, _unbroken(each["fact"]), (Run(f"{each['rests_on']}.", "quiet"),)))
    head = ("When", "What", "What it rests on")
    table = Table(rows=rows, widths=(0, 1, 1.25), head=head)
    return [*([Paragraph((Run(note, "quiet"),))] if left else []), table]


def _listed(exhibits: Sequence[Mapping[str, Any]], shown: Mapping[int, str]) -> Block:
    rows: list[tuple[Text, ...]] = []
    for each in exhibits:
        parcel = f"{each['carrier']} {each['tracking']}".strip()
        what = [Run(_upper(each["words"]) + (f": {parcel}" if parcel else ""))]
        what += [Run(each["note"], line=True)] if each["note"] else []
        where = shown.get(each["number"], "Sent by itself.")
        name = (Run(each["name"]), Run(where, "quiet", line=True))
        rows.append(((Run(str(each["number"]), "strong"),), what, name))
        rows.append(((Run("SHA-256 ", "quiet"), Run(each["sha256"], "code")),))
    if not rows:
        return Paragraph("None are attached.")
    return Table(rows=rows, widths=(0, 1, 1), head=("", "What it is", "File"))


def _checked(log: Mapping[str, str] | None) -> Text:
    said = (
        "Each message was judged as it came, as its source's profile says, before anything was "
        "read from it. The shop's evidence bundle of this order holds the messages' digests, the "
        "proofs and a program that checks them without the shop"
    )
    if log is None:
        return f"{said}."
    lie = f"{said}; the entries named above lie in the log {log['origin']} of {log['size']} "
    signed = f". The shop's evidence key is {log['key']}."
    return (Run(f"{lie}entries, whose signed head is "), Run(log["head"], "code"), Run(signed))
