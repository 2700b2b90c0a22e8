"""Find the rows about one person by the columns that identify whose data the rows are."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.marks import MARK
from app.database.statements import select_in, statement, tables
from app.finance.book_line_store import LineKey
from app.privacy.erase_store import Key

NAMED_BY: Final[Mapping[str, str]] = {
    "order_key": "orders",
    "order_ref": "orders",
    "match_key": "keys",
    "subject": "subjects",
    "thing": "subjects",
    "delivery_id": "deliveries",
    "deliveries.id": "deliveries",
    "payment": "payments",
    "break_id": "breaks",
    "attachment_files.sha256": "files",
}
"""Kinds of things that identify a person's rows, by column."""

_FOUND: Final = 'SELECT {key} FROM {table} WHERE "{column}" IN ({})'
_ROW: Final = "SELECT {columns} FROM {table} WHERE {key}"
_IN: Final = 'SELECT "{wanted}" FROM {table} WHERE "{column}" IN ({})'


async def rows_named(
    connection: AsyncConnection, things: Mapping[str, Collection[str]]
) -> dict[str, set[Key]]:
    """Return the rows that name these things, by table."""
    found: dict[str, set[Key]] = {}
    for name, table in sorted(tables().tables.items()):
        if all(each.info[MARK].personal == "not" for each in table.columns if MARK in each.info):
            continue
        for column in table.columns:
            kind = NAMED_BY.get(f"{name}.{column.name}", NAMED_BY.get(column.name, ""))
            if not things.get(kind):
                continue
            key = ", ".join(f'"{each.name}"' for each in table.primary_key)
            sql = statement(_FOUND, key=key, table=name, column=column.name)
            rows = await select_in(connection, sql=sql, values=sorted(things[kind]))
            found.setdefault(name, set()).update(tuple(row) for row in rows)
    return found


async def row_of(connection: AsyncConnection, name: str, key: Key) -> dict[str, Any] | None:
    """Return a row by its table and primary key."""
    table = tables().tables[name]
    names = [each.name for each in table.columns]
    sql = statement(
        _ROW,
        columns=", ".join(f'"{each}"' for each in names),
        table=name,
        key=" AND ".join(f'"{each.name}" = :k{n}' for n, each in enumerate(table.primary_key)),
    )
    values = {f"k{number}": value for number, value in enumerate(key)}
    row = (await connection.execute(text(sql), values)).first()
    return None if row is None else dict(zip(names, row, strict=True))


async def values_in(
    connection: AsyncConnection, place: str, *, where: str, values: Collection[str]
) -> set[str]:
    """Return the values of the column `place` where the column `where` has `values`."""
    name, _, wanted = place.partition(".")
    sql = statement(_IN, wanted=wanted, table=name, column=where)
    rows = await select_in(connection, sql=sql, values=sorted(values))
    return {row[0] for row in rows if row[0] is not None}


_PAYMENTS: Final = (
    "SELECT source, payment FROM events WHERE payment IS NOT NULL AND order_key IN ({})",
    "SELECT source, payment FROM records WHERE payment IS NOT NULL AND order_key IN ({})",
)


async def payments_of(
    connection: AsyncConnection, orders: Collection[str]
) -> set[tuple[str | None, str]]:
    """Return (source, reference) for each payment of these orders."""
    found = [await select_in(connection, sql=each, values=sorted(orders)) for each in _PAYMENTS]
    return {(row[0], row[1]) for rows in found for row in rows}


async def orders_of_lines(connection: AsyncConnection, lines: Collection[LineKey]) -> set[str]:
    """Return the known orders of these order-book lines."""
    keys = sorted({each[0] for each in lines})
    sql = "SELECT order_key FROM takings WHERE key IN ({})"
    return {row[0] for row in await select_in(connection, sql=sql, values=keys)}
