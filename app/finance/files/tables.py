"""Read a table from a file of any format, in batches."""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import accumulate, chain, groupby, islice
from pathlib import Path
from typing import Any, Final, Protocol

from app.core.cells import BYTE_ORDER_MARK, cell_text, csv_line, safe_cell
from app.core.errors import UsageError
from app.finance.files import encodings
from app.finance.files.encodings import encoding_of as encoding_of
from app.finance.files.encodings import known_encoding as known_encoding

Recognize = Callable[[Sequence[str]], int]

_APART: Final = re.compile(r"[\s_]+")


def plain_name(name: str) -> str:
    """Return a column's simple name: `Placed At` becomes `placed_at`."""
    return _APART.sub("", name.strip().casefold())


def places_of(
    heading: Sequence[str], *, fields: Sequence[str], named: Mapping[str, str], row: int
) -> dict[str, int]:
    """Return the index of each field's column in the heading. Raise RefusedTable for a repeated or
    missing column."""
    plain = {plain_name(name) for name in heading} - {""}
    found = {}
    for wish in fields:
        name = named.get(wish, wish)
        if plain_name(name) in plain:
            found[wish] = column_place(name, heading, row=row)
        elif name and wish in named:
            raise no_column(name, heading, row=row)
    return found


def column_place(name: str, heading: Sequence[str], *, row: int) -> int:
    """Return the index of a column. Raise RefusedTable unless exactly one column has this name."""
    plain = plain_name(name)
    places = [place for place, each in enumerate(heading) if plain_name(each) == plain]
    if len(places) > 1:
        raise RefusedTable(row, "there are two columns with this name", column=heading[places[0]])
    if not places:
        raise no_column(name, heading, row=row)
    return places[0]


def no_column(name: str, heading: Sequence[str], *, row: int) -> RefusedTable:
    """Build the error for a missing column."""
    return RefusedTable(
        row, f"there is no column {name!r}, which the mapping names{found_instead([name], heading)}"
    )


MAX_NAMED: Final = 20


