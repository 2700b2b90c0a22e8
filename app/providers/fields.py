"""Locations and values of an event's fields.

Error sentences never quote a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from app.core.reading import Unreadable
from app.core.references import MAX_REFERENCE, UNUSABLE, composed, fault_of
from app.providers import paths, request, template

# --- what the locations of one event read from --------------------------------------------------


class EventData:
    """One event of a verified delivery, from which fields are read.

    document  JSON of the event, or of the whole body if the profile gives no path
    body  the whole body, decrypted if necessary
    digest  SHA-256 of the event's own bytes, 64 hex digits
    unclear  whether an amount of the event was inexact
    """

    __slots__ = ("_form", "_query", "body", "digest", "document", "incoming", "root", "unclear")

    def __init__(
        self, document: Any, incoming: request.Incoming, *, root: Any, body: bytes, digest: str
    ) -> None:
        self.document = document
        self.incoming = incoming
        self.root = root
        self.body = body
        self.digest = digest
        self.unclear = False
        self._form: request.Pairs | None = None
        self._query: request.Pairs | None = None

    @property
    def form(self) -> request.Pairs:
        """The form fields in the body, decoded."""
        if self._form is None:
            self._form = request.parse_pairs(self.body)
        return self._form

    @property
    def query(self) -> request.Pairs:
        """The fields in the URL's query, decoded."""
        if self._query is None:
            text = self.incoming.url.partition("#")[0].partition("?")[2]
            self._query = request.parse_pairs(text.encode("latin-1", "replace"))
        return self._query

    def of(self, document: Any, *, digest: str) -> EventData:
        """Return the data of one event in this delivery.

        The digest is SHA-256 in 64 hex digits.
        """
        return EventData(document, self.incoming, root=self.root, body=self.body, digest=digest)


# --- where a field of an event is read, and which values are allowed -----------------------------


MAX_ID: Final = 255
MAX_TEXT: Final = MAX_REFERENCE

Find = Callable[[EventData], Any]

# A form field that counts only if another field has a given value: `[paymentType=DB].id`.
_ASKED = re.compile(r"\[(?P<member>[^=\[\]]+)=(?P<value>[^\[\]]+)\]\.(?P<name>.+)")
_ID = re.compile(rf"[!-~]{{1,{MAX_ID}}}")


def _json(text: str) -> Find:
    path = paths.compile_path(text)
    if all(type(step) is str for step in path):
        return _members(text, path)

    def find(data: EventData) -> Any:
        value = data.document
        for step in path:
            kinds, word = _HOLDS[type(step)]
            if type(value) not in kinds:
                raise Unreadable(
                    f"{text} cannot be read, because a member on its path is not {word}"
                )
            value = paths.take(value, step)
            if value is None:
                return None
        return value

    return find


_HOLDS: Final[Mapping[type, tuple[tuple[type, ...], str]]] = {
    str: ((dict,), "an object"),
    int: ((list,), "a list"),
    paths.Where: ((list, dict), "a list or an object"),
}


def _members(text: str, path: paths.JsonPath) -> Find:
    def find(data: EventData) -> Any:
        value = data.document
        for key in path:
            if type(value) is not dict:
                raise Unreadable(
                    f"{text} cannot be read, because a member on its path is not an object"
                )
            value = value.get(key)
            if value is None:
                return None
        return value

    return find


def _root(text: str) -> Find:
    of_item = _json(text)
    return lambda data: of_item(data.of(data.root, digest=data.digest))


def _header(name: str) -> Find:
    values = request.header_values(name)

    def find(data: EventData) -> str | None:
        found = values(data.incoming.headers)
        if len(found) > 1:
            raise Unreadable(f"the header {name} came more than once")
        return found[0].decode("latin-1") if found else None

    return find


def _field(word: str, pairs: Callable[[EventData], request.Pairs]) -> Callable[[str], Find]:
    def make(name: str) -> Find:
        asked = _ASKED.fullmatch(name)
        if asked is not None:
            member, then, value = make(asked["member"]), make(asked["name"]), asked["value"]
            if value.endswith("*"):
                begins = value[:-1]
                return lambda data: then(data) if (member(data) or "").startswith(begins) else None
            return lambda data: then(data) if member(data) == value else None
        wanted = name.encode("utf-8")

        def find(data: EventData) -> str | None:
            found = [value for key, value in pairs(data) if key == wanted]
            if len(found) > 1:
                raise Unreadable(f"the {word} field {name} came more than once")
            # Bytes that are not UTF-8 become characters that no field may have. A form sends a
            # field without a value as an empty one.
            return (found[0].decode("utf-8", "surrogateescape") or None) if found else None

        return find

    return make


def _digest(what: str) -> Find:
    if what != "body":
        raise ValueError("has a digest that is not digest:body")
    return lambda data: data.digest


