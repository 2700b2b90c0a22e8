"""Parser of the parameters and JSON bodies of API requests."""

import re
import typing
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from app.core.errors import NotFoundError
from app.core.problems import ApiProblem
from app.core.reading import Unreadable
from app.core.references import RULE, composed, is_reference
from app.core.strict_json import parse
from app.core.text import counted
from app.orders.order_facts import NOT_SO, OrderFacts, Reference
from reconcile.documents import CurrencyCode, InstantText, Keywords, OrderReference, parts_of
from reconcile.instants import Instant, parse_instant
from reconcile.ledger.records import Tender
from reconcile.money import Money, MoneyError, from_major

Word = typing.TypeVar("Word", bound=str)
Stated = typing.TypeVar("Stated")

_UNESCAPED_OFFSET = re.compile(r" (?=\d\d:\d\d\Z)")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_AMOUNT = re.compile(r"\d{1,19}(?:\.\d{1,19})?", re.ASCII)


GREATEST: typing.Final = 2**63 - 1
"""Maximum number that a database column can store."""


def order_reference(request: Request) -> str:
    """Return the order's reference in the path. Raise ApiProblem 422 for an invalid reference."""
    reference = composed(request.path_params["reference"])
    if not is_reference(reference) or not _is_utf8(request.scope.get("raw_path")):
        raise ApiProblem(
            422, "reference_invalid", f"An order's reference must be {RULE}, in UTF-8."
        )
    return reference


def _is_utf8(path: bytes | None) -> bool:
    try:
        unquote_to_bytes(path or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def bearer_token(request: Request) -> str:
    """Return the request's bearer token, or ""."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def only_parameters(request: Request, names: Collection[str]) -> None:
    """Raise ApiProblem 422 for an unknown or repeated query parameter, or for a zero byte."""
    for name, value in request.path_params.items():
        if name != "reference":
            _refuse_zero_byte(name, value)
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in names:
            there = (
                f"the parameters are {', '.join(names)}"
                if names
                else "this address takes no parameters"
            )
            # Quoted, because it may be anything.
            raise ApiProblem(
                422, "parameter_unknown", f"The parameter {name[:60]!a} does not exist; {there}."
            )
        if name in seen:
            raise ApiProblem(422, "parameter_invalid", f"{name} is given more than once.")
        _refuse_zero_byte(name, value)
        seen.add(name)


def _refuse_zero_byte(name: str, value: str) -> None:
    if "\0" in value:
        raise ApiProblem(422, "parameter_invalid", f"{name} has a zero byte (%00).")


def word_parameter(request: Request, name: str) -> str | None:
    """Return a query parameter's value; None for a missing or empty value."""
    return composed(request.query_params.get(name, "")) or None


def number_parameter(request: Request, name: str, *, default: int, low: int, high: int) -> int:
    """Return the whole number in a query parameter. Raise ApiProblem 422 for a number out of
    bounds."""
    text = word_parameter(request, name)
    if text is None:
        return min(default, high)
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high):
        raise ApiProblem(
            422, "parameter_invalid", f"{name} must be a whole number from {low} to {high}."
        )
    return int(text)


def path_number(text: str) -> int:
    """Return the number in a part of a path. Raise NotFoundError for any other text."""
    if not _NUMBER.fullmatch(text):
        raise NotFoundError(text)
    return int(text)


def instant_of(name: str, text: str) -> Instant:
    """Parse a query parameter as an RFC 3339 time. Raise ApiProblem 422 for any other text."""
    try:
        # An unescaped plus sign arrives as a blank, which before an offset can only mean a plus.
        return parse_instant(_UNESCAPED_OFFSET.sub("+", text))
    except ValueError as error:
        raise ApiProblem(422, "parameter_invalid", f"{name}: {error}.") from None


def chosen(request: Request, name: str, words: Sequence[Word]) -> Word | None:
    """Return a query parameter's word; None without the parameter. Raise ApiProblem 422 for any
    other word."""
    text = word_parameter(request, name)
    word = next((each for each in words if each == text), None)
    if text is not None and word is None:
        raise ApiProblem(422, "parameter_invalid", f"{name} must be one of {', '.join(words)}.")
    return word


