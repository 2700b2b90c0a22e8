"""Write the report as a workbook: a summary, then a sheet for each table."""

import io
from collections.abc import Sequence
from datetime import datetime
from itertools import chain, count, repeat
from typing import Any, Final

import xlsxwriter
from xlsxwriter.chart import Chart
from xlsxwriter.format import Format
from xlsxwriter.workbook import Workbook
from xlsxwriter.worksheet import Worksheet

from app.core.zones import wall_clock, zone_named
from app.finance.reports import layout
from reconcile.instants import DAY
from reconcile.money import exponent_of
from reconcile.reporting.report import AGES, PeriodReport
from reconcile.reporting.summary import age_totals
from reconcile.reporting.tables import Column, Kind

ROWS_MAX: Final = 1_048_576
"""Maximum number of rows of a sheet, including the heading."""

_EXACT: Final = 10**15

_TEXT_MAX: Final = 32_767

_CREATED: Final = datetime(2026, 1, 1)  # the format knows no time zones
_EPOCH_DAY: Final = 25_569
"""Serial day number of 1970-01-01 in a workbook."""

_WIDTHS: Final[dict[Kind, int]] = {
    "text": 22,
    "count": 11,
    "money": 18,
    "instant": 20,
    "duration": 14,
    "yes": 8,
    "list": 40,
}
_HEADER_MAX: Final = 250

_WIDE: Final = {
    "breaks": 32,
    "cause": 32,
    "bucket": 30,
    "flow": 30,
    "side": 30,
    "figure": 50,
    "sentence": 60,
    "next_step": 50,
    "because": 80,
    "left": 44,
    "right": 44,
}

_SHEETS: Final = {
    "late": "Late money",
    "changes": "Changed outcomes",
    "adjustments": "Adjustments",
    "money": "From captured to the bank",
    "matching": "Matching",
    "rates": "Rates",
    "late_lines": "List of late money",
}

_CHART_SIZE: Final = {"width": 900, "height": 320}


def xlsx(report: PeriodReport) -> bytes:
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
    merchant = _fitting(report.scope.merchant)
    workbook.set_properties({"title": "Period report", "company": merchant, "created": _CREATED})
    book = _Book(workbook, report)
    book.summary()
    for part in layout.parts(report):
        book.table(part)
    workbook.close()
    return file.getvalue()


class _Book:
    def __init__(self, workbook: Workbook, report: PeriodReport) -> None:
        self._workbook, self._report = workbook, report
        self._zone = zone_named(report.scope.zone)
        self._bold = workbook.add_format({"bold": True})
        self._head = workbook.add_format({"bold": True, "bottom": 1, "text_wrap": True})
        self._date = workbook.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        self._red = workbook.add_format({"bold": True, "font_color": "#B00000"})
        self._numbers: dict[tuple[str, bool], Format] = {}

    def summary(self) -> None:
        report, line = self._report, count()
        sheet = self._sheet("Summary")
        sheet.set_column(0, 0, 22)
        sheet.set_column(1, 1, 100)
        heading = " · ".join(layout.masthead(report.scope))
        sheet.write_string(next(line), 0, _fitting(heading), self._bold)
        sheet.freeze_panes(1, 0)
        for name, text in layout.fact_lines(report.scope):
            row = next(line)
            sheet.write_string(row, 0, name)
            sheet.write_string(row, 1, _fitting(text), self._bold)
        names = chain(("Sums", "Breaks"), repeat("Compared"))
        for name, sentence in zip(names, layout.headlines(report), strict=False):
            row = next(line)
            broken = name == "Sums" and not report.ties_hold
            sheet.write_string(row, 0, name)
            sheet.write_string(row, 1, _fitting(sentence), self._red if broken else self._bold)
        for note in report.notes:
            row = next(line)
            sheet.write_string(row, 0, "Please note")
            sheet.write_string(row, 1, _fitting(note.sentence))

    def table(self, part: layout.ReportPart) -> None:
        table, rows = part.table, part.rows
        columns = [column for column in table.columns if column.name != "reason"]
        title = _SHEETS.get(table.name, table.title)
        for number, begin in enumerate(range(0, len(rows), ROWS_MAX - 1)):
            name = title if number == 0 else f"{title} {number + 1}"
            sheet = self._sheet(name)
            for place, column in enumerate(columns):
                sheet.set_column(place, place, _WIDE.get(column.name, _WIDTHS[column.kind]))
            sheet.freeze_panes(1, 0)
            sheet.repeat_rows(0)
            self._rows(sheet, columns, rows[begin : begin + ROWS_MAX - 1])
            if number == 0 and table.name in _DRAWN:
                # The chart is beside the table: with constant memory, rows above cannot be written
                # later.
                chart = _DRAWN[table.name](self._workbook, name, self._report)
                sheet.insert_chart(0, len(columns) + 1, chart, {"object_position": 3})

    def _sheet(self, name: str) -> Worksheet:
        sheet = self._workbook.add_worksheet(name)
        masthead = " · ".join(layout.masthead(self._report.scope)).replace("&", "&&")
        sheet.set_header("&L" + _fitting(masthead)[:_HEADER_MAX])
        sheet.set_footer("&L&A&RPage &P of &N")
        sheet.set_landscape()
        sheet.set_paper(9)
        sheet.fit_to_pages(1, 0)
        return sheet

    def _rows(self, sheet: Worksheet, columns: Sequence[Column], rows: Sequence[Any]) -> None:
        for place, column in enumerate(columns):
            sheet.write_string(0, place, column.heading, self._head)
        for number, row in enumerate(rows, 1):
            for place, column in enumerate(columns):
                if column.kind == "duration" or getattr(row, column.name) is not None:
                    self._cell(sheet, (number, place), column, row)
        sheet.autofilter(0, 0, len(rows), len(columns) - 1)

    def _cell(self, sheet: Worksheet, at: tuple[int, int], column: Column, row: Any) -> None:
        kind, value = column.kind, getattr(row, column.name)
        total = getattr(row, "total", False)
        if kind == "instant":
            days = wall_clock(value, self._zone) / DAY + _EPOCH_DAY
            sheet.write_number(*at, days, self._date)
        elif kind == "count" and abs(value) < _EXACT:
            sheet.write_number(*at, value, self._number(0, bold=total))
        elif kind == "money" and abs(value) < _EXACT:
            money = column.money_in(row)
            places = 0 if money is None else exponent_of(money.currency)
            sheet.write_number(*at, value / 10**places, self._number(places, bold=total))
        elif kind in ("count", "money"):
            sheet.write_string(*at, layout.cell_text(column, row))
        elif kind == "duration":
            sheet.write_string(*at, layout.cell_words(column, row))
        else:
            words = layout.word_of(column, row, zone=self._zone)
            sheet.write_string(*at, _fitting(words), self._bold if total else None)

    def _number(self, places: int, *, bold: bool) -> Format:
        key = ("#,##0" + ("." + "0" * places if places else ""), bold)
        if key not in self._numbers:
            self._numbers[key] = self._workbook.add_format({"num_format": key[0], "bold": bold})
        return self._numbers[key]


