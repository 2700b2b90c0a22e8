"""Other spellings of one JSON body: what a parser in the way may have made of what was signed.

Leaves out: anything that changes what the body says. Numbers stay as they were written, except
where a spelling is about numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from app.core.reading_result import Unreadable
from app.core.strict_json import parse

_ESCAPED: Final = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"))
"""What some encoders write for signs that mean something in HTML."""

_MARK: Final = "\ue000"
"""Stands around a number with a fraction, so that it is written again digit for digit."""

_MARKED: Final = re.compile(r'"(?:\ue000|\\ue000)([^"\\]*?)(?:\ue000|\\ue000)"')

_WHOLE: Final = re.compile(r"(?<=[0-9])\.0+(?=[,\]}\s]|\Z)")


def respellings(body: bytes) -> Iterator[tuple[str, bytes]]:
    """(how it is spelled, the bytes), each different from `body`; none where it is not JSON."""
    try:
        parse(body)
        document = json.loads(body, parse_float=lambda digits: f"{_MARK}{digits}{_MARK}")
    except (Unreadable, ValueError, RecursionError):
        return
    seen = {body}
    for name, write in _SPELLINGS:
        spelled = write(document).encode("utf-8", "surrogatepass")
        if spelled not in seen:
            seen.add(spelled)
            yield name, spelled


def _dumped(**options: Any) -> Callable[[Any], str]:
    def write(document: Any) -> str:
        return _MARKED.sub(r"\1", json.dumps(document, **{"ensure_ascii": False, **options}))

    return write


_compact = _dumped(separators=(",", ":"))
_spaced = _dumped(ensure_ascii=True)

_SPELLINGS: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("without blanks", _compact),
    ("with a blank after each comma and colon", _dumped()),
    ("indented by two", _dumped(indent=2)),
    ("indented by four", _dumped(indent=4)),
    ("without blanks, in ASCII", _dumped(separators=(",", ":"), ensure_ascii=True)),
    ("with blanks, in ASCII", _spaced),
    (
        "with blanks, in ASCII, 2.00 written as 2.0",
        lambda document: _WHOLE.sub(".0", _spaced(document)),
    ),
    ("without blanks, its keys sorted", _dumped(separators=(",", ":"), sort_keys=True)),
    ("with blanks, its keys sorted", _dumped(sort_keys=True)),
    ("with its slashes escaped", lambda document: _compact(document).replace("/", "\\/")),
    ("with < > & escaped", lambda document: _replaced(_compact(document))),
    ("without blanks, 2.00 written as 2", lambda document: _WHOLE.sub("", _compact(document))),
    ("without blanks, 2.00 written as 2.0", lambda document: _WHOLE.sub(".0", _compact(document))),
)


def _replaced(text: str) -> str:
    for sign, escape in _ESCAPED:
        text = text.replace(sign, escape)
    return text
