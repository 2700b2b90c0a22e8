"""Tables of delimited text. The standard library's reader, made strict and bounded."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

from app.core.cells import plain_text
from app.core.errors import UsageError
from app.finance.files.tables import ADDED, BATCH, MAX_COLUMNS, MAX_ROWS, Batch, Recognize, Refused

# --- lines of text from a file whose encoding is known for certain, or the byte where it is not ---


MAX_LINE: Final = 1024 * 1024
"""Characters of a line; a line of thousands is a file of something else."""

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; each says its encoding for certain."""

_ENCODINGS: Final = re.compile(
    r"ascii|utf-8|utf-8-sig|utf-16(-[lb]e)?|iso8859-\d+|cp\d+|mac-\w+|koi8-\w|gb\w+|big5\w*|euc_\w+"
    r"|shift_jis\w*|tis-620"
)
"""Encodings of text that programs write tables in; Python knows more that are none."""

_SEARCHED: Final = 1024 * 1024


def known_encoding(name: str) -> str:
    """Python's name of it. Raises UsageError for what is no encoding of tables."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        found = ""
    if not _ENCODINGS.fullmatch(found):
        raise UsageError(
            f"{name[:40]!r} is no encoding; say one such as utf-8, cp1252, latin-1 or utf-16"
        )
    return found


def encoding_of(path: Path, declared: str | None) -> str:
    """The declared one, else what the byte order mark says, else UTF-8."""
    if declared is not None:
        return known_encoding(declared)
    with path.open("rb") as file:
        start = file.read(4)
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines with their ends, as they are. Raises Refused for bytes that are no such text."""
    number = 0
    with path.open(encoding=encoding, newline="") as file:
        try:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE), ""), 1):
                if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                    raise Refused(number, f"the line is longer than {MAX_LINE:,} characters")
                if "\0" in line:
                    raise _no_text(path, number, _NO_TEXT)
                yield line
        except UnicodeError:
            raise _undecodable(path, encoding) from None


_NO_TEXT: Final = (
    "there is a zero byte: this is no table of text, or it is UTF-16 without its mark "
    "(say --encoding utf-16-le)"
)


_NO_WORKBOOK: Final = (
    "the workbook cannot be read, it is damaged from its first bytes on: export it again, or save "
    "it as CSV"
)


def _undecodable(path: Path, encoding: str) -> Refused:
    """Where the first bytes stand that are no text; looked for anew, for readers read ahead."""
    decoder = codecs.getincrementaldecoder(encoding)()
    before, row = 0, 1
    with path.open("rb") as file:
        while True:
            held = len(decoder.getstate()[0])
            part = file.read(_SEARCHED)
            try:
                row += decoder.decode(part, final=not part).count("\n")
            except UnicodeDecodeError as error:
                offset = before - held + error.start
                row += error.object[: error.start].count(b"\n")
                return _no_text(path, row, _sentence(offset, encoding))
            except UnicodeError:
                return _no_text(path, row, _sentence(before, encoding))
            if not part:
                return Refused(row, "the file changed while it was read; import it again")
            before += len(part)


def _no_text(path: Path, row: int, why: str) -> Refused:
    """Of a workbook by its name the encoding is no matter: what is no text is no workbook either,
    or it would have been opened as one."""
    return Refused(1, _NO_WORKBOOK) if path.suffix.lower() == ".xlsx" else Refused(row, why)


def _sentence(offset: int, encoding: str) -> str:
    return (
        f"byte {offset:,} of the file (counted from 0) is not {encoding.removesuffix('-sig')}: say "
        "--encoding NAME, such as cp1252 for files of Excel on Windows, or latin-1"
    )


# --- tables of delimited text ---------------------------------------------------------------------


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
