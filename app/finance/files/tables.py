"""A table from a file, whatever its format: a heading, and rows of cells as text, in batches.

    CSV          `csv_table`    delimiter , ; tab or |; UTF-8, or UTF-16 with its mark
    XLSX         `xlsx_table`   the first sheet, or the named one
    JSON Lines   `json_lines`   one object a line

Cells are text as the file writes it. Where the format has types, a number is `Number`, canonical
decimal digits, and a date is `Moment`, in the form of ISO 8601: neither depends on what a mapping
declares about text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from app.finance.files.problems import Problem

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
