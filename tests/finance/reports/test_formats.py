"""The report in every format: equal bytes, true types, and texts that are only texts."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from datetime import datetime
from functools import cache
from html.parser import HTMLParser
from typing import Any

import openpyxl
import pytest

from app.core.cells import plain_text
from app.finance.reports import html_form, pdf_form, text_forms, xlsx_form
from app.finance.reports.render import REPORT_FORMATS, ReportFormat, render
from app.finance.reports.values import at_risk, headlines
from reconcile.reporting.report import BreakLine, PeriodReport
from reconcile.reporting.tables import TABLES
from tests.finance.reports.payloads import PAYLOADS, is_formula
from tests.finance.reports.samples import sample


@cache
def report() -> PeriodReport:
    """One report for all tests that only look at it."""
    return sample(60)


@cache
def hostile() -> PeriodReport:
    """A report whose breaks carry payloads in every text."""
    first = report().break_lines[0]
    lines = tuple(
        replace(first, order=text, payment=text, sentence=text, next_step=text, cites=(text,))
        for text in PAYLOADS
    )
    return replace(report(), break_lines=lines)


def workbook(made: bytes) -> Any:
    """As openpyxl reads it."""
    return openpyxl.load_workbook(io.BytesIO(made))


def rows_of(sheet: Any) -> list[dict[str, Any]]:
    """The rows below the header."""
    names, *rows = sheet.iter_rows(values_only=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.parametrize("form", REPORT_FORMATS)
def test_the_same_report_is_the_same_bytes_however_late_it_is_printed(
    form: ReportFormat, time_machine: Any
) -> None:
    time_machine.move_to("2026-11-20T10:00:00Z")
    made = render(report(), form)
    time_machine.move_to("2031-05-06T07:08:09Z")
    assert render(report(), form) == made
    assert render(replace(report(), ties=report().ties[1:]), form) != made


# --- JSON and table ------------------------------------------------------------------------------


def test_json_is_one_document_with_money_as_decimal_strings() -> None:
    found = json.loads(render(report(), "json"), parse_float=None)
    assert found["ties_hold"] is True
    assert found["from"] == "2026-10-01T00:00:00Z"
    money = {(row["currency"], row["flow"]): row["sum"] for row in found["money"]}
    assert money["KWD", "captured"] == {"amount": "16.476", "currency": "KWD"}
    assert b"." not in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", render(report(), "json"))


def test_the_table_shows_every_tie_and_cuts_long_lists() -> None:
    text = render(sample(60, broken=100), "table").decode()
    assert "All 23 ties hold: " in text
    assert "… and 60 more" in text
    assert max(map(len, text.splitlines())) <= 132


def test_no_text_commands_the_terminal() -> None:
    line = replace(report().break_lines[0], order="\x1b[2J\r\x07\u202e", payment="[b]x")
    shown = render(replace(report(), break_lines=(line,)), "table").decode()
    assert not [sign for sign in shown if not sign.isprintable() and sign != "\n"]
    assert "[b]x" in shown


# --- CSV -----------------------------------------------------------------------------------------


def csv_rows(made: bytes) -> list[dict[str, str]]:
    """As a program reads it."""
    return list(csv.DictReader(io.StringIO(made.decode("utf-8-sig"), newline="")))


def test_csv_has_every_row_of_every_table_under_its_section() -> None:
    rows = csv_rows(render(report(), "csv"))
    document = json.loads(render(report(), "json"))
    for name, table in document.items():
        if isinstance(table, list):
            assert sum(row["section"] == name for row in rows) == len(table)
    captured = [row for row in rows if row["section"] == "money" and row["flow"] == "captured"]
    assert [(row["currency"], row["sum"]) for row in captured] == [
        ("JPY", "16436"),
        ("KES", "164.56"),
        ("KWD", "16.476"),
    ]
    assert rows[0]["section"] == "scope"
    assert rows[0]["basis"] == "captured"


def test_csv_has_no_formula_and_gives_every_text_back() -> None:
    rows = csv_rows(text_forms.csv(hostile()))
    cells = [text for row in rows for text in row.values()]
    numbers = re.compile(r"-\d+(\.\d+)?")
    assert not [text for text in cells if is_formula(text) and not numbers.fullmatch(text)]
    found = [row for row in rows if row["section"] == "break_lines"]
    for column in ("order", "payment", "sentence", "next_step", "cites"):
        assert [plain_text(row[column]) for row in found] == list(PAYLOADS)


# --- XLSX ----------------------------------------------------------------------------------------


def test_a_workbook_has_numbers_and_dates_that_add_up_to_the_control_totals() -> None:
    book = workbook(render(report(), "xlsx"))
    totals = rows_of(book["totals"])
    money = {(row["currency"], row["flow"]): row["sum"] for row in rows_of(book["money"])}
    assert isinstance(money["KES", "captured"], float)
    for currency in ("KES", "JPY", "KWD"):
        own = [row for row in totals if row["currency"] == currency]
        assert sum(row["captured"] for row in own) == pytest.approx(money[currency, "captured"])
    assert sum(row["count"] for row in totals) == 61
    formats = {cell.number_format for cell in book["money"]["D"][1:]}
    assert formats == {"#,##0", "#,##0.00", "#,##0.000"}
    first = rows_of(book["break lines"])[0]
    assert isinstance(first["since"], datetime)
    assert (first["currency"], first["sum"]) == ("KWD", 150.029)
    assert book["break lines"].freeze_panes == "A2"
    assert book["break lines"].auto_filter.ref == "A1:L31"


def test_the_control_sheet_comes_first_and_has_every_tie() -> None:
    book = workbook(render(report(), "xlsx"))
    assert book.sheetnames[0] == "control"
    column = [cell.value for cell in book["control"]["G"]]
    assert column.count("yes") == len(report().ties) == 23
    told = dict(row[:2] for row in book["control"].iter_rows(values_only=True))
    assert (told["ties"], told["breaks"]) == headlines(report())


def test_a_workbook_has_no_formula_no_link_and_every_text_as_it_was() -> None:
    made = xlsx_form.xlsx(hostile())
    with zipfile.ZipFile(io.BytesIO(made)) as parts:
        sheets = [parts.read(name) for name in parts.namelist() if "sheet" in name]
        assert not [
            sheet for sheet in sheets if re.search(rb"<f[ >/]|<hyperlink|externalLink", sheet)
        ]
    sheet = workbook(made)["break lines"]
    assert all(cell.data_type != "f" for row in sheet.iter_rows() for cell in row)
    drawn = {name: [row[name] for row in rows_of(sheet)] for name in ("order", "sentence", "cites")}
    for found in drawn.values():
        assert [_read_back(text) for text in found] == list(PAYLOADS)


def _read_back(text: str) -> str:
    """openpyxl leaves the escapes of signs that XML cannot hold as they are written."""
    return re.sub("_x([0-9A-F]{4})_", lambda code: chr(int(code[1], 16)), text)


def test_more_rows_than_a_sheet_holds_go_on_in_a_further_sheet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xlsx_form, "ROWS_MAX", 21)
    book = workbook(xlsx_form.xlsx(report()))
    names = [name for name in book.sheetnames if name.startswith("break lines")]
    assert names == ["break lines", "break lines 2"]
    rows = [row["identity"] for name in names for row in rows_of(book[name])]
    assert rows == [each.identity for each in report().break_lines]


def test_a_number_too_long_for_a_cell_keeps_its_digits_as_text() -> None:
    large = replace(report().break_lines[0], sum=10**17 + 1, currency="KES")
    book = workbook(xlsx_form.xlsx(replace(report(), break_lines=(large,))))
    assert rows_of(book["break lines"])[0]["sum"] == "1000000000000000.01"


@pytest.mark.parametrize("form", REPORT_FORMATS)
def test_half_a_surrogate_pair_a_nul_and_a_megabyte_break_no_format(form: ReportFormat) -> None:
    first = report().break_lines[0]
    odd = replace(first, order="\ud800\x00\x1b[31m<b>", payment="x" * 5_000, sentence="y " * 40_000)
    assert render(replace(report(), break_lines=(odd,)), form)


# --- HTML ----------------------------------------------------------------------------------------


class _Texts(HTMLParser):
    """The texts of all cells and small lines, and what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = [""]
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action")]
        self.texts.append("")

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data


