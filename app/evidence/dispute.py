"""Facts about a dispute, and the evidence for an answer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypedDict, get_args

from app.core.document_of import document_of
from app.evidence.attachments import KIND_WORDS, Attachment
from reconcile.documents import InstantText, MoneyDocument
from reconcile.instants import SECOND, Instant, format_instant
from reconcile.ledger.correlate import Heard
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.movements import payments_of
from reconcile.money import Money

Family = Literal[
    "fraud", "not_received", "not_as_described", "duplicate", "credit_not_processed",
    "subscription_canceled", "debit_not_authorized", "processing_error", "other",
]  # fmt: skip
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)

FAMILY_WORDS: Final[Mapping[Family, str]] = {
    "fraud": "the customer says that they did not make this payment",
    "not_received": "the customer says that nothing was delivered",
    "not_as_described": "the customer says that what was delivered is not what was sold",
    "duplicate": "the customer says that they were charged more than once",
    "credit_not_processed": "the customer says that a refund that was due was not paid",
    "subscription_canceled": "the customer says that they were charged for a subscription after "
    "they had canceled it",
    "debit_not_authorized": "the customer says that they did not authorize this debit",
    "processing_error": "the bank says that the payment was processed with an error",
    "other": "for a reason that the bank's own message states",
}

# The families are those of https://docs.stripe.com/disputes/categories, which groups the networks'
# codes by the evidence that answers them. The codes of Visa and Mastercard come from that page;
# those of American Express and Discover are also in Braintree's list of chargeback reason codes
# (https://developer.paypal.com/braintree/articles/risk-and-security/chargebacks-retrievals/chargeback-reason-codes,
# a list of 2025-09-22). No line has Mastercard's 4853, since it covers several kinds.
_CODES: Final[Mapping[Family, str]] = {
    "fraud": "10.1 10.2 10.3 10.4 10.5 33 81 83 4837 4840 4849 4863 4870 4871 "
    "f10 f14 f22 f24 f29 f30 f31 fr2 fr4 fr6 ua01 ua02 ua05 ua06 ua10 ua11",
    "not_received": "13.1 13.9 30 4855 4859 c08 155 4554 rg",
    "not_as_described": "13.3 13.4 13.5 53 c31 c32 rm",
    "duplicate": "12.6 12.6.1 12.6.2 82 86 4834 p08 c14 173 dp",
    "credit_not_processed": "13.6 13.7 85 4860 c02 c04 c05 c18 175 4513 rn2 cr",
    "subscription_canceled": "13.2 c28",
    "processing_error": "12.1 12.2 12.3 12.4 12.5 12.7 p05",
}

# Words of Stripe, PayPal, Braintree and Square (each provider's own page of its dispute object).
_WORDS: Final[Mapping[Family, str]] = {
    "fraud": "fraud fraudulent unauthorised unauthorized unrecognized not_recognized "
    "no_knowledge emv_liability_shift",
    "not_received": "not_received product_not_received merchandise_not_received "
    "merchandise_or_service_not_received non_receipt",
    "not_as_described": "not_as_described product_unacceptable product_unsatisfactory "
    "merchandise_or_service_not_as_described",
    "duplicate": "duplicate duplicate_transaction paid_by_other_means payment_by_other_means",
    "credit_not_processed": "credit_not_processed customer_requests_credit cancelled canceled",
    "subscription_canceled": "subscription_canceled subscription_cancelled "
    "canceled_recurring_billing cancelled_recurring_transaction",
    "debit_not_authorized": "debit_not_authorized",
    "processing_error": "transaction_amount_differs incorrect_amount",
}
_FAMILY_OF: Final[dict[str, Family]] = {
    word: family
    for table in (_CODES, _WORDS)
    for family, words in table.items()
    for word in words.split()
}


def family_of(reason: str | None) -> Family | None:
    """Return the family of a dispute reason or network code."""
    word = re.sub(r"[^a-z0-9.]+", "_", (reason or "").lower()).strip("_")
    return _FAMILY_OF.get(word)


EventKey = tuple[str, str, str]
"""Source, event id and digest of the body."""

State = Literal["open", "won", "lost"]
_STATES: Final[Mapping[str, State]] = {
    "disputed": "open", "dispute_won": "won", "dispute_lost": "lost",
}  # fmt: skip
STATE_WORDS: Final[Mapping[State, str]] = {
    "open": "not decided yet", "won": "decided for the shop", "lost": "decided for the customer",
}  # fmt: skip


def exact(instant: Instant | None) -> str | None:
    """Format an instant for JSON, cut to the second; None for None."""
    return None if instant is None else format_instant(to_second(instant))


def to_second(instant: Instant) -> Instant:
    return Instant(instant - instant % SECOND)


class CaseDisputeDocument(TypedDict):
    reference: str | None
    payment: str | None
    source: str
    reason: Annotated[str | None, "The provider's word, or the card network's code."]
    family: Family | None
    about: str
    money: MoneyDocument | None
    opened_at: InstantText
    state: State
    still_lost: Annotated[
        MoneyDocument | None,
        "For a dispute that was won or lost in part: the amount that remains lost.",
    ]
    respond_by: InstantText | None


class CaseItemDocument(TypedDict):
    item: str
    there: bool
    sentence: str
    do: Annotated[str, "What brings it; empty where it is there."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDispute:
    """Dispute as the provider's messages describe it."""

    reference: str | None
    payment: str | None
    source: str
    reason: str | None
    """The provider's word or the card network's code."""
    family: Family | None
    money: Money | None
    opened_at: Instant
    state: State
    still_lost: Money | None = None
    """Amount that stays lost after a partial decision."""
    respond_by: Instant | None = None

    @property
    def words(self) -> str:
        """Return the dispute's state in words."""
        part = "" if self.still_lost is None else f" in part: {self.still_lost} remains lost"
        return STATE_WORDS[self.state] + part

    def document(self) -> CaseDisputeDocument:
        return document_of(
            CaseDisputeDocument,
            self,
            about=FAMILY_WORDS[self.family or "other"],
            opened_at=format_instant(to_second(self.opened_at)),
            respond_by=exact(self.respond_by),
        )