def found_instead(wanted: Sequence[str], heading: Sequence[str]) -> str:
    """Return a phrase with the file's columns, similar names first."""
    names = [
        name.strip()
        for name in heading
        if name.strip() and sum(map(str.isdigit, name)) <= QUOTED_DIGITS
    ]
    plain = {plain_name(name): name for name in names}
    near = [
        plain[found[0]]
        for name in wanted
        if (found := get_close_matches(plain_name(name), plain, n=1))
    ]
    nearest = f"; the nearest is {', '.join(map(repr, dict.fromkeys(near)))}" if near else ""
    listed = ", ".join(name[:QUOTED_NAME] for name in names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{nearest}; the file has {listed or 'no column names'}{more}"


QUOTED_NAME: Final = 60


QUOTED_LENGTH: Final = 24
QUOTED_DIGITS: Final = 6
"""Maximum digits of a cell that a message repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Problem that was found in a file. Rows count from 1."""

    row: int
    column: str | None
    sentence: str
    word: str | None = None

    def document(self) -> dict[str, Any]:
        return {"row": self.row, "column": self.column, "sentence": self.sentence}


class UnclearCell(ValueError):
    """Error for a cell whose meaning is not certain."""

    def __init__(self, sentence: str, *, word: str | None = None) -> None:
        super().__init__(sentence)
        self.word = word


class RefusedTable(Exception):
    """Error for a file that cannot be read to its end."""

    def __init__(self, row: int, sentence: str, *, column: str | None = None) -> None:
        super().__init__(sentence)
        self.problem = Problem(row=row, column=column, sentence=sentence)


def is_quotable(cell: str) -> bool:
    """Check if a message may repeat a cell."""
    text = cell.translate(BLANKS).strip()
    few = len(text) <= QUOTED_LENGTH and sum(map(str.isdigit, text)) <= QUOTED_DIGITS
    return few and text.isprintable()


def quoted(cell: str) -> str:
    """Return a quoted cell, or a description of a private cell."""
    if not is_quotable(cell):
        return "the value there"
    text = cell.translate(BLANKS).strip()
    return f"{text!r}" if text else "an empty cell"


BLANKS: Final = str.maketrans(dict.fromkeys("\u00a0\u202f\u2007\u2009", " "))


def column_letters(number: int) -> str:
    """Return a column's letters: 1 is A, 27 is AA."""
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


_PLAIN: Final = re.compile(r"[-+]?[0-9][0-9.,]*")


def rejects_beside(path: Path) -> Path:
    """Return the default path for a file's rejected rows."""
    return path.with_name(f"{path.stem}.rejects.csv")


def refuse_to_replace(path: Path) -> None:
    """Raise UsageError if a file exists at the path."""
    if path.exists():
        raise UsageError(f"{path.name} already exists: move it, or give --rejects FILE")


def write_rejects(
    path: Path, table: SourceTable, problems: Iterable[Problem], *, decimal: str = "."
) -> None:
    """Write the rejected rows of a table to a new file."""
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8", newline="") as file:
            file.write(BYTE_ORDER_MARK + csv_line([*map(harmless, table.heading), *ADDED]))
            file.writelines(map(csv_line, _rejected_rows(table, problems, decimal)))
    except OSError as error:
        raise UsageError(
            f"the rejects cannot be written to {path.name}: {error.strerror}; nothing was imported"
        ) from None


def _rejected_rows(
    table: SourceTable, problems: Iterable[Problem], decimal: str
) -> Iterator[list[str]]:
    rows = (
        pair for batch in table.batches() for pair in zip(batch.numbers, batch.rows, strict=True)
    )
    for wanted, of_row in groupby(problems, key=lambda problem: problem.row):
        row = next((row for number, row in rows if number == wanted), None)
        if row is None:
            return
        sentences = "; ".join(
            each.sentence if each.column is None else f"{each.column}: {each.sentence}"
            for each in of_row
        )
        width = len(table.heading)
        whole = row if any(row[width:]) else row[:width]
        cells = (cell.replace(".", decimal) if isinstance(cell, Number) else cell for cell in whole)
        yield [*map(harmless, cells), str(wanted), safe_cell(sentences)]  # it quotes cells


def harmless(cell: str) -> str:
    """Return a cell that no spreadsheet evaluates as a formula."""
    return cell if _PLAIN.fullmatch(cell) else safe_cell(cell)


MAX_FILE_BYTES: Final = 2 * 1024**3

MAX_ROWS: Final = 10_000_000
"""Maximum number of rows of a file."""

MAX_COLUMNS: Final = 500

MAX_CELL: Final = 128 * 1024
"""Maximum characters in a cell, as in Python's CSV reader."""

ADDED: Final = ("rejected row", "problem")

BATCH: Final = 4_000


class Number(str):
    """Number from a format with typed cells, written like `-1500.25`."""

    __slots__ = ()


class LongNumber(str):
    """Number in a workbook with more than fifteen digits."""

    __slots__ = ()


NO_VALUE: Final = "="
"""Text in place of content that is no value."""


class CellMoment(str):
    """Date, with or without a time, from a format with typed cells. The text is ISO 8601 without a
    zone."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive rows with their numbers in the file."""

    rows: list[Sequence[str]]
    numbers: Sequence[int]
    broken: Mapping[int, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPeriod:
    """Period that a file states, as written in the file. `until` is inclusive."""

    since: str
    until: str
    name: str = ""


class SourceTable(Protocol):
    """Open table of a file."""

    heading: Sequence[str]

    heading_row: int

    notes: Sequence[str]

    of_ours: bool
    """True for a file of rejected rows that Tallyhook wrote."""

    @property
    def head(self) -> Sequence[str]:
        """Return the lines above the heading."""

    @property
    def periods(self) -> Sequence[StatedPeriod]:
        """Return the periods that the file states. The list is complete after all rows are read."""

    def batches(self) -> Iterator[Batch]:
        """Yield all rows after the heading, in batches."""
        ...


# --- lines of text --------------------------------------------------------------------------------


MAX_LINE: Final = 1024 * 1024

_SEARCHED: Final = 1024 * 1024


def lines(path: Path, encoding: str) -> Iterator[str]:
    """Yield the lines of a text file with their line ends. Raise RefusedTable for undecodable
    bytes."""
    number = 0
    with path.open(encoding=encoding, newline="") as file:
        try:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE), ""), 1):
                if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                    raise RefusedTable(number, f"the line is longer than {MAX_LINE:,} characters")
                if "\0" in line:
                    raise _no_text(path, number, _zero_byte(path))
                # Joined files contain byte order marks of the later parts.
                yield line.lstrip(BYTE_ORDER_MARK) if line[0] == BYTE_ORDER_MARK else line
        except UnicodeError:
            raise _undecodable(path, encoding) from None


