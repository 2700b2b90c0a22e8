"""References, closed vocabularies and phone numbers in cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from app.core.references import MAX_REFERENCE, fault_of
from app.finance.files.tables import Unclear, quoted
from app.providers.phones import phone_digits

APART: Final = "\x1f"
"""Divides references where many are looked at as one text; none holds it, for it is no sign."""


_NOTHING: Final = "-–—_./* \t\u00a0"
"""What stands alone in a cell for which there is nothing to say."""


def _plain(cells: Sequence[str]) -> list[str]:
    """Without blanks around them; empty where a dash stands for nothing. Else all rows with a dash
    would be of one payment, or of one group."""
    return [cell.strip() if cell.strip(_NOTHING) else "" for cell in cells]


def read_references(cells: Sequence[str]) -> list[str]:
    """Texts that name something, without blanks around them. Raises Unclear, for empty ones too."""
    plain = _plain(cells)
    if not all(plain):
        raise Unclear("is empty")
    if max(map(len, plain)) > MAX_REFERENCE:
        raise Unclear(f"is longer than {MAX_REFERENCE} characters")
    if not "".join(plain).isprintable():
        for fault in filter(None, map(fault_of, plain)):
            raise Unclear(fault)
    together = APART + APART.join(plain)
    if f"{APART}=" in together or f"{APART}@" in together:
        raise Unclear("is a formula: put its value there")
    return plain


def read_optional_references(cells: Sequence[str]) -> list[str | None]:
    """The same; None for empty cells. Raises Unclear."""
    plain = _plain(cells)
    if all(plain):
        return list(read_references(plain))
    given = iter(read_references(found) if (found := [cell for cell in plain if cell]) else ())
    return [next(given) if cell else None for cell in plain]


_WHOLE: Final = re.compile(r"[1-9][0-9]{7,14}")
"""Digits that `phone_digits` leaves as they are."""


class Words:
    """Reads cells as words of a closed vocabulary, in any case."""

    def __init__(
        self, vocabulary: Sequence[str], *, meant: Mapping[str, str], default: str | None
    ) -> None:
        """meant: what other words the file uses mean; default: of empty cells; None: unknown."""
        self._vocabulary = vocabulary
        self._meaning: dict[str, str | None] = {word: word for word in vocabulary}
        self._meaning |= {word.strip().casefold(): meaning for word, meaning in meant.items()}
        self._meaning[""] = default
        self._known: dict[str, str | None] = dict(self._meaning)

    def read(self, cells: Sequence[str]) -> list[str | None]:
        """The word of each cell, None for empty ones without a default. Raises Unclear."""
        known = self._known
        try:
            return [known[cell] for cell in cells]
        except KeyError:
            return [self._one(cell) for cell in cells]

    def _one(self, cell: str) -> str | None:
        plain = cell.strip().casefold()
        if plain not in self._meaning:
            raise Unclear(
                f"{quoted(cell)} is none of {', '.join(self._vocabulary)}: say in a mapping which "
                "one it means"
            )
        return self._meaning[plain]


class Phones:
    """Reads cells as E.164 digits."""

    def __init__(self, country: str | None) -> None:
        """country: the calling code of numbers that begin with a single zero."""
        self._country = country

    def read(self, cells: Sequence[str]) -> list[str | None]:
        """The digits of each cell, None for empty ones. Raises Unclear, which shows nothing."""
        whole = _WHOLE.fullmatch
        return [None if not cell else cell if whole(cell) else self._one(cell) for cell in cells]

    def _one(self, cell: str) -> str | None:
        if not cell.strip():
            return None
        digits = phone_digits(str(cell), self._country)
        if digits is None:
            hint = "" if self._country else ', or phone_country = "254" where they are national'
            raise Unclear(
                "is not a whole phone number with its country code: correct or clear it, or leave "
                f'the column out (phone = "" under [columns] in a mapping{hint})'
            )
        return digits