def is_overdue(
    dispute: ReportedDispute | None, respond_by: Instant | None, *, as_of: Instant
) -> bool:
    """Check whether the deadline for an answer has passed while the dispute is undecided."""
    decided = dispute is not None and dispute.state != "open"
    return respond_by is not None and respond_by < as_of and not decided


def deadline_words(
    dispute: ReportedDispute | None, respond_by: str | None, *, overdue: bool
) -> str:
    """Return a sentence on the bank's deadline."""
    if dispute is not None and dispute.state != "open":
        return f"The dispute is {dispute.words}. No answer is due."
    if respond_by is None:
        return "The bank's deadline for an answer is not known."
    if not overdue:
        return f"The bank accepts an answer until {respond_by}."
    return (
        f"The deadline has passed: the bank accepted an answer until {respond_by}. Ask the "
        "payment service today whether it still accepts one, and send the letter if it does. If "
        "it does not, the dispute will be decided without your answer. You can then wait for the "
        "decision, settle the dispute with the customer, or appeal if the service offers that."
    )


def messages_of_disputes(ledger: Ledger) -> list[Heard]:
    """Return the messages about any dispute of the order, sorted by date."""
    messages = [each for each in ledger.case.heard if each.event.claim in _STATES]
    return sorted(messages, key=lambda each: (each.at, each.first))


def dispute_of(ledger: Ledger, *, respond_by: Mapping[EventKey, Instant]) -> ReportedDispute | None:
    """Return the order's newest open dispute, or the newest one."""
    groups: dict[tuple[str, str | None, str | None], list[Heard]] = {}
    for each in messages_of_disputes(ledger):
        key = (each.event.source, each.event.payment, each.event.movement)
        groups.setdefault(key, []).append(each)
    found = [_dispute(messages, ledger, respond_by) for messages in groups.values()]
    return max(found, key=lambda each: (each.state == "open", each.opened_at), default=None)


def _dispute(
    messages: Sequence[Heard], ledger: Ledger, respond_by: Mapping[EventKey, Instant]
) -> ReportedDispute:
    first = messages[0]
    reasons = [each.event.reason for each in messages if each.event.reason]
    amounts = [each.event.money for each in messages if each.event.money is not None]
    if not amounts:  # a dispute without an amount is about the whole payment
        paid = (
            e.event.money
            for e in ledger.case.heard
            if (e.event.claim, e.event.source, e.event.payment)
            == ("succeeded", first.event.source, first.event.payment)
        )
        amounts = [each for each in paid if each is not None][:1]
    dates = [respond_by[each.event.key] for each in messages if each.event.key in respond_by]
    reason = reasons[-1] if reasons else None
    state, lost = _judged(messages, ledger) or (_STATES[messages[-1].event.claim], None)
    return ReportedDispute(
        reference=first.event.movement,
        payment=first.event.payment,
        source=first.event.source,
        reason=reason,
        family=family_of(reason),
        money=max(amounts, key=lambda each: each.minor, default=None),
        opened_at=first.at,
        state=state,
        still_lost=lost,
        respond_by=dates[-1] if dates else None,
    )


def _judged(messages: Sequence[Heard], ledger: Ledger) -> tuple[State, Money | None] | None:
    keys = {each.event.key for each in messages}
    for payment in payments_of(ledger.case.attempts, ledger.case.filed):
        for each in payment.disputes:
            if any(heard.event.key in keys for heard in each.heard):
                if each.word != "won":
                    return each.word, each.lost
                kept = (moved.money for moved in payment.returns if moved.heard is each.heard)
                return each.word, next(kept, None)
    return None