def _zero_byte(path: Path) -> str:
    if (found := encodings.without_mark(path)) is None:
        return "there is a zero byte: this is not a text file"
    return (
        f"there is a zero byte: this is UTF-16 without its byte order mark; give --encoding {found}"
    )


_NO_WORKBOOK: Final = (
    "the workbook is damaged from its first bytes on, so it cannot be read: export it again, or "
    "save it as CSV"
)


def _undecodable(path: Path, encoding: str) -> RefusedTable:
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
                return _no_text(path, row, _sentence(offset, encoding, path))
            except UnicodeError:
                return _no_text(path, row, _sentence(before, encoding, path))
            if not part:
                return RefusedTable(row, "the file changed while it was read; import it again")
            before += len(part)


def _no_text(path: Path, row: int, why: str) -> RefusedTable:
    # A file named as a workbook that is not text is a damaged workbook: a sound one would have
    # opened.
    if path.suffix.lower() == ".xlsx":
        return RefusedTable(1, _NO_WORKBOOK)
    return RefusedTable(row, why)


def _sentence(offset: int, encoding: str, path: Path) -> str:
    start = f"byte {offset:,} of the file (counted from 0) is not {encoding.removesuffix('-sig')}"
    fits = encodings.fitting(path)
    found = encodings.readings(path, [*fits, "gb18030", "euc_kr"] if len(fits) > 1 else ())
    if not found:
        return f"{start}, and no other encoding that was tried reads the file as text"
    both = " or ".join(found.values())
    return f"{start}; it may be {both}: give the right one, or another encoding"


# --- tables of delimited text ---------------------------------------------------------------------


