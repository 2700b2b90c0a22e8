"""Phone numbers as providers write them, as E.164 digits: country code first, no plus sign.

Accepts numbers and texts, with a plus, `00`, blanks, dashes or brackets, and national numbers with
a leading zero where the profile names the country. Masked and partial numbers are refused.
"""

import re
from typing import Any, Final

_FILLING: Final = re.compile(r"[\s\u200b-\u2015\u202a-\u202e\u2060-\u2069\u2212.-]")
"""Blanks, dots and dashes, and the direction marks that address books copy."""

_TRUNK: Final = re.compile(r"^((?:\+|00)?[1-9][0-9]{0,2})\(0\)")
"""A zero after the country code, dialled only within the country: +49 (0)171 1234567."""

_BRACKETS: Final = re.compile(r"[()]")

_E164: Final = re.compile(r"[1-9][0-9]{7,14}")
"""ITU-T E.164: at most 15 digits. No number has fewer than eight."""


def phone_digits(value: Any, country: str | None) -> str | None:
    """Return the number's digits, or None where `value` is no whole phone number.

    country  calling code (`254`) of numbers that begin with a single zero
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
