"""URLs that a customer is sent to: what they must be, and what of them may be written down."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

MAX_URL: Final = 2_048
"""Characters of a URL; what every browser and proxy in use takes."""


def is_web_address(url: object, *, encrypted: bool = False) -> bool:
    """Whether this is an absolute http or https URL (`encrypted`: https) without a user in it.

    Blanks, backslashes and anything but printable ASCII are refused: browsers and libraries
    disagree about the host of such a URL.
    """
    if not isinstance(url, str) or len(url) > MAX_URL:
        return False
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        return False
    parts = _split(url)
    if parts is None or not parts.hostname or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and not encrypted)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a port that is no number
    except ValueError:
        return None
    return parts


def without_query(url: str) -> str:
    """The URL up to its path: queries and fragments carry what belongs to one customer."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
