"""Mask other people's data in a person's copy."""

import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any, Final

from app.core import masking
from app.privacy.erase_store import MOST_INFLATED
from app.providers.identifiers import name_words

OTHERS: Final = "(left out: it is about others)"

STAFF: Final = "(a staff member)"

PASSAGE: Final = 500
"""Maximum length of a shown line about the person."""

TELLING: Final = 4
"""Minimum number of characters of a reference. Texts are not searched for shorter references."""

SHORTEST: Final = 7
"""Minimum digits of a phone number in members that are named like phone numbers."""

_DATE: Final = re.compile(r"(?<!\d)(?:1\d{12}|20\d{12})(?!\d)")


class PersonalCopy:
    """Builder of a person's copy from stored text. Its repr does not identify the person."""

    __slots__ = ("_kept", "_names", "_others", "_own", "_person", "_staff", "_things")

    def __init__(
        self,
        identifiers: Collection[str],
        *,
        things: Collection[str],
        staff: Collection[str],
        names: Collection[str] = (),
        others: Collection[str] = (),
    ) -> None:
        """Set the person for whom the copy is built."""
        self._person = [masking.written_pattern(each) for each in sorted(identifiers)]
        self._things = frozenset(things)
        self._own = (*self._person, *_words(each for each in things if len(each) >= TELLING))
        self._kept = (*self._own, _DATE)
        self._staff = _words(staff)
        self._names = frozenset(word for each in names for word in name_words(each))
        self._others = self._patterns(others)

    def __repr__(self) -> str:
        return "PersonalCopy()"

    def names(self, text: str) -> bool:
        """Return whether a text names the person, or the person's orders or payments."""
        return any(each.search(text) for each in self._own)

    def _is_own(self, text: str) -> bool:
        return text in self._things or self.names(text)

    def text(self, text: str) -> str:
        """Mask other people's data and staff's names in a text."""
        return self._around(text, self._kept)

    def _around(self, text: str, kept: Sequence[re.Pattern[str]]) -> str:
        if not kept:
            text = masking.masked_at_sight(text)
            for pattern in self._staff:
                text = pattern.sub(STAFF, text)
            for pattern in self._others:
                text = pattern.sub(lambda found: masking.masked_name(found[0]), text)
            return text
        parts, at = list[str](), 0
        for found in kept[0].finditer(text):
            parts += [self._around(text[at : found.start()], kept[1:]), found[0]]
            at = found.end()
        return "".join([*parts, self._around(text[at:], kept[1:])])

    def whole(self, content: str | bytes) -> Any:
        """Return one of the person's rows as masked JSON values."""
        text = _decoded(content)
        document = _document(text)
        if document is None:
            return self.text(text)
        return self._knowing(document)._value(document, field="")

    def headers(self, lines: str) -> str:
        """Return the delivery's headers, with only values that name the person."""
        split = (line.partition(": ") for line in lines.split("\n"))
        return "\n".join(
            f"{name}{mark}{self.text(value) if self.names(value) else masking.HIDDEN}"
            for name, mark, value in split
            if name
        )

    def passages(self, content: str | bytes) -> list[str]:
        """Return the parts about the person in another person's row."""
        text = _decoded(content)
        document = _document(text)
        known = self._knowing(document)
        found = [] if document is None else [*known._members(document, place="")]
        if not found:  # even if only an escape or base64 contains it
            lines = masking.written_out(text).split("\n")
            found += [known._passage(each) for each in lines if self.names(each)]
        return list(dict.fromkeys(found))

    def _knowing(self, document: Any) -> "PersonalCopy":
        stated = self._names_of_others(document, field="", within="", other=False)
        known = copy(self)
        known._others = [*self._others, *self._patterns({*stated})]
        return known

    def _patterns(self, names: Collection[str]) -> list[re.Pattern[str]]:
        return [
            re.compile(
                r"(?<!\w)" + r"\s+".join(map(re.escape, each.split())) + r"(?!\w)", re.IGNORECASE
            )
            for each in sorted(names, key=lambda each: (-len(each), each))
            if len(each) >= TELLING and not self._names.issuperset(name_words(each))
        ]

    def _names_of_others(
        self, value: Any, *, field: str, within: str, other: bool
    ) -> Iterator[str]:
        if isinstance(value, dict):
            other = self._is_of_other(value, field=field, around=other)
            for name, each in value.items():
                yield from self._names_of_others(each, field=name, within=field, other=other)
        elif isinstance(value, list):
            for each in value:
                yield from self._names_of_others(each, field=field, within=within, other=other)
        elif isinstance(value, str) and self._names_another(
            value, field=field, within=within, other=other
        ):
            yield value

    def _is_of_other(self, members: Mapping[str, Any], *, field: str, around: bool) -> bool:
        texts = {name: str(e) for name, e in members.items() if isinstance(e, str | int)}
        if any(each.search(text) for each in self._person for text in texts.values()):
            return False
        part = (
            masking.is_an_address(field)
            or field.lower() == "name"
            or masking.names_a_person(field, within="")
        )
        return (around and part) or any(
            len(text) >= SHORTEST and masking.names_a_phone(name)
            if text.isdecimal()  # else an id or a date
            else masking.masked_at_sight(text) != text
            for name, text in texts.items()
        )

    def _names_another(self, text: str, *, field: str, within: str, other: bool) -> bool:
        words = name_words(text)
        if other and (field.lower() == "name" or masking.names_a_person(field, within=within)):
            return not self._names.issuperset(words)
        return (
            masking.names_a_person(field, within=within)
            and bool(self._names and words)
            and self._names.isdisjoint(words)
        )

    def _passage(self, line: str) -> str:
        if len(line) <= PASSAGE:
            return self.text(line)
        start = min(f.start() for p in self._own if (f := p.search(line)) is not None)
        # Cut at a space, so that no half of another person's number stays unmasked.
        begin = line.rfind(" ", 0, max(0, start - PASSAGE // 4)) + 1
        # Mask a wider part than is shown, for the same reason.
        return masking.clipped(self.text(line[begin : start + 2 * PASSAGE]), PASSAGE)

    def _value(self, value: Any, *, field: str, within: str = "", other: bool = False) -> Any:
        if isinstance(value, dict):
            other = self._is_of_other(value, field=field, around=other)
            return {
                self.text(name): self._value(each, field=name, within=field, other=other)
                for name, each in value.items()
            }
        if isinstance(value, list):
            about = [any(map(self._is_own, _leaves(each))) for each in value]
            several = any(about) and all(isinstance(each, dict) for each in value)
            return [
                self._value(each, field=field, within=within, other=other)
                if own or not several
                else OTHERS
                for each, own in zip(value, about, strict=True)
            ]
        if isinstance(value, bool) or not isinstance(value, str | int):
            return value
        text = str(value)
        if masking.names_a_phone(field) and not self.names(text):
            return masking.shown_phone(text)
        address = other and (masking.is_an_address(field) or masking.is_an_address(within))
        if address or self._names_another(text, field=field, within=within, other=other):
            return masking.masked_name(text)
        shown = self.text(text)
        return value if shown == text else shown

    def _members(self, value: Any, *, place: str) -> Iterator[str]:
        if isinstance(value, dict | list):
            named = value.items() if isinstance(value, dict) else enumerate(value, 1)
            for name, each in named:
                yield from self._members(each, place=f"{place}.{name}" if place else f"{name}")
            if isinstance(value, dict):
                yield from (self.text(name) for name in value if self.names(name))
        else:
            for line in str(value).split("\n"):
                if self.names(line):
                    yield f"{self.text(place)}: {self._passage(line)}"


def _decoded(content: str | bytes) -> str:
    if isinstance(content, str):
        return content
    with suppress(zlib.error):
        content = zlib.decompressobj().decompress(content, MOST_INFLATED)
    return content.decode("utf-8", "replace")


def _document(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text, parse_float=str)
    return None


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield str(value)


def _words(texts: Iterable[str]) -> list[re.Pattern[str]]:
    return [
        re.compile(rf"(?<![\w-]){re.escape(each)}(?![\w-])")
        for each in sorted(texts, key=lambda each: (-len(each), each))
        if each
    ]
