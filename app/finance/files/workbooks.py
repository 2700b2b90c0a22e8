"""Tables of workbooks (XLSX): one sheet, and what its cells hide.

1 guard   unpack every part without keeping it: sizes, ratios, and where the cells are
2 choose  the first sheet that is shown, or the named one; the others are noted
3 doubt   find error cells and formulas without a saved value, which the library gives as empty, and
          hidden rows
4 read    cells as text, numbers and dates as their own types
"""

import datetime
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import chain, dropwhile, islice
from pathlib import Path
from posixpath import normpath
from typing import Any, BinaryIO, Final, TypeVar
from xml.parsers import expat

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    SheetTypeEnum,
    SheetVisibleEnum,
    load_workbook,
)

from app.core.text import counted
from app.finance.files import tables
from app.finance.files.containers import DAMAGED

MIB: Final = 1024 * 1024

MAX_ENTRIES: Final = 2_000
"""Parts of a workbook; one of a hundred sheets has some hundreds."""

MAX_CONTENT: Final = 1024 * MIB
"""Bytes of all parts unpacked: a million rows of eight cells take about 400 MB."""

MAX_RATIO: Final = 200
"""Unpacked bytes for each packed one, beyond FREE_CONTENT; sheets have 10 to 50."""

FREE_CONTENT: Final = 10 * MIB

MAX_CELLS: Final = 20_000_000
"""Rows times columns of a sheet; the library takes about 30 bytes for each."""

MAX_TAG: Final = MIB
"""Bytes from one `<` to the next: a cell has 32,767 characters at most."""

_PART: Final = MIB
_ENCRYPTED: Final = 0x1
_LOCAL_HEADER: Final = 30

_SHEET: Final = b"sheetData"
# No pattern looks beyond the next `<`: a sheet of unclosed cells would take time quadratic in their
# number.
_CELL: Final = re.compile(rb"<(?:\w+:)?c[\s/>]")
_OTHERS: Final = rb"(?:\s+(?!r[\s=])[\w:.-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'))*+"
"""Attributes but `r`; a text of one may look like it."""
_PLACED: Final = re.compile(
    rb"<(?:\w+:)?c%b\s+r\s*=\s*[\"']([A-Za-z]{1,9})([0-9]+)[\"']%b\s*/?>" % (_OTHERS, _OTHERS)
)
"""A cell with one place: of several, the library takes any."""
_ROW: Final = re.compile(rb"<(?:\w+:)?row\s(?:[^<>]*?\s)?r\s*=\s*[\"']([0-9]+)")
_TEXTS: Final = re.compile(rb"<(?:\w+:)?sst\s[^<]*?[0-9]{9}")
"""A list of texts of which it is said that they are so many: the library makes room for all."""
_FORMULA: Final = re.compile(rb"<(?:\w+:)?f[\s/>]")
_UNCLOSED: Final = re.compile(rb"<(?:\w+:)?(?:c|row)\s[^<>]*(?:<|\Z)")
"""A tag in which another begins, which XML forbids (XML 1.0, section 3.1). The searched text ends
before a `<`."""


