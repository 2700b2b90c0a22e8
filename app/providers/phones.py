"""Phone numbers as providers write them, as E.164 digits: country code first, no plus sign.

Numbers and texts, with a plus, `00`, blanks, dashes or brackets, or national with a leading zero
where the profile names the country. A masked or partial number is no number.
"""

from __future__ import annotations

import re
from typing import Any, Final

_FILLING: Final = re.compile(r"[\s().-]")
_E164: Final = re.compile(r"[1-9][0-9]{7,14}")
"""ITU-T E.164: 15 digits at most; nobody is reached by fewer than eight."""


def phone_digits(value: Any, country: str | None) -> str | None:
    """The digits, or None where `value` is no whole phone number.

    country  the calling code (`254`) of numbers that begin with a single zero
    """
    if type(value) not in (str, int):
        return None
    text = str(value)
    if not (text.isascii() and text.isdigit()):  # nearly every number is digits alone
        text = _FILLING.sub("", text)
    if text.startswith("+"):
        text = text[1:]
    elif text.startswith("00"):
        text = text[2:]
    elif text.startswith("0") and country is not None:
        text = country + text[1:]
    return text if _E164.fullmatch(text) else None