async def capped_body(request: Request, *, most: int) -> bytes:
    """Return the request's body. Raise ApiProblem 413 if the body has more than `most` bytes."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise ApiProblem(413, "body_too_large", f"Send at most {counted(most, 'byte')}.")
    return bytes(body)


def json_object(body: bytes) -> dict[str, typing.Any]:
    """Parse a request body strictly as a JSON object. Raise ApiProblem 400 for other bodies."""
    try:
        document = parse(body)
    except Unreadable as error:
        raise ApiProblem(400, "json_invalid", f"The body cannot be read: {error}.") from None
    if not isinstance(document, dict):
        raise ApiProblem(400, "json_invalid", "The body must be a JSON object.")
    return document


def texts(body: bytes, kind: type[Stated]) -> Stated:
    """Parse a request body as a document of this type. Raise one ApiProblem 422 for all
    mistakes."""
    document, members = json_object(body), typing.get_type_hints(kind, include_extras=True)
    required: frozenset[str] = getattr(kind, "__required_keys__", frozenset())
    problems = [f"{name[:60]!a} is not known" for name in document if name not in members]
    for name, hint in members.items():
        fault = _text_fault(document[name], hint) if name in document else "is missing"
        if fault and (name in document or name in required):
            problems.append(f"{name} {fault}")
    if problems:
        problems.append(f"the known members are {', '.join(members)}")
        raise ApiProblem(422, "request_invalid", f"The body is wrong: {'; '.join(problems)}.")
    return typing.cast(Stated, document)


def _text_fault(value: object, hint: typing.Any) -> str | None:
    kind, *notes = parts_of(hint)
    limits: dict[str, typing.Any] = {
        name: limit
        for note in notes
        if isinstance(note, Keywords)
        for name, limit in note.keywords.items()
    }
    if typing.get_origin(kind) is typing.Literal:
        words = typing.get_args(kind)
        return None if value in words else f"must be one of {', '.join(words)}"
    if not isinstance(value, str):
        return "is not a text"
    low, high = limits.get("minLength", 0), limits.get("maxLength", len(value))
    return (
        None if low <= len(value.strip()) <= high else f"must have {low:,} to {high:,} characters"
    )


_MOMENTS = ("placed_at", "canceled_at", "fulfilled_at")
_DENIABLE = ("canceled_at", "fulfilled_at")


MAX_REFERENCES = 50
"""Maximum number of payment references in one PUT request."""


_REFERENCE_FORMS = (
    {"source", "payment"},
    {"source", "session"},
    {"source", "session", "amount", "currency"},
)


MAX_TENDERS = 20

TENDER_KIND: typing.Final = "[a-z][a-z0-9_]{0,39}"
"""Pattern of a tender's kind. A card number does not fit the pattern."""

Amount = typing.Annotated[
    str | float,
    Keywords(pattern=r"^[0-9]{1,19}(\.[0-9]{1,19})?$", exclusiveMinimum=0, examples=["1500.00"]),
]


class ToldTenderDocument(typing.TypedDict):
    kind: typing.Annotated[str, Keywords(pattern=f"^{TENDER_KIND}$", examples=["gift_card"])]
    amount: Amount


class ToldReferenceDocument(typing.TypedDict):
    source: typing.Annotated[str, "The source's name, as in /webhooks/NAME."]
    session: typing.NotRequired[OrderReference]
    payment: typing.NotRequired[OrderReference]
    amount: typing.Annotated[
        typing.NotRequired[Amount], "The amount for which the session was opened, in major units."
    ]
    currency: typing.NotRequired[CurrencyCode]


_OneReference = typing.Annotated[
    ToldReferenceDocument,
    Keywords(
        oneOf=[
            {"required": ["session"]},
            {"required": ["payment"], "not": {"required": ["amount"]}},
        ],
        dependentRequired={"amount": ["currency"], "currency": ["amount"]},
        examples=[{"source": "shop", "payment": "pay_1"}],
    ),
]


class ToldDocument(typing.TypedDict):
    amount: typing.Annotated[
        str | float,
        Keywords(pattern=r"^[0-9]{1,19}(\.[0-9]{1,19})?$", minimum=0, examples=["1500.00"]),
        "The whole price; zero only with `free`.",
    ]
    currency: CurrencyCode
    free: typing.Annotated[
        typing.NotRequired[bool],
        "True if the order costs nothing. Required if the amount is 0, and refused otherwise. The "
        "order is fulfillable once a verified event says that its session ended with the amount 0.",
    ]
    tenders: typing.Annotated[
        typing.NotRequired[list[ToldTenderDocument] | None],
        Keywords(maxItems=MAX_TENDERS),
        "Parts of the price that are paid by other means, such as a gift card. Their total is at "
        "most the amount, and providers collect the rest. If missing, the earlier statement "
        "applies. An empty list means none.",
    ]
    placed_at: typing.NotRequired[InstantText | None]
    canceled_at: typing.Annotated[
        typing.NotRequired[InstantText | None],
        "Null means that the order was not canceled. If missing, nothing is stated.",
    ]
    fulfilled_at: typing.Annotated[
        typing.NotRequired[InstantText | None],
        "Null means that the order was not fulfilled. If missing, nothing is stated.",
    ]
    references: typing.Annotated[
        typing.NotRequired[list[_OneReference] | None],
        Keywords(maxItems=MAX_REFERENCES),
        "The provider's references of the order's payments or sessions. Their events belong to "
        "the order, even if they do not name it. Each reference belongs to one order "
        "permanently. If the provider states no amount, the session's amount is used.",
    ]


