"""The language of templates: literals, `{name:argument?|filter}`, and `[…]` groups that may vanish.

Leaves out: what a reference stands for. Signed content (template.py) and the composite locations
of events (fields.py) each give their own meaning to the same words.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from app.providers.forms import php_urlencode

Filter = Callable[[bytes], bytes]


def _hex_digest(value: bytes, *, algorithm: str) -> bytes:
    return hashlib.new(algorithm, value, usedforsecurity=False).hexdigest().encode("ascii")


def _base64_digest(value: bytes, *, algorithm: str) -> bytes:
    return base64.b64encode(hashlib.new(algorithm, value, usedforsecurity=False).digest())


def _crc32(value: bytes) -> bytes:
    return b"%d" % binascii.crc32(value)


def _last_segment(value: bytes) -> bytes:
    return value.rpartition(b"/")[2]


_DIGESTS = ("md5", "sha1", "sha256", "sha384", "sha512")

FILTERS: Final[Mapping[str, Filter]] = {
    "upper": bytes.upper,
    "lower": bytes.lower,
    "strip": bytes.strip,
    "urlencode": php_urlencode,
    "base64": base64.b64encode,
    "crc32": _crc32,
    "last_segment": _last_segment,
    **{f"{name}_hex": partial(_hex_digest, algorithm=name) for name in _DIGESTS},
    **{f"{name}_base64": partial(_base64_digest, algorithm=name) for name in ("sha256", "sha512")},
}


def compile_filters(names: tuple[str, ...]) -> tuple[Filter, ...]:
    """The filters of these names. Raises ValueError with a sentence."""
    for name in names:
        if name not in FILTERS:
            raise ValueError(f"has an unknown filter; known are {', '.join(FILTERS)}")
    return tuple(FILTERS[name] for name in names)


_TOKEN = re.compile(
    r"\{(?P<reference>[^{}]*)\}|(?P<open>\[)|(?P<close>\])|(?P<literal>[^{}\[\]]+)|(?P<stray>[{}])"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """`{name:argument?|filter|filter}`. `optional`: what is absent is empty."""

    name: str
    argument: str
    optional: bool
    filters: tuple[str, ...]

    @property
    def text(self) -> str:
        """Name and argument as the profile writes them: `json:data.id`."""
        return f"{self.name}:{self.argument}" if self.argument else self.name


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens that vanish together where a reference among them is absent."""

    tokens: tuple[str | Reference, ...]


Token = str | Reference | Group


def read_template(text: str) -> tuple[Token, ...]:
    """The tokens of a template. Raises ValueError with a sentence."""
    tokens: list[Token] = []
    group: list[str | Reference] | None = None
    for match in _TOKEN.finditer(text):
        if match["stray"]:
            raise ValueError("has a brace that is not part of a {reference}")
        if match["open"]:
            if group is not None:
                raise ValueError("has a group [ ] inside another")
            group = []
        elif match["close"]:
            if group is None:
                raise ValueError("has a ] without its [")
            tokens.append(Group(tuple(group)))
            group = None
        else:
            (tokens if group is None else group).append(_plain(match))
    if group is not None:
        raise ValueError("has a [ without its ]")
    return tuple(tokens)


def references(tokens: tuple[Token, ...]) -> list[Reference]:
    """Every reference, those in groups included, in order."""
    found: list[Reference] = []
    for token in tokens:
        inner = token.tokens if isinstance(token, Group) else (token,)
        found.extend(each for each in inner if isinstance(each, Reference))
    return found


def _plain(match: re.Match[str]) -> str | Reference:
    if match["literal"]:
        return match["literal"]
    words, *filters = match["reference"].split("|")
    name, _, argument = words.removesuffix("?").partition(":")
    return Reference(name, argument, words.endswith("?"), tuple(filters))
