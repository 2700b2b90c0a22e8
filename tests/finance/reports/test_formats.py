"""The report in every format: equal bytes, true types, and texts that are only texts."""

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
import pypdf
import pytest

from app.core.cells import cell_text
from app.finance.reports import html_form, layout, pdf_form, text_forms, xlsx_form
from app.finance.reports.layout import at_risk, fact_lines, headlines, money_apart, parts
from app.finance.reports.render import REPORT_FORMATS, ReportFormat, render
from reconcile.instants import SECOND, parse_instant
from reconcile.ledger.ledger import OUTCOMES
from reconcile.matching.causes import BREAK_CAUSES
from reconcile.matching.control import FAMILIES, SIDES
from reconcile.money import Money
from reconcile.reporting import words
from reconcile.reporting.report import (
    AGES,
    FLOWS,
    STEPS,
    BreakLine,
    CoverageRow,
    ExceptionRow,
    Note,
    OwnRow,
    PeriodReport,
    RateRow,
)
from reconcile.reporting.summary import SUMMARIES, age_totals, break_totals, currency_totals
from reconcile.reporting.tables import TABLES
from tests.finance.reports.payloads import PAYLOADS, is_formula
from tests.finance.reports.samples import sample
from tests.rows import for_each


@cache
def report() -> PeriodReport:
    return sample(60)


MASTHEAD = (
    "Salt & Sons · Period 2026-10-01 to 2026-10-31 · Closed by Ann, 2026-11-12 09:41 · "
    "Sandbox: no real money"
)


@cache
def signed() -> PeriodReport:
    """Return the report of a closed month, with the merchant's name."""
    closed_at = parse_instant("2026-11-12T09:41:59Z")
    scope = replace(report().scope, merchant="Salt & Sons", closed_by="Ann", closed_at=closed_at)
    return changed(scope=scope)


@cache
def hostile() -> PeriodReport:
    """Return a report whose breaks carry payloads in every text."""
    first = report().break_lines[0]
    lines = tuple(
        replace(first, order=text, payment=text, sentence=text, next_step=text, cites=(text,))
        for text in PAYLOADS
    )
    return changed(break_lines=lines)


def changed(**parts: Any) -> PeriodReport:
    return replace(report(), **parts)


@cache
def printed(form: ReportFormat) -> bytes:
    """Return the report in this form, for tests that only read it."""
    return render(report(), form)


@cache
def workbook(made: bytes) -> Any:
    """Open a workbook, which nobody changes."""
    return openpyxl.load_workbook(io.BytesIO(made))


def rows_of(sheet: Any) -> list[dict[str, Any]]:
    names, *rows = sheet.iter_rows(values_only=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.costly
@for_each("form", REPORT_FORMATS)
def test_the_same_report_is_the_same_bytes_however_late_it_is_printed(
    form: ReportFormat, time_machine: Any
) -> None:
    time_machine.move_to("2026-11-20T10:00:00Z")
    made = render(report(), form)
    time_machine.move_to("2031-05-06T07:08:09Z")
    assert render(report(), form) == made
    assert render(changed(ties=report().ties[1:]), form) != made


# --- JSON and table ------------------------------------------------------------------------------


def test_json_is_one_document_with_money_as_decimal_strings() -> None:
    found = json.loads(printed("json"), parse_float=None)
    assert found["ties_hold"] is True
    assert found["from"] == "2026-10-01T00:00:00Z"
    money = {(row["currency"], row["flow"]): row["sum"] for row in found["money"]}
    assert money["KWD", "captured"] == {"amount": "16.476", "currency": "KWD"}
    assert b"." not in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", printed("json"))


def test_the_table_shows_every_tie_and_cuts_long_lists() -> None:
    text = render(sample(60, broken=100), "table").decode()
    assert "All 23 control sums agree: " in text
    assert "… and 60 more" in text
    assert max(map(len, text.splitlines())) <= 132


def test_no_text_commands_the_terminal() -> None:
    line = replace(report().break_lines[0], order="\x1b[2J\r\x07\u202e", payment="[b]x")
    shown = render(changed(break_lines=(line,)), "table").decode()
    assert not [sign for sign in shown if not sign.isprintable() and sign != "\n"]
    assert "[b]x" in shown


# --- CSV -----------------------------------------------------------------------------------------


def csv_rows(made: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(made.decode("utf-8-sig"), newline="")))


