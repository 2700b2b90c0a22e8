"""References that a spreadsheet shortened or broke: noted, or refused where nothing is left."""

import io
from pathlib import Path
from typing import Any

import openpyxl

from app.finance.files.books import BookForm
from app.finance.files.line_forms import Understanding
from app.finance.files.mapping import read_mapping
from app.finance.files.opening import open_table
from tests.finance.files.reading import book
from tests.rows import for_each

HEADING = ["reference", "amount", "currency", "placed_at"]


def notes_of(folder: Path, cells: list[Any], *, workbook: bool) -> list[str]:
    """Return what is noted of orders with these references."""
    path = folder / "orders"
    if workbook:
        made, file = openpyxl.Workbook(), io.BytesIO()
        made.active.append(HEADING)
        for cell in cells:
            made.active.append([cell, 1, "KES", None])
        made.save(file)
        path.write_bytes(file.getvalue())
    else:
        lines = [",".join(HEADING), *(f'"{cell}",1.00,KES,' for cell in cells)]
        path.write_text("\n".join(lines))
    mapping = read_mapping(b"", BookForm.FIELDS)
    table = open_table(path, mapping, BookForm.FIELDS)
    understanding = Understanding(table, BookForm(mapping), mapping)
    for batch in table.batches():
        assert not understanding.batch(batch).problems
    return understanding.notes()


@for_each(("cells", "rows"), [
    (["4.81477E+15", "A", "4,81E+15"], "2 rows, row 2, 4"),
    (["5E+15"] * 5, "5 rows, such as row 2, 3, 4"),
    (["4814771234567890", "4814771234567810"], "2 rows, row 2, 3"),
    (["A", "48147712345678900000"], "1 row, row 3"),
    (["4814771234567890", "4814771234567811"], None),
    (["4814771234567891", "4814771234567810"], None),
    (["481477123456780", "2E15", "E+15", "ABCDEFGHIJKLMNOPQRST0"], None),
])  # fmt: skip
def test_references_that_a_spreadsheet_shortened_are_noted(
    cells: list[Any], rows: str | None, tmp_path: Path
) -> None:
    said = "Excel shortened this reference: export the column as text. It is column 'reference' in "
    assert notes_of(tmp_path, cells, workbook=False) == ([] if rows is None else [f"{said}{rows}."])


@for_each(("cells", "noted"), [
    ([4814771234567891], True), ([48147712345678912345], True), ([481477123456789], False),
    (["4814771234567891"], False),
])  # fmt: skip
def test_numbers_of_a_workbook_with_more_digits_than_it_keeps_are_noted(
    cells: list[Any], noted: bool, tmp_path: Path
) -> None:
    assert bool(notes_of(tmp_path, cells, workbook=True)) is noted


@for_each("cell", ["#REF!", "#N/A", "#BEZUG!", "#DIV/0!", "#NV"])
def test_an_error_of_a_spreadsheet_is_no_reference(cell: str, tmp_path: Path) -> None:
    content = f"reference,amount,currency\n{cell},1.00,KES\n#1001,1.00,KES\n"
    rows, problems = book(content, folder=tmp_path)
    assert [row["reference"] for row in rows] == ["#1001"]
    assert [(row, "is a spreadsheet error" in text) for row, _, text in problems] == [(2, True)]
