"""Small words of sentences for people."""

from __future__ import annotations

from typing import Final
from unicodedata import bidirectional, category, combining

DELIVERY = ("delivery", "deliveries")
LEAF = ("leaf", "leaves")
"""Nouns of which the plural is not made by an s: `counted(2, *LEAF)`."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 order`, `2,000 orders`; `many` where the plural has no plain s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Without characters by which a text could command a terminal, or that it cannot take: they
    show as `\\x1b`. A break of lines is one of them; a joiner that a name needs is none."""
    if text.isprintable():
        return text
    return "".join(
        each if _is_seen(text, place) else each.encode("unicode_escape").decode()
        for place, each in enumerate(text)
    )


NON_JOINER, JOINER = "\u200c", "\u200d"
_JOINERS: Final = frozenset((NON_JOINER, JOINER))
_VIRAMA: Final = 9
"""The combining class of the signs by which letters of India and its neighbours are joined."""
_PICTURE: Final = "\ufe0f"
"""Behind a sign: it is shown as an emoji."""


def is_human_text(text: str) -> bool:
    """Whether all of it can be printed, or joins letters or emoji where writing needs that: the
    zero width joiner and non-joiner, as in Persian and Sinhala names.

    Refused are marks of a direction and all else that nobody sees, and the two joiners where they
    do nothing: two names that look alike would be two.
    """
    if text.isprintable():
        return True
    return all(_is_seen(text, place) for place in range(len(text)))


def without_joiners(text: str) -> str:
    """The text as it looks: by it names that nobody can tell apart are found."""
    return text.replace(NON_JOINER, "").replace(JOINER, "")


def _is_seen(text: str, place: int) -> bool:
    """Whether the character can be printed, or joins others."""
    return text[place].isprintable() or (text[place] in _JOINERS and _joins(text, place))


def _joins(text: str, place: int) -> bool:
    """Whether a joiner stands where it changes what is seen (RFC 5892, appendix A, and emoji)."""
    if not 0 < place < len(text) - 1:
        return False
    before, after = text[place - 1], text[place + 1]
    if _VIRAMA in (combining(before), combining(after)):
        return True
    if text[place] == JOINER and category(after) == "So":
        return before == _PICTURE or category(before) in ("So", "Sk")
    behind = (text[each] for each in range(place - 1, -1, -1))  # no copy: it may be a long text
    letter = next((each for each in behind if category(each) != "Mn"), "")
    return letter != "" and bidirectional(letter) == bidirectional(after) == "AL"
