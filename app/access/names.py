"""Check operators' names: whether a name is valid, and whether two names look alike (Unicode's UTS
39)."""

from collections.abc import Iterable
from typing import Final
from unicodedata import normalize

from app.core.errors import UsageError
from app.core.text import JOINER, NON_JOINER, is_human_text

NAME_MAX: Final = 80

_ALPHABETS: Final = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "COPTIC", "CHEROKEE")


def checked(name: str) -> str:
    """Return the name unchanged if it is valid. Raise UsageError otherwise."""
    if not (0 < len(name) <= NAME_MAX and is_human_text(name) and name == name.strip()):
        raise UsageError(f"an operator's name must have 1 to {NAME_MAX} printable characters")
    from confusable_homoglyphs.categories import unique_aliases  # reads a file of 1 MB

    scripts = unique_aliases(normalize("NFKC", name))
    mixed = [each.capitalize() for each in _ALPHABETS if each in scripts]
    if len(mixed) > 1:
        raise UsageError(
            f"this name mixes {' and '.join(mixed)} letters, and some of them look alike: write it "
            "in one alphabet"
        )
    return name


def refuse_taken(name: str, taken: Iterable[str]) -> None:
    """Raise UsageError if the name looks like one of the taken names."""
    wanted = skeleton(name)
    for each in taken:
        if skeleton(each) == wanted:
            raise UsageError(
                f"this name is too similar to {each}, the name of a present or former operator; "
                "choose another name"
            )


def skeleton(name: str) -> str:
    """Return a comparison key for a name. Names that look alike have equal keys."""
    plain = normalize("NFKC", name).replace(NON_JOINER, "").replace(JOINER, "")
    alike = "".join(map(_prototype, " ".join(plain.split()))).casefold()
    return "".join(map(_prototype, alike))


def _prototype(character: str) -> str:
    from confusable_homoglyphs.confusables import confusables_data

    alike: list[str] = [each["c"] for each in confusables_data.get(character, ())]
    if len(alike) != 1 or len(confusables_data.get(alike[0], ())) > 1:
        return alike[0] if len(alike) == 1 else character
    return min(character, alike[0])
