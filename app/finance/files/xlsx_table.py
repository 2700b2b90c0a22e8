"""Tables of workbooks (XLSX): the first sheet that is shown, or the named one, whole in memory.

Numbers are those that the spreadsheet program shows: of a binary fraction its 15 digits. A formula
counts as the value that was saved with it.
"""

from __future__ import annotations

import datetime
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from python_calamine import (
    CalamineError,
    CalamineSheet,
    SheetTypeEnum,
    SheetVisibleEnum,
    load_workbook,
)

from app.finance.files.tables import BATCH, MAX_CELL, MAX_COLUMNS, Batch, Moment, Number, Refused

MIB: Final = 1024 * 1024

MAX_ENTRIES: Final = 2_000
"""Parts of a workbook; one of a hundred sheets has some hundreds."""

MAX_CONTENT: Final = 1024 * MIB
"""Bytes of all parts unpacked: a million rows of eight cells have about 400 MB."""

MAX_RATIO: Final = 200
"""Bytes unpacked for each one packed, beyond FREE_CONTENT; sheets have some 10 to 50."""

FREE_CONTENT: Final = 10 * MIB

MAX_CELLS: Final = 20_000_000
"""Rows times columns of a sheet; the library takes some 30 bytes for each."""

MAX_TAG: Final = MIB
"""Bytes from one `<` to the next: a cell has 32,767 characters at most."""

_PART: Final = MIB
_ENCRYPTED: Final = 0x1
_LOCAL_HEADER: Final = 30

_SHEET: Final = b"sheetData"
_CELL: Final = re.compile(rb"<(?:\w+:)?c[\s/>]")
_PLACED: Final = rb"<(?:\w+:)?c\s(?:[^>]*?\s)?r\s*=\s*[\"']"
_COLUMN: Final = re.compile(_PLACED + rb"([A-Za-z]{1,9})[0-9]")
_ROW: Final = re.compile(rb"<(?:\w+:)?(?:c|row)\s(?:[^>]*?\s)?r\s*=\s*[\"'][A-Za-z]{0,9}([0-9]+)")


def check_workbook(path: Path) -> None:
    """Raises Refused for an archive that is no workbook to be opened."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entries = archive.infolist()
            _check_entries(entries, path.stat().st_size)
            for entry in entries:
                _check_content(entry, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
        raise Refused(
            1, f"the workbook is cut short or damaged, export it again ({type(error).__name__})"
        ) from None


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    if len(entries) > MAX_ENTRIES:
        raise Refused(1, f"the workbook has more than {MAX_ENTRIES:,} parts")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise Refused(1, "the workbook is encrypted: save it without a password")
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if any(entry.compress_type not in known for entry in entries):
        raise Refused(1, "the workbook is packed as no spreadsheet program does")
    content = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if packed > size:
        raise Refused(1, "the workbook uses the same bytes several times")
    if content > MAX_CONTENT or content > max(FREE_CONTENT, packed * MAX_RATIO):
        raise Refused(
            1,
            f"the workbook unpacks to {content // MIB:,} MiB from {packed / MIB:,.1f} MiB: more "
            "than is read; export it as CSV",
        )


def _check_content(entry: zipfile.ZipInfo, file: BinaryIO) -> None:
    """Unpack it, to nothing, and look where its cells are."""
    scan = _Cells() if entry.filename.lower().endswith(".xml") else _NoCells()
    length = 0
    for part in _unpacked(entry, file):
        length += len(part)
        if length > entry.file_size:
            raise Refused(1, "the workbook has more content than it declares")
        scan.look(part)
    if length != entry.file_size:
        raise Refused(1, "the workbook is cut short: export it again")
    scan.look(b"<")


class _Cells:
    """The last row and column of which cells were seen in a part that may be a sheet."""

    def __init__(self) -> None:
        self._rows = self._columns = 0
        self._rest = b""

    def look(self, part: bytes) -> None:
        """Look at what follows, up to the last tag, which may not be whole yet."""
        text = self._rest + part
        cut = max(text.rfind(b"<"), 0)
        text, self._rest = text[:cut], text[cut:]
        if len(self._rest) > MAX_TAG:
            raise Refused(1, "the workbook has a cell or a tag of more than a mebibyte")
        placed = _COLUMN.findall(text)
        if len(_CELL.findall(text)) != len(placed):
            raise Refused(
                1,
                "the workbook has cells that do not say where they are: save it anew with a "
                "spreadsheet program, or as CSV",
            )
        self._rows = max(self._rows, *map(_row_number, set(_ROW.findall(text))), 0)
        self._columns = max(self._columns, *map(_column_number, set(placed)), 0)
        if self._rows * self._columns > MAX_CELLS:
            raise Refused(
                1,
                f"the sheet goes to row {self._rows:,} and column {self._columns:,}: more than "
                f"{MAX_CELLS:,} cells lie between; delete what stands far out, or use CSV",
            )


class _NoCells:
    """A picture or the like. A sheet under its name would be read all the same."""

    def __init__(self) -> None:
        self._rest = b""

    def look(self, part: bytes) -> None:
        """Look at what follows."""
        text = self._rest + part
        if _SHEET in text:
            raise Refused(1, "the workbook keeps a sheet where no spreadsheet program does")
        self._rest = text[-len(_SHEET) :]


def _unpacked(entry: zipfile.ZipInfo, file: BinaryIO) -> Iterator[bytes]:
    """The content that is really there, in parts."""
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


def _row_number(digits: bytes) -> int:
    return int(digits[:9])


def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - 64
    return number


_NOT_EXACT: Final = 2**53
"""From here on a workbook's numbers are not those that were typed: they are shown as they are."""

