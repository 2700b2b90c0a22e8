"""Find references in free text, such as the texts of a bank line.

Only match keys are returned, because the texts hold personal data.
"""

import re
from collections.abc import Iterable
from typing import Final

from reconcile.matching.books import match_key

SHORTEST: Final = 4
"""Minimum length of a reference to search for in texts."""

SHORTEST_DIGITS: Final = 6

WORDS_OF_ONE: Final = 3
"""Maximum number of words that are joined into one reference."""

MOST_WORDS: Final = 200
"""Maximum number of words of a text that are examined."""

_WORD: Final = re.compile(r"[^\s,;:/+?()\[\]'\"|=*<>]+")

_AROUND: Final = ",;:/+?()[]'\"|=*<>.#"


def named_in(texts: Iterable[str | None]) -> set[str]:
    """Return the match keys of all references that the texts may contain."""
    found: set[str] = set()
    for text in texts:
        if not text:
            continue
        words = [word.strip(".") for word in _WORD.findall(text)[:MOST_WORDS]]
        for at in range(len(words)):
            for count in range(1, min(WORDS_OF_ONE, len(words) - at) + 1):
                found.add(match_key(" ".join(words[at : at + count])))
        found.update(match_key(word.strip(_AROUND)) for word in text.split()[:MOST_WORDS])
        found.add(match_key(text))
    return found


_YEAR, _MONTH, _DAY = r"(?:19|20)\d\d", r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"

_DATE: Final = re.compile(
    rf"{_YEAR}([-./]?){_MONTH}\1{_DAY}|{_DAY}([-./]?){_MONTH}\2{_YEAR}|"
    rf"{_MONTH}([-./]?){_DAY}\3{_YEAR}",
    re.ASCII,
)


def telling(key: str) -> bool:
    """Check whether bank texts can be searched for this key."""
    least = SHORTEST_DIGITS if key.replace("-", "").isdigit() else SHORTEST
    return len(key) >= least and not _DATE.fullmatch(key)


_NUMBER: Final = re.compile(r"(?<![0-9])[0-9]{4,18}$", re.ASCII)


def order_names(reference: str) -> set[str]:
    """Return the match keys that may name an order."""
    key = match_key(reference)
    names = {key, key.lstrip("#")}
    if (number := _NUMBER.search(key)) is not None:
        names.add(number[0])
    return {name for name in names if len(name) >= SHORTEST and not _DATE.fullmatch(name)}
