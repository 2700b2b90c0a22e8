"""Short ways to write a file and to read it back as rows and problems."""

from pathlib import Path
from typing import Any

from app.finance.files.bank import BankForm
from app.finance.files.bank_formats import open_bank_table
from app.finance.files.books import BookForm
from app.finance.files.line_forms import LineForm, Understanding
from app.finance.files.mapping import FileMapping, read_mapping
from app.finance.files.opening import open_table
from app.finance.files.presets import OpenTable
from app.finance.files.statements import StatementForm
from app.finance.files.tables import RefusedTable

Found = tuple[list[dict[str, Any]], list[tuple[int, str | None, str]]]


def book(content: bytes | str, mapping: str = "", *, folder: Path, name: str = "a.csv") -> Found:
    """Return the rows of an order book's content, as shown, and (row, column, sentence)."""
    said = read_mapping(mapping.encode(), BookForm.FIELDS)
    return _read(content, BookForm(said), said, folder / name)


def statement(content: bytes | str, mapping: str = "", *, folder: Path) -> Found:
    said = read_mapping(mapping.encode(), StatementForm.FIELDS)
    return _read(content, StatementForm(said, source="shop"), said, folder / "s.csv")


def bank(content: bytes | str, mapping: str = "", *, folder: Path) -> Found:
    said = read_mapping(mapping.encode(), BankForm.FIELDS)
    return _read(content, BankForm(said), said, folder / "bank", opens=open_bank_table)


def _read(
    content: bytes | str,
    form: LineForm,
    mapping: FileMapping,
    path: Path,
    *,
    opens: OpenTable = open_table,
) -> Found:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    rows: list[dict[str, Any]] = []
    problems = []
    try:
        table = opens(path, mapping, form.FIELDS)
        understanding = Understanding(table, form, mapping)
        for found in understanding.batches():
            rows += [form.shown(row) for row in found.rows]
            problems += found.problems
    except RefusedTable as refused:
        problems.append(refused.problem)
    return rows, [(each.row, each.column, each.sentence) for each in problems]
