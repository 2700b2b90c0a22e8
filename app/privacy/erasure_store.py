"""The database's copy of the journal of erasures: the lines that were carried out in it.

What the file has beyond them is still to be done here: after a crash, or in an older backup.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import insert_rows, run, stream

_NAME: Final = "erasure journal"
"""In `meta`: which journal this database is with."""

AT_ONCE: Final = 1_000


async def journal_name(connection: AsyncConnection) -> str | None:
    """The journal that this database is with; None before there is one."""
    found: str | None = await connection.scalar(
        text("SELECT value FROM meta WHERE name = :name"), {"name": _NAME}
    )
    return found


async def carried_out(connection: AsyncConnection) -> list[str]:
    """The lines of that journal that were carried out here, in its order."""
    rows = await connection.execute(
        text(
            "SELECT line FROM erasures WHERE journal = "
            "(SELECT value FROM meta WHERE name = :name) ORDER BY number"
        ),
        {"name": _NAME},
    )
    return [row[0] for row in rows]


async def note_journal(connection: AsyncConnection, name: str, *, instead: bool = False) -> None:
    """Be with this journal from now on, unless there is one. `instead`: also then."""
    do = "UPDATE SET value = excluded.value" if instead else "NOTHING"
    await connection.execute(
        text(
            "INSERT INTO meta (name, value) VALUES (:name, :value) "  # noqa: S608
            f"ON CONFLICT (name) DO {do}"
        ),
        {"name": _NAME, "value": name},
    )


async def note_carried_out(
    connection: AsyncConnection, name: str, lines: Iterable[tuple[int, str]]
) -> None:
    """Add lines, with their numbers; those that are there stay."""
    await run(
        connection,
        insert_rows,
        table="erasures",
        columns=("journal", "number", "line"),
        rows=[(name, number, line) for number, line in lines],
        conflict="ON CONFLICT DO NOTHING",
    )


async def known_references(connection: AsyncConnection) -> AsyncIterator[list[str]]:
    """Every order's reference, and those in order books, some at a time; a few more than once."""
    for sql in ("SELECT order_key FROM order_due", "SELECT DISTINCT reference FROM book_lines"):
        async for rows in stream(connection, sql, at_once=AT_ONCE):
            yield [row[0] for row in rows]


async def known_digests(connection: AsyncConnection) -> AsyncIterator[list[bytes]]:
    """The digest of every phone number by which an order is found."""
    sql = "SELECT DISTINCT digest FROM phones"
    async for rows in stream(connection, sql, at_once=AT_ONCE):
        yield [bytes(row[0]) for row in rows]


async def known_phones(connection: AsyncConnection) -> AsyncIterator[list[str]]:
    """What stands as phone numbers in order books, and the session requests that wait."""
    for sql in (
        "SELECT DISTINCT phone FROM book_lines WHERE phone > ''",
        "SELECT request FROM unanswered",
    ):
        async for rows in stream(connection, sql, at_once=AT_ONCE):
            yield [row[0] for row in rows]
