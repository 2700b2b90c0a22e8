"""Tables of workbooks (XLSX): the first sheet that is shown, or the named one, whole in memory.

Numbers are those that the spreadsheet program shows: of a binary fraction its 15 digits. A formula
counts as the value that was saved with it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

from python_calamine import (
    CalamineError,
    CalamineSheet,
    SheetTypeEnum,
    SheetVisibleEnum,
    load_workbook,
)

from app.finance.files.problems import Refused
from app.finance.files.tables import BATCH, MAX_CELL, MAX_COLUMNS, Batch, Moment, Number
from app.finance.files.zip_guard import check_workbook

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
