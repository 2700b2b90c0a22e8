"""Writes and reads the stored headers of a delivery: `name: value` lines.

Latin-1 keeps every byte. Values that hold credentials are left out. What else may be signed or
read, method and address, stands before them under names that no header can have, where it matters.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from app.core.reading import Unreadable
from app.providers.request import Headers, Incoming, left_out

if TYPE_CHECKING:
    from app.providers.source import Source
    from app.receiving.delivery_log_store import RawDelivery

_LEFT_OUT: Final = frozenset({b"authorization", b"cookie", b"proxy-authorization"})
"""Headers that may hold credentials; their values are never kept."""


_PLACE_OF = re.compile(rb"\(left out(?:, sha256 [0-9a-f]{64})?\)")
"""What stands where a value is not kept."""

METHOD: Final = ":method"
URL: Final = ":url"


def write_headers(
    headers: Headers, *, method: str = "POST", url: str = "", private: frozenset[bytes]
) -> str:
    """Return the header lines to keep. A header in `private` may hold a token of this source: only
    its SHA-256 is kept, which tells a wrong token from a right one later."""
    before = "" if method == "POST" else f"{METHOD}: {method}\n"
    if "?" in url:
        before += f"{URL}: {url}\n"
    lines = []
    for name, value in headers:
        if name in private:
            lines.append(b"%b: %b" % (name, left_out(value)))
        elif name in _LEFT_OUT:
            lines.append(name + b": (left out)")
        else:
            lines.append(name + b": " + value)
    # Decoded once: doing so line by line takes twice as long.
    return (before + b"\n".join(lines).decode("latin-1")).removesuffix("\n")


def read_request(text: str, body: bytes = b"") -> Incoming:
    """Return the request that was kept as these lines and this body."""
    method, url = "POST", ""
    headers = []
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        if name == METHOD:
            method = value
        elif name == URL:
            url = value
        elif line:
            headers.append((name.encode("latin-1"), value.encode("latin-1")))
    return Incoming(headers, body, method, url)


def is_left_out(value: bytes) -> bool:
    """Return whether this text stands for a value that is not kept."""
    return _PLACE_OF.fullmatch(value) is not None


def restored(headers: Headers, tokens: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers, and put each token that was left out back if it is one of these."""
    known = {left_out(each): each for each in tokens}
    return [(name, known.get(value, value)) for name, value in headers]


def phones_in(delivery: "RawDelivery", sources: "Mapping[str, Source]") -> list[str]:
    """Return the phone numbers that a delivery names, as E.164 digits.

    There are none where its body is gone, its source is not configured, or its profile names no
    place of a phone.
    """
    source = sources.get(delivery.source)
    if source is None or delivery.body is None:
        return []
    body = delivery.body if delivery.whole is None else delivery.whole
    try:
        return source.phones(read_request(delivery.headers, body))
    except Unreadable:
        return []
