"""A table from a file, whatever its format: a heading, and rows of cells as text, in batches.

    CSV          `CsvTable`   delimiter , ; tab or |; UTF-8, UTF-16 with its mark, or as declared
    XLSX         `XlsxTable`  the first sheet, or the named one
    JSON Lines   `JsonLines`  one object a line

Cells are text as the file writes it. Where the format has types, a number is `Number`, canonical
decimal digits, and a date is `CellMoment`, in the form of ISO 8601: neither depends on what a
mapping declares about text. Delimited text is read here, by the standard library's reader, made
strict and bounded; the other two are read in `opening`.
"""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol

from app.core.cells import BYTE_ORDER_MARK, csv_line, plain_text, safe_cell
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
    Raises RefusedTable where the heading names one field twice, or lacks a name of the mapping.
    """
    wanted = {field: plain_name(named.get(field, field)) for field in fields}
    plain = [plain_name(name) for name in heading]
    found = {}
    for wish, name in wanted.items():
        places = [place for place, each in enumerate(plain) if each == name and name]
        if len(places) > 1:
            raise RefusedTable(row, "there are two columns of this name", column=heading[places[0]])
        if places:
            found[wish] = places[0]
        elif named.get(wish):
            raise no_column(named[wish], heading, row=row)
    return found


def no_column(name: str, heading: Sequence[str], *, row: int) -> RefusedTable:
    """Of a column that a mapping names and the heading lacks: the nearest, and those it has."""
    return RefusedTable(
        row, f"there is no column {name!r}, which the mapping names{found_instead([name], heading)}"
    )


MAX_NAMED: Final = 20
"""Columns that are named in a sentence."""


def found_instead(wanted: Sequence[str], heading: Sequence[str]) -> str:
    """What a sentence on missing columns ends in: the nearest names, and all that are there.

    Cells that could be a phone number are no names, in a file without a heading.
    """
    names = [name.strip() for name in heading if name.strip() and not _is_digits(name)]
    plain = {plain_name(name): name for name in names}
    near = [
        plain[found[0]]
        for name in wanted
        if (found := get_close_matches(plain_name(name), plain, n=1))
    ]
    nearest = f"; the nearest is {', '.join(map(repr, dict.fromkeys(near)))}" if near else ""
    listed = ", ".join(name[:QUOTED_NAME] for name in names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{nearest}; the file has {listed or 'no names of columns'}{more}"


QUOTED_NAME: Final = 60
"""Characters of a column's name in a sentence."""


def _is_digits(name: str) -> bool:
    return sum(character.isdigit() for character in name) > QUOTED_DIGITS


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

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"row": self.row, "column": self.column, "sentence": self.sentence}


class UnclearCell(ValueError):
    """A cell that says nothing for certain; the message is one sentence."""


class RefusedTable(Exception):
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


def write_rejects(
    path: Path, table: SourceTable, problems: Iterable[Problem], *, decimal: str = "."
) -> None:
    """Write the rows of these problems, which come in the order of the rows.

    decimal  what marks decimals in texts, by the mapping: the numbers of a workbook are texts here
    Raises UsageError where the file cannot be made.
    """
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8", newline="") as file:
            file.write(BYTE_ORDER_MARK + csv_line([*map(harmless, table.heading), *ADDED]))
            file.writelines(map(csv_line, _rows(table, problems, decimal)))
    except OSError as error:
        raise UsageError(
            f"the rejects cannot be written to {path.name}: {error.strerror}; nothing was imported"
        ) from None


def _rows(table: SourceTable, problems: Iterable[Problem], decimal: str) -> Iterator[list[str]]:
    of_rows = _by_row(problems)
    wanted = next(of_rows, None)
    for batch in table.batches():
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            if wanted is None:
                return
            if number == wanted[0]:
                cells = (
                    cell.replace(".", decimal) if isinstance(cell, Number) else cell for cell in row
                )
                yield [*map(harmless, cells), str(number), safe_cell(wanted[1])]  # it quotes them
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


class CellMoment(str):
    """A date or a date and time as its format wrote it, in the form of ISO 8601, without a zone."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows that follow each other, and the number of each in the file.

    broken  by their number, rows that are not as their format must be: a problem of a column leaves
            the other cells; where the whole row has one, its text stands in the first cell
    """

    rows: list[Sequence[str]]
    numbers: Sequence[int]
    broken: Mapping[int, Problem] = field(default_factory=dict)


