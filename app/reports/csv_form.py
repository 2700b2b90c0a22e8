"""The report as one CSV table: a line for each row of each table, which `section` names.

A column that a table does not have is empty in its lines. Text that a spreadsheet would take for a
formula is marked (`app.cells`); numbers are plain decimals in major units of `currency`.
"""

from __future__ import annotations

import csv
import io
from typing import Final

from app.cells import safe_cell
from app.reports.values import cell_text, scope_lines
from reconcile.report import PeriodReport
from reconcile.report_tables import TABLES

_SCOPE: Final = ("from", "to", "as_of", "basis", "environment")
COLUMNS: Final = (
    "section",
    *dict.fromkeys((*_SCOPE, *(column.name for table in TABLES for column in table.columns))),
)
_TEXT: Final = frozenset({"text", "list"})


def render(report: PeriodReport) -> bytes:
    """UTF-8 with a byte order mark, without which spreadsheet programs guess the encoding."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    scope = {name.replace(" ", "_"): text for name, text in scope_lines(report.scope)}
    writer.writerow({"section": "scope", **scope})
    for table in TABLES:
        for row in table.rows(report):
            cells = {"section": table.name}
            for column in table.columns:
                text = cell_text(column, row)
                cells[column.name] = safe_cell(text) if column.kind in _TEXT else text
            writer.writerow(cells)
    return file.getvalue().encode("utf-8-sig", "backslashreplace")
