"""Opens a file as a table by its content; the file's name does not matter."""

import datetime
import hashlib
import json
import re
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NoReturn

from python_calamine import (
    CalamineError,
    CalamineSheet,
    SheetTypeEnum,
    SheetVisibleEnum,
    load_workbook,
)

from app.core.errors import NotFoundError, UsageError
from app.finance.files import shaping, tables
from app.finance.files.mapping import Fields, FileMapping

# --- tables of JSON Lines -------------------------------------------------------------------------


MAX_DIGITS: Final = 100
"""Characters of one number; no amount needs a third as many."""

MAX_BROKEN: Final = 100
"""Broken lines among the first ones, up to which the file counts as JSON Lines even if more lines
are broken than whole: each can be reported. A JSON document over several lines has more."""

_BrokenLine = tuple[str, str]
"""A line that is no object: the sentence on it, and its text."""


class JsonLines:
    """One file of JSON Lines. Its heading has the names used in the first BATCH lines."""

    heading_row = 1
    of_ours = False
    notes: Sequence[str] = ()
    head: Sequence[str] = ()
    periods: Sequence[tables.StatedPeriod] = ()

    def __init__(self, path: Path, *, encoding: str | None, names: Sequence[str]) -> None:
        """names: the columns that are looked for; others are skipped."""
        self._path, self._encoding = path, tables.encoding_of(path, encoding)
        wanted = {tables.plain_name(name) for name in names}
        first = list(islice(self._objects(), tables.BATCH))
        broken = [(number, row[0]) for number, row in first if isinstance(row, tuple)]
        if broken and len(broken) >= min(len(first), max(MAX_BROKEN, len(first) // 2) + 1):
            number, sentence = broken[0]
            others = ", nor are others: JSON Lines has one object on each line"
            raise tables.RefusedTable(number, sentence + (others if len(broken) > 1 else ""))
        found: dict[str, str] = {}
        for _, row in first:
            for name in () if isinstance(row, tuple) else row:
                if tables.plain_name(name) in wanted:
                    found.setdefault(tables.plain_name(name), name)
        if not found:
            by_plain_name = {tables.plain_name(name): name for name in names}
            raise tables.RefusedTable(
                1, f"the file names none of: {', '.join(by_plain_name.values())}"
            )
        self.heading: Sequence[str] = list(found.values())

    def batches(self) -> Iterator[tables.Batch]:
        places = {tables.plain_name(name): place for place, name in enumerate(self.heading)}
        objects, read = self._objects(), 0
        while part := list(islice(objects, tables.BATCH)):
            read += len(part)
            if read > tables.MAX_ROWS:
                raise tables.RefusedTable(
                    part[0][0], f"there are more than {tables.MAX_ROWS:,} rows: import it in parts"
                )
            rows: list[Sequence[str]] = []
            broken: dict[int, tables.Problem] = {}
            for number, row in part:
                if isinstance(row, tuple):
                    sentence, text = row
                    # An apostrophe may come before it among the rejects: leave room for it.
                    rows.append([text.strip()[: tables.MAX_CELL - 1], *[""] * (len(places) - 1)])
                    broken[number] = tables.Problem(row=number, column=None, sentence=sentence)
                else:
                    rows.append(_object_cells(row, places, number, broken))
            yield tables.Batch(rows, [number for number, _ in part], broken)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | _BrokenLine]]:
        for number, line in enumerate(tables.lines(self._path, self._encoding), 1):
            if not line.strip():
                continue
            try:
                found = _DECODER.decode(line)
            except json.JSONDecodeError as error:
                reason = f"it breaks at character {error.pos + 1}"
            except _UnfitJson as error:
                reason = str(error)
            except (ValueError, RecursionError):
                reason = "it is nested too deeply"
            else:
                if isinstance(found, dict) and len(found) <= tables.MAX_COLUMNS:
                    yield number, found
                else:
                    most = tables.MAX_COLUMNS
                    yield number, (f"the line is no JSON object of at most {most} names", line)
                continue
            yield number, (f"the line is not a JSON object: {reason}", line)


def _object_cells(
    row: dict[str, Any], places: dict[str, int], number: int, broken: dict[int, tables.Problem]
) -> list[str]:
    """Return the cells of an object; `broken` takes the first problem of its cells."""
    cells = [""] * len(places)
    for name, value in row.items():
        place = places.get(tables.plain_name(name))
        if place is None or value is None:
            continue
        if not isinstance(value, str):
            sentence = "is neither a text nor a number"
        elif len(value) > tables.MAX_CELL:
            sentence = f"has more than {tables.MAX_CELL:,} characters"
        elif cells[place]:
            sentence = "is there twice"
        else:
            cells[place] = value
            continue
        broken.setdefault(number, tables.Problem(row=number, column=name[:80], sentence=sentence))
    return cells


class _UnfitJson(ValueError):
    """JSON that no table can hold."""


