"""Validation of references: the merchant's name of an order, or a provider's name of a payment.

All input is checked here. Every order that an event can name therefore has a valid URL, can be paid
in a checkout session, and can be found in an order book.

A reference has 1 to 200 characters, not all blank. Control characters, the line separators U+2028
and U+2029, and halves of surrogate pairs are refused. All other characters are accepted unchanged:
surrounding spaces, invisible characters, and U+FFFD. A letter with its accent may be one character
or two (NFC and NFD). Both forms look alike and mean the same order, so references are stored and
compared in NFC (`composed`). Bytes that are not UTF-8 are refused on input. If they were replaced
by U+FFFD, different references could become equal.

Two kinds of text have rules of their own. Ids of events (`app.providers.fields`) have stricter
rules. Cells of files (`app.finance.files.books`) are stripped and must not be formulas.
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
