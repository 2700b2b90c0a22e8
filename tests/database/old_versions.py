"""A database as an earlier version left it, with rows in every table that it had."""

from __future__ import annotations

from typing import Any

from alembic import command
from sqlalchemy import Connection, column, insert, inspect, select, table

from app.database import schema
from app.database.schema import Made
from app.receiving.inbox import Inbox
from tests.database.contract_retention import NOT_BEFORE, fill_first_version, to_first_version

Contents = dict[str, list[dict[str, Any]]]
"""The rows of each table, in an order that does not depend on how they were written."""

VERSIONS = sorted(schema.known_versions())
TALLIES = "0023"
"""The version since which orders are counted by outcome and by finding."""
LARGE = 2**62
"""More than 32 bits hold, so that a column that became narrower would be seen."""


async def make_version(inbox: Inbox, version: str) -> Contents:
    """What the program of that version left, with rows that it and the first version wrote. Returns
    all that is in it."""
    if inbox.database.path is not None:
        Made(inbox.database.path).forget()  # what is made now is another database
    async with inbox.database.writing() as connection:
        await connection.run_sync(to_first_version)
        await schema.stamp_environment(connection, "sandbox")
        await connection.run_sync(fill_first_version)
        await connection.run_sync(bring_to, version)
        made: Contents = await connection.run_sync(_fill)
    assert min(map(len, made.values())) >= 2
    return made


async def contents(inbox: Inbox, made: Contents) -> Contents:
    """What is there now of the tables and columns that were made; later versions have others, too.
    Fails where one of them has gone."""
    async with inbox.database.reading() as connection:
        found: Contents = await connection.run_sync(_read, {n: [*r[0]] for n, r in made.items()})
    return found


def is_tally(counter: str) -> bool:
    """Whether this counter is a cache: of orders by outcome or by finding."""
    return counter.startswith(("outcome ", "finding "))


async def version_of(inbox: Inbox) -> str | None:
    """The version that the database says it has."""
    async with inbox.database.reading() as connection:
        return await schema.current_version(connection)


def bring_to(connection: Connection, version: str) -> None:
    """Run the migrations up to this version."""
    config = schema.alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, version)


def _fill(connection: Connection) -> Contents:
    """Two rows in each table that the database itself names: one with something in every column,
    one with nothing where it may. Returns all that is there then."""
    names = {}
    for (_, name), columns in inspect(connection).get_multi_columns().items():
        if name == "alembic_version":
            continue
        for number, chosen in enumerate((columns, [c for c in columns if not c["nullable"]])):
            row = {c["name"]: _value(name, c, number) for c in chosen}
            connection.execute(insert(table(name, *map(column, row))), row)
        names[name] = [c["name"] for c in columns]
    return _read(connection, names)


def _value(name: str, column: Any, number: int) -> Any:
    """What no other row has in this column."""
    kind = column["type"].python_type
    if kind is int:
        return LARGE + number
    words = f"{name}.{column['name']} é\n{number}"
    return words.encode() + b"\0\xff" if kind is bytes else words


def _read(connection: Connection, columns: dict[str, list[str]]) -> Contents:
    found = {}
    for name, names in columns.items():
        asking: Any = select(*map(column, names)).select_from(table(name))
        rows = connection.execute(asking).mappings()
        kept = [
            dict(row)
            for row in rows
            if not (name == "counters" and is_tally(row["name"]))
            and not (name == "meta" and row["name"] in NOT_BEFORE)
        ]
        found[name] = sorted(kept, key=repr)
    return found
