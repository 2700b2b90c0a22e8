"""The signed content: a template of literals and references, filled with the bytes as received.

`{header:webhook-id}.{ts}.{body}` is Standard Webhooks. One entry in REFERENCES for each reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.providers.places import Headers, header_values
from app.providers.refusal import Refusal


class Request(NamedTuple):
    """All that a signature may cover. `timestamp` is the text as received, never re-formatted."""

    headers: Headers
    body: bytes
    timestamp: bytes
    method: str
    url: str


Part = Callable[[Request], bytes | Refusal]


def _body(_argument: str) -> Part:
    return lambda request: request.body


def _timestamp(_argument: str) -> Part:
    return lambda request: request.timestamp


def _header(name: str) -> Part:
    values = header_values(name)
    absent = Refusal(
        "signature_missing", f"The header {name}, which the signature covers, is missing."
    )
    repeated = Refusal(
        "signature_mismatch",
        f"The header {name} came more than once, so what was signed is ambiguous.",
    )

    def part(request: Request) -> bytes | Refusal:
        found = values(request.headers)
        if len(found) == 1:
            return found[0]
        return repeated if found else absent

    return part


REFERENCES: Final[Mapping[str, Callable[[str], Part]]] = {
    "body": _body,
    "ts": _timestamp,
    "header": _header,
}

_WITH_ARGUMENT = frozenset({"header"})
_TOKEN = re.compile(r"\{(?P<reference>[^{}]*)\}|(?P<literal>[^{}]+)|(?P<stray>[{}])")


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template. `references` are the words inside its braces."""

    parts: tuple[Part, ...]
    references: tuple[str, ...]

    def fill(self, request: Request) -> bytes | Refusal:
        """The signed content, or why this request has none."""
        pieces = []
        for part in self.parts:
            piece = part(request)
            if isinstance(piece, Refusal):
                return piece
            pieces.append(piece)
        return b"".join(pieces)


def compile_template(text: str) -> Template:
    """Raises ValueError with a sentence for a reference that does not exist or a stray brace."""
    tokens = list(_TOKEN.finditer(text))
    return Template(
        parts=tuple(_part(token) for token in tokens),
        references=tuple(token["reference"] for token in tokens if token["reference"] is not None),
    )


def _part(token: re.Match[str]) -> Part:
    if token["stray"]:
        raise ValueError("has a brace that is not part of a {reference}")
    if token["literal"]:
        literal = token["literal"].encode("utf-8")
        return lambda request: literal
    name, _, argument = token["reference"].partition(":")
    if name not in REFERENCES or (name in _WITH_ARGUMENT) != bool(argument):
        raise ValueError(f"has an unknown reference; known are {_known()}")
    return REFERENCES[name](argument)


def _known() -> str:
    return ", ".join(f"{{{n}:NAME}}" if n in _WITH_ARGUMENT else f"{{{n}}}" for n in REFERENCES)