class SourceTable(Protocol):
    """An open file. Reading raises RefusedTable where it cannot be read any further."""

    heading: Sequence[str]
    """The names of the columns, as the file has them."""

    heading_row: int
    """The row in which they stand."""

    notes: Sequence[str]
    """What was found out about the file that a person may want to know, one sentence each."""

    of_ours: bool
    """Whether it is a file of rows that were rejected before."""

    def batches(self) -> Iterator[Batch]:
        """All rows after the heading, from the first one each time it is called."""
        ...


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
    """The declared one, else what the byte order mark says, else UTF-8 where the whole file is
    that, else the one of GUESSED that decodes it. UTF-8 where none does, or both do: reading it
    then names the byte."""
    if declared is not None:
        return known_encoding(declared)
    with path.open("rb") as file:
        start = file.read(4)
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    if marked is not None:
        return marked
    if path.suffix.lower() == ".xlsx" or _decodes(path, "utf-8"):
        return "utf-8"
    found = _fitting(path)
    return found[0] if len(found) == 1 else "utf-8"


GUESSED: Final = {"cp1252": "Windows-1252", "cp932": "Shift-JIS"}
"""Encodings that are distinguished by what decodes: each has bytes that the other cannot have."""

_NO_CONTROLS: Final = bytes(byte for byte in range(32) if byte not in b"\t\n\f\r")


def _fitting(path: Path) -> list[str]:
    """Those of GUESSED in which the whole file is text."""
    return [name for name in GUESSED if _decodes(path, name)]


