"""Keeps the customer's phone number and our token out of whatever is written down.

Services repeat what they were sent, most often in the sentence of a refusal; so every text of an
answer passes here before it becomes a record, an error or a line for people.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from app.core.masking import phone_pattern

HIDDEN: Final = "***"

_NOTHING = re.compile(r"(?!)")


class Mask:
    """Hides one phone number (digits), if there is one, and one token. Shows neither itself."""

    __slots__ = ("_phone", "_token")

    def __init__(self, *, phone: str | None, token: str) -> None:
        self._phone = _NOTHING
        if phone:
            self._phone = phone_pattern(phone)
        self._token = token

    def __repr__(self) -> str:
        return "Mask()"

    def hide(self, text: str) -> str:
        """The text with `***` where either was."""
        return self._phone.sub(HIDDEN, text.replace(self._token, HIDDEN))

    def touches(self, text: str) -> bool:
        """Whether either is in the text."""
        return self.hide(text) != text


def plain(text: str) -> str:
    """One line without control, format or unassigned characters."""
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    return " ".join(shown.split())


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters, the last of them … where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
