"""Write the letter that answers a dispute.

1 case     the dispute, its attachments, earlier orders   dispute_case.py
2 dossier  verified signatures, and the log's entries     gather_evidence.py
3 letter   one document, from which every format is made
4 form     HTML, or PDF by Typst                          letter_forms.py
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from typing import Annotated, Final, Literal, TypedDict

from app.context.context import AppContext
from app.core.child import ChildLimits, ChildStopped, run_in_child
from app.core.text import capital, counted
from app.core.zones import local_text
from app.evidence import attachments, dispute, dispute_case, gather_evidence, keys
from app.evidence.bundle_letter import price_rows
from app.evidence.first_party import NetworkRuleDocument
from app.evidence.mail_text import is_mail, mail_text
from app.providers.schemes import TOKENS
from reconcile.documents import Count, InstantText, MoneyDocument, Sha256
from reconcile.instants import Instant
from reconcile.ledger.correlate import Heard
from reconcile.ledger.events import ANSWERS, UNCONFIRMED, Standing
from reconcile.ledger.ledger import Ledger, Movement
from reconcile.ledger.plain import plain_outcome
from reconcile.ledger.unheard import Unheard
from reconcile.money import Money, to_json
from reconcile.transparency.evidence import by_event

STATED_WORDS: Final[Mapping[str, str]] = {
    "network": "Card network", "card": "Card ends in", "arn": "ARN",
    "network_id": "Network transaction id", "descriptor": "Shown on the bank statement",
    "sold": "What was sold", "name": "Customer", "email": "Email address",
    "account": "Account at the shop", "billing": "Billing address",
    "shipping": "Shipping address", "ip": "IP address", "device": "Device",
    "avs": "Address check (AVS)", "cvv": "Card code check (CVV)",
    "three_ds": "3-D Secure",
}  # fmt: skip

PERSONAL: Final = frozenset(("name", "email", "account", "billing", "shipping", "ip", "device"))

MOST_FACTS: Final = 16
"""Maximum number of facts in the letter, so that they fit on one page."""

_RECORDS: Final[Mapping[str, str]] = {
    "order_placed": "The customer placed the order",
    "order_canceled": "The shop canceled the order",
    "order_fulfilled": "The shop shipped the order",
    "session_opened": "The payment page was opened for the customer",
}

_CLAIMS: Final[Mapping[str, str]] = {
    "authorized": "{money} was reserved on the customer's account",
    "succeeded": "The customer paid {money}",
    "declined": "A payment attempt was declined",
    "refunded": "{money} was given back to the customer",
    "refund_failed": "A refund of {money} failed",
    "reversed": "The payment of {money} was reversed",
    "disputed": "The customer disputed {money}",
    "dispute_won": "The dispute was decided for the shop",
    "dispute_lost": "The dispute was decided for the customer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """File appended to the letter. `smaller` marks a reduced picture."""

    number: int
    media: str
    content: bytes = field(repr=False)
    text: str = field(default="", repr=False)
    smaller: bool = False


class LetterMomentDocument(TypedDict):
    """Moment to the second, in the merchant's time zone and in UTC."""

    at: InstantText | None
    local: str | None
    utc: str | None


class MerchantDocument(TypedDict):
    name: str
    address: str
    contact: str


class LetterDisputeDocument(TypedDict):
    reference: str | None
    payment: str | None
    reason: str
    family: dispute.Family
    code: Annotated[str | None, "The card network's reason code."]
    money: MoneyDocument | None
    words: str | None
    opened_at: LetterMomentDocument
    respond_by: LetterMomentDocument
    overdue: bool
    state: str
    open: bool


class StatedDocument(TypedDict):
    name: str
    values: list[str]


class LetterFactDocument(TypedDict):
    at: LetterMomentDocument
    fact: str
    rests_on: str


class ExhibitDocument(TypedDict):
    number: Count
    attachment: str
    kind: attachments.KindText
    name: str
    note: str
    carrier: str
    tracking: str
    media: str
    size: Count
    words: str
    sha256: Sha256
    attached_at: LetterMomentDocument


class EarlierPurchaseDocument(TypedDict):
    order: str
    paid_at: LetterMomentDocument
    money: MoneyDocument
    words: str


class SealedHeadDocument(TypedDict):
    origin: str
    size: str
    head: str
    key: str


