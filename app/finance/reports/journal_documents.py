"""Documents of the payments journal as JSON, as the API describes them."""

from typing import Annotated, Literal, NotRequired, TypedDict

from reconcile.documents import Cites, Count, DayText, InstantText, Keywords, MoneyDocument


class PostedDocument(TypedDict):
    account: Annotated[str, Keywords(examples=["Assets:Clearing:Provider"])]
    role: Annotated[
        str, "What the account is for, whatever its name is.", Keywords(examples=["clearing"])
    ]
    minor: Annotated[int, "Minor units: debit is positive, credit negative."]
    money: Annotated[MoneyDocument, "The same in major units."]


class TransactionDocument(TypedDict):
    transaction: Annotated[Count, "Its number in this journal, from 1."]
    date: DayText
    at: InstantText
    what: Annotated[str, Keywords(examples=["captured"])]
    order: str | None
    payment: str | None
    source: str | None
    cites: Cites
    original_date: Annotated[DayText | None, "Of an adjusting entry: its day in closed_period."]
    tax_date: DayText | None
    closed_period: Annotated[
        str | None, "The closed month of which it became known later; null: none."
    ]
    postings: Annotated[
        list[PostedDocument], "Of one currency; they add up to nothing.", Keywords(minItems=1)
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
    residual: Annotated[MoneyDocument, "Left of all totals by rounding."]
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
            "In which days are counted; without it UTC.",
            Keywords(examples=["Africa/Nairobi"]),
        ]
    ]
    merchant: NotRequired[str]
    closed_by: NotRequired[Annotated[str, "Of a closed month: who closed it."]]
    closed_at: NotRequired[InstantText]
    version: NotRequired[Annotated[Count, "Of the closing."]]
    approved_by: NotRequired[Annotated[str, "Who approved the closing, where it took two people."]]
    proposed_at: NotRequired[InstantText]
    transactions: list[TransactionDocument]
    count: Count
    totals: Annotated[list[PostedDocument], "What was posted in all, by account and currency."]
    own: NotRequired[
        Annotated[
            OwnBalancesDocument,
            "The totals in TALLYHOOK_REPORTS__CURRENCY, at the rates of their days.",
        ]
    ]
