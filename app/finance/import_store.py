"""Imports: numbered, one under way at a time, and invisible until they are published.

    1 begin      undo what a killed import left; give the new one the next number
    2 write      lines, some thousand in a transaction, so that nobody waits long for the writer
    3 publish    one row: from then on everyone sees the whole import

A line's version is valid from import `since` and before import `until`. What was known at an
instant is what the imports published by then state (`newest_published`), whatever another import is
writing.

A line stands by the newest import that stated it, among those that were not taken back and take
none back themselves. If that import is taken back, the newest of the others is stated again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from sqlalchemy import (
    ColumnElement,
    TextClause,
    column,
    delete,
    insert,
    select,
    table,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.text import counted
from app.database.locks import IMPORTING, take_lock
from app.database.statements import PlainConnection, Rows, insert_rows, run, statement
from reconcile.instants import EARLIEST, LATEST, TICK, Instant, format_known
from reconcile.money import Money

ImportKind = Literal["book", "statement", "bank"]
KINDS: Final[tuple[ImportKind, ...]] = get_args(ImportKind)

TABLES: Final[dict[ImportKind, str]] = {
    "book": "book_lines",
    "statement": "statement_lines",
    "bank": "bank_lines",
}

KEYS: Final[dict[ImportKind, tuple[str, ...]]] = {
    "book": ("match_key", "kind"),
    "statement": ("subject", "kind", "source", "ordinal"),
    "bank": ("subject", "ordinal"),
}
"""The columns that identify a line; lines are walked by the first."""

CONTENT: Final[dict[ImportKind, tuple[str, ...]]] = {
    "book": (
        "reference", "minor", "currency", "placed_at", "status", "group_key", "group_name",
        "refunded", "refunded_at", "method", "phone",
    ),
    "statement": (
        "match_key", "payment", "order_ref", "currency", "gross", "fee", "net", "settled_at",
        "payout", "wallet", "refund", "details", "balance",
    ),
    "bank": (
        "account", "currency", "minor", "booked_at", "entry", "reference", "counterparty", "told",
    ),
}  # fmt: skip
"""What a version states, beside its key, its imports and the id of its line."""

UNDOING: Final = 1_000
"""Lines per transaction that undoes a killed import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import of a file. Counts are of rows; `published_at` is None while it is under way. An
    import that takes another back has that one's number (`withdraws`) and a reason."""

    kind: ImportKind
    file: str
    sha256: str
    who: str
    started_at: Instant
    number: int = 0
    published_at: Instant | None = None
    written: int = 0
    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    rejected: int = 0
    withdraws: int | None = None
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        stated = {name: getattr(self, name) for name in _STATED_OF_ONE}
        return stated | {"published_at": format_known(self.published_at)}


_COLUMNS: Final = tuple(Import.__dataclass_fields__)
_IMPORTS: Final = table("imports", *map(column, _COLUMNS))

_STATED_OF_ONE: Final = (
    "number", "published_at", "file", "who", "read", "new", "changed", "unchanged", "rejected",
    "withdraws", "reason", "sha256",
)  # fmt: skip

BEYOND: Final = 2**63 - 1
"""Greater than every import's number."""


async def newest_published(connection: AsyncConnection, *, as_of: Instant | None = None) -> int:
    """Return the number of the last import published by then (None: by now), 0 for none."""
    found = await connection.execute(
        text("SELECT coalesce(max(number), 0) FROM imports WHERE published_at <= :as_of"),
        {"as_of": LATEST if as_of is None else as_of},
    )
    return int(found.scalar_one())


async def under_way(connection: AsyncConnection) -> Import | None:
    """Return the import that is not published: alive if its `written` grows, else killed."""
    return await _one(connection, _IMPORTS.c.published_at.is_(None))


async def importing_alone(connection: AsyncConnection) -> None:
    """Let no other import begin until the transaction ends. Take this lock before all others."""
    await run(connection, take_lock, IMPORTING)


