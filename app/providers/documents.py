"""The content of a verified body: the parsed document, and the events in it."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers.paths import EACH, MAX_ITEMS, JsonPath, find_paths, slices
from app.providers.sections import RequestRule


class BodyItem(NamedTuple):
    """One event in a body: its parsed JSON, its bytes as received, and the SHA-256 of these
    bytes."""

    document: Any
    raw: bytes
    digest: str


def _json(rule: RequestRule, body: bytes) -> Any:
    # A provider that also sends GET puts everything into the query of a GET.
    return {} if not body and "GET" in rule.methods else parse(body)


DOCUMENTS: Final[Mapping[str, Callable[[RequestRule, bytes], Any]]] = {
    "json": _json,
    "form": lambda rule, body: {},
}


def items_of(document: Any, body: bytes, path: JsonPath) -> list[BodyItem]:
    """Return the events at `path` in the document, each with its own bytes.

    Raise Unreadable for none or too many.
    """
    found = expand(document, path)
    if any(type(each) is not dict for each in found):
        raise Unreadable("an event of the body is not a JSON object")
    if not found:
        raise Unreadable("the body has no events where the profile says they are")
    if len(found) > MAX_ITEMS:
        raise Unreadable(f"the body has more than {MAX_ITEMS} events")
    raws = [raw.encode("utf-8") for raw in slices(body.decode("utf-8"), path)]
    return [
        BodyItem(each, raw, hashlib.sha256(raw).hexdigest())
        for each, raw in zip(found, raws, strict=True)
    ]


def expand(document: Any, path: JsonPath) -> list[Any]:
    """Return all values that the path matches."""
    if EACH not in path:
        value = find_paths(document, path)
        return [] if value is None else [value]
    place = path.index(EACH)
    elements = find_paths(document, path[:place])
    if type(elements) is not list:
        return []
    return [find_paths(each, path[place + 1 :]) for each in elements]
