"""Cache of ledger lines: each order's contribution to a reconciliation."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import RECONCILING, take_lock
from app.database.statements import insert_rows, run, select_in, statement, stream
from reconcile.instants import Instant
from reconcile.matching.ledger_lines import LedgerLine, ledger_line_in, ledger_line_text
from reconcile.matching.rows import TakingRow, ledger_line_row

COLUMNS: Final = (
    "key",
    "order_key",
    "minor",
    "currency",
    "source",
    "payment",
    "cite",
    "at",
    "opened_at",
    "plain",
    "told",
    "generation",
    "until",
)

AT_ONCE: Final = 1_000

FLAT_AT_ONCE: Final = 4_000
"""Maximum number of plain rows in memory."""

_STALE: Final = (
    "SELECT {shown} FROM order_due LEFT JOIN takings ON takings.order_key = order_due.order_key "
    "WHERE takings.generation IS NULL OR takings.generation <> order_due.generation "
    "OR takings.until <= :now"
)
_STALE_ORDERS: Final = statement(_STALE, shown="order_due.order_key, order_due.generation")
_STALE_COUNT: Final = statement(_STALE, shown="count(*)")

_FLAT_COLUMNS: Final = statement(
    "{columns}, CASE plain WHEN 1 THEN NULL ELSE told END", columns=", ".join(COLUMNS[:9])
)
_FLAT: Final = "SELECT {row} FROM takings WHERE {keys} ORDER BY key, order_key"
_FLAT_OF_KEYS: Final = statement("SELECT {row} FROM takings WHERE key IN ({})", row=_FLAT_COLUMNS)
_WHOLE_OF_ORDERS: Final = statement(
    "SELECT {columns} FROM takings WHERE order_key IN ({})", columns=", ".join(COLUMNS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshLine:
    """Newly computed ledger line. `until` is the instant when the line becomes stale, or None."""

    order: str
    generation: int
    until: Instant | None
    taking: LedgerLine | None


async def stale_orders(
    connection: AsyncConnection, *, now: Instant
) -> AsyncIterator[list[tuple[str, int]]]:
    """Yield each order without a current ledger line, in batches. The number is the evidence's
    version."""
    async for rows in stream(connection, _STALE_ORDERS, at_once=AT_ONCE, values={"now": now}):
        yield [(row[0], row[1]) for row in rows]


async def count_stale(connection: AsyncConnection, *, now: Instant) -> int:
    found = await connection.execute(text(_STALE_COUNT), {"now": now})
    return int(found.scalar_one())


async def store_ledger_lines(connection: AsyncConnection, fresh: Sequence[FreshLine]) -> None:
    """Replace the ledger lines of these orders."""
    await run(connection, take_lock, RECONCILING)
    delete = "DELETE FROM takings WHERE order_key IN ({})"
    await select_in(connection, sql=delete, values=[each.order for each in fresh])
    rows = [
        row_of(each.taking, each.generation, each.until)
        for each in fresh
        if each.taking is not None
    ]
    await run(connection, insert_rows, table="takings", columns=COLUMNS, rows=rows)


def row_of(taking: LedgerLine, generation: int, until: Instant | None) -> tuple[Any, ...]:
    flat = ledger_line_row(taking)
    plain = int(flat.whole is None)
    return (*flat[:9], plain, ledger_line_text(taking), generation, until)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Range of keys; `beyond` is None for no end."""

    first: str = ""
    beyond: str | None = None

    def __contains__(self, key: str) -> bool:
        return key >= self.first and (self.beyond is None or key < self.beyond)

    @property
    def condition(self) -> str:
        return "key >= :first" if self.beyond is None else "key >= :first AND key < :beyond"

    @property
    def values(self) -> dict[str, str]:
        return {"first": self.first} | ({} if self.beyond is None else {"beyond": self.beyond})


EVERYTHING: Final = KeyRange()


async def count_ledger_lines(connection: AsyncConnection) -> int:
    found = await connection.execute(text("SELECT count(*) FROM takings"))
    return int(found.scalar_one())


async def keys_at(connection: AsyncConnection, places: Iterable[int]) -> list[str]:
    """Return the keys at these positions, counted from 0."""
    sql = text("SELECT key FROM takings ORDER BY key, order_key LIMIT 1 OFFSET :place")
    found = [await connection.scalar(sql, {"place": place}) for place in places]
    return [key for key in found if key is not None]


async def flat_ledger_lines(
    connection: AsyncConnection, *, as_of: Instant, within: KeyRange = EVERYTHING
) -> AsyncIterator[list[TakingRow]]:
    """Yield stored ledger lines as plain tuples, in batches."""
    sql = statement(_FLAT, row=_FLAT_COLUMNS, keys=within.condition)
    async for rows in stream(connection, sql, at_once=FLAT_AT_ONCE, values=within.values):
        yield [cast(TakingRow, row) if row[9] is None else _flat_in(row, as_of) for row in rows]


async def ledger_lines_of_keys(
    connection: AsyncConnection, keys: Iterable[str], *, as_of: Instant
) -> list[TakingRow]:
    """Return the stored ledger lines of these keys."""
    rows = await select_in(connection, sql=_FLAT_OF_KEYS, values=set(keys))
    return [_flat_in(row, as_of) for row in rows]


def _flat_in(row: Sequence[Any], as_of: Instant) -> TakingRow:
    flat = TakingRow(*row)
    return flat if row[9] is None else flat._replace(whole=ledger_line_in(row[9], as_of=as_of))


async def whole_ledger_lines(
    connection: AsyncConnection, *, as_of: Instant
) -> AsyncIterator[list[LedgerLine]]:
    """Yield stored ledger lines in full form, in batches."""
    sql = "SELECT told FROM takings ORDER BY key, order_key"
    async for rows in stream(connection, sql, at_once=AT_ONCE):
        yield [ledger_line_in(row[0], as_of=as_of) for row in rows]


async def stored_ledger_lines(
    connection: AsyncConnection, orders: Sequence[str]
) -> dict[str, tuple[Any, ...]]:
    rows = await select_in(connection, sql=_WHOLE_OF_ORDERS, values=orders)
    return {row[1]: row for row in rows}
