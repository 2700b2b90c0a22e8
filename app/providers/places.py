"""Where in a raw request a signature or a timestamp stands. One entry for each kind of place.

A place is written `KIND:NAME` in a profile, such as `header:webhook-signature`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Headers = Sequence[tuple[bytes, bytes]]
"""Raw headers as ASGI gives them: lower-case names, in the order they came, repeats kept."""

_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a request. `text` is how the profile writes it; `values` may find several."""

    text: str
    values: Callable[[Headers], list[bytes]]
    header: str


def header_values(name: str) -> Callable[[Headers], list[bytes]]:
    """A function that gives every value of header `name`. Raises ValueError for a bad name."""
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a header name in lower case")
    wanted = name.encode("ascii")
    return lambda headers: [value for key, value in headers if key == wanted]


PLACES: Final[Mapping[str, Callable[[str], Callable[[Headers], list[bytes]]]]] = {
    "header": header_values,
}


def compile_place(text: str) -> Place:
    """The place a profile names. Raises ValueError with a sentence."""
    kind, _, name = text.partition(":")
    if kind not in PLACES or not name:
        raise ValueError(f"must be one of {', '.join(f'{known}:NAME' for known in PLACES)}")
    return Place(text=text, values=PLACES[kind](name), header=name)
