"""Build the content that a signature covers from a template.

For example, `{header:webhook-id}.{ts}.{body}` is the template of Standard Webhooks.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from app.providers import paths
from app.providers.request import Pairs, Refusal, Request, php_urlencode, write_pairs

Filter = Callable[[bytes], bytes]

ELSE: Final = "otherwise write a SCHEME in app/providers/named"


def _digest(value: bytes, *, algorithm: str, encode: Filter) -> bytes:
    return encode(hashlib.new(algorithm, value, usedforsecurity=False).digest())


FILTERS: Final[Mapping[str, Filter]] = {
    "upper": bytes.upper,
    "lower": bytes.lower,
    "urlencode": php_urlencode,
    "absolute": lambda value: value.removeprefix(b"-"),
    "last_segment": lambda value: value.rpartition(b"/")[2],
    **{
        f"{name}_{word}": partial(_digest, algorithm=name, encode=encode)
        for name in ("sha256", "sha512")
        for word, encode in (("hex", binascii.hexlify), ("base64", base64.b64encode))
    },
}


def compile_filters(names: tuple[str, ...]) -> tuple[Filter, ...]:
    """Return the filters with these names. Raise ValueError for an unknown name."""
    for name in names:
        if name not in FILTERS:
            raise ValueError(f"has an unknown filter; known are {', '.join(FILTERS)}; {ELSE}")
    return tuple(FILTERS[name] for name in names)


_TOKEN = re.compile(
    r"\{(?P<reference>[^{}]*)\}|(?P<open>\[)|(?P<close>\])|(?P<literal>[^{}\[\]]+)|(?P<stray>[{}])"
)


@dataclass(frozen=True, slots=True)
class TemplateReference:
    """A reference in a template, written `{name:argument?|filter|filter}`."""

    name: str
    argument: str
    optional: bool
    """True if an absent value counts as empty."""
    filters: tuple[str, ...]

    @property
    def text(self) -> str:
        """Name and argument as they are written in the profile, such as `json:data.id`."""
        return f"{self.name}:{self.argument}" if self.argument else self.name


@dataclass(frozen=True, slots=True)
class TemplateGroup:
    """Part of a template that is left out as a whole if one of its references is absent."""

    tokens: tuple[str | TemplateReference, ...]


Token = str | TemplateReference | TemplateGroup


def read_template(text: str) -> tuple[Token, ...]:
    """Split a template into tokens. Raise ValueError if malformed."""
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
            plain: str | TemplateReference = match["literal"]
            if not plain:
                words, *filters = match["reference"].split("|")
                name, _, argument = words.removesuffix("?").partition(":")
                plain = TemplateReference(name, argument, words.endswith("?"), tuple(filters))
            (tokens if group is None else group).append(plain)
    if group is not None:
        raise ValueError("has a [ without its ]")
    return tuple(tokens)


def references(tokens: tuple[Token, ...]) -> list[TemplateReference]:
    """Return every reference of a template in order, including the references in groups."""
    found: list[TemplateReference] = []
    for token in tokens:
        inner = token.tokens if isinstance(token, TemplateGroup) else (token,)
        found.extend(each for each in inner if isinstance(each, TemplateReference))
    return found


Piece = Callable[[Request], bytes | Refusal]


class Meaning(NamedTuple):
    """Rule for compiling one kind of reference."""

    make: Callable[[str], Piece]
    """Compiles the reference from its argument."""
    argument: str
    """`no`, `must` or `may` have one."""


def _absent(what: str) -> Refusal:
    return Refusal("signature_missing", f"The {what}, which the signature covers, is missing.")


def _single(kind: str, words: str) -> Callable[[str], Piece]:
    def make(name: str) -> Piece:
        values, what = paths.PLACES[kind](name), f"{words} {name}"
        absent = _absent(what)
        repeated = Refusal(
            "signature_mismatch",
            f"The {what} came more than once, so what was signed is ambiguous.",
        )

        def piece(request: Request) -> bytes | Refusal:
            found = values(request)
            if len(found) == 1:
                return found[0]
            return repeated if found else absent

        return piece

    return make


def _query(name: str) -> Piece:
    return _single("query", "query field")(name) if name else lambda request: request.query_text


_BOTH: Final = Refusal(
    "signature_mismatch", "A GET came with a body, but its signature covers only the query."
)


def _body_or_query(request: Request) -> bytes | Refusal:
    if request.method != "GET":
        return request.body
    return _BOTH if request.body else b"?" + request.query_text


def _member(what: str, write: Callable[[Any], str | None]) -> Callable[[str], Piece]:
    def make(name: str) -> Piece:
        path = paths.compile_path(name) if name else ()
        absent = _absent(f"{what} {name}".strip())

        def piece(request: Request) -> bytes | Refusal:
            value = paths.find_paths(request.document, path)
            text = None if value is None else write(value)
            return absent if text is None else text.encode("utf-8", "replace")

        return piece

    return make


def _fields(order: Callable[[Pairs], Pairs], write: Callable[[Pairs], bytes]) -> Any:
    def make(argument: str) -> Piece:
        if argument and not argument.startswith("-"):
            raise ValueError("has a form reference whose argument is not -FIELD")
        left_out = argument.removeprefix("-").encode("utf-8")
        return lambda request: write(
            order([pair for pair in request.form if not argument or pair[0] != left_out])
        )

    return make


REFERENCES: Final[Mapping[str, Meaning]] = {
    "body": Meaning(lambda _: lambda request: request.body, "no"),
    "ts": Meaning(lambda _: lambda request: request.timestamp, "no"),
    "header": Meaning(_single("header", "header"), "must"),
    "url": Meaning(lambda _: lambda request: request.url.encode("utf-8", "replace"), "no"),
    "path": Meaning(lambda _: lambda request: request.path, "no"),
    "method": Meaning(lambda _: lambda request: request.method.encode("ascii", "replace"), "no"),
    "query": Meaning(_query, "may"),
    "form": Meaning(_single("form", "form field"), "must"),
    "body_or_query": Meaning(lambda _: _body_or_query, "no"),
    "json": Meaning(_member("member", paths.plain_text), "must"),
    "compact": Meaning(_member("JSON", paths.compact), "may"),
    "canonical": Meaning(_member("JSON", paths.canonical), "may"),
    "form_received": Meaning(_fields(list, write_pairs), "may"),
    "form_joined": Meaning(
        _fields(sorted, lambda pairs: b"".join(name + value for name, value in pairs)), "may"
    ),
    "secret": Meaning(lambda _: lambda request: request.secret, "no"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template, with the references that it contains."""

    pieces: tuple[Piece, ...]
    references: tuple[TemplateReference, ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of the references without their arguments, such as `body` and `ts`."""
        return frozenset(reference.name for reference in self.references)

    def fill(self, request: Request) -> bytes | Refusal:
        """Return the signed content of a request, or a refusal for a missing part."""
        contents = []
        for piece in self.pieces:
            content = piece(request)
            if isinstance(content, Refusal):
                return content
            contents.append(content)
        return b"".join(contents)


def compile_template(text: str) -> Template:
    """Compile a template. Raise ValueError for an unknown reference or a stray brace."""
    tokens = read_template(text)
    pieces = tuple(_piece(token) for token in tokens)
    return Template(pieces=pieces, references=tuple(references(tokens)))


def _piece(token: Token) -> Piece:
    if isinstance(token, str):
        literal = token.encode("utf-8")
        return lambda request: literal
    if isinstance(token, TemplateGroup):
        return _vanishing(tuple(_piece(each) for each in token.tokens))
    meaning = REFERENCES.get(token.name)
    if meaning is None or bool(token.argument) not in _ARGUMENT[meaning.argument]:
        forms = {"no": "{{{0}}}", "must": "{{{0}:NAME}}", "may": "{{{0}}} {{{0}:NAME}}"}
        known = ", ".join(forms[each.argument].format(name) for name, each in REFERENCES.items())
        raise ValueError(f"has an unknown reference; known are {known}; {ELSE}")
    piece = meaning.make(token.argument)
    for transform in compile_filters(token.filters):
        piece = _filtered(piece, transform)
    return _vanishing((piece,)) if token.optional else piece


def _filtered(piece: Piece, transform: Filter) -> Piece:
    def filtered(request: Request) -> bytes | Refusal:
        content = piece(request)
        return content if isinstance(content, Refusal) else transform(content)

    return filtered


def _vanishing(pieces: tuple[Piece, ...]) -> Piece:
    group = Template(pieces, ())

    def piece(request: Request) -> bytes | Refusal:
        content = group.fill(request)
        absent = isinstance(content, Refusal) and content.reason == "signature_missing"
        return b"" if absent else content

    return piece


_ARGUMENT: Final = {"no": (False,), "must": (True,), "may": (False, True)}
