"""Write CSV for spreadsheets, so that no text becomes a formula.

Some spreadsheets split even a quoted cell at semicolons, tabs and line breaks. So no part between
them may begin like a formula. A CSV file for people begins with a byte order mark, which Excel
needs to recognize UTF-8.
"""

import re
from collections.abc import Iterable
from typing import Final

BYTE_ORDER_MARK: Final = "\ufeff"
"""First character of a CSV file for people. The program's own reader accepts files with or without
the mark."""

_MARK: Final = "'"

_SEPARATORS: Final = ";\t\r\n"
"""Characters at which a spreadsheet may split even a quoted cell. A comma is safe."""

# White space, also invisible, and quotation marks, which may open a cell.
_PASSED_OVER: Final = '\\s\\x00-\\x1f\\u200b-\\u200f\\u2060\\ufeff"'
_HEADS: Final = (
    "=+\\-@\uff1d\uff0b\uff0d\uff20"  # East Asian versions take the full-width forms, too
)

_AT_START: Final = re.compile(
    "[\\t\\r\\n]"  # some programs drop these characters and continue
    f"|[{_PASSED_OVER}]*[{_HEADS}]"
    f"|{_MARK}"  # otherwise a text that begins with the mark would look marked
)
_RUN: Final = re.compile(f"[{_PASSED_OVER}{_SEPARATORS}]+")
_HEAD: Final = re.compile(f"[{_HEADS}]")
_SEPARATOR: Final = re.compile(f"[{_SEPARATORS}]")
_MARKED: Final = re.compile(f"(?:\\A|(?<=[{_SEPARATORS}])){_MARK}")
_QUOTED: Final = re.compile(f'[,"{_SEPARATORS}{_MARK}]|\\A\\s|\\s\\Z')


def safe_cell(text: str) -> str:
    """Put `'` before every part of a text that a spreadsheet would read as a formula. `cell_text`
    restores the original text."""
    if text.isalnum():
        return text

    def mark_run(run: re.Match[str]) -> str:
        """Return a run of separators and white space, with `'` inserted where a formula would
        follow."""
        behind = run.string[run.end() : run.end() + 1]
        if _HEAD.match(behind):
            return _SEPARATOR.sub(lambda each: each[0] + _MARK, run[0])
        if behind == _MARK and _SEPARATOR.fullmatch(run[0][-1]):
            return run[0] + _MARK  # see _AT_START
        return run[0]

    inside = _RUN.sub(mark_run, text) if _SEPARATOR.search(text) else text
    return _MARK + inside if _AT_START.match(text) else inside


def cell_text(cell: str) -> str:
    """Return the original text of a cell that `safe_cell` made."""
    return _MARKED.sub("", cell)


def csv_line(cells: Iterable[str]) -> str:
    """Join cells into a CSV line (RFC 4180) with its line end.

    Protect texts from outside with `safe_cell` first.
    """
    return (
        ",".join(
            '"' + cell.replace('"', '""') + '"'
            if not cell.isalnum() and _QUOTED.search(cell)
            else cell
            for cell in cells
        )
        + "\r\n"
    )
