"""The report on paper: the same tables and charts, their lists cut to what a reader turns over.

Typst lays it out. It is an extra (`pdf`), and imported only here. All text goes in as JSON, so that
none can be markup; only its own fonts are used, so that every machine makes the same bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from app.core import pages
from app.core.zones import zone_named
from app.finance.reports.html_form import CHARTS, period_words
from app.finance.reports.values import cell_words, headlines, scope_lines, shown_columns
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import TABLES, Table

ROWS_MAX: Final = 1_000
"""Rows in the whole document: some thirty pages, set in about a second."""

_WIDE: Final = frozenset({"sentence", "because", "left", "right"})
_LEFT_OUT: Final = frozenset({"next_step", "cites", "source"})
"""Columns for which a page has no room; the other forms have them."""

_LONG = re.compile(r"([-_/.:,@])(?=\w)|(\w{14})(?=\w)")


def pdf(report: PeriodReport) -> bytes:
    """The PDF's bytes. Raises ImportError where typst is not installed."""
    import typst

    written: bytes = typst.compile(
        pages.TEMPLATES / "report.typ",
        root=pages.TEMPLATES,
        ignore_system_fonts=True,
        sys_inputs={"report": json.dumps(_document(report))},
    )
    return written


def _document(report: PeriodReport) -> dict[str, Any]:
    left, sections = ROWS_MAX, []
    for table in TABLES[1:]:
        rows = table.rows(report)[: max(left, 0)]
        left -= len(rows)
        if table.rows(report):
            sections.append(_section(table, report, rows))
    return {
        "title": f"Period report {period_words(report)}",
        "scope": "; ".join(f"{name} {text}" for name, text in scope_lines(report.scope)) + ".",
        "headlines": headlines(report),
        "notes": [note.sentence for note in report.notes],
        "sections": sections,
    }


def _section(table: Table, report: PeriodReport, rows: tuple[Any, ...]) -> dict[str, Any]:
    columns = [column for column in shown_columns(table) if column.name not in _LEFT_OUT]
    hidden = len(table.rows(report)) - len(rows)
    drawn, zone = CHARTS.get(table.name), zone_named(report.scope.zone)
    return {
        "title": table.title,
        "about": table.about,
        "chart": "" if drawn is None else str(drawn(report)),
        "alt": table.title,
        "headings": [column.heading for column in columns],
        "widths": ["wide" if column.name in _WIDE else "" for column in columns],
        "numeric": [column.kind in ("count", "money") for column in columns],
        "rows": [
            [_breakable(cell_words(column, row, zone=zone)) for column in columns] for row in rows
        ],
        "left_out": f"{hidden:,}" if hidden else "",
    }


def _breakable(text: str) -> str:
    """With places at which a long reference may go on in the next line, and no half characters."""
    whole = text.encode("utf-8", "backslashreplace").decode()
    return _LONG.sub(lambda found: found[0] + "\u200b", whole) if len(whole) > 14 else whole
