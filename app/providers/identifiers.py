"""Identifiers of customers and payments in one normal form, so that equal ones have equal digests.

Each begins with its kind and a colon; phone numbers (`phones.py`) are digits alone. The functions
accept any JSON value, and return None where it is no such identifier.
"""

import re
from typing import Final
from unicodedata import combining, normalize

from app.core.masking import EMAIL_KIND

MAX_CHARS: Final = 254
"""Characters of an identifier. No deliverable email address is longer (RFC 5321)."""

_EMAIL: Final = re.compile(r"[^@\s<>,;:\"]+@[^@\s<>,;:\"]+\.[^@\s<>,;:\".]+")
_CARD: Final = re.compile(r"(?:[\d*xX.\u2022 -]*[*xX.\u2022 -])?\d{4}|\d{12,19}", re.ASCII)
_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")


def email(value: object) -> str | None:
    """Return an email address in lower case. Mail servers distinguish case, but people do not."""
    text = _text(value)
    return f"{EMAIL_KIND}{text.casefold()}" if text and _EMAIL.fullmatch(text) else None


def name(value: object) -> str | None:
    """Return a person's name without accents, capitals and punctuation, its words sorted. `Doe,
    José` and `jose doe` are equal. A single word is too common to find a person by."""
    words = sorted(name_words(_text(value) or ""))
    return f"name:{' '.join(words)}" if len(words) > 1 else None


def name_words(text: str) -> list[str]:
    """Return the words of a person's name, in the form in which names are compared."""
    plain = "".join(each for each in normalize("NFKD", text) if not combining(each))
    return _WORD.findall(plain.replace("\u2019", "'").casefold())


def card(value: object) -> str | None:
    """Return the last four digits of a card number, which may be masked: `**** **** **** 4242`."""
    text = _text(value)
    return f"card:{text[-4:]}" if text and _CARD.fullmatch(text) else None


def further_id(value: object) -> str | None:
    """Return a provider's id that no field of an event contains, such as a charge's."""
    text = _text(value)
    return f"id:{text}" if text and " " not in text else None


def _text(value: object) -> str | None:
    if type(value) not in (str, int):
        return None
    text = str(value).strip()
    return text if 0 < len(text) <= MAX_CHARS and text.isprintable() else None
