"""A table from a file, whatever its format: a heading, and rows of cells as text, in batches.

    CSV          `csv_table`    delimiter , ; tab or |; UTF-8, or UTF-16 with its mark
    XLSX         `xlsx_table`   the first sheet, or the named one
    JSON Lines   `json_lines`   one object a line

Cells are text as the file writes it. Where the format has types, a number is `Number`, canonical
decimal digits, and a date is `Moment`, in the form of ISO 8601: neither depends on what a mapping
declares about text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from app.core.cells import csv_line, safe_cell
from app.core.errors import UsageError

Recognize = Callable[[Sequence[str]], int]
"""A heading → how many of its columns are known."""

_APART: Final = re.compile(r"[\s_]+")


def plain_name(name: str) -> str:
    """The form in which names of columns are compared: `Placed At` and `placed_at` are one."""
    return _APART.sub("", name.strip().casefold())


def places_of(
    heading: Sequence[str], *, fields: Sequence[str], named: Mapping[str, str], row: int
) -> dict[str, int]:
    """For each field that the file has the place of its column.

    named  what the mapping says: field to the heading's name; an empty name leaves it out
    Raises Refused where the heading names one field twice, or lacks a name of the mapping.
    """
    wanted = {field: plain_name(named.get(field, field)) for field in fields}
    plain = [plain_name(name) for name in heading]
    found = {}
    for wish, name in wanted.items():
        places = [place for place, each in enumerate(plain) if each == name and name]
        if len(places) > 1:
            raise Refused(row, "there are two columns of this name", column=heading[places[0]])
        if places:
            found[wish] = places[0]
        elif named.get(wish):
            raise Refused(row, f"there is no column {named[wish]!r}, which the mapping names")
    return found


def known_in(heading: Sequence[str], *, fields: Sequence[str], named: Mapping[str, str]) -> int:
    """How many columns of a heading are known."""
    wanted = {plain_name(named.get(field, field)) for field in fields} - {""}
    return len(wanted & {plain_name(name) for name in heading})


QUOTED_LENGTH: Final = 24
QUOTED_DIGITS: Final = 6
"""A cell is quoted if it is short and has fewer digits than any phone number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One sentence about a place in a file.

    row     counted from the file's first line, which is 1; for a row of several lines its first
    column  as the file's heading names it; None where the whole row or file is meant
    """

    row: int
    column: str | None
    sentence: str


class Unclear(ValueError):
    """A cell that says nothing for certain; the message is one sentence."""


class Refused(Exception):
    """The file cannot be read, or not any further than to this problem."""

    def __init__(self, row: int, sentence: str, *, column: str | None = None) -> None:
        super().__init__(sentence)
        self.problem = Problem(row=row, column=column, sentence=sentence)


def quoted(cell: str) -> str:
    """The cell in quotation marks where it is harmless to show, else what it is."""
    text = cell.strip()
    digits = sum(character.isdigit() for character in text)
    if len(text) > QUOTED_LENGTH or digits > QUOTED_DIGITS or not text.isprintable():
        return "what stands there"
    return f"{text!r}" if text else "an empty cell"


_PLAIN: Final = re.compile(r"[-+]?[0-9][0-9.,]*")


def rejects_beside(path: Path) -> Path:
    """Where the rejects of a file go when nothing is said."""
    return path.with_name(f"{path.stem}.rejects.csv")


def refuse_to_replace(path: Path) -> None:
    """Raises UsageError where there is something already: a person may be correcting it."""
    if path.exists():
        raise UsageError(f"there is {path.name} already: move it away, or say --rejects FILE")


def write_rejects(path: Path, table: Table, problems: Iterable[Problem]) -> None:
    """Write the rows of these problems, which come in the order of the rows.

    Raises UsageError where the file cannot be made.
    """
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8", newline="") as file:
            file.write(csv_line([*map(harmless, table.heading), *ADDED]))
            file.writelines(map(csv_line, _rows(table, problems)))
    except OSError as error:
        raise UsageError(
            f"the rejects cannot be written to {path.name}: {error.strerror}; nothing was imported"
        ) from None


def _rows(table: Table, problems: Iterable[Problem]) -> Iterator[list[str]]:
    of_rows = _by_row(problems)
    wanted = next(of_rows, None)
    for batch in table.batches():
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            if wanted is None:
                return
            if number == wanted[0]:
                yield [*map(harmless, row), str(number), wanted[1]]
                wanted = next(of_rows, None)


def _by_row(problems: Iterable[Problem]) -> Iterator[tuple[int, str]]:
    """Each row once, with all that is wrong with it."""
    row, sentences = 0, list[str]()
    for problem in problems:
        if problem.row != row and sentences:
            yield row, "; ".join(sentences)
            sentences = []
        row = problem.row
        place = f"{problem.column}: " if problem.column is not None else ""
        sentences.append(f"{place}{problem.sentence}")
    if sentences:
        yield row, "; ".join(sentences)


def harmless(cell: str) -> str:
    """The cell as text that no spreadsheet runs."""
    return cell if _PLAIN.fullmatch(cell) else safe_cell(cell)


MAX_FILE_BYTES: Final = 2 * 1024**3
"""A file of ten million rows has about 1 GB."""

MAX_ROWS: Final = 10_000_000
"""Rows of a file; more than a year of a large shop."""

MAX_COLUMNS: Final = 500
"""Columns of a heading; a statement has some dozens."""

MAX_CELL: Final = 128 * 1024
"""Characters of a cell: what Python's own reader of CSV allows."""

ADDED: Final = ("rejected row", "problem")
"""The last columns of a file of rejected rows: what we have added to what was there."""

BATCH: Final = 4_000
"""Rows in memory at a time."""


class Number(str):
    """A number as its format wrote it: `-1500.25`, with no mark but a decimal point."""

    __slots__ = ()


class Moment(str):
    """A date or a date and time as its format wrote it, in the form of ISO 8601, without a zone."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows that follow each other, and the number of each in the file.

    broken  by their number, rows that are not as their format must be: a problem of a column leaves
            the other cells; where one of the whole row is told, its text stands in the first cell
    """

    rows: list[Sequence[str]]
    numbers: Sequence[int]
    broken: Mapping[int, Problem] = field(default_factory=dict)


class Table(Protocol):
    """An open file. Reading raises Refused where it cannot be read any further."""

    heading: Sequence[str]
    """The names of the columns, as the file has them."""

    heading_row: int
    """The row in which they stand."""

    def batches(self) -> Iterator[Batch]:
        """All rows after the heading, from the first one each time it is called."""
        ...
