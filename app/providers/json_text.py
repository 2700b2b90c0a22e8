"""JSON as text: exact slices of it as they stand in a body, and the ways providers write it again.

All take text that `strict_json` has parsed already, so that it is known to be well-formed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from json import decoder
from typing import Any, Final

from app.core.strict_json import Written
from app.providers.paths import EACH, Each, Path, Step, Where, take

_scanstring: Final[Callable[[str, int], tuple[str, int]]] = vars(decoder)["scanstring"]
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder(parse_int=Written, parse_float=Written)


def slices(text: str, path: Path) -> list[str]:
    """The values at `path` exactly as they stand in `text`; several where it has `[*]`."""
    found = [text]
    for step in path:
        found = [piece for value in found for piece in _stepped(value, step)]
    return [piece.strip(" \t\n\r") for piece in found]


def _stepped(text: str, step: Step) -> Iterator[str]:
    start = _skip(text, 0)
    if isinstance(step, str):
        members = _members(text, start) if text[start] == "{" else ()
        yield from (piece for name, piece in members if name == step)
        return
    if text[start] != "[":
        if isinstance(step, Where) and take(_DECODER.decode(text), step) is not None:
            yield text
        return
    for number, piece in enumerate(_elements(text, start)):
        if isinstance(step, Each) or number == step:
            yield piece
        elif isinstance(step, Where) and take([_DECODER.decode(piece)], step) is not None:
            yield piece
            return


def _members(text: str, start: int) -> Iterator[tuple[str, str]]:
    """Name and value of every member of the object at `start`."""
    place = _skip(text, start + 1)
    while text[place] != "}":
        name, place = _scanstring(text, place + 1)
        place = _skip(text, _skip(text, place) + 1)
        _, end = _DECODER.raw_decode(text, place)
        yield name, text[place:end]
        place = _next(text, end)


def _elements(text: str, start: int) -> Iterator[str]:
    """Every element of the list at `start`."""
    place = _skip(text, start + 1)
    while text[place] != "]":
        _, end = _DECODER.raw_decode(text, place)
        yield text[place:end]
        place = _next(text, end)


def _skip(text: str, place: int) -> int:
    match = _BLANK.match(text, place)
    return place if match is None else match.end()


def _next(text: str, end: int) -> int:
    place = _skip(text, end)
    return _skip(text, place + 1) if text[place] == "," else place


def plain_text(value: Any) -> str | None:
    """A member as text: numbers as written, `true`, `false`; None for null, objects and lists."""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else None


def compact(value: Any) -> str:
    """Without blanks between tokens, in the order received, as JavaScript's JSON.stringify."""
    return _write(value, sort=False)


def canonical(value: Any) -> str:
    """The same with the keys of every object sorted."""
    return _write(value, sort=True)


def _write(value: Any, *, sort: bool) -> str:
    # By hand, since the standard encoder would write a Written number as a text.
    if isinstance(value, dict):
        pairs = sorted(value.items()) if sort else value.items()
        inner = ",".join(f"{_quoted(name)}:{_write(each, sort=sort)}" for name, each in pairs)
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(_write(each, sort=sort) for each in value) + "]"
    if isinstance(value, Written):
        return str(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def joined_values(value: Any) -> str | None:
    """The values of an object as text, sorted by name, without separators; None of others."""
    if type(value) is not dict:
        return None
    return "".join(plain_text(each) or "" for _, each in sorted(value.items()))


__all__ = ["EACH", "canonical", "compact", "joined_values", "plain_text", "slices"]
