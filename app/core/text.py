"""Format texts for people: counted nouns, capital letters, and characters that are safe to
print."""

from typing import Final
from unicodedata import bidirectional, category, combining

DELIVERY = ("delivery", "deliveries")
LEAF = ("leaf", "leaves")
"""Noun with its irregular plural, for calls such as `counted(2, *LEAF)`."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun, such as `1 order` or `2,000 orders`.

    many  the noun's plural; None for the noun with an s
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def printable(text: str) -> str:
    r"""Return a text with line breaks and control characters escaped, as in `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        each if _is_seen(text, place) else each.encode("unicode_escape").decode()
        for place, each in enumerate(text)
    )


NON_JOINER, JOINER = "\u200c", "\u200d"
_JOINERS: Final = frozenset((NON_JOINER, JOINER))
_VIRAMA: Final = 9
"""Unicode combining class of the signs that join letters of Indic scripts."""
_PICTURE: Final = "\ufe0f"
"""Variation selector: an invisible character that makes the character before it look like an
emoji."""


def is_human_text(text: str) -> bool:
    """Return whether a text has only printable characters, and joiners that its script needs.

    Direction marks and other invisible characters are refused, because different names could look
    alike.
    """
    return text.isprintable() or all(_is_seen(text, place) for place in range(len(text)))


def _is_seen(text: str, place: int) -> bool:
    """Return whether a character is visible, or a needed joiner (RFC 5892, appendix A; emoji)."""
    if text[place].isprintable():
        return True
    if text[place] not in _JOINERS or not 0 < place < len(text) - 1:
        return False
    before, after = text[place - 1], text[place + 1]
    if _VIRAMA in (combining(before), combining(after)):
        return True
    if text[place] == JOINER and category(after) == "So":
        return before == _PICTURE or category(before) in ("So", "Sk")
    behind = (text[each] for each in range(place - 1, -1, -1))  # no copy: the text may be long
    letter = next((each for each in behind if category(each) != "Mn"), "")
    return letter != "" and bidirectional(letter) == bidirectional(after) == "AL"