def test_csv_has_every_row_of_every_table_under_its_section() -> None:
    rows = csv_rows(printed("csv"))
    document = json.loads(printed("json"))
    for name, table in document.items():
        if isinstance(table, list):
            assert sum(row["section"] == name for row in rows) == len(table)
    captured = {row["currency"]: row["sum"] for row in rows if row["flow"] == "captured"}
    assert captured == {"JPY": "16436", "KES": "164.56", "KWD": "16.476"}
    assert rows[0]["section"] == "scope"
    assert rows[0]["basis"] == "captured"


def test_csv_has_no_formula_and_gives_every_text_back() -> None:
    rows = csv_rows(text_forms.csv(hostile()))
    cells = [text for row in rows for text in row.values()]
    numbers = re.compile(r"-\d+(\.\d+)?")
    assert not [text for text in cells if is_formula(text) and not numbers.fullmatch(text)]
    found = [row for row in rows if row["section"] == "break_lines"]
    for column in ("order", "payment", "sentence", "next_step", "cites"):
        assert [cell_text(row[column]) for row in found] == list(PAYLOADS)


# --- XLSX ----------------------------------------------------------------------------------------


def test_a_workbook_has_numbers_and_dates_that_add_up_to_the_control_totals() -> None:
    book = workbook(printed("xlsx"))
    totals = rows_of(book["Orders by outcome"])
    money = {
        (row["Currency"], row["Flow"]): row["Amount"]
        for row in rows_of(book["From captured to the bank"])
    }
    assert isinstance(money["KES", "Captured"], float)
    for currency in ("KES", "JPY", "KWD"):
        own = [row for row in totals if row["Currency"] == currency]
        assert sum(row["Captured"] for row in own) == pytest.approx(money[currency, "Captured"])
    assert sum(row["Number"] for row in totals) == 61
    formats = {cell.number_format for cell in book["From captured to the bank"]["D"][1:]}
    assert formats == {"#,##0", "#,##0.00", "#,##0.000"}
    first = rows_of(book["List of breaks"])[0]
    assert isinstance(first["Since"], datetime)
    assert (first["Currency"], first["Amount"]) == ("KWD", 150.029)
    assert book["List of breaks"].auto_filter.ref == "A1:L31"


def test_the_summary_comes_first_and_every_tie_has_a_row() -> None:
    book = workbook(render(signed(), "xlsx"))
    assert book.sheetnames[:3] == ["Summary", "Totals by currency", "Orders by outcome"]
    column = [cell.value for cell in book["Sums that must agree"]["G"]]
    assert column.count("Yes") == len(report().ties) == 23
    rows = list(book["Summary"].iter_rows(values_only=True))
    assert rows[0][0] == MASTHEAD
    headlined = dict(row[:2] for row in rows)
    said, at_risk_words, *_, last_compared = headlines(report())
    expected = (said, at_risk_words, last_compared)
    assert tuple(headlined[name] for name in ("Sums", "Breaks", "Compared")) == expected


def covers(row: CoverageRow, **change: Any) -> PeriodReport:
    rows = [replace(row, **change), *report().coverage[1:]]
    return changed(coverage=tuple(rows))


HALF = parse_instant("2026-10-16T00:00:00Z")
NOTHING = {"since": None, "until": None, "whole": False}


