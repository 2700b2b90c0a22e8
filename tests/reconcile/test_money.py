"""Money: exact to the minor unit, in every currency, or refused with a sentence."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from iso4217 import Currency

from reconcile.money import (
    EXPONENTS,
    MAX_MINOR,
    Money,
    MoneyError,
    exponent_of,
    from_major,
    is_currency,
    major_text,
    money,
    to_json,
)
from tests.rows import for_each

currencies = st.sampled_from(sorted(EXPONENTS))
minors = st.integers(-MAX_MINOR - 1, MAX_MINOR)


def test_exponents_are_those_of_an_independent_iso_4217_table() -> None:
    independent = {c.code: c.exponent for c in Currency if c.exponent is not None}
    assert independent == EXPONENTS
    assert len(EXPONENTS) > 150


@given(minors, currencies)
def test_text_and_minor_units_are_two_forms_of_one_amount(minor: int, currency: str) -> None:
    amount = money(minor, currency)
    assert from_major(major_text(amount), currency) == amount
    assert from_major(Decimal(major_text(amount)), currency) == amount
    assert to_json(amount) == {"amount": major_text(amount), "currency": currency}


@for_each(
    ("minor", "currency", "text"),
    [
        (0, "KES", "0.00"),
        (-1, "KES", "-0.01"),
        (150_000, "KES", "1500.00"),
        (0, "JPY", "0"),
        (-7, "JPY", "-7"),
        (1, "KWD", "0.001"),
        (-10_001, "CLF", "-1.0001"),
        (MAX_MINOR, "JPY", "9223372036854775807"),
        (-MAX_MINOR - 1, "JPY", "-9223372036854775808"),
    ],
)
def test_major_units_are_written_without_needless_zeros(
    minor: int, currency: str, text: str
) -> None:
    assert major_text(money(minor, currency)) == text


@given(minors, currencies)
def test_an_amount_has_exactly_its_currencys_decimals(minor: int, currency: str) -> None:
    """KES 1 is 1.00, JPY 1 is 1, KWD 1 is 1.000."""
    _, _, decimals = major_text(money(minor, currency)).partition(".")
    assert len(decimals) == exponent_of(currency)


@for_each(
    ("amount", "currency", "minor"),
    [
        ("1500.00", "KES", 150_000),
        ("1500", "KES", 150_000),
        (1500, "KES", 150_000),
        (Decimal("1500.0"), "KES", 150_000),
        (Decimal("1.5E+3"), "KES", 150_000),
        (Decimal("1500.0000000000000000000000000000000"), "KES", 150_000),
        ("0.01", "KES", 1),
        ("-0.01", "KES", -1),
        ("-0.00", "KES", 0),
        (Decimal("0E+999999"), "KES", 0),
        (Decimal("0E-999999"), "KES", 0),
        (Decimal("0E+999999999999"), "KES", 0),
        ("1500", "JPY", 1_500),
        ("0.001", "KWD", 1),
        ("0.0001", "CLF", 1),
        ("92233720368547758.07", "KES", MAX_MINOR),
        ("-92233720368547758.08", "KES", -MAX_MINOR - 1),
        (MAX_MINOR, "JPY", MAX_MINOR),
    ],
)
def test_major_units_are_read_exactly(amount: Any, currency: str, minor: int) -> None:
    assert from_major(amount, currency) == Money(minor=minor, currency=currency)


@for_each(
    ("amount", "currency", "sentence"),
    [
        ("0.001", "KES", "more than the 2 decimals of KES"),
        ("0.5", "JPY", "more than the 0 decimals of JPY"),
        (Decimal("1500.005"), "KES", "more than the 2 decimals"),
        (Decimal("1E-999999"), "KES", "more than the 2 decimals"),
        ("92233720368547758.08", "KES", "64 bits"),
        ("-92233720368547758.09", "KES", "64 bits"),
        (Decimal("1E+999999"), "KES", "64 bits"),
        (Decimal("1E+999999999999999999"), "KES", "64 bits|more than 128 digits"),
        (Decimal("1E-999999999999999999"), "KES", "more than the 2 decimals"),
        (10**100, "KES", "64 bits"),
        (10**400 + 1, "KES", "64 bits|more than 128 digits"),
        ("NaN", "KES", "not a finite number"),
        (Decimal("Infinity"), "KES", "not a finite number"),
        (Decimal("sNaN"), "KES", "not a decimal number"),
        ("1,500", "KES", "not a decimal number"),
        ("", "KES", "not a decimal number"),
        ("1", "kes", "not a currency code of ISO 4217 with minor units; write KES"),
        ("1", "XAU", "not a currency code"),
        ("1", "A" * 10_000, "'AAAAAAAA' is not a currency code"),
    ],
)
def test_what_is_not_exact_is_refused(amount: Any, currency: str, sentence: str) -> None:
    with pytest.raises(MoneyError, match=sentence):
        from_major(amount, currency)


@given(st.decimals(allow_nan=True, allow_infinity=True), currencies)
def test_any_decimal_is_read_exactly_or_refused(amount: Decimal, currency: str) -> None:
    try:
        read = from_major(amount, currency)
    except MoneyError:
        return
    assert Decimal(major_text(read)) == amount


@for_each("minor", [MAX_MINOR + 1, -MAX_MINOR - 2, 10**30])
def test_minor_units_beyond_64_bits_are_refused(minor: int) -> None:
    """Both databases hold exactly 64 bits."""
    with pytest.raises(MoneyError, match="64 bits"):
        money(minor, "KES")


def test_minor_units_of_an_unknown_currency_are_refused() -> None:
    with pytest.raises(MoneyError, match="'XAU' is not a currency code"):
        money(1, "XAU")


@for_each(
    ("value", "known"),
    [("KES", True), ("kes", False), ("XAU", False), ("", False), (None, False), (["KES"], False)],
)
def test_a_currency_is_a_known_code_in_capitals(value: object, known: bool) -> None:
    assert is_currency(value) is known


@for_each(
    ("minor", "currency", "text"),
    [
        (150_000, "KES", "KES 1,500.00"),
        (-5, "KES", "KES -0.05"),
        (1_234_567, "JPY", "JPY 1,234,567"),
        (1, "KWD", "KWD 0.001"),
    ],
)
def test_people_read_amounts_with_thousands_and_decimals(
    minor: int, currency: str, text: str
) -> None:
    assert str(Money(minor=minor, currency=currency)) == text
