"""Rows that must be put in order or looked through before anything is done with them.

They lie in a temporary SQLite database without a name, which grows on the disk of `TMPDIR` and of
which nothing is left when the process ends, however it ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from app.core.errors import StoreUnavailable
from app.database.statements import Rows

CACHE_KIB: Final = 32_768
"""What stays in memory of it."""

AT_ONCE: Final = 4_000
"""Rows in memory at a time."""


class Staged:
    """Rows of the same columns, to be read again in the order of some of these."""

    def __init__(self, columns: Sequence[str], *, order: Sequence[str]) -> None:
        self._columns, self._order = columns, ", ".join(order)
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

    def in_order(self) -> Iterator[Rows]:
        """All of them in order, some thousand at a time."""
        yield from self._batches(f"SELECT * FROM staged ORDER BY {self._order}")  # noqa: S608

    def crowded(self, of: Sequence[str], *, at_most: int) -> Iterator[tuple[Any, Any]]:
        """The rows of which more than `at_most` are equal in these columns: of each the first
        column, after that of the first of its equals."""
        number, names = self._columns[0], ", ".join(of)
        equal = " AND ".join(f"staged.{name}=crowd.{name}" for name in of)
        sql = (
            f"SELECT crowd.first, staged.{number} FROM (SELECT {names}, min({number}) AS first "  # noqa: S608
            f"FROM staged GROUP BY {names} HAVING count(*) > {at_most}) AS crowd "
            f"JOIN staged ON {equal} ORDER BY 1, 2"
        )
        for rows in self._batches(sql):
            yield from rows

    def drop_crowded(self, of: Sequence[str], *, at_most: int) -> None:
        """Forget these rows."""
        names = ", ".join(of)
        with _explained():
            self._database.execute(
                f"DELETE FROM staged WHERE ({names}) IN (SELECT {names} FROM staged "  # noqa: S608
                f"GROUP BY {names} HAVING count(*) > {at_most})"
            )

    def drop_without(self, name: str) -> None:
        """Forget the rows that have nothing in this column."""
        with _explained():
            self._database.execute(f"DELETE FROM staged WHERE {name} IS NULL")  # noqa: S608

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget the rows of these numbers, which stand in the first column."""
        with _explained():
            self._database.executemany(
                f"DELETE FROM staged WHERE {self._columns[0]} = ?",  # noqa: S608
                [(number,) for number in numbers],
            )

    def having(self, name: str) -> Iterator[Rows]:
        """The rows that have something in this column, some thousand at a time."""
        yield from self._batches(f"SELECT * FROM staged WHERE {name} IS NOT NULL")  # noqa: S608

    def count(self) -> int:
        """How many rows are kept."""
        (found,) = self._database.execute("SELECT count(*) FROM staged").fetchone()
        return int(found)

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
