"""Compute digests of imported lines, which reveal a change without an audit entry. Phone numbers
are not covered, because they can be erased."""

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import statement, stream
from app.finance.import_store import KINDS, ImportKind
from app.finance.line_version_store import LINES, LOOKING, key_stretches

AT_ONCE: Final = 4_000


class SealedColumns(NamedTuple):
    """Columns of one kind of line that digests cover."""

    keys: Sequence[str]
    kept: Sequence[str]
    texts: Sequence[str] = ()


SEALED: Final[Mapping[ImportKind, SealedColumns]] = {
    "book": SealedColumns(
        keys=("match_key", "kind"),
        kept=(
            "line", "reference", "minor", "currency", "placed_at", "status", "group_key",
            "group_name", "refunded", "refunded_at", "method",
        ),
    ),
    "statement": SealedColumns(
        keys=("subject", "kind", "source", "ordinal"),
        kept=(
            "line", "match_key", "payment", "order_ref", "currency", "gross", "fee", "net",
            "settled_at", "payout", "wallet", "refund", "details", "balance",
        ),
    ),
    "bank": SealedColumns(
        keys=("subject", "ordinal"),
        kept=("line", "account", "currency", "minor", "booked_at"),
        texts=("counterparty", "entry", "reference", "told"),
    ),
}  # fmt: skip
"""Columns that the sealed digests of an import cover. A new column needs its own digest."""

_SELECT: Final = "SELECT since, until, {columns} FROM {table} {which} ORDER BY {keys}, since"
_OF_ONE: Final = "WHERE (since = :number OR until = :number){beyond}{up_to}"
_LINES: Final = "SELECT count(*) FROM {table}"


class LineDigests:
    """Digests that are computed line by line for one import."""

    def __init__(self, kind: ImportKind) -> None:
        self.lines = hashlib.sha256()
        self.texts = hashlib.sha256() if SEALED[kind].texts else None

    def facts(self) -> dict[str, str]:
        """Return the digests in hex, for the import's audit entry."""
        lines = {"lines_sha256": self.lines.hexdigest()}
        return lines if self.texts is None else lines | {"texts_sha256": self.texts.hexdigest()}


async def _nothing() -> None:
    """Do nothing. This is the default of `between`."""


async def digests_of(
    connection: AsyncConnection,
    kind: ImportKind,
    *,
    number: int,
    between: Callable[[], Awaitable[None]] = _nothing,
) -> dict[str, str]:
    """Return the digests of an import after its last line."""
    found, after = LineDigests(kind), None
    first = SEALED[kind].keys[0]
    async for to in key_stretches(connection, kind, lines=LOOKING):
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
    """Digests of the lines that are stored now."""

    facts: dict[int, dict[str, str]] = field(default_factory=dict)
    strays: Counter[ImportKind] = field(default_factory=Counter)


async def digests_again(connection: AsyncConnection, progress: Callable[[int], None]) -> DigestsNow:
    """Compute the digests of all imports again."""
    known_imports = [
        (number, kind, published is not None)
        for number, kind, published in await connection.execute(
            text("SELECT number, kind, published_at FROM imports")
        )
    ]
    # Skip lines of unpublished or killed imports: the next import deletes them.
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
    counts = [
        await connection.scalar(text(statement(_LINES, table=lines.table)))
        for lines in LINES.values()
    ]
    return sum(int(count or 0) for count in counts)


def _stream(
    connection: AsyncConnection, kind: ImportKind, which: str, values: Mapping[str, Any]
) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
    sealed = SEALED[kind]
    sql = statement(
        _SELECT,
        columns=", ".join((*sealed.keys, *sealed.kept, *sealed.texts)),
        table=LINES[kind].table,
        which=which,
        keys=", ".join(sealed.keys),
    )
    return stream(connection, sql, at_once=AT_ONCE, values=values)


def _add(row: tuple[Any, ...], kind: ImportKind, found: Mapping[int, LineDigests]) -> None:
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


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def _line(sign: str, content: Sequence[Any]) -> bytes:
    return _ENCODER.encode([sign, *content]).encode() + b"\n"
