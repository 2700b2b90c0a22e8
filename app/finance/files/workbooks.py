"""Read a sheet of a workbook (XLSX) as a table, in a child process with limits."""

import datetime
import json
import os
import re
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import chain, dropwhile, islice
from pathlib import Path
from posixpath import normpath
from typing import IO, Any, Final, TypeVar
from xml.parsers import expat

import python_calamine

from app.core.child import MIB, ChildLimits, ChildStopped, write_from_child
from app.core.text import counted
from app.finance.files import tables
from app.finance.files.containers import DAMAGED

MAX_ENTRIES: Final = 2_000
"""Maximum number of parts in a workbook."""

MAX_CONTENT: Final = 1024 * MIB
"""Maximum number of bytes of all parts together, unpacked."""

MAX_RATIO: Final = 200
"""Maximum ratio of unpacked to packed bytes."""

FREE_CONTENT: Final = 10 * MIB

MAX_CELLS: Final = 20_000_000

OF_ONE_SHEET: Final = ChildLimits(
    memory_mib=1_536, processor_s=120, duration_s=180, result_mib=2_048
)
"""Limits of the child process that reads a sheet."""

MAX_ROW: Final = 16 * MIB
"""Maximum number of bytes of a row as JSON."""

_ENCRYPTED: Final = 0x1


# --- in the child ---------------------------------------------------------------------------------


def _line(value: object) -> bytes:
    return json.dumps(value, default=_untyped).encode() + b"\n"


def _untyped(cell: object) -> object:
    if isinstance(cell, datetime.datetime | datetime.date):
        return [cell.isoformat()]
    return str(cell)


def sheet_lines(path: Path, name: str | None, noted: bool, most: int) -> Iterator[bytes]:
    """Yield a sheet, or the refusal's reason, as lines of JSON."""
    try:
        check_workbook(path)
        book, sheet = _sheet(path, name)
        doubts = doubts_of(path, sheet.name)
        rows, columns = (each + 1 for each in sheet.end or (-1, -1))
        if rows * columns > MAX_CELLS or columns > MAX_COLUMN:
            raise tables.RefusedTable(
                1,
                f"the sheet goes to row {rows:,} and column {columns:,}, more than "
                f"{MAX_CELLS:,} cells in all: delete cells far outside the table, or use CSV",
            )
        yield _line(
            {
                "name": sheet.name,
                "left": sheet.start[1] if sheet.start else 0,
                "width": sheet.total_width,
                "others": [*_other_sheets(book, sheet.name)] if noted else [],
                "hidden": [*_hidden_rows(sheet, doubts)] if noted else [],
                "doubts": doubts.cells,
            }
        )
        left = most or -1
        for number, row in enumerate(sheet.iter_rows(), 1):
            line = _line(row)
            if len(line) > MAX_ROW:
                raise tables.RefusedTable(number, f"the row is larger than {MAX_ROW // MIB} MiB")
            yield line
            left -= any(row)
            if not left:
                return
    except tables.RefusedTable as refused:
        yield _line({"row": refused.problem.row, "sentence": refused.problem.sentence})


def sheet_names(path: Path) -> Iterator[bytes]:
    """Yield the sheets' names, or an error, as JSON."""
    try:
        check_workbook(path)
        book = _of_library(partial(python_calamine.load_workbook, path))
        yield _line(
            [
                each.name
                for each in book.sheets_metadata
                if each.typ == python_calamine.SheetTypeEnum.WorkSheet
                and _of_library(partial(book.get_sheet_by_name, each.name)).height
            ]
        )
    except tables.RefusedTable as refused:
        yield _line({"row": refused.problem.row, "sentence": refused.problem.sentence})