def _decodes(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    with path.open("rb") as file:
        for part in chain(iter(partial(file.read, _SEARCHED), b""), [b""]):
            if encoding != "utf-8" and len(part.translate(None, _NO_CONTROLS)) != len(part):
                return False
            try:
                decoder.decode(part, final=not part)
            except UnicodeError:
                return False
    return True


def lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines with their ends. Raises RefusedTable for bytes that are no such text."""
    number = 0
    with path.open(encoding=encoding, newline="") as file:
        try:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE), ""), 1):
                if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                    raise RefusedTable(number, f"the line is longer than {MAX_LINE:,} characters")
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


def _undecodable(path: Path, encoding: str) -> RefusedTable:
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
                return _no_text(path, row, _sentence(offset, encoding, _fitting(path)))
            except UnicodeError:
                return _no_text(path, row, _sentence(before, encoding, []))
            if not part:
                return RefusedTable(row, "the file changed while it was read; import it again")
            before += len(part)


def _no_text(path: Path, row: int, why: str) -> RefusedTable:
    """Of a workbook by its name the encoding is no matter: what is no text is no workbook either,
    or it would have been opened as one."""
    return (
        RefusedTable(1, _NO_WORKBOOK) if path.suffix.lower() == ".xlsx" else RefusedTable(row, why)
    )


def _sentence(offset: int, encoding: str, fitting: Sequence[str]) -> str:
    start = f"byte {offset:,} of the file (counted from 0) is not {encoding.removesuffix('-sig')}"
    if len(fitting) > 1:
        names = " and ".join(f"{GUESSED[name]} (--encoding {name})" for name in fitting)
        return f"{start}, and {names} both fit: say which one it is"
    return f"{start}: say --encoding NAME, such as cp1252 for files of Excel on Windows, or latin-1"


# --- tables of delimited text ---------------------------------------------------------------------


DELIMITERS: Final = (",", ";", "\t", "|")

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_DECLARATION: Final = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""A first line that names the delimiter for Excel."""


class CsvTable:
    """One file of delimited text; its heading is the line that is given or found (`heading_in`)."""

    def __init__(
        self,
        path: Path,
        *,
        encoding: str | None,
        delimiter: str | None,
        recognize: Recognize,
        heading_row: int | None = None,
    ) -> None:
        """recognize: how many columns of a heading are known, to find it and its delimiter.

        Of rows that were rejected before, the file itself says its delimiter: what is declared is
        how the export was written, and a spreadsheet may have saved the file as it writes.
        """
        self._path = path
        of_ours = _delimiter_of_ours(_first_line(path))
        if of_ours is not None:
            delimiter, encoding = of_ours, None if _decodes(path, "utf-8") else encoding
        self._encoding = encoding_of(path, encoding)
        self._skipped, line, declared = self._heading_line(delimiter, recognize, heading_row)
        self._delimiter = delimiter or declared or _delimiter_of(line, recognize)
        reader = self._reader()
        heading = self._next(reader)
        self.of_ours = tuple(heading[-len(ADDED) :]) == ADDED
        self.heading: Sequence[str] = self._as_it_was(heading)
        self.heading_row = self._skipped + 1
        self.notes: Sequence[str] = self._notes(encoding)
        if len(self.heading) > MAX_COLUMNS:
            raise RefusedTable(self.heading_row, f"there are more than {MAX_COLUMNS} columns")

    def _notes(self, declared: str | None) -> list[str]:
        if declared is not None or self._encoding not in GUESSED:
            return []
        name = GUESSED[self._encoding]
        return [f"Read as {name}, which decodes the file where UTF-8 does not."]

    def _as_it_was(self, row: Sequence[str]) -> Sequence[str]:
        """Without the marks with which rejected rows were made safe for a spreadsheet."""
        return [*map(plain_text, row)] if self.of_ours else row

    def _heading_line(
        self, delimiter: str | None, recognize: Recognize, given: int | None
    ) -> tuple[int, str, str | None]:
        """How many lines are before the heading, its line, and the delimiter declared before it."""
        declared, found = None, list[tuple[int, str]]()
        for number, line in enumerate(lines(self._path, self._encoding)):
            declaration = _DECLARATION.fullmatch(line)
            if declaration is not None:
                declared = declaration[1]
            elif line.strip():
                found.append((number, line))
            if len(found) == SEARCHED_ROWS or number + 1 == given:
                break
        if not found:
            raise RefusedTable(1, "the file is empty")
        if _delimiter_of_ours(found[0][1]) is not None:
            return (*found[0], declared)
        if given is not None:
            return (*_row_given(found, given), declared)
        marks = DELIMITERS if (delimiter or declared) is None else (delimiter or declared or "",)
        place = heading_in(
            [max(_score(line, mark, recognize)[0] for mark in marks) for _, line in found]
        )
        return (*found[place], declared)

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
                raise RefusedTable(
                    line, f"there are more than {MAX_ROWS:,} rows: import it in parts"
                )
            numbers = self._numbers(rows, line + 1, self._line(reader))
            yield Batch([*map(self._as_it_was, rows)] if self.of_ours else rows, numbers)

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

    def _unreadable(self, error: csv.Error) -> RefusedTable:
        """Say where the row begins that cannot be read; looked for anew, row by row."""
        reader, line = self._reader(), self._skipped
        try:
            while True:
                line = self._line(reader)
                next(reader)
        except (csv.Error, StopIteration):
            return RefusedTable(
                line + 1,
                "the quotation marks of this row do not end where a cell ends, or a cell is "
                f"longer than {csv.field_size_limit():,} characters ({error})",
            )


def _first_line(path: Path) -> str:
    """As far as it is ASCII, whatever its encoding."""
    with path.open("rb") as file:
        return file.readline(MAX_LINE).decode("latin-1")


def _delimiter_of_ours(line: str) -> str | None:
    """The delimiter of a file of rejected rows, whose heading this is; None for another line."""
    end = line.rstrip().replace('"', "")
    return next((mark for mark in DELIMITERS if end.endswith(mark.join(ADDED))), None)


def _row_given(found: Sequence[tuple[int, str]], given: int) -> tuple[int, str]:
    """The line of the heading's row. Raises RefusedTable where it has nothing."""
    number, line = found[-1]
    if number + 1 != given:
        raise RefusedTable(given, "there is no heading in this row, where the mapping says it is")
    return number, line


SEARCHED_ROWS: Final = 50
"""Rows that say something among which the heading is looked for."""


def heading_in(known: Sequence[int]) -> int:
    """The place of the heading among the first rows, by how many names of columns each has: the
    first of those that have most, if that is more than one; else the first row."""
    most = max(known)
    return known.index(most) if most > 1 else 0


def cells_of_line(line: str, delimiter: str) -> list[str]:
    """The cells of one line by itself; none where it is no row."""
    try:
        return next(csv.reader(chain([line]), delimiter=delimiter))
    except (csv.Error, StopIteration):
        return []


def _delimiter_of(line: str, recognize: Recognize) -> str:
    """The one under which most columns of the heading are known.

    Raises RefusedTable where two are equally good.
    """
    scores = sorted(((_score(line, each, recognize), each) for each in DELIMITERS), reverse=True)
    (best, found), (second, _) = scores[:2]
    if best == second and best > (0, 1):
        raise RefusedTable(1, 'the delimiter is not clear: say --delimiter ";", for example')
    return found if best > (0, 1) else ","


def _score(line: str, delimiter: str, recognize: Recognize) -> tuple[int, int]:
    heading = cells_of_line(line, delimiter)
    return (recognize(heading), len(heading)) if heading else (0, 0)
