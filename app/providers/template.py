"""The signed content: a template of literals and references, filled with the bytes as received.

`{header:webhook-id}.{ts}.{body}` is Standard Webhooks. One entry in REFERENCES for each reference.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from app.providers import paths
from app.providers.request import Pairs, Refusal, Request, header_values, php_urlencode, write_pairs

# --- the language of templates --------------------------------------------------------------------


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
class TemplateReference:
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
class TemplateGroup:
    """Tokens that vanish together where a reference among them is absent."""

    tokens: tuple[str | TemplateReference, ...]


Token = str | TemplateReference | TemplateGroup


def read_template(text: str) -> tuple[Token, ...]:
    """The tokens of a template. Raises ValueError with a sentence."""
    tokens: list[Token] = []
    group: list[str | TemplateReference] | None = None
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
            tokens.append(TemplateGroup(tuple(group)))
            group = None
        else:
            (tokens if group is None else group).append(_plain(match))
    if group is not None:
        raise ValueError("has a [ without its ]")
    return tuple(tokens)


def references(tokens: tuple[Token, ...]) -> list[TemplateReference]:
    """Every reference, those in groups included, in order."""
    found: list[TemplateReference] = []
    for token in tokens:
        inner = token.tokens if isinstance(token, TemplateGroup) else (token,)
        found.extend(each for each in inner if isinstance(each, TemplateReference))
    return found


def _plain(match: re.Match[str]) -> str | TemplateReference:
    if match["literal"]:
        return match["literal"]
    words, *filters = match["reference"].split("|")
    name, _, argument = words.removesuffix("?").partition(":")
    return TemplateReference(name, argument, words.endswith("?"), tuple(filters))


# --- the signed content ---------------------------------------------------------------------------


Part = Callable[[Request], bytes | Refusal]


class Meaning(NamedTuple):
    """What a reference stands for: its maker, and whether it takes an argument."""

    make: Callable[[str], Part]
    argument: str
    """`no`, `must`, or `may`."""


def _absent(what: str) -> Refusal:
    return Refusal("signature_missing", f"The {what}, which the signature covers, is missing.")


def _repeated(what: str) -> Refusal:
    return Refusal(
        "signature_mismatch", f"The {what} came more than once, so what was signed is ambiguous."
    )


def _single(what: str, values: Callable[[Request], list[bytes]]) -> Part:
    absent, repeated = _absent(what), _repeated(what)

    def part(request: Request) -> bytes | Refusal:
        found = values(request)
        if len(found) == 1:
            return found[0]
        return repeated if found else absent

    return part


def _header(name: str) -> Part:
    values = header_values(name)
    return _single(f"header {name}", lambda request: values(request.headers))


def _form_field(name: str) -> Part:
    wanted = name.encode("utf-8")
    return _single(
        f"form field {name}",
        lambda request: [value for key, value in request.form if key == wanted],
    )


def _query(name: str) -> Part:
    if not name:
        return lambda request: request.query_text
    wanted = name.encode("utf-8")
    return _single(
        f"query field {name}",
        lambda request: [value for key, value in request.query if key == wanted],
    )


_BOTH: Final = Refusal(
    "signature_mismatch", "A GET came with a body, and its signature covers the query alone."
)


def _body_or_query(_argument: str) -> Part:
    def part(request: Request) -> bytes | Refusal:
        if request.method != "GET":
            return request.body
        return _BOTH if request.body else b"?" + request.query_text

    return part


def _member(what: str, write: Callable[[Any], str | None]) -> Callable[[str], Part]:
    """References to a member of the JSON, or to all of it, that `write` makes a text."""

    def make(name: str) -> Part:
        path = paths.compile_path(name) if name else ()
        absent = _absent(f"{what} {name}".strip())

        def part(request: Request) -> bytes | Refusal:
            value = paths.find(request.document, path)
            text = None if value is None else write(value)
            return absent if text is None else text.encode("utf-8", "replace")

        return part

    return make


def _raw(name: str) -> Part:
    path, absent = paths.compile_path(name), _absent(f"member {name}")

    def part(request: Request) -> bytes | Refusal:
        if request.document is None:
            return absent
        found = paths.slices(request.json_bytes.decode("utf-8"), path)
        return found[0].encode("utf-8") if found else absent

    return part


def _fields(order: Callable[[Pairs], Pairs], write: Callable[[Pairs], bytes]) -> Any:
    """References to the whole form, in an order and a spelling; `-NAME` leaves one field out."""

    def make(argument: str) -> Part:
        if argument and not argument.startswith("-"):
            raise ValueError("has a form reference whose argument is not -FIELD")
        left_out = argument.removeprefix("-").encode("utf-8")
        return lambda request: write(
            order([pair for pair in request.form if not argument or pair[0] != left_out])
        )

    return make


def _joined(pairs: Pairs) -> bytes:
    return b"".join(name + value for name, value in pairs)


REFERENCES: Final[Mapping[str, Meaning]] = {
    "body": Meaning(lambda _: lambda request: request.body, "no"),
    "ts": Meaning(lambda _: lambda request: request.timestamp, "no"),
    "header": Meaning(_header, "must"),
    "url": Meaning(lambda _: lambda request: request.url.encode("utf-8", "replace"), "no"),
    "path": Meaning(lambda _: lambda request: request.path, "no"),
    "method": Meaning(lambda _: lambda request: request.method.encode("ascii", "replace"), "no"),
    "query": Meaning(_query, "may"),
    "form": Meaning(_form_field, "must"),
    "body_or_query": Meaning(_body_or_query, "no"),
    "json": Meaning(_member("member", paths.plain_text), "must"),
    "raw": Meaning(_raw, "must"),
    "compact": Meaning(_member("JSON", paths.compact), "may"),
    "canonical": Meaning(_member("JSON", paths.canonical), "may"),
    "values": Meaning(_member("object", paths.joined_values), "may"),
    "form_received": Meaning(_fields(list, write_pairs), "may"),
    "form_sorted": Meaning(_fields(sorted, write_pairs), "may"),
    "form_joined": Meaning(_fields(sorted, _joined), "may"),
    "secret": Meaning(lambda _: lambda request: request.secret, "no"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template. `references` are the words inside its braces."""

    parts: tuple[Part, ...]
    references: tuple[TemplateReference, ...]

    @property
    def names(self) -> frozenset[str]:
        """The references' names without arguments: `body`, `ts`."""
        return frozenset(reference.name for reference in self.references)

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
    tokens = read_template(text)
    return Template(
        parts=tuple(_part(token) for token in tokens), references=tuple(references(tokens))
    )