def check_workbook(path: Path) -> frozenset[str]:
    """Raise RefusedTable for an archive that must not be opened as a workbook.

    Return the parts in which `doubts_of` must look for what the library hides.
    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entries = archive.infolist()
            _check_entries(entries, path.stat().st_size)
            return frozenset(
                entry.filename.lower() for entry in entries if _check_content(entry, file)
            )
    except DAMAGED as error:
        raise tables.RefusedTable(
            1, f"the workbook is cut short or damaged, export it again ({type(error).__name__})"
        ) from None


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    if len(entries) > MAX_ENTRIES:
        raise tables.RefusedTable(1, f"the workbook has more than {MAX_ENTRIES:,} parts")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise tables.RefusedTable(1, "the workbook is encrypted: save it without a password")
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if any(entry.compress_type not in known for entry in entries):
        raise tables.RefusedTable(1, "the workbook is packed as no spreadsheet program does")
    content = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if packed > size:
        raise tables.RefusedTable(1, "the workbook uses the same bytes several times")
    if content > MAX_CONTENT or content > max(FREE_CONTENT, packed * MAX_RATIO):
        raise tables.RefusedTable(
            1,
            f"the workbook unpacks to {content // MIB:,} MiB from {packed / MIB:,.1f} MiB: more "
            "than is read; export it as CSV",
        )


def _check_content(entry: zipfile.ZipInfo, file: BinaryIO) -> bool:
    """Unpack an entry without keeping it, and check where its cells are.

    Return whether it may have formulas, errors or hidden rows.
    """
    scan = _Cells() if entry.filename.lower().endswith(".xml") else _NoCells()
    length = 0
    for part in _unpacked(entry, file):
        length += len(part)
        if length > entry.file_size:
            raise tables.RefusedTable(1, "the workbook has more content than it declares")
        scan.look(part)
    if length != entry.file_size:
        raise tables.RefusedTable(1, "the workbook is cut short: export it again")
    scan.look(b"<")
    return scan.doubtful


class _Cells:
    """The last row and column with a cell, seen in a part that may be a sheet."""

    def __init__(self) -> None:
        self.doubtful = False
        self._rows = self._columns = 0
        self._rest = b""

    def look(self, part: bytes) -> None:
        text = self._rest + part
        cut = max(text.rfind(b"<"), 0)
        text, self._rest = text[:cut], text[cut:]
        if len(self._rest) > MAX_TAG:
            raise tables.RefusedTable(1, "the workbook has a cell or a tag of more than a mebibyte")
        if _UNCLOSED.search(text):
            raise tables.RefusedTable(1, "the workbook is damaged: it has a cell that does not end")
        if not self.doubtful:
            marked = b"hidden" in text or b'"e"' in text or b"'e'" in text
            self.doubtful = marked or _FORMULA.search(text) is not None
        if b"sst" in text and _TEXTS.search(text):
            raise tables.RefusedTable(
                1, "the workbook declares more texts than it can have: save it anew, or as CSV"
            )
        placed = _PLACED.findall(text)
        if len(_CELL.findall(text)) != len(placed):
            raise tables.RefusedTable(
                1,
                "the workbook has cells that do not say where they are: save it anew with a "
                "spreadsheet program, or as CSV",
            )
        rows = {*_ROW.findall(text), *(row for _, row in placed)}
        self._rows = max(self._rows, *(int(row[:9]) for row in rows), 0)
        columns = {letters for letters, _ in placed}
        self._columns = max(self._columns, *map(_column_number, columns), 0)
        if self._rows * self._columns > MAX_CELLS:
            raise tables.RefusedTable(
                1,
                f"the sheet goes to row {self._rows:,} and column {self._columns:,}: more than "
                f"{MAX_CELLS:,} cells lie between; delete what stands far out, or use CSV",
            )


class _NoCells:
    """A part such as a picture. The library would read a sheet hidden under such a name."""

    doubtful = False

    def __init__(self) -> None:
        self._rest = b""

    def look(self, part: bytes) -> None:
        text = self._rest + part
        if _SHEET in text:
            raise tables.RefusedTable(
                1, "the workbook keeps a sheet where no spreadsheet program does"
            )
        self._rest = text[-len(_SHEET) :]


def _unpacked(entry: zipfile.ZipInfo, file: BinaryIO) -> Iterator[bytes]:
    """Yield the content that is really there, in parts."""
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER)
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    file.seek(names, 1)
    left = entry.compress_size
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    while left:
        packed = file.read(min(left, _PART))
        if not packed:
            raise EOFError
        left -= len(packed)
        if entry.compress_type == zipfile.ZIP_STORED:
            yield packed
            continue
        yield inflate.decompress(packed, _PART)
        while inflate.unconsumed_tail:
            yield inflate.decompress(inflate.unconsumed_tail, _PART)
    yield inflate.flush()


def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - 64
    return number


# --- what the library hides -----------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class SheetDoubts:
    """Cells that must not be read as they are given, and rows that a person does not see.

    cells   by row, then by column (both from 1), the text of an error; "" for a formula without a
            saved value
    hidden  hidden rows with content
    """

    cells: dict[int, dict[int, str]] = field(default_factory=dict)
    hidden: list[int] = field(default_factory=list)


class _Elements:
    """Base of readers that follow a part's elements. Document types are refused."""

    def read(self, archive: zipfile.ZipFile, part: str) -> None:
        """Raises RefusedTable for a part that is missing or no XML."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self.start
        parser.CharacterDataHandler = self.text
        parser.StartDoctypeDeclHandler = self._refuse
        names = {name.lower(): name for name in archive.namelist()}
        try:
            with archive.open(names[part.lower()]) as file:
                parser.ParseFile(file)
        except (*DAMAGED, expat.ExpatError, KeyError) as error:
            raise tables.RefusedTable(
                1, f"the workbook is damaged: save it anew, or as CSV ({type(error).__name__})"
            ) from None

    def _refuse(self, *_: Any) -> None:
        raise tables.RefusedTable(1, "the workbook has a document type, as no program writes it")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Take the start of an element; its name may have a prefix."""

    def text(self, text: str) -> None:
        """Take text between elements."""