async def begin_import(connection: AsyncConnection, wanted: Import) -> tuple[Import, bool]:
    """Store an import as under way, in place of any other, with the next number.

    Returns it, and whether there was another, whose lines must then be undone.
    """
    await importing_alone(connection)
    # Delete first: this waits for an import that is being published, which then counts.
    left = await connection.execute(
        text("DELETE FROM imports WHERE published_at IS NULL RETURNING number")
    )
    another = left.first() is not None
    begun = replace(wanted, number=await newest_published(connection) + 1)
    await connection.execute(
        insert(_IMPORTS).values({name: getattr(begun, name) for name in _COLUMNS})
    )
    return begun, another


async def go_on(connection: AsyncConnection, of: Import, *, written: int) -> bool:
    """Store progress in the transaction that makes it.

    Returns False if another import began since: nothing more of this one may be written.
    """
    found = await connection.execute(
        text(
            "UPDATE imports SET written=:written WHERE number=:number AND sha256=:sha256 "
            "AND started_at=:started_at AND published_at IS NULL RETURNING number"
        ),
        {
            "written": written,
            "number": of.number,
            "sha256": of.sha256,
            "started_at": of.started_at,
        },
    )
    return found.first() is not None


async def publish_import(connection: AsyncConnection, done: Import, *, now: Instant) -> Instant:
    """Make an import visible, after all that was visible before. Returns the instant."""
    found = await connection.execute(text("SELECT max(published_at) FROM imports"))
    latest: Instant | None = found.scalar_one()
    at = now if latest is None else max(now, latest + TICK)
    await connection.execute(
        text(
            "UPDATE imports SET published_at=:at, read=:read, new=:new, changed=:changed, "
            "unchanged=:unchanged, rejected=:rejected WHERE number=:number"
        ),
        {
            "at": at,
            "number": done.number,
            "read": done.read,
            "new": done.new,
            "changed": done.changed,
            "unchanged": done.unchanged,
            "rejected": done.rejected,
        },
    )
    return at


_PUBLISHED: Final = _IMPORTS.c.published_at.is_not(None)


async def imports(
    connection: AsyncConnection, *, kind: ImportKind, limit: int, before: int = BEYOND
) -> list[Import]:
    """Return the published imports, newest first. before: only lower numbers."""
    number = _IMPORTS.c.number
    published = select(_IMPORTS).where(_IMPORTS.c.kind == kind, _PUBLISHED, number < before)
    rows = await connection.execute(published.order_by(number.desc()).limit(limit))
    return [import_of(row) for row in rows]


async def taken_back(connection: AsyncConnection, numbers: Sequence[int]) -> list[int]:
    """Return the numbers, of these, that a published import took back."""
    rows = await connection.execute(
        select(_IMPORTS.c.withdraws).where(_IMPORTS.c.withdraws.in_(numbers), _PUBLISHED)
    )
    return [row[0] for row in rows]


async def one_import(connection: AsyncConnection, number: int) -> Import | None:
    return await _one(connection, _IMPORTS.c.number == number, _PUBLISHED)


async def import_of_file(
    connection: AsyncConnection, *, kind: ImportKind, sha256: str
) -> int | None:
    """Return the newest import of a file with this digest that was not taken back."""
    withdrawn = select(_IMPORTS.c.withdraws).where(_IMPORTS.c.withdraws.is_not(None), _PUBLISHED)
    found = await connection.execute(
        select(_IMPORTS.c.number)
        .where(_IMPORTS.c.kind == kind, _IMPORTS.c.sha256 == sha256, _PUBLISHED)
        .where(_IMPORTS.c.withdraws.is_(None), _IMPORTS.c.number.not_in(withdrawn))
        .order_by(_IMPORTS.c.number.desc())
        .limit(1)
    )
    return found.scalar_one_or_none()


async def withdrawal_of(connection: AsyncConnection, number: int) -> Import | None:
    return await _one(connection, _IMPORTS.c.withdraws == number, _PUBLISHED)


async def _one(connection: AsyncConnection, *which: ColumnElement[bool]) -> Import | None:
    rows = await connection.execute(select(_IMPORTS).where(*which))
    row = rows.first()
    return None if row is None else import_of(row)


def import_of(row: Any) -> Import:
    return Import(**dict(zip(_COLUMNS, row, strict=True)))


