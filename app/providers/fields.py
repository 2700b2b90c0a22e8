"""Where a field of an event stands, and what may stand there.

A location is written `KIND:NAME` (`json:data.order.reference`, `header:webhook-id`), one entry in
LOCATIONS for each kind; or it is a text with such references in braces, a composite. JSON null is
the same as nothing. Sentences name the location, which is the profile's own text, and never quote
what was found there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from app.core.reading import Unreadable
from app.core.references import MAX_REFERENCE, fault_of
from app.providers import paths, request, template

# --- what the locations of one event look at ------------------------------------------------------


class Facts:
    """One event of a verified delivery.

    document  the event's own JSON; the body's where the profile names no items
    root      the whole body's JSON
    digest    SHA-256 of the event's own bytes, 64 hex digits
    """

    __slots__ = ("_form", "_query", "body", "digest", "document", "headers", "root", "url")

    def __init__(
        self,
        document: Any,
        *,
        root: Any,
        headers: request.Headers,
        body: bytes,
        url: str,
        digest: str,
    ) -> None:
        self.document = document
        self.root = root
        self.headers = headers
        self.body = body
        self.url = url
        self.digest = digest
        self._form: request.Pairs | None = None
        self._query: request.Pairs | None = None

    @property
    def form(self) -> request.Pairs:
        """The body's fields, decoded."""
        if self._form is None:
            self._form = request.parse_pairs(self.body)
        return self._form

    @property
    def query(self) -> request.Pairs:
        """The query's fields, decoded."""
        if self._query is None:
            text = self.url.partition("#")[0].partition("?")[2]
            self._query = request.parse_pairs(text.encode("latin-1", "replace"))
        return self._query

    def whole(self) -> Facts:
        """The same, with the whole body as its document."""
        return self.of(self.root, digest=self.digest)

    def of(self, document: Any, *, digest: str) -> Facts:
        """The same delivery, of one of its events."""
        return Facts(
            document,
            root=self.root,
            headers=self.headers,
            body=self.body,
            url=self.url,
            digest=digest,
        )


# --- where a field of an event stands, and what may stand there -----------------------------------


MAX_ID: Final = 255
MAX_TEXT: Final = MAX_REFERENCE

Find = Callable[[Facts], Any]
"""What stands there, or None."""

# A field of a form that is this one only where another has a value: `[paymentType=DB].id`.
_ASKED = re.compile(r"\[(?P<member>[^=\[\]]+)=(?P<value>[^\[\]]+)\]\.(?P<name>.+)")
_ID = re.compile(rf"[!-~]{{1,{MAX_ID}}}")


def _json(text: str) -> Find:
    path = paths.compile_path(text)
    if all(type(step) is str for step in path):
        return _members(text, path)

    def find(facts: Facts) -> Any:
        value = facts.document
        for step in path:
            value = _checked_step(value, step, text)
            if value is None:
                return None
        return value

    return find


_HOLDS: Final[Mapping[type, tuple[tuple[type, ...], str]]] = {
    str: ((dict,), "an object"),
    int: ((list,), "a list"),
    paths.Where: ((list, dict), "a list or an object"),
}


def _checked_step(value: Any, step: Any, text: str) -> Any:
    kinds, word = _HOLDS[type(step)]
    if type(value) not in kinds:
        raise Unreadable(f"what should hold {text} is not {word}")
    return paths.take(value, step)


def _members(text: str, path: paths.Path) -> Find:
    """Names only, which nearly every location is: a third of the time."""

    def find(facts: Facts) -> Any:
        value = facts.document
        for key in path:
            if type(value) is not dict:
                raise Unreadable(f"what should hold {text} is not an object")
            value = value.get(key)
            if value is None:
                return None
        return value

    return find


def _root(text: str) -> Find:
    of_item = _json(text)
    return lambda facts: of_item(facts.whole())


def _header(name: str) -> Find:
    values = request.header_values(name)

    def find(facts: Facts) -> str | None:
        found = values(facts.headers)
        if len(found) > 1:
            raise Unreadable(f"the header {name} came more than once")
        return found[0].decode("latin-1") if found else None

    return find


def _field(word: str, pairs: Callable[[Facts], list[tuple[bytes, bytes]]]) -> Callable[[str], Find]:
    def make(name: str) -> Find:
        asked = _ASKED.fullmatch(name)
        if asked is not None:
            member, then, value = make(asked["member"]), make(asked["name"]), asked["value"]
            return lambda facts: then(facts) if member(facts) == value else None
        wanted = name.encode("utf-8")

        def find(facts: Facts) -> str | None:
            found = [value for key, value in pairs(facts) if key == wanted]
            if len(found) > 1:
                raise Unreadable(f"the {word} field {name} came more than once")
            # What is no UTF-8 becomes characters that no field may have.
            return found[0].decode("utf-8", "surrogateescape") if found else None

        return find

    return make


def _constant(words: str) -> Find:
    return lambda facts: words


