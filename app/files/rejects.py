"""The rows of a file that were not taken, as a CSV that can be corrected and imported by itself.

Each has its original cells, then its row and what is wrong with it. A cell that a spreadsheet
would run as a formula begins with an apostrophe; a number with a sign is no formula.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from app.errors import UsageError
from app.files.problems import Problem
from app.files.tables import Table

ADDED: Final = ("rejected row", "problem")

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_PLAIN: Final = re.compile(r"[-+]?[0-9][0-9.,]*")


def rejects_beside(path: Path) -> Path:
    """Where the rejects of a file go when nothing is said."""
    return path.with_name(f"{path.stem}.rejects.csv")


def refuse_to_replace(path: Path) -> None:
    """Raises UsageError where there is something already: a person may be correcting it."""
    if path.exists():
        raise UsageError(f"there is {path.name} already: move it away, or say --rejects FILE")


def write_rejects(path: Path, table: Table, problems: Iterable[Problem]) -> None:
    """Write the rows of these problems, which come in the order of the rows.

    Raises UsageError where the file cannot be made.
    """
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            path.chmod(0o600)
            writer = csv.writer(file)
            writer.writerow([*map(harmless, table.heading), *ADDED])
            writer.writerows(_rows(table, problems))
    except OSError as error:
        raise UsageError(
            f"the rejects cannot be written to {path.name}: {error.strerror}; nothing was imported"
        ) from None


def _rows(table: Table, problems: Iterable[Problem]) -> Iterator[list[str]]:
    of_rows = _by_row(problems)
    wanted = next(of_rows, None)
    for batch in table.batches():
        for number, row in zip(batch.numbers, batch.rows, strict=True):
            if wanted is None:
                return
            if number == wanted[0]:
                yield [*map(harmless, row), str(number), wanted[1]]
                wanted = next(of_rows, None)


def _by_row(problems: Iterable[Problem]) -> Iterator[tuple[int, str]]:
    """Each row once, with all that is wrong with it."""
    row, sentences = 0, list[str]()
    for problem in problems:
        if problem.row != row and sentences:
            yield row, "; ".join(sentences)
            sentences = []
        row = problem.row
        place = f"{problem.column}: " if problem.column is not None else ""
        sentences.append(f"{place}{problem.sentence}")
    if sentences:
        yield row, "; ".join(sentences)


def harmless(cell: str) -> str:
    """The cell as text that no spreadsheet runs."""
    if cell.startswith(_FORMULA) and not _PLAIN.fullmatch(cell):
        return "'" + cell
    return cell
