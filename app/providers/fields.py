"""Where a field of an event stands, and what may stand there.

A location is written `KIND:NAME`: `json:data.order.reference`, `header:webhook-id`. One entry in
LOCATIONS for each kind. JSON null is the same as nothing. Sentences name the location, which is
the profile's own text, and never quote what was found there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.providers.places import Headers, header_values
from app.providers.reading import Unreadable
from reconcile.instants import Instant, parse_instant

MAX_ID: Final = 255
MAX_TEXT: Final = 200

Find = Callable[[Any, Headers], Any]
"""(document, headers) → what stands there, or None."""

_ID = re.compile(rf"[!-~]{{1,{MAX_ID}}}")
# Control characters, line separators, and halves of surrogate pairs, which no database can store.
_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _json(path: str) -> Find:
    keys = tuple(path.split("."))
    if not all(keys):
        raise ValueError("has an empty name in its path")

    def find(document: Any, _headers: Headers) -> Any:
        value = document
        for key in keys:
            if type(value) is not dict:
                raise Unreadable(f"what should hold {path} is not an object")
            value = value.get(key)
            if value is None:
                return None
        return value

    return find


def _header(name: str) -> Find:
    values = header_values(name)

    def find(_document: Any, headers: Headers) -> str | None:
        found = values(headers)
        if len(found) > 1:
            raise Unreadable(f"the header {name} came more than once")
        return found[0].decode("latin-1") if found else None

    return find


LOCATIONS: Final[Mapping[str, Callable[[str], Find]]] = {"json": _json, "header": _header}


def compile_location(text: str) -> Find:
    """A function that finds what stands there. Raises ValueError with a sentence."""
    kind, _, name = text.partition(":")
    if kind not in LOCATIONS or not name:
        raise ValueError(f"must be one of {', '.join(f'{known}:NAME' for known in LOCATIONS)}")
    return LOCATIONS[kind](name)


def compile_locations(texts: tuple[str, ...]) -> Find:
    """The first of several that is present; of none at all, always nothing."""
    finds = tuple(compile_location(text) for text in texts)
    if len(finds) == 1:
        return finds[0]

    def find(document: Any, headers: Headers) -> Any:
        for each in finds:
            value = each(document, headers)
            if value is not None:
                return value
        return None

    return find


def plain_name(texts: tuple[str, ...]) -> str:
    """What a sentence calls the field: `data.order.reference`."""
    return texts[0].partition(":")[2] if texts else "a field"


def event_id(value: Any, name: str) -> str:
    """Printable ASCII without blanks, 1 to MAX_ID characters: it goes into keys and log lines."""
    if value is None:
        raise Unreadable(f"{name} is missing")
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    if not _ID.fullmatch(value):
        raise Unreadable(f"{name} is not 1 to {MAX_ID} printable ASCII characters without blanks")
    return value


def required_text(value: Any, name: str) -> str:
    """1 to MAX_TEXT characters, not blank, without control characters."""
    if value is None:
        raise Unreadable(f"{name} is missing")
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    if not value or len(value) > MAX_TEXT:
        raise Unreadable(f"{name} is not 1 to {MAX_TEXT} characters long")
    if not value.isprintable() and _UNUSABLE.search(value):
        raise Unreadable(f"{name} has control characters or half a surrogate pair")
    if value.isspace():
        raise Unreadable(f"{name} is blank")
    return value


def _rfc_3339(value: Any, name: str) -> Instant:
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    try:
        return parse_instant(value)
    except ValueError:
        example = "2026-11-20T10:00:00.123Z"
        raise Unreadable(f"{name} is not an RFC 3339 date-time such as {example}") from None


DATES: Final[Mapping[str, Callable[[Any, str], Instant]]] = {"rfc3339": _rfc_3339}
"""How a provider writes when something happened: (value, name) → instant, or Unreadable."""
