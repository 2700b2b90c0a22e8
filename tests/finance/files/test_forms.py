"""Order books and statements: what rows mean, and what is said of those that mean nothing."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import UsageError
from app.finance.files.books import BookForm
from app.finance.files.line_forms import Understanding
from app.finance.files.mapping import read_mapping
from app.finance.files.tables import Batch
from tests.finance.files.reading import book, statement
from tests.rows import for_each

BOOK = "reference,kind,amount,currency,placed_at,status,phone,group\n"
STATEMENT = "payment_reference,order_reference,gross,fee,net,currency,settled_at,payout,type\n"


# --- order books ---------------------------------------------------------------------------------


def test_a_row_of_a_book_is_understood_and_its_phone_masked(tmp_path: Path) -> None:
    rows, problems = book(
        BOOK + " ORD-1 ,Invoice,1500.00,kes,2026-11-01,PAID,+254 700-000-001, G 1\n",
        folder=tmp_path,
    )
    assert not problems
    assert rows == [
        {
            "row": 2,
            "reference": "ORD-1",
            "kind": "invoice",
            "amount": {"amount": "1500.00", "currency": "KES"},
            "placed_at": "2026-11-01T00:00:00Z",
            "status": "paid",
            "phone": "+254 ••• ••• •01",
            "group": "G 1",
        }
    ]


def test_names_of_columns_need_no_mapping_in_any_case_with_blanks_or_underscores(
    tmp_path: Path,
) -> None:
    rows, _ = book(
        "PLACED at,Re_Fe Rence,amount,CurrencY\n2026-11-01,A,5.00,KES\n", folder=tmp_path
    )
    assert (rows[0]["reference"], rows[0]["placed_at"]) == ("A", "2026-11-01T00:00:00Z")


def test_a_mapping_names_columns_marks_dates_words_and_defaults(tmp_path: Path) -> None:
    mapping = """
        decimal = ","
        thousands = "."
        dates = "day_first"
        zone = "+03:00"
        phone_country = "254"
        [columns]
        reference = "Rechnung Nr"
        amount = "Betrag"
        placed_at = "Datum"
        status = "Stand"
        group = ""
        [defaults]
        currency = "KES"
        kind = "invoice"
        [words.status]
        Bezahlt = "paid"
    """
    content = (
        "Rechnung_Nr;Betrag;Datum;Stand;phone;group\nR1;1.500,00;02.03.2026;bezahlt;0700000001;x\n"
    )
    rows, problems = book(content, mapping, folder=tmp_path)
    assert not problems
    (row,) = rows
    assert (row["reference"], row["kind"], row["status"], row["group"]) == (
        "R1", "invoice", "paid", None,
    )  # fmt: skip
    assert row["placed_at"] == "2026-03-01T21:00:00Z"
    assert row["amount"] == {"amount": "1500.00", "currency": "KES"}


@for_each(("row", "column", "said"), [
    (",order,1.00,KES,,,,", "reference", "empty"),
    ("=A1,order,1.00,KES,,,,", "reference", "formula"),
    ("@SUM(A1),order,1.00,KES,,,,", "reference", "formula"),
    ("a\x01b,order,1.00,KES,,,,", "reference", "control characters"),
    ("x" * 201 + ",order,1.00,KES,,,,", "reference", "longer than 200"),
    ("A,booking,1.00,KES,,,,", "kind", "none of order, invoice"),
    ("A,order,-1.00,KES,,,,", "amount", "negative"),
    ("A,invoice,-1.00,KES,,,,", "amount", "negative"),
    ("A,order,,KES,,,,", "amount", "empty"),
    ("A,order,1.00,,,,,", "currency", "empty"),
    ("A,order,1.00,KES,3/4/2026,,,", "placed_at", "day or with the month"),
    ("A,order,1.00,KES,,done,,", "status", "none of paid"),
    ("A,order,1.00,KES,,,2547***001,", "phone", "whole phone number"),
    ("A,order,1.00,KES,,,0700000001,", "phone", "phone_country"),
    ("A,order,1.00,KES,,,,=1", "group", "formula"),
])  # fmt: skip
def test_a_cell_that_is_not_clear_is_named_and_its_row_left_out(
    row: str, column: str, said: str, tmp_path: Path
) -> None:
    rows, problems = book(BOOK + "OK,order,1.00,KES,,,,\n" + row + "\n", folder=tmp_path)
    assert [each["reference"] for each in rows] == ["OK"]
    ((number, named, sentence),) = problems
    assert (number, named) == (3, column)
    assert said in sentence


@for_each("nothing", ["-", "--", " – ", "—", "n/a"])
def test_a_dash_in_the_place_of_a_reference_is_none(tmp_path: Path, nothing: str) -> None:
    """Else all that have one would be of one payment, and all orders of one group. Words are what
    they say."""
    said = None if nothing != "n/a" else nothing
    rows, problems = book(f"{BOOK}A,,1.00,KES,,,,{nothing}\n", folder=tmp_path)
    assert ([row["group"] for row in rows], problems) == ([said], [])
    _, problems = book(f"{BOOK}{nothing},,1.00,KES,,,,\n", folder=tmp_path)
    assert problems == ([(2, "reference", "is empty")] if said is None else [])
    (row,), _ = statement(f"{STATEMENT}pay_1,{nothing},1.00,,,KES,,{nothing},\n", folder=tmp_path)
    assert (row["payment_reference"], row["order_reference"], row["payout"]) == (
        "pay_1",
        said,
        said,
    )
    (row,), _ = statement(f"{STATEMENT}{nothing},A,1.00,,,KES,,,\n", folder=tmp_path)
    assert (row["payment_reference"], row["order_reference"]) == (said, "A")


def test_an_accounting_entry_may_be_negative(tmp_path: Path) -> None:
    rows, problems = book(BOOK + "E-1,entry,-5.00,KES,,,,\n", folder=tmp_path)
    assert (rows[0]["amount"]["amount"], problems) == ("-5.00", [])


def test_no_sentence_shows_a_phone_number(tmp_path: Path) -> None:
    number = "0700123456"
    for place in range(8):
        cells = ["A", "order", "1.00", "KES", "", "", "", ""]
        cells[place] = f"{number}?"
        _, problems = book(BOOK + ",".join(cells) + "\n", folder=tmp_path)
        assert not any("700123" in sentence for _, _, sentence in problems)


CELLS = [
    st.sampled_from(["A-1", "b 2", "", "=x", "Ö"]),
    st.sampled_from(["order", "ENTRY", "", "x"]),
    st.sampled_from(["1.00", "15", "-2.50", "1,5", "", "1.000"]),
    st.sampled_from(["KES", "JPY", "kwd", "", "ZZZ"]),
    st.sampled_from(["2026-11-01", "", "1/2/2026", "2026-11-01T10:00:00Z"]),
    st.sampled_from(["paid", "Cancelled", "", "?"]),
    st.sampled_from(["254700000001", "+254 700 000 001", "", "07"]),
    st.sampled_from(["", "G", " "]),
]


@given(rows=st.lists(st.tuples(*CELLS), min_size=1, max_size=6))
def test_rows_at_once_mean_what_each_of_them_means_alone(rows: list[tuple[str, ...]]) -> None:
    class Heading:
        heading, heading_row = BOOK.strip().split(","), 1

    mapping = read_mapping(b"", BookForm.FIELDS)
    table: Any = Heading()
    understanding = Understanding(table, BookForm(mapping), mapping)
    together = understanding.batch(Batch(list(rows), range(2, len(rows) + 2)))
    alone = [understanding.batch(Batch([row], [number])) for number, row in enumerate(rows, 2)]
    assert together.rows == [row for each in alone for row in each.rows]
    assert together.problems == [problem for each in alone for problem in each.problems]


# --- statements ----------------------------------------------------------------------------------


def money(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name]["amount"] for name in ("gross", "fee", "net"))


@for_each(("cells", "expected"), [
    ("100.00,3.00,97.00,KES,,,payment", ("100.00", "3.00", "97.00")),
    ("100.00,,,KES,,,", ("100.00", "0.00", "100.00")),
    ("100.00,3.00,,KES,,,", ("100.00", "3.00", "97.00")),
    ("100.00,,97.00,KES,,,", ("100.00", "3.00", "97.00")),
    (",3.00,97.00,KES,,,", ("100.00", "3.00", "97.00")),
    ("-100.00,,,KES,,,refund", ("-100.00", "0.00", "-100.00")),
    ("100.00,,,KES,,,refund", ("-100.00", "0.00", "-100.00")),
    ("100.00,2.00,102.00,KES,,,refund", ("-100.00", "2.00", "-102.00")),
    ("0.00,3.00,-3.00,KES,,,fee", ("0.00", "3.00", "-3.00")),
    ("-100.00,15.00,-115.00,KES,,,dispute", ("-100.00", "15.00", "-115.00")),
    ("100.00,-3.00,103.00,KES,,,", ("100.00", "-3.00", "103.00")),  # a rebate, stated by all three
    ("-100.00,-3.00,,KES,,,refund", ("-100.00", "-3.00", "-97.00")),
    ("100.00,0.00,100.00,KES,,,dispute", ("100.00", "0.00", "100.00")),
])  # fmt: skip
def test_gross_fee_and_net_are_completed_and_what_leaves_is_negative(
    cells: str, expected: tuple[str, ...], tmp_path: Path
) -> None:
    rows, problems = statement(STATEMENT + f"pay_1,ORD-1,{cells}\n", folder=tmp_path)
    assert not problems
    assert money(rows[0]) == expected


@for_each(("row", "column", "said"), [
    ("p,o,100.00,3.00,98.00,KES,,,", None, "gross - fee is not net"),
    ("p,o,100.00,2.00,98.00,KES,,,refund", None, "gross - fee is not net"),
    ("p,o,-100.00,,,KES,,,payment", "type", "is a payment, but its sign says that money left"),
    ("p,o,,,,KES,,,", None, "neither a gross"), ("p,o,,3.00,,KES,,,", None, "neither a gross"),
    (",,100.00,,,KES,,po_1,", None, "neither a payment nor an order"),
    (",,0.00,3.00,,KES,,,fee", None, "neither a payment nor an order"),
    ("p,o,1.00,,,KES,,,sale", "type", "none of payment"),
    ("p,o,1.00,x,,KES,,,", "fee", "not an amount"),
    ("p,o,100.00,-3.00,,KES,,,", None, "cannot be checked without both gross and net"),
    ("p,o,,-3.00,97.00,KES,,,", None, "cannot be checked without both gross and net"),
])  # fmt: skip
def test_a_row_of_a_statement_that_is_not_clear_is_left_out(
    row: str, column: str | None, said: str, tmp_path: Path
) -> None:
    rows, problems = statement(STATEMENT + "p0,,1.00,,,KES,,,\n" + row + "\n", folder=tmp_path)
    assert [each["payment_reference"] for each in rows] == ["p0"]
    assert [problem[:2] for problem in problems] == [(3, column)]
    assert said in problems[0][2]


def test_a_mapping_turns_the_sign_of_fees_round(tmp_path: Path) -> None:
    said = '[amounts.fee]\nsubtract = ["fee"]'
    rows, problems = statement(f"{STATEMENT}p,o,100.00,-3.00,,KES,,,\n", said, folder=tmp_path)
    assert (money(rows[0]), problems) == (("100.00", "3.00", "97.00"), [])


def test_a_fee_may_be_of_a_payout_alone(tmp_path: Path) -> None:
    rows, problems = statement(STATEMENT + ",,,3.00,-3.00,KES,,po_1,fee\n", folder=tmp_path)
    assert (money(rows[0]), problems) == (("0.00", "3.00", "-3.00"), [])


def test_a_statement_says_what_its_heading_lacks(tmp_path: Path) -> None:
    _, problems = statement("a,b\n1,2\n", folder=tmp_path)
    for name in ("payment_reference", "gross", "currency"):
        assert f"'{name}'" in problems[0][2]


# --- mappings ------------------------------------------------------------------------------------


def test_all_that_is_wrong_with_a_mapping_is_reported_at_once() -> None:
    mapping = b"""
        colour = "red"
        zone = 3
        [columns]
        price = "x"
        [defaults]
        currency = "XX"
        kind = "booking"
        [words.status]
        x = "done"
    """
    with pytest.raises(UsageError) as caught:
        read_mapping(mapping, BookForm.FIELDS)
    problems = [line.split(": ")[:2] for line in str(caught.value).splitlines()]
    assert problems == [
        ["the mapping:2", "colour"], ["the mapping:3", "zone"],
        ["the mapping:5", "columns.price"], ["the mapping:7", "defaults.currency"],
        ["the mapping:8", "defaults.kind"], ["the mapping:10", "words.status.x"],
    ]  # fmt: skip


@for_each(("mapping", "said"), [
    ('decimal = ","\nthousands = ","', "same mark"), ('decimal = ";"', "decimal: must be"),
    ('thousands = "x"', "thousands: must be"), ('dates = "us"', "dates: must be one of"),
    ('delimiter = "x"', "delimiter: must be"), ('encoding = "x"', "not a known encoding"),
    ('zone = "x"', "not a known time zone"), ('phone_country = "+254"', "calling code"),
    ("columns = 3", "must be a section"), ("x = [", "not TOML"),
    ("[words]\nstatus = 1", "must be a section"),
    ("#" * 70_000, "larger than 65,536 bytes"),
])  # fmt: skip
def test_a_mapping_that_makes_no_sense_is_refused(mapping: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_mapping(mapping.encode(), BookForm.FIELDS)


def test_a_name_of_the_mapping_that_the_file_lacks_is_a_problem(tmp_path: Path) -> None:
    _, problems = book(
        "reference,amount,currency\nA,1,KES\n", '[columns]\nphone = "Tel"', folder=tmp_path
    )
    assert "no column 'Tel'" in problems[0][2]
