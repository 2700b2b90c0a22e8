"""CSV for spreadsheets: the one way in which this program writes it. Text stays text there.

A spreadsheet may split a line elsewhere than it was meant to: one that is set to semicolons splits
`"x;=1+1"` in the middle of a line, for it sees a quotation mark only where a cell begins, and takes
the second half for a formula; the same happens at a tab and at a line's end inside of a cell.
So no part of a text between such separators may begin as a formula does.

A file that a person opens begins with a byte order mark: without one Excel takes UTF-8 for the
computer's own old encoding, and names and currencies for other signs. What a program reads from a
pipe has none.

Leaves out: numbers and dates, which a program writes and nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

BYTE_ORDER_MARK: Final = "\ufeff"
"""What a CSV file for people begins with; `files/tables.py` reads files with it and without."""

_MARK: Final = "'"

_SEPARATORS: Final = ";\t\r\n"
"""Where a cell may be split; not at commas, which do not split what stands in quotation marks."""

# Blanks, also those that cannot be seen, and quotation marks, which may open a cell.
_PASSED_OVER: Final = '\\s\\x00-\\x1f\\u200b-\\u200f\\u2060\\ufeff"'
_HEADS: Final = "=+\\-@\uff1d\uff0b\uff0d\uff20"  # in full width East Asian versions take them, too

_AT_START: Final = re.compile(
    "[\\t\\r\\n]"  # some programs drop these and look at what follows
    f"|[{_PASSED_OVER}]*[{_HEADS}]"
    f"|{_MARK}"  # else a text that begins with the mark would look like a marked one
)
_RUN: Final = re.compile(f"[{_PASSED_OVER}{_SEPARATORS}]+")
_HEAD: Final = re.compile(f"[{_HEADS}]")
_SEPARATOR: Final = re.compile(f"[{_SEPARATORS}]")
_MARKED: Final = re.compile(f"(?:\\A|(?<=[{_SEPARATORS}])){_MARK}")
_QUOTED: Final = re.compile(f'[,"{_SEPARATORS}{_MARK}]|\\A\\s|\\s\\Z')


def safe_cell(text: str) -> str:
    """The text as it goes into a cell: with `'` before every part of it that a spreadsheet program
    would take for a formula. `plain_text` gives the text back, whatever it was."""
    if text.isalnum():
        return text
    inside = _RUN.sub(_mark_run, text) if _SEPARATOR.search(text) else text
    return _MARK + inside if _AT_START.match(text) else inside


def _mark_run(run: re.Match[str]) -> str:
    """A run of separators and what is passed over between them, by what comes behind it."""
    behind = run.string[run.end() : run.end() + 1]
    if _HEAD.match(behind):
        return _SEPARATOR.sub(lambda each: each[0] + _MARK, run[0])
    if behind == _MARK and _SEPARATOR.fullmatch(run[0][-1]):
        return run[0] + _MARK  # see _AT_START
    return run[0]


def plain_text(cell: str) -> str:
    """The text of which `safe_cell` made this."""
    return _MARKED.sub("", cell)


def csv_line(cells: Iterable[str]) -> str:
    """One line of a CSV file (RFC 4180), with its end. What may be split is in quotation marks;
    texts of others must have gone through `safe_cell`."""
    return ",".join(map(_quoted, cells)) + "\r\n"


def _quoted(cell: str) -> str:
    if cell.isalnum() or not _QUOTED.search(cell):
        return cell
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'
