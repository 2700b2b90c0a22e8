"""The report for a terminal: every table that has rows, the lists only in their first lines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from app.core.text import printable
from app.finance.reports.values import cell_words, headlines, scope_lines, shown_columns
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import TABLES, Table

LINES_MAX: Final = 40
"""Lines of a list shown: about a screen. The other formats have them all; totals are all here."""

_TOO_WIDE: Final = frozenset({"cites", "next_step"})

WIDTH: Final = 132
"""Columns of text. Fixed, so that the same report is the same text everywhere."""


def render(report: PeriodReport) -> bytes:
    """Plain text without colours."""
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, color_system=None, force_terminal=False)
    words = "   ".join(f"{name} {text}" for name, text in scope_lines(report.scope))
    console.print(Text(words))
    for sentence in headlines(report):
        console.print(Text(sentence))
    for table in TABLES:
        rows = table.rows(report)
        shown = rows[:LINES_MAX] if table.name.endswith("_lines") else rows
        if rows:
            _print(console, table, shown)
        if len(shown) < len(rows):
            console.print(Text(f"  … and {len(rows) - len(shown):,} more in the other formats"))
    return file.getvalue().encode("utf-8", "backslashreplace")


def _print(console: Console, table: Table, rows: Sequence[Any]) -> None:
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
    for row in rows:
        # Text, not markup: a reference may hold square brackets.
        shown.add_row(*(Text(printable(cell_words(column, row))) for column in columns))
    console.print(shown)