@for_each(
    ("change", "said"),
    [
        ({}, "48 payments of shop were compared with its statement from 2026-10-01 to 2026-10-31."),
        (
            {"until": HALF, "whole": False},
            "48 payments of shop were compared with its statement from 2026-10-01 to 2026-10-15; "
            "payments of other days were not compared.",
        ),
        (
            NOTHING,
            "shop has no statement of the period: its 48 payments were not compared.",
        ),
        (
            {"wallet": "Utility", "declared_by": "Ann"},
            "48 payments of shop were compared with its statement of Utility from 2026-10-01 to "
            "2026-10-31, as Ann declared.",
        ),
        (
            {"kind": "bank", "name": "euro", "payments": 0, **NOTHING},
            "Payouts were not compared with bank account euro: its files cover no day of the "
            "period.",
        ),
    ],
)
def test_the_headline_says_what_was_compared_with_what_and_what_was_not(
    change: dict[str, Any], said: str
) -> None:
    """Only where all is covered, every order and every amount is counted."""
    found = covers(report().coverage[0], **change)
    sums, _, *compared = headlines(found)
    assert said in compared
    assert ("every order and every amount" in sums) == found.coverage[0].whole
    nothing = headlines(changed(coverage=()))
    assert nothing[2:] == (
        "No statement is imported, so payments were not compared.",
        "No bank file is imported, so payouts were not compared.",
        "No order book is imported, so orders were not compared.",
    )
    assert "every order" not in nothing[0]


def test_every_sheet_keeps_its_header_in_sight_and_says_on_paper_what_it_is_of() -> None:
    book = workbook(render(signed(), "xlsx"))
    assert {sheet.freeze_panes for sheet in book} == {"A2"}
    assert {sheet.oddHeader.left.text for sheet in book} == {MASTHEAD.replace("&", "&&")}
    assert {sheet.print_title_rows for sheet in book} == {None, "$1:$1"}
    drawn = ["Outcomes over time", "Breaks by age", "Webhook delay"]
    assert [sheet.title for sheet in book if sheet._charts] == drawn


def test_a_workbook_has_words_where_the_report_has_codes() -> None:
    """No cell but a reference has an underscore, and every heading begins like a sentence."""
    book = workbook(printed("xlsx"))
    references = {"Order", "Payment", "Break", "Rests on", "Why"}
    for sheet in book:
        for row in rows_of(sheet):
            cells = [str(value) for name, value in row.items() if name not in references]
            assert not [text for text in cells if "_" in text], sheet.title
        headings = [cell.value for cell in sheet[1] if cell.value is not None]
        assert [each for each in headings if not each[0].isupper() and each[0].isalpha()] == []


def test_every_code_has_words_of_its_own() -> None:
    assert set(words.OUTCOME_WORDS) == {*OUTCOMES, "no_order"}
    assert set(words.BUCKET_WORDS) == set(FAMILIES)
    assert set(words.FLOW_WORDS) == set(FLOWS)
    assert set(words.STEP_WORDS) == set(STEPS)
    assert set(words.SIDE_WORDS) == set(SIDES)
    assert set(words.AGE_WORDS) == set(AGES)


def test_every_table_has_its_place() -> None:
    """One without would be in JSON and CSV alone, and in no page, workbook or PDF."""
    tables = {table.name for table in (*TABLES, *(table for table, _ in SUMMARIES))}
    assert set(layout._ORDER) == tables - {"notes"}


def test_a_workbook_has_no_formula_no_link_and_every_text_as_it_was() -> None:
    made = xlsx_form.xlsx(hostile())
    with zipfile.ZipFile(io.BytesIO(made)) as parts:
        sheets = [parts.read(name) for name in parts.namelist() if "sheet" in name]
        active = re.compile(rb"<f[ >/]|<hyperlink|externalLink")
        assert not [sheet for sheet in sheets if active.search(sheet)]
    sheet = workbook(made)["List of breaks"]
    assert all(cell.data_type != "f" for row in sheet.iter_rows() for cell in row)
    columns = ("Order", "What it means", "Rests on")
    drawn = {name: [row[name] for row in rows_of(sheet)] for name in columns}
    for found in drawn.values():
        assert [_read_back(text) for text in found] == list(PAYLOADS)


def _read_back(text: str) -> str:
    """Undo the escapes of characters that XML cannot hold, which openpyxl leaves."""
    return re.sub("_x([0-9A-F]{4})_", lambda code: chr(int(code[1], 16)), text)


