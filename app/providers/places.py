"""Where in a raw request a signature or a timestamp stands. One entry for each kind of place.

A place is written `KIND:NAME` in a profile, such as `header:webhook-signature`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.providers.headers import Headers, header_values
from app.providers.json_text import plain_text
from app.providers.paths import compile_path, find
from app.providers.request import Request

__all__ = ["PLACES", "Headers", "Place", "compile_place"]

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
