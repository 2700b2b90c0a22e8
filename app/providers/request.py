"""Received request, and the parts that a signature may cover."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote_plus, unquote_to_bytes, urlsplit

from app.core.reading import Unreadable
from app.core.strict_json import parse_written

FETCHED: Final = ":fetched"
"""Name of the first header of a stored answer, with method and address."""


MAX_FIELDS: Final = 1_000
"""Maximum number of fields in one form or query. Providers send about sixty."""

MAX_FORM_BYTES: Final = 256 * 1024
"""Maximum bytes of a form, because decoding is slow."""

Pairs = list[tuple[bytes, bytes]]


def parse_pairs(text: bytes) -> Pairs:
    """Return a form's names and values; empty if too large."""
    if len(text) > MAX_FORM_BYTES or text.count(b"&") >= MAX_FIELDS:
        return []
    entries = (entry.partition(b"=") for entry in text.split(b"&") if entry)
    return [(_decoded(name), _decoded(value)) for name, _, value in entries]


def _decoded(text: bytes) -> bytes:
    if b"%" not in text and b"+" not in text:
        return text
    return unquote_to_bytes(text.replace(b"+", b" "))


def php_urlencode(value: bytes) -> bytes:
    """Return the bytes encoded like PHP's `urlencode`."""
    return quote_plus(value).replace("~", "%7E").encode("ascii")


def write_pairs(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the pairs as `k=v&k=v`, encoded like PHP's `urlencode`."""
    return b"&".join(php_urlencode(name) + b"=" + php_urlencode(value) for name, value in pairs)


Headers = Sequence[tuple[bytes, bytes]]
"""Raw headers as ASGI passes them. Names are in lower case."""


def left_out(value: bytes) -> bytes:
    """Return the placeholder that is stored instead of a credential."""
    return b"(left out, sha256 %b)" % hashlib.sha256(value).hexdigest().encode()


class Incoming(NamedTuple):
    """One HTTP request as it was received."""

    headers: Headers
    body: bytes
    """The body. Empty if it was too large."""
    method: str = "POST"
    url: str = ""
    """Address that the provider was configured to call, with the query."""
    source: str = ""
    """Name of the source in the address."""
    address: str = ""
    """The sender's address, as stated by trusted proxies."""
    oversized: bool = False
    """True if the body was too large."""

    def at(self, address: str) -> Incoming:
        """Return the request with scheme and host before a path."""
        if not address or not self.url.startswith("/"):
            return self
        return self._replace(url=address + self.url)


_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")


def header_values(names: str) -> Callable[[Headers], list[bytes]]:
    """Return a function that returns every value of a header.

    Among several names with commas, the first present name counts. Raise ValueError for any other
    text.
    """
    for name in names.split(","):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a header name in lower case")
    wanted, *others = (name.encode("ascii") for name in names.split(","))
    if not others:
        return lambda headers: [value for key, value in headers if key == wanted]

    def values(headers: Headers) -> list[bytes]:
        for name in (wanted, *others):
            found = [value for key, value in headers if key == name]
            if found:
                return found
        return []

    return values


MAX_VALUES: Final = 10_000
"""Maximum number of values in an unverified body, which parse in half a second."""

_UNMADE: Final = object()


class Request:
    """Parts of a request that a signature can cover."""

    # Defaults on the class: most requests never set these, and setting them would slow every
    # delivery.
    timestamp: bytes = b""
    """The timestamp's text as received."""
    secret: bytes = b""
    """Text of the tried key, for schemes that sign it."""
    _document: Any = _UNMADE
    _form: Pairs | None = None
    _query: Pairs | None = None

    def __init__(self, headers: Headers, body: bytes, *, method: str, url: str) -> None:
        self.headers = headers
        self.body = body
        self.method = method
        self.url = url

    @property
    def document(self) -> Any:
        """The body's JSON, with numbers as written; None if not readable."""
        if self._document is _UNMADE:
            self._document = None
            text = self.body
            # Long rows of brackets take time too. Counting is fast; commas within texts count as
            # well.
            brackets = text.count(b"[") + text.count(b"{")
            if max(text.count(b","), brackets) < MAX_VALUES:
                with suppress(Unreadable):
                    self._document = parse_written(text)
        return self._document

    @property
    def form(self) -> Pairs:
        """The decoded form fields in the body, in the order received."""
        if self._form is None:
            self._form = parse_pairs(self.body)
        return self._form

    @property
    def query(self) -> Pairs:
        """The decoded fields of the query, in the order received."""
        if self._query is None:
            self._query = parse_pairs(self.query_text)
        return self._query

    @property
    def query_text(self) -> bytes:
        """The query as it was received, without the question mark."""
        return self.url.partition("#")[0].partition("?")[2].encode("latin-1", "replace")

    @property
    def path(self) -> bytes:
        """The path of the address, without host and query."""
        try:
            return urlsplit(self.url).path.encode("latin-1", "replace")
        except ValueError:
            return b""

    def of_item(self, item: Any, text: bytes) -> Request:
        """Return the request with one item as the body."""
        made = Request(self.headers, text, method=self.method, url=self.url)
        made._document = item
        return made


Reason = Literal[
    "signature_missing",
    "signature_mismatch",
    "timestamp_missing",
    "timestamp_too_old",
    "timestamp_too_new",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One check that a request has failed."""

    reason: Reason
    """Verdict of the rejection."""
    sentence: str
    """Explanation for the log, without text of the request, secrets or signatures."""
