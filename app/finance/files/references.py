"""References that a spreadsheet changed: it keeps fifteen digits of a number.

Excel and its like read a long reference as a number when they open a CSV. They show it as
`4.81477E+15`, and what they save has zeros from the sixteenth digit on (Microsoft, "Excel
specifications and limits": number precision of 15 digits). Such references are accepted and noted,
since nobody can tell what they were.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app.core.text import counted
from app.finance.files import tables

WATCHED: Final = frozenset(
    {
        "reference",
        "payment_reference",
        "original_payment",
        "order_reference",
        "session_reference",
        "entry_reference",
        "movement",
        "payout",
    }
)
"""Fields whose references must equal those of providers, shops and banks."""

KEPT_DIGITS: Final = 15

_SCIENTIFIC: Final = re.compile(r"\s*[0-9](?:[.,][0-9]+)?E\+[0-9]+\s*", re.IGNORECASE)
_LONG: Final = re.compile(rf"^[ \t]*[0-9]{{{KEPT_DIGITS}}}([0-9]+)[ \t]*$", re.MULTILINE)

SHOWN: Final = 3
"""Rows that a note lists."""


class ShortenedReferences:
    """Finds columns whose references a spreadsheet has shortened, batch by batch."""

    def __init__(self, columns: Mapping[str, tuple[int, str]]) -> None:
        """Take each field's column, as its place and its name in the heading."""
        self._columns = {key: column for key, column in columns.items() if key in WATCHED}
        self._rows: dict[str, list[int]] = defaultdict(list)
        self._found: dict[str, int] = defaultdict(int)
        self._whole: set[str] = set()
        """Fields with a long reference that a spreadsheet cannot have shortened."""
        self._ended: dict[str, list[int]] = defaultdict(list)
        self._cut: dict[str, int] = defaultdict(int)

    def look(self, rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> None:
        for key, (place, _) in self._columns.items():
            try:
                cells = [row[place] for row in rows]
            except IndexError:  # a row that is too short
                cells = [row[place] if place < len(row) else "" for row in rows]
            text = "\n".join(cells)
            if "E+" in text or "e+" in text or tables.LongNumber in set(map(type, cells)):
                found = [
                    number
                    for number, cell in zip(numbers, cells, strict=True)
                    if type(cell) is tables.LongNumber or _SCIENTIFIC.fullmatch(cell)
                ]
                self._found[key] += len(found)
                self._rows[key] += found[: SHOWN - len(self._rows[key])]
            if key in self._whole or not (ends := _LONG.findall(text)):
                continue
            if any(end.strip("0") for end in ends):
                self._whole.add(key)
            else:
                self._cut[key] += len(ends)
                cut = (n for n, cell in zip(numbers, cells, strict=True) if _LONG.match(cell))
                self._ended[key] += [n for n, _ in zip(cut, range(SHOWN), strict=False)]

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each shortened column."""
        for key, (_, name) in self._columns.items():
            rows, count = self._rows[key], self._found[key]
            if not count and key not in self._whole:
                rows, count = self._ended[key][:SHOWN], self._cut[key]
            if count:
                yield (
                    "Excel shortened this reference: export the column as text. It is column "
                    f"{name.strip()[:60]!r} in {counted(count, 'row')}{listed_rows(rows, count)}."
                )


def listed_rows(rows: Sequence[int], count: int) -> str:
    """Return the end of a sentence: the first of these rows, and how many there are."""
    named = ", ".join(f"{row:,}" for row in rows)
    return f", {'such as ' if count > len(rows) else ''}row {named}"
