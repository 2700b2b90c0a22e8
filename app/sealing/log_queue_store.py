"""Find rows without a leaf in the sealed log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.layout import settle
from app.database.statements import PlainConnection, insert_rows, run, select_in, statement
from app.sealing import leaf_store
from app.sealing.order_store import read_leaves

MARKS_AT_ONCE: Final = 256
"""Number of marks that are read at a time."""

ALL: Final = 2**62

SWEPT: Final = "sealed ids"
"""Prefix of `meta` names for a sweep's last id."""

SEALED: Final = "sealed"
"""Prefix of counters with a kind's last sealed number."""


def mark_unsealed(connection: PlainConnection, kind: leaf_store.Kind, ids: Sequence[str]) -> None:
    """Mark new rows as unsealed. Call this in the transaction that writes them."""
    _mark(connection, kind.name, ids)


def mark_read_again(connection: PlainConnection, deliveries: Sequence[str]) -> None:
    """Mark changed deliveries so that the log seals the change."""
    _mark(connection, leaf_store.READING, deliveries)


def _mark(connection: PlainConnection, kind: str, ids: Sequence[str]) -> None:
    if ids:
        insert_rows(
            connection,
            table="unsealed",
            columns=("kind", "ids", "count"),
            rows=[(kind, "\n".join(ids), len(ids))],
        )


@dataclass(slots=True, kw_only=True)
class Unsealed:
    """Rows without a leaf, and the changes to store with their new leaves."""

    size: int
    full: bool = False
    """True if more rows can be waiting."""
    rows: list[leaf_store.Sealable] = field(default_factory=list)
    read: dict[str, list[leaf_store.Leaf]] = field(default_factory=dict)
    """Existing leaves of each delivery with a possibly new event."""
    marks: list[int] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    """Number of the last sealed row of each numbered kind, by name."""
    swept: dict[str, str] = field(default_factory=dict)
    """Last id in the sweep of each kind, by name."""

    @property
    def anything(self) -> bool:
        """Check whether anything must be written to the log or to its queue."""
        return bool(self.rows or self.marks or self.swept)


async def log_size(connection: AsyncConnection) -> int:
    found = await connection.scalar(text("SELECT coalesce(max(number) + 1, 0) FROM log_leaves"))
    return int(found or 0)


async def find_unsealed(connection: AsyncConnection, *, limit: int) -> Unsealed:
    """Return about `limit` rows without a leaf."""
    await run(connection, settle)
    found = Unsealed(size=await log_size(connection))
    rows: dict[str, leaf_store.Sealable] = {}
    for each in await _marked(connection, found, limit=limit):
        rows[each.subject] = each
    for kind in leaf_store.KINDS:
        left = limit - len(rows)
        if left > 0:
            further = await (_numbered if kind.numbered else _swept)(connection, kind, found, left)
            rows |= {each.subject: each for each in further}
    found.rows = list(rows.values())
    found.full |= len(rows) >= limit
    return found


async def _marked(
    connection: AsyncConnection, found: Unsealed, *, limit: int
) -> list[leaf_store.Sealable]:
    marks = await connection.execute(
        text('SELECT "row", kind, ids FROM unsealed ORDER BY "row" LIMIT :limit'),
        {"limit": MARKS_AT_ONCE},
    )
    ids: dict[str, list[str]] = {}
    count = 0
    for row, name, listed in marks:
        some = listed.split("\n")
        if count and count + len(some) > limit:
            found.full = True
            break
        count += len(some)
        found.marks.append(row)
        ids.setdefault(name, []).extend(some)
    found.full |= len(found.marks) == MARKS_AT_ONCE
    rows: list[leaf_store.Sealable] = []
    again = ids.pop(leaf_store.READING, [])
    for name, wanted in ids.items():
        kind = leaf_store.KIND_OF[name]
        sql = _of(kind, _UNSEALED_OF)
        by_id = {row[0]: row for row in await select_in(connection, sql=sql, values=wanted)}
        # Sorted by id, which is the order in which the rows were written.
        rows += [kind.sealable(by_id[each]) for each in wanted if each in by_id]
    if again:
        now = await rows_to_seal(connection, leaf_store.DELIVERY, again)
        found.read = await run(connection, read_leaves, sorted(now))
        rows += [leaf_store.reading_again(each) for each in now.values()]
    return rows


