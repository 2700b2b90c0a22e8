"""Compare an imported file with the current lines, and write new versions of changed lines.
Withdrawing an import restores the versions before the import."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import TextClause, column, delete, select, table, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.text import counted
from app.database import statements
from app.finance import import_store
from reconcile.instants import EARLIEST, Instant
from reconcile.matching.rows import Moved, is_like, is_same, paired
from reconcile.money import Money
from reconcile.periods import IN_UTC, Calendar

Row = tuple[Any, ...]

# --- kinds of lines -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LineKind:
    """Kind of line."""

    table: str
    prefix: str
    group: tuple[str, ...]
    """Columns that identify a line or a group of lines."""
    numbered: bool = True
    """True if lines of a group differ by `ordinal`."""
    content: tuple[str, ...]
    texts: int = 0
    """Number of texts, at the end of `content`, that an erasure can rewrite."""
    erased: Callable[[Any], bool] = lambda text: False
    money: str
    date: str

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.group, "ordinal") if self.numbered else self.group

    def key(self, group: Row, ordinal: int) -> Row:
        return (*group, ordinal) if self.numbered else group

    def line_id(self, key: Row) -> str:
        """Return a line's id: a prefix and 20 hex digits."""
        named = key if self.numbered else reversed(key)
        digest = hashlib.blake2b("\x1f".join(map(str, named)).encode(), digest_size=10)
        return f"{self.prefix}_{digest.hexdigest()}"

    def erased_of(self, versions: statements.Rows) -> dict[Row, Row]:
        """Return each line's newest version with an erased text. A new import must not restore that
        text."""
        keys = len(self.keys)
        return {
            each[:keys]: each
            for each in sorted(versions, key=itemgetter(keys))
            if any(map(self.erased, each[-self.texts :]))
        }

    def pairs(
        self, group: Row, stated: list[Row], known: list[Row], calendar: Calendar
    ) -> Sequence[int | None]:
        """Return, for each row, the known line's index, or None."""
        return paired(stated=stated, known=known, same=lambda row, line: True)

    def restated(self, content: Row, before: Row) -> Row:
        """Return the content of a line's new version."""
        return content

    def beside(
        self, group: Row, new: list[Row], left: statements.Rows, calendar: Calendar
    ) -> list[Beside]:
        """Return new lines that can be corrections of earlier lines."""
        return []


class _Statements(LineKind):
    """Kind of the lines of statements."""

    def pairs(
        self, group: Row, stated: list[Row], known: list[Row], calendar: Calendar
    ) -> Sequence[int | None]:
        return paired(
            stated=[_moved(group, row) for row in stated],
            known=[_moved(group, row) for row in known],
            same=partial(is_same, calendar=calendar),
        )

    def beside(
        self, group: Row, new: list[Row], left: statements.Rows, calendar: Calendar
    ) -> list[Beside]:
        found = []
        for row in new if group[1] != "payment" else ():
            moved = _moved(group, row)
            like = (each for each in left if is_like(moved, _moved(group, each[1:]), calendar))
            if (other := next(like, None)) is None:
                continue
            left.remove(other)
            (there, before), (here, minor) = _moved(group, other[1:]).money, moved.money
            if there == here:
                of = f"{group[1]} of {row[1] or row[2] or row[8]}"
                found.append(
                    Beside(of=of, currency=here, minor=minor, other=before, number=other[0])
                )
        return found


class _BankLines(LineKind):
    """Kind of the lines of bank accounts. An empty text keeps the text's earlier content."""

    def restated(self, content: Row, before: Row) -> Row:
        texts = zip(content[-self.texts :], before[-self.texts :], strict=True)
        return (*content[: -self.texts], *(new or old for new, old in texts))


def _moved(group: Row, content: Row) -> Moved:
    # A line with only a fee has its money in `net`.
    return Moved(
        kind=group[1],
        stated=content,
        money=(content[3], content[6] if group[1] == "fee" else content[4]),
        settled_at=content[7],
        payout=content[8],
        wallet=content[9],
    )


ERASED_PHONE: Final = ""
"""Text in place of an erased phone number."""

ERASED_NUMBER: Final = "•"
"""Text in place of an erased number in a bank's text."""

