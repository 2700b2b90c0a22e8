"""A JSON body without its personal data: whatever the profile does not read becomes a stand-in.

Nobody lists what is personal: a text or a long number is replaced wherever the event that is read
stays the same without it. What is left is what the engine sees: references, kinds, amounts, dates.
A date that the profile reads becomes a place that a replay fills in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from app.core.errors import UsageError
from app.core.strict_json import Written, parse_written
from reconcile.instants import DAY, MILLISECOND, SECOND, Instant, format_instant, parse_instant
from reconcile.ledger.events import Event

FORMAT: Final = "tallyhook scenario 1"
"""What a scenario says of itself."""

Read = Callable[[bytes], Event]
"""How a body is read; the digest does not matter. Raises Unreadable, which is a ValueError."""

Path = tuple[str | int, ...]
Piece = str | dict[str, str | int]
"""A text of a body as it is, or `{"at": moment, "as": form}`, which a replay fills in."""

_SHORT: Final = 9
"""Digits below which a number is no phone number and no account."""

_KEPT_MAX: Final = 300
"""Characters of a text that is read: a reference. A longer one could hide a whole document."""

_UNITS: Final[dict[str, int]] = {"s": SECOND, "ms": MILLISECOND, "us": 1}

_MARK: Final = "\ue000"
"""Of Unicode's private use, stands around a date's place while the body is one text."""


class StandIns:
    """Stand-ins that are the same for the same text throughout one scenario."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, text: str) -> str:
        """Digits for digits, words for words: nothing of it but its kind is left."""
        if text not in self._known:
            number = len(self._known) + 1
            digits = text.removeprefix("+").isdigit()
            plus = "+" if text.startswith("+") else ""
            self._known[text] = f"{plus}25470000{number:04}" if digits else f"text-{number}"
        return self._known[text]

    def body(self, body: bytes, read: Read) -> list[Piece]:
        """The body in pieces. Raises UsageError where it cannot be freed of personal data."""
        event, document = read(body), parse_written(body)
        for path, leaf in list(_leaves(document)):
            document = self._without(document, path, leaf, event=event, read=read)
        document, form = _dated(document, event, read)
        return _pieces(document, event, form)

    def _without(self, document: Any, path: Path, leaf: Any, *, event: Event, read: Read) -> Any:
        """The document with a stand-in at the path, if that changes nothing of what is read."""
        if isinstance(leaf, Written) and (len(leaf) < _SHORT or not leaf.isdigit()):
            return document
        stand_in = Written(self.of(leaf)) if isinstance(leaf, Written) else self.of(leaf)
        changed = put(document, path, stand_in)
        if says(changed, event, read):
            return changed
        if len(leaf) > _KEPT_MAX or leaf.lstrip()[:1] in ("{", "["):
            raise UsageError("what is read of a body stands in a text of its own: no scenario")
        return document


def says(document: Any, event: Event, read: Read) -> bool:
    """Whether the document is read as this event, whatever its digest."""
    try:
        found = read(written(document).encode())
    except ValueError:
        return False
    return replace(found, digest=event.digest) == event


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text and number; a number is a Written."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, number))
    elif isinstance(value, str):
        yield path, value


def put(document: Any, path: Path, value: Any) -> Any:
    """A copy with another value at the path."""
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = put(document[path[0]], path[1:], value)
    return copy


def written(value: Any) -> str:
    """JSON, numbers as they were written."""
    if isinstance(value, Written):
        return value
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)}: {written(item)}" for name, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value, ensure_ascii=False)


# --- dates ---------------------------------------------------------------------------------------


def _dated(document: Any, event: Event, read: Read) -> tuple[Any, str | None]:
    """The document with a mark where its date is read, and how that is written; None without."""
    if event.occurred_at is None:
        return document, None
    later = replace(event, occurred_at=event.occurred_at + DAY)
    for path, leaf in _leaves(document):
        form = form_of(leaf)
        if form is None:
            continue
        moved = dated(moment_of(leaf, form) + DAY, form)
        number = isinstance(leaf, Written)
        if says(put(document, path, Written(moved) if number else moved), later, read):
            mark = Written(_MARK) if number else _MARK
            return put(document, path, mark), form
    return document, None


def form_of(leaf: str) -> str | None:
    """How a date is written: `rfc3339`, or `s`, `ms`, `us` since 1970; None for what is no date."""
    if leaf.isascii() and leaf.isdigit():
        return {10: "s", 13: "ms", 16: "us"}.get(len(leaf))
    try:
        parse_instant(leaf)
    except ValueError:
        return None
    return "rfc3339"


def moment_of(leaf: str, form: str) -> Instant:
    """The moment that a date in this form names."""
    return parse_instant(leaf) if form == "rfc3339" else int(leaf) * _UNITS[form]


def dated(moment: Instant, form: str) -> str:
    """A moment in this form."""
    return format_instant(moment) if form == "rfc3339" else str(moment // _UNITS[form])


def _pieces(document: Any, event: Event, form: str | None) -> list[Piece]:
    text = written(document)
    if form is None or event.occurred_at is None:
        return [text]
    before, _, after = text.partition(_MARK)
    return [before, {"at": format_instant(event.occurred_at), "as": form}, after]
