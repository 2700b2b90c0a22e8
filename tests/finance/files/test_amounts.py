"""Amounts: what was declared and nothing else, exactly or not at all."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import UsageError
from app.finance.files.amounts import THOUSANDS_MARKS, Amounts, Marks, read_currencies
from app.finance.files.books import BookForm
from app.finance.files.mapping import read_mapping
from app.finance.files.shaping import SumOfCells
from app.finance.files.tables import Number, UnclearCell
from reconcile.money import MAX_MINOR, from_major
from tests.rows import for_each

PLAIN = Amounts(Marks())
EUROPEAN = Amounts(Marks(decimal=",", thousands="."))
MINOR = st.integers(-MAX_MINOR, MAX_MINOR)
CURRENCIES = st.sampled_from(["KES", "JPY", "KWD", "CLF"])


def minor(cell: str, currency: str = "KES", *, read: Amounts = PLAIN) -> int:
    (found,) = read.read([cell], [currency])
    return found


@given(minor=MINOR, currency=CURRENCIES, thousands=st.sampled_from(THOUSANDS_MARKS),
       decimal=st.sampled_from(".,"), blank=st.booleans())  # fmt: skip
def test_what_is_written_with_declared_marks_is_read_back(
    minor: int, currency: str, thousands: str, decimal: str, blank: bool
) -> None:
    if decimal == thousands:
        return
    exponent = {"KES": 2, "JPY": 0, "KWD": 3, "CLF": 4}[currency]
    whole, decimals = divmod(abs(minor), 10**exponent)
    text = f"{'-' if minor < 0 else ''}{whole:,}".replace(",", thousands)
    if exponent:
        text += f"{decimal}{decimals:0{exponent}}"
    read = Amounts(Marks(decimal=decimal, thousands=thousands, declared=True))
    assert read.read([f" {text} " if blank else text], [currency]) == [minor]


@given(cells=st.lists(st.one_of(
    st.from_regex(r"\A-?[0-9]{1,21}(\.[0-9]{1,5})?\Z"),
    st.text("0123456789.,-+()= eE\n", max_size=8),
), min_size=1, max_size=5), currency=CURRENCIES)  # fmt: skip
def test_many_at_once_are_read_as_one_by_one(cells: list[str], currency: str) -> None:
    try:
        together = PLAIN.read(cells, [currency] * len(cells))
    except UnclearCell:
        with pytest.raises(UnclearCell):
            [minor(cell, currency) for cell in cells]
        return
    assert together == [minor(cell, currency) for cell in cells]
    assert together == [
        from_major(Decimal("".join(cell.split())), currency).minor for cell in cells
    ]


@for_each(("cell", "said"), [
    ("1,234", r"1,234\.00 \(decimal = \"\.\" and thousands = \",\"\)"),
    ("1.234,50", r"read as 1,234\.50 \(decimal = \",\" and thousands = \"\.\"\)"),
    ("1 234", r"thousands = \" \""), ("1\u202f234", r"thousands = \" \""), ("1'234.50", "read as"),
    ("1.234.567,00", "can be read in several ways"),
    ("1.234", "more decimals"), ("1.505", "more decimals"), ("0.001", "more decimals"),
    ("(1.00)", "brackets"), ("=1+1", "formula"), ("", "empty"), ("  ", "empty"),
    ("5-", r'ends with .-.: say whether that is "minus"'), ("5 DR", "ends with .DR."),
    ("+-5", "not an amount"), ("--", "not an amount"), ("1e3", "not an amount"),
    ("KES 5", "not an amount"), ("NaN", "not an amount"), ("٥", "not an amount"),
    ("1_000", "not an amount"), (".5", "not an amount"), ("5.", "not an amount"),
    ("92233720368547758.08", "64 bits"), ("9" * 31, "not an amount"),
])  # fmt: skip
def test_what_is_not_clear_is_refused_with_the_reason(cell: str, said: str) -> None:
    with pytest.raises(UnclearCell, match=said):
        minor(cell)


@for_each(("cell", "expected"), [
    ("1.234,50", 123450), ("1.234", 123400), ("1234,5", 123450), ("-1,00", -100),
    ("1.23.456,00", 12345600),
])  # fmt: skip
def test_declared_marks_mean_what_they_mean(cell: str, expected: int) -> None:
    assert minor(cell, read=EUROPEAN) == expected


@for_each("cell", ["1.23", "12.34,5", "1234.567", "1,234.50", ".234"])
def test_thousands_in_odd_groups_are_refused(cell: str) -> None:
    with pytest.raises(UnclearCell):
        minor(cell, read=EUROPEAN)


@for_each(
    ("currency", "readings"),
    [
        ("KES", {'decimal = "."': "29.00", 'decimal = "," and thousands = "."': "29,000.00"}),
        ("JPY", {'decimal = "."': "29", 'decimal = "," and thousands = "."': "29,000"}),
    ],
)
def test_zeros_beyond_the_currency_are_told_with_both_readings_until_one_is_declared(
    currency: str, readings: dict[str, str]
) -> None:
    with pytest.raises(UnclearCell) as caught:
        minor("29.000", currency)
    ways = " or as ".join(f"{shown} ({keys})" for keys, shown in readings.items())
    assert f"'29.000' can be read as {ways}: declare" in str(caught.value)
    for keys, shown in readings.items():  # every remedy that is named does what it says
        mapping = read_mapping(keys.replace(" and ", "\n").encode(), BookForm.FIELDS)
        exact = from_major(Decimal(shown.replace(",", "")), currency).minor
        assert minor("29.000", currency, read=Amounts(mapping.marks)) == exact


def test_zeros_that_cannot_be_thousands_need_no_declaration() -> None:
    assert minor("1500.00", "JPY") == minor("1500.0000", "JPY") == 1500
    assert minor("1.500", "KWD") == 1500


DEBITS = """decimal = "."
thousands = " "
brackets = "negative"
[suffixes]
DR = "minus"
CR = "plus"
"-" = "minus"
[currency_signs]
"Rs." = "INR"
KSh = "KES"
"""


@for_each(("cell", "expected"), [
    ("12.50-", -1250), ("12.50 -", -1250), ("12.50\u2212", -1250), ("12.50 DR", -1250),
    ("12.50dr", -1250), ("12.50 Cr", 1250), ("+12.50", 1250), ("\u221212.50", -1250),
    ("\u201312.50", -1250), ("- 12.50", -1250), ("(12.50)", -1250), ("KSh1 200.50", 120050),
    ("-KSh 1.00", -100), ("KSh -1.00", -100), ("(KSh 1.00)", -100), ("KSh(1.00)", -100),
    ("1.00 KSh DR", -100), ("1\u00a0234.50", 123450), ("1\u202f234.50", 123450),
    ("1\u2009234.50", 123450), ("1 234.50\u00a0", 123450), ("1.000", 100),
])  # fmt: skip
def test_declared_signs_suffixes_and_blanks_of_any_kind_are_read(cell: str, expected: int) -> None:
    marks = read_mapping(DEBITS.encode(), BookForm.FIELDS).marks
    assert minor(cell, read=Amounts(marks)) == expected
    assert minor(SumOfCells(marks).total([], [cell]), read=Amounts(marks)) == -expected


@for_each("cell", [
    "-12.50 DR", "-12.50-", "(12.50) DR", "-(12.50)", "12.50 DR DR", "12KSh50", "KSh KSh 1.00",
    "Rs. 1.00", "+-1.00", "1.005",
])  # fmt: skip
def test_an_amount_that_says_something_twice_is_refused(cell: str) -> None:
    with pytest.raises(UnclearCell):
        minor(cell, read=Amounts(read_mapping(DEBITS.encode(), BookForm.FIELDS).marks))


def test_a_suffix_that_ends_like_a_sign_is_a_suffix() -> None:
    mapping = '[suffixes]\nDR = "minus"\n[currency_signs]\nR = "ZAR"\n'
    read = Amounts(read_mapping(mapping.encode(), BookForm.FIELDS).marks)
    assert minor("R 12.50 DR", "ZAR", read=read) == minor("12.50 DR", "ZAR", read=read) == -1250
    assert minor("12.50 R", "ZAR", read=read) == 1250


def test_a_sign_may_hold_a_dot_and_no_part_of_an_amount() -> None:
    signs = read_mapping(b'thousands = ","\n[currency_signs]\n"Rs." = "INR"', BookForm.FIELDS)
    assert minor("Rs. 1,234.50", "INR", read=Amounts(signs.marks)) == 123450
    for sign in (".", "\u2212", "\u2013", "-", "'", " ", "1$", "$,"):
        text = f'[currency_signs]\n"{sign}" = "USD"'
        with pytest.raises(UsageError, match="could be part of an amount"):
            read_mapping(text.encode(), BookForm.FIELDS)


@for_each(("cell", "currency", "expected"), [
    (Number("29.000"), "KES", 2900), (Number("1.000"), "JPY", 1), (Number("-0.50"), "KES", -50),
])  # fmt: skip
def test_a_typed_number_means_what_its_format_says(cell: str, currency: str, expected: int) -> None:
    assert minor(cell, currency) == minor(cell, currency, read=EUROPEAN) == expected
    assert minor(SumOfCells(Marks()).total([], [cell]), currency) == -expected


@for_each("cell", [Number("1.505"), Number("1,234.50"), Number("1 234")])
def test_a_typed_cell_gets_no_advice_on_marks(cell: str) -> None:
    with pytest.raises(UnclearCell) as caught:
        minor(cell)
    assert "declare" not in str(caught.value)


def test_the_sentence_never_shows_what_may_be_a_phone_number() -> None:
    for cell in ("+254 700 000 001", "0700-000-001", "254700000001x"):
        with pytest.raises(UnclearCell) as caught:
            minor(cell)
        assert "700" not in str(caught.value)


def test_currencies_are_codes_of_the_standard() -> None:
    assert read_currencies(["kes", " USD "]) == ["KES", "USD"]
    for cell in ("", "KSH", "$", "XAU", "K ES"):
        with pytest.raises(UnclearCell):
            read_currencies([cell])
