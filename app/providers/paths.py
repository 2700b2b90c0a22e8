"""Paths into JSON, such as `data.items[0].id`, `Item[Name=Amount].Value` and `events[*].id`.

A step is a name, an index or a search in a list. A search text that ends in `*` matches every text
with this beginning.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json import decoder
from typing import Any, Final, NamedTuple

from app.core.strict_json import NumberText
from app.providers.request import Request, header_values

MAX_ITEMS: Final = 1_000
"""Maximum number of events in one body."""


class Where(NamedTuple):
    """Step of a path that searches an object by its member's text."""

    name: str
    value: str


class Each:
    """Step of a path that stands for every element of a list, written `[*]`."""


EACH: Final = Each()

PathStep = str | int | Where | Each
JsonPath = tuple[PathStep, ...]

_STEP = re.compile(
    r"(?P<dot>\.?)(?:(?P<name>[^.\[\]{}|?\"]+)"
    r"|\[(?P<index>[0-9]{1,4})\]"
    r"|\[\"(?P<quoted>[^\"]+)\"\]"
    r"|\[(?P<each>\*)\]"
    r"|\[(?P<member>[^=\[\]\"]+)=(?P<value>[^\[\]\"]+)\])"
)


def compile_path(text: str, *, each: bool = False) -> JsonPath:
    """Split the text of a path into its steps. Raise ValueError if malformed.

    If `each` is set, the path can contain one `[*]`.
    """
    steps: list[PathStep] = []
    place = 0
    while place < len(text):
        match = _STEP.match(text, place)
        if match is None or bool(match["dot"]) != bool(match["name"] and steps):
            raise ValueError("has a path that is not like a.b[0].c[Name=Amount].Value")
        if match["each"]:
            steps.append(EACH)
        elif match["index"]:
            steps.append(int(match["index"]))
        elif match["member"]:
            steps.append(Where(match["member"], match["value"]))
        else:
            steps.append(match["name"] or match["quoted"])
        place = match.end()
    if not steps:
        raise ValueError("has an empty path")
    if steps.count(EACH) > each:
        raise ValueError("has [*] in its path, but only event.items may have [*], and only once")
    return tuple(steps)


def find_paths(document: Any, path: JsonPath) -> Any:
    """Return the value at a path, if any."""
    value = document
    for step in path:
        value = take(value, step)
        if value is None:
            return None
    return value


def take(value: Any, step: PathStep) -> Any:
    """Return the value that one step leads to; None if there is none."""
    if type(step) is str:
        return value.get(step) if type(value) is dict else None
    if type(step) is Where and type(value) is dict:
        return value if _is(value, step) else None
    if type(value) is not list:
        return None
    if type(step) is int:
        return value[step] if step < len(value) else None
    if type(step) is Where:
        return next((each for each in value if _is(each, step)), None)
    raise TypeError("[*] stands for many values, not for one")


_WHOLE: Final = re.compile(r"-?[0-9]+")


def _is(value: Any, where: Where) -> bool:
    found = value.get(where.name) if type(value) is dict else None
    if type(found) is bool:
        return where.value == ("true" if found else "false")
    if type(found) is NumberText:  # as in a body that is read: whole numbers alone match
        found = int(found) if _WHOLE.fullmatch(found) else None
    if type(found) not in (str, int):
        return False
    if where.value.endswith("*"):
        return str(found).startswith(where.value[:-1])
    return str(found) == where.value


_scanstring: Final[Callable[[str, int], tuple[str, int]]] = vars(decoder)["scanstring"]
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder(parse_int=NumberText, parse_float=NumberText)


def slices(text: str, path: JsonPath) -> list[str]:
    """Return the values at `path` as JSON text."""
    found = [text]
    for step in path:
        found = [piece for value in found for piece in _stepped(value, step)]
    return [piece.strip(" \t\n\r") for piece in found]


def _stepped(text: str, step: PathStep) -> Iterator[str]:
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
    place = _skip(text, start + 1)
    while text[place] != "}":
        name, place = _scanstring(text, place + 1)
        place = _skip(text, _skip(text, place) + 1)
        _, end = _DECODER.raw_decode(text, place)
        yield name, text[place:end]
        place = _next(text, end)


def _elements(text: str, start: int) -> Iterator[str]:
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
    """Return a JSON value as text. Return None for null, an object or a list."""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else None


def compact(value: Any) -> str:
    """Return a value as JSON without blanks, like JavaScript's JSON.stringify."""
    return _write(value, sort=False)


def canonical(value: Any) -> str:
    """Return a value as JSON without blanks, with the keys of every object sorted."""
    return _write(value, sort=True)


def _write(value: Any, *, sort: bool) -> str:
    # Not by the standard encoder, which would write a NumberText as a text.
    if isinstance(value, dict):
        pairs = sorted(value.items()) if sort else value.items()
        inner = ",".join(f"{_quoted(name)}:{_write(each, sort=sort)}" for name, each in pairs)
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(_write(each, sort=sort) for each in value) + "]"
    if isinstance(value, NumberText):
        return str(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


FindValues = Callable[[Request], list[bytes]]


@dataclass(frozen=True, slots=True)
class RequestPlace:
    """Place in a request from which values are read."""

    text: str
    """The place as the profile writes it."""
    values: FindValues
    """Returns all values at the place."""

    @property
    def name(self) -> str:
        """Name in the place, after kind and colon; the first of several header names."""
        return self.text.partition(":")[2].partition(",")[0]


def _header(name: str) -> FindValues:
    values = header_values(name)
    return lambda request: values(request.headers)


def _query(name: str) -> FindValues:
    wanted = name.encode("utf-8")
    return lambda request: [value for key, value in request.query if key == wanted]


def _form(name: str) -> FindValues:
    wanted = name.encode("utf-8")
    return lambda request: [value for key, value in request.form if key == wanted]


def _json(name: str) -> FindValues:
    path = compile_path(name)

    def values(request: Request) -> list[bytes]:
        text = plain_text(find_paths(request.document, path))
        # Half a surrogate pair is legal in JSON but not in text, so it must match nothing.
        return [] if text is None else [text.encode("utf-8", "replace")]

    return values


PLACES: Final[Mapping[str, Callable[[str], FindValues]]] = {
    "header": _header,
    "query": _query,
    "form": _form,
    "json": _json,
}


def compile_place(text: str) -> RequestPlace:
    """Compile a place that a profile names. Raise ValueError if the text is malformed."""
    kind, _, name = text.partition(":")
    if kind not in PLACES or not name:
        raise ValueError(f"must be one of {', '.join(f'{known}:NAME' for known in PLACES)}")
    return RequestPlace(text=text, values=PLACES[kind](name))