class LetterTextDocument(TypedDict):
    title: str
    stamp: Literal["SANDBOX", ""]
    environment: str
    merchant: MerchantDocument
    missing: Annotated[list[str], "The merchant's settings that are empty."]
    order: str
    as_of: LetterMomentDocument
    zone: str
    dispute: LetterDisputeDocument | None
    stated: Annotated[
        list[StatedDocument],
        "What messages state about the payment, without personal data of the customer.",
    ]
    not_stated: list[str]
    asked_for: str
    rules: list[NetworkRuleDocument]
    answer: list[str]
    money: list[list[str]]
    facts: list[LetterFactDocument]
    facts_left_out: Count
    exhibits: list[ExhibitDocument]
    earlier_orders: list[EarlierPurchaseDocument]
    log: SealedHeadDocument | None


class LetterDocument(LetterTextDocument):
    checklist: dispute_case.CaseDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Letter that answers a dispute, with its files and its dispute case."""

    document: LetterTextDocument
    exhibits: tuple[Exhibit, ...]
    case: dispute_case.DisputeCase


async def letter_of(
    context: AppContext,
    asked: dispute_case.CaseRequest,
    *,
    lines: gather_evidence.ReadsLines,
    personal: bool = False,
) -> Letter:
    """Make the letter that answers a dispute, without an audit entry.

    With `personal`, the letter can name the customer. Raise NotFoundError for an unknown order.
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
    def __init__(
        self,
        context: AppContext,
        case: dispute_case.DisputeCase,
        dossier: gather_evidence.Dossier,
        *,
        personal: bool,
    ) -> None:
        self._case = case
        self._members = [each for each in STATED_WORDS if personal or each not in PERSONAL]
        self._dossier = dossier
        self._merchant = dispute_case.merchant_of(context.settings)
        self._environment = context.database.environment or ""
        self._zone = context.calendar_zone
        self._leaves = {each.subject: each.number for each in dossier.sealed.leaves}
        self._deliveries = {each.arrived.delivery_id: each for each in dossier.deliveries}
        self._first = {
            first.event.key: first.delivery_id
            for first, *_ in by_event(case.history.as_stored().deliveries)
        }

    def document(self) -> LetterTextDocument:
        case, merchant = self._case, self._merchant
        rows = sorted([*self._of_records(), *self._of_messages()], key=lambda each: each[0])
        title = "Statement on a payment dispute that was decided"
        if case.dispute is None:
            title = f"Statement on the payment of order {case.order}"
        elif case.dispute.state == "open":
            title = "Response to a payment dispute"
        sealed = self._dossier.sealed
        log: SealedHeadDocument | None = None
        if sealed.checkpoint:  # the signed head that the entries lie under, and the log's key
            origin, size, head = sealed.checkpoint.split("\n")[:3]
            key = keys.key_name(keys.PublicKey(bytes.fromhex(sealed.keys[-1])))
            log = {"origin": origin, "size": size, "head": head, "key": key}
        return {
            "title": title,
            "stamp": "SANDBOX" if self._environment == "sandbox" else "",
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
                {"name": STATED_WORDS[each], "values": list(case.stated[each])}
                for each in self._members
                if each in case.stated
            ],
            "not_stated": [STATED_WORDS[each] for each in self._members if each not in case.stated],
            "asked_for": self._asked_for(),
            "rules": [each.document() for each in case.rules],
            "answer": [
                local_text(each, self._zone, named=True)
                for each in plain_outcome(case.ledger, case.unheard)
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

    def _moment(self, instant: Instant | None) -> LetterMomentDocument:
        if instant is None:
            return {"at": None, "local": None, "utc": None}
        local, utc = (
            dispute_case.local_words(instant, self._zone),
            dispute_case.local_words(instant, UTC),
        )
        day, _, time = utc.partition(", ")
        return {
            "at": dispute.exact(instant),
            "local": local,
            "utc": f"{time} UTC" if local.startswith(day) else f"{utc} UTC",
        }

    def _dispute(self) -> LetterDisputeDocument | None:
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
        found = self._case.dispute
        if found is None or found.state != "open":
            return (
                "This letter asks for nothing: as far as is known, no dispute of the order is open."
            )
        about = "the dispute" if found.reference is None else f"dispute {found.reference}"
        if not any(each.captured - each.refunded for each in self._case.ledger.balances):
            return f"We ask the bank to close {about}: the money has been refunded."
        of = "the disputed amount" if found.money is None else str(found.money)
        return (
            f"We ask the bank to decide {about} in the shop's favor, so that the shop keeps {of}."
        )

    # --- facts -----------------------------------------------------------------------------------

    def _of_records(self) -> Iterable[tuple[Instant, str, str]]:
        filed = self._case.ledger.case.filed
        stated = [each for each in self._case.history.records if each.order == self._case.order]
        stated.sort(key=lambda each: (each.recorded_at, each.record_id))
        # Placed once, on the day that the shop stated; omitted if it stated none.
        placed = [each for each in stated if each.dated and each.at == filed.placed_at][:1]
        price = None if filed.placed is None else filed.placed.money
        since = {  # unless the shop has withdrawn it since
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
                yield each.at, words, f"The shop's own record, made {noted}{entry}"

    def _entry(self, subject: str) -> str:
        place = self._leaves.get(subject)
        return "" if place is None else f"; entry {place:,} of the sealed log"

    def _of_messages(self) -> Iterable[tuple[Instant, str, str]]:
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
                money = known.money  # for a sum, only its increase
            stated = "an amount that was not stated" if money is None else str(money)
            words = capital(_CLAIMS[claim].format(money=stated))
            if claim in ("dispute_won", "dispute_lost"):
                lost = dispute.still_lost([each], self._case.ledger)
                words += "" if lost is None else f" in part: {lost} remained lost"
            if claim == "disputed" and thing in seen:
                words = f"The disputed amount was stated as {event.money}"
            seen |= {thing, what}
            yield each.at, words, self._rests_on_message(each)

    def _rests_on_message(self, heard: Heard) -> str:
        first = self._first.get(heard.event.key, "")
        evidence = self._deliveries.get(first)
        at = dispute_case.local_words(heard.first, self._zone)
        words = f"Message of the payment service, received {at}"
        words += f" and {counted(heard.count - 1, 'time')} more" if heard.count > 1 else ""
        words += f"; {_signature_words(evidence, heard.event.standing)}"
        return words + (self._entry(first) if first else "")

    def _exhibits(self) -> list[ExhibitDocument]:
        return [
            {
                "number": number,
                "attachment": shown["attachment"],
                "kind": shown["kind"],
                "name": shown["name"],
                "note": shown["note"],
                "carrier": shown["carrier"],
                "tracking": shown["tracking"],
                "media": shown["media"],
                "size": shown["size"],
                "words": attachments.KIND_WORDS[each.record.kind],
                "sha256": shown["sha256"],
                "attached_at": self._moment(each.record.at),
            }
            for number, each in enumerate(self._case.attachments, 1)
            for shown in [each.document()]
        ]


_MOVES: Final = {"captured": "succeeded", "refunded": "refunded", "reversed": "reversed"}


def _signature_words(evidence: gather_evidence.DeliveryEvidence | None, standing: Standing) -> str:
    if standing in ANSWERS:
        return "the shop requested it, and such an answer is not signed"
    if standing == UNCONFIRMED:
        return "it was not signed"
    if evidence is None or evidence.proven.key is None:
        return "it was verified when it arrived"
    if evidence.proven.scheme in TOKENS:
        return "it contained the secret that the payment service shares with the shop"
    return "its signature was checked again for this letter"


def _money(ledger: Ledger, *, unheard: Unheard) -> list[list[str]]:
    priced = price_rows(ledger, price="Price of the order", due="Due at the payment service")
    rows = [list(each) for each in priced]
    for balance in ledger.balances:
        amounts = (
            ("Paid", balance.captured, True), ("Given back", balance.refunded, True),
            ("Reversed", balance.reversed, False), ("Lost in disputes", balance.lost, False),
        )  # fmt: skip
        rows += [
            [what, str(Money(minor=minor, currency=balance.currency))]
            for what, minor, always in amounts
            if minor or always
        ]
    paid = "not known" if unheard.messages or unheard.may_lack else "nothing"
    return rows if ledger.balances else [*rows, ["Paid", paid]]


MOST_TEXT: Final = 20_000
"""Maximum length in characters of an appended text: about eight pages."""

OF_ONE_EXHIBIT: Final = ChildLimits(memory_mib=2_048, processor_s=15, duration_s=20)
"""Limits for laying out one exhibit."""

OF_ONE_MAIL: Final = ChildLimits(memory_mib=512, processor_s=3, duration_s=10)
"""Limits of the child process that reads one mail."""


async def _text(content: bytes) -> str:
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    if is_mail(content):
        with suppress(ChildStopped):
            text = await run_in_child(mail_text, content, limits=OF_ONE_MAIL)
    rest = "\n[…] The rest is in the file." if len(text) > MOST_TEXT else ""
    return text[:MOST_TEXT] + rest
