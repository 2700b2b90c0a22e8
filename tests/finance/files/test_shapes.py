"""Shapes that a mapping describes beyond names: rows of data, and fields made of several
columns."""

import re
from datetime import UTC
from itertools import product
from pathlib import Path
from time import thread_time

import openpyxl
import pytest

from app.core.errors import UsageError
from app.finance.files.books import BookForm
from app.finance.files.dates import Dates
from app.finance.files.mapping import read_mapping
from app.finance.files.opening import open_table
from app.finance.files.shaping import JoinedCells, Shaped, WordFilter, pattern_of
from app.finance.files.tables import CellMoment
from reconcile.instants import format_instant
from tests.finance.files.reading import Found, book, statement
from tests.rows import for_each

KES = '[defaults]\ncurrency = "KES"\n'


def references(found: Found) -> list[str]:
    """Check that nothing else is noted, and return the rows' references."""
    rows, problems = found
    assert problems == []
    return [row["reference"] for row in rows]


def test_the_heading_is_found_below_what_comes_before_it(tmp_path: Path) -> None:
    junk = "Our shop; Nairobi\n\nreference: all\n"
    found = book(junk + "reference,amount,currency\nA,1.00,KES\n", folder=tmp_path)
    assert references(found) == ["A"]
    assert found[0][0]["row"] == 5


def test_a_heading_that_is_given_is_that_and_no_other(tmp_path: Path) -> None:
    content = "reference,amount,currency\nbefore\nreference,amount,currency\nA,1.00,KES\n"
    assert references(book(content, "heading_row = 3", folder=tmp_path)) == ["A"]
    _, problems = book("a\n\n\n", "heading_row = 2", folder=tmp_path)
    assert problems == [
        (2, None, "the mapping says that this row is the heading, but the row has none")
    ]


BY_PLACE = """heading_row = 0
[columns]
reference = "2"
amount = "4"
[ignore]
"1" = ["draft"]
[defaults]
currency = "KES"
"""


@for_each("first", ["", "sep=;\n", "\n\n"])
def test_columns_of_a_file_without_a_heading_are_named_by_place(first: str, tmp_path: Path) -> None:
    content = f"{first}paid;A;x;1.00\npaid;B;x;2.00\ndraft;C;x;3.00\n"
    found = book(content, BY_PLACE, folder=tmp_path)
    assert references(found) == ["A", "B"]
    assert found[0][0]["row"] == first.count("\n") + 1
    _, problems = book(content, BY_PLACE.replace('"4"', '"5"'), folder=tmp_path)
    assert "there is no column '5', which the mapping names" in problems[0][2]


def test_columns_of_a_sheet_without_a_heading_are_named_by_place(tmp_path: Path) -> None:
    made = openpyxl.Workbook()
    for cells in [("paid", "A", None, 1.5), ("paid", "B", "x", 2)]:
        made.active.append(cells)
    made.save(tmp_path / "made.xlsx")
    rows, problems = book((tmp_path / "made.xlsx").read_bytes(), BY_PLACE, folder=tmp_path)
    assert problems == []
    assert [(row["row"], row["reference"], row["amount"]["amount"]) for row in rows] == [
        (1, "A", "1.50"), (2, "B", "2.00"),
    ]  # fmt: skip


@for_each(("day", "time", "expected"), [
    (CellMoment("2026-11-20T00:00:00"), "23:59:59 EST", "2026-11-21T04:59:59Z"),
    (CellMoment("2026-11-20T00:00:00"), CellMoment("1899-12-30T10:00:00"), "2026-11-20T10:00:00Z"),
    (CellMoment("2026-11-20T09:30:00"), "", "2026-11-20T09:30:00Z"),
    ("2026-11-20", "10:00 EAT", "2026-11-20T07:00:00Z"),
])  # fmt: skip
def test_day_and_time_of_two_cells_lose_nothing(day: str, time: str, expected: str) -> None:
    (cell,) = JoinedCells([0, 1]).read([[day], [time]])
    (found,) = Dates("iso", UTC).read([cell])
    assert found is not None
    assert format_instant(found) == expected


def test_rows_at_both_ends_are_skipped(tmp_path: Path) -> None:
    content = "reference,amount,currency\n(text),(money),(code)\nA,1.00,KES\nB,2.00,KES\nx\ny,z\n"
    found = book(content, "skip_first = 1\nskip_last = 2", folder=tmp_path)
    assert references(found) == ["A", "B"]
    assert [row["row"] for row in found[0]] == [3, 4]
    assert references(book(content, "skip_first = 1\nskip_last = 4", folder=tmp_path)) == []


