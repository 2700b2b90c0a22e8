"""Whether a kind that no profile knows speaks of money going back: by its words alone.

Leaves out: what such an event says. A provider may send a new kind any day; one whose name has a
word for a return of money holds its payment until the profile says what it means, or that it is
to be ignored. Words are cut at `.`, `_`, `-`, `:`, other signs and capitals, and compared whole:
`preventive` is no `void`, `returned` is a form of `return`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final

RETURNS: Final = (
    "refund",
    "reversal",
    "reverse",
    "chargeback",
    "dispute",
    "void",
    "return",
    "clawback",
    "fraud",
    "retrieval",
    "mediation",
    "inquiry",
    "enquiry",
)
"""Words for money that goes back, or that somebody asks to have back."""

_TWO_WORDS: Final = frozenset(
    (("charge", "back"), ("charged", "back"), ("claw", "back"), ("clawed", "back"))
)

KINDS_REMEMBERED: Final = 1_024
"""Kinds whose words were looked at, about 200 kB."""

_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _forms(word: str) -> frozenset[str]:
    stem = word[:-1] if word.endswith("e") else word
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return frozenset((word, plural, stem + "ed", stem + "ing", stem + "able"))


_WORDS: Final = frozenset(form for word in RETURNS for form in _forms(word)) | {
    "fraudulent",
    "chargedback",
}


@lru_cache(maxsize=KINDS_REMEMBERED)
def speaks_of_money_going_back(kind: str) -> bool:
    """Whether a whole word of this kind is one for money going back, in any of its forms."""
    parts = [part.lower() for part in _PARTS.findall(kind)]
    return not _WORDS.isdisjoint(parts) or not _TWO_WORDS.isdisjoint(pairwise(parts))