def _number(text: str) -> tables.Number:
    if len(text) > MAX_DIGITS:
        raise _UnfitJson(f"it has a number of more than {MAX_DIGITS} characters")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _UnfitJson("it has a number with an exponent out of all bounds") from None
    if value and abs(value.adjusted()) > MAX_DIGITS:
        raise _UnfitJson("it has a number that is too large or too small")
    return tables.Number(format(value, "f"))


def _constant(_name: str) -> NoReturn:
    raise _UnfitJson("it has NaN or Infinity")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _UnfitJson("it has the same name twice")
    return result


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_constant
)


# --- tables of workbooks (XLSX) -------------------------------------------------------------------


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
_PLACED: Final = rb"<(?:\w+:)?c\s(?:[^<>]*?\s)?r\s*=\s*[\"']"
_COLUMN: Final = re.compile(_PLACED + rb"([A-Za-z]{1,9})[0-9]")
_ROW: Final = re.compile(rb"<(?:\w+:)?(?:c|row)\s(?:[^<>]*?\s)?r\s*=\s*[\"'][A-Za-z]{0,9}([0-9]+)")
_UNCLOSED: Final = re.compile(rb"<(?:\w+:)?(?:c|row)\s[^<>]*(?:<|\Z)")
"""A tag in which another begins, which XML forbids (XML 1.0, section 3.1). The searched text ends
before a `<`."""


def check_workbook(path: Path) -> None:
    """Raise RefusedTable for an archive that must not be opened as a workbook."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entries = archive.infolist()
            _check_entries(entries, path.stat().st_size)
            for entry in entries:
                _check_content(entry, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
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


def _check_content(entry: zipfile.ZipInfo, file: BinaryIO) -> None:
    """Unpack an entry without keeping it, and check where its cells are."""
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


class _Cells:
    """The last row and column with a cell, seen in a part that may be a sheet."""

    def __init__(self) -> None:
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
        placed = _COLUMN.findall(text)
        if len(_CELL.findall(text)) != len(placed):
            raise tables.RefusedTable(
                1,
                "the workbook has cells that do not say where they are: save it anew with a "
                "spreadsheet program, or as CSV",
            )
        self._rows = max(self._rows, *(int(row[:9]) for row in _ROW.findall(text)), 0)
        self._columns = max(self._columns, *map(_column_number, set(placed)), 0)
        if self._rows * self._columns > MAX_CELLS:
            raise tables.RefusedTable(
                1,
                f"the sheet goes to row {self._rows:,} and column {self._columns:,}: more than "
                f"{MAX_CELLS:,} cells lie between; delete what stands far out, or use CSV",
            )


class _NoCells:
    """A part such as a picture. The library would read a sheet hidden under such a name."""

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


_NOT_EXACT: Final = 2**53
"""From here on a workbook's numbers are not exact: they are shown as they are."""

_PANIC: Final = "PanicException"
"""What the library raises for content it did not expect; it is no Exception."""


class XlsxTable:
    """One sheet; its heading is the given row, or is found (`heading_in`)."""

    of_ours = False
    notes: Sequence[str] = ()
    periods: Sequence[tables.StatedPeriod] = ()

    def __init__(
        self,
        path: Path,
        *,
        sheet: str | None,
        recognize: tables.Recognize,
        heading_row: int | None = None,
    ) -> None:
        """recognize: counts the known columns of a heading."""
        check_workbook(path)
        self._sheet = _sheet(path, sheet)
        if heading_row is None:
            found = self.first_rows()
        else:
            found = list(islice(self._rows(), heading_row - 1, heading_row))
            if not found or not any(found[0][1]):
                raise tables.RefusedTable(
                    heading_row, "there is no heading in this row, where the mapping says it is"
                )
        if not found:
            raise tables.RefusedTable(1, "the sheet is empty")
        self.heading_row, heading = found[tables.heading_in([recognize(row) for _, row in found])]
        self.head: Sequence[str] = [
            " ".join(filter(None, row)) for _, row in islice(self._rows(), self.heading_row - 1)
        ]
        while heading and not heading[-1]:
            heading.pop()
        self.heading: Sequence[str] = heading
        if len(heading) > tables.MAX_COLUMNS:
            raise tables.RefusedTable(
                self.heading_row, f"there are more than {tables.MAX_COLUMNS} columns"
            )

    def first_rows(self) -> list[tuple[int, list[str]]]:
        """Return the rows among which the heading is looked for, each with its number."""
        return list(islice((each for each in self._rows() if any(each[1])), tables.SEARCHED_ROWS))

    def batches(self) -> Iterator[tables.Batch]:
        rows = islice(self._rows(), self.heading_row, None)
        width = len(self.heading)
        while part := list(islice(rows, tables.BATCH)):
            cut: list[Sequence[str]] = [row if any(row[width:]) else row[:width] for _, row in part]
            yield tables.Batch(cut, [number for number, _ in part])

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        for number, row in enumerate(self._sheet.iter_rows(), 1):
            yield number, [cell if type(cell) is str else _text(cell) for cell in row]