def test_cells_that_a_mapping_calls_empty_say_nothing_and_others_are_refused(
    tmp_path: Path,
) -> None:
    content = (
        "reference,Paid In,Withdrawn,currency,refunded_amount\n"
        "A,1.00,--,KES,n/a\nB,3.00,1.00,KES,N/A\nC,-,--,KES,\n"
    )
    made = '[amounts.amount]\nadd = ["Paid In"]\nsubtract = ["Withdrawn"]\n'
    rows, problems = book(content, f'empty = ["--", "N/A"]\n{made}', folder=tmp_path)
    assert [(row["reference"], row["amount"]["amount"]) for row in rows] == [
        ("A", "1.00"), ("B", "2.00"),
    ]  # fmt: skip
    assert [(row, sentence) for row, _, sentence in problems] == [
        (4, "'-' is not an amount such as 1500.00")
    ]
    assert [row for row, *_ in book(content, made, folder=tmp_path)[1]] == [2, 2, 3, 4]


def test_only_rows_with_a_word_are_kept_and_none_with_one_that_is_ignored(tmp_path: Path) -> None:
    content = (
        "reference,amount,currency,State,Sort\nA,1.00,KES,Done,sale\nB,x,KES,failed,sale\n"
        "C,1.00,KES,DONE ,Bank withdrawal\nD,1.00,KES,done,\nE\n"
    )
    rules = '[keep]\nstate = ["done"]\n[ignore]\nSort = ["*withdrawal*"]\n'
    assert references(book(content, rules, folder=tmp_path)) == ["A", "D"]
    rules = '[ignore]\nSort = [""]\nState = ["fail*"]\n'
    assert references(book(content, rules, folder=tmp_path)) == ["A", "C"]


def test_what_a_star_stood_for_is_reported_by_its_words(tmp_path: Path) -> None:
    path = tmp_path / "book.csv"
    path.write_text("reference,amount,currency,Sort\nA,1.00,KES,a hold\nB,2.00,KES,hold 2\n")
    mapping = read_mapping(b'[ignore]\nSort = ["*hold*"]\n', BookForm.FIELDS)
    table = open_table(path, mapping, BookForm.FIELDS)
    assert [batch.rows for batch in table.batches()] == [[]]
    assert isinstance(table, Shaped)
    assert dict(table.ignored) == {("Sort", "a hold"): 1, ("Sort", "hold 2"): 1}


def test_a_word_may_say_which_rows_are_not_left_out(tmp_path: Path) -> None:
    content = (
        "reference,amount,currency,Sort\nA,1.00,KES,sale\nB,1.00,KES,Withdrawal\n"
        "C,1.00,KES,Withdrawal charge\n"
    )
    rules = '[ignore]\nSort = ["*withdrawal*", "!*CHARGE*"]\n'
    assert references(book(content, rules, folder=tmp_path)) == ["A", "C"]


def test_a_total_is_not_checked_where_rows_are_left_out(tmp_path: Path) -> None:
    content = "reference,amount,currency,Sort\nA,1.00,KES,\nB,1.00,KES,no\nTotal,2.00,,\n"
    assert references(book(content, '[ignore]\nSort = ["no"]\n', folder=tmp_path)) == ["A"]
    _, problems = book(content.replace("2.00", "3.00"), folder=tmp_path)
    assert problems[0][2].startswith("is called a total, but is not the sum")


ROWS = "A,1.00,KES,2026-11-01\nB,2.00,KES,2026-11-01\n"


@for_each(("last", "left_out"), [
    ("Summe,3.00,KES,", True), ("Total orders:,3.00,,", True), ("GESAMT (KES),3.00,KES,", True),
    ("Total général,3.00,KES,", True), ("Jumla kuu:,3.00,KES,", True), ("Razem 2,3.00,KES,", True),
    ("合计：,3.00,KES,", True), ("Summa,,,", True), ("*** Totaal ***,3.00,,\n,,,", True),
    ("Summe,3.00,KES,2026-11-02", True), ("Summe,4.00,KES,", False), ("Jumla,4.00,,", False),
    ("Sum Lee,3.00,KES,2026-11-01", None), ("Total-3,3.00,KES,2026-11-01", None),
    (",3.00,KES,", True), (",3.00,,\n,,,\n,,,", True),
    (",4.00,KES,", False), (",3.00,KES,2026-11-02", False), (",3.00,USD,", False),
    (",3.00,KES,\nC,3.00,KES,2026-11-01", False),
])  # fmt: skip
def test_the_last_row_is_a_total_by_its_name_or_by_its_sum_and_nothing_else(
    last: str, left_out: bool | None, tmp_path: Path
) -> None:
    """In doubt it is a problem, for a person; None: it is an order."""
    content = f"reference,amount,currency,placed_at\n{ROWS}{last}\n"
    rows, problems = book(content, 'zone = "UTC"', folder=tmp_path)
    assert len(rows) == 2 + (left_out is None) + last.count("C,")
    assert {row for row, *_ in problems} == ({4} if left_out is False else set())