# --- undoing what a killed import left ------------------------------------------------------------


async def key_stretches(
    connection: AsyncConnection, kind: ImportKind, *, lines: int = UNDOING
) -> AsyncIterator[str | None]:
    """Yield the last key of each stretch of so many lines; None for the last stretch."""
    (key,) = table(TABLES[kind], column(KEYS[kind][0])).c
    further = select(key).order_by(key).limit(1).offset(lines)
    last: str | None = ""
    while last is not None:
        found = await connection.execute(further.where(key > last))
        last = found.scalar_one_or_none()
        yield last


async def undo_stretch(
    connection: AsyncConnection, kind: ImportKind, *, after: str | None, to: str | None
) -> None:
    """Delete what no published import states, in a stretch of lines. None: from or to the end."""
    number = await newest_published(connection)
    lines = table(TABLES[kind], *map(column, (KEYS[kind][0], "since", "until")))
    key = lines.c[KEYS[kind][0]]
    forgotten = delete(lines).where(lines.c.since > number)
    in_force = update(lines).where(lines.c.until > number).values(until=None)
    if after is not None:
        forgotten, in_force = forgotten.where(key > after), in_force.where(key > after)
    if to is not None:
        forgotten, in_force = forgotten.where(key <= to), in_force.where(key <= to)
    await connection.execute(forgotten)
    await connection.execute(in_force)


# --- versions of lines ----------------------------------------------------------------------------


KNOWN: Final = "since <= :number AND (until IS NULL OR until > :number)"
"""Versions that the imports up to `:number` left in force."""

KNOWN_AT: Final = "since <= ? AND (until IS NULL OR until > ?)"
"""KNOWN with positional values: the number twice."""


HALF: Final = 1_000_000_000


def summed(expression: str) -> str:
    """Return two columns for `sum_of`: SQLite refuses a sum beyond 64 bits."""
    return statement("sum(({of}) / {half}), sum(({of}) % {half})", of=expression, half=str(HALF))