def check_workbook(path: Path) -> None:
    """Raise RefusedTable if a workbook is not safe to open."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except DAMAGED as error:
        raise _damaged(error) from None
    if len(entries) > MAX_ENTRIES:
        raise tables.RefusedTable(1, f"the workbook has more than {MAX_ENTRIES:,} parts")
    if len({each.filename.lower() for each in entries}) < len(entries):
        raise tables.RefusedTable(1, "the workbook has two parts with the same name: save it again")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise tables.RefusedTable(1, "the workbook is encrypted: save it without a password")
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if any(entry.compress_type not in known for entry in entries):
        raise tables.RefusedTable(
            1, "the workbook is packed in a way that no spreadsheet program uses"
        )
    content = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if packed > path.stat().st_size:
        raise tables.RefusedTable(
            1, "parts of the workbook overlap: open it in a spreadsheet program, and save it again"
        )
    if content > MAX_CONTENT or content > max(FREE_CONTENT, packed * MAX_RATIO):
        raise tables.RefusedTable(
            1,
            f"the workbook is too large once unpacked: its {packed / MIB:,.1f} MiB unpack to "
            f"{content // MIB:,} MiB. Export it as CSV",
        )


def _damaged(error: BaseException) -> tables.RefusedTable:
    return tables.RefusedTable(
        1, f"the workbook is cut short or damaged, export it again ({type(error).__name__})"
    )


# --- content that the library hides ---------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class SheetDoubts:
    """Unreliable cells and hidden rows of a sheet."""

    cells: dict[int, dict[int, str]] = field(default_factory=dict)
    hidden: list[int] = field(default_factory=list)


def doubts_of(path: Path, sheet: str) -> SheetDoubts:
    """Return a sheet's doubtful cells and hidden rows. Raise RefusedTable for a damaged sheet."""
    with zipfile.ZipFile(path) as archive:
        parts = _Parts()
        parts.find(archive)
        part, end, doubtful = parts.part_of.get(sheet, ""), b"", False

        def look(content: bytes) -> None:
            nonlocal end, doubtful
            seen = end + content
            doubtful = doubtful or any(mark in seen for mark in _MARKS)
            end = seen[-_LONGEST_MARK:]

        _parse(archive, part, look=look)  # malformed XML could give a cell two positions
        reader = _Doubts(recalculated=parts.recalculated)
        if doubtful:
            _parse(archive, part, start=reader.start, text=reader.text)
            reader.end_cell()
    return reader.found


_MARKS: Final = (b"hidden", b'"e"', b"'e'", b"<f", b":f", b"\0")

_LONGEST_MARK: Final = max(map(len, _MARKS))


def _parse(
    archive: zipfile.ZipFile,
    part: str,
    *,
    start: Callable[[str, dict[str, str]], None] | None = None,
    text: Callable[[str], None] | None = None,
    look: Callable[[bytes], None] | None = None,
) -> None:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = _refuse_type
    names = {name.lower(): name for name in archive.namelist()}
    try:
        with archive.open(names[part.lower()]) as file:
            while content := file.read(MIB):
                if look is not None:
                    look(content)
                parser.Parse(content)
            parser.Parse(b"", True)
    except (*DAMAGED, expat.ExpatError, KeyError) as error:
        raise _damaged(error) from None


def _refuse_type(*_: Any) -> None:
    raise tables.RefusedTable(
        1, "the workbook has a document type, which no spreadsheet program writes"
    )


class _Parts:
    def __init__(self) -> None:
        self.part_of: dict[str, str] = {}
        self.recalculated = False
        self._targets: dict[str, str] = {}
        self._sheets: dict[str, str] = {}

    def find(self, archive: zipfile.ZipFile) -> None:
        _parse(archive, "xl/workbook.xml", start=self._start)
        _parse(archive, "xl/_rels/workbook.xml.rels", start=self._start)
        for sheet, key in self._sheets.items():
            target = self._targets.get(key, "").replace("\\", "/")
            inner = target.startswith(("/", "xl/"))
            self.part_of[sheet] = normpath(target if inner else f"xl/{target}").lstrip("/")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        name = name.rpartition(":")[2]
        if name == "Relationship":
            self._targets[attributes.get("Id", "")] = attributes.get("Target", "")
        elif name == "sheet":
            keys = [value for key, value in attributes.items() if key.endswith(":id")]
            self._sheets[attributes.get("name", "")] = keys[0] if keys else ""
        elif name == "calcPr":
            self.recalculated = attributes.get("fullCalcOnLoad") in ("1", "true")


