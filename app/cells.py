"""Text that goes into a spreadsheet stays text there: no cell is ever taken for a formula.

Leaves out: numbers and dates, which a program writes and nobody else.
"""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = "'"

_TAKEN_FOR_FORMULA = re.compile(
    "[\\t\\r\\n]"  # some programs drop these and look at what follows
    "|[\\s\\x00-\\x1f\\u200b-\\u200f\\u2060\\ufeff]*"  # blanks, also those that cannot be seen
    "[=+\\-@\uff1d\uff0b\uff0d\uff20]"  # also in full width, which East Asian versions take
    f"|{_MARK}"  # else a text that begins with the mark could not be told from a marked one
)


def safe_cell(text: str) -> str:
    """The text as it goes into a cell: with `'` before it where a spreadsheet program would take
    it for a formula. `plain_text` gives the text back, whatever it was."""
    return _MARK + text if _TAKEN_FOR_FORMULA.match(text) else text


def plain_text(cell: str) -> str:
    """The text of which `safe_cell` made this."""
    return cell.removeprefix(_MARK)