def sum_of(high: Any, low: Any) -> int:
    """Return the sum of two columns; PostgreSQL gives them as numeric."""
    return int(high) * HALF + int(low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A new line that may be meant to correct another one, which also counts.

    of            the subject of both, such as `refund of pay_1`
    minor, other  their amounts, of the new one and of the other
    number        the import by which the other one stands
    """

    of: str
    currency: str
    minor: int
    other: int
    number: int

    def __str__(self) -> str:
        here, there = (
            Money(minor=abs(m), currency=self.currency) for m in (self.minor, self.other)
        )
        return f"{self.of}, {here} beside {there} of import {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLine:
    """A line whose content an import changes; both versions are in the columns of CONTENT."""

    line: str
    before: Sequence[Any]
    after: Sequence[Any]


MOST_CHANGES: Final = 100
"""Changed lines kept of an import, to be shown; a file of all of them can be had."""

SHOWN_BESIDE: Final = 3
"""Lines named in a sentence."""

MOST_BESIDE: Final = 1_000
"""Lines counted at most."""


@dataclass(slots=True, kw_only=True)
class WrittenVersions:
    """Counts of rows by their effect: new lines, changed lines, and the rest.

    changes  the changed lines, of a whole import the first MOST_CHANGES
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    beside: list[Beside] = field(default_factory=list)
    changes: list[ChangedLine] = field(default_factory=list)

    def add(self, other: WrittenVersions) -> None:
        self.new += other.new
        self.changed += other.changed
        self.unchanged += other.unchanged
        self.beside += other.beside[: MOST_BESIDE - len(self.beside)]
        self.changes += other.changes[: MOST_CHANGES - len(self.changes)]

    def said_beside(self) -> list[str]:
        """Return a sentence on the lines in `beside`, if there are any."""
        if not self.beside:
            return []
        numbers = sorted({each.number for each in self.beside})
        one, left = len(numbers) == 1, len(self.beside) - SHOWN_BESIDE
        named = [str(each) for each in self.beside[:SHOWN_BESIDE]]
        named += [f"and {left:,} more"] if left > 0 else []
        earlier = f"import{'' if one else 's'} {', '.join(map(str, numbers))}"
        return [
            f"{'At least ' if len(self.beside) == MOST_BESIDE else ''}"
            f"{counted(len(self.beside), 'row counts', 'rows count')} beside another of the same "
            "payment or payout and the same day, which this file does not have: "
            f"{'; '.join(named)}. Where the file corrects {earlier}, take "
            f"{'that' if one else 'those'} back (`tallyhook statement withdraw`), and then import "
            "this file again."
        ]


def line_id_of(kind: ImportKind, keys: Sequence[Any]) -> str:
    """Return the id that all versions of a line share, such as `bok_` and 20 hex digits."""
    named = reversed(keys) if kind == "book" else keys
    digest = hashlib.blake2b("\x1f".join(map(str, named)).encode(), digest_size=10)
    return f"{_ID_PREFIXES[kind]}_{digest.hexdigest()}"


_ID_PREFIXES: Final[dict[ImportKind, str]] = {"book": "bok", "statement": "stm", "bank": "bnk"}


def write_versions(
    connection: PlainConnection, kind: ImportKind, fresh: Rows, behind: Rows, number: int | None
) -> None:
    """Add versions of an import, and end those that they supersede. number: None writes nothing.

    fresh   rows of KEYS and CONTENT
    behind  rows of KEYS and since
    """
    if number is None:
        return
    keys = KEYS[kind]
    if behind:
        _supersede(connection, TABLES[kind], (*keys, "since"), behind, number)
    width = len(keys)
    rows = [(*r[:width], number, line_id_of(kind, r[:width]), *r[width:]) for r in fresh]
    columns = (*keys, "since", "line", *CONTENT[kind])
    insert_rows(connection, table=TABLES[kind], columns=columns, rows=rows)


def _supersede(
    connection: PlainConnection, table: str, keys: Sequence[str], rows: Rows, number: int
) -> None:
    if connection.dialect == "sqlite":
        sql = statement(
            "UPDATE {table} SET until=? WHERE {same}",
            table=table,
            same=" AND ".join(f"{name}=?" for name in keys),
        )
        for row in rows:
            connection.ask(sql, (number, *row))
        return
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    kinds = ["bigint" if isinstance(column[0], int) else "text" for column in columns]
    sql = statement(
        "UPDATE {table} SET until=?::bigint FROM unnest({arrays}) AS behind ({keys}) WHERE {same}",
        table=table,
        arrays=", ".join(f"?::{kind}[]" for kind in kinds),
        keys=", ".join(keys),
        same=" AND ".join(f"{table}.{name}=behind.{name}" for name in keys),
    )
    connection.ask(sql, (number, *columns))


# --- taking an import back ------------------------------------------------------------------------

_MONEY: Final[dict[ImportKind, tuple[str, str]]] = {
    "book": ("one.minor", "placed_at"),
    "statement": ("CASE one.gross WHEN 0 THEN one.net ELSE one.gross END", "settled_at"),
    "bank": ("one.minor", "booked_at"),
}
"""The money of a line, and its date; a line that is only a fee has its money in `net`."""

_STANDING: Final = (
    "SELECT max(stated.since) FROM {table} AS stated WHERE {same} AND stated.since < :beyond "
    "AND stated.since NOT IN (SELECT number FROM imports WHERE withdraws IS NOT NULL) "
    "AND stated.since NOT IN (SELECT withdraws FROM imports "
    "WHERE withdraws IS NOT NULL AND published_at IS NOT NULL)"
)
"""The import by which a line stands, among those before `:beyond`."""

_BY_IT: Final = "one.since = :number{one_within} AND one.since = ({standing})"
"""A line that stands by the import `:number`, within a stretch of lines."""

LOOKING: Final = 20_000
"""Lines per statement that takes an import back. An import may have a million lines; a server ends
a statement after 15 s, in which about 300,000 fitted."""

_IN_FORCE: Final = (
    "SELECT one.currency, count(*), {sums}, "
    "sum(CASE WHEN one.{date} < :before THEN 1 ELSE 0 END) FROM {table} AS one WHERE {by_it} "
    "GROUP BY one.currency"
)

_STATE_AGAIN: Final = (
    "INSERT INTO {table} ({keys}, since, {content}) "
    "SELECT {one_keys}, :by, {content_before} FROM {table} AS one JOIN {table} AS before ON {both} "
    "WHERE {by_it} AND before.since = ({standing_before})"
)

_END: Final = (
    "UPDATE {table} SET until = :by WHERE until IS NULL AND since <> :by{within} AND EXISTS "
    "(SELECT 1 FROM {table} AS one WHERE {of_it} AND {by_it})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingLines:
    """The lines that stand by an import.

    lines   how many
    sums    their money by currency, in minor units, without signs
    before  number of lines dated before an instant
    """

    lines: int
    sums: dict[str, int]
    before: int


Stretch = Mapping[str, str]
"""Lines whose first key is beyond `after` and up to `to`; a missing end is open."""


def _sql(form: str, kind: ImportKind, stretch: Stretch) -> TextClause:
    """Build one of the statements above for a kind of import."""
    table, keys, own = TABLES[kind], KEYS[kind], CONTENT[kind]
    content = own if form is _CHANGED else ("line", *own)
    minor, date = _MONEY[kind]
    standing = statement(_STANDING, table=table, same=_equal("stated", "one", keys))
    names = {
        "table": table,
        "sums": summed(f"abs({minor})"),
        "date": date,
        "keys": ", ".join(keys),
        "one_keys": ", ".join(f"one.{name}" for name in keys),
        "content": ", ".join(content),
        "content_before": ", ".join(f"before.{name}" for name in content),
        "one_content": ", ".join(f"one.{name}" for name in content),
        "one_within": _within(f"one.{keys[0]}", stretch),
        "both": _equal("before", "one", keys),
        "of_it": _equal("one", table, keys),
        "by_it": statement(
            _BY_IT, one_within=_within(f"one.{keys[0]}", stretch), standing=standing
        ),
        "within": _within(f"{table}.{keys[0]}", stretch),
        "standing_before": standing.replace(":beyond", ":number"),
    }
    return text(
        statement(form, **{name: words for name, words in names.items() if f"{{{name}}}" in form})
    )


def _within(key: str, stretch: Stretch) -> str:
    beyond = f" AND {key} > :after" if "after" in stretch else ""
    return f"{beyond} AND {key} <= :to" if "to" in stretch else beyond


def _equal(one: str, other: str, keys: tuple[str, ...]) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in keys)


_EVERY: Final = 2**62
"""Beyond every import's number."""


async def standing_lines(
    connection: AsyncConnection, found: Import, *, before: Instant = EARLIEST
) -> StandingLines:
    """Return the lines that stand by an import. before: count those dated before it."""
    values = {"number": found.number, "beyond": _EVERY, "before": before}
    lines, sums, dated = 0, Counter[str](), 0
    async for stretch in _stretches_of(connection, found):
        look = _sql(_IN_FORCE, found.kind, stretch)
        for row in await connection.execute(look, {**values, **stretch}):
            lines += int(row[1])
            sums[row[0]] += sum_of(row[2], row[3])
            dated += int(row[4])
    return StandingLines(lines=lines, sums=dict(sums), before=dated)


async def _stretches_of(connection: AsyncConnection, found: Import) -> AsyncIterator[Stretch]:
    after: str | None = None
    async for to in key_stretches(connection, found.kind, lines=LOOKING):
        ends = {"after": after, "to": to}
        yield {name: end for name, end in ends.items() if end is not None}
        after = to


_CHANGED: Final = (
    "SELECT one.line, {content_before}, {one_content} FROM {table} AS one "
    "JOIN {table} AS before ON {both} AND before.until = :number "
    "WHERE one.since = :number{one_within} ORDER BY one.line"
)


async def changed_lines(
    connection: AsyncConnection, found: Import
) -> AsyncIterator[list[ChangedLine]]:
    """Yield the lines that an import changed, a stretch of lines at a time."""
    left, width = found.changed, len(CONTENT[found.kind])
    async for stretch in _stretches_of(connection, found):
        if not left:
            return
        rows = await connection.execute(
            _sql(_CHANGED, found.kind, stretch), {"number": found.number, **stretch}
        )
        lines = [
            ChangedLine(line=row[0], before=row[1 : width + 1], after=row[width + 1 :])
            for row in rows
        ]
        left -= len(lines)
        yield lines


async def take_back(connection: AsyncConnection, found: Import, *, by: int) -> int:
    """End the lines that stand by an import, and state again what was stated before.

    by  the import that takes it back; no published one may have done so
    Returns the number of lines stated again.
    """
    values: dict[str, Any] = {"number": found.number, "beyond": by, "by": by}
    restored = 0
    async for stretch in _stretches_of(connection, found):
        bound = {**values, **stretch}
        again = await connection.execute(_sql(_STATE_AGAIN, found.kind, stretch), bound)
        await connection.execute(_sql(_END, found.kind, stretch), bound)
        restored += again.rowcount
    return restored


async def later_imports(connection: AsyncConnection, found: Import) -> tuple[int, ...]:
    """Return the later imports of this kind that stand and found rows unchanged."""
    rows = await connection.execute(
        text(
            "SELECT number FROM imports WHERE kind = :kind AND number > :number AND unchanged > 0 "
            "AND withdraws IS NULL AND number NOT IN "
            "(SELECT withdraws FROM imports WHERE withdraws IS NOT NULL) ORDER BY number"
        ),
        {"kind": found.kind, "number": found.number},
    )
    return tuple(row[0] for row in rows)


async def named_by(connection: AsyncConnection, author: str) -> int:
    """Count the orders for which this author said what they were paid by."""
    found = await connection.scalar(
        text("SELECT count(DISTINCT order_key) FROM records WHERE author = :author"),
        {"author": author},
    )
    return int(found or 0)


# --- mappings that people saved by name -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMapping:
    """A mapping, saved by `who` at an instant."""

    name: str
    kind: ImportKind
    toml: str
    who: str
    at: Instant


_MAPPING_COLUMNS: Final = tuple(NamedMapping.__dataclass_fields__)
_MAPPINGS: Final = table("mappings", *map(column, _MAPPING_COLUMNS))


async def named_mappings(connection: AsyncConnection) -> list[NamedMapping]:
    """Return all mappings by name."""
    rows = await connection.execute(select(_MAPPINGS).order_by(_MAPPINGS.c.name))
    return [NamedMapping(**row._mapping) for row in rows]


async def save_mapping(connection: AsyncConnection, saved: NamedMapping) -> None:
    """Store a mapping in place of the one with its name."""
    await delete_mapping(connection, saved.name)
    values = {name: getattr(saved, name) for name in _MAPPING_COLUMNS}
    await connection.execute(insert(_MAPPINGS).values(values))


async def delete_mapping(connection: AsyncConnection, name: str) -> None:
    await connection.execute(delete(_MAPPINGS).where(_MAPPINGS.c.name == name))


# --- files of the watched folder that a person must look at ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTask:
    """A file that was not imported.

    folder   the folder in the import folder; empty: the import folder itself
    problem  why, and what to do, one sentence
    since    when that was first found
    """

    folder: str
    file: str
    problem: str
    since: Instant


_TASK_COLUMNS: Final = tuple(ImportTask.__dataclass_fields__)
_TASKS: Final = table("import_tasks", *map(column, _TASK_COLUMNS))


async def import_tasks(connection: AsyncConnection) -> list[ImportTask]:
    """Return all tasks, by folder and file; at most as many as the folder's look keeps."""
    rows = await connection.execute(select(_TASKS).order_by(_TASKS.c.folder, _TASKS.c.file))
    return [ImportTask(**row._mapping) for row in rows]


async def replace_import_tasks(connection: AsyncConnection, tasks: Sequence[ImportTask]) -> None:
    """Store these tasks in place of all others."""
    await connection.execute(delete(_TASKS))
    if tasks:
        values = [{name: getattr(each, name) for name in _TASK_COLUMNS} for each in tasks]
        await connection.execute(insert(_TASKS).values(values))
