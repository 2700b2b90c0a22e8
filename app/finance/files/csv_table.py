"""Tables of delimited text. The standard library's reader, made strict and bounded."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

from app.core.cells import plain_text
from app.finance.files.tables import ADDED, BATCH, MAX_COLUMNS, MAX_ROWS, Batch, Recognize, Refused
from app.finance.files.text import encoding_of, lines

DELIMITERS: Final = (",", ";", "\t", "|")

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_DECLARATION: Final = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""A first line with which Excel is told the delimiter."""


class CsvTable:
    """One file of delimited text; its heading is the first line that is not blank."""

    def __init__(
        self, path: Path, *, encoding: str | None, delimiter: str | None, recognize: Recognize
    ) -> None:
        """recognize: how many columns of a heading are known, to tell its delimiter."""
        self._path = path
        self._encoding = encoding_of(path, encoding)
        self._skipped, line, declared = self._first_line()
        self._delimiter = delimiter or declared or _delimiter_of(line, recognize)
        reader = self._reader()
        heading = self._next(reader)
        self._of_ours = tuple(heading[-len(ADDED) :]) == ADDED
        self.heading: Sequence[str] = self._as_it_was(heading)
        self.heading_row = self._skipped + 1
        if len(self.heading) > MAX_COLUMNS:
            raise Refused(self.heading_row, f"there are more than {MAX_COLUMNS} columns")

    def _as_it_was(self, row: Sequence[str]) -> Sequence[str]:
        """Without the marks with which rejected rows were made safe for a spreadsheet."""
        return [*map(plain_text, row)] if self._of_ours else row

    def _first_line(self) -> tuple[int, str, str | None]:
        """How many lines come before the heading, its line, and the delimiter told before it."""
        declared = None
        for number, line in enumerate(lines(self._path, self._encoding)):
            found = _DECLARATION.fullmatch(line)
            if found is not None:
                declared = found[1]
            elif line.strip():
                return number, line, declared
        raise Refused(1, "the file is empty")

    def _reader(self) -> Iterator[list[str]]:
        text = islice(lines(self._path, self._encoding), self._skipped, None)
        return csv.reader(text, delimiter=self._delimiter, strict=True)

    def _next(self, reader: Iterator[list[str]]) -> list[str]:
        try:
            return next(reader)
        except csv.Error as error:
            raise self._unreadable(error) from None

    def batches(self) -> Iterator[Batch]:
        """All rows after the heading."""
        reader = self._reader()
        self._next(reader)
        read = 0
        while True:
            line = self._line(reader)
            try:
                rows: list[Sequence[str]] = list(islice(reader, BATCH))
            except csv.Error as error:
                raise self._unreadable(error) from None
            if not rows:
                return
            read += len(rows)
            if read > MAX_ROWS:
                raise Refused(line, f"there are more than {MAX_ROWS:,} rows: import it in parts")
            numbers = self._numbers(rows, line + 1, self._line(reader))
            yield Batch([*map(self._as_it_was, rows)] if self._of_ours else rows, numbers)

    def _line(self, reader: Iterator[list[str]]) -> int:
        """The number of the last line that was read, in the file."""
        return self._skipped + int(reader.line_num)  # type: ignore[attr-defined]

    @staticmethod
    def _numbers(rows: Sequence[Sequence[str]], first: int, last: int) -> Sequence[int]:
        if last - first + 1 == len(rows):
            return range(first, last + 1)
        numbers = []
        for row in rows:
            numbers.append(first)
            first += 1 + sum(len(_LINE_END.findall(cell)) for cell in row)
        return numbers

    def _unreadable(self, error: csv.Error) -> Refused:
        """Say where the row begins that cannot be read; looked for anew, row by row."""
        reader, line = self._reader(), self._skipped
        try:
            while True:
                line = self._line(reader)
                next(reader)
        except (csv.Error, StopIteration):
            return Refused(
                line + 1,
                "the quotation marks of this row do not end where a cell ends, or a cell is "
                f"longer than {csv.field_size_limit():,} characters ({error})",
            )


def _delimiter_of(line: str, recognize: Recognize) -> str:
    """The one under which most columns of the heading are known.

    Raises Refused where two are equally good.
    """
    scores = sorted(((_score(line, each, recognize), each) for each in DELIMITERS), reverse=True)
    (best, found), (second, _) = scores[:2]
    if best == second and best > (0, 1):
        raise Refused(1, 'the delimiter is not clear: say --delimiter ";", for example')
    return found if best > (0, 1) else ","


def _score(line: str, delimiter: str, recognize: Recognize) -> tuple[int, int]:
    try:
        heading = next(csv.reader(chain([line]), delimiter=delimiter))
    except (csv.Error, StopIteration):
        return 0, 0
    return recognize(heading), len(heading)
