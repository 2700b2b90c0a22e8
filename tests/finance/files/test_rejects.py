"""The file of rows that were not taken."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.cells import BYTE_ORDER_MARK
from app.core.errors import UsageError
from app.finance.files.books import BookForm
from app.finance.files.mapping import FileMapping
from app.finance.files.opening import open_table
from app.finance.files.tables import (
    ADDED,
    Batch,
    CsvTable,
    Number,
    Problem,
    harmless,
    refuse_to_replace,
    rejects_beside,
    write_rejects,
)
from tests.finance.files.reading import book
from tests.finance.files.test_workbooks import workbook
from tests.rows import for_each


class Rows:
    """A table of four rows, the first of which is the third of its file."""

    heading: Sequence[str] = ("name", "=cmd")
    heading_row = 2
    notes: Sequence[str] = ()
    of_ours = False
    head = periods = ()

    def batches(self) -> Iterator[Batch]:
        yield Batch([["a", "1"], ["b", "-5"]], [3, 4])
        yield Batch([["=HYPERLINK(1)", "+x"], ["d", "4"]], [5, 6])


def problem(row: int, sentence: str, column: str | None = None) -> Problem:
    return Problem(row=row, column=column, sentence=sentence)


def test_each_row_is_there_once_with_its_cells_and_all_that_is_wrong(tmp_path: Path) -> None:
    path = rejects_beside(tmp_path / "book.xlsx")
    problems = [problem(4, "no", "name"), problem(4, "nor this"), problem(5, "never")]
    write_rejects(path, Rows(), problems)
    assert path.name == "book.rejects.csv"
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open(encoding="utf-8", newline="") as file:
        assert file.read(1) == BYTE_ORDER_MARK, "else a spreadsheet shows its names wrong"
        assert list(csv.reader(file)) == [
            ["name", "'=cmd", "rejected row", "problem"],
            ["b", "-5", "4", "name: no; nor this"],
            ["'=HYPERLINK(1)", "'+x", "5", "never"],
        ]


def test_numbers_of_a_workbook_are_written_as_the_mapping_reads_texts(tmp_path: Path) -> None:
    """Else 1.234 of a currency with three decimals came back as a thousand, where `.` groups."""

    class Typed(Rows):
        def batches(self) -> Iterator[Batch]:
            yield Batch([[Number("1.234"), "1.234"], [Number("-5"), "x"]], [3, 4])

    path = tmp_path / "r.csv"
    write_rejects(path, Typed(), [problem(3, "no"), problem(4, "no")], decimal=",")
    with path.open(newline="") as file:
        assert [row[:2] for row in csv.reader(file)][1:] == [["1,234", "1.234"], ["-5", "x"]]


def test_a_file_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("mine")
    with pytest.raises(UsageError, match="--rejects"):
        refuse_to_replace(path)
    with pytest.raises(UsageError, match="nothing was imported"):
        write_rejects(path, Rows(), [problem(3, "x")])
    assert path.read_text() == "mine"


@for_each("cell", ["=1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\tx", "\rx"])
def test_what_a_spreadsheet_would_run_begins_with_an_apostrophe(cell: str) -> None:
    assert harmless(cell) == "'" + cell


@for_each("cell", ["-5.00", "+254700000001", "-1.234,50", "a=b", ""])
def test_numbers_and_texts_stay_as_they_are(cell: str) -> None:
    assert harmless(cell) == cell


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_what_is_quoted_of_a_cell_or_a_heading_is_no_formula_either(
    tmp_path: Path, mark: str
) -> None:
    """A spreadsheet that is set to semicolons splits the sentence within its quotation marks."""
    path = tmp_path / "r.csv"
    write_rejects(path, Rows(), [problem(4, "';=1+1;' is no amount", "=cmd"), problem(5, "\t=2")])
    with path.open(encoding="utf-8-sig", newline="") as file:
        cells = [cell for row in csv.reader(file, delimiter=mark) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", '"='))]


def test_corrected_rows_are_imported_as_they_were(tmp_path: Path) -> None:
    """Each cell and each name of a column comes back from the file as it was before it was made
    safe, also where a semicolon would split it; a table of another origin is taken as it is."""
    cells = ["=HYPERLINK(1)", "'quoted", "x;=1+1", "-5"]

    class Odd(Rows):
        heading: Any = ("=cmd", "'b", "c;-d", "Käufer ₹")

        def batches(self) -> Iterator[Batch]:
            yield Batch([cells], range(2, 3))

    path = tmp_path / "r.csv"
    write_rejects(path, Odd(), [problem(2, "no")])
    assert "x;=1+1" not in path.read_text(encoding="utf-8")
    table = CsvTable(path, encoding=None, delimiter=",", recognize=len)
    assert table.heading == [*Odd.heading, *ADDED]
    assert [row for batch in table.batches() for row in batch.rows] == [[*cells, "2", "no"]]
    path.write_text("a,b\r\n'=x,'y\r\n")
    table = CsvTable(path, encoding=None, delimiter=",", recognize=len)
    assert [row for batch in table.batches() for row in batch.rows] == [["'=x", "'y"]]


@pytest.mark.parametrize(
    "content",
    [
        b'{"reference": "A", "amount": ["1.00"], "currency": "KES", "refunded_amount": 2}\n'
        b'{"reference": "B", "amount": 3, "currency": "KES", "refunded_amount": true}\n',
        workbook(["A", "=1+1", "KES"], ["B", "=2", "KES"]),
    ],
    ids=["json_lines", "workbook"],
)
def test_a_cell_without_a_value_is_none_among_the_rejects_either(
    content: bytes, tmp_path: Path
) -> None:
    """An empty cell would be no refund, once the rows are imported as they are."""
    path = tmp_path / "book"
    path.write_bytes(content)
    _, problems = book(content, folder=tmp_path)
    table = open_table(path, FileMapping(), BookForm.FIELDS)
    rejects = tmp_path / "r.csv"
    write_rejects(rejects, table, [problem(row, sentence) for row, _, sentence in problems])
    rows, again = book(rejects.read_bytes(), folder=tmp_path)
    assert not rows
    assert ["is a formula: replace it with its value" in sentence for _, _, sentence in again] == [
        True
    ] * 2


def test_a_row_with_one_more_empty_cell_keeps_its_columns(tmp_path: Path) -> None:
    content = "reference,amount,currency\nA,x,KES,\n"
    path = tmp_path / "book.csv"
    path.write_text(content)
    table = open_table(path, FileMapping(), BookForm.FIELDS)
    write_rejects(tmp_path / "r.csv", table, [problem(2, "no")])
    corrected = (tmp_path / "r.csv").read_text(encoding="utf-8-sig").replace("A,x,", "A,1.00,")
    rows, problems = book(corrected, folder=tmp_path)
    assert (len(rows), problems) == (1, [])
