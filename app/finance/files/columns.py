"""Which column of a file says what: by its usual name, or by the name that a mapping gives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.finance.files.problems import Refused

Recognize = Callable[[Sequence[str]], int]
"""A heading → how many of its columns are known."""

_APART: Final = re.compile(r"[\s_]+")


def plain_name(name: str) -> str:
    """The form in which names of columns are compared: `Placed At` and `placed_at` are one."""
    return _APART.sub("", name.strip().casefold())


def places_of(
    heading: Sequence[str], *, fields: Sequence[str], named: Mapping[str, str], row: int
) -> dict[str, int]:
    """For each field that the file has the place of its column.

    named  what the mapping says: field to the heading's name; an empty name leaves it out
    Raises Refused where the heading names one field twice, or lacks a name of the mapping.
    """
    wanted = {field: plain_name(named.get(field, field)) for field in fields}
    plain = [plain_name(name) for name in heading]
    found = {}
    for field, name in wanted.items():
        places = [place for place, each in enumerate(plain) if each == name and name]
        if len(places) > 1:
            raise Refused(row, "there are two columns of this name", column=heading[places[0]])
        if places:
            found[field] = places[0]
        elif named.get(field):
            raise Refused(row, f"there is no column {named[field]!r}, which the mapping names")
    return found


def known_in(heading: Sequence[str], *, fields: Sequence[str], named: Mapping[str, str]) -> int:
    """How many columns of a heading are known."""
    wanted = {plain_name(named.get(field, field)) for field in fields} - {""}
    return len(wanted & {plain_name(name) for name in heading})
