"""Workbooks as people send them, and as nobody should."""

import datetime
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from app.finance.files import opening, workbooks
from app.finance.files.books import BookForm
from app.finance.files.mapping import read_mapping
from tests.finance.files.reading import book
from tests.rows import for_each

pytestmark = pytest.mark.usefixtures("workbooks_here")

SHEET = "xl/worksheets/sheet1.xml"
HEADING = ["reference", "amount", "currency", "placed_at", "phone"]


def workbook(*rows: list[Any], before: int = 0) -> bytes:
    """Build a workbook with one sheet; `before` rows and a column before the heading are blank."""
    made = openpyxl.Workbook()
    for number, row in enumerate([HEADING, *rows], before + 1):
        for place, cell in enumerate(row, 2 if before else 1):
            made.active.cell(number, place, cell)
    file = io.BytesIO()
    made.save(file)
    return file.getvalue()


def changed(content: bytes, change: Callable[..., bytes], *, name: str = SHEET) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, \
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:  # fmt: skip
        for each in old.namelist():
            part = old.read(each)
            new.writestr(each, change(part) if each == name else part)
    return file.getvalue()


def adding(cells: bytes) -> Callable[[bytes], bytes]:
    return lambda sheet: sheet.replace(b"</sheetData>", cells + b"</sheetData>")


def refusal(content: bytes, folder: Path, mapping: str = "") -> str:
    rows, problems = book(content, mapping, folder=folder)
    assert not rows
    (problem,) = problems
    return problem[2]


def test_numbers_dates_and_phones_are_what_the_program_shows(tmp_path: Path) -> None:
    noon = datetime.datetime(2026, 11, 1, 12)
    content = workbook(
        ["A", 1500.1, "KES", noon, 254700000001],
        [1042, 0.1 + 0.2, "KES", noon.date(), None],
        ["B", 15, "KES", "2026-11-01", "+254 700 000 001"],
        before=3,
    )
    rows, problems = book(content, 'zone = "UTC"', folder=tmp_path, name="any.name")
    assert not problems
    assert [(r["row"], r["reference"], r["amount"]["amount"], r["placed_at"]) for r in rows] == [
        (5, "A", "1500.10", "2026-11-01T12:00:00Z"),
        (6, "1042", "0.30", "2026-11-01T00:00:00Z"),
        (7, "B", "15.00", "2026-11-01T00:00:00Z"),
    ]


@for_each("number", [b"NaN", b"inf", b"1e999"])
def test_a_number_that_is_none_is_a_problem(number: bytes, tmp_path: Path) -> None:
    content = workbook(["A", 12345, "KES", None, None])
    content = changed(content, lambda sheet: sheet.replace(b"<v>12345</v>", b"<v>%s</v>" % number))
    assert "is not an amount such as 1500.00" in refusal(content, tmp_path)


def test_problems_have_the_row_of_the_sheet(tmp_path: Path) -> None:
    """A formula that no program has worked out has no value; a long number is not what was typed;
    true is no amount."""
    content = workbook(
        ["A", "=1+1", "KES"], [], ["B", 12345678901234567890, "KES"], ["C", True, "KES"],
        ["D", "1,5", "KES"],
    )  # fmt: skip
    rows, problems = book(content, folder=tmp_path)
    assert not rows
    assert [(row, column) for row, column, _ in problems] == [(n, "amount") for n in (2, 4, 5, 6)]


def test_the_sheet_that_is_named_is_read(tmp_path: Path) -> None:
    made = openpyxl.Workbook()
    made.active.append(["nothing here"])
    made.create_sheet("Orders").append(["reference", "amount", "currency"])
    made["Orders"].append(["A", 1, "KES"])
    file = io.BytesIO()
    made.save(file)
    rows, _ = book(file.getvalue(), 'sheet = "Orders"', folder=tmp_path)
    assert rows[0]["reference"] == "A"
    assert "no sheet 'Payments'" in refusal(file.getvalue(), tmp_path, 'sheet = "Payments"')


def sheets(tmp_path: Path, **rows: list[list[Any]]) -> Path:
    """Write a workbook with these sheets; one whose name begins with `hidden` is hidden."""
    made, path = openpyxl.Workbook(), tmp_path / "sheets.xlsx"
    made.remove(made.active)
    for name, content in rows.items():
        sheet = made.create_sheet(name)
        sheet.sheet_state = "hidden" if name.startswith("hidden") else "visible"
        for row in content:
            sheet.append(row)
    made.save(path)
    return path


ONE = ["A", 1, "KES", "2026-11-01"]