def read(page: bytes) -> _Texts:
    """The page, parsed."""
    parser = _Texts()
    parser.feed(page.decode())
    return parser


def test_the_page_refers_to_nothing_and_runs_nothing() -> None:
    found = read(render(report(), "html"))
    assert not found.links
    assert not found.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert b"url(" not in render(report(), "html").replace(b"url(#", b"")


def test_the_page_gives_every_text_back_and_marks_its_cells_as_text() -> None:
    """A spreadsheet program that opens the page is told that its cells are texts."""
    page = html_form.html(hostile())
    texts = {text.replace("\r\n", "\n") for text in read(page).texts}
    wanted = {text.replace("\r\n", "\n") for text in PAYLOADS}
    assert wanted <= texts
    assert b'td { overflow-wrap: break-word; mso-number-format: "\\@" }' in page


def test_the_page_escapes_markup() -> None:
    line: BreakLine = replace(report().break_lines[0], order="<script>alert(1)</script>")
    page = html_form.html(replace(report(), break_lines=(line,)))
    assert b"<script>" not in page
    assert b"&lt;script&gt;" in page


def test_long_lists_end_in_the_page_and_say_so() -> None:
    many = report().break_lines * 40
    page = html_form.html(replace(report(), break_lines=many)).decode()
    assert "… and 200 more lines" in page


