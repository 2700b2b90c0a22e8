"""Imports: numbered, one under way at a time, and seen by nobody before they are published.

    1 begin      what a killed import left is undone; the new one has the next number
    2 write      lines, some thousand in a transaction: nobody waits long for the writer
    3 publish    one row: from then on everyone sees all of it

A version of a line is of `since` and before `until`; so what was known at an instant is what the
imports published by then say (`newest_published`), whatever another one is writing meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import IMPORTING, take_lock
from app.database.statements import run
from reconcile.instants import LATEST, Instant

ImportKind = Literal["book", "statement"]

TABLES: Final = {"book": "book_lines", "statement": "statement_lines"}

FIRST_COLUMN: Final = {"book": "match_key", "statement": "subject"}
"""What the lines of each kind are walked by."""

UNDOING: Final = 1_000
"""Lines looked at in one transaction that undoes a killed import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import of a file. Counts are of rows; `published_at` is None while it is under way."""

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


_COLUMNS: Final = tuple(Import.__dataclass_fields__)


async def newest_published(connection: AsyncConnection, *, as_of: Instant | None = None) -> int:
    """The number of the last import that was published by then; None: by now. 0 for none."""
    found = await connection.execute(
        text("SELECT coalesce(max(number), 0) FROM imports WHERE published_at <= :as_of"),
        {"as_of": LATEST if as_of is None else as_of},
    )
    return int(found.scalar_one())


async def under_way(connection: AsyncConnection) -> Import | None:
    """The import that is not published: alive if its `written` grows, else killed."""
    found = await connection.execute(
        text(f"SELECT {', '.join(_COLUMNS)} FROM imports WHERE published_at IS NULL")  # noqa: S608
    )
    row = found.first()
    return None if row is None else _import_of(row)


async def begin_import(connection: AsyncConnection, wanted: Import) -> tuple[Import, bool]:
    """Write down that it is under way, instead of any other, with the next number.

    Returns it with its number, and whether another one was: what that wrote is then to be undone.
    """
    await run(connection, take_lock, IMPORTING)
    begun = replace(wanted, number=await newest_published(connection) + 1)
    left = await connection.execute(
        text("DELETE FROM imports WHERE published_at IS NULL RETURNING number")
    )
    another = left.first() is not None
    names = ", ".join(f":{name}" for name in _COLUMNS)
    await connection.execute(
        text(f"INSERT INTO imports ({', '.join(_COLUMNS)}) VALUES ({names})"),  # noqa: S608
        {name: getattr(begun, name) for name in _COLUMNS},
    )
    return begun, another


async def go_on(connection: AsyncConnection, of: Import, *, written: int) -> bool:
    """Note progress, in the transaction that makes it; False where another import began since,
    after which nothing more of this one may be written."""
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
    """Let everyone see it, after all that was seen before. Returns the instant."""
    found = await connection.execute(text("SELECT max(published_at) FROM imports"))
    at = max(now, (found.scalar_one() or 0) + 1)
    await connection.execute(
        text(
            "UPDATE imports SET published_at=:at, read=:read, new=:new, changed=:changed, "
            "unchanged=:unchanged, rejected=:rejected WHERE number=:number"
        ),
        {"at": at} | {n: getattr(done, n) for n in ("number", "read", "new", "changed",
                                                    "unchanged", "rejected")},
    )  # fmt: skip
    return at


async def imports(connection: AsyncConnection, *, kind: ImportKind, limit: int) -> list[Import]:
    """The published ones, newest first."""
    rows = await connection.execute(
        text(
            f"SELECT {', '.join(_COLUMNS)} FROM imports WHERE kind=:kind "  # noqa: S608
            "AND published_at IS NOT NULL ORDER BY number DESC LIMIT :limit"
        ),
        {"kind": kind, "limit": limit},
    )
    return [_import_of(row) for row in rows]


def _import_of(row: Any) -> Import:
    return Import(**dict(zip(_COLUMNS, row, strict=True)))


# --- undoing what a killed import left -------------------------------------------------------


async def stretches(connection: AsyncConnection, kind: ImportKind) -> AsyncIterator[str | None]:
    """Where to stop, some lines further each time; None at the end. For `undo_stretch`."""
    table, column = TABLES[kind], FIRST_COLUMN[kind]
    last: str | None = ""
    while last is not None:
        found = await connection.execute(
            text(
                f"SELECT {column} FROM {table} WHERE {column} > :last "  # noqa: S608
                f"ORDER BY {column} LIMIT 1 OFFSET {UNDOING}"
            ),
            {"last": last},
        )
        last = found.scalar_one_or_none()
        yield last


async def undo_stretch(
    connection: AsyncConnection, kind: ImportKind, *, after: str | None, to: str | None
) -> None:
    """Of the lines in a stretch, forget what no published import says. None: from or to the end."""
    number = await newest_published(connection)
    table, column = TABLES[kind], FIRST_COLUMN[kind]
    where = ("" if after is None else f" AND {column} > :after") + (
        "" if to is None else f" AND {column} <= :to"
    )
    given = {"after": after, "to": to}
    values = {"number": number} | {name: end for name, end in given.items() if end is not None}
    await connection.execute(text(f"DELETE FROM {table} WHERE since > :number{where}"), values)  # noqa: S608
    await connection.execute(
        text(f"UPDATE {table} SET until=NULL WHERE until > :number{where}"),  # noqa: S608
        values,
    )