def _part(token: Token) -> Part:
    if isinstance(token, str):
        literal = token.encode("utf-8")
        return lambda request: literal
    if isinstance(token, TemplateGroup):
        return _vanishing(tuple(_part(each) for each in token.tokens))
    meaning = REFERENCES.get(token.name)
    if meaning is None or bool(token.argument) not in _ARGUMENT[meaning.argument]:
        raise ValueError(f"has an unknown reference; known are {_known()}")
    part = meaning.make(token.argument)
    for transform in compile_filters(token.filters):
        part = _filtered(part, transform)
    return _vanishing((part,)) if token.optional else part


def _filtered(part: Part, transform: Callable[[bytes], bytes]) -> Part:
    def filtered(request: Request) -> bytes | Refusal:
        piece = part(request)
        return piece if isinstance(piece, Refusal) else transform(piece)

    return filtered


def _vanishing(parts: tuple[Part, ...]) -> Part:
    """Empty where anything in it is absent; what came more than once still refuses."""
    group = Template(parts, ())

    def part(request: Request) -> bytes | Refusal:
        content = group.fill(request)
        absent = isinstance(content, Refusal) and content.reason == "signature_missing"
        return b"" if absent else content

    return part


_ARGUMENT: Final = {"no": (False,), "must": (True,), "may": (False, True)}


def _known() -> str:
    forms = {"no": "{{{0}}}", "must": "{{{0}:NAME}}", "may": "{{{0}}} {{{0}:NAME}}"}
    return ", ".join(forms[each.argument].format(name) for name, each in REFERENCES.items())