def reported_order(
    order: str, document: dict[str, typing.Any], *, sources: Collection[str]
) -> OrderFacts:
    """Return the facts that a PUT request states. Raise one ApiProblem 422 for all mistakes."""
    known = ("amount", "currency", "free", "tenders", *_MOMENTS, "references")
    problems = [
        f"{name[:40]!r} is not known"  # quoted: half a surrogate pair could not be sent back
        for name in document
        if name not in known
    ]
    if problems:
        problems[-1] += f": the known members are {', '.join(known)}"
    free = document.get("free", False)
    if not isinstance(free, bool):
        problems.append("free must be true or false")
    money = _money(document, problems, least=0)
    if money is not None and (money.minor == 0) is not free and isinstance(free, bool):
        problems.append(
            "free may be true only with the amount 0"
            if free
            else 'amount must be more than zero; for an order that costs nothing, send "free": true'
        )
    moments: dict[str, typing.Any] = {
        name: _moment(document.get(name), name, problems) for name in _MOMENTS
    }
    moments |= {name: NOT_SO for name in _DENIABLE if document.get(name, NOT_SO) is None}
    tenders = _tenders(document.get("tenders"), money, problems)
    references = tuple(_references(document.get("references"), sources, problems))
    if problems or money is None:
        raise ApiProblem(422, "order_invalid", "; ".join(problems) + ".")
    return OrderFacts(
        order=order, money=money, **moments, references=references, tenders=tenders, free=free
    )


def _tenders(given: object, price: Money | None, problems: list[str]) -> tuple[Tender, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) > MAX_TENDERS:
        problems.append(f"tenders must be a list of at most {MAX_TENDERS}")
        return None
    found = []
    for number, each in enumerate(given):
        where = f"tenders[{number}]"
        if not isinstance(each, dict) or set(each) != {"kind", "amount"}:
            problems.append(f"{where} must have a kind and an amount, in the order's currency")
        elif not isinstance(each["kind"], str) or not re.fullmatch(TENDER_KIND, each["kind"]):
            problems.append(f"{where}.kind must be a word such as gift_card")
        elif price is not None:
            wrong: list[str] = []
            money = _money({"amount": each["amount"], "currency": price.currency}, wrong)
            problems += [f"{where}.{problem}" for problem in wrong]
            if money is not None:
                found.append(Tender(kind=each["kind"], money=money))
    if price is not None and sum(each.money.minor for each in found) > price.minor:
        problems.append("tenders must not exceed the amount in total")
    return tuple(found)


def _references(
    given: object, sources: Collection[str], problems: list[str]
) -> Iterator[Reference]:
    if given is None:
        return
    if not isinstance(given, list) or len(given) > MAX_REFERENCES:
        problems.append(f"references must be a list of at most {MAX_REFERENCES}")
        return
    for number, each in enumerate(given):
        where = f"references[{number}]"
        names = set(each) if isinstance(each, dict) else set()
        if names not in _REFERENCE_FORMS:
            problems.append(
                f"{where} must have a source, and either a session or a payment; a session may "
                "have an amount and a currency"
            )
        elif not isinstance(each["source"], str) or each["source"] not in sources:
            problems.append(
                f"{where}.source must be one of {', '.join(sorted(sources)) or '(none)'}"
            )
        elif not is_reference(given_name := each.get("session", each.get("payment"))):
            problems.append(
                f"{where} must be a text of 1 to 200 characters without control characters"
            )
        elif "payment" in names:
            yield Reference(source=each["source"], payment=composed(given_name))
        elif "amount" not in names:
            yield Reference(source=each["source"], session=composed(given_name))
        else:
            wrong: list[str] = []
            money = _money(each, wrong)
            problems += [f"{where}.{problem}" for problem in wrong]
            yield Reference(source=each["source"], session=composed(given_name), money=money)


def _money(document: dict[str, typing.Any], problems: list[str], *, least: int = 1) -> Money | None:
    amount, currency = document.get("amount"), document.get("currency")
    if isinstance(amount, str) and not _AMOUNT.fullmatch(amount):
        problems.append('amount is not a decimal number such as "1500.00"')
    elif isinstance(amount, bool) or not isinstance(amount, str | int | Decimal):
        problems.append('amount is missing; send a decimal such as "1500.00"')
    elif not isinstance(currency, str):
        problems.append("currency is missing; send an ISO 4217 code such as KES")
    else:
        try:
            money = from_major(amount, currency)
        except MoneyError as error:
            problems.append(str(error))
        else:
            if money.minor >= least:
                return money
            problems.append("amount must be more than zero")
    return None


def _moment(text: object, name: str, problems: list[str]) -> Instant | None:
    if text is None:
        return None
    try:
        return parse_instant(str(text))
    except ValueError as error:
        problems.append(f"{name} is {error}")
        return None