def test_more_rows_than_a_sheet_holds_need_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_form, "ROWS_MAX", 21)
    book = workbook(xlsx_form.xlsx(report()))
    names = [name for name in book.sheetnames if name.startswith("List of breaks")]
    assert names == ["List of breaks", "List of breaks 2"]
    rows = [row["Break"] for name in names for row in rows_of(book[name])]
    assert rows == [each.identity for each in report().break_lines]


def test_a_number_too_long_for_a_cell_keeps_its_digits_as_text() -> None:
    large = replace(report().break_lines[0], sum=10**17 + 1, currency="KES")
    book = workbook(xlsx_form.xlsx(changed(break_lines=(large,))))
    assert rows_of(book["List of breaks"])[0]["Amount"] == "1000000000000000.01"


@for_each("form", REPORT_FORMATS)
def test_half_a_surrogate_pair_a_nul_and_a_megabyte_break_no_format(form: ReportFormat) -> None:
    first = report().break_lines[0]
    odd = replace(first, order="\ud800\x00\x1b[31m<b>", payment="x" * 5_000, sentence="y " * 40_000)
    assert render(changed(break_lines=(odd,)), form)


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
    parser = _Texts()
    parser.feed(page.decode())
    return parser


def test_the_page_refers_to_nothing_and_runs_nothing() -> None:
    found = read(printed("html"))
    assert not found.links
    assert not found.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert b"url(" not in printed("html").replace(b"url(#", b"")


def test_the_page_has_every_text_and_marks_cells_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_form, "LIST_MAX", len(PAYLOADS))
    page = html_form.html(hostile())
    texts = {text.replace("\r\n", "\n") for text in read(page).texts}
    wanted = {text.replace("\r\n", "\n") for text in PAYLOADS}
    assert wanted <= texts
    assert b'td { overflow-wrap: break-word; mso-number-format: "\\@" }' in page


def test_the_page_escapes_markup() -> None:
    line: BreakLine = replace(report().break_lines[0], order="<script>alert(1)</script>")
    page = html_form.html(changed(break_lines=(line,)))
    assert b"<script>" not in page
    assert b"&lt;script&gt;" in page


def test_long_lists_end_in_the_page_and_say_so() -> None:
    many = report().break_lines * 40
    page = html_form.html(changed(break_lines=many)).decode()
    assert "… and 1,100 more lines" in page


def test_a_printed_page_says_which_tables_are_not_on_paper() -> None:
    page = html_form.html(report()).decode()
    assert re.search(r'class="on-paper">Not printed, but in [^<]*: [^<]*: \d+ rows?', page)


def test_the_headlines_stand_before_every_table_and_what_proves_them_after() -> None:
    """In each form for people: verdict and money at risk, outcomes, breaks, then all the ties."""
    said = headlines(report())
    text = printed("table").decode()
    page = re.sub("<[^>]*>", "", html_form.html(report()).decode())
    for whole in (text, page):
        names = ("control", "outcomes", "breaks", "ties")
        titles = [f"\n{each.title}\n" for each in TABLES if each.name in names]
        places = [whole.index(each) for each in (*said, *titles)]
        assert places == sorted(places)


def test_the_headline_of_breaks_counts_open_money_and_says_what_was_accepted() -> None:
    first = report().breaks[0]
    rows = [
        replace(first, state=state, currency=currency, count=count, sum=minor, at_risk=risk)
        for state, currency, count, minor, risk in (
            ("open", "KES", 2, 150_000, 150_000), ("assigned", "JPY", 1, 70, 70),
            ("open", "KES", 1, 5, 5), ("accepted", "KES", 1, 999, 0),
        )
    ]  # fmt: skip
    assert at_risk(changed(breaks=tuple(rows))) == (
        "4 breaks open, at risk: JPY 70, KES 1,500.05. 1 break accepted."
    )
    assert at_risk(changed(breaks=tuple(rows[3:]))) == "No break is open. 1 break accepted."
    assert at_risk(changed(breaks=())) == "No break is open."
    units = replace(rows[0], cause="off_by_minor_unit", sum=9_900_000, at_risk=0)
    assert at_risk(changed(breaks=(*rows[1:], units))) == (
        "4 breaks open, at risk: JPY 70, KES 0.05. 2 mistakes of unit apart: KES "
        "99,000.00. 1 break accepted."
    )
    assert at_risk(changed(breaks=(units,))) == (
        "2 breaks open, no money at risk. 2 mistakes of unit apart: KES 99,000.00."
    )


