"""Gather the dispute case of an order."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Annotated, Final, NotRequired, TypedDict

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import Masking
from app.core.phone_key import is_of_a_number
from app.core.reading import Unreadable
from app.core.zones import wall_clock
from app.database.engine import Connection
from app.database.gaps import gaps_until
from app.database.statements import run
from app.evidence import attachment_store, first_party, gather_evidence
from app.evidence import dispute as disputes
from app.evidence.attachments import Attachment, attachment_of
from app.evidence.dispute import exact, to_second
from app.evidence.letter_limits import LetterLimits, LetterLimitsDocument, limits_of
from app.orders.customers import phones_of
from app.orders.history_store import gather
from app.orders.holds import as_judged
from app.orders.read_orders import nothing_known, of_another_shop, spoken_of
from app.orders.unheard import unheard_of
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.caught_up import behind_s
from app.receiving.delivery_log_store import raw_delivery
from app.receiving.header_codec import read_request
from app.receiving.phone_store import notes_of, orders_by_phone
from reconcile.documents import Count, InstantText, MoneyDocument
from reconcile.instants import MONTHS, Instant, format_instant, moment_of
from reconcile.ledger.events import ANSWERS, Delivery, Event
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.unheard import NOTHING, Unheard
from reconcile.money import Money, to_json
from reconcile.transparency.evidence import by_event

LOOKED_AT: Final = 50
"""Maximum number of the customer's other orders that are examined."""

MOST_OF_EARLIER: Final = 8
"""Maximum number of messages read about an earlier order."""

MOST_EARLIER: Final = 5
"""Maximum number of earlier orders in a letter, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merchant:
    """Merchant who answers a dispute. A member is empty if its setting is missing."""

    name: str = ""
    address: str = ""
    contact: str = ""

    def missing(self) -> tuple[str, ...]:
        """Return the names of the settings about the merchant that are empty."""
        parts = {
            "TALLYHOOK_MERCHANT": self.name,
            "TALLYHOOK_MERCHANT_ADDRESS": self.address,
            "TALLYHOOK_MERCHANT_CONTACT": self.contact,
        }
        return tuple(setting for setting, value in parts.items() if not value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """Request for an order's dispute case, with fallback family and deadline."""

    order: str
    as_of: Instant | None = None
    family: disputes.Family | None = None
    respond_by: Instant | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierOrder:
    """Earlier order of the customer that was paid and never disputed."""

    order: str
    paid_at: Instant
    money: Money


class EarlierOrderDocument(TypedDict):
    order: str
    paid_at: InstantText
    money: MoneyDocument


