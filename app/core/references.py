"""What a reference may be: the merchant's own name of an order, or a provider's of a payment.

Whatever brings one in asks here, so that an order that an event names can also be read by its
path, recorded by `PUT`, paid through us and found in an order book.

A reference is 1 to 200 characters, not all of them blank. Refused are control characters and the
line separators U+2028 and U+2029, by which one line would become two, and halves of surrogate
pairs, which have no bytes. All else is taken as it is: blanks around it, characters that are not
seen, and U+FFFD, which an event may bring as any other. Nothing here turns bytes that are no UTF-8
into U+FFFD: they are refused where they come in, else several references would become one.

Leaves out: ids of events (`app.providers.fields`), which are narrower, and how a cell of a file is
read (`app.finance.files.books`), which drops blanks around it and refuses what is a formula.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeGuard

MAX_REFERENCE: Final = 200
"""Characters; providers and merchants use some dozens."""

RULE: Final = (
    f"1 to {MAX_REFERENCE} characters, not only blanks, without control characters, line "
    "separators and halves of surrogate pairs"
)
"""For sentences: `An order's reference is …`."""

_UNUSABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def fault_of(text: str) -> str | None:
    """Why a text is no reference, to stand behind its name; None where it is one."""
    if not text or len(text) > MAX_REFERENCE:
        return f"is not 1 to {MAX_REFERENCE} characters long"
    if not text.isprintable() and _UNUSABLE.search(text):
        return "has control characters, line separators or half a surrogate pair"
    return "is blank" if text.isspace() else None


def is_reference(value: Any) -> TypeGuard[str]:
    """Whether it is a text that may be a reference."""
    return isinstance(value, str) and fault_of(value) is None
