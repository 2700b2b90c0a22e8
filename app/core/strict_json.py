"""Strict JSON parser (RFC 8259), which refuses what other parsers may read differently.

Duplicate keys, NaN, Infinity, integers beyond 64 bits, and deep nesting are refused. Fractions
become Decimal.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from app.core.reading import Unreadable

MAX_DEPTH: Final = 32
"""Maximum depth of nested objects and arrays. Events need only three levels."""

MAX_NUMBER_LENGTH: Final = 100
"""Maximum number of characters in a number that has a fraction or an exponent. Amounts are much
shorter."""

_INTEGER_LENGTH = 20
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1

# An unterminated string extends to the end of the body, so that the scan stays linear.
_STRINGS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


class NumberText(str):
    """Number as written in the body: `2.00` is not shortened to `2`."""

    __slots__ = ()


def parse(body: bytes) -> Any:
    """Return the content of a JSON document. Raise Unreadable, whose message does not quote the
    document, for an invalid document."""
    return _decode(body, _DECODER)


def parse_written(body: bytes) -> Any:
    """Return the content of a JSON document with numbers as written, which some signatures cover.

    Raise Unreadable for an invalid document.
    """
    return _decode(body, _WRITTEN_DECODER)


def _decode(body: bytes, decoder: json.JSONDecoder) -> Any:
    if not body or body.isspace():
        raise Unreadable("the body is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("the body is not UTF-8") from None
    # Counting is a hundred times cheaper than scanning, and enough for every ordinary event.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        depth = 0
        for match in _STRINGS_AND_BRACKETS.finditer(body):
            token = body[match.start()]
            if token in b"[{":
                depth += 1
                if depth > MAX_DEPTH:
                    raise Unreadable(f"the body is nested deeper than {MAX_DEPTH} levels")
            elif token in b"]}":
                depth -= 1
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        raise Unreadable(
            f"the body is not JSON: the error is at character {error.pos + 1}"
        ) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Unreadable("the body has an object with the same key twice")
    return result


def _integer(text: str) -> int:
    # Check the length first: converting a million digits takes seconds.
    if len(text) <= _INTEGER_LENGTH:
        value = int(text)
        if _SMALLEST <= value <= _LARGEST:
            return value
    raise Unreadable("the body has an integer that does not fit in 64 bits")


def _decimal(text: str) -> Decimal:
    if len(text) > MAX_NUMBER_LENGTH:
        raise Unreadable(f"the body has a number of more than {MAX_NUMBER_LENGTH} characters")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise Unreadable("the body has a number with an exponent that is too large") from None


def _written(text: str) -> NumberText:
    if len(text) > MAX_NUMBER_LENGTH:
        raise Unreadable(f"the body has a number of more than {MAX_NUMBER_LENGTH} characters")
    return NumberText(text)


def _constant(_name: str) -> NoReturn:
    raise Unreadable("the body has NaN or Infinity, which are not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_decimal, parse_constant=_constant
)
_WRITTEN_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_written, parse_float=_written, parse_constant=_constant
)