@for_each(("row", "said"), [
    (["A", "#REF!", "KES", None], "cell B2 holds the error #REF!"),
    (["#N/A", 1, "KES", None], "cell A2 holds the error #N/A"),
    (["A", "=1+1", "KES", None], "cell B2 has a formula without a value"),
    (["=x", "=y", "=z", None], "cell A2 has a formula without a value, cell B2 has a"),
])  # fmt: skip
@for_each("more", [[], [ONE]])
def test_errors_and_formulas_without_a_value_are_problems_with_sheet_and_cell(
    row: list[Any], said: str, more: list[list[Any]], tmp_path: Path
) -> None:
    """The library gives such cells as empty; rows of formulas at the end it leaves out."""
    path = sheets(tmp_path, Orders=[HEADING, row, *more], Others=[["#REF!"]])
    rows, problems = book(path.read_bytes(), folder=tmp_path)
    assert len(rows) == len(more)
    ((number, _, sentence),) = problems
    assert (number, sentence.startswith(f"Sheet 'Orders', {said}")) == (2, True)


def test_empty_columns_on_the_left_move_no_cell(tmp_path: Path) -> None:
    rows, problems = book(
        workbook(["A", "#REF!", "KES"], ["B", 1, "=1+1"], ["C", 2, "KES"], before=2),
        folder=tmp_path,
    )
    assert [row["reference"] for row in rows] == ["C"]
    assert [(row, column, sentence[:22]) for row, column, sentence in problems] == [
        (4, "amount", "Sheet 'Sheet', cell C4"), (5, "currency", "Sheet 'Sheet', cell D5"),
    ]  # fmt: skip
    by_place = 'heading_row = 0\nskip_first = 1\n[columns]\nreference = "2"\namount = "3"\n'
    rows, _ = book(
        workbook(["A", 1.5], ["B", 2], before=1),
        by_place + '[defaults]\ncurrency = "KES"\n',
        folder=tmp_path,
    )
    assert [(row["reference"], row["amount"]["amount"]) for row in rows] == [
        ("A", "1.50"), ("B", "2.00"),
    ]  # fmt: skip


def test_a_formula_with_its_value_is_read_and_errors_in_other_columns_are_not(
    tmp_path: Path,
) -> None:
    content = workbook(ONE, ["B", "=1+1", "KES"], ["C", 3, "KES", None, None, "#N/A"])
    content = changed(
        content,
        lambda sheet: sheet.replace(b"<v />", b"<v>2</v>").replace(
            b'<c r="E1" t="inlineStr"><is><t>phone', b'<c r="F1" t="inlineStr"><is><t>note'
        ),
    )
    rows, problems = book(content, 'zone = "UTC"', folder=tmp_path)
    assert not problems
    assert [row["amount"]["amount"] for row in rows] == ["1.00", "2.00", "3.00"]


@for_each(("value", "problems"), [(b"0", 1), (b"7", 0)])
def test_a_zero_that_no_program_worked_out_is_no_value(
    value: bytes, problems: int, tmp_path: Path
) -> None:
    """Libraries that write workbooks save a zero for each formula, to be replaced at opening."""
    content = workbook(["A", "=1+1", "KES"])
    content = changed(content, lambda sheet: sheet.replace(b"<v />", b"<v>%s</v>" % value))
    assert len(book(content, folder=tmp_path)[1]) == problems


def test_a_sheet_of_too_many_errors_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = workbook(*[[f"{n}", "#REF!", "=A1", None] for n in range(3)])
    assert len(book(content, folder=tmp_path)[1]) == 3
    monkeypatch.setattr(workbooks, "MAX_DOUBTS", 5)
    assert "more than 5 errors and formulas" in refusal(content, tmp_path)


def notes_of(path: Path, mapping: str = "") -> str:
    said = read_mapping(mapping.encode(), BookForm.FIELDS)
    return " ".join(opening.open_table(path, said, BookForm.FIELDS).notes)


def test_other_sheets_and_hidden_rows_are_noted_with_names_and_counts(tmp_path: Path) -> None:
    path = sheets(tmp_path, Orders=[HEADING, ONE], hiddenA=[["x"]], B=[[1], [2]], C=[])
    book_ = openpyxl.load_workbook(path)
    for row in range(2, 9):
        book_["Orders"].cell(row, 1, f"A{row}")
        book_["Orders"].row_dimensions[row].hidden = row != 5
    book_["Orders"].row_dimensions[20].hidden = True
    book_.save(path)
    assert notes_of(path) == (
        "Only the sheet 'Orders' is imported. Other sheets have content, too: 'hiddenA' (1 row, "
        "hidden), "
        "'B' (2 rows). To read another one, name it with --sheet. Hidden rows are imported, too: 6 "
        "rows of the sheet 'Orders', hidden by a filter or by hand: rows 2 to 4, 6 to 8."
    )
    assert "sheet 'B' is imported" in notes_of(path, 'sheet = "B"')
    assert not notes_of(sheets(tmp_path, Orders=[HEADING, ONE]))