DELIMITERS: Final = (",", ";", "\t", "|")

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_DECLARATION: Final = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""Pattern of a first line that tells Excel the delimiter."""


def places_as_names(row: Sequence[str]) -> list[str]:
    """Return a missing heading: "1", "2", "3" and so on."""
    return [str(place) for place, _ in enumerate(row, 1)]


class CsvTable:
    """File of text with delimiters, such as CSV."""

    periods: Sequence[StatedPeriod] = ()

    def __init__(
        self,
        path: Path,
        *,
        encoding: str | None,
        delimiter: str | None,
        recognize: Recognize,
        heading_row: int | None = None,
    ) -> None:
        """Find the heading and the delimiter. `heading_row` is None to find the heading, and 0
        without a heading."""
        self._path = path
        with path.open("rb") as file:
            first_line = file.readline(MAX_LINE).decode("latin-1")  # the heading we wrote is ASCII
        of_ours = _delimiter_of_ours(first_line)
        if of_ours is not None:
            delimiter, encoding = of_ours, None if encodings.decodes(path, "utf-8") else encoding
        self._encoding = encoding_of(path, encoding)
        self._skipped, line, declared = self._heading_line(delimiter, recognize, heading_row)
        self.head = list(islice(lines(path, self._encoding), self._skipped))
        self._delimiter = delimiter or declared or _delimiter_of(line, recognize)
        reader = self._reader()
        heading = self._next(reader)
        cells, self.of_ours = len(heading), tuple(heading[-len(ADDED) :]) == ADDED
        self._has_heading = self.of_ours or heading_row != 0
        heading = list(self._as_it_was(heading) if self._has_heading else places_as_names(heading))
        while len(heading) > 1 and not heading[-1].strip():
            heading.pop()
        self.heading: Sequence[str] = heading
        self._ended = len(heading) < cells  # some programs end lines with a delimiter
        self.heading_row = self._skipped + 1
        self.notes: Sequence[str] = []
        if encoding is None and (name := encodings.GUESSED.get(self._encoding)):
            word = encodings.first_word(path, self._encoding)
            self.notes = [f"Read as {name}, because it is not UTF-8: one word reads {word!r}."]
        if len(self.heading) > MAX_COLUMNS:
            raise RefusedTable(self.heading_row, f"there are more than {MAX_COLUMNS} columns")

    def _as_it_was(self, row: Sequence[str]) -> Sequence[str]:
        return [*map(cell_text, row)] if self.of_ours else row

    def _heading_line(
        self, delimiter: str | None, recognize: Recognize, given: int | None
    ) -> tuple[int, str, str | None]:
        declared, found = None, list[tuple[int, str]]()
        for number, line in enumerate(lines(self._path, self._encoding)):
            declaration = _DECLARATION.fullmatch(line)
            if declaration is not None:
                declared = declaration[1]
            elif line.strip():
                found.append((number, line))
            if len(found) == SEARCHED_ROWS or number + 1 == given or (found and given == 0):
                break
        if not found:
            raise RefusedTable(1, "the file is empty")
        if _delimiter_of_ours(found[0][1]) is not None:
            return (*found[0], declared)
        if given is not None:
            if given and found[-1][0] + 1 != given:
                raise RefusedTable(
                    given, "the mapping says that this row is the heading, but the row has none"
                )
            return (*found[-1], declared)
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
        reader = self._reader()
        if self._has_heading:
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
                    line,
                    f"there are more than {MAX_ROWS:,} rows: split the file, and import each part",
                )
            first, last = line + 1, self._line(reader)
            numbers: Sequence[int] = range(first, last + 1)
            broken: _Broken = {}
            if len(numbers) != len(rows):  # some rows have several lines
                heights = (1 + sum(len(_LINE_END.findall(cell)) for cell in row) for row in rows)
                numbers = list(accumulate(heights, initial=first))[:-1]
                broken = self._swallowed(rows, numbers)
            if self._ended:
                width = len(self.heading)
                rows = [row if any(row[width:]) else row[:width] for row in rows]
            yield Batch([*map(self._as_it_was, rows)] if self.of_ours else rows, numbers, broken)

    def _line(self, reader: Iterator[list[str]]) -> int:
        return self._skipped + int(reader.line_num)  # type: ignore[attr-defined]

    def _unreadable(self, error: csv.Error) -> RefusedTable:
        reader, line = self._reader(), self._skipped
        try:
            while True:
                line = self._line(reader)
                next(reader)
        except (csv.Error, StopIteration):
            most = csv.field_size_limit()
            why = next(
                (sentence for sign, sentence in _MISQUOTED if sign in str(error)),
                "the quotation marks of this row do not end where a cell ends",
            )
            return RefusedTable(line + 1, f"{why.format(most=most)} ({error})")

    def _swallowed(self, rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> _Broken:
        width, found = len(self.heading), dict[int, Problem]()
        for number, row in zip(numbers, rows, strict=True):
            for cell in row if width >= _LEAST_COLUMNS else ():
                ends = len(_LINE_END.findall(cell))
                if ends and cell.count(self._delimiter) == ends * (width - 1):
                    sentence = (
                        f"a cell of this row contains more rows ({ends:,}), each with as many "
                        "cells as the heading: close its quotation marks, or double a quotation "
                        "mark that is text"
                    )
                    found[number] = Problem(row=number, column=None, sentence=sentence)
        return found


_Broken = Mapping[int, Problem]

_LEAST_COLUMNS: Final = 5

_MISQUOTED: Final = (
    ("unexpected end", "the quotation marks that begin in this row are not closed until the end"),
    (
        "limit",
        "a cell of this row is longer than {most:,} characters: its quotation marks may not be "
        "closed",
    ),
    (
        "expected after",
        "the quotation marks of this row do not end where a cell ends: double a quotation mark "
        "that is text",
    ),
)


def _delimiter_of_ours(line: str) -> str | None:
    end = line.rstrip().replace('"', "")
    return next((mark for mark in DELIMITERS if end.endswith(mark.join(ADDED))), None)


SEARCHED_ROWS: Final = 50
"""Maximum number of rows that are searched for the heading."""


def heading_in(known: Sequence[int]) -> int:
    """Return the index of the likeliest heading, or 0."""
    most = max(known)
    return known.index(most) if most > 1 else 0


def cells_of_line(line: str, delimiter: str) -> list[str]:
    """Split a line into cells; empty for an invalid row."""
    try:
        return next(csv.reader(chain([line]), delimiter=delimiter))
    except (csv.Error, StopIteration):
        return []


def _delimiter_of(line: str, recognize: Recognize) -> str:
    scores = sorted(((_score(line, each, recognize), each) for each in DELIMITERS), reverse=True)
    (best, found), (second, _) = scores[:2]
    if best == second and best > (0, 1):
        raise RefusedTable(1, 'the delimiter is not clear: give --delimiter ";", for example')
    return found if best > (0, 1) else ","


def _score(line: str, delimiter: str, recognize: Recognize) -> tuple[int, int]:
    heading = cells_of_line(line, delimiter)
    return (recognize(heading), len(heading)) if heading else (0, 0)
