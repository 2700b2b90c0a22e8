"""Limits of one person, by act, day and month."""

from dataclasses import replace
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.finance.break_acts import too_much
from app.finance.limits import Allowance
from app.finance.match_rules import compare_rules
from app.finance.rule_file import Rules, read_rules
from reconcile.money import Money
from tests.database.contract_breaks import missing
from tests.rows import for_each

RULES = Rules(alone_max={"KES": 1_000, "JPY": 500}, alone={"day": {"JPY": 800}})


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


@for_each(
    ("used", "asked", "because"),
    [
        ({}, [kes(1_000)], None),
        ({}, [kes(1_001)], "KES 10.01 is more than the KES 10.00 that one person may accept"),
        ({}, [kes(600), kes(401)],
         "together they amount to KES 10.01, more than the KES 10.00 that one person may decide "
         "about alone in a day"),
        ({"day": {"KES": 900}}, [kes(100)], None),
        ({"day": {"KES": 900}}, [kes(101)],
         "KES 9.00 of the KES 10.00 that one person may decide about alone in a day is used up "
         "today: less than KES 1.01 is left"),
        ({"day": {"KES": 1_000}}, [kes(0)], None),
        ({"day": {"JPY": 10**9}}, [kes(1_000)], None),
        ({"day": {"JPY": 301}}, [Money(minor=500, currency="JPY")],
         "JPY 301 of the JPY 800 that one person may decide about alone in a day is used up"),
        ({}, [Money(minor=1, currency="EUR")], "no rule says how much EUR one person may accept"),
        ({}, [Money(minor=0, currency="EUR")], None),
        ({"month": {"KES": 4_000}}, [kes(1_000)], None),
        ({"month": {"KES": 4_001}}, [kes(1_000)],
         "KES 40.01 of the KES 50.00 that one person may decide about alone in a month is used up "
         "this month: less than KES 10.00 is left"),
    ],
)  # fmt: skip
def test_small_sums_add_up_in_a_day_and_a_month(
    used: Any, asked: list[Money], because: str | None
) -> None:
    found = Allowance(rules=RULES, used=used).why_not(*asked)
    assert found == because or (because is not None and (found or "").startswith(because))


def test_the_limit_of_a_day_is_that_of_one_act_and_a_month_has_five_days() -> None:
    rules = read_rules(
        '[accept_alone_max]\nKES = "10"\nJPY = "5"\nUSD = "1"\n[accept_alone_day]\nJPY = "8"\n'
        '[accept_alone_month]\nUSD = "2"\n'
    )
    limits = {
        currency: (rules.limit("day", currency), rules.limit("month", currency))
        for currency in ("KES", "JPY", "USD", "EUR")
    }
    assert limits == {
        "KES": (1_000, 5_000), "JPY": (8, 40), "USD": (100, 200), "EUR": (None, None),
    }  # fmt: skip


@for_each(
    ("text", "mistake"),
    [
        ('[accept_alone_day]\nKES = "1"', "accept_alone_max.KES must also be given"),
        ('[accept_alone_max]\nKES = "2"\n[accept_alone_day]\nKES = "1"',
         "less than accept_alone_max.KES"),
        ('[accept_alone_max]\nKES = "2"\n[accept_alone_day]\nKES = "9"\n'
         '[accept_alone_month]\nKES = "8"', "less than accept_alone_day.KES"),
        ('[accept_alone_max]\nKES = "2"\n[accept_alone_month]\nKES = "1"',
         "less than accept_alone_max.KES"),
    ],
)  # fmt: skip
def test_a_longer_period_has_no_lower_limit(text: str, mistake: str) -> None:
    with pytest.raises(ConfigurationError, match=mistake):
        read_rules(text)


@for_each("cause", ["payment_unallocated", "wallet_balance_differs"])
def test_some_breaks_take_two_people_whatever_the_limits(cause: Any) -> None:
    small = replace(missing("A", minor=1), cause=cause)
    assert "only two people together" in (too_much(Allowance(rules=Rules()), small) or "")
    assert too_much(Allowance(rules=Rules()), missing("A", minor=1)) is None


@for_each(
    ("before", "after", "note"),
    [
        ("", 'KES = "1"', "new: it takes a second person"),
        ('KES = "1"', "", "dropped: one person may do it alone, whatever the amount"),
        ('EUR = "1"', 'EUR = "1"\nKES = "1"', "new: one person may decide about up to this amount"),
        ('EUR = "1"\nKES = "1"', 'EUR = "1"', "dropped: it takes a second person, whatever the"),
    ],
)
def test_a_limit_means_more_or_less_beside_those_of_others(
    before: str, after: str, note: str
) -> None:
    (change,) = compare_rules(*(f"[accept_alone_max]\n{each}\n" for each in (before, after)))
    assert change.note.startswith(note)
