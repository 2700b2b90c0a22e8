"""The report as one CSV table: a line for each row of each table, which `section` names.

A column that a table does not have is empty in its lines. Text that a spreadsheet would take for a
formula is marked (`app.core.cells`); numbers are plain decimals in major units of `currency`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.core.cells import csv_line, safe_cell
from app.finance.reports.values import cell_text, scope_lines
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import TABLES

_SCOPE: Final = ("from", "to", "as_of", "basis", "environment")
COLUMNS: Final = (
    "section",
    *dict.fromkeys((*_SCOPE, *(column.name for table in TABLES for column in table.columns))),
)
_TEXT: Final = frozenset({"text", "list"})


def render(report: PeriodReport) -> bytes:
    """UTF-8 with a byte order mark, without which spreadsheet programs guess the encoding."""
    scope = {name.replace(" ", "_"): text for name, text in scope_lines(report.scope)}
    lines = [csv_line(COLUMNS), _line({"section": "scope", **scope})]
    for table in TABLES:
        for row in table.rows(report):
            cells = {"section": table.name}
            for column in table.columns:
                text = cell_text(column, row)
                cells[column.name] = safe_cell(text) if column.kind in _TEXT else text
            lines.append(_line(cells))
    return "".join(lines).encode("utf-8-sig", "backslashreplace")


def _line(cells: Mapping[str, str]) -> str:
    return csv_line(cells.get(name, "") for name in COLUMNS)