def _times_chart(workbook: Workbook, sheet: str, report: PeriodReport) -> Chart:
    chart = _columns_chart(workbook, "Outcomes over time", stacked=True)
    last = len(report.times)
    for place, look in enumerate(_SERIES_STYLES, 1):
        chart.add_series(
            {
                "name": [sheet, 0, place],
                "categories": [sheet, 1, 0, last, 0],
                "values": [sheet, 1, place, last, place],
                "gap": 40,
                **look,
            }
        )
    chart.set_x_axis({"date_axis": False, "num_format": "d mmm", "num_font": {"rotation": -45}})
    return chart


def _ages_chart(workbook: Workbook, sheet: str, report: PeriodReport) -> Chart:
    chart = _columns_chart(workbook, "Breaks by age", stacked=True)
    rows = age_totals(report)
    each = len(AGES) + 1
    for number, begin in enumerate(range(1, len(rows) + 1, each)):
        chart.add_series(
            {
                "name": rows[begin - 1].currency,
                "categories": [sheet, begin, 1, begin + len(AGES) - 1, 1],
                "values": [sheet, begin, 2, begin + len(AGES) - 1, 2],
                "gap": 60,
                **_SERIES_STYLES[number % len(_SERIES_STYLES)],
            }
        )
    return chart


def _delays_chart(workbook: Workbook, sheet: str, report: PeriodReport) -> Chart:
    chart = _columns_chart(workbook, "Webhook delay", stacked=False)
    last = len(report.delays)
    chart.add_series(
        {
            "categories": [sheet, 1, 0, last, 0],
            "values": [sheet, 1, 1, last, 1],
            "gap": 40,
            "fill": {"color": "#2F4B6E"},
        }
    )
    chart.set_legend({"none": True})
    return chart


def _columns_chart(workbook: Workbook, title: str, *, stacked: bool) -> Chart:
    kind = {"type": "column"} | ({"subtype": "stacked"} if stacked else {})
    chart = workbook.add_chart(kind)
    chart.set_title({"name": title})
    chart.set_y_axis({"num_format": "#,##0", "major_gridlines": {"visible": True}})
    chart.set_legend({"position": "top"})
    chart.set_size(_CHART_SIZE)
    return chart


_SERIES_STYLES: Final = tuple(
    {
        "pattern": {"pattern": pattern, "fg_color": colour, "bg_color": "#FFFFFF"},
        "border": {"color": "#333333", "width": 0.5},
    }
    for colour, pattern in (
        ("#2F4B6E", "percent_90"),
        ("#9A3B26", "wide_upward_diagonal"),
        ("#7A5C00", "percent_30"),
        ("#666666", "light_horizontal"),
    )
)

_DRAWN: Final = {"times": _times_chart, "age_totals": _ages_chart, "delays": _delays_chart}


def _fitting(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) < _TEXT_MAX // 2 else text[: _TEXT_MAX // 2 - 1] + "…"
