"""Versions of lines: which of them were known at an instant, and how one supersedes another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.database.statements import PlainConnection, Rows

KNOWN: Final = "since <= :number AND (until IS NULL OR until > :number)"
"""The versions that the imports up to `:number` left in force."""


@dataclass(slots=True, kw_only=True)
class Written:
    """What became of rows: lines never seen, lines that say something else now, and the rest."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0

    def add(self, other: Written) -> None:
        """Count these, too."""
        self.new += other.new
        self.changed += other.changed
        self.unchanged += other.unchanged


def supersede(
    connection: PlainConnection, *, table: str, keys: Sequence[str], rows: Rows, number: int
) -> None:
    """Say of versions, by their primary keys, that this import superseded them."""
    if connection.dialect == "sqlite":
        where = " AND ".join(f"{name}=?" for name in keys)
        sql = f"UPDATE {table} SET until=? WHERE {where}"  # noqa: S608
        for row in rows:
            connection.ask(sql, (number, *row))
        return
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    kinds = ["bigint" if isinstance(column[0], int) else "text" for column in columns]
    arrays = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(kinds, 2))
    where = " AND ".join(f"{table}.{name}=behind.{name}" for name in keys)
    connection.ask(
        f"UPDATE {table} SET until=$1::bigint FROM unnest({arrays}) "  # noqa: S608
        f"AS behind ({', '.join(keys)}) WHERE {where}",
        (number, *columns),
    )
