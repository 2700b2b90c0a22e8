"""Reading a session request: exact JSON, every problem of its fields at once, and its digest.

Leaves out: tokens, keys and headers. Numbers are read as decimals; no float is ever made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from app.sandbox.idempotency import FieldProblem
from app.sandbox.settings import is_absolute_http
from reconcile.canonical import fingerprint
from reconcile.money import Money, MoneyError, exponent_of, from_major

MAX_DEPTH: Final = 16
"""Levels of nesting a document may have; the real one has two."""

MAX_REFERENCE: Final = 128
"""Characters in an order's reference."""

_AMOUNT = re.compile(r"\d{1,19}(\.\d{1,4})?", re.ASCII)
_PHONE = re.compile(r"\+?\d{8,15}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What a merchant asks for: `money` is the whole order's, `phone` 8 to 15 digits or none."""

    order: str
    money: Money
    phone: str | None
    success_url: str | None
    cancel_url: str | None


def read_json(body: bytes) -> Any:
    """The document with all numbers as Decimal. Raises ValueError with a sentence.

    Refuses what has no single meaning: repeated names, NaN, text that is not UTF-8, lone
    surrogates, nesting deeper than MAX_DEPTH.
    """
    try:
        document = json.loads(
            body.decode("utf-8"),
            parse_float=Decimal,
            parse_int=Decimal,
            parse_constant=_no_constant,
            object_pairs_hook=_no_repeats,
        )
        digest_of(document)
    except (ValueError, InvalidOperation, RecursionError):
        raise ValueError("The body must be one JSON document in UTF-8, each name once.") from None
    return document


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is repeated")
    return found


def digest_of(document: Any) -> str:
    """Equal for documents that differ only in blanks, order of names, or writing of numbers."""
    return fingerprint(_without_numbers(document, 0))


def _without_numbers(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        return {name: _without_numbers(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_numbers(item, depth + 1) for item in value]
    return {"\x00number": _number_text(value)} if isinstance(value, Decimal) else value


def _number_text(value: Decimal) -> str:
    """1500, 1500.00 and 15e2 give one text. Works on digits: 1e999999999 must cost nothing."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits)).lstrip("0")
    kept = written.rstrip("0")
    if not kept:
        return "0"
    return f"{'-' if sign else ''}{kept}e{exponent + len(written) - len(kept)}"


def check_request(document: Any) -> SessionRequest | list[FieldProblem]:
    """The request, or every problem of it: `[("order.amount", "…"), …]`."""
    problems = [
        (path, sentence) for path, right, sentence in _FIELDS if not right(_at(document, path))
    ]
    amount, currency = _at(document, "order.amount"), _at(document, "order.currency")
    if not any(path in ("order.amount", "order.currency") for path, _ in problems):
        money, sentence = _exact(amount, currency)
        if money is not None and not problems:
            return _request(document, money)
        problems += [("order.amount", sentence)] if money is None else []
    return problems


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _exact(amount: str | Decimal, currency: str) -> tuple[Money | None, str]:
    try:
        return from_major(amount, currency), ""
    except MoneyError as error:
        text = str(error)
        return None, f"{text[0].upper()}{text[1:]}."


def _request(document: Any, money: Money) -> SessionRequest:
    return SessionRequest(
        order=_at(document, "order.reference"),
        money=money,
        phone=_at(document, "customer.phone"),
        success_url=_at(document, "return_urls.success"),
        cancel_url=_at(document, "return_urls.cancel"),
    )


def _is_reference(value: Any) -> bool:
    return (
        isinstance(value, str)
        and 1 <= len(value) <= MAX_REFERENCE
        and value.isprintable()
        and value == value.strip()
    )


def _is_positive(value: Any) -> bool:
    if isinstance(value, str):
        return _AMOUNT.fullmatch(value) is not None and Decimal(value) > 0
    return isinstance(value, Decimal) and value > 0


def _is_currency(value: Any) -> bool:
    try:
        return isinstance(value, str) and exponent_of(value) >= 0
    except MoneyError:
        return False


def _is_phone(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _PHONE.fullmatch(value) is not None)


def _is_url(value: Any) -> bool:
    return value is None or (isinstance(value, str) and is_absolute_http(value))


_FIELDS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    (
        "order.reference",
        _is_reference,
        f"Give the order's own reference: 1 to {MAX_REFERENCE} printable characters.",
    ),
    ("order.amount", _is_positive, 'Give a positive amount in major units, such as "1500.00".'),
    ("order.currency", _is_currency, "Give a currency code of ISO 4217, such as KES."),
    ("customer.phone", _is_phone, "Give the customer's phone number as 8 to 15 digits in text."),
    ("return_urls.success", _is_url, "Give an absolute http or https URL."),
    ("return_urls.cancel", _is_url, "Give an absolute http or https URL."),
)