LINES: Final[Mapping[import_store.ImportKind, LineKind]] = {
    "book": LineKind(
        table="book_lines",
        prefix="bok",
        group=("match_key", "kind"),
        numbered=False,
        content=(
            "reference", "minor", "currency", "placed_at", "status", "group_key", "group_name",
            "refunded", "refunded_at", "method", "phone",
        ),
        texts=1,
        erased=lambda phone: phone == ERASED_PHONE,
        money="one.minor",
        date="placed_at",
    ),
    "statement": _Statements(
        table="statement_lines",
        prefix="stm",
        group=("subject", "kind", "source"),
        content=(
            "match_key", "payment", "order_ref", "currency", "gross", "fee", "net", "settled_at",
            "payout", "wallet", "refund", "details", "balance",
        ),
        # A line with only a fee has its money in `net`.
        money="CASE one.gross WHEN 0 THEN one.net ELSE one.gross END",
        date="settled_at",
    ),
    "bank": _BankLines(
        table="bank_lines",
        prefix="bnk",
        group=("subject",),
        content=(
            "account", "currency", "minor", "booked_at", "entry", "reference", "counterparty",
            "told",
        ),
        texts=4,
        erased=lambda words: ERASED_NUMBER in words,
        money="one.minor",
        date="booked_at",
    ),
}  # fmt: skip


# --- effects of an import on lines ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """New line that can correct an earlier line."""

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
    """Line whose content an import changes, before and after."""

    line: str
    before: Sequence[Any]
    after: Sequence[Any]


MOST_CHANGES: Final = 100

SHOWN_BESIDE: Final = 3

MOST_BESIDE: Final = 1_000


@dataclass(slots=True, kw_only=True)
class WrittenVersions:
    """Numbers of new, changed and unchanged lines."""

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
        """Return a sentence on lines that can correct others."""
        if not self.beside:
            return []
        numbers = sorted({each.number for each in self.beside})
        one, left = len(numbers) == 1, len(self.beside) - SHOWN_BESIDE
        named = [str(each) for each in self.beside[:SHOWN_BESIDE]]
        named += [f"and {left:,} more"] if left > 0 else []
        earlier = f"import{'' if one else 's'} {', '.join(map(str, numbers))}"
        count = counted(len(self.beside), "row counts", "rows count")
        return [
            f"{'At least ' if len(self.beside) == MOST_BESIDE else ''}{count} in addition to "
            "rows that earlier imports have for the same payment or payout and day, and that this "
            "file lacks: "
            f"{'; '.join(named)}. If this file corrects {earlier}, withdraw "
            f"{'that' if one else 'those'} (`tallyhook statement withdraw`), and then import "
            "this file again."
        ]


async def write_lines(
    connection: AsyncConnection,
    rows: statements.Rows,
    *,
    kind: import_store.ImportKind,
    number: int | None,
    calendar: Calendar = IN_UTC,
) -> WrittenVersions:
    """Write new versions of lines that an import changes. Without a `number`, changes are only
    counted."""
    return await statements.run(connection, _write, rows, LINES[kind], number, calendar)


def _write(
    connection: statements.PlainConnection,
    rows: statements.Rows,
    lines: LineKind,
    number: int | None,
    calendar: Calendar,
) -> WrittenVersions:
    width, keys = len(lines.group), len(lines.keys)
    end, first = width + len(lines.content), keys + 2
    versions = _versions_of(connection, lines, rows)
    counts, fresh, behind = WrittenVersions(), statements.Rows(), statements.Rows()
    if not (versions or lines.numbered):
        fresh, counts.new, rows = rows, len(rows), []
    for group, some in groupby(rows, key=itemgetter(slice(width))):
        stated, earlier = [row[width:end] for row in some], versions.get(group, [])
        held = [each for each in earlier if each[keys + 1] is None]
        if [each[first:] for each in held] == stated:
            counts.unchanged += len(stated)
            continue
        if not earlier:
            fresh += [(*lines.key(group, place), *content) for place, content in enumerate(stated)]
            counts.new += len(stated)
            continue
        held.sort(key=itemgetter(keys - 1))
        known = [each[first:] for each in held]
        erased = lines.erased_of(earlier)
        pairs = lines.pairs(group, stated, known, calendar) if held else [None] * len(stated)
        taken = {each[keys - 1] for each in held}
        free = (ordinal for ordinal in count() if ordinal not in taken)
        for content, place in zip(stated, pairs, strict=True):
            before = None if place is None else known[place]
            key = lines.key(group, next(free)) if place is None else held[place][:keys]
            if before is not None:
                content = lines.restated(content, before)
            if key in erased:
                texts = erased[key] if before is None else before
                content = (*content[: -lines.texts], *texts[-lines.texts :])
            if content == before:
                counts.unchanged += 1
                continue
            fresh.append((*key, *content))
            if place is None or before is None:
                counts.new += 1
                continue
            counts.changed += 1
            behind.append(held[place][: keys + 1])
            line = lines.line_id(key)
            counts.changes.append(ChangedLine(line=line, before=before, after=content))
        if held and None in pairs:
            new = [row for row, place in zip(stated, pairs, strict=True) if place is None]
            left = [each for place, each in enumerate(held) if place not in pairs]
            left = [(each[keys], *each[first:]) for each in left]
            counts.beside += lines.beside(group, new, left, calendar)
    if number is not None:
        _supersede(connection, lines, behind, number)
        end = keys + len(lines.content)
        stated_now = [
            (*(key := row[:keys]), number, lines.line_id(key), *row[keys:end]) for row in fresh
        ]
        columns = (*lines.keys, "since", "line", *lines.content)
        statements.insert_rows(connection, table=lines.table, columns=columns, rows=stated_now)
    return counts


