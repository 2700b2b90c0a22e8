"""Delimited text in every encoding and shape that programs export, and what is none."""

from pathlib import Path

import pytest

from app.core.errors import UsageError
from app.finance.files import encodings, tables
from tests.finance.files.reading import book
from tests.rows import for_each

HEADING = "reference,amount,currency\n"


@for_each("delimiter", [",", ";", "\t", "|"])
@for_each("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@for_each("end", ["\n", "\r\n", "\r"])
def test_delimiter_mark_and_line_end_are_found_out(
    delimiter: str, encoding: str, end: str, tmp_path: Path
) -> None:
    lines = [
        ["Reference", "AMOUNT", "currency "],
        ["Ö-1", "5.00", "KES"],
        ['"a""b"', "6.00", "KES"],
    ]
    content = end.join(delimiter.join(line) for line in lines) + end
    rows, problems = book(content.encode(encoding), folder=tmp_path)
    assert [row["reference"] for row in rows] == ["Ö-1", 'a"b']
    assert not problems


def test_the_line_for_excel_names_the_delimiter_and_counts_as_a_row(tmp_path: Path) -> None:
    rows, problems = book("sep=|\nreference|amount|currency\nA|x|KES\n", folder=tmp_path)
    assert (rows, [problem[:2] for problem in problems]) == ([], [(3, "amount")])


def test_a_declared_encoding_is_used(tmp_path: Path) -> None:
    content = (HEADING + "Ö-1,5.00,KES\n").encode("latin-1")
    rows, _ = book(content, 'encoding = "latin-1"', folder=tmp_path)
    assert rows[0]["reference"] == "Ö-1"


def test_undecodable_text_is_refused_with_its_byte_and_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a later one of the parts in which a file is searched."""
    for module in (encodings, tables):
        monkeypatch.setattr(module, "_SEARCHED", 1_000)
    before = HEADING + "A-1,5.00,KES\n" * 2_000
    content = before.encode() + "Ö-1,5.00,KES\n".encode("latin-1")
    _, problems = book(content, folder=tmp_path)
    row, _, sentence = problems[-1]
    assert row == 2_002
    assert f"byte {len(before):,} of the file" in sentence
    assert "--encoding" in sentence


@for_each("name", ["rot13", "base64", "utf-7", "idna", "klingon", "x" * 999, ""])
def test_an_encoding_that_is_none_of_text_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a known encoding"):
        book(HEADING, f'encoding = "{name}"', folder=tmp_path)


@for_each(("content", "row", "said"), [
    (b"", 1, "empty"), (b"\n\r\n\n", 1, "empty"), (b"\xef\xbb\xbf", 1, "empty"),
    (b"\0\0\0\0", 1, "zero byte"), ("reference\n".encode("utf-16-le"), 1, "zero byte"),
    (b"reference,amount,currency\nA,\0,KES\n", 2, "zero byte"),
    (b'reference,amount,currency\nA,1.00,KES\n"B,1.00,KES\nC,1.00,KES\n', 3, "quotation marks"),
    (b'reference,amount,currency\n"A"x,1.00,KES\n', 2, "quotation marks"),
    (b'reference,amount,currency\nA,1.00,KES\n"' + b"x\n" * 70_000, 3, "longer than"),
    (b"reference,amount,currency\n" + b"x" * 10_000_000 + b",1,KES\n", 2, "longer than"),
    (b"reference,amount,currency\nA," + b"1" * 200_000 + b",KES\n", 2, "longer than"),
    (b",".join([b"c"] * 600) + b"\n", 1, "500 columns"),
    (b"reference,amount,Reference,currency\n", 1, "two columns"),
    (b"name,sum\nA,1\n", 1, "there is no column 'reference'"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_where_it_ends_to_make_sense(
    content: bytes, row: int, said: str, tmp_path: Path
) -> None:
    _, problems = book(content, folder=tmp_path)
    assert problems[-1][0] == row
    assert said in problems[-1][2]


@for_each(("rows", "said"), [
    ('"A,1.00,KES\nB,1.00,KES\n', "are not closed until the end"),
    ('"A"x,1.00,KES\n', "double a quotation mark that is text"),
    ('"' + "x\n" * 70_000, "longer than 131,072 characters: its quotation marks may not be closed"),
])  # fmt: skip
def test_quotation_marks_that_do_not_fit_are_told_with_their_row(
    rows: str, said: str, tmp_path: Path
) -> None:
    _, problems = book(HEADING + "Z,1.00,KES\n" + rows, folder=tmp_path)
    assert [(row, said in sentence) for row, _, sentence in problems] == [(3, True)]


def test_rows_within_the_quotation_marks_of_an_unread_cell_are_not_lost(tmp_path: Path) -> None:
    content = "reference,amount,currency,note,name\n" + 'A,1.00,KES,"x,n\nB,1.00,KES,y",n\n'
    rows, ((row, _, sentence),) = book(content, folder=tmp_path)
    assert (rows, row, "contains more rows (1), each with" in sentence) == ([], 2, True)
    rows, problems = book(content.replace("x,n", "x,n,"), folder=tmp_path)
    assert (len(rows), problems) == (1, [])


@for_each("content", [
    f"\ufeff\ufeff{HEADING}A,1.00,KES\n", f"{HEADING}\ufeffA,1.00,KES\n",
    f"\ufeffsep=,\n\ufeff{HEADING}A,1.00,KES\n",
])  # fmt: skip
@for_each("mapping", ["", 'encoding = "utf-8"'])
def test_byte_order_marks_within_a_file_are_no_text(
    content: str, mapping: str, tmp_path: Path
) -> None:
    rows, problems = book(content, mapping, folder=tmp_path)
    assert ([row["reference"] for row in rows], problems) == (["A"], [])


def test_rows_count_from_the_first_line_through_blank_ones_and_long_cells(tmp_path: Path) -> None:
    content = HEADING + '\nA,1.00,KES\n"B\r\nb\nb",x,KES\n\n,,\nC,y,KES\n'
    rows, problems = book(content, folder=tmp_path)
    assert [row["row"] for row in rows] == [3]
    assert [(row, column) for row, column, _ in problems] == [
        (4, "reference"), (4, "amount"), (9, "amount"),
    ]  # fmt: skip


def test_ragged_rows_are_problems_but_empty_cells_at_the_end_are_none(tmp_path: Path) -> None:
    content = HEADING + "A,1.00\nB,1.00,KES,,\nC,1.00,KES,more\nD,1.00,KES\n"
    rows, problems = book(content, folder=tmp_path)
    assert [row["reference"] for row in rows] == ["B", "D"]
    assert [(row, sentence) for row, _, sentence in problems] == [
        (2, "the row has 2 cells, but the heading has 3"),
        (4, "the row has 4 cells, but the heading has 3: column 4 (D) has content, but no name"),
    ]
    many, problems = book(HEADING + "A,1.00,KES" + "," * 900_000 + "\n", folder=tmp_path)
    assert (len(many), problems) == (1, [])


@for_each(("content", "rows", "problem"), [
    (HEADING.strip() + ",,\nA,1.00,KES\nB,1.00,KES,\nC,1.00,KES,,\n", ["A", "B", "C"], None),
    (HEADING.strip() + ",,\nA,1.00,KES\nB,1.00,KES,,x\n", ["A"], "column 5 (E) has content"),
    ("reference,,amount,currency\nA,,1.00,KES\nB,x,1.00,KES\n", ["A"], "column 2 (B) has content"),
    (",reference,amount,currency\n0,A,1.00,KES\n1,B,1.00,KES\n", ["A", "B"], None),
    (",reference,amount,currency\n0,A,1.00,KES\nx,B,1.00,KES\n", [], "column 1 (A) has content"),
])  # fmt: skip
def test_content_without_a_name_is_a_problem_of_its_row(
    content: str, rows: list[str], problem: str | None, tmp_path: Path
) -> None:
    """But a delimiter that ends lines means nothing, nor do rows that are numbered."""
    found, problems = book(content, folder=tmp_path)
    assert [row["reference"] for row in found] == rows
    assert [problem in each[2] if problem else each for each in problems] == [True] * bool(
        problem
    ) * (2 - len(rows))
    within_the_heading = not content.startswith(HEADING.strip())
    if within_the_heading:
        found, problems = book(content, 'unnamed = "ignored"', folder=tmp_path)
        assert (len(found), problems) == (2, [])


def test_a_delimiter_that_is_not_clear_is_asked_for_and_a_declared_one_wins(
    tmp_path: Path,
) -> None:
    _, problems = book("a;b,c\nA;1,2\n", folder=tmp_path)
    assert "give --delimiter" in problems[0][2]
    named = 'delimiter = ";"\n[columns]\nreference = "a"\namount = "b,c"\n[defaults]\n'
    rows, _ = book("a;b,c\nA;1\n", named + 'currency = "KES"', folder=tmp_path)
    assert rows[0]["reference"] == "A"
