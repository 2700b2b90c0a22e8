"""The report as a workbook: a sheet for each table, the ties first.

Numbers are numbers and dates are dates; text is never a formula or a link. Sheets are written row
by row into temporary files, so that memory does not grow with them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import datetime, tzinfo
from itertools import count
from typing import Any, Final

import xlsxwriter
from xlsxwriter.format import Format
from xlsxwriter.workbook import Workbook
from xlsxwriter.worksheet import Worksheet

from app.core.zones import wall_clock, zone_named
from app.finance.reports.values import cell_text, headlines, scope_lines
from reconcile.instants import DAY, Instant
from reconcile.money import exponent_of
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import TABLES, Column, Kind, Table

ROWS_MAX: Final = 1_048_576
"""Rows that a sheet can have, its header among them. What is more goes on in a further sheet."""

_EXACT: Final = 10**15
"""Cells hold binary floating point, exact to fifteen digits; larger numbers are written as text."""

_TEXT_MAX: Final = 32_767
"""Characters that a cell can hold; no program opens a workbook that has more in one."""

_CREATED: Final = datetime(2026, 1, 1)  # the format knows no time zones
_EPOCH_DAY: Final = 25_569
"""1970-01-01 in days of the workbook."""

_WIDTHS: Final[dict[Kind, int]] = {
    "text": 22,
    "count": 11,
    "money": 18,
    "instant": 20,
    "duration": 14,
    "yes": 8,
    "list": 40,
}
_WIDE: Final = {"sentence": 60, "next_step": 50, "because": 80, "left": 44, "right": 44}

_SHEETS: Final = {"control": "totals"}
"""The sheet with the ties is the one called control."""


def xlsx(report: PeriodReport) -> bytes:
    """The workbook's bytes."""
    file = io.BytesIO()
    workbook = xlsxwriter.Workbook(
        file,
        {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "strings_to_numbers": False,
        },
    )
    workbook.set_properties({"title": "Period report", "created": _CREATED})
    book = _Book(workbook, zone_named(report.scope.zone))
    book.control(report)
    for table in TABLES[1:]:
        if table.name != "ties":
            book.table(table, table.rows(report))
    workbook.close()
    return file.getvalue()


class _Book:
    """Writes sheets. Formats are made once: every cell of a kind shares one."""

    def __init__(self, workbook: Workbook, zone: tzinfo) -> None:
        self._workbook, self._zone = workbook, zone
        self._bold = workbook.add_format({"bold": True})
        self._head = workbook.add_format({"bold": True, "bottom": 1, "text_wrap": True})
        self._date = workbook.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._count = workbook.add_format({"num_format": "#,##0"})
        self._red = workbook.add_format({"bold": True, "font_color": "#B00000"})
        self._money: dict[str, Format] = {}

    def control(self, report: PeriodReport) -> None:
        """The first sheet: what the report is of, then every tie with both sides."""
        notes, ties = TABLES[0], next(table for table in TABLES if table.name == "ties")
        sheet = self._sheet("control", ties)
        line = count()
        for name, text in scope_lines(report.scope):
            row = next(line)
            sheet.write_string(row, 0, name, self._bold)
            sheet.write_string(row, 1, text)
        for name, sentence in zip(("ties", "breaks"), headlines(report), strict=True):
            row = next(line)
            sheet.write_string(row, 0, name, self._bold)
            broken = name == "ties" and not report.ties_hold
            sheet.write_string(row, 1, _fitting(sentence), self._red if broken else self._bold)
        for note in notes.rows(report):
            sheet.write_string(next(line), 0, _fitting(note.sentence))
        next(line)
        self._rows(sheet, ties, ties.rows(report), first=next(line))

    def table(self, table: Table, rows: Sequence[Any]) -> None:
        """One table, in as many sheets as it needs."""
        for part, begin in enumerate(range(0, max(len(rows), 1), ROWS_MAX - 1)):
            name = _SHEETS.get(table.name, table.name).replace("_", " ")
            name = name if part == 0 else f"{name} {part + 1}"
            sheet = self._sheet(name, table)
            sheet.freeze_panes(1, 0)
            self._rows(sheet, table, rows[begin : begin + ROWS_MAX - 1], first=0)

    def _sheet(self, name: str, table: Table) -> Worksheet:
        sheet = self._workbook.add_worksheet(name)
        for place, column in enumerate(table.columns):
            sheet.set_column(place, place, _WIDE.get(column.name, _WIDTHS[column.kind]))
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        return sheet

    def _rows(self, sheet: Worksheet, table: Table, rows: Sequence[Any], *, first: int) -> None:
        for place, column in enumerate(table.columns):
            sheet.write_string(first, place, column.heading, self._head)
        for number, row in enumerate(rows, first + 1):
            for place, column in enumerate(table.columns):
                value = getattr(row, column.name)
                if value is not None:
                    self._cell(sheet, (number, place), column, value, row)
        sheet.autofilter(first, 0, first + len(rows), len(table.columns) - 1)

    def _cell(
        self, sheet: Worksheet, at: tuple[int, int], column: Column, value: Any, row: Any
    ) -> None:
        kind = column.kind
        if kind == "text":
            sheet.write_string(*at, _fitting(value))
        elif kind == "instant":
            sheet.write_number(*at, _days(wall_clock(value, self._zone)), self._date)
        elif kind == "count" and abs(value) < _EXACT:
            sheet.write_number(*at, value, self._count)
        elif kind == "money" and abs(value) < _EXACT:
            places = 0 if row.currency is None else exponent_of(row.currency)
            sheet.write_number(*at, value / 10**places, self._money_of(places))
        elif kind == "duration":
            sheet.write_number(*at, value / 1_000_000)
        else:
            sheet.write_string(*at, _fitting(cell_text(column, row)))

    def _money_of(self, places: int) -> Format:
        name = "#,##0" + ("." + "0" * places if places else "")
        if name not in self._money:
            self._money[name] = self._workbook.add_format({"num_format": name})
        return self._money[name]


def _days(instant: Instant) -> float:
    return instant / DAY + _EPOCH_DAY


def _fitting(text: str) -> str:
    """Text that a cell can hold. Half a surrogate pair has no UTF-8."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) < _TEXT_MAX // 2 else text[: _TEXT_MAX // 2 - 1] + "…"
