"""Digests of imported lines, by which a line that was changed without an audit entry is found.

    1 import   of what an import states, and of the lines that it puts out of force, a digest is
               made before it is published; its audit entry has the digest, and the log seals that
    2 check    the digests of all imports are made again, in one pass over each table

A digest is SHA-256 over one line of JSON for each version that the import stated (`+`) and each
that it put out of force (`-`), in order of the table's key. A number is erased from a line at any
time, so no book's `phone` is in it; and what a bank states in words has a digest of its own, which
holds until an erasure rewrites one of those texts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import statement, stream
from app.finance.import_store import KINDS, LOOKING, TABLES, ImportKind, stretches

AT_ONCE: Final = 4_000
"""Lines in memory at a time, less than half a kilobyte each."""


class Sealed(NamedTuple):
    """The columns of one kind of line: its key, what nothing rewrites, and texts in which an
    erasure takes numbers out."""

    keys: Sequence[str]
    kept: Sequence[str]
    texts: Sequence[str] = ()


SEALED: Final[Mapping[ImportKind, Sealed]] = {
    "book": Sealed(
        keys=("match_key", "kind"),
        kept=(
            "line", "reference", "minor", "currency", "placed_at", "status", "group_key",
            "group_name", "refunded", "refunded_at",
        ),
    ),
    "statement": Sealed(
        keys=("subject", "kind", "source", "ordinal"),
        kept=(
            "line", "match_key", "payment", "order_ref", "currency", "gross", "fee", "net",
            "settled_at", "payout",
        ),
    ),
    "bank": Sealed(
        keys=("subject", "ordinal"),
        kept=("line", "account", "currency", "minor", "booked_at"),
        texts=("counterparty", "entry", "reference", "told"),
    ),
}  # fmt: skip
"""These digests are sealed for ever: a column that is added later is in none of before, so it gets
a digest of its own, and none of these changes its place."""

_SELECT: Final = "SELECT since, until, {columns} FROM {table} {which} ORDER BY {keys}, since"
_OF_ONE: Final = "WHERE (since = :number OR until = :number){beyond}{up_to}"
_LINES: Final = "SELECT count(*) FROM {table}"


class LineDigests:
    """Of one import, while its lines are gone through."""

    def __init__(self, kind: ImportKind) -> None:
        self.lines = hashlib.sha256()
        self.texts = hashlib.sha256() if SEALED[kind].texts else None

    def facts(self) -> dict[str, str]:
        """For the import's audit entry: SHA-256 in hex."""
        lines = {"lines_sha256": self.lines.hexdigest()}
        return lines if self.texts is None else lines | {"texts_sha256": self.texts.hexdigest()}


async def _nothing() -> None:
    """For whoever has nothing to do between two stretches."""


async def digests_of(
    connection: AsyncConnection,
    kind: ImportKind,
    *,
    number: int,
    between: Callable[[], Awaitable[None]] = _nothing,
) -> dict[str, str]:
    """The facts of one import, whose lines are all written. `between` is called after each stretch
    of LOOKING lines, of whatever import: of a million lines all are looked at."""
    found, after = LineDigests(kind), None
    first = SEALED[kind].keys[0]
    async for to in stretches(connection, kind, lines=LOOKING):
        which = statement(
            _OF_ONE,
            beyond="" if after is None else f" AND {first} > :after",
            up_to="" if to is None else f" AND {first} <= :to",
        )
        ends = {"number": number, "after": after, "to": to}
        values = {name: value for name, value in ends.items() if value is not None}
        async for rows in _stream(connection, kind, which, values):
            for row in rows:
                _add(row, kind, {number: found})
        await between()
        after = to
    return found.facts()


@dataclass(slots=True)
class DigestsNow:
    """As the lines give them now.

    facts   of every published import by its number
    strays  by their kind, how many lines were stated or put out of force by no import of that kind
    """

    facts: dict[int, dict[str, str]] = field(default_factory=dict)
    strays: Counter[ImportKind] = field(default_factory=Counter)


async def digests_again(connection: AsyncConnection, progress: Callable[[int], None]) -> DigestsNow:
    """Go through all lines. `progress` is called with how many were since it was called last."""
    known_imports = [
        (number, kind, published is not None)
        for number, kind, published in await connection.execute(
            text("SELECT number, kind, published_at FROM imports")
        )
    ]
    # One that is under way, or was killed: the next import takes its lines away, of any kind.
    passing = {number for number, _, published in known_imports if not published}
    now = DigestsNow()
    for kind in KINDS:
        found = {
            number: LineDigests(kind) for number, of, done in known_imports if done and of == kind
        }
        async for rows in _stream(connection, kind, "", {}):
            for row in rows:
                _add(row, kind, found)
                known = {number for number in row[:2] if number is not None} - passing
                now.strays[kind] += not known <= found.keys()
            progress(len(rows))
        now.facts |= {number: each.facts() for number, each in found.items()}
    return now


async def count_lines(connection: AsyncConnection) -> int:
    """Versions of lines of every kind."""
    counts = [
        await connection.scalar(text(statement(_LINES, table=table))) for table in TABLES.values()
    ]
    return sum(int(count or 0) for count in counts)


def _stream(
    connection: AsyncConnection, kind: ImportKind, which: str, values: Mapping[str, Any]
) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
    sealed = SEALED[kind]
    sql = statement(
        _SELECT,
        columns=", ".join((*sealed.keys, *sealed.kept, *sealed.texts)),
        table=TABLES[kind],
        which=which,
        keys=", ".join(sealed.keys),
    )
    return stream(connection, sql, at_once=AT_ONCE, values=values)


def _add(row: tuple[Any, ...], kind: ImportKind, found: Mapping[int, LineDigests]) -> None:
    """One version of a line, to the digests of who stated it and of who put it out of force."""
    since, until, *content = row
    keys = len(SEALED[kind].keys)
    width = keys + len(SEALED[kind].kept)
    stated = found.get(since)
    if stated is not None:
        stated.lines.update(_line("+", content[:width]))
        if stated.texts is not None:
            stated.texts.update(_line("+", content[:keys] + content[width:]))
    ended = found.get(until) if until is not None else None
    if ended is not None:
        ended.lines.update(_line("-", [*content[:keys], since]))


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _line(sign: str, content: Sequence[Any]) -> bytes:
    return _ENCODER.encode([sign, *content]).encode() + b"\n"