class _Parts(_Elements):
    """The part of each sheet, by the workbook's own list of them."""

    def __init__(self) -> None:
        self.part_of: dict[str, str] = {}
        self.recalculated = False
        self._targets: dict[str, str] = {}
        self._sheets: dict[str, str] = {}

    def find(self, archive: zipfile.ZipFile) -> None:
        self.read(archive, "xl/workbook.xml")
        self.read(archive, "xl/_rels/workbook.xml.rels")
        for sheet, key in self._sheets.items():
            target = self._targets.get(key, "").replace("\\", "/")
            inner = target.startswith(("/", "xl/"))
            self.part_of[sheet] = normpath(target if inner else f"xl/{target}").lstrip("/")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        name = name.rpartition(":")[2]
        if name == "Relationship":
            self._targets[attributes.get("Id", "")] = attributes.get("Target", "")
        elif name == "sheet":
            keys = [value for key, value in attributes.items() if key.endswith(":id")]
            self._sheets[attributes.get("name", "")] = keys[0] if keys else ""
        elif name == "calcPr":
            self.recalculated = attributes.get("fullCalcOnLoad") in ("1", "true")


class _Doubts(_Elements):
    """Follows the rows and cells of a sheet."""

    def __init__(self, *, recalculated: bool) -> None:
        """recalculated: whether the values of formulas are to be worked out at opening. A program
        that wrote a formula without its value may then have saved a zero."""
        self.found = SheetDoubts()
        self._recalculated = recalculated
        self._row, self._hidden, self._doubts = 0, False, 0
        self._cell = self._type = ""
        self._formula = self._valued = False
        self._value: str | None = None

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        name = name.rpartition(":")[2]
        if name == "c":
            self.end_cell()
            self._cell, self._type = attributes.get("r", ""), attributes.get("t", "n")
        elif name == "f":
            self._formula, self._valued = True, False
        elif name in ("v", "is"):
            self._value, self._valued = "", True
            if self._hidden:
                self.found.hidden.append(self._row)
                self._hidden = False
        elif name == "row":
            self.end_cell()
            self._row = int(attributes.get("r", self._row + 1))
            self._hidden = attributes.get("hidden") in ("1", "true")

    def text(self, text: str) -> None:
        if self._valued and self._value is not None:
            self._value += text[:_MOST_ERROR]

    def end_cell(self) -> None:
        """Judge the cell that ended."""
        value = None if self._value is None else self._value.strip()
        worked_out = value is not None if self._type == "str" else bool(value)
        if self._recalculated and value == "0":
            worked_out = False
        if self._type == "e" or (self._formula and not worked_out):
            self._doubts += 1
            if self._doubts > MAX_DOUBTS:
                raise tables.RefusedTable(
                    1,
                    f"the sheet has more than {MAX_DOUBTS:,} errors and formulas without a value: "
                    "open it in a spreadsheet program, and save it there",
                )
            letters = self._cell.rstrip("0123456789")
            row = self.found.cells.setdefault(int(self._cell[len(letters) :]), {})
            error = (value or _ERROR)[:_MOST_ERROR] if self._type == "e" else ""
            row[_column_number(letters.encode())] = error
        self._formula, self._value, self._type = False, None, "n"


MAX_DOUBTS: Final = 100_000
"""Errors and formulas without a value in a sheet, about 400 bytes each with their problems."""

_MOST_ERROR: Final = 40
"""Characters of an error; `#GETTING_DATA` is the longest of Excel's."""

_ERROR: Final = "#ERROR!"


def doubts_of(path: Path, sheet: str, doubtful: frozenset[str]) -> SheetDoubts:
    """Return what the library hides of a sheet. Raises RefusedTable for a damaged workbook.

    doubtful  the parts that may hide something (`check_workbook`)
    """
    if not doubtful:
        return SheetDoubts()
    with zipfile.ZipFile(path) as archive:
        parts = _Parts()
        parts.find(archive)
        part = parts.part_of.get(sheet, "").lower()
        if part in {name.lower() for name in archive.namelist()} - doubtful:
            return SheetDoubts()
        reader = _Doubts(recalculated=parts.recalculated)
        reader.read(archive, part)
        reader.end_cell()
    return reader.found


# --- one sheet as a table -------------------------------------------------------------------------


_LONG: Final = 10**15
"""From here on a number has more digits than a spreadsheet program keeps."""

_NOT_EXACT: Final = 2**53
"""From here on a workbook's numbers are not exact: they are shown as they are."""

_PANIC: Final = "PanicException"
"""Name of the error that the library raises for unexpected content; it is no Exception."""

