"""Paths into JSON: `data.items[0].id`, `Item[Name=Amount].Value`, `data["a.b"]`, `events[*].id`.

A step is a name, an index, or a search in a list of objects for the one whose member has a text.
The same step asks one object whether it is that one: `data.object[object=charge].id` is the id of
a charge and of nothing else. A text that ends in `*` asks how the member's text begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json import decoder
from typing import Any, Final, NamedTuple

from app.core.strict_json import NumberText
from app.providers.request import Request, header_values

MAX_ITEMS: Final = 1_000
"""Events in one body: providers send at most a few hundred at once."""


class Where(NamedTuple):
    """Of a list of objects (or of one) the first whose member `name` is, as text, `value`.

    A value that ends in `*` is how the member's text begins.
    """

    name: str
    value: str


class Each:
    """Every element of a list: `[*]`."""


EACH: Final = Each()

Step = str | int | Where | Each
Path = tuple[Step, ...]

_STEP = re.compile(
    r"(?P<dot>\.?)(?:(?P<name>[^.\[\]{}|?\"]+)"
    r"|\[(?P<index>[0-9]{1,4})\]"
    r"|\[\"(?P<quoted>[^\"]+)\"\]"
    r"|\[(?P<each>\*)\]"
    r"|\[(?P<member>[^=\[\]\"]+)=(?P<value>[^\[\]\"]+)\])"
)


def compile_path(text: str, *, each: bool = False) -> Path:
    """The steps of a path. Raises ValueError with a sentence; `[*]` only where `each` allows it."""
    steps: list[Step] = []
    place = 0
    while place < len(text):
        match = _STEP.match(text, place)
        if match is None or bool(match["dot"]) != bool(match["name"] and steps):
            raise ValueError("has a path that is not like a.b[0].c[Name=Amount].Value")
        steps.append(_step(match))
        place = match.end()
    if not steps:
        raise ValueError("has an empty path")
    if steps.count(EACH) > each:
        raise ValueError("has [*] in its path, which only event.items may have, once")
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["each"]:
        return EACH
    if match["index"]:
        return int(match["index"])
    if match["member"]:
        return Where(match["member"], match["value"])
    return match["name"] or match["quoted"]


def find(document: Any, path: Path) -> Any:
    """What stands there; None where nothing does, or where what should hold it is of other kind."""
    value = document
    for step in path:
        value = take(value, step)
        if value is None:
            return None
    return value


def take(value: Any, step: Step) -> Any:
    """One step further, or None."""
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
    if type(found) is NumberText:  # what is signed is asked as what is read: whole numbers alone
        found = int(found) if _WHOLE.fullmatch(found) else None
    if type(found) not in (str, int):
        return False
    if where.value.endswith("*"):
        return str(found).startswith(where.value[:-1])
    return str(found) == where.value


_scanstring: Final[Callable[[str, int], tuple[str, int]]] = vars(decoder)["scanstring"]
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder(parse_int=NumberText, parse_float=NumberText)


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
    if isinstance(value, NumberText):
        return str(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def joined_values(value: Any) -> str | None:
    """The values of an object as text, sorted by name, without separators; None of others."""
    if type(value) is not dict:
        return None
    return "".join(plain_text(each) or "" for _, each in sorted(value.items()))


Values = Callable[[Request], list[bytes]]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a request. `text` is how the profile writes it; `values` may find several."""

    text: str
    values: Values

    @property
    def kind(self) -> str:
        """`header`, `query`, `form` or `json`."""
        return self.text.partition(":")[0]

    @property
    def name(self) -> str:
        """What stands behind the kind; of several headers the first."""
        return self.text.partition(":")[2].partition(",")[0]


def _header(name: str) -> Values:
    values = header_values(name)
    return lambda request: values(request.headers)


def _query(name: str) -> Values:
    wanted = name.encode("utf-8")
    return lambda request: [value for key, value in request.query if key == wanted]


def _form(name: str) -> Values:
    wanted = name.encode("utf-8")
    return lambda request: [value for key, value in request.form if key == wanted]


def _json(name: str) -> Values:
    path = compile_path(name)

    def values(request: Request) -> list[bytes]:
        text = plain_text(find(request.document, path))
        # Half a surrogate pair is legal JSON and no text: it can match nothing.
        return [] if text is None else [text.encode("utf-8", "replace")]

    return values


PLACES: Final[Mapping[str, Callable[[str], Values]]] = {
    "header": _header,
    "query": _query,
    "form": _form,
    "json": _json,
}


def compile_place(text: str) -> Place:
    """The place a profile names. Raises ValueError with a sentence."""
    kind, _, name = text.partition(":")
    if kind not in PLACES or not name:
        raise ValueError(f"must be one of {', '.join(f'{known}:NAME' for known in PLACES)}")
    return Place(text=text, values=PLACES[kind](name))