def still_lost(messages: Sequence[Heard], ledger: Ledger) -> Money | None:
    """Return the amount that stays lost after a partial decision."""
    state, lost = _judged(messages, ledger) or (None, None)
    return lost if state in [_STATES[each.event.claim] for each in messages] else None


# --- evidence that a bank asks for ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """Facts for the checklist of an answer to a dispute."""

    respond_by: Instant | None
    missing_merchant: tuple[str, ...]
    """Empty settings about the merchant."""
    attachments: tuple[Attachment, ...]
    fulfilled: bool
    refunded: bool
    payments: int
    earlier: int
    """Number of the customer's earlier undisputed orders."""
    decided: bool = False

    def has(self, *kinds: str) -> bool:
        return any(each.record.kind in kinds for each in self.attachments)

    @property
    def tracked(self) -> bool:
        """Check whether an attachment states both a carrier and a tracking number."""
        return any(each.carrier and each.tracking for each in self.attachments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One kind of evidence for the answer to a dispute."""

    name: str
    sentence: str
    there: bool
    do: str

    def document(self) -> CaseItemDocument:
        do = "" if self.there else self.do
        return {"item": self.name, "there": self.there, "sentence": self.sentence, "do": do}


def dispute_checklist(facts: CaseFacts, family: Family) -> list[Item]:
    """Return the evidence that answers a dispute of this family."""
    return [
        Item(
            name="merchant",
            sentence="The letter has the merchant's name, address and contact.",
            there=not facts.missing_merchant,
            do=f"set {' and '.join(facts.missing_merchant)}",
        ),
        Item(
            name="deadline",
            sentence="The bank's deadline for an answer is known."
            if not facts.decided
            else "The dispute is decided, so no answer is possible.",
            there=facts.decided or facts.respond_by is not None,
            do="look it up on the dispute's page at the payment service, and state it in the "
            "letter's form",
        ),
        _attached("receipt", "The receipt or invoice", facts),
        *_answers(facts)[family],
    ]


def _attached(kind: str, what: str, facts: CaseFacts, *others: str) -> Item:
    return Item(
        name=kind,
        sentence=f"{what} is attached.",
        there=facts.has(kind, *others),
        do=f"attach it as {KIND_WORDS[kind]}",
    )


def _answers(facts: CaseFacts) -> dict[Family, list[Item]]:
    proof = _attached("delivery", "Proof that it was delivered to the customer", facts)
    wrote = _attached("correspondence", "The correspondence of the customer and the shop", facts)
    tracked = Item(
        name="tracking",
        sentence="The carrier and the tracking number are named.",
        there=facts.tracked,
        do="give both with a file that is attached as proof of delivery",
    )
    fulfilled = Item(
        name="fulfilled",
        sentence="The shop's own record says that the order was shipped.",
        there=facts.fulfilled,
        do="have the shop report it (fulfilled_at of the order), or import an order book",
    )
    earlier = Item(
        name="earlier_orders",
        sentence="At least two earlier orders of the same customer were paid, and nobody "
        "disputed them.",
        there=facts.earlier >= 2,
        do="Tallyhook finds earlier orders itself, so nothing can be attached",
    )
    one_payment = Item(
        name="one_payment",
        sentence="The order was paid once, by one payment.",
        there=facts.payments == 1,
        do="if it was paid twice, give the second payment back and accept the dispute",
    )
    refunded = Item(
        name="refunded",
        sentence="The payment was refunded, or the refund policy is attached.",
        there=facts.refunded or facts.has("refund_policy"),
        do="refund the payment, or attach the refund policy",
    )
    return {
        "fraud": [proof, tracked, earlier, wrote],
        "not_received": [proof, tracked, fulfilled, wrote],
        "not_as_described": [
            _attached("terms", "What was promised: the description or the terms", facts),
            _attached("delivery", "Proof of what was delivered", facts),
            _attached("refund_policy", "The refund policy that the customer had seen", facts),
            wrote,
        ],
        "duplicate": [
            one_payment,
            _attached(
                "other",
                "The receipt of the order that the other payment was for",
                facts,
                "correspondence",
            ),
        ],
        "credit_not_processed": [
            refunded,
            _attached(
                "terms",
                "The terms of cancellation that the customer accepted",
                facts,
                "refund_policy",
            ),
            wrote,
        ],
        "subscription_canceled": [
            _attached("terms", "The terms of cancellation that the customer accepted", facts),
            _attached("delivery", "Proof that the service was used after the charge", facts),
            wrote,
        ],
        "debit_not_authorized": [
            _attached("terms", "The mandate that the customer gave", facts),
            wrote,
        ],
        "processing_error": [
            _attached("other", "The record of the sale with its amount and currency", facts)
        ],
        "other": [proof, wrote],
    }
