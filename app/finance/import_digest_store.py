"""Digests of imported lines, by which a line that was changed behind the service's back is told.

    1 import   what an import states, and which lines it puts out of force, is made a digest of
               before it is published; its audit entry has the digest, and the log seals that
    2 check    the digests of all imports are made again, in one pass over each table

A digest is SHA-256 over one line of JSON for each version that the import stated (`+`) and each
that it put out of force (`-`), in order of the table's key. A number is erased from a line at any
time, so no book's `phone` is in it; and what a bank tells in words has a digest of its own, which
holds until an erasure rewrites one of those texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import statement, stream
from app.finance.import_store import KEYS, KINDS, STATED, TABLES, ImportKind

AT_ONCE: Final = 4_000
"""Lines in memory at a time, less than half a kilobyte each."""

_REWRITTEN: Final[dict[ImportKind, frozenset[str]]] = {
    "book": frozenset({"phone"}),
    "statement": frozenset(),
    "bank": frozenset({"entry", "reference", "counterparty", "told"}),
}
"""Columns in which an erasure takes numbers out."""

_ALL: Final = "SELECT since, until, {columns} FROM {table} ORDER BY {keys}, since"
_OF_ONE: Final = (
    "SELECT since, until, {columns} FROM {table} WHERE since = :number OR until = :number "
    "ORDER BY {keys}, since"
)
_LINES: Final = "SELECT count(*) FROM {table}"


class LineDigests:
    """Of one import, while its lines are gone through."""

    def __init__(self, kind: ImportKind) -> None:
        self.lines = hashlib.sha256()
        self.texts = hashlib.sha256() if kind == "bank" else None

    def facts(self) -> dict[str, str]:
        """For the import's audit entry: SHA-256 in hex."""
        lines = {"lines_sha256": self.lines.hexdigest()}
        return lines if self.texts is None else lines | {"texts_sha256": self.texts.hexdigest()}


async def digests_of(
    connection: AsyncConnection, kind: ImportKind, *, number: int
) -> dict[str, str]:
    """The facts of one import, whose lines are all written."""
    found = LineDigests(kind)
    async for rows in _stream(connection, _OF_ONE, kind, {"number": number}):
        for row in rows:
            _add(row, kind, {number: found})
    return found.facts()


async def digests_again(
    connection: AsyncConnection, progress: Callable[[int], None]
) -> dict[int, dict[str, str]]:
    """The facts of every published import by its number, as the lines give them now. `progress` is
    called with how many lines were gone through since it was called last."""
    published = await connection.execute(
        text("SELECT number, kind FROM imports WHERE published_at IS NOT NULL")
    )
    kinds: dict[int, str] = {row[0]: row[1] for row in published}
    facts: dict[int, dict[str, str]] = {}
    for kind in KINDS:
        found = {number: LineDigests(kind) for number, of in kinds.items() if of == kind}
        async for rows in _stream(connection, _ALL, kind, {}):
            for row in rows:
                _add(row, kind, found)
            progress(len(rows))
        facts |= {number: each.facts() for number, each in found.items()}
    return facts


async def count_lines(connection: AsyncConnection) -> int:
    """Versions of lines of every kind."""
    counts = [
        await connection.scalar(text(statement(_LINES, table=table))) for table in TABLES.values()
    ]
    return sum(int(count or 0) for count in counts)


def _kept(kind: ImportKind) -> list[str]:
    """Columns beside the key that nothing rewrites."""
    return [name for name in STATED[kind] if name not in _REWRITTEN[kind]]


def _stream(
    connection: AsyncConnection, form: str, kind: ImportKind, values: dict[str, int]
) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
    texts = sorted(_REWRITTEN[kind]) if kind == "bank" else []
    sql = statement(
        form,
        columns=", ".join((*KEYS[kind], *_kept(kind), *texts)),
        table=TABLES[kind],
        keys=", ".join(KEYS[kind]),
    )
    return stream(connection, sql, at_once=AT_ONCE, values=values)


def _add(row: tuple[Any, ...], kind: ImportKind, found: dict[int, LineDigests]) -> None:
    """One version of a line, to the digests of who stated it and of who put it out of force."""
    since, until, *told = row
    keys, width = len(KEYS[kind]), len(KEYS[kind]) + len(_kept(kind))
    stated = found.get(since)
    if stated is not None:
        stated.lines.update(_line("+", told[:width]))
        if stated.texts is not None:
            stated.texts.update(_line("+", told[:keys] + told[width:]))
    ended = found.get(until) if until is not None else None
    if ended is not None:
        ended.lines.update(_line("-", [*told[:keys], since]))


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _line(sign: str, told: Sequence[Any]) -> bytes:
    return _ENCODER.encode([sign, *told]).encode() + b"\n"
