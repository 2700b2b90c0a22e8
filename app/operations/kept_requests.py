"""How a request's head is kept as text, and read back: one line for each header.

Two lines of our own come first where they say more than `POST /webhooks/{source}` does; their
names begin with a colon, which no header's can.
"""

from __future__ import annotations

from typing import Final

from app.providers.places import Headers

METHOD: Final = ":method"
URL: Final = ":url"

_UNSTORED: Final = ("authorization", "cookie", "proxy-authorization")
"""Headers that may hold credentials; their values are never kept."""


def keep_head(headers: Headers, *, method: str = "POST", url: str = "") -> str:
    """`name: value` lines as received (Latin-1 keeps every byte), credentials left out."""
    lines = [f"{URL}: {url}"] if url else []
    if method != "POST":
        lines.append(f"{METHOD}: {method}")
    for name, value in headers:
        text = name.decode("latin-1")
        if text in _UNSTORED:
            value = b"(left out)"
        lines.append(f"{text}: {value.decode('latin-1')}")
    return "\n".join(lines)


def kept_headers(text: str) -> list[tuple[bytes, bytes]]:
    """The headers as they were received, from the lines they were kept as."""
    pairs = (line.partition(": ") for line in text.split("\n") if line and line[0] != ":")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, _, value in pairs]


def kept_url(text: str) -> str:
    """The address that was kept, or nothing."""
    return _own(text, URL)


def kept_method(text: str) -> str:
    """The method that was kept; POST where none was."""
    return _own(text, METHOD) or "POST"


def _own(text: str, wanted: str) -> str:
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        if name == wanted:
            return value
        if not line.startswith(":"):
            break
    return ""
