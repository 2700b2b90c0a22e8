"""What a verified body holds: its document, and the events in it. One entry for each body kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers.paths import EACH, MAX_ITEMS, Path, find, slices
from app.providers.request import first, parse_pairs
from app.providers.sections import RequestRule


class BodyItem(NamedTuple):
    """One event of a body: its JSON, its bytes as they stand there, and their SHA-256."""

    document: Any
    raw: bytes
    digest: str


def _json(rule: RequestRule, body: bytes) -> Any:
    # Providers that also send GET put everything into the query then.
    return {} if not body and "GET" in rule.methods else parse(body)


def _form_json(rule: RequestRule, body: bytes) -> Any:
    return parse(first(parse_pairs(body), (rule.field or "").encode("utf-8")))


def _no_document(_rule: RequestRule, _body: bytes) -> Any:
    return {}


DOCUMENTS: Final[Mapping[str, Callable[[RequestRule, bytes], Any]]] = {
    "json": _json,
    "form": _no_document,
    "form_json": _form_json,
    "query": _no_document,
}


def items_of(document: Any, body: bytes, path: Path) -> list[BodyItem]:
    """The events at `path`, each with its own bytes. Raises Unreadable where there are none."""
    documents = _expanded(document, path)
    if not documents:
        raise Unreadable("the body has no events where the profile says they are")
    if len(documents) > MAX_ITEMS:
        raise Unreadable(f"the body has more than {MAX_ITEMS} events")
    raws = [raw.encode("utf-8") for raw in slices(body.decode("utf-8"), path)]
    return [
        BodyItem(each, raw, hashlib.sha256(raw).hexdigest())
        for each, raw in zip(documents, raws, strict=True)
    ]


def _expanded(document: Any, path: Path) -> list[Any]:
    found = expand(document, path)
    if any(type(each) is not dict for each in found):
        raise Unreadable("an event of the body is not a JSON object")
    return found


def expand(document: Any, path: Path) -> list[Any]:
    """What stands at `path`, once for each element that `[*]` stands for; [] where nothing does."""
    if EACH not in path:
        value = find(document, path)
        return [] if value is None else [value]
    place = path.index(EACH)
    elements = find(document, path[:place])
    if type(elements) is not list:
        return []
    return [find(each, path[place + 1 :]) for each in elements]
