"""Values in an unreadable message that can be references."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Final

from app.core.reading import TRIAL
from app.core.references import composed, fault_of
from app.providers.request import Incoming, parse_pairs
from app.providers.source import Source
from app.receiving.unread_store import NO_VALUE

LEAST_LENGTH: Final = 4
"""Minimum number of characters of a possible reference."""

MOST_VALUES: Final = 2_000
"""Maximum number of values that are stored for a message."""

_TOKENS: Final = re.compile(
    rb'"((?:[^"\\]++|\\.)*+)"(\s*+:)?|(?<![\w.+-])(\d{1,40})(?![\w.])', re.DOTALL
)
_TEXTS: Final = re.compile(rb">([^<>]++)<")
_DEEPEST: Final = 3
"""Maximum depth to which JSON inside JSON strings is searched."""


def values_of(
    source: Source | None, incoming: Incoming, *, item: bytes | None = None
) -> frozenset[str]:
    """Return an unreadable request's values that can be references."""
    if incoming.body.startswith(TRIAL) or (source is not None and not source.vouches):
        return frozenset()
    found: set[str] = set()
    body = item or (incoming.body if source is None else source.payload(incoming))
    for value in whole_values(body, "" if item else incoming.url):
        if len(value) >= LEAST_LENGTH and fault_of(value := composed(value)) is None:
            found.add(value)
        if len(found) > MOST_VALUES:
            found = {*sorted(found)[:MOST_VALUES], NO_VALUE}
            break
    if source is not None:
        digest = hashlib.sha256(item).hexdigest() if item else None
        found |= source.orders_named(incoming, digest=digest)
    return frozenset(found or {NO_VALUE})


def whole_values(body: bytes, url: str) -> Iterator[str]:
    """Yield every whole value in a body and in the query of its URL."""
    yield from _of_text(body, depth=_DEEPEST)
    query = url.partition("#")[0].partition("?")[2].encode("latin-1", "replace")
    for _, value in parse_pairs(query):
        yield from _of_field(value)


def _of_text(body: bytes, *, depth: int) -> Iterator[str]:
    start = body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        yield from _of_json(body, depth=depth)
    elif start == b"<":
        for found in _TEXTS.finditer(body):
            yield found[1].decode("utf-8", "replace").strip()
    else:
        for _, value in parse_pairs(body) if b"=" in body else ():
            yield from _of_field(value)


def _of_json(body: bytes, *, depth: int) -> Iterator[str]:
    for text, is_name, number in _tokens(body):
        if number:
            yield number
        elif not is_name:
            yield text
            if depth and text[:1] in ("{", "["):
                yield from _of_json(text.encode("utf-8", "replace"), depth=depth - 1)


def _tokens(body: bytes) -> Iterator[tuple[str, bool, str]]:
    for found in _TOKENS.finditer(body):
        quoted, colon, number = found.groups()
        if number is not None:
            yield "", False, number.decode("ascii")
            continue
        try:
            text = json.loads(b'"%b"' % quoted, strict=False)
        except ValueError:  # not a JSON escape, or not UTF-8
            text = quoted.decode("utf-8", "replace")
        yield text, colon is not None, ""


def _of_field(value: bytes) -> Iterator[str]:
    yield value.decode("utf-8", "replace")
    if value[:1] in (b"{", b"["):
        yield from _of_json(value, depth=_DEEPEST)
