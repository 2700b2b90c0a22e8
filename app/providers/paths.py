"""Paths into JSON: `data.items[0].id`, `Item[Name=Amount].Value`, `data["a.b"]`, `events[*].id`.

A step is a name, an index, or a search in a list of objects for the one whose member has a text.
The same step asks one object whether it is that one: `data.object[object=charge].id` is the id of
a charge and of nothing else.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

MAX_ITEMS: Final = 1_000
"""Events in one body: providers send at most a few hundred at once."""


class Where(NamedTuple):
    """Of a list of objects (or of one) the first whose member `name` is, as text, `value`."""

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


def _is(value: Any, where: Where) -> bool:
    found = value.get(where.name) if type(value) is dict else None
    if type(found) is bool:
        return where.value == ("true" if found else "false")
    return type(found) in (str, int) and str(found) == where.value
