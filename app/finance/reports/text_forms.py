"""Write the report as text: for a terminal, CSV or JSON."""

import io
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from json import dumps
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from app.core.cells import BYTE_ORDER_MARK, csv_line, safe_cell
from app.core.text import printable
from app.core.zones import zone_named
from app.finance.reports import layout
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import TABLES, ReportTable, report_document


def json(report: PeriodReport) -> bytes:
    text = dumps(report_document(report), ensure_ascii=False, indent=2)
    return text.encode("utf-8", "backslashreplace") + b"\n"


_SCOPE: Final = ("from", "to", "as_of", "basis", "environment")
COLUMNS: Final = (
    "section",
    *dict.fromkeys((*_SCOPE, *(column.name for table in TABLES for column in table.columns))),
)
_TEXT: Final = frozenset({"text", "list"})


def csv(report: PeriodReport) -> bytes:
    """Return all report tables as one CSV table. Numbers are plain decimals in major units;
    spreadsheet formulas are made harmless."""
    scope = {name.replace(" ", "_"): text for name, text in layout.scope_lines(report.scope)}
    columns = tuple(dict.fromkeys((*COLUMNS, *scope)))
    cells = {name: safe_cell(text) for name, text in scope.items()}
    lines = [csv_line(columns), _line(columns, {"section": "scope", **cells})]
    for table in TABLES:
        for row in table.rows(report):
            cells = {"section": table.name}
            for column in table.columns:
                text = layout.cell_text(column, row)
                cells[column.name] = safe_cell(text) if column.kind in _TEXT else text
            lines.append(_line(columns, cells))
    return (BYTE_ORDER_MARK + "".join(lines)).encode("utf-8", "backslashreplace")


def _line(columns: Sequence[str], cells: Mapping[str, str]) -> str:
    return csv_line(cells.get(name, "") for name in columns)


LINES_MAX: Final = 40
"""Maximum number of lines of a list."""

_TOO_WIDE: Final = frozenset({"cites", "next_step"})

WIDTH: Final = 132
"""Width of the text in characters, on any terminal."""

_FOLDED: Final = 8
"""Minimum width in characters of a column whose texts wrap."""

_APART: Final = 2

_WHOLE: Final = frozenset({"currency", "period"})
"""Columns of short words, which must not wrap."""

_LEAST: Final = {"breaks": 18, "cause": 14, "bucket": 14, "flow": 14, "figure": 14}


def table(report: PeriodReport) -> bytes:
    """Return the report as text for a terminal."""
    file = io.StringIO()
    console = Console(file=file, width=WIDTH, color_system=None, force_terminal=False)
    if report.scope.merchant:
        console.print(Text(printable(report.scope.merchant)))
    for name, words in layout.fact_lines(report.scope):
        console.print(Text(f"{name:<16}{printable(words)}"))
    for sentence in (*layout.headlines(report), *(note.sentence for note in report.notes)):
        console.print(Text(_held(sentence)))
    for each, rows in layout.shown_tables(report):
        shown = rows[:LINES_MAX] if each.name in layout.LISTS else rows
        _print(console, each, shown, zone_named(report.scope.zone))
        if len(shown) < len(rows):
            console.print(Text(f"  … and {len(rows) - len(shown):,} more in the other formats"))
    return file.getvalue().replace(_HELD, " ").encode("utf-8", "backslashreplace")


_HELD: Final = "\ue000"


def _held(text: str) -> str:
    pieces = layout.money_apart(printable(text))
    return "".join(
        piece.replace(" ", _HELD) if place % 2 else piece for place, piece in enumerate(pieces)
    )


def _print(console: Console, table: ReportTable, rows: Sequence[Any], zone: tzinfo) -> None:
    console.print(Text(f"\n{table.title}", style="bold"))
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    columns = [column for column in layout.shown_columns(table) if column.name not in _TOO_WIDE]
    whole = [each.kind in ("count", "money") or each.name in _WHOLE for each in columns]
    widths = [max(map(len, layout.heading_lines(column))) for column in columns]
    for column in columns:
        numeric = column.kind in ("count", "money")
        shown.add_column(
            "\n".join(layout.heading_lines(column)),
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=numeric or column.name in _WHOLE,
            min_width=_LEAST.get(column.name),
        )
    for row in rows:
        # Text, not markup: a reference may hold square brackets.
        words = [_held(layout.cell_words(column, row, zone=zone)) for column in columns]
        shown.add_row(*map(Text, words))
        widths = [max(known, len(each)) for known, each in zip(widths, words, strict=True)]
    # Make the table wider than WIDTH rather than cut off a digit.
    stiff = [width if whole else _FOLDED for width, whole in zip(widths, whole, strict=True)]
    needed = sum(stiff) + _APART * (len(columns) + 1)
    console.print(shown, width=max(WIDTH, needed), crop=False, no_wrap=needed > WIDTH or None)