def test_the_headlines_stand_before_every_table_and_what_proves_them_after() -> None:
    """In each form for people: verdict and money at risk, outcomes, breaks, then all the ties."""
    said = headlines(report())
    text = render(report(), "table").decode()
    page = html_form.html(report()).decode()
    for whole in (text, page):
        titles = [
            each.title for each in TABLES if each.name in ("control", "outcomes", "breaks", "ties")
        ]
        places = [whole.index(each) for each in (*said, *titles)]
        assert places == sorted(places)


def test_the_headline_of_breaks_counts_open_money_and_tells_what_was_accepted() -> None:
    """Accepted money is no longer at risk."""
    first = report().breaks[0]
    rows = [
        replace(first, state=state, currency=currency, count=count, sum=minor, at_risk=minor)
        for state, currency, count, minor in (
            ("open", "KES", 2, 150_000), ("assigned", "JPY", 1, 70), ("open", "KES", 1, 5),
            ("accepted", "KES", 1, 999),
        )
    ]  # fmt: skip
    assert at_risk(replace(report(), breaks=tuple(rows))) == (
        "4 breaks open, at risk: JPY 70, KES 1,500.05. 1 break accepted."
    )
    assert at_risk(replace(report(), breaks=tuple(rows[3:]))) == (
        "No break is open. 1 break accepted."
    )
    assert at_risk(replace(report(), breaks=())) == "No break is open."
    units = replace(rows[0], cause="off_by_minor_unit", sum=9_900_000, at_risk=0)
    assert at_risk(replace(report(), breaks=(*rows[1:], units))) == (
        "4 breaks open, at risk: JPY 70, KES 0.05. 2 mistakes of unit apart: KES "
        "99,000.00. 1 break accepted."
    )
    assert at_risk(replace(report(), breaks=(units,))) == (
        "2 breaks open, no money at risk. 2 mistakes of unit apart: KES 99,000.00."
    )


def test_a_broken_tie_is_told_first() -> None:
    broken = replace(report().ties[0], left_value=7)
    page = html_form.html(replace(report(), ties=(broken, *report().ties[1:]))).decode()
    assert "1 of 23 ties do not hold: orders in JPY." in page
    assert page.count('<tr class="wrong">') == 1


# --- PDF -----------------------------------------------------------------------------------------


def test_the_pdf_is_cut_to_its_rows_and_no_text_is_markup() -> None:
    many = tuple(
        replace(line, order='#panic("x") *b* $1/0$ #read("/etc/passwd") \\', payment="`")
        for line in report().break_lines * 40
    )
    made = pdf_form.pdf(replace(report(), break_lines=many))
    assert made.startswith(b"%PDF-1.7")
    shown = sum(len(part["rows"]) for part in pdf_form._document(report())["sections"])
    assert shown < pdf_form.ROWS_MAX
    cut = pdf_form._document(replace(report(), break_lines=many))["sections"]
    assert sum(len(part["rows"]) for part in cut) == pdf_form.ROWS_MAX
    assert [part["left_out"] for part in cut if part["title"] == "Each break"] != [""]


def test_a_missing_extra_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.finance.reports.render.find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"pip install 'tallyhook\[pdf\]', or take --format html"):
        render(report(), "pdf")