class _Doubts:
    def __init__(self, *, recalculated: bool) -> None:
        """Start without any doubtful cells."""
        self.found = SheetDoubts()
        self._recalculated = recalculated
        self._row, self._column, self._hidden, self._doubts = 0, 0, False, 0
        self._cell, self._type = (0, 0), ""
        self._formula = self._valued = False
        self._value: str | None = None

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        name = name.rpartition(":")[2]
        if name == "c":
            self.end_cell()
            self._column += 1
            if "r" in attributes:
                place = _PLACE.fullmatch(attributes["r"])
                if place is None:
                    raise tables.RefusedTable(1, "the workbook has a cell without a valid position")
                self._row, self._column = int(place[2]), _column_number(place[1])
            self._cell, self._type = (self._row, self._column), attributes.get("t", "n")
        elif name == "f":
            self._formula, self._valued = True, False
        elif name in ("v", "is"):
            self._value, self._valued = "", True
            if self._hidden:
                self.found.hidden.append(self._row)
                self._hidden = False
        elif name == "row":
            self.end_cell()
            number = attributes.get("r", "")
            self._row = int(number) if _NUMBER.fullmatch(number) else self._row + 1
            self._column, self._hidden = 0, attributes.get("hidden") in ("1", "true")

    def text(self, text: str) -> None:
        if self._valued and self._value is not None:
            self._value += text[:_MOST_ERROR]

    def end_cell(self) -> None:
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
            row, column = self._cell
            error = (value or _ERROR)[:_MOST_ERROR] if self._type == "e" else ""
            self.found.cells.setdefault(row, {})[column] = error
        self._formula, self._value, self._type = False, None, "n"


_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_PLACE: Final = re.compile(r"([A-Za-z]{1,3})([0-9]{1,9})")


