"""Validation of references: the merchant's name of an order, or a provider's name of a payment.

A reference has 1 to 200 characters, not all blank. Control characters, line separators (U+2028,
U+2029), halves of surrogate pairs and bytes that are not UTF-8 are refused. References are stored
and compared in Unicode's NFC, because a letter and its accent can be one character or two.
"""

import re
from typing import Any, Final, TypeGuard
from unicodedata import normalize

MAX_REFERENCE: Final = 200
"""Maximum number of characters in a reference. Providers and merchants use a few dozen."""

RULE: Final = (
    f"1 to {MAX_REFERENCE} characters, not only blanks, without control characters, line "
    "separators and halves of surrogate pairs"
)

UNUSABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def composed(text: str) -> str:
    """Return a text in the Unicode form NFC. References are stored and compared in this form."""
    return text if text.isascii() else normalize("NFC", text)


def fault_of(text: str) -> str | None:
    """Return the reason why a text is not a valid reference, such as `is blank`. Return None for a
    valid reference."""
    if not text or len(text) > MAX_REFERENCE:
        return f"is not 1 to {MAX_REFERENCE} characters long"
    if not text.isprintable() and UNUSABLE.search(text):
        return "has control characters, line separators or half a surrogate pair"
    return "is blank" if text.isspace() else None


def is_reference(value: Any) -> TypeGuard[str]:
    """Return whether a value is a text that is a valid reference."""
    return isinstance(value, str) and fault_of(value) is None