_MOST_LISTED: Final = 10
"""Sheets or stretches of rows that are named in a sentence."""


class XlsxTable:
    """One sheet; its heading is the given row, or is found (`heading_in`).

    besides  notes on what the workbook has besides the rows that people see in a sheet they named
    """

    of_ours = False
    notes: Sequence[str] = ()
    besides: Sequence[str] = ()
    periods: Sequence[tables.StatedPeriod] = ()

    def __init__(
        self,
        path: Path,
        *,
        sheet: str | None,
        recognize: tables.Recognize,
        heading_row: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Open the sheet and find its heading.

        recognize  counts the known columns of a heading
        names      the columns that are read: error cells in them are problems
        If row 0 is given, the sheet has no heading, and its columns have the names of their places.
        """
        doubtful = check_workbook(path)
        book, self._sheet = _sheet(path, sheet)
        self._doubts = doubts_of(path, self._sheet.name, doubtful)
        if names:
            others, hidden = [*_other_sheets(book, self._sheet.name)], [*self._hidden_rows()]
            self.notes = [*others, *hidden]
            self.besides = [*(others if sheet is None else ()), *hidden]
        self._has_heading = heading_row != 0
        if not heading_row:
            found = self.first_rows()[: 1 if heading_row == 0 else None]
        else:
            found = list(islice(self._rows(), heading_row - 1, heading_row))
            if not found or not any(found[0][1]):
                raise tables.RefusedTable(
                    heading_row, "there is no heading in this row, where the mapping says it is"
                )
        if not found:
            raise tables.RefusedTable(1, f"the sheet {self._sheet.name[:80]!r} is empty")
        self.heading_row, heading = found[tables.heading_in([recognize(row) for _, row in found])]
        self.head: Sequence[str] = [
            " ".join(filter(None, row)) for _, row in islice(self._rows(), self.heading_row - 1)
        ]
        if not self._has_heading:
            heading = tables.places_as_names(heading)
        while heading and not heading[-1]:
            heading.pop()
        self.heading: Sequence[str] = heading
        if len(heading) > tables.MAX_COLUMNS:
            raise tables.RefusedTable(
                self.heading_row, f"there are more than {tables.MAX_COLUMNS} columns"
            )
        wanted = {tables.plain_name(name) for name in names}
        self._broken = dict(self._problems(wanted)) if self._doubts.cells else {}

    def first_rows(self) -> list[tuple[int, list[str]]]:
        """Return the rows among which the heading is looked for, each with its number."""
        return list(islice((each for each in self._rows() if any(each[1])), tables.SEARCHED_ROWS))

    def batches(self) -> Iterator[tables.Batch]:
        before = self.heading_row if self._has_heading else self.heading_row - 1
        rows = dropwhile(lambda each: each[0] <= before, self._rows())
        width = len(self.heading)
        while part := list(islice(rows, tables.BATCH)):
            numbers = [number for number, _ in part]
            broken = {n: self._broken[n] for n in numbers if n in self._broken}
            for number, row in part if broken else ():
                if number in broken:
                    for place, error in self._doubts.cells[number].items():
                        if place <= width:
                            row += [""] * (place - len(row))
                            row[place - 1] = error or tables.NO_VALUE
            cut: list[Sequence[str]] = [row if any(row[width:]) else row[:width] for _, row in part]
            yield tables.Batch(cut, numbers, broken)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        doubts, number = self._doubts.cells, 0
        # The library leaves out empty columns on the left, and rows of formulas alone.
        left = [""] * (self._sheet.start[1] if self._sheet.start else 0)
        for number, row in enumerate(self._sheet.iter_rows(), 1):
            cells = left + [cell if type(cell) is str else _text(cell) for cell in row]
            yield number, _with_errors(cells, doubts[number]) if number in doubts else cells
        for beyond in sorted(each for each in doubts if each > number):
            width = len(left) + self._sheet.total_width
            yield beyond, _with_errors([""] * width, doubts[beyond])

    def _problems(self, wanted: set[str]) -> Iterator[tuple[int, tables.Problem]]:
        """Yield the rows with doubtful cells in these columns, each with its problem."""
        read = {
            place: name
            for place, name in enumerate(self.heading, 1)
            if tables.plain_name(name) in wanted
        }
        for row, cells in self._doubts.cells.items():
            places = sorted(read.keys() & cells.keys())
            said = []
            for place in places:
                cell, error = f"cell {tables.column_letters(place)}{row}", cells[place]
                what = f"holds the error {error}" if error else "has a formula without a value"
                said.append(f"{cell} {what}")
            if said:
                where = f"Sheet {self._sheet.name[:80]!r}, {', '.join(said)}"
                then = "put it right in a spreadsheet program, and save the workbook there"
                column = read[places[0]].strip()
                yield row, tables.Problem(row=row, column=column, sentence=f"{where}: {then}")

    def _hidden_rows(self) -> Iterator[str]:
        if hidden := self._doubts.hidden:
            yield (
                f"Hidden rows are read, too: {counted(len(hidden), 'row')} of the sheet "
                f"{self._sheet.name[:80]!r}, by a filter or by hand: {_stretches(hidden)}."
            )


def _with_errors(cells: list[str], errors: Mapping[int, str]) -> list[str]:
    for place, error in errors.items():
        if error:
            cells += [""] * (place - len(cells))
            cells[place - 1] = error
    return cells


def _stretches(rows: Sequence[int]) -> str:
    """List rows as `rows 5 to 9, 12`."""
    starts = [row for place, row in enumerate(rows) if not place or rows[place - 1] != row - 1]
    ends = [row for row, then in zip(rows, chain(rows[1:], [0]), strict=True) if then != row + 1]
    named = [
        f"{start:,}" if start == end else f"{start:,} to {end:,}"
        for start, end in zip(starts, ends, strict=True)
    ]
    more = len(named) - _MOST_LISTED
    return f"row{'s' * (len(rows) > 1)} {', '.join(named[:_MOST_LISTED])}" + (
        f" and {counted(more, 'more stretch', 'more stretches')}" if more > 0 else ""
    )


def _other_sheets(book: CalamineWorkbook, chosen: str) -> Iterator[str]:
    """Yield a note that names the other sheets with rows; none if there are none."""
    others = []
    for each in book.sheets_metadata:
        if each.name == chosen or each.typ != SheetTypeEnum.WorkSheet:
            continue
        if rows := _of_library(partial(book.get_sheet_by_name, each.name)).height:
            hidden = "" if each.visible == SheetVisibleEnum.Visible else ", hidden"
            others.append(f"{each.name[:80]!r} ({counted(rows, 'row')}{hidden})")
    if others:
        more = len(others) - _MOST_LISTED
        listed = ", ".join(others[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
        yield (
            f"Only the sheet {chosen[:80]!r} is read. Others have content, too: {listed}. To read "
            "another one, name it with --sheet."
        )


def sheets_with_rows(path: Path) -> Sequence[str]:
    """Return the names of a workbook's sheets that have content. Raises RefusedTable."""
    check_workbook(path)
    book = _of_library(partial(load_workbook, path))
    return [
        each.name
        for each in book.sheets_metadata
        if each.typ == SheetTypeEnum.WorkSheet
        and _of_library(partial(book.get_sheet_by_name, each.name)).height
    ]


def _sheet(path: Path, name: str | None) -> tuple[CalamineWorkbook, CalamineSheet]:
    book = _of_library(partial(load_workbook, path))
    sheets = [each for each in book.sheets_metadata if each.typ == SheetTypeEnum.WorkSheet]
    if name is not None and name not in [each.name for each in sheets]:
        there = ", ".join(repr(each.name[:80]) for each in sheets[:_MOST_LISTED])
        raise tables.RefusedTable(1, f"there is no sheet {name[:80]!r}; there are: {there}")
    shown = [each.name for each in sheets if each.visible == SheetVisibleEnum.Visible]
    if not shown and name is None:
        raise tables.RefusedTable(1, "the workbook has no sheet that is shown")
    return book, _of_library(partial(book.get_sheet_by_name, name or shown[0]))


Given = TypeVar("Given")


def _of_library(read: Callable[[], Given]) -> Given:
    """Return what the library gives. Raises RefusedTable where it fails."""
    try:
        return read()
    except CalamineError as error:
        name = type(error).__name__  # its text may quote a cell
        raise tables.RefusedTable(
            1, f"the workbook cannot be read ({name}): save it anew, or as CSV"
        ) from None
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise tables.RefusedTable(1, "the workbook is damaged: save it anew, or as CSV") from None


def _text(cell: Any) -> str:
    """Return the cell as text of its own type."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, int | float):
        if not abs(cell) < _LONG:  # also true of NaN
            return tables.LongNumber(int(cell) if abs(cell) < _NOT_EXACT else repr(cell))
        return tables.Number(
            int(cell) if cell == int(cell) else format(Decimal(f"{cell:.15g}"), "f")
        )
    if isinstance(cell, datetime.datetime | datetime.date):
        return tables.CellMoment(cell.isoformat())
    return str(cell)[: tables.MAX_CELL]
