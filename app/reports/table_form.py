"""The report for a terminal: every table that has rows, the lists only in their first lines."""

from __future__ import annotations

import io
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from app.reports.values import cell_words, scope_lines, shown_columns
from reconcile.report import PeriodReport
from reconcile.report_tables import TABLES, Table

ROWS_MAX: Final = 40
"""Rows of a table shown: about a screen. The other formats have them all."""

_TOO_WIDE: Final = frozenset({"cites", "next_step"})

WIDTH: Final = 132
"""Columns of text. Fixed, so that the same report is the same text everywhere."""


def render(report: PeriodReport) -> bytes:
    """Plain text without colours."""
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, color_system=None, force_terminal=False)
    words = "   ".join(f"{name} {text}" for name, text in scope_lines(report.scope))
    console.print(Text(words))
    held = sum(tie.holds for tie in report.ties)
    console.print(Text(f"{held} of {len(report.ties)} ties hold."))
    for table in TABLES:
        if rows := table.rows(report):
            _print(console, table, report)
            if len(rows) > ROWS_MAX:
                console.print(Text(f"  … and {len(rows) - ROWS_MAX:,} more in the other formats"))
    return file.getvalue().encode("utf-8", "backslashreplace")


def _print(console: Console, table: Table, report: PeriodReport) -> None:
    console.print(Text(f"\n{table.title}", style="bold"))
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = [column for column in shown_columns(table) if column.name not in _TOO_WIDE]
    for column in columns:
        numeric = column.kind in ("count", "money")
        shown.add_column(
            column.heading,
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=numeric,
        )
    for row in table.rows(report)[:ROWS_MAX]:
        # Text, not markup: a reference may hold square brackets.
        shown.add_row(*(Text(cell_words(column, row)) for column in columns))
    console.print(shown)