def test_a_broken_tie_is_shown_first() -> None:
    broken = replace(report().ties[0], left_value=7)
    page = html_form.html(changed(ties=(broken, *report().ties[1:]))).decode()
    assert "1 of 23 control sums do not agree: orders in JPY." in page
    assert page.count('<tr class="wrong">') == 1


# --- PDF -----------------------------------------------------------------------------------------


def pages_of(made: bytes) -> list[str]:
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(made)).pages]


def test_no_text_of_the_pdf_is_markup_and_its_lists_are_only_counted() -> None:
    hostile = '#panic("x") *b* $1/0$ #read("/etc/passwd") \\'
    many = tuple(replace(line, order=hostile) for line in report().break_lines * 40)
    scope = replace(report().scope, merchant=hostile, closed_by="`", closed_at=report().scope.as_of)
    pages = pages_of(pdf_form.pdf(changed(break_lines=many, scope=scope)))
    assert all(hostile in page for page in pages)
    assert "List of breaks 1,200 rows" in pages[-1]
    assert "Sums that must agree 23 rows" in pages[-1]


@pytest.mark.costly
def test_the_pdf_stays_within_eight_pages_however_much_there_is() -> None:
    """As many rows of each table as three currencies and all causes come to, and more."""
    many = replace(
        report(),
        breaks=tuple(
            replace(report().breaks[0], cause=cause, age=age, currency=currency)
            for cause in BREAK_CAUSES
            for age in AGES
            for currency in ("JPY", "KES", "KWD", "USD", "EUR")
        ),
        control=report().control * 9,
        money=report().money * 9,
        late=report().late * 900,
        changes=report().changes * 900,
    )
    pages = pages_of(pdf_form.pdf(many))
    assert len(pages) <= 8
    assert "of which 90 are in this" in " ".join(pages[-2:])


@for_each("form", REPORT_FORMATS)
def test_every_form_says_why_two_people_closed_over_a_condition(form: ReportFormat) -> None:
    row = ExceptionRow(line="coverage:shop", sentence="No file.", why="It was lost in a fire.")
    made = render(changed(exceptions=(row,)), form)
    if form == "pdf":
        made = " ".join(pages_of(made)).encode()
    elif form == "xlsx":
        made = str(rows_of(workbook(made)["Exceptions"])).encode()
    assert b"It was lost in a fire." in made


def test_every_page_of_the_pdf_says_whose_and_of_when_it_is_and_who_closed_it() -> None:
    pages = pages_of(pdf_form.pdf(signed()))
    assert len(pages) > 1
    spaced = MASTHEAD.replace(" · ", "  ·  ")
    assert [page.splitlines()[0] for page in pages] == [spaced] * len(pages)
    assert f"Page {len(pages)} of {len(pages)}" in pages[-1]


@for_each("form", ["html", "table", "pdf", "xlsx"])
def test_both_people_who_closed_a_month_stand_on_every_page_with_their_times(
    form: ReportFormat,
) -> None:
    proposed = parse_instant("2026-11-11T18:05:00Z")
    scope = replace(signed().scope, proposed_at=proposed, approved_by="Ben", version=2)
    words = (
        "Closed by Ann, proposed 2026-11-11 18:05, and Ben, approved 2026-11-12 09:41, version 2"
    )
    made = render(changed(scope=scope), form)
    if form == "pdf":
        assert all(words in " ".join(page.split()) for page in pages_of(made))
        return
    if form == "xlsx":
        with zipfile.ZipFile(io.BytesIO(made)) as book:
            names = [each for each in book.namelist() if "worksheets/sheet" in each]
            texts = [book.read(each).decode() for each in names]
        assert all(words in text for text in texts)
        return
    assert words in made.decode()


