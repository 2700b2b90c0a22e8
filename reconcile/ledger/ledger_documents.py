"""Types for the JSON documents that are built from a ledger."""

from typing import Annotated, NotRequired, TypedDict

from reconcile import documents
from reconcile.ledger.events import ClaimKind, PartKind
from reconcile.ledger.ledger import AttemptOutcome, EntryKind, Outcome
from reconcile.ledger.on_top import ON_TOP
from reconcile.ledger.vocabulary import FindingCode, Severity


class TenderDocument(TypedDict):
    kind: Annotated[str, documents.Keywords(examples=["gift_card"])]
    amount: str
    currency: documents.CurrencyCode


class OnTopDocument(TypedDict):
    kind: Annotated[PartKind, documents.Keywords(enum=ON_TOP)]
    amount: str
    currency: documents.CurrencyCode


class BalanceDocument(TypedDict):
    captured: documents.MoneyDocument
    refunded: documents.MoneyDocument
    reversed: NotRequired[documents.MoneyDocument]
    lost: NotRequired[documents.MoneyDocument]


class _Totals(TypedDict):
    expected: documents.MoneyDocument | None
    captured: documents.MoneyDocument | None
    refunded: documents.MoneyDocument | None
    held: documents.MoneyDocument | None


class TotalsDocument(_Totals, total=False):
    reversed: documents.MoneyDocument
    lost: documents.MoneyDocument
    price: Annotated[documents.MoneyDocument, "The price of the order; present only with tenders."]
    tenders: Annotated[
        list[TenderDocument],
        "The part of the price paid otherwise; `expected` is the rest, due at providers.",
    ]
    discount: Annotated[
        documents.MoneyDocument,
        "The part of the price that payment services discounted; `expected` is the rest.",
    ]
    on_top: Annotated[
        list[OnTopDocument],
        "The part of `held` that the payment service names as on top. It is not owed back.",
    ]
    owed_back: Annotated[
        documents.MoneyDocument | None,
        "The amount still to give back, less `on_its_way`; present only if more than the price "
        "was paid, or money is held after the shop canceled. Null if a refund under way states no "
        "amount: ask the payment service before you refund.",
    ]
    on_its_way: Annotated[
        documents.MoneyDocument | None,
        "The money that refunds under way will give back; never refund it again. Null if one of "
        "them states no amount.",
    ]
    others: Annotated[list[BalanceDocument], "Money in other currencies than the order's."]


class ReasonDocument(TypedDict):
    code: str
    cites: documents.Cites
    facts: documents.FactsDocument
    sentence: str


class AttemptDocument(TypedDict):
    reference: str
    source: str | None
    outcome: AttemptOutcome
    deadline: documents.InstantText | None
    reasons: list[ReasonDocument]


class EntryDocument(TypedDict):
    at: documents.InstantText
    kind: EntryKind
    money: documents.MoneyDocument
    attempt: str | None
    cites: documents.Cites


class TimelineRowDocument(TypedDict):
    occurred_at: documents.InstantText | None
    received_at: documents.InstantText
    event: str
    source: str
    digest: str
    kind: str
    claim: ClaimKind
    attempt: Annotated[str | None, "The event's attempt; null if it could be several."]
    money: documents.MoneyDocument | None
    deliveries: documents.Count
    note: str


class CitedFindingDocument(TypedDict):
    code: FindingCode
    severity: Severity
    cites: documents.Cites
    facts: documents.FactsDocument
    sentence: str


class LedgerMembers(TypedDict):
    """Members that every document about a ledger has."""

    order: documents.OrderReference
    as_of: documents.InstantText
    outcome: Outcome
    fulfillable: Annotated[
        bool,
        "Ship if it is true, `fulfilled_at` is null, and your own books have not shipped it. "
        "State `fulfilled_at` before the parcel leaves.",
    ]
    totals: TotalsDocument
    explanation: list[str]
    attempts: list[AttemptDocument]
    entries: list[EntryDocument]
    timeline: list[TimelineRowDocument]
    next_decision_at: documents.InstantText | None
    fingerprint: Annotated[
        documents.Digest,
        "`sha256:` and the digest of the members above, without `as_of` and the `plain` and "
        "`staff` of findings, as canonical JSON.",
    ]


class FoldedDocument(LedgerMembers):
    findings: list[CitedFindingDocument]


class WindowDocument(TypedDict):
    expected_by: Annotated[
        documents.InstantText | None,
        "When the provider should have stated how a slow payment ended, such as a bank debit; "
        "null if none is under way. You decide whether to keep stock until then. If it is past, "
        "the payment is overdue and may still come through.",
    ]
    method_class: Annotated[
        str | None,
        "The slow payment method, as the profile calls it; `unknown` if no event names it.",
    ]
    revocable_until: Annotated[
        documents.InstantText | None,
        "Until when the customer can revoke the payment without giving a reason; null if the "
        "profile states no such time.",
    ]


class SummaryDocument(TypedDict):
    order: documents.OrderReference
    outcome: Outcome
    fulfillable: bool
    totals: TotalsDocument
    findings: list[FindingCode]
    plain: Annotated[str, "For a customer, without ids."]
    explanation: str
    next_decision_at: documents.InstantText | None


class FindingDocument(CitedFindingDocument):
    plain: Annotated[
        str, "The same for a customer, without ids; the fingerprint does not cover it."
    ]
    staff: Annotated[str, "What the shop's people must do about it; empty if nothing."]


class PlainFindingDocument(TypedDict):
    code: FindingCode
    sentence: str


class PlainDocument(TypedDict):
    """Words that can be read to a customer. The fingerprint does not cover them.

    `answer` has sentences without ids. `findings` has a sentence for each finding code.
    """

    answer: list[str]
    findings: list[PlainFindingDocument]


class PlainLedgerDocument(LedgerMembers):
    findings: Annotated[
        list[FindingDocument],
        "More than three findings of one code are listed as one: `facts` has their number as "
        "`alike`, the largest count, and the first and last date. `cites` has all ids; a sentence "
        "names a few.",
    ]
    plain: PlainDocument
    staff: Annotated[
        list[str],
        "What the shop's people must do, the most urgent first. It may have the payment "
        "service's own code of a decline: do not read it to a customer. The fingerprint does "
        "not cover it.",
    ]