@for_each("keep", [10, 100, 0.5, 0.9, -10])
def test_a_workbook_that_is_cut_short_is_refused(keep: float, tmp_path: Path) -> None:
    content = workbook(["A", 1, "KES"])
    at = int(len(content) * keep) if 0 < keep < 1 else int(keep)
    assert "cut short or damaged" in refusal(content[:at], tmp_path)


@for_each("start", [b"\x00" * 600, b"\xff\xfe\xfd\xfc" * 150, b"P\xe9"])
def test_a_workbook_without_its_beginning_is_no_text_either(start: bytes, tmp_path: Path) -> None:
    for name, said in (("BOOK.XLSX", "workbook is damaged"), ("book.csv", "text")):
        content = start + workbook(["A", 1, "KES", None, None])[len(start) :]
        rows, ((_, _, sentence),) = book(content, folder=tmp_path, name=name)
        assert (rows, said in sentence) == ([], True)


def test_a_bomb_is_refused_by_what_it_declares(tmp_path: Path) -> None:
    bomb = changed(workbook(["A", 1, "KES"]), adding(b" " * 50_000_000))
    assert "unpack to 47 MiB" in refusal(bomb, tmp_path)


def test_many_parts_and_odd_packing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.BytesIO(workbook(["A", 1, "KES"]))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("odd", b"x", zipfile.ZIP_LZMA)
    assert "in a way that no spreadsheet program uses" in refusal(file.getvalue(), tmp_path)
    monkeypatch.setattr(workbooks, "MAX_ENTRIES", 3)
    assert "more than 3 parts" in refusal(workbook(["A", 1, "KES"]), tmp_path)


def test_of_two_parts_of_one_name_none_is_read(tmp_path: Path) -> None:
    """A reader of archives may take either."""
    file = io.BytesIO(workbook(["A", 1, "KES"]))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(SHEET.upper(), b"<worksheet/>")
    assert "two parts with the same name" in refusal(file.getvalue(), tmp_path)


def test_a_sheet_that_goes_far_out_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = changed(workbook(["A", 1, "KES"]), adding(b'<row r="99"><c r="ZZ99"><v>1</v></c></row>'))
    assert len(book(far, folder=tmp_path)[0]) == 1
    monkeypatch.setattr(workbooks, "MAX_CELLS", 10_000)
    assert "goes to row 99 and column 702" in refusal(far, tmp_path)
    monkeypatch.setattr(workbooks, "MAX_ROW", 1_000)
    monkeypatch.setattr(workbooks, "MAX_CELLS", 1_000_000)
    assert "row is larger than" in refusal(far, tmp_path)


def test_cells_that_do_not_say_where_they_are_follow_each_other(tmp_path: Path) -> None:
    """A cell's place may be left out (ECMA-376 part 1, 18.3.1.4)."""
    cells = b'<row r="3"><c t="inlineStr"><is><t>B</t></is></c><c t="e"><v>#REF!</v></c></row>'
    rows, problems = book(changed(workbook(["A", 1, "KES"]), adding(cells)), folder=tmp_path)
    assert [row["reference"] for row in rows] == ["A"]
    assert problems[0][2].startswith("Sheet 'Sheet', cell B3 holds the error #REF!")


def test_an_encrypted_workbook_is_refused(tmp_path: Path) -> None:
    """An archive can say that its parts are encrypted; Office's own form is no archive."""
    content = workbook(["A", 1, "KES"])
    at = content.index(b"PK\x01\x02")
    flagged = content[: at + 8] + b"\x01" + content[at + 9 :]
    assert "save it without a password" in refusal(flagged, tmp_path)


@for_each("part", [SHEET, "xl/workbook.xml", "xl/styles.xml"])
def test_damaged_parts_are_refused(part: str, tmp_path: Path) -> None:
    for damage in (b"", b"<", b"<a><b></a>", b"\xff\xfe\x00"):
        content = changed(workbook(["A", 1, "KES"]), lambda _, new=damage: new, name=part)
        book(content, folder=tmp_path)  # a sentence or rows, but no exception