def _versions_of(
    connection: statements.PlainConnection, lines: LineKind, rows: statements.Rows
) -> dict[Row, statements.Rows]:
    found, firsts = defaultdict[Row, statements.Rows](list), {row[0] for row in rows}
    # A file with only new lines, such as the first file, needs no lookup of its keys.
    any_between = statements.statement(
        "SELECT 1 FROM {table} WHERE {key} BETWEEN ? AND ? LIMIT 1",
        table=lines.table,
        key=lines.group[0],
    )
    if not firsts or not connection.ask(any_between, (min(firsts), max(firsts))):
        return found
    sql = statements.statement(
        "SELECT {keys}, since, until, {content} FROM {table} WHERE {key} IN ({}){in_force}",
        keys=", ".join(lines.keys),
        content=", ".join(lines.content),
        table=lines.table,
        key=lines.group[0],
        in_force="" if lines.texts else " AND until IS NULL",
    )
    width = len(lines.group)
    for row in statements.select_rows(connection, sql=sql, values=firsts):
        found[row[:width]].append(row)
    return found


def _supersede(
    connection: statements.PlainConnection, lines: LineKind, rows: statements.Rows, number: int
) -> None:
    keys = (*lines.keys, "since")
    if connection.dialect == "sqlite":
        sql = statements.statement(
            "UPDATE {table} SET until=? WHERE {same}",
            table=lines.table,
            same=" AND ".join(f"{name}=?" for name in keys),
        )
        for row in rows:
            connection.ask(sql, (number, *row))
        return
    if not rows:
        return
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    kinds = ["bigint" if isinstance(column[0], int) else "text" for column in columns]
    sql = statements.statement(
        "UPDATE {table} SET until=?::bigint FROM unnest({arrays}) AS behind ({keys}) WHERE {same}",
        table=lines.table,
        arrays=", ".join(f"?::{kind}[]" for kind in kinds),
        keys=", ".join(keys),
        same=" AND ".join(f"{lines.table}.{name}=behind.{name}" for name in keys),
    )
    connection.ask(sql, (number, *columns))


# --- lines as of an instant -----------------------------------------------------------------------


async def lines_known(
    connection: AsyncConnection,
    kind: import_store.ImportKind,
    columns: str,
    *,
    as_of: Instant,
    **having: Iterable[str],
) -> statements.Rows:
    """Return the lines that have one of the wanted values."""
    number, found = await import_store.newest_published(connection, as_of=as_of), dict[Row, None]()
    for name, values in having.items():
        sql = statements.statement(
            "SELECT {columns} FROM {table} WHERE {known} AND {name} IN ({})",
            columns=columns,
            table=LINES[kind].table,
            known=import_store.KNOWN.replace(":number", "?"),
            name=name,
        )
        rows = await statements.select_in(
            connection, sql=sql, values=set(values), first=(number, number)
        )
        found |= dict.fromkeys(rows)
    return list(found)


# --- undoing what a killed import left ------------------------------------------------------------

UNDOING: Final = 1_000
"""Number of lines per transaction when a killed import is undone."""


async def key_stretches(
    connection: AsyncConnection, kind: import_store.ImportKind, *, lines: int = UNDOING
) -> AsyncIterator[str | None]:
    """Yield the last key of each range; None for the last."""
    (key,) = table(LINES[kind].table, column(LINES[kind].group[0])).c
    further = select(key).order_by(key).limit(1).offset(lines)
    last: str | None = ""
    while last is not None:
        found = await connection.execute(further.where(key > last))
        last = found.scalar_one_or_none()
        yield last


async def undo_stretch(
    connection: AsyncConnection, kind: import_store.ImportKind, *, after: str | None, to: str | None
) -> None:
    """Undo an unpublished import for a range of lines."""
    number = await import_store.newest_published(connection)
    first = LINES[kind].group[0]
    lines = table(LINES[kind].table, *map(column, (first, "since", "until")))
    key = lines.c[first]
    forgotten = delete(lines).where(lines.c.since > number)
    in_force = update(lines).where(lines.c.until > number).values(until=None)
    if after is not None:
        forgotten, in_force = forgotten.where(key > after), in_force.where(key > after)
    if to is not None:
        forgotten, in_force = forgotten.where(key <= to), in_force.where(key <= to)
    await connection.execute(forgotten)
    await connection.execute(in_force)