def _column_number(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number


MAX_DOUBTS: Final = 100_000
"""Maximum number of doubtful cells in a sheet."""

_MOST_ERROR: Final = 40

_ERROR: Final = "#ERROR!"


_PANIC: Final = "PanicException"

_MOST_LISTED: Final = 10


def _hidden_rows(sheet: python_calamine.CalamineSheet, doubts: SheetDoubts) -> Iterator[str]:
    if hidden := doubts.hidden:
        yield (
            f"Hidden rows are imported, too: {counted(len(hidden), 'row')} of the sheet "
            f"{sheet.name[:80]!r}, hidden by a filter or by hand: {_stretches(hidden)}."
        )


def _stretches(rows: Sequence[int]) -> str:
    starts = [row for place, row in enumerate(rows) if not place or rows[place - 1] != row - 1]
    ends = [row for row, then in zip(rows, chain(rows[1:], [0]), strict=True) if then != row + 1]
    named = [
        f"{start:,}" if start == end else f"{start:,} to {end:,}"
        for start, end in zip(starts, ends, strict=True)
    ]
    more = len(named) - _MOST_LISTED
    return f"row{'s' * (len(rows) > 1)} {', '.join(named[:_MOST_LISTED])}" + (
        f" and {counted(more, 'more range', 'more stretches')}" if more > 0 else ""
    )


def _other_sheets(book: python_calamine.CalamineWorkbook, chosen: str) -> Iterator[str]:
    others = []
    for each in book.sheets_metadata:
        if each.name == chosen or each.typ != python_calamine.SheetTypeEnum.WorkSheet:
            continue
        if rows := _of_library(partial(book.get_sheet_by_name, each.name)).height:
            hidden = "" if each.visible == python_calamine.SheetVisibleEnum.Visible else ", hidden"
            others.append(f"{each.name[:80]!r} ({counted(rows, 'row')}{hidden})")
    if others:
        more = len(others) - _MOST_LISTED
        listed = ", ".join(others[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
        yield (
            f"Only the sheet {chosen[:80]!r} is imported. Other sheets have content, too: "
            f"{listed}. To read "
            "another one, name it with --sheet."
        )


def _sheet(
    path: Path, name: str | None
) -> tuple[python_calamine.CalamineWorkbook, python_calamine.CalamineSheet]:
    book = _of_library(partial(python_calamine.load_workbook, path))
    sheets = [
        each for each in book.sheets_metadata if each.typ == python_calamine.SheetTypeEnum.WorkSheet
    ]
    if name is not None and name not in [each.name for each in sheets]:
        there = ", ".join(repr(each.name[:80]) for each in sheets[:_MOST_LISTED])
        raise tables.RefusedTable(1, f"there is no sheet {name[:80]!r}; there are: {there}")
    shown = [
        each.name for each in sheets if each.visible == python_calamine.SheetVisibleEnum.Visible
    ]
    if not shown and name is None:
        raise tables.RefusedTable(1, "the workbook has no visible sheet")
    return book, _of_library(partial(book.get_sheet_by_name, name or shown[0]))


Given = TypeVar("Given")


def _of_library(read: Callable[[], Given]) -> Given:
    try:
        return read()
    except python_calamine.CalamineError as error:
        name = type(error).__name__  # its text may quote a cell
        raise tables.RefusedTable(
            1, f"the workbook cannot be read ({name}): save it again, or as CSV"
        ) from None
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise tables.RefusedTable(1, "the workbook is damaged: save it again, or as CSV") from None


# --- one sheet as a table -------------------------------------------------------------------------


_LONG: Final = 10**15
"""Smallest number with more digits than a spreadsheet stores."""

_NOT_EXACT: Final = 2**53
"""Smallest number that a workbook may store inexactly."""


class XlsxTable:
    """Sheet of a workbook as a table."""

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
        most: int = 0,
    ) -> None:
        """Open the sheet and find its heading. `heading_row` is None to find the heading, and 0
        without one."""
        self._sheet = _WrittenSheet(path, sheet, noted=bool(names), most=most)
        others, hidden = self._sheet.others, self._sheet.hidden
        self.notes = [*others, *hidden]
        self.besides = [*(others if sheet is None else ()), *hidden]
        self._has_heading = heading_row != 0
        if not heading_row:
            found = self.first_rows()[: 1 if heading_row == 0 else None]
        else:
            found = list(islice(self._rows(), heading_row - 1, heading_row))
            if not found or not any(found[0][1]):
                raise tables.RefusedTable(
                    heading_row,
                    "the mapping says that this row is the heading, but the row has none",
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
        self._broken = dict(self._problems(wanted)) if self._sheet.doubts else {}

    def first_rows(self) -> list[tuple[int, list[str]]]:
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
                    for place, error in self._sheet.doubts[number].items():
                        if place <= width:
                            row += [""] * (place - len(row))
                            row[place - 1] = error or tables.NO_VALUE
            cut: list[Sequence[str]] = [row if any(row[width:]) else row[:width] for _, row in part]
            yield tables.Batch(cut, numbers, broken)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        doubts, number = self._sheet.doubts, 0
        # The library leaves out empty columns on the left, and rows of formulas alone.
        left = [""] * self._sheet.left
        for number, row in enumerate(self._sheet.rows(), 1):
            cells = left + [cell if type(cell) is str else _text(cell) for cell in row]
            yield number, _with_errors(cells, doubts[number]) if number in doubts else cells
        for beyond in sorted(each for each in doubts if each > number):
            width = len(left) + self._sheet.width
            yield beyond, _with_errors([""] * width, doubts[beyond])

    def _problems(self, wanted: set[str]) -> Iterator[tuple[int, tables.Problem]]:
        read = {
            place: name
            for place, name in enumerate(self.heading, 1)
            if tables.plain_name(name) in wanted
        }
        for row, cells in self._sheet.doubts.items():
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


def _with_errors(cells: list[str], errors: Mapping[int, str]) -> list[str]:
    for place, error in errors.items():
        if error:
            cells += [""] * (place - len(cells))
            cells[place - 1] = error
    return cells


class _WrittenSheet:
    def __init__(self, path: Path, name: str | None, *, noted: bool, most: int) -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, file.close)
        _in_child(sheet_lines, path, name, noted, most, to=file)
        file.flush()
        self._file = file.fileno()
        with _as_written():
            head = next(_values(self._file))
            self.name = str(head["name"])
            self.others, self.hidden = ([*map(str, head[key])] for key in ("others", "hidden"))
            self.left, self.width = _column(head["left"]), _column(head["width"])
            self.doubts: Mapping[int, Mapping[int, str]] = {
                int(row): {_column(place): str(error) for place, error in cells.items()}
                for row, cells in head["doubts"].items()
            }

    def rows(self) -> Iterator[list[Any]]:
        for row in islice(_values(self._file), 1, None):
            if type(row) is not list:
                raise _damaged(TypeError())
            yield row


def _values(file: int) -> Iterator[Any]:
    at, rest = 0, b""
    while part := os.pread(file, MIB, at):
        at += len(part)
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            with _as_written():
                value = json.loads(line)
                if isinstance(value, dict) and "sentence" in value:
                    raise tables.RefusedTable(int(value["row"]), str(value["sentence"]))
            yield value
        if len(rest) > 2 * MAX_ROW:
            raise _damaged(OverflowError())


@contextmanager
def _as_written() -> Iterator[None]:
    """Raise RefusedTable if the child process wrote something unexpected. A harmful workbook can
    control that process."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, StopIteration) as e:
        raise _damaged(e) from None


def _column(number: Any) -> int:
    if not 0 <= int(number) <= MAX_COLUMN:
        raise ValueError
    return int(number)


MAX_COLUMN: Final = 26 + 26**2 + 26**3
"""Number of column ZZZ. Excel's last column is 16,384."""


def sheets_with_rows(path: Path) -> Sequence[str]:
    """Return the names of a workbook's sheets that have content. Raise RefusedTable for an
    unreadable workbook."""
    with tempfile.TemporaryFile() as file:
        _in_child(sheet_names, path, to=file)
        file.flush()
        with _as_written():
            return [*map(str, next(_values(file.fileno())))]


def _in_child(
    work: Callable[..., Iterator[bytes]], path: Path, *values: object, to: IO[bytes]
) -> None:
    with tempfile.TemporaryDirectory(prefix="tallyhook-workbook-") as folder:
        named = Path(folder) / "book.xlsx"  # the library decides by the file ending
        named.symlink_to(path.absolute())
        try:
            write_from_child(work, named, *values, limits=OF_ONE_SHEET, to=to)
        except ChildStopped as stopped:
            raise tables.RefusedTable(
                1,
                f"the workbook cannot be read, {stopped}: delete cells far outside the tables, "
                "then save the workbook again with a spreadsheet program, or as CSV",
            ) from None


def _text(cell: Any) -> str:
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, int | float):
        if not abs(cell) < _LONG:  # also true of NaN
            return tables.LongNumber(int(cell) if abs(cell) < _NOT_EXACT else repr(cell))
        return tables.Number(
            int(cell) if cell == int(cell) else format(Decimal(f"{cell:.15g}"), "f")
        )
    if isinstance(cell, list):
        return tables.CellMoment(" ".join(map(str, cell)))
    return str(cell)[: tables.MAX_CELL]