def test_the_headings_of_the_paper() -> None:
    found = [section["title"] for section in pdf_form.document(report())["sections"]]
    assert found == [
        "Totals by currency",
        "Orders by outcome",
        "Outcomes and reasons",
        "Outcomes over time",
        "Breaks by cause",
        "Breaks by age",
        "Late payments and refunds of earlier months",
        "Earlier orders whose outcome changed",
        "From captured to the bank",
        "Captured in … settled in …",
        "Fees",
        "Webhook delay",
        "Findings",
        "Orders opened and finished",
    ]


def test_what_does_not_agree_stands_on_paper() -> None:
    broken = replace(report().ties[0], left_value=7)
    made = pdf_form.document(changed(ties=(broken, *report().ties[1:])))
    (section,) = [each for each in made["sections"] if each["title"] == "Sums that must agree"]
    assert len(section["rows"]) == 1


# --- money, names and times in each form for people -----------------------------------------------

INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]")


def test_no_form_for_people_holds_characters_that_cannot_be_seen() -> None:
    """Whoever copies a reference or a sum gets what they see."""
    first = report().break_lines[0]
    long = replace(first, order="ORD-" + "0123456789" * 6, payment="p" * 90)
    late = changed(break_lines=(long,), notes=(Note(sentence="x" * 90 + " KES 7.00"),))
    for made in (
        render(late, "html").decode(),
        render(late, "table").decode(),
        "".join(pages_of(render(late, "pdf"))),
        "".join(
            str(value)
            for sheet in workbook(render(late, "xlsx"))
            for row in sheet.iter_rows(values_only=True)
            for value in row
        ),
    ):
        assert not INVISIBLE.search(made)


def test_no_amount_is_broken_over_lines() -> None:
    said = "KES 1,234.50 came, of JPY 99,000; USD -7.25 went. ABC is no money, nor KES 1x."
    assert money_apart("KES 5.00")[1] == "KES 5.00"
    page = html_form.html(changed(notes=(Note(sentence=said),))).decode()
    amounts = ["KES 1,234.50", "JPY 99,000", "USD -7.25"]
    for amount in amounts:
        assert f'<span class="money">{amount}</span>' in page
    assert ".money, td.time { white-space: nowrap" in page
    pieces = pdf_form.document(changed(notes=(Note(sentence=said),)))["notes"][0]
    assert [each["money"] for each in pieces if "money" in each] == amounts
    assert "".join(text for each in pieces for text in each.values()) == said


def test_an_amount_stays_whole_where_its_line_is_full() -> None:
    """Of a hundred amounts in one paragraph each stands on one line of the paper."""
    amounts = [f"KES {number:,}.00" for number in range(1_000_000, 1_000_100)]
    pages = pages_of(pdf_form.pdf(changed(notes=(Note(sentence=", ".join(amounts)),))))
    lines = [line for page in pages for line in page.splitlines()]
    assert [each for each in amounts if not any(each in line for line in lines)] == []


def test_a_terminal_has_the_tables_in_the_order_of_the_page() -> None:
    text = printed("table").decode()
    titles = [part.table.title for part in parts(report())]
    places = [text.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)
    assert len(titles) > 10


def test_money_at_risk_is_one_sum_wherever_it_stands() -> None:
    """Above the tables, by currency, by cause and by age; a mistake of unit is in none of them."""
    some = [row for row in report().breaks if row.cause == "off_by_minor_unit"]
    assert any(row.state != "accepted" for row in some)
    shown = {
        row.currency: str(Money(minor=row.at_risk, currency=row.currency))
        for row in currency_totals(report())
        if row.at_risk
    }
    assert shown
    assert f"at risk: {', '.join(shown[each] for each in sorted(shown))}." in at_risk(report())
    for totals in (break_totals(report()), age_totals(report())):
        found = {row.currency: row.at_risk for row in totals if row.total}
        assert {
            code: str(Money(minor=minor, currency=code)) for code, minor in found.items() if minor
        } == shown


