"""Text from outside, made safe to show on one line: for log lines on a terminal."""

from __future__ import annotations

import re
from typing import Final

# C0, DEL, C1; line and paragraph separators; zero-width and bidirectional controls, byte order
# mark; lone surrogates. Any of them can break a line, drive a terminal or show another text
# than is there.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def one_line(text: str, limit: int) -> str:
    """The text cut to `limit` characters, with everything unsafe written as an escape."""
    return _UNSAFE.sub(_escape, clipped(text, limit))


def clipped(text: str, limit: int) -> str:
    """The text, or its first `limit` characters and how many more there were."""
    return text if len(text) <= limit else f"{text[:limit]}… {len(text) - limit} more"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