# --- withdrawing an import ------------------------------------------------------------------------

_STANDING: Final = (
    "SELECT max(stated.since) FROM {table} AS stated WHERE {same} AND stated.since < :beyond "
    "AND stated.since NOT IN (SELECT number FROM imports WHERE withdraws IS NOT NULL) "
    "AND stated.since NOT IN (SELECT withdraws FROM imports "
    "WHERE withdraws IS NOT NULL AND published_at IS NOT NULL){made}"
)

_MADE: Final = (
    " AND (stated.since = :number OR (stated.since, stated.account) IN "
    "(SELECT of_import, name FROM coverage WHERE kind = 'bank'))"
)

_BY_IT: Final = "one.since = :number{one_within} AND one.since = ({standing})"

LOOKING: Final = 20_000
"""Number of lines per SQL statement of a withdrawal."""

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
    """Lines whose current version comes from an import. Sums are minor units without signs."""

    lines: int
    sums: dict[str, int]
    before: int


Stretch = Mapping[str, str]
"""Range of lines by the first column of their key."""


def _sql(form: str, kind: import_store.ImportKind, stretch: Stretch) -> TextClause:
    table, keys, own = LINES[kind].table, LINES[kind].keys, LINES[kind].content
    content = own if form is _CHANGED else ("line", *own)
    made = _MADE if kind == "bank" else ""
    standing = statements.statement(
        _STANDING, table=table, same=_equal("stated", "one", keys), made=made
    )
    names = {
        "table": table,
        "sums": import_store.summed(f"abs({LINES[kind].money})"),
        "date": LINES[kind].date,
        "keys": ", ".join(keys),
        "one_keys": ", ".join(f"one.{name}" for name in keys),
        "content": ", ".join(content),
        "content_before": ", ".join(f"before.{name}" for name in content),
        "one_content": ", ".join(f"one.{name}" for name in content),
        "one_within": _within(f"one.{keys[0]}", stretch),
        "both": _equal("before", "one", keys),
        "of_it": _equal("one", table, keys),
        "by_it": statements.statement(
            _BY_IT, one_within=_within(f"one.{keys[0]}", stretch), standing=standing
        ),
        "within": _within(f"{table}.{keys[0]}", stretch),
        "standing_before": standing.replace(":beyond", ":number"),
    }
    return text(
        statements.statement(
            form, **{name: words for name, words in names.items() if f"{{{name}}}" in form}
        )
    )


def _within(key: str, stretch: Stretch) -> str:
    beyond = f" AND {key} > :after" if "after" in stretch else ""
    return f"{beyond} AND {key} <= :to" if "to" in stretch else beyond


def _equal(one: str, other: str, keys: tuple[str, ...]) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in keys)


_EVERY: Final = 2**62
"""Number greater than the number of any import."""


async def standing_lines(
    connection: AsyncConnection, found: import_store.Import, *, before: Instant = EARLIEST
) -> StandingLines:
    """Count an import's current lines, and the earlier ones."""
    values = {"number": found.number, "beyond": _EVERY, "before": before}
    lines, sums, dated = 0, Counter[str](), 0
    async for stretch in _stretches_of(connection, found):
        look = _sql(_IN_FORCE, found.kind, stretch)
        for row in await connection.execute(look, {**values, **stretch}):
            lines += int(row[1])
            sums[row[0]] += import_store.sum_of(row[2], row[3])
            dated += int(row[4])
    return StandingLines(lines=lines, sums=dict(sums), before=dated)


async def _stretches_of(
    connection: AsyncConnection, found: import_store.Import
) -> AsyncIterator[Stretch]:
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
    connection: AsyncConnection, found: import_store.Import
) -> AsyncIterator[list[ChangedLine]]:
    """Yield the lines that an import changed, in batches."""
    left, width = found.changed, len(LINES[found.kind].content)
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


async def take_back(connection: AsyncConnection, found: import_store.Import, *, by: int) -> int:
    """End a withdrawn import's versions, and restore the earlier versions."""
    values: dict[str, Any] = {"number": found.number, "beyond": by, "by": by}
    restored = 0
    async for stretch in _stretches_of(connection, found):
        bound = {**values, **stretch}
        again = await connection.execute(_sql(_STATE_AGAIN, found.kind, stretch), bound)
        await connection.execute(_sql(_END, found.kind, stretch), bound)
        restored += again.rowcount
    return restored
