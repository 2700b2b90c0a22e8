"""Reads a database of an earlier version as if it had been brought up to date, and changes nothing.

A column that is not there yet reads as its default, a table as empty: a temporary view, which hides
the table of its name from this connection, ends with the transaction, and is on no disk. Leaves
out: what a migration moves from one column to another.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Table, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection


async def read_as_newest(connection: AsyncConnection) -> None:
    """Until the end of the transaction, read every table with the columns that it will have."""
    await connection.run_sync(_hide_what_is_older)


def _hide_what_is_older(connection: Connection) -> None:
    from app.database.tables import metadata

    there = {
        name: {column["name"] for column in columns}
        for (_, name), columns in inspect(connection).get_multi_columns().items()
    }
    for table in metadata.tables.values():
        found = there.get(table.name, set())
        if found.issuperset(column.name for column in table.columns):
            continue
        connection.execute(text(_view(connection, table, found)))


def _view(connection: Connection, table: Table, found: set[str]) -> str:
    quoted = connection.dialect.identifier_preparer.quote
    columns = ", ".join(
        quoted(each.name) if each.name in found else _default(connection, each)
        for each in table.columns
    )
    name = quoted(table.name)
    if not found:
        return f"CREATE TEMPORARY VIEW {name} AS SELECT {columns} WHERE 1 = 0"
    schema = quoted(connection.dialect.default_schema_name or "main")
    return f"CREATE TEMPORARY VIEW {name} AS SELECT {columns} FROM {schema}.{name}"  # noqa: S608


def _default(connection: Connection, column: Column[object]) -> str:
    """What the column says of rows that are older than it."""
    given = getattr(column.server_default, "arg", None)
    kind = column.type.compile(connection.dialect).partition(" COLLATE")[0]
    value = "NULL" if given is None else str(given)
    return f"CAST({value} AS {kind}) AS {connection.dialect.identifier_preparer.quote(column.name)}"
