"""Finds in a database whom the journal of erasures names, though it holds digests only.

    1 read      every phone number that stands anywhere, and every order's reference
    2 compare   the digest of each with those of the journal
    3 look      through the bytes again for the numbers that were found, however they are written

So the work grows with the database, and hardly with the journal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.core.masking import written_pattern
from app.database.engine import Connection
from app.privacy.erase_store import Text, delivery_texts, rejection_texts
from app.privacy.erasure_journal import JournalKey, Kind, Line
from app.privacy.erasure_store import known_digests, known_phones, known_references
from reconcile.instants import Instant

REMEMBERED: Final = 1_000_000
"""Subjects that are remembered not to be in the journal: most of them stand in many places."""

MIN_DIGITS: Final = 8
MAX_DIGITS: Final = 15
"""Of a whole number (ITU-T E.164), as `providers.phones` reads them."""

HINT: Final = 5
"""Last digits by which a number is looked for: all ways to write it share them."""

_RUN: Final = re.compile(r"\d(?:[ ().-]{0,2}\d){6,}", re.ASCII)
_GROUP: Final = re.compile(r"\d+", re.ASCII)
_NAME: Final = re.compile(r"[\w-]+")


@dataclass(slots=True, kw_only=True)
class Erased:
    """Whom the journal names, each with the instant of the last erasure.

    phones   numbers that are in the clear; `held`: the deliveries that hold each
    digests  of numbers that are found by nothing else
    orders   references
    """

    phones: dict[str, Instant] = field(repr=False, default_factory=dict)
    held: dict[str, set[str]] = field(repr=False, default_factory=dict)
    digests: dict[bytes, Instant] = field(default_factory=dict)
    orders: dict[str, Instant] = field(default_factory=dict)


async def find_erased(
    connection: Connection,
    lines: Sequence[Line],
    key: JournalKey,
    *,
    countries: Iterable[str],
    progress: Callable[[int], None],
) -> Erased:
    """Whom of a journal's lines this database knows.

    countries  calling codes of the sources' customers, for numbers written in the national way
    """
    wanted, codes = _Wanted(lines, key), sorted(set(countries))
    found = Erased()
    async for texts in delivery_texts(connection):
        _note_phones(found, wanted, (each.whole() for each in texts), codes)
        progress(len(texts))
    async for texts in rejection_texts(connection):
        _note_phones(found, wanted, (each.whole() for each in texts), codes)
        for each in texts:
            _note_orders(found, wanted, _NAME.findall(each.whole()))
        progress(len(texts))
    async for some in known_phones(connection):
        _note_phones(found, wanted, some, codes)
    async for references in known_references(connection):
        _note_orders(found, wanted, references)
        progress(len(references))
    async for digests in known_digests(connection):
        for digest in digests:
            at = wanted.at("phone_note", digest.hex())
            if at is not None:
                found.digests[digest] = at
    if found.phones:
        await _look(connection, found, progress)
    return found


def _note_phones(
    found: Erased, wanted: _Wanted, texts: Iterable[str], codes: Sequence[str]
) -> None:
    if not wanted.any("phone"):
        return
    for text in texts:
        for digits in numbers_in(text, codes):
            at = wanted.at("phone", digits)
            if at is not None:
                found.phones[digits] = at


def _note_orders(found: Erased, wanted: _Wanted, references: Iterable[str]) -> None:
    if not wanted.any("order"):
        return
    for reference in references:
        at = wanted.at("order", reference)
        if at is not None:
            found.orders[reference] = at


async def _look(connection: Connection, found: Erased, progress: Callable[[int], None]) -> None:
    looking = _Looking(found.phones)
    found.held = {digits: set() for digits in found.phones}
    async for texts in delivery_texts(connection):
        for each in texts:
            for digits in looking.held_in(each):
                found.held[digits].add(each.id)
        progress(len(texts))


class _Wanted:
    """The journal's digests, by kind, with the last instant of each."""

    def __init__(self, lines: Iterable[Line], key: JournalKey) -> None:
        self._key = key
        self._last: dict[str, dict[str, Instant]] = {}
        self._seen: dict[str, set[str]] = {}
        for line in lines:
            of_kind = self._last.setdefault(line.kind, {})
            of_kind[line.digest] = max(line.at, of_kind.get(line.digest, line.at))

    def any(self, kind: Kind) -> bool:
        """Whether there is a line of this kind."""
        return kind in self._last

    def at(self, kind: Kind, subject: str) -> Instant | None:
        """When a subject was last erased; None where it never was."""
        if kind not in self._last:
            return None
        strangers = self._seen.setdefault(kind, set())
        if subject in strangers:
            return None
        at = self._last[kind].get(self._key.digest(kind, subject))
        if at is None:
            if len(strangers) >= REMEMBERED:
                strangers.clear()
            strangers.add(subject)
        return at


class _Looking:
    """Finds known numbers in texts, as `written_pattern` does, many of them at a time."""

    def __init__(self, phones: Iterable[str]) -> None:
        self._by_end: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
        for digits in phones:
            known = (digits, written_pattern(digits))
            self._by_end.setdefault(digits[-HINT:], []).append(known)

    def held_in(self, each: Text) -> Iterator[str]:
        """The numbers that stand in the headers or in the body."""
        text = each.whole()
        for end in _ends(text) & self._by_end.keys():
            for digits, pattern in self._by_end[end]:
                if pattern.search(text):
                    yield digits


def _ends(text: str) -> set[str]:
    """The last digits of everything that may be a number."""
    found = set()
    for run in _RUN.findall(text):
        digits = ""
        for group in _GROUP.findall(run):
            digits = digits[-HINT:] + group
            found.add(digits[-HINT:])
    return found


def numbers_in(text: str, countries: Sequence[str]) -> Iterator[str]:
    """Everything in a text that may be a phone number, as E.164 digits: every row of groups of
    digits that is not too long, whole or behind 00, and behind one 0 with each of the countries."""
    for run in _RUN.findall(text):
        groups = _GROUP.findall(run)
        for first in range(len(groups)):
            digits = ""
            for group in groups[first : first + MAX_DIGITS + 2]:
                digits += group
                if len(digits) > MAX_DIGITS + 2:
                    break
                yield from _readings(digits, countries)


def _readings(digits: str, countries: Sequence[str]) -> Iterator[str]:
    if digits.startswith("00"):
        whole = [digits[2:]]
    elif digits.startswith("0"):
        whole = [f"{code}{digits[1:]}" for code in countries]
    else:
        whole = [digits]
    for each in whole:
        if MIN_DIGITS <= len(each) <= MAX_DIGITS and not each.startswith("0"):
            yield each
