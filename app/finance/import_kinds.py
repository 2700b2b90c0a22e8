"""What can be imported, how it is asked for, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.access.operators import Action
from app.database.engine import Connection
from app.finance.book_line_store import compare_book, write_book
from app.finance.files.books import REFERENCES
from app.finance.files.forms import Form
from app.finance.files.mapping import FileMapping
from app.finance.files.tables import Problem
from app.finance.import_store import ImportKind
from app.finance.line_version_store import Written
from app.finance.statement_store import compare_statement, write_statement

MAX_PROBLEMS: Final = 100
"""Problems that are told; the others are counted."""

Write = Callable[..., Awaitable[Written]]

Progress = Callable[[int, int | None], None]
"""(rows so far, rows in all): first as they are read, when nobody knows how many there are, then
as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What can be imported.

    order           of the columns in which the store wants the rows
    identity        columns in which at most `at_most` rows of a file may be equal, the first ones
    names           the field of the file that a row too many is told of; where only one row may be,
                    a column that every good row has, too
    compare, write  what the store does with staged rows
    """

    name: ImportKind
    action: Action
    order: Sequence[str]
    identity: Sequence[str]
    at_most: int
    names: str
    compare: Write
    write: Write

    def too_many(self, other: int) -> str:
        """What a row is told that is equal to another one, of row `other`."""
        if self.at_most == 1:
            return f"row {other:,} has the same one, and a book says one thing of each"
        return f"there are more than {self.at_most:,} rows of the same one, such as row {other:,}"


def _lines(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of a book without what its orders were paid by, which is no part of a line."""
    return [row[: -len(REFERENCES)] for row in rows]


async def _compare_lines(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> Written:
    return await compare_book(connection, _lines(rows))


async def _write_lines(
    connection: Connection, rows: Sequence[tuple[Any, ...]], *, number: int
) -> Written:
    return await write_book(connection, _lines(rows), number=number)


BOOK: Final = Kind(
    name="book",
    action="records_imported",
    order=("match_key", "kind"),
    identity=("match_key", "kind"),
    at_most=1,
    names="reference",
    compare=_compare_lines,
    write=_write_lines,
)

STATEMENT: Final = Kind(
    name="statement",
    action="statement_imported",
    order=("subject", "kind", "source"),
    identity=("subject", "kind"),
    at_most=2_000,  # each is compared with those that are known
    names="payment_reference",
    compare=compare_statement,
    write=write_statement,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which file is to be imported, and how.

    rejects  where rows that are not taken go when the good ones are; None: nothing is taken unless
             every row is good
    """

    path: Path
    mapping: FileMapping
    form: Form
    kind: Kind
    dry_run: bool = False
    rejects: Path | None = None


@dataclass(slots=True, kw_only=True)
class Imported:
    """What became of a file. Problems beyond MAX_PROBLEMS are only counted.

    refused  whether it could not be read to its end: then nothing is taken, whatever was asked
    number   of the import; None where nothing was imported
    rejects  the name of the file to which the rejected rows went
    rows     the first rows as understood, in a dry run
    passed_over  columns that nothing was read from, as the heading names them
    """

    file: str
    sha256: str = ""
    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    rejected: int = 0
    problems: list[Problem] = field(default_factory=list)
    found: int = 0
    refused: bool = False
    number: int | None = None
    rejects: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """How many problems are not among `problems`."""
        return self.found - len(self.problems)

    def note(self, problems: Sequence[Problem]) -> None:
        """Keep what is told, count the rest."""
        self.found += len(problems)
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]

    def count(self, written: Written) -> None:
        """Add what the store says of some rows."""
        self.new += written.new
        self.changed += written.changed
        self.unchanged += written.unchanged