LOCATIONS: Final[Mapping[str, Callable[[str], Find]]] = {
    "json": _json,
    "root": _root,
    "header": _header,
    "query": _field("query", lambda data: data.query),
    "form": _field("form", lambda data: data.form),
    "text": lambda words: lambda data: words,
    "digest": _digest,
}


def compile_location(text: str) -> Find:
    """Compile a location to a finder. Raise ValueError if malformed."""
    if "{" in text or "}" in text:
        return _composite(text)
    kind, _, name = text.partition(":")
    if kind not in LOCATIONS or not name:
        raise ValueError(f"must be one of {', '.join(f'{known}:NAME' for known in LOCATIONS)}")
    return LOCATIONS[kind](name)


def _composite(text: str) -> Find:
    parts = tuple(_part(token) for token in template.read_template(text))

    def find(data: EventData) -> str | None:
        pieces = []
        for part in parts:
            piece = part(data)
            if piece is None:
                return None
            pieces.append(piece)
        return "".join(pieces)

    return find


def _part(token: template.Token) -> Callable[[EventData], str | None]:
    if isinstance(token, template.TemplateGroup):
        raise ValueError("has a group [ ], which only signed content may have")
    if isinstance(token, str):
        literal = token
        return lambda data: literal
    reference = token.text
    find, filters = compile_location(reference), template.compile_filters(token.filters)
    absent = "" if token.optional else None

    def part(data: EventData) -> str | None:
        text = as_text(find(data), reference)
        if not text:
            return absent
        raw = text.encode("utf-8", "surrogatepass")
        for transform in filters:
            raw = transform(raw)
        return raw.decode("utf-8", "surrogatepass") if filters else text

    return part


def as_text(value: Any, name: str) -> str | None:
    """Return a JSON value as text. Raise Unreadable for an object or list."""
    if value is None or type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    # `str` would write exponents. A number longer than a reference may be is refused.
    if type(value) is Decimal and abs(value.adjusted()) <= MAX_TEXT:
        return format(value, "f")
    raise Unreadable(f"{name} is neither a text nor a number")


def compile_locations(texts: tuple[str, ...]) -> Find:
    """Compile several locations to one finder."""
    finds = tuple(compile_location(text) for text in texts)
    if len(finds) == 1:
        return finds[0]

    def find(data: EventData) -> Any:
        for each in finds:
            value = each(data)
            if value is not None:
                return value
        return None

    return find


def plain_name(texts: tuple[str, ...]) -> str:
    """Return the name of a field for sentences, such as `data.order.reference`."""
    if not texts:
        return "a field"
    return texts[0] if "{" in texts[0] else texts[0].partition(":")[2]


def holding(texts: tuple[str, ...], data: EventData) -> tuple[str, ...]:
    """Return the first present location alone, or else all locations."""
    for text in texts:
        if compile_location(text)(data) is not None:
            return (text,)
    return texts


def event_id(value: Any, name: str) -> str:
    """Return an event's checked id.

    Raise Unreadable for blanks, non-ASCII characters, or over 255 characters.
    """
    if value is None:
        raise Unreadable(f"{name} is missing")
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    if not _ID.fullmatch(value):
        raise Unreadable(f"{name} is not 1 to {MAX_ID} printable ASCII characters without blanks")
    return value


def required_text(value: Any, name: str) -> str:
    """Return a reference or word in composed Unicode form.

    Raise Unreadable by the rules of `app.core.references`.
    """
    if value is None:
        raise Unreadable(f"{name} is missing")
    if type(value) is not str:
        raise Unreadable(f"{name} is not a text")
    text = composed(value)
    fault = fault_of(text)
    if fault is not None:
        raise Unreadable(f"{name} {fault}")
    return text


def escaped(text: str) -> str:
    """Return the text with escaped control characters, cut to the maximum length."""
    return UNUSABLE.sub(_escape, text)[:MAX_TEXT]


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


_OWN: Final = re.compile(r"@[a-z0-9_-]{1,40}:")


def order_named(order: str, source: str, *, own: bool) -> str:
    """Return the reference under which this instance stores a source's order.

    Raise Unreadable if the reference is too long, or reserved for another source.
    """
    if not own:
        if is_own_order(order):
            raise Unreadable(
                "the order's reference begins with @NAME:, which is reserved for sources with "
                "their own orders"
            )
        return order
    if len(source) + len(order) + 2 > MAX_TEXT:
        raise Unreadable(
            f"the order's reference and its source's name together have more than {MAX_TEXT} "
            "characters"
        )
    return f"@{source}:{order}"


def is_own_order(order: str) -> bool:
    """Return whether the order's reference is valid in one source only."""
    return _OWN.match(order) is not None


def order_at_provider(order: str, source: str) -> str:
    """Return the reference by which the source's provider knows an order of this instance."""
    return order.removeprefix(f"@{source}:")
