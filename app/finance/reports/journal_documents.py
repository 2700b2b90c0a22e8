"""Define the JSON documents of the payments journal."""

from typing import Annotated, Literal, NotRequired, TypedDict

from reconcile.documents import Cites, Count, DayText, InstantText, Keywords, MoneyDocument


class PostedDocument(TypedDict):
    account: Annotated[str, Keywords(examples=["Assets:Clearing:Provider"])]
    role: Annotated[
        str, "Purpose of the account, independent of its name.", Keywords(examples=["clearing"])
    ]
    minor: Annotated[int, "Minor units: debit is positive, credit negative."]
    money: Annotated[MoneyDocument, "The amount in major units."]


class TransactionDocument(TypedDict):
    transaction: Annotated[Count, "Number of the transaction in this journal, from 1."]
    date: DayText
    at: InstantText
    what: Annotated[str, Keywords(examples=["captured"])]
    order: str | None
    payment: str | None
    source: str | None
    cites: Cites
    original_date: Annotated[DayText | None, "Day of an adjusting entry within closed_period."]
    tax_date: DayText | None
    closed_period: Annotated[
        str | None, "Closed month to which a late entry belongs; null if none."
    ]
    postings: Annotated[
        list[PostedDocument],
        "Postings in one currency, which add up to zero.",
        Keywords(minItems=1),
    ]


class OwnTotalDocument(TypedDict):
    account: str
    of: str
    money: MoneyDocument


class RateDocument(TypedDict):
    currency: str
    day: DayText | None
    rate: str
    origin: Literal["file", "statement"]


class OwnBalancesDocument(TypedDict):
    currency: Annotated[str, Keywords(examples=["EUR"])]
    totals: list[OwnTotalDocument]
    residual: Annotated[MoneyDocument, "Difference that exchange rates and rounding leave."]
    missing: Annotated[list[str], "Currencies of money without a rate."]
    rates: list[RateDocument]


_Span = TypedDict("_Span", {"from": InstantText, "to": InstantText})


class JournalDocument(_Span):
    kind: Annotated[str, Keywords(examples=["payments journal"])]
    as_of: InstantText
    basis: Annotated[str, Keywords(examples=["captured"])]
    environment: Annotated[str, Keywords(examples=["live"])]
    zone: NotRequired[
        Annotated[
            str,
            "Time zone in which days are counted; null for UTC.",
            Keywords(examples=["Africa/Nairobi"]),
        ]
    ]
    merchant: NotRequired[str]
    closed_by: NotRequired[Annotated[str, "Who closed the month, if it is closed."]]
    closed_at: NotRequired[InstantText]
    version: NotRequired[Annotated[Count, "Of the closing."]]
    approved_by: NotRequired[Annotated[str, "Who approved the closing, if two people were needed."]]
    proposed_at: NotRequired[InstantText]
    transactions: list[TransactionDocument]
    count: Count
    totals: Annotated[list[PostedDocument], "All amounts posted, by account and currency."]
    own: NotRequired[
        Annotated[
            OwnBalancesDocument,
            "The totals in TALLYHOOK_REPORTS__CURRENCY, at each day's exchange rate.",
        ]
    ]