def _digest(what: str) -> Find:
    if what != "body":
        raise ValueError("has a digest that is not digest:body")
    return lambda facts: facts.digest


LOCATIONS: Final[Mapping[str, Callable[[str], Find]]] = {
    "json": _json,
    "root": _root,
    "header": _header,
    "query": _field("query", lambda facts: facts.query),
    "form": _field("form", lambda facts: facts.form),
    "text": _constant,
    "digest": _digest,
}


def compile_location(text: str) -> Find:
    """A function that finds what stands there. Raises ValueError with a sentence."""
    if "{" in text or "}" in text:
        return _composite(text)
    kind, _, name = text.partition(":")
    if kind not in LOCATIONS or not name:
        raise ValueError(f"must be one of {', '.join(f'{known}:NAME' for known in LOCATIONS)}")
    return LOCATIONS[kind](name)


def _composite(text: str) -> Find:
    """Texts joined; None where a reference without `?` is absent."""
    parts = tuple(_part(token) for token in template.read_template(text))

    def find(facts: Facts) -> str | None:
        pieces = []
        for part in parts:
            piece = part(facts)
            if piece is None:
                return None
            pieces.append(piece)
        return "".join(pieces)

    return find


def _part(token: template.Token) -> Callable[[Facts], str | None]:
    if isinstance(token, template.TemplateGroup):
        raise ValueError("has a group [ ], which only signed content may have")
    if isinstance(token, str):
        literal = token
        return lambda facts: literal
    return _reference(token)


def _reference(reference: template.TemplateReference) -> Callable[[Facts], str | None]:
    find, filters = compile_location(reference.text), template.compile_filters(reference.filters)
    absent = "" if reference.optional else None

    def part(facts: Facts) -> str | None:
        text = as_text(find(facts), reference.text)
        if not text:
            return absent
        raw = text.encode("utf-8", "surrogatepass")
        for transform in filters:
            raw = transform(raw)
        return raw.decode("utf-8", "surrogatepass") if filters else text

    return part


def as_text(value: Any, name: str) -> str | None:
    """A JSON value as text: numbers as digits, `true`, `false`; None stays None."""
    if value is None or type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    # Not `str`, which writes exponents; nor beyond what a reference may be long.
    if type(value) is Decimal and abs(value.adjusted()) <= MAX_TEXT:
        return format(value, "f")
    raise Unreadable(f"{name} is neither a text nor a number")


def compile_locations(texts: tuple[str, ...]) -> Find:
    """The first of several that is present; of none at all, always nothing."""
    finds = tuple(compile_location(text) for text in texts)
    if len(finds) == 1:
        return finds[0]

    def find(facts: Facts) -> Any:
        for each in finds:
            value = each(facts)
            if value is not None:
                return value
        return None

    return find


def plain_name(texts: tuple[str, ...]) -> str:
    """What a sentence calls the field: `data.order.reference`."""
    if not texts:
        return "a field"
    return texts[0] if "{" in texts[0] else texts[0].partition(":")[2]


def holding(texts: tuple[str, ...], facts: Facts) -> tuple[str, ...]:
    """Of several locations the one that counts here, for a sentence; all where none is present."""
    for text in texts:
        if compile_location(text)(facts) is not None:
            return (text,)
    return texts


def event_id(value: Any, name: str) -> str:
    """Printable ASCII without blanks, 1 to MAX_ID characters: it goes into keys and log lines."""
    if value is None:
        raise Unreadable(f"{name} is missing")
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    if not _ID.fullmatch(value):
        raise Unreadable(f"{name} is not 1 to {MAX_ID} printable ASCII characters without blanks")
    return value


def required_text(value: Any, name: str) -> str:
    """A reference, or a word such as the event's kind: see `app.core.references`."""
    if value is None:
        raise Unreadable(f"{name} is missing")
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    fault = fault_of(value)
    if fault is not None:
        raise Unreadable(f"{name} {fault}")
    return value


_OWN: Final = re.compile(r"@[a-z0-9_-]{1,40}:")
"""How the name of an order begins that no other source's events may speak of: `@till:1001`."""


def order_named(order: str, source: str, *, own: bool) -> str:
    """An order's name in this instance; `own`: its source's orders meet no other source's.

    Raises Unreadable for what only another source's own order may be called, and for what would be
    too long.
    """
    if not own:
        if is_own_order(order):
            raise Unreadable("the order begins as those of a source with orders of its own")
        return order
    if len(source) + len(order) + 2 > MAX_TEXT:
        raise Unreadable(f"the order is longer than {MAX_TEXT} characters with its source's name")
    return f"@{source}:{order}"


def is_own_order(order: str) -> bool:
    """Whether it is the name of an order of a source with orders of its own."""
    return _OWN.match(order) is not None


def order_at_provider(order: str, source: str) -> str:
    """What the provider of `source` calls an order of this instance."""
    return order.removeprefix(f"@{source}:")
