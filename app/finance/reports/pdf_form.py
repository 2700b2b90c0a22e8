"""Write the report as a PDF with Typst."""

import re
from datetime import tzinfo
from typing import Any, Final

from app.core import pages
from app.core.pages import paper
from app.core.text import counted
from app.core.zones import zone_named
from app.finance.reports import layout
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import Column

ROWS_MAX: Final = 90
"""Maximum number of rows of one table."""

ROWS_IN_ALL: Final = 320
"""Maximum number of rows of the whole document."""

_CHART_ALONE: Final = frozenset({"times", "delays"})

_WIDE: Final = frozenset({"sentence", "because", "left", "right"})
_LEFT_OUT: Final = frozenset({"next_step", "cites", "source", "severity"})

_LONG: Final = re.compile(r"(?<=[-_/.:,@])(?=\w)|(?<=\w{14})(?=\w)")
"""Pattern of the places where a long reference may wrap."""

Piece = dict[str, str]
"""Part of a cell's text: `text`, or `money` for an amount."""


def pdf(report: PeriodReport) -> bytes:
    """Return the report as a PDF."""
    template = pages.TEMPLATES / "report.typ"
    return paper.typeset(template, root=pages.TEMPLATES, given="report", values=document(report))


def document(report: PeriodReport) -> dict[str, Any]:
    left, sections, elsewhere = ROWS_IN_ALL, [], []
    for part in layout.parts(report):
        rows = _rows(part, most=max(min(ROWS_MAX, left), 0))
        left -= len(rows)
        if rows or part.chart is not None:
            sections.append(_section(part, rows, report))
        if len(rows) < len(part.rows):
            of_them = f", of which {len(rows):,} are in this document" if rows else ""
            elsewhere.append([part.table.title, counted(len(part.rows), "row") + of_them])
    return {
        "title": f"Period report {layout.period_words(report.scope)}",
        "merchant": _printable(report.scope.merchant),
        "masthead": [_printable(each) for each in layout.masthead(report.scope)],
        "facts": [[name, _printable(text)] for name, text in layout.fact_lines(report.scope)],
        "headlines": [_pieces(each) for each in layout.headlines(report)],
        "notes": [_pieces(note.sentence) for note in report.notes],
        "sections": sections,
        "elsewhere": elsewhere,
    }


def _rows(part: layout.ReportPart, *, most: int) -> list[Any]:
    if part.table.name == "ties":
        return [row for row in part.rows if not row.holds][:most]
    if part.proves or part.table.name in _CHART_ALONE:
        return []
    return list(part.rows[:most])


def _section(part: layout.ReportPart, rows: list[Any], report: PeriodReport) -> dict[str, Any]:
    columns = [each for each in layout.shown_columns(part.table) if each.name not in _LEFT_OUT]
    zone = zone_named(report.scope.zone)
    return {
        "title": part.table.title,
        "about": part.table.about,
        "chart": str(part.chart or ""),
        "headings": [layout.heading_lines(column) for column in columns],
        "widths": ["wide" if column.name in _WIDE else "" for column in columns],
        "numeric": [column.kind in ("count", "money") for column in columns],
        "rows": [[_cell(column, row, zone) for column in columns] for row in rows],
        "totals": [place for place, row in enumerate(rows) if getattr(row, "total", False)],
    }


def _cell(column: Column, row: Any, zone: tzinfo) -> list[Piece]:
    words = layout.cell_words(column, row, zone=zone)
    if column.kind in ("count", "money", "instant"):
        return [{"money": words}]
    return _pieces(words)


def _pieces(text: str) -> list[Piece]:
    found: list[Piece] = []
    for place, piece in enumerate(layout.money_apart(_printable(text))):
        if place % 2:
            found.append({"money": piece})
        else:
            found += [{"text": each} for each in _LONG.split(piece) if each]
    return found


def _printable(text: str) -> str:
    """Escape lone surrogates, which JSON cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()
