"""Cells of spreadsheets: no text becomes a formula, and every text comes back."""

import csv
import io
import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.cells import cell_text, csv_line, safe_cell
from tests.finance.reports.payloads import PAYLOADS, is_formula


@pytest.mark.parametrize("text", ["", "ORD-1", "a=b", "1+1", "ö", "x@y.example", " plain", "a\tb"])
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert safe_cell(text) == text
    assert cell_text(text) == text


def test_no_payload_is_a_formula_and_each_comes_back() -> None:
    assert len(set(PAYLOADS)) >= 200
    for text in PAYLOADS:
        assert is_formula(text), f"{text!r} is no payload"
        assert not is_formula(safe_cell(text)), repr(text)
        assert cell_text(safe_cell(text)) == text


@pytest.mark.parametrize("text", ["'", "'=1+1", "''x"])
def test_text_that_begins_with_the_mark_is_not_taken_for_marked(text: str) -> None:
    assert cell_text(safe_cell(text)) == text != safe_cell(text)


SPLITTING = [
    f"x{separator}{blank}{head}1+1"
    for separator in (";", "\t", "\n", "\r\n", "\r", ";;", ";\t", ' ;"', '";', ' ; "; ')
    for blank in ("", " ", "\u3000", '"', '""', "\ufeff", '" ')
    for head in "=+-@＝＠"
]
MARKS = ["a;'b", "a;''=b", "'a;'=b'", ";", ";;'", "a;b", "a\n'b", "\t'=", "'\n=1;'=2\t-3", "; 'x"]


def split_elsewhere(line: str) -> set[str]:
    """Return the cells that programs with other separators find, with and without quoting."""
    found = set[str]()
    for separator in ";\t":
        for text in (line, f"1,{line}", f'{line.rstrip()},"=1;",2\r\n'.replace("=1", "q")):
            found |= {
                cell
                for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)
                for cell in row
            }
    found |= {part.lstrip('"') for part in re.split(r"[;\t\r\n]", line)}
    return {cell for cell in found if cell.strip()}


def test_no_part_of_a_cell_is_a_formula_however_it_is_split() -> None:
    """At semicolons, at tabs, and at the end of a line."""
    texts = [*SPLITTING, *MARKS, *PAYLOADS, *(f"x;{each}" for each in PAYLOADS)]
    for text in texts:
        cell = safe_cell(text)
        assert cell_text(cell) == text
        (read,) = csv.reader(io.StringIO(csv_line(["1", cell, "2"]), newline=""), strict=True)
        assert read == ["1", cell, "2"]
        for place in (["1", cell, "2"], [cell], [cell, cell]):
            for part in split_elsewhere(csv_line(place)):
                assert not is_formula(part.lstrip('"')), (text, part)
    assert any(is_formula(part) for part in split_elsewhere(csv_line(["1", "x;=1+1"])))


@given(st.text(alphabet="';|\t\r\n\"=-+@ ab＝", max_size=12))
def test_every_text_comes_back(text: str) -> None:
    assert cell_text(safe_cell(text)) == text
    (read,) = csv.reader(io.StringIO(csv_line([safe_cell(text), "x"]), newline=""), strict=True)
    assert cell_text(read[0]) == text


def test_a_long_cell_takes_no_time() -> None:
    began = process_time()
    for unit in (" ", "\n", ";", "; ", '"', "a ", "; '"):
        text = "x;" + unit * 50_000 + "y"
        assert cell_text(safe_cell(text)) == text
    assert process_time() - began < 5