def test_rows_of_a_usual_statement_are_not_looked_at_one_by_one_for_totals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the references are searched: `payment` and its like are no sign of a total."""
    monkeypatch.setattr("app.finance.files.shaping._is_label", None)
    heading = "payment_reference,order_reference,gross,currency,type,note\n"
    rows, problems = statement(
        f"{heading}pi_1,ORD-1,1.00,KES,payment,a total gift\npi_2,,2.00,KES,payment,\n",
        folder=tmp_path,
    )
    assert (len(rows), problems) == (2, [])


def test_one_row_above_is_too_few_to_know_a_total_by_its_sum_and_a_mapping_leaves_it_out(
    tmp_path: Path,
) -> None:
    content = "reference,amount,currency\nA,1.00,KES\n,1.00,KES\n"
    _, ((row, _, sentence),) = book(content, folder=tmp_path)
    assert (row, sentence.endswith("set skip_last = 1 in a mapping to leave it out")) == (3, True)
    rows, problems = book(content, "skip_last = 1", folder=tmp_path)
    assert (len(rows), problems) == (1, [])


@for_each(("last", "left_out"), [
    (",,3.00,0.30,2.70,KES", True), (",,3.00,,2.70,", True), (",,3.00,0.40,2.60,KES", False),
])  # fmt: skip
def test_each_amount_of_a_statements_last_row_is_a_sum(
    last: str, left_out: bool, tmp_path: Path
) -> None:
    content = (
        "payment_reference,payout,gross,fee,net,currency\np1,x,1.00,0.10,0.90,KES\n"
        f"p2,x,2.00,0.20,1.80,KES\n{last}\n"
    )
    rows, problems = statement(content, folder=tmp_path)
    assert (len(rows), not problems) == (2, left_out)


def test_rows_of_one_order_become_one(tmp_path: Path) -> None:
    content = (
        "reference,amount,currency,status,Item\nA,5.00,KES,paid,Cup\nA,,,,Plate\n,,,,Pot\n"
        "B,2.00,KES,unpaid,Cup\nB,2.00,KES,unpaid,Pot\n"
    )
    rows, problems = book(content, '[fold]\nby = "Reference"\n', folder=tmp_path)
    assert problems == []
    assert [(row["row"], row["reference"], row["amount"]["amount"]) for row in rows] == [
        (2, "A", "5.00"),
        (5, "B", "2.00"),
    ]


def test_amounts_of_items_are_added_up(tmp_path: Path) -> None:
    content = 'reference;amount;currency\nA;"1.000,50";KES\nA;0,25;KES\nB;2,00;KES\n'
    mapping = 'decimal = ","\nthousands = "."\n[fold]\nby = "reference"\nsum = ["amount"]\n'
    rows, problems = book(content, mapping, folder=tmp_path)
    assert (problems, [row["amount"]["amount"] for row in rows]) == ([], ["1000.75", "2.00"])


def test_rows_of_one_order_that_do_not_agree_are_a_problem(tmp_path: Path) -> None:
    content = (
        "reference,amount,currency\nA,5.00,KES\nA,6.00,KES\nB,1.00,KES\nB,,\nC,1.00,KES\nC,x\n"
    )
    rows, problems = book(content, '[fold]\nby = "reference"\n', folder=tmp_path)
    assert [row["reference"] for row in rows] == ["B"]
    assert problems == [
        (
            2,
            "amount",
            "row 3 has another value, although both have the same reference: rows of one "
            "order must agree",
        ),
        (6, None, "row 7 has 2 cells, but the heading has 3"),
    ]


def test_a_line_that_is_no_row_is_a_problem_whatever_is_kept(tmp_path: Path) -> None:
    content = (
        '{"reference": "A", "amount": "1.00", "currency": "KES", "state": "done"}\n{"refer\n'
        '{"reference": "A", "state": "done"}\n'
    )
    mapping = '[keep]\nstate = ["done"]\n[fold]\nby = "reference"\n'
    rows, problems = book(content, mapping, folder=tmp_path)
    assert ([row["reference"] for row in rows], [problem[0] for problem in problems]) == (
        ["A"],
        [2, 3],
    )


def test_brackets_are_negative_where_that_is_declared(tmp_path: Path) -> None:
    content = "reference,amount,currency,kind\nA,(1.00),KES,entry\n"
    rows, _ = book(content, 'brackets = "negative"', folder=tmp_path)
    assert rows[0]["amount"]["amount"] == "-1.00"
    _, problems = book(content, folder=tmp_path)
    assert 'brackets = "negative"' in problems[0][2]


@for_each("cell", ["$5.00", "5.00 $", "$ 5.00", "US$5.00"])
def test_the_sign_of_a_currency_may_stand_beside_an_amount(cell: str, tmp_path: Path) -> None:
    signs = '[currency_signs]\n"$" = "usd"\n"US$" = "USD"\n'
    rows, problems = book(f"reference,amount,currency\nA,{cell},USD\n", signs, folder=tmp_path)
    assert (problems, rows[0]["amount"]) == ([], {"amount": "5.00", "currency": "USD"})
    _, problems = book(f"reference,amount,currency\nA,{cell},KES\n", signs, folder=tmp_path)
    assert problems[0][2] == "has the currency sign of USD, but the row's currency is KES"


@for_each("cell", ["-$5.00", "$-5.00", "($5.00)", "$(5.00)", "(5.00 $)"])
def test_a_negative_amount_may_have_a_sign_inside_or_outside(cell: str, tmp_path: Path) -> None:
    mapping = 'brackets = "negative"\n[currency_signs]\n"$" = "USD"\n'
    content = f"reference,amount,currency,kind\nA,{cell},USD,entry\n"
    rows, problems = book(content, mapping, folder=tmp_path)
    assert (problems, rows[0]["amount"]["amount"]) == ([], "-5.00")


@for_each(("signs", "money_in", "money_out", "gross"), [
    ("none", "500.00", "", "500.00"), ("none", "", "200.00", "-200.00"),
    ("none", "500.00", "0.00", "500.00"), ("none", "0", "1.5", "-1.50"),
    ("none", "", "-200.00", None), ("minus", "", "-200.00", "-200.00"),
    ("minus", "", "25.00", None), ("sum", "", "-25.00", "25.00"), ("", "", "-25.00", None),
    ("", "", "25.00", "-25.00"),
    ("minus", "500.00", "0.00", "500.00"), ("any", "", "-200.00", "-200.00"),
    ("any", "", "200.00", "-200.00"),
])  # fmt: skip
def test_money_in_and_money_out_are_one_amount_with_the_declared_signs(
    signs: str, money_in: str, money_out: str, gross: str | None, tmp_path: Path
) -> None:
    """A row with another sign is a problem."""
    mapping = (
        f'signs = "{signs}"\n' * bool(signs) + '[amounts.gross]\nadd = ["In"]\nsubtract = ["Out"]\n'
        '[words.type]\nany = "dispute"\n' + KES
    )
    content = f"payment_reference,In,Out,type\np,{money_in},{money_out},any\n"
    rows, problems = statement(content, mapping, folder=tmp_path)
    assert [row["gross"]["amount"] for row in rows] == ([] if gross is None else [gross])
    said = f'with signs = "{signs}"' if signs else "has a minus sign in a column that is subtracted"
    assert [said in each[2] for each in problems] == [True] * (gross is None)


@for_each(("signs", "kind", "gross", "read"), [
    ("minus", "refund", "-5.00", "-5.00"), ("minus", "refund", "424.40", None),
    ("minus", "returned", "424.40", "424.40"), ("minus", "returned", "-5.00", None),
    ("minus", "payment", "-5.00", None), ("minus", "dispute", "5.00", "5.00"),
    ("minus", "payment_reversal", "-5.00", "-5.00"), ("minus", "payment_reversal", "5.00", None),
    ("none", "refund", "5.00", "-5.00"), ("none", "refund", "-5.00", None),
    ("none", "dispute", "5.00", "-5.00"), ("none", "returned", "5.00", "5.00"),
    ("none", "carried", "5.00", None), ("any", "refund", "-5.00", "-5.00"),
    ("any", "returned", "-5.00", "5.00"), ("", "refund", "5.00", None),
    ("", "refund", "-5.00", "-5.00"),
])  # fmt: skip
def test_a_type_sets_the_sign_only_where_the_mapping_says_so(
    signs: str, kind: str, gross: str, read: str | None, tmp_path: Path
) -> None:
    """A sign that contradicts the type is a problem of its row."""
    mapping = f'signs = "{signs}"\n' * bool(signs) + f'[words.type]\nword = "{kind}"\n{KES}'
    content = f"payment_reference,gross,type\np,{gross},word\n"
    rows, problems = statement(content, mapping, folder=tmp_path)
    assert [row["gross"]["amount"] for row in rows] == ([] if read is None else [read])
    assert [each[0] for each in problems] == [2] * (read is None)


def test_an_empty_cell_of_a_named_type_is_a_problem_unless_the_mapping_gives_it_a_meaning(
    tmp_path: Path,
) -> None:
    """Such as money from the merchant's own bank, to which a till's statement gives no type."""
    content = "payment_reference,gross,Reason\np,600000.00,\n"
    named = KES + '[columns]\ntype = "Reason"\n'
    rows, problems = statement(content, named, folder=tmp_path)
    assert ([each[:2] for each in problems], rows) == ([(2, "Reason")], [])
    assert problems[0][2].startswith("an empty cell is none of payment, refund")
    for meant in (named + '[words.type]\n"" = "payment"\n', KES.rstrip() + '\ntype = "payment"\n'):
        rows, problems = statement(content, meant, folder=tmp_path)
        assert ([row["type"] for row in rows], problems) == (["payment"], [])


WAYS = '[amounts.gross]\nadd = ["Sum"]\nsign = "DR/CR"\nplus = ["cr", "H"]\nminus = ["Dr", "S"]\n'


@for_each(("cell", "way", "gross"), [
    ("1.234,50", "CR", "1234.50"), ("12,90", "dr ", "-12.90"), ("12,90", "S", "-12.90"),
    ("0,00", "S", "0.00"), ("-7,00", "x", None), ("7,00", "", None), ("-7,00", "DR", None),
    ("-7,00", "CR", None),
])  # fmt: skip
def test_a_column_may_say_which_way_the_money_went(
    cell: str, way: str, gross: str | None, tmp_path: Path
) -> None:
    """What it says, or what a minus sign beside it says, is never guessed."""
    mapping = f'decimal = ","\nthousands = "."\n{WAYS}[words.type]\nany = "dispute"\n{KES}'
    content = f"payment_reference;Sum;DR/CR;type\np;{cell};{way};any\n"
    rows, problems = statement(content, mapping, folder=tmp_path)
    assert [row["gross"]["amount"] for row in rows] == ([] if gross is None else [gross])
    assert [each[:2] for each in problems] == ([(2, "Sum")] if gross is None else [])
    if cell.startswith("-") and gross is None and way != "x":
        rows, problems = statement(content, 'signs = "minus"\n' + mapping, folder=tmp_path)
        agrees = way == "DR"
        assert [row["gross"]["amount"] for row in rows] == ["-7.00"] * agrees
        assert ["contradicts" in each[2] for each in problems] == [True] * (not agrees)


def test_a_total_of_amounts_whose_way_stands_beside_them_is_found(tmp_path: Path) -> None:
    content = "payment_reference,Sum,DR/CR,type\np,5.00,CR,\nTotal,5.00,CR,\nTotal,5.00,,\n"
    rows, problems = statement(content, WAYS + KES, folder=tmp_path)
    assert ([row["row"] for row in rows], [each[0] for each in problems]) == ([2], [4])
    assert problems[0][2].startswith("is called a total, but its sum depends on an empty cell")


def test_parts_of_a_fee_that_say_nothing_come_to_nothing(tmp_path: Path) -> None:
    """As a provider writes a chargeback that was reversed, which costs nothing."""
    content = "payment_reference,gross,net,Scheme,Markup,type\np,,-9.50,,,dispute\nq,9.00,8.00,,,\n"
    mapping = '[amounts.fee]\nadd = ["Scheme", "Markup"]\n' + KES
    rows, problems = statement(content, mapping, folder=tmp_path)
    amounts = [tuple(row[each]["amount"] for each in ("gross", "fee", "net")) for row in rows]
    assert (problems, amounts) == ([], [("-9.50", "0.00", "-9.50"), ("9.00", "1.00", "8.00")])
    content = content.replace(",Scheme,Markup", ",fee,Other")
    _, problems = statement(content, KES, folder=tmp_path)
    assert "neither a gross amount nor both net and fee" in problems[0][2]


def test_what_is_carried_names_a_payout_and_one_amount_is_enough(tmp_path: Path) -> None:
    content = "payment_reference,payout,gross,net,type\n,B1,-5.00,,carried\n,B1,,-5.00,carried\n"
    rows, problems = statement(content, KES, folder=tmp_path)
    amounts = [tuple(row[each]["amount"] for each in ("gross", "fee", "net")) for row in rows]
    assert (problems, amounts) == ([], [("-5.00", "0.00", "-5.00")] * 2)
    _, problems = statement(content.replace("B1", ""), KES, folder=tmp_path)
    assert {each[2] for each in problems} == {"the row names neither a payment nor an order"}


def test_fees_of_several_columns_are_one_and_a_sign_is_turned(tmp_path: Path) -> None:
    content = "payment_reference,net,Scheme,Markup\np,9.50,-0.20,-0.30\nq,9.50,x,-0.30\n"
    mapping = '[amounts.fee]\nsubtract = ["Scheme", "Markup"]\n' + KES
    rows, problems = statement(content, mapping, folder=tmp_path)
    assert [(row["gross"]["amount"], row["fee"]["amount"]) for row in rows] == [("10.00", "0.50")]
    assert [problem[:2] for problem in problems] == [(3, "Scheme")]


def test_a_row_that_is_a_fee_is_one_however_its_file_writes_it(tmp_path: Path) -> None:
    content = (
        "payment_reference,gross,fee,net,type\np,-2.00,,,fee\np,-2.00,0.00,-2.00,fee\n"
        "p,0.00,2.00,-2.00,fee\np,,,-2.00,fee\n"
    )
    rows, problems = statement(content, KES, folder=tmp_path)
    amounts = {tuple(row[each]["amount"] for each in ("gross", "fee", "net")) for row in rows}
    assert (problems, len(rows), amounts) == ([], 4, {("0.00", "2.00", "-2.00")})


def test_a_fee_of_its_own_with_a_positive_amount_is_clear_where_signs_are_said(
    tmp_path: Path,
) -> None:
    heading = "payment_reference,gross,fee,net,type\n"
    for row in ("p,10.00,,,fee", "p,10.00,0.00,10.00,fee", "p,,,10.00,fee"):
        rows, problems = statement(f"{heading}{row}\n", KES, folder=tmp_path)
        assert (rows, "may be a cost" in problems[0][2]) == ([], True)
    said = [
        (f"{heading}p,0.00,-10.00,10.00,fee\n", KES),
        (
            "payment_reference,Out,type\np,-10.00,fee\n",
            f'[amounts.gross]\nsubtract = ["Out"]\n{KES}',
        ),
    ]
    for content, mapping in said:
        rows, problems = statement(content, mapping, folder=tmp_path)
        amounts = [tuple(row[each]["amount"] for each in ("gross", "fee", "net")) for row in rows]
        assert (problems, amounts) == ([], [("0.00", "-10.00", "10.00")])


def test_money_paid_to_a_person_is_no_refund_for_naming_a_payment(tmp_path: Path) -> None:
    rows, problems = statement(
        "payment_reference,original_payment,order_reference,gross,type\n"
        "b-1,p-1,,-5.00,disbursement\nb-2,,ORD-1,-5.00,disbursement\n"
        "b-3,p-1,,5.00,disbursement\n",
        '[defaults]\ncurrency = "KES"\nwallet = "Working"',
        folder=tmp_path,
    )
    assert problems == []
    assert [(row["type"], row["payment_reference"]) for row in rows] == [
        ("disbursement", "b-1"), ("disbursement", "b-2"), ("disbursement", "b-3"),
    ]  # fmt: skip


def test_what_goes_back_names_the_payment_that_it_is_of(tmp_path: Path) -> None:
    content = (
        "payment_reference,original_payment,gross,type\nr-1,p-1,-5.00,refund\np-2,b-9,5.00,payment\n"
        "d-1,,-5.00,dispute\n"
    )
    rows, problems = statement(content, KES, folder=tmp_path)
    assert problems == []
    assert [row["payment_reference"] for row in rows] == ["p-1", "p-2", "d-1"]


def test_the_first_of_several_columns_counts_that_says_something(tmp_path: Path) -> None:
    content = "No,Own no,amount\nA,,1.00\n,B,1.00\n"
    mapping = '[columns]\nreference = ["No", "Number", "Own no"]\n' + KES
    assert references(book(content, mapping, folder=tmp_path)) == ["A", "B"]


def test_day_time_and_zone_may_stand_in_columns_of_their_own(tmp_path: Path) -> None:
    content = (
        "reference,amount,Day,Time,TZ\nA,1.00,02/10/2026,10:00:00,EAT\nB,1.00,02/10/2026,10:00,utc\n"
        "C,1.00,02/10/2026,,EAT\nD,1.00,02/10/2026,10:00,+05:30\nE,1.00,02/10/2026,10:00,XYZ\n"
    )
    mapping = (
        'dates = "day_first"\nzone_column = "tz"\n[joined]\nplaced_at = ["Day", "Time"]\n'
        '[zones]\nEAT = "+03:00"\n' + KES
    )
    rows, problems = book(content, mapping, folder=tmp_path)
    assert [row["placed_at"] for row in rows] == [
        "2026-10-02T07:00:00Z", "2026-10-02T10:00:00Z", "2026-10-02T00:00:00Z",
        "2026-10-02T04:30:00Z",
    ]  # fmt: skip
    assert [problem[:2] for problem in problems] == [(6, "Day")]
    assert "under [zones]" in problems[0][2]


@for_each(("cell", "instant"), [
    ("46297", "2026-10-02T00:00:00Z"), ("46297.5", "2026-10-02T12:00:00Z"),
    ("46297.604166666664", "2026-10-02T14:30:00Z"), ("46297.999999", "2026-10-03T00:00:00Z"),
    ("2026-10-02", "2026-10-02T00:00:00Z"),
])  # fmt: skip
def test_days_as_excel_counts_them(cell: str, instant: str, tmp_path: Path) -> None:
    content = f"reference,amount,currency,placed_at\nA,1.00,KES,{cell}\n"
    rows, problems = book(content, 'dates = "excel"\nzone = "UTC"', folder=tmp_path)
    assert (problems, rows[0]["placed_at"]) == ([], instant)


@for_each("cell", ["20000", "9999999", "2958465", "1e5"])
def test_a_number_that_is_no_day_since_1970_is_a_problem(cell: str, tmp_path: Path) -> None:
    content = f"reference,amount,currency,placed_at\nA,1.00,KES,{cell}\n"
    _, problems = book(content, 'dates = "excel"', folder=tmp_path)
    assert problems[0][:2] == (2, "placed_at")
    _, problems = book(content.replace(cell, "46297"), folder=tmp_path)
    assert 'declare dates = "excel"' in problems[0][2]


@for_each(("text", "encoding"), [
    ("café", "cp1252"), ("Müller", "cp1252"), ("“A”", "cp1252"), ("„Wort“", "cp1252"),
    ("Köln – 5 €", "cp1252"), ("don’t", "cp1252"),
    ("注文番号、一", "cp932"), ("領収書①", "cp932"), ("Tシャツ", "cp932"), ("ｶﾀｶﾅ", "cp932"),
    ("Müller", "cp850"), ("für Größe", "cp850"), ("Köln", "cp850"), ("MÜLLER KÄSE", "cp850"),
    ("été à la forêt", "cp850"), ("niño", "cp850"),
])  # fmt: skip
def test_encodings_that_decode_each_others_bytes_are_known_by_what_reads_well(
    text: str, encoding: str, tmp_path: Path
) -> None:
    content = f"reference,amount,currency\n{text},1.00,KES\n".encode(encoding)
    assert references(book(content, folder=tmp_path)) == [text]


@for_each(("text", "encoding", "others"), [
    ("Ö", "cp1252", {"cp932": "ﾖ"}), ("Malmö", "cp850", {"cp1252": "Malm”"}),
    ("Заказ", "cp1251", {"cp1252": "Çàêàç"}), ("订单", "gb18030", {"cp1252": "¶©µ¥"}),
    ("Öl", "cp850", {"cp932": "冤"}), ("São", "cp1252", {"cp932": "S縊"}),
])  # fmt: skip
def test_of_encodings_that_read_as_well_a_person_is_asked_by_a_word(
    text: str, encoding: str, others: dict[str, str], tmp_path: Path
) -> None:
    content = f"reference,amount,currency\n{text},1.00,KES\n".encode(encoding)
    _, ((row, _, sentence),) = book(content, folder=tmp_path)
    assert (row, ": give the right one" in sentence) == (2, True)
    for name, word in {encoding: text, **others}.items():
        assert f"(--encoding {name}), which reads a word as {word!r}" in sentence


def test_an_encoding_is_suggested_only_if_it_decodes_the_file(tmp_path: Path) -> None:
    text = HEADING_OF_ORDERS + "A,1.00,KES\n"
    for encoding in ("utf-16-le", "utf-16-be"):
        _, ((row, _, sentence),) = book(text.encode(encoding), folder=tmp_path)
        assert (row, sentence.endswith(f"give --encoding {encoding}")) == (1, True)
        assert references(book(text.encode(encoding), f'encoding = "{encoding}"', folder=tmp_path))
    for content in (b"\0\1\2\3" * 9, b"\xff\x01\x02\xfe,\n"):
        _, ((_, _, sentence),) = book(content, folder=tmp_path)
        assert "--encoding" not in sentence


HEADING_OF_ORDERS = "reference,amount,currency\n"


def test_a_column_that_is_missing_is_reported_with_the_nearest_and_all_that_are_there(
    tmp_path: Path,
) -> None:
    content = "Order No,Total amount,Curency\nA,1.00,KES\n"
    mapping = '[columns]\nreference = "Order No."\namount = "Total amount"\n'
    _, problems = book(content, mapping, folder=tmp_path)
    assert problems[0][2] == (
        "there is no column 'Order No.', which the mapping names; the nearest is 'Order No'; the "
        "file has Order No, Total amount, Curency"
    )
    _, problems = book(content, mapping.replace("No.", "No"), folder=tmp_path)
    assert "there is no column 'currency'" in problems[0][2]
    assert problems[0][2].endswith(
        "the nearest is 'Curency'; the file has Order No, Total amount, Curency"
    )
    _, problems = book("254700000001,5.00\n", folder=tmp_path)
    assert "254700000001" not in problems[0][2]


@for_each(("mapping", "said"), [
    ("heading_row = -1", "heading_row: must be a number of rows from 0 to 1,000"),
    ("skip_last = true", "skip_last: must be a number of rows from 0 to 1,000"),
    ('brackets = "minus"', 'brackets: must be "negative"'),
    ('optional = ["price"]', "'price' is not a column that Tallyhook reads"),
    ('[keep]\nStatus = "x"', "'Status' must be words in square brackets"),
    ('[joined]\nplaced_at = "Date"', "joined.placed_at: must be texts in square brackets"),
    ('[columns]\nplaced_at = "A"\n[joined]\nplaced_at = ["B"]', "a column is already given for "
        "this value"),
    ("[amounts.amount]\nadd = []", "amounts.amount: names no column"),
    ('signs = "unsigned"', "signs: must be one of minus, none, any, sum"),
    ('[words.kind]\n"*sale*" = "order"', "'*sale*' has a star, which could match words"),
    ('[amounts.amount]\nadd = ["A"]\nsign = "B"\nplus = ["C*"]\nminus = ["D"]', "'C*' has a star"),
    ("[fold]", "fold.by: is missing"),
    ('[currency_signs]\n"$" = "dollars"', "is not a currency code"),
    ('[currency_signs]\n"." = "USD"', "could be part of an amount"),
    ('[currency_signs]\n"\u2212" = "USD"', "could be part of an amount"),
    ('[currency_signs]\n"-" = "USD"', "could be part of an amount"),
    ('[currency_signs]\n"5" = "USD"', "could be part of an amount"),
    ('[suffixes]\nDR = "left"', "must be a section, such as DR"),
    ('[suffixes]\n"0" = "minus"', "neither letters nor a minus sign"),
    ('empty = "--"', "empty: must be texts in square brackets"),
    ('[zones]\nPST = "west"', 'must be a section of offsets or zones, such as PST = "-08:00"'),
])  # fmt: skip
def test_what_a_mapping_may_not_say_is_refused(mapping: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        book("reference\n", mapping, folder=tmp_path)
    assert said in str(raised.value)


def test_a_pattern_matches_what_its_stars_stand_for() -> None:
    for word in ("a*", "*a", "*", "a", "*ab*b", "a*b*ab", "**", "a**b", "*aba*ba*", "A.*b"):
        plain = re.compile(".*".join(map(re.escape, word.casefold().split("*"))), re.DOTALL)
        for text in ("".join(each) for n in range(8) for each in product("ab.", repeat=n)):
            assert (pattern_of(word).fullmatch(text) is None) == (plain.fullmatch(text) is None)


def test_a_strangers_text_takes_no_longer_however_many_stars_a_pattern_has() -> None:
    """What a customer writes stands in cells: with five stars each row took seventeen seconds."""
    began = thread_time()
    assert WordFilter(["*a*a*a*a*b"]).fitting("a" * 200) is None
    assert thread_time() - began < 1
