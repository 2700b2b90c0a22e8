"""Write the report as one self-contained HTML page."""

from datetime import tzinfo
from typing import Any, Final

from markupsafe import Markup, escape

from app.core.pages import css_text, page
from app.core.text import counted
from app.core.zones import zone_named
from app.finance.reports import layout
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import Column

ROWS_MAX: Final = 1_000

LIST_MAX: Final = 100
"""Maximum number of lines of a list in the page."""

_SMALL: Final = frozenset({"next_step", "since", "cites"})

_FOLDED: Final = frozenset({"times", "delays"})


def html(report: PeriodReport) -> bytes:
    shown = list(layout.parts(report))
    merchant = (report.scope.merchant,) if report.scope.merchant else ()
    period = layout.period_words(report.scope)
    values = {
        "title": " · ".join((*merchant, f"Period report {period}")),
        "merchant": report.scope.merchant,
        "period": period,
        "facts": layout.fact_lines(report.scope),
        "on_each_sheet": css_text(" · ".join(layout.masthead(report.scope))),
        "headlines": [whole(each) for each in layout.headlines(report)],
        "notes": [whole(note.sentence) for note in report.notes],
        "sections": [_section(part, report) for part in shown],
        "elsewhere": "; ".join(
            f"{part.table.title}: {counted(len(part.rows), 'row')}"
            for part in shown
            if _folded(part, report)
        ),
    }
    return page("report.html", values).encode("utf-8", "backslashreplace")


def whole(text: str) -> Markup:
    """Escape a text for HTML, with unbreakable amounts."""
    found = [
        Markup('<span class="money">{}</span>').format(piece) if place % 2 else escape(piece)
        for place, piece in enumerate(layout.money_apart(text))
    ]
    return Markup("").join(found)


def _section(part: layout.ReportPart, report: PeriodReport) -> dict[str, Any]:
    table, zone = part.table, zone_named(report.scope.zone)
    shown = part.rows[: LIST_MAX if table.name in layout.LISTS else ROWS_MAX]
    columns = layout.shown_columns(table)
    wide = [column for column in columns if column.name not in _SMALL]
    small = [column for column in columns if column.name in _SMALL]
    hidden = len(part.rows) - len(shown)
    return {
        "title": table.title,
        "about": table.about,
        "chart": part.chart or "",
        "folded": _folded(part, report),
        "count": f"{len(part.rows):,}",
        "columns": [(column.heading, _look(column)) for column in wide],
        "rows": [_row(row, wide, small, zone=zone) for row in shown],
        "left_out": f"{hidden:,}" if hidden else "",
    }


def _folded(part: layout.ReportPart, report: PeriodReport) -> bool:
    if part.table.name == "ties" and not report.ties_hold:
        return False
    return part.proves or part.table.name in _FOLDED


def _row(row: Any, wide: list[Column], small: list[Column], *, zone: tzinfo) -> dict[str, Any]:
    return {
        "cells": [
            (whole(layout.cell_words(column, row, zone=zone)), _look(column)) for column in wide
        ],
        "small": [
            (column.heading, whole(words))
            for column in small
            if (words := layout.cell_words(column, row, zone=zone))
        ],
        "wrong": not getattr(row, "holds", True),
        "total": getattr(row, "total", False),
    }


def _look(column: Column) -> str:
    if column.kind in ("count", "money"):
        return "number"
    if column.kind == "instant":
        return "time"
    return {"sentence": "wide", "because": "wide", "order": "long", "payment": "long"}.get(
        column.name, "name" if column.name == "breaks" else ""
    )
