"""The rows of a file that were not taken, as a CSV that can be corrected and imported by itself.

Each has its original cells, then its row and what is wrong with it. What a spreadsheet would run as
a formula begins with an apostrophe, which the import of such a file takes away again; a number with
a sign is no formula.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from app.core.cells import csv_line, safe_cell
from app.core.errors import UsageError
from app.finance.files.problems import Problem
from app.finance.files.tables import ADDED, Table

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
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8", newline="") as file:
            file.write(csv_line([*map(harmless, table.heading), *ADDED]))
            file.writelines(map(csv_line, _rows(table, problems)))
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
    return cell if _PLAIN.fullmatch(cell) else safe_cell(cell)
