"""What is wrong with a file: values with a place, and no text of the file that could be a phone.

Problem   one cell, row or the whole file; the rest may be good
Unclear   a cell that cannot be read for certain; becomes a Problem where its place is known
Refused   the file cannot be read any further
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

QUOTED_LENGTH: Final = 24
QUOTED_DIGITS: Final = 6
"""A cell is quoted if it is short and has fewer digits than any phone number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One sentence about a place in a file.

    row     counted from the file's first line, which is 1; for a row of several lines its first
    column  as the file's heading names it; None where the whole row or file is meant
    """

    row: int
    column: str | None
    sentence: str


class Unclear(ValueError):
    """A cell that says nothing for certain; the message is one sentence."""


class Refused(Exception):
    """The file cannot be read, or not any further than to this problem."""

    def __init__(self, row: int, sentence: str, *, column: str | None = None) -> None:
        super().__init__(sentence)
        self.problem = Problem(row=row, column=column, sentence=sentence)


def quoted(cell: str) -> str:
    """The cell in quotation marks where it is harmless to show, else what it is."""
    text = cell.strip()
    digits = sum(character.isdigit() for character in text)
    if len(text) > QUOTED_LENGTH or digits > QUOTED_DIGITS or not text.isprintable():
        return "what stands there"
    return f"{text!r}" if text else "an empty cell"