_UNSEALED_OF: Final = (
    "SELECT {rows} LEFT JOIN log_leaves ON log_leaves.subject = {key} "
    "WHERE log_leaves.number IS NULL AND {key} IN ({}) /* {table} WHERE {key} = ANY($1) */"
)
_UNSEALED_AFTER: Final = (
    "SELECT {rows} LEFT JOIN log_leaves ON log_leaves.subject = {key} "
    "WHERE {key} > :after AND log_leaves.number IS NULL ORDER BY {key} LIMIT :limit "
    "/* {table} WHERE {key} > $1 */"
)
_NUMBERED_AFTER: Final = (
    "SELECT {rows} WHERE {key} > :after ORDER BY {key} LIMIT :limit /* {table} WHERE {key} > $1 */"
)
_ROWS_OF: Final = "SELECT {rows} WHERE {key} IN ({}) /* {table} WHERE {key} = ANY($1) */"


def _of(kind: leaf_store.Kind, template: str) -> str:
    return statement(template, rows=kind.selected, key=kind.key_column, table=kind.table)


async def _numbered(
    connection: AsyncConnection, kind: leaf_store.Kind, found: Unsealed, limit: int
) -> list[leaf_store.Sealable]:
    name = f"{SEALED} {kind.name}"
    after = await _counter(connection, name)
    rows = await connection.execute(
        text(_of(kind, _NUMBERED_AFTER)), {"after": after, "limit": limit}
    )
    sealed = [kind.sealable(tuple(row)) for row in rows]
    if sealed:
        found.counters[name] = int(kind.key(sealed[-1].subject))
    return sealed


async def _swept(
    connection: AsyncConnection, kind: leaf_store.Kind, found: Unsealed, limit: int
) -> list[leaf_store.Sealable]:
    name = f"{SWEPT} {kind.name}"
    after = await connection.scalar(text("SELECT value FROM meta WHERE name=:n"), {"n": name})
    if after == "":
        return []
    values = {"after": after or "", "limit": limit}
    result = await connection.execute(text(_of(kind, _UNSEALED_AFTER)), values)
    rows = [tuple(row) for row in result]
    found.swept[name] = rows[-1][0] if len(rows) == limit else ""
    return [kind.sealable(row) for row in rows]


async def _counter(connection: AsyncConnection, name: str) -> int:
    found = await connection.scalar(text("SELECT value FROM counters WHERE name=:n"), {"n": name})
    return int(found or 0)


async def sweep_again(connection: AsyncConnection) -> None:
    """Start the sweeps over all ids again, to find rows that have no mark."""
    await connection.execute(
        text("DELETE FROM meta WHERE name IN (:one, :other)"),
        {"one": f"{SWEPT} delivery", "other": f"{SWEPT} record"},
    )


async def without_leaf(connection: AsyncConnection, subjects: Iterable[str]) -> set[str]:
    """Return the unsealed subjects, whose data must stay."""
    wanted = set(subjects)
    rows = await select_in(
        connection, sql="SELECT subject FROM log_leaves WHERE subject IN ({})", values=wanted
    )
    return wanted - {row[0] for row in rows}


_COUNT_NUMBERED: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {key} > :sealed LIMIT :enough) AS found"
)


async def count_unsealed(connection: AsyncConnection, *, enough: int = ALL) -> int:
    """Return the number of unsealed rows, at most `enough`."""
    marked: Any = await connection.scalar(
        text("SELECT sum(count) FROM (SELECT count FROM unsealed LIMIT :enough) AS found"),
        {"enough": enough},
    )
    waiting = int(marked or 0)
    for kind in leaf_store.KINDS:
        if kind.numbered and waiting < enough:
            # Counted, not subtracted, because a restore leaves gaps in the numbers.
            sql = statement(_COUNT_NUMBERED, table=kind.table, key=kind.key_column)
            later: Any = await connection.scalar(
                text(sql),
                {
                    "sealed": await _counter(connection, f"{SEALED} {kind.name}"),
                    "enough": enough - waiting,
                },
            )
            waiting += int(later)
    return min(waiting, enough)


async def rows_to_seal(
    connection: AsyncConnection, kind: leaf_store.Kind, subjects: Iterable[str]
) -> dict[str, leaf_store.Sealable]:
    """Return the present content of the rows with these subjects."""
    wanted = [kind.key(each) for each in subjects]
    rows = await select_in(connection, sql=_of(kind, _ROWS_OF), values=wanted)
    return {each.subject: each for each in map(kind.sealable, rows)}


async def readings_to_seal(
    connection: AsyncConnection, subjects: Iterable[str]
) -> dict[str, leaf_store.Sealable]:
    """Return the content of deliveries that were read again, by subject."""
    deliveries = {each: leaf_store.delivery_sealed_by(each) for each in subjects}
    now = await rows_to_seal(connection, leaf_store.DELIVERY, set(deliveries.values()))
    return {
        subject: leaf_store.reading_again(now[delivery])
        for subject, delivery in deliveries.items()
        if delivery in now
    }
