"""Rows that must be put in order or looked through before anything is done with them.

They lie in a temporary SQLite database without a name, which grows on the disk of `TMPDIR` and of
which nothing is left when the process ends, however it ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from app.errors import StoreUnavailable
from app.store.statements import Rows

CACHE_KIB: Final = 32_768
"""What stays in memory of it."""

AT_ONCE: Final = 4_000
"""Rows in memory at a time."""


class Staged:
    """Rows of the same columns, to be read again in the order of some of these."""

    def __init__(self, columns: Sequence[str], *, order: Sequence[str]) -> None:
        self._order = ", ".join(order)
        self._insert = f"INSERT INTO staged VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KIB}"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute(f"CREATE TABLE staged ({', '.join(columns)})")
        self._database.execute("BEGIN")

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Keep these, too. Raises StoreUnavailable on a full disk."""
        with _explained():
            self._database.executemany(self._insert, rows)

    def in_order(self, *, where: str = "TRUE") -> Iterator[Rows]:
        """All of them in order, some thousand at a time."""
        yield from self._batches(f"SELECT * FROM staged WHERE {where} ORDER BY {self._order}")  # noqa: S608

    def doubles(self, of: Sequence[str], *, number: str) -> Iterator[tuple[int, int]]:
        """(number of the first, number of another) of rows that are equal in these columns."""
        names = ", ".join(of)
        equal = " AND ".join(f"staged.{name}=twice.{name}" for name in of)
        sql = (
            f"SELECT twice.first, staged.{number} FROM (SELECT {names}, min({number}) AS first "  # noqa: S608
            f"FROM staged GROUP BY {names} HAVING count(*) > 1) AS twice "
            f"JOIN staged ON {equal} AND staged.{number} <> twice.first"
        )
        for rows in self._batches(sql):
            yield from rows

    def drop(self, column: str, values: Iterable[Any]) -> None:
        """Forget the rows that have one of these values."""
        sql = f"DELETE FROM staged WHERE {column}=?"  # noqa: S608
        with _explained():
            self._database.executemany(sql, ((value,) for value in values))

    def _batches(self, sql: str) -> Iterator[Rows]:
        with _explained():
            cursor = self._database.execute(sql)
            while rows := cursor.fetchmany(AT_ONCE):
                yield rows

    def close(self) -> None:
        """Forget all of them."""
        self._database.close()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(
            f"the disk for temporary files (TMPDIR) cannot take this: {error}"
        ) from error