class CaseDocument(TypedDict):
    order: str
    as_of: InstantText
    dispute: disputes.CaseDisputeDocument | None
    family: disputes.Family
    about: str
    respond_by: InstantText | None
    overdue: Annotated[bool, "Whether an answer is still due although `respond_by` has passed."]
    deadline: Annotated[str, "Until when an answer is accepted, and what to do after that."]
    missing: Count
    items: list[disputes.CaseItemDocument]
    earlier_orders: list[EarlierOrderDocument]
    rules: list[first_party.NetworkRuleDocument]
    limits: LetterLimitsDocument
    behind_s: Annotated[
        NotRequired[Count],
        "Age in seconds of the oldest accepted delivery that has not been read yet and may be "
        "about the order. Missing if there is none.",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeCase:
    """Dispute case of an order at one instant, with masked phone numbers."""

    order: str
    as_of: Instant
    ledger: Ledger
    history: History
    dispute: disputes.ReportedDispute | None
    family: disputes.Family
    respond_by: Instant | None
    attachments: tuple[Attachment, ...]
    earlier: tuple[EarlierOrder, ...]
    items: tuple[disputes.Item, ...]
    stated: Mapping[str, tuple[str, ...]] = field(repr=False)
    """Values of messages about the payment, by member of the profile's section [transaction], or
    `name`, `email` or `card`."""
    rules: tuple[first_party.Qualification, ...]
    limits: LetterLimits
    masking: Masking = field(repr=False)
    behind_s: int = 0
    """Age in seconds of the oldest such unread delivery; 0 without one."""
    unheard: Unheard = NOTHING
    """Unread messages and payments without an order that may concern this order."""

    @property
    def overdue(self) -> bool:
        """Check whether the deadline for an answer has passed while the dispute is undecided."""
        return disputes.is_overdue(self.dispute, self.respond_by, as_of=self.as_of)

    @property
    def deadline(self) -> str:
        """Return a sentence on the deadline for an answer."""
        return disputes.deadline_words(self.dispute, exact(self.respond_by), overdue=self.overdue)

    def document(self) -> CaseDocument:
        document: CaseDocument = {
            "order": self.order,
            "as_of": format_instant(to_second(self.as_of)),
            "dispute": None if self.dispute is None else self.dispute.document(),
            "family": self.family,
            "about": disputes.FAMILY_WORDS[self.family],
            "respond_by": exact(self.respond_by),
            "overdue": self.overdue,
            "deadline": self.deadline,
            "missing": sum(not each.there for each in self.items),
            "items": [each.document() for each in self.items],
            "rules": [each.document() for each in self.rules],
            "limits": self.limits.document(),
            "earlier_orders": [
                {
                    "order": each.order,
                    "paid_at": format_instant(to_second(each.paid_at)),
                    "money": to_json(each.money),
                }
                for each in self.earlier
            ],
        }
        if self.behind_s:
            document["behind_s"] = self.behind_s
        return document


def stated_family(word: str | None) -> disputes.Family | None:
    """Return the named family of dispute reasons. Raise UsageError for an unknown family."""
    if word is None:
        return None
    found = next((each for each in disputes.FAMILIES if each == word), None)
    if found is None:
        raise UsageError(f"{word!r} is none of: {', '.join(disputes.FAMILIES)}")
    return found


def merchant_of(settings: Settings) -> Merchant:
    return Merchant(
        name=settings.merchant,
        address=settings.merchant_address,
        contact=settings.merchant_contact,
    )


async def dispute_case(context: AppContext, asked: CaseRequest) -> DisputeCase:
    """Gather the dispute case of an order. Raise NotFoundError for an unknown order."""
    behind = await behind_s(context, as_of=asked.as_of)
    now = context.clock.now()
    async with context.database.reading() as connection:
        whole = (await as_judged(connection, [asked.order], policy=context.policy))[asked.order]
        as_of = whole.instant_at(now) if asked.as_of is None else asked.as_of
        known = whole.known_at(as_of)
        if not spoken_of(known):
            aside = await run(connection, of_another_shop, known, until=as_of)
            gaps = await run(connection, gaps_until, as_of)
            raise nothing_known(whole, asked.as_of, behind_s=behind, gaps=gaps, aside=aside)
        masking = Masking(await phones_of(connection, asked.order, sources=context.sources))
        masked = gather_evidence.masked_history(known, masking)
        ledger = fold(masked, policy=context.policy, as_of=as_of)
        dates = await _respond_by(connection, known, ledger, context.sources)
        reported = disputes.dispute_of(ledger, respond_by=dates)
        records = await attachment_store.attachments_of_order(connection, asked.order)
        unheard = await run(connection, unheard_of, known, ledger, sources=context.sources)
        stated = await _stated(connection, known, reported, context.sources, masking)
        code = stated.get("reason_code", ())
        family = asked.family or (reported.family if reported else None)
        family = family or next(filter(None, map(disputes.family_of, code)), None) or "other"
        fraud = family == "fraud"
        earlier, purchases = await _earlier(connection, context, known, as_of, masking, whole=fraud)
    attachments = tuple(
        attachment_of(each) for each in records if each.gone_at is None and each.at <= as_of
    )
    respond_by = asked.respond_by or (reported.respond_by if reported else None)
    facts = disputes.CaseFacts(
        respond_by=respond_by,
        missing_merchant=merchant_of(context.settings).missing(),
        attachments=attachments,
        fulfilled=ledger.case.filed.fulfilled is not None,
        refunded=any(each.refunded for each in ledger.balances),
        payments=sum(each.outcome == "succeeded" for each in ledger.attempts),
        earlier=len(earlier),
        decided=reported is not None and reported.state != "open",
    )
    source = None if reported is None else context.sources.get(reported.source)
    channel = "the channel" if source is None else source.profile.name
    limits = limits_of(channel, first_party.network_of(stated.get("network", ())))
    paid = _paid(known, reported)
    own = _purchase(known.order, paid, ledger, stated)
    return DisputeCase(
        order=masking.text(asked.order),
        as_of=as_of,
        ledger=ledger,
        history=masked,
        dispute=reported,
        family=family,
        respond_by=respond_by,
        attachments=attachments,
        earlier=tuple(earlier[-MOST_EARLIER:]),
        items=tuple(disputes.dispute_checklist(facts, family)),
        stated=stated,
        rules=tuple(first_party.qualifications(own, purchases, fraud=fraud)),
        limits=limits,
        masking=masking,
        behind_s=behind,
        unheard=unheard,
    )


async def dispute_deadlines(
    context: AppContext, orders: Sequence[str]
) -> dict[str, Instant | None]:
    """Return each order's deadline for a dispute answer, if known."""
    found: dict[str, Instant | None] = {}
    now = context.clock.now()
    async with context.database.reading() as connection:
        histories = await as_judged(connection, orders, policy=context.policy)
        for order, history in histories.items():
            ledger = fold(history, policy=context.policy, as_of=history.instant_at(now))
            dates = await _respond_by(connection, history, ledger, context.sources)
            reported = disputes.dispute_of(ledger, respond_by=dates)
            found[order] = None if reported is None else reported.respond_by
    return found


async def _respond_by(
    connection: Connection, known: History, ledger: Ledger, sources: Mapping[str, Source]
) -> dict[disputes.EventKey, Instant]:
    wanted = {each.event.digest for each in disputes.messages_of_disputes(ledger)}
    found: dict[disputes.EventKey, Instant] = {}
    disputed = (each for each in known.deliveries if each.event.digest in wanted)
    heard = [each for of_event in by_event(disputed) for each in of_event]
    async for each, source, incoming in _bodies(connection, heard, sources):
        try:
            until = source.respond_by(incoming)
        except Unreadable:  # a date in another format: a person looks it up
            continue
        if until is not None:
            found[each.event.key] = until
    return found


async def _bodies(
    connection: Connection, deliveries: Sequence[Delivery], sources: Mapping[str, Source]
) -> AsyncIterator[tuple[Delivery, Source, Incoming]]:
    found = set[disputes.EventKey]()
    for each in deliveries:
        source = sources.get(each.event.source)
        if source is None or each.event.standing in ANSWERS or each.event.key in found:
            continue
        kept = await raw_delivery(connection, each.delivery_id)
        body = None if kept is None else kept.whole or kept.body
        if kept is not None and body is not None:
            found.add(each.event.key)
            yield each, source, read_request(kept.headers, body)


def _is_of(reported: disputes.ReportedDispute | None, event: Event) -> bool:
    if reported is None or reported.payment is None:
        return True
    return (event.source, event.payment) == (reported.source, reported.payment)


async def _stated(
    connection: Connection,
    known: History,
    reported: disputes.ReportedDispute | None,
    sources: Mapping[str, Source],
    masking: Masking,
    *,
    most: int = LOOKED_AT,
) -> dict[str, tuple[str, ...]]:
    about = by_event(each for each in known.deliveries if _is_of(reported, each.event))
    newest = [each for of_event in about[-most:] for each in of_event]
    found: dict[str, dict[str, None]] = {}
    async for each, source, incoming in _bodies(connection, newest, sources):
        try:
            stated = source.transaction(incoming, digest=each.event.digest)
        except Unreadable:
            continue
        for name, value in stated.items():
            found.setdefault(name, {})[masking.text(value)] = None
    return {name: tuple(values) for name, values in found.items()}


def _purchase(
    order: str,
    paid: tuple[Instant, Money] | None,
    ledger: Ledger,
    stated: Mapping[str, tuple[str, ...]],
) -> first_party.Purchase:
    return first_party.Purchase(
        order=order,
        processed_at=None if paid is None else paid[0],
        settled=any(each.captured for each in ledger.balances)
        and not any(each.returned for each in ledger.balances),
        disputed=bool(disputes.messages_of_disputes(ledger)),
        stated=stated,
    )


async def _earlier(
    connection: Connection,
    context: AppContext,
    known: History,
    as_of: Instant,
    masking: Masking,
    *,
    whole: bool,
) -> tuple[list[EarlierOrder], list[first_party.Purchase]]:
    things = {known.order, *(each.delivery_id for each in known.deliveries)}
    noted = {each[0] for each in await notes_of(connection, things)}
    digests = sorted(each for each in noted if whole or is_of_a_number(each))
    same, others = set[str](), set[str]()
    for digest in digests:
        found = await orders_by_phone(connection, digest, limit=LOOKED_AT + 1)
        (same if is_of_a_number(digest) else others).update(found)
    looked_at = [*sorted(same - {known.order}), *sorted(others - same - {known.order})][:LOOKED_AT]
    before, orders, purchases = _paid(known), list[EarlierOrder](), list[first_party.Purchase]()
    for order, history in (await gather(connection, looked_at)).items():
        past = history.known_at(as_of)
        paid = _paid(past)
        if paid is None or before is None or paid[0] >= before[0]:
            continue
        ledger = fold(past, policy=context.policy, as_of=as_of)
        stated = {}
        if whole:
            stated = await _stated(
                connection, past, None, context.sources, masking, most=MOST_OF_EARLIER
            )
        purchase = _purchase(masking.text(order), paid, ledger, stated)
        purchases.append(purchase)
        if order in same and not purchase.disputed and any(e.captured for e in ledger.balances):
            orders.append(EarlierOrder(order=masking.text(order), paid_at=paid[0], money=paid[1]))
    return sorted(orders, key=lambda each: (each.paid_at, each.order)), purchases


def _paid(
    history: History, reported: disputes.ReportedDispute | None = None
) -> tuple[Instant, Money] | None:
    paid = [
        (each.event.occurred_at or each.received_at, each.event.money)
        for each in history.deliveries
        if each.event.claim == "succeeded" and each.event.money is not None
        if _is_of(reported, each.event)
    ]
    return min(paid, key=lambda each: each[0], default=None)


def local_words(instant: Instant, zone: tzinfo) -> str:
    """Format an instant as local time: `20 Nov 2026, 13:00:05`."""
    moment = moment_of(wall_clock(to_second(instant), zone))
    return f"{moment.day} {MONTHS[moment.month - 1][:3]} {moment:%Y, %H:%M:%S}"
