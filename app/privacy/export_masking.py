"""Masking of other people's data in the copy that a person gets.

A row of the person is shown completely. Another row shows only the parts that name the person.
Leaves out which rows belong to whom (`export`).
"""

import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from app.core.masking import (
    HIDDEN,
    clipped,
    masked_at_sight,
    names_a_phone,
    shown_phone,
    written_out,
    written_pattern,
)
from app.privacy.erase_store import MOST_INFLATED

OTHERS: Final = "(left out: it is about others)"
"""Text that replaces what a body says about other people."""

STAFF: Final = "(somebody who works here)"

PASSAGE: Final = 500
"""Maximum characters shown of a line that names the person: one line of a statement. Whole pages
are cut to this."""

TELLING: Final = 4
"""Minimum characters of a reference that is searched for in texts. A shorter one would match too
much."""

_DATE: Final = re.compile(r"(?<!\d)(?:1\d{12}|20\d{12})(?!\d)")
"""Milliseconds since 1970, and dates with a time in digits. Neither is a phone number."""


class PersonalCopy:
    """Builds a person's copy of stored text. Its repr does not identify the person."""

    __slots__ = ("_kept", "_own", "_staff", "_things")

    def __init__(
        self, identifiers: Collection[str], *, things: Collection[str], staff: Collection[str]
    ) -> None:
        """Take the identifiers, orders and payments of the copy's person. identifiers: as
        `written_pattern` takes them; things: references of their orders and payments; staff: names
        of operators."""
        own = [written_pattern(each) for each in sorted(identifiers)]
        self._things = frozenset(things)
        self._own = (*own, *_words(each for each in things if len(each) >= TELLING))
        self._kept = (*self._own, _DATE)
        self._staff = _words(staff)

    def __repr__(self) -> str:
        return "PersonalCopy()"

    def names(self, text: str) -> bool:
        """Return whether a text names the person, or one of their orders or payments."""
        return any(each.search(text) for each in self._own)

    def _is_own(self, text: str) -> bool:
        return text in self._things or self.names(text)

    def text(self, text: str) -> str:
        """Mask other people's numbers and addresses, and the names of staff."""
        return self._around(text, self._kept)

    def _around(self, text: str, kept: Sequence[re.Pattern[str]]) -> str:
        if not kept:
            text = masked_at_sight(text)
            for pattern in self._staff:
                text = pattern.sub(STAFF, text)
            return text
        parts, at = list[str](), 0
        for found in kept[0].finditer(text):
            parts += [self._around(text[at : found.start()], kept[1:]), found[0]]
            at = found.end()
        return "".join([*parts, self._around(text[at:], kept[1:])])

    def whole(self, content: str | bytes) -> Any:
        """Return the content of the person's own row as JSON values."""
        text = _decoded(content)
        document = _document(text)
        return self.text(text) if document is None else self._value(document, field="")

    def headers(self, lines: str) -> str:
        """Return the headers of the person's own delivery. Only values that name the person are
        shown; others may hold credentials."""
        split = (line.partition(": ") for line in lines.split("\n"))
        return "\n".join(
            f"{name}{mark}{self.text(value) if self.names(value) else HIDDEN}"
            for name, mark, value in split
            if name
        )

    def passages(self, content: str | bytes) -> list[str]:
        """Return the passages about the person in another person's row. They are members of a
        document, each after its path, or lines of a text."""
        text = _decoded(content)
        document = _document(text)
        found = [] if document is None else [*self._members(document, place="")]
        if not found:  # even if only an escape or base64 contains it
            lines = written_out(text).split("\n")
            found += [self._passage(each) for each in lines if self.names(each)]
        return list(dict.fromkeys(found))

    def _passage(self, line: str) -> str:
        """Return a line; if it is long, only the part around the person's name."""
        if len(line) <= PASSAGE:
            return self.text(line)
        start = min(f.start() for p in self._own if (f := p.search(line)) is not None)
        # Cut at a space, so that no half of another person's number stays unmasked.
        begin = line.rfind(" ", 0, max(0, start - PASSAGE // 4)) + 1
        # Mask a wider part than is shown, for the same reason.
        return clipped(self.text(line[begin : start + 2 * PASSAGE]), PASSAGE)

    def _value(self, value: Any, *, field: str) -> Any:
        if isinstance(value, dict):
            return {self.text(name): self._value(each, field=name) for name, each in value.items()}
        if isinstance(value, list):
            about = [any(map(self._is_own, _leaves(each))) for each in value]
            several = any(about) and all(isinstance(each, dict) for each in value)
            return [
                self._value(each, field=field) if own or not several else OTHERS
                for each, own in zip(value, about, strict=True)
            ]
        if isinstance(value, bool) or not isinstance(value, str | int):
            return value
        text = str(value)
        if names_a_phone(field) and not self.names(text):
            return shown_phone(text)
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
    """Parse a JSON object or list; return None for other text."""
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
    """Return patterns that match each of these texts as a whole word, the longest first."""
    return [
        re.compile(rf"(?<![\w-]){re.escape(each)}(?![\w-])")
        for each in sorted(texts, key=lambda each: (-len(each), each))
        if each
    ]