def test_a_terminal_shows_every_digit_and_every_amount_on_one_line() -> None:
    large = tuple(replace(row, sum=row.sum + 10**15) for row in report().money)
    breaks = tuple(replace(row, sum=10**15 + 7, at_risk=10**15 + 7) for row in report().breaks)
    note = Note(sentence=", ".join(f"KES {number:,}.00" for number in range(10**9, 10**9 + 40)))
    whole = changed(money=large, breaks=breaks, notes=(note,))
    lines = render(whole, "table").decode().splitlines()
    for column, rows in (("sum", large), ("sum", breaks), ("at_risk", break_totals(whole))):
        for row in rows:
            amount = str(Money(minor=getattr(row, column), currency=row.currency)).partition(" ")[2]
            assert any(amount in line for line in lines), amount
    for amount in money_apart(note.sentence)[1::2]:
        assert any(amount in line for line in lines), amount
    assert not [line for line in lines if "\ue000" in line]


def test_times_are_shown_to_the_minute_in_the_merchants_zone() -> None:
    scope = replace(report().scope, zone="Africa/Nairobi")
    facts = dict(fact_lines(scope))
    assert facts["Known as of"] == "2026-11-12 12:00"
    assert facts["Period"] == "2026-10-01 03:00 to 2026-11-01 03:00"
    closed = replace(scope, closed_by="Ann", closed_at=scope.as_of + 59 * SECOND)
    assert dict(fact_lines(closed))["Closing"] == "Closed by Ann, 2026-11-12 12:00"
    assert facts["Closing"] == "Not a closed report: its figures may still change"


@for_each("form", ["html", "table", "xlsx"])
def test_sentences_give_the_times_of_the_merchants_zone(form: ReportFormat) -> None:
    said = "Booked at 2026-10-17T21:00:00Z, beyond 2026-10-16T09:05:00Z"
    line = replace(report().break_lines[0], cause="overpaid", sentence=said)  # fits in one line
    change = replace(report().change_lines[0], because=said)
    scope = replace(report().scope, zone="Africa/Nairobi")
    zoned = changed(scope=scope, break_lines=(line,), change_lines=(change,))
    made = render(zoned, form)
    if form == "xlsx":
        cells = [cell for sheet in workbook(made) for row in sheet.values for cell in row]
        text = " ".join(map(str, cells))
    else:
        text = re.sub(r"[^\w:,.-]+", " ", made.decode())
    assert text.count("Booked on 2026-10-18, beyond 2026-10-16 12:05") == 2
    for kept in ("csv", "json"):
        assert render(zoned, kept).decode().count(said) == 2


def test_breaks_have_subtotals_by_cause_and_by_age_that_add_up() -> None:
    causes, ages = break_totals(report()), age_totals(report())
    for rows in (causes, ages):
        for total in (row for row in rows if row.total):
            own = [row for row in rows if row.currency == total.currency and not row.total]
            for name in ("count", "accepted", "sum", "at_risk"):
                assert getattr(total, name) == sum(getattr(row, name) for row in own)
    assert sum(row.count for row in causes if row.total) == 30
    assert [row for row in causes if row.total] != []


def test_a_missing_extra_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.finance.reports.render.find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"pip install typst`.*, or use --format html"):
        render(report(), "pdf")


@for_each("form", [form for form in REPORT_FORMATS if form != "pdf"])
def test_every_form_has_the_totals_in_the_own_currency(form: ReportFormat) -> None:
    own = (
        OwnRow(currency="EUR", of="KES", flow="captured", sum=123_456_789),
        OwnRow(currency="EUR", of=None, flow="residual", sum=-42),
    )
    rates = (RateRow(of="KES", day="2026-10-05", rate="0.0067", origin="file"),)
    content = render(replace(sample(3), own=own, rates=rates), form)
    if form == "xlsx":
        book = openpyxl.load_workbook(io.BytesIO(content))
        assert [cell.value for cell in book["Totals in your own currency"][2]] == [
            "EUR",
            "KES",
            "Captured",
            1_234_567.89,
        ]
        assert book["Rates"]["C2"].value == "0.0067"
        return
    text = content.decode()
    plain = ("1234567.89", "residual") if form in ("csv", "json") else ("1,234,567.89", "Left by")
    assert all(each in text for each in (*plain, "0.0067"))
