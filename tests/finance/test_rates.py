"""Files of exchange rates: two forms, exact rates, and every mistake by its line."""

from fractions import Fraction

import pytest

from app.core.errors import ConfigurationError
from app.finance.files.rates import rates_of
from tests.rows import for_each

PLAIN = "date,currency,rate\n2026-10-02,KES,0.0067\n\n2026-10-01,KES,0.0066\n2026-10-01,USD,0.9\n"
BANK = "Date,USD,JPY,BGN,KES,\n2026-10-02,1.08,162,1.9558,N/A,\n2026-10-01,1.25,160,1.9558,150,\n"


@for_each(
    ("text", "own", "expected"),
    [
        (
            PLAIN,
            "EUR",
            {
                "KES": (("2026-10-01", Fraction(66, 10_000)), ("2026-10-02", Fraction(67, 10_000))),
                "USD": (("2026-10-01", Fraction(9, 10)),),
            },
        ),
        (
            BANK,
            "EUR",
            {
                "USD": (("2026-10-01", Fraction(4, 5)), ("2026-10-02", Fraction(100, 108))),
                "JPY": (("2026-10-01", Fraction(1, 160)), ("2026-10-02", Fraction(1, 162))),
                "KES": (("2026-10-01", Fraction(1, 150)),),
            },
        ),
        (
            BANK,
            "KES",
            {
                "EUR": (("2026-10-01", Fraction(150)),),
                "USD": (("2026-10-01", Fraction(120)),),
                "JPY": (("2026-10-01", Fraction(15, 16)),),
            },
        ),
    ],
)
def test_a_file_says_what_one_unit_is_in_the_own_currency(
    text: str, own: str, expected: dict[str, object]
) -> None:
    assert {key: days for key, days in rates_of(text, own).items() if key != "BGN"} == expected


@for_each(
    ("text", "said"),
    [
        ("", ":1: the heading must be date,currency,rate"),
        ("day,currency,rate\n", ":1: the heading must be"),
        (
            "Date,USD\n2026-10-01,1.08\n",
            ":1: these are exchange rates of the euro, but the column KES is",
        ),
        (PLAIN + "2026-10-03,KES\n", ":6: a line must have a date, a currency and a rate"),
        (PLAIN + "2026-10-03,KSH,1\n", ":6: 'KSH' is not a currency code"),
        (PLAIN + "3.10.2026,KES,1\n", ":6: '3.10.2026' is not a day"),
        (PLAIN + '2026-10-03,KES,"0,0067"\n', ":6: '0,0067' is not a rate"),
        (PLAIN + "2026-10-03,KES,0\n", ":6: '0' is not a rate"),
        (PLAIN + "2026-10-01,KES,0.0068\n", ":6: KES has two rates on 2026-10-01"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        rates_of(text, "KES")
    assert said in str(refused.value)
