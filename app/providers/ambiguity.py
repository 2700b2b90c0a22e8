"""Joins of signed content where nobody can tell how far one field goes and where the next begins.

Who has seen one signed request can move characters over such a join, from one field into its
neighbour, and the signature still holds: `111` and `1200` are joined as `1111` and `200` are.
README.md defines when a join is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.providers.coverage import what_counts
from app.providers.grammar import Group, Reference, Token, read_template, references

_JOINS_ITS_FIELDS: Final = frozenset({"form_joined", "values"})
"""References that are a join in themselves: of texts whose names and ends are not signed."""

_FIXED_LENGTH: Final = ("md5_hex", "sha1_hex", "sha256_hex", "sha384_hex", "sha512_hex",
                        "sha256_base64", "sha512_base64")  # fmt: skip
_DOCUMENTS: Final = frozenset({"body", "compact", "canonical"})
_WHOLE: Final = _DOCUMENTS | {"body_or_query", "form_received", "form_sorted", "ts"}
_MEMBERS: Final = frozenset({"raw", "compact", "canonical"})
_NOT_DIGITS_FIRST: Final = frozenset({"path", "url"})


class Joins:
    """The joins of one profile's signed content. `values` are those of the whole file."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._json = values["request"]["body"] == "json"
        timestamp = values["timestamp"]
        self._digits = timestamp is not None and timestamp["unit"] not in ("iso8601", "any")
        self._counting = frozenset(_counting(values))

    def ambiguous(self, signed: str) -> str | None:
        """The first ambiguous join, as a sentence calls it; None where there is none."""
        tokens = read_template(signed)
        for each in references(tokens):
            if each.name in _JOINS_ITS_FIELDS:
                return f"the fields of {{{each.text}}}"
        for left, right in _neighbours(tokens):
            if (self._counts(left) or self._counts(right)) and not self._is_told(left, right):
                return f"{{{left.text}}} and {{{right.text}}}"
        return None

    def _is_told(self, left: Reference, right: Reference) -> bool:
        """Whether the one always ends, or the other always begins, where everyone can see it."""
        if self._is_closed(left) or self._is_closed(right) or left.name == "method":
            return True
        return left.name == "ts" and self._digits and right.name in _NOT_DIGITS_FIRST

    def _is_closed(self, reference: Reference) -> bool:
        """Whether its bounds are in itself: a secret, a digest, or the JSON document, of which no
        part, and nothing longer, is a document too."""
        if reference.filters:
            return reference.filters[-1] in _FIXED_LENGTH
        document = self._json and reference.name in _DOCUMENTS and not reference.argument
        return reference.name == "secret" or document

    def _counts(self, reference: Reference) -> bool:
        if reference.name in _MEMBERS and reference.argument:
            return True
        return reference.name in _WHOLE or reference.text in self._counting


def _counting(values: dict[str, Any]) -> Iterator[str]:
    """The references whose value decides what an event is worth, as signed content writes them."""
    for _, locations in what_counts(values):
        for location in locations:
            if "{" in location:
                yield from (each.text for each in references(read_template(location)))
            else:
                yield location


def _neighbours(tokens: tuple[Token, ...]) -> Iterator[tuple[Reference, Reference]]:
    """Every two references that may stand side by side, with no literal between them."""
    found: list[tuple[Reference, Reference]] = []
    _walk(tokens, set(), found)
    yield from dict.fromkeys(found)


def _walk(
    tokens: tuple[Token, ...], before: set[Reference], found: list[tuple[Reference, Reference]]
) -> set[Reference]:
    """The references that what follows may stand beside."""
    for token in tokens:
        if isinstance(token, str):
            before = set()
        elif isinstance(token, Group):  # it may vanish as a whole
            before = before | _walk(token.tokens, before, found)
        else:
            found.extend((each, token) for each in sorted(before, key=lambda each: each.text))
            before = {token} | (before if token.optional else set())
    return before
