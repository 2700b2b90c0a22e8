"""Forms and queries: `a=1&b=2`, decoded strictly, and written as PHP writes them.

WHATWG URL, application/x-www-form-urlencoded. Pairs keep their order and their repeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote_plus, unquote_to_bytes

MAX_FIELDS: Final = 1_000
"""Fields of one form or query; the largest that a provider sends has about sixty."""

Pairs = list[tuple[bytes, bytes]]


def parse_pairs(text: bytes) -> Pairs:
    """Every name with its value, decoded. More than MAX_FIELDS are as good as none: empty."""
    if text.count(b"&") >= MAX_FIELDS:
        return []
    entries = (entry.partition(b"=") for entry in text.split(b"&") if entry)
    return [(_decoded(name), _decoded(value)) for name, _, value in entries]


def _decoded(text: bytes) -> bytes:
    if b"%" not in text and b"+" not in text:
        return text
    return unquote_to_bytes(text.replace(b"+", b" "))


def php_urlencode(value: bytes) -> bytes:
    """As PHP's `urlencode`: blanks as `+`, and all but letters, digits, `-`, `_` and `.` coded."""
    return quote_plus(value).replace("~", "%7E").encode("ascii")


def write_pairs(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """`k=v&k=v` in PHP's spelling."""
    return b"&".join(php_urlencode(name) + b"=" + php_urlencode(value) for name, value in pairs)