_PANIC: Final = "PanicException"
"""What the library raises where it did not expect what it found; it is no Exception."""


class XlsxTable:
    """One sheet; its heading is the first row that is not blank."""

    def __init__(self, path: Path, *, sheet: str | None) -> None:
        check_workbook(path)
        self._sheet = _sheet(path, sheet)
        rows = self._rows()
        found = next(((number, row) for number, row in rows if any(row)), None)
        if found is None:
            raise Refused(1, "the sheet is empty")
        self.heading_row, heading = found
        while heading and not heading[-1]:
            heading.pop()
        self.heading: Sequence[str] = heading
        if len(heading) > MAX_COLUMNS:
            raise Refused(self.heading_row, f"there are more than {MAX_COLUMNS} columns")

    def batches(self) -> Iterator[Batch]:
        """All rows after the heading."""
        rows = islice(self._rows(), self.heading_row, None)
        width = len(self.heading)
        while part := list(islice(rows, BATCH)):
            cut = [row if any(row[width:]) else row[:width] for _, row in part]
            yield Batch(list(cut), [number for number, _ in part])

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
            raise Refused(
                1, f"there is no sheet {name[:80]!r}; there are: {', '.join(shown)[:300]}"
            )
        if not shown:
            raise Refused(1, "the workbook has no sheet that is shown")
        return book.get_sheet_by_name(shown[0] if name is None else name)
    except CalamineError as error:
        name = type(error).__name__  # its text may quote a cell
        raise Refused(1, f"the workbook cannot be read ({name}): save it anew, or as CSV") from None
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise Refused(1, "the workbook is damaged: save it anew, or as CSV") from None


def _text(cell: Any) -> str:
    """The cell as text of its own kind."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, int | float):
        if not abs(cell) < _NOT_EXACT:  # nor is what is no number
            return repr(cell)
        return Number(int(cell) if cell == int(cell) else format(Decimal(f"{cell:.15g}"), "f"))
    if isinstance(cell, datetime.datetime | datetime.date):
        return Moment(cell.isoformat())
    return str(cell)[:MAX_CELL]
