"""Amounts: what was declared and nothing else, exactly or not at all."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.finance.files.amounts import THOUSANDS_MARKS, Amounts, Marks, read_currencies
from app.finance.files.tables import Number, UnclearCell
from reconcile.money import MAX_MINOR, from_major

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
    read = Amounts(Marks(decimal=decimal, thousands=thousands))
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
    assert together == [from_major(Decimal(cell.strip()), currency).minor for cell in cells]


@pytest.mark.parametrize(("cell", "said"), [
    ("1,234", "two ways"), ("1.234,50", "two ways"), ("1 234", "two ways"),
    ("1'234.50", "two ways"),
    ("1.234", "more decimals"), ("1.505", "more decimals"), ("0.001", "more decimals"),
    ("(1.00)", "brackets"), ("=1+1", "formula"), ("", "empty"), ("  ", "empty"),
    ("+5", "not an amount"), ("5-", "not an amount"), ("1e3", "not an amount"),
    ("KES 5", "not an amount"), ("NaN", "not an amount"), ("٥", "not an amount"),
    ("1_000", "not an amount"), (".5", "two ways"), ("5.", "two ways"),
    ("92233720368547758.08", "64 bits"), ("9" * 31, "not an amount"),
])  # fmt: skip
def test_what_is_not_clear_is_refused_with_the_reason(cell: str, said: str) -> None:
    with pytest.raises(UnclearCell, match=said):
        minor(cell)


@pytest.mark.parametrize(("cell", "expected"), [
    ("1.234,50", 123450), ("1.234", 123400), ("1234,5", 123450), ("-1,00", -100),
    ("1.23.456,00", 12345600),
])  # fmt: skip
def test_declared_marks_mean_what_they_mean(cell: str, expected: int) -> None:
    assert minor(cell, read=EUROPEAN) == expected


@pytest.mark.parametrize("cell", ["1.23", "12.34,5", "1234.567", "1,234.50", ".234"])
def test_thousands_in_odd_groups_are_refused(cell: str) -> None:
    with pytest.raises(UnclearCell):
        minor(cell, read=EUROPEAN)


def test_zeros_beyond_the_currency_say_nothing_unless_they_may_be_thousands() -> None:
    assert minor("1500.00", "JPY") == 1500
    assert minor("1.500", "KWD") == 1500
    with pytest.raises(UnclearCell, match="more decimals"):
        minor("1.000", "JPY")
    with pytest.raises(UnclearCell, match="more decimals"):
        minor("1.500")


def test_a_typed_number_does_not_depend_on_declared_marks() -> None:
    assert minor(Number("1234.5"), read=EUROPEAN) == 123450


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
