"""Identifiers of customers and payments in a normal form.

The functions return None for a value of another kind.
"""

import re
from typing import Any, Final
from unicodedata import combining, normalize

from app.core.masking import EMAIL_KIND

MAX_CHARS: Final = 254
"""Maximum number of characters of an identifier.

No deliverable email address is longer (RFC 5321).
"""

_EMAIL: Final = re.compile(r"[^@\s<>,;:\"]+@[^@\s<>,;:\"]+\.[^@\s<>,;:\".]+")
_CARD: Final = re.compile(r"(?:[\d*xX.\u2022 -]*[*xX.\u2022 -])?\d{4}|\d{12,19}", re.ASCII)
_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")


def email(value: object) -> str | None:
    """Return the identifier of an email address, in lower case, or None."""
    text = _text(value)
    return f"{EMAIL_KIND}{text.casefold()}" if text and _EMAIL.fullmatch(text) else None


def name(value: object) -> str | None:
    """Return the identifier of a name, such as `doe jose` for `Doe, José`.

    Return None for a single word, which is too common.
    """
    words = sorted(name_words(_text(value) or ""))
    return f"name:{' '.join(words)}" if len(words) > 1 else None


def name_words(text: str) -> list[str]:
    """Return a name's words in a form for comparison."""
    plain = "".join(each for each in normalize("NFKD", text) if not combining(each))
    return _WORD.findall(plain.replace("\u2019", "'").casefold())


def card(value: object) -> str | None:
    """Return a card's last four digits as an identifier."""
    text = _text(value)
    return f"card:{text[-4:]}" if text and _CARD.fullmatch(text) else None


def further_id(value: object) -> str | None:
    """Return the identifier for a provider's id."""
    text = _text(value)
    return f"id:{text}" if text and " " not in text else None


def _text(value: object) -> str | None:
    if type(value) not in (str, int):
        return None
    text = str(value).strip()
    return text if 0 < len(text) <= MAX_CHARS and text.isprintable() else None


_FILLING: Final = re.compile(r"[\s\u200b-\u2015\u202a-\u202e\u2060-\u2069\u2212.-]")
"""Pattern of characters that can separate the digits of a phone number."""

_TRUNK: Final = re.compile(r"^((?:\+|00)?[1-9][0-9]{0,2})\(0\)")

_BRACKETS: Final = re.compile(r"[()]")

_E164: Final = re.compile(r"[1-9][0-9]{7,14}")


def phone_digits(value: Any, country: str | None) -> str | None:
    """Return a phone number's E.164 digits; None if incomplete or masked.

    country  calling code, such as `254`, of numbers that begin with a single zero
    """
    if type(value) not in (str, int):
        return None
    text = str(value)
    if not (text.isascii() and text.isdigit()):  # nearly every number is digits alone
        text = _BRACKETS.sub("", _TRUNK.sub(r"\1", _FILLING.sub("", text)))
    if text.startswith("+"):
        text = text[1:]
    elif text.startswith("00"):
        text = text[2:]
    elif text.startswith("0") and country is not None:
        text = country + text[1:]
    return text if _E164.fullmatch(text) else None