def _sheet(path: Path, name: str | None) -> CalamineSheet:
    try:
        book = load_workbook(path)
        shown = [
            each.name
            for each in book.sheets_metadata
            if each.typ == SheetTypeEnum.WorkSheet and each.visible == SheetVisibleEnum.Visible
        ]
        if name is not None and name not in book.sheet_names:
            raise tables.RefusedTable(
                1, f"there is no sheet {name[:80]!r}; there are: {', '.join(shown)[:300]}"
            )
        if not shown:
            raise tables.RefusedTable(1, "the workbook has no sheet that is shown")
        return book.get_sheet_by_name(shown[0] if name is None else name)
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
        if not abs(cell) < _NOT_EXACT:  # also true of NaN
            return repr(cell)
        return tables.Number(
            int(cell) if cell == int(cell) else format(Decimal(f"{cell:.15g}"), "f")
        )
    if isinstance(cell, datetime.datetime | datetime.date):
        return tables.CellMoment(cell.isoformat())
    return str(cell)[: tables.MAX_CELL]


# --- opens a file as a table, by its content ------------------------------------------------------


_ZIP: Final = b"PK\x03\x04"
_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ARRAY: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*[{\]]")
"""The beginning of a JSON array of objects, which no table's heading has."""

Check = Callable[[tables.SourceTable], None]
"""Raises RefusedTable for a table of another export."""


def open_table(
    path: Path,
    mapping: FileMapping,
    fields: Fields,
    *,
    check: Check | None = None,
) -> tables.SourceTable:
    """Open the table in a file; it yields only the rows that are data.

    check  looks at the heading before anything else does
    Raises RefusedTable, NotFoundError or UsageError for a file without a table, and OSError where
    it cannot be read.
    """
    form, names = format_of(path), mapping.looked_for(fields)
    wanted = {tables.plain_name(name) for name in names}

    def recognize(heading: Sequence[str]) -> int:
        return len(wanted & {tables.plain_name(name) for name in heading})

    heading_row = mapping.shape.heading_row
    table: tables.SourceTable
    if form == "workbook":
        table = XlsxTable(path, sheet=mapping.sheet, recognize=recognize, heading_row=heading_row)
    elif form == "json_lines":
        table = JsonLines(path, encoding=mapping.encoding, names=names)
    else:
        table = tables.CsvTable(
            path,
            encoding=mapping.encoding,
            delimiter=mapping.delimiter,
            recognize=recognize,
            heading_row=heading_row,
        )
    return as_mapped(table, mapping, fields, check=check)


def as_mapped(
    table: tables.SourceTable, mapping: FileMapping, fields: Fields, *, check: Check | None
) -> tables.SourceTable:
    """Apply the mapping's row rules to an open table. Raises as `check` and `Shaped` do."""
    if check is not None:
        check(table)
    return shaping.Shaped(table, mapping, fields) if mapping.shape.changes_rows else table


_NO_TABLES: Final = (
    (b"%PDF-", "a PDF"),
    (b"\x89PNG\r\n", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
)
"""The beginnings of files that people send instead of the export, and what each is."""


def format_of(path: Path) -> Literal["workbook", "json_lines", "text"]:
    """Recognize a file's format by its first bytes. Raises as `open_table` does."""
    start = start_of(path)
    if start.startswith(_OLD_OFFICE):
        raise tables.RefusedTable(
            1,
            "this is an encrypted workbook, or one of Excel before 2007: save it anew "
            "as .xlsx without a password, or as CSV",
        )
    for mark, what in _NO_TABLES:
        if start.startswith(mark):
            raise tables.RefusedTable(
                1,
                f"this is {what}, of which no rows are read: have whoever made it export the same "
                "as CSV or as a workbook (.xlsx)",
            )
    if start.startswith(_ZIP):
        return "workbook"
    if _ARRAY.match(start):
        raise tables.RefusedTable(
            1,
            "this is one JSON array: write each of its objects on a line of its own, "
            "without the brackets around them and the commas between",
        )
    begins_an_object = start.removeprefix(BOM_UTF8).lstrip().startswith(b"{")
    return "json_lines" if begins_an_object else "text"


def file_digest(path: Path) -> str:
    start_of(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def start_of(path: Path) -> bytes:
    """Return the first bytes of a file.

    Raises NotFoundError or UsageError where there is no file, RefusedTable for one too large.
    """
    if not path.exists():
        raise NotFoundError(f"there is no file {path.name}")
    if not path.is_file():
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name a file in it")
        raise UsageError(f"{path.name} is no file that can be read twice: save it, and name that")
    if path.stat().st_size > tables.MAX_FILE_BYTES:
        raise tables.RefusedTable(
            1, f"the file is larger than {tables.MAX_FILE_BYTES >> 30} GiB: cut it in parts"
        )
    with path.open("rb") as file:
        return file.read(512)
