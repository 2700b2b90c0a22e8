"""Types for the members of JSON documents, with their JSON Schema keywords.

Each document is a TypedDict next to the function that builds it. A text annotation is a member's
description; a `Keywords` annotation states what the type cannot express. The API builds its JSON
Schema from these types.
"""

from types import NoneType, UnionType
from typing import Annotated, Any, Final, NotRequired, TypedDict, Union, get_args, get_origin


class Keywords:
    """JSON Schema keywords of a type, such as `minimum` or `examples`."""

    def __init__(self, **keywords: object) -> None:
        self.keywords: Final = keywords


INSTANT: Final = Keywords(
    format="date-time", pattern="^(19[7-9]|[2-9][0-9]{2})", examples=["2026-10-05T14:30:00Z"]
)
InstantText = Annotated[str, INSTANT]
"""RFC 3339 date-time between the years 1970 and 9999."""

DayText = Annotated[str, Keywords(format="date", examples=["2026-10-05"])]
Count = Annotated[int, Keywords(minimum=0)]
CurrencyCode = Annotated[str, Keywords(pattern="^[A-Z]{3}$", examples=["KES"])]
Sha256 = Annotated[str, Keywords(pattern="^[0-9a-f]{64}$", examples=["5f" * 32])]
Digest = Annotated[str, Keywords(pattern="^sha256:[0-9a-f]{64}$", examples=["sha256:" + "5f" * 32])]
OrderReference = Annotated[
    str,
    Keywords(
        minLength=1,
        maxLength=200,
        pattern="^(?=[\\s\\S]*\\S)[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]+$",
        examples=["ORD-1"],
    ),
]

Cites = Annotated[list[str], "Ids of the events, deliveries and records that it rests on."]
_NEXT: Final = "Send it to get the next page; null if there is none."
NextText = Annotated[str | None, _NEXT]
NextNumber = Annotated[Count | None, _NEXT]


def parts_of(kind: Any) -> tuple[Any, ...]:
    """Return the plain type, followed by the type's annotations from the innermost to the
    outermost.

    `NotRequired` and `| None` are removed from the type.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return (*parts_of(args[0]), *args[1:])
    if origin is NotRequired:
        return parts_of(args[0])
    if origin in (Union, UnionType):
        inner = [each for each in args if each is not NoneType]
        return parts_of(inner[0]) if len(inner) == 1 else (kind,)
    return (kind,)


class MoneyDocument(TypedDict):
    amount: Annotated[
        str,
        "In major units, with the currency's own number of decimals.",
        Keywords(pattern=r"^-?[0-9]+(\.[0-9]+)?$", examples=["1500.00"]),
    ]
    currency: CurrencyCode


FactDocument = str | int | bool | None | MoneyDocument
FactsDocument = Annotated[
    dict[str, FactDocument | list[FactDocument]],
    "The values in the sentence, by name; a name that occurs several times has a list. Money is "
    "an object, an instant a text.",
]
