"""A file of rules is read strictly, and all its mistakes are reported at once."""

import re
import tomllib
from typing import Any

import pytest

from app.core.errors import ConfigurationError, UsageError
from app.finance.match_rules import compare_rules, limits_sentence
from app.finance.rule_file import MAX_BYTES, read_rules
from app.finance.rule_text import SETTINGS, limits_of, with_names, with_setting
from reconcile.instants import DAY, HOUR
from reconcile.matching.books import Methods
from reconcile.matching.rules import ExpectedFee, ExpectedRate, MatchRules, Tolerance
from tests.rows import for_each

WRONG = """
date_windw = "2 days"
settle_margin = 7
book_margin = "2 weeks"
currency = "KSH"
[tolerance]
KES = "0.001"
UGX = "-5"
XAU = "1"
[accept_alone_max]
KES = 5000.0001
[[fee]]
source = "shop"
currency = "KES"
percent = "101"
[[fee]]
source = "shop"
currency = "KES"
percent = true
[[fee]]
percent = "1"
flat = 2
"""


def test_the_examples_of_all_settings_are_one_file_of_rules() -> None:
    rules = read_rules("\n".join(each.toml for each in SETTINGS))
    assert rules.match == MatchRules(
        currency="KES",
        tolerances=(Tolerance(currency="KES", minor=100),),
        date_window=2 * DAY,
        settle_margin=7 * DAY,
        fees=(
            ExpectedFee(
                source="shop",
                currency="KES",
                per_million=29_000,
                fixed=30,
                tolerance=1,
                where=(("card_country", ("US", "CA")),),
            ),
        ),
        bank_margin=5 * DAY,
        bank_payers=("Stripe", "Paystack"),
        other_business=("Landlord Ltd",),
        rates=(
            ExpectedRate(
                currency="USD", into="KES", micros=129_500_000, tolerance_per_million=15_000
            ),
        ),
        methods=Methods(
            outside=("cash", "cash on delivery"),
            bank=("bank transfer",),
            tender=("gift card", "store credit"),
        ),
    )
    assert rules.alone_max == {"KES": 500_000}
    assert limits_of(rules) == [
        {
            "currency": "KES",
            "accept_alone_max": "5000.00",
            "accept_alone_day": "5000.00",
            "accept_alone_month": "25000.00",
        }
    ]


def test_methods_of_the_book_replace_the_defaults_list_by_list() -> None:
    rules = read_rules('[methods]\nbank = ["vorkasse"]\ntender = []')
    assert rules.match.methods == Methods(bank=("vorkasse",), tender=())
    with pytest.raises(ConfigurationError, match=r"methods\.bank: at most 100 names"):
        read_rules('[methods]\nbank = ["", 3]')


FEE = '[[fee]]\nsource = "card"\ncurrency = "EUR"\n'


def test_a_fee_may_always_differ_by_one_minor_unit() -> None:
    rules = read_rules(f'{FEE}tolerance = "0.00"\nwhere = {{method = "card"}}\n{FEE}')
    assert [each.tolerance for each in rules.match.fees] == [1, 1]


@for_each(
    ("text", "mistake"),
    [
        (FEE + FEE, "fee.2: this fee is never used: fee.1 comes first, and matches"),
        (
            f'{FEE}where = {{card = "x"}}',
            "fee.1.where: must be a table with one or more of these details: method",
        ),
        (f"{FEE}where = 3", "fee.1.where: must be a table with one or more of these details"),
        (f"{FEE}where = {{method = []}}", "fee.1.where: must be a text, or a list of texts"),
        (f"{FEE}where = {{method = [3]}}", "fee.1.where: must be a text, or a list of texts"),
    ],
)
def test_a_fee_rule_that_cannot_count_is_a_mistake(text: str, mistake: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(mistake)):
        read_rules(text)


def test_a_text_is_added_to_rules_as_they_are_written() -> None:
    for toml in ("", 'currency = "USD"\n', '# ours\nother_business = [\n  "B Ltd",\n]\n'):
        added = with_names(toml, "other_business", 'A "quoted" name')
        known = read_rules(toml).match.other_business
        assert read_rules(added).match.other_business == ('A "quoted" name', *known)
        assert ("# ours" in added) == ("# ours" in toml)


OURS = '# ours\n[tolerance] # small\nKES = "1"\nEUR = "0.05" # of us\n[methods]\nbank = ["x"]\n'


@for_each(
    ("before", "name", "value", "after"),
    [
        ("", "tolerance.KES", "1", '[tolerance]\nKES = "1"\n'),
        (OURS, "tolerance.KES", "2", OURS.replace('KES = "1"', 'KES = "2"')),
        (OURS, "tolerance.KES", None, OURS.replace('KES = "1"\n', "")),
        (OURS, "tolerance.USD", "3", OURS.replace("small", 'small\nUSD = "3"')),
        (OURS, "tolerance.USD", None, OURS),
        (OURS, "methods.bank", ["a", "b"], OURS.replace('["x"]', '["a", "b"]')),
        (OURS, "methods.tender", ["a"], OURS.replace("[methods]", '[methods]\ntender = ["a"]')),
        (OURS, "bank_payers", ["a"], 'bank_payers = ["a"]\n' + OURS),
    ],
)
def test_one_setting_is_changed_and_other_lines_stay(
    before: str, name: str, value: Any, after: str
) -> None:
    assert with_setting(before, name, value) == after


@for_each("before", ['tolerance = {KES = "1"}\n', 'tolerance.KES = "1"\n'])
def test_a_setting_that_is_written_otherwise_is_left_to_a_person(before: str) -> None:
    with pytest.raises(UsageError, match="edit them by hand"):
        with_setting(before, "tolerance.EUR", "1")


def test_every_setting_has_an_example() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_rules("other = 1")
    known = str(raised.value).partition("there are ")[2].split(", ")
    examples = tomllib.loads("\n".join(each.toml for each in SETTINGS))
    assert sorted(known) == sorted(examples)


def test_an_empty_file_is_the_built_in_rules() -> None:
    assert read_rules("").match == MatchRules()
    assert read_rules('refund_margin = "36 hours"').match.refund_margin == 36 * HOUR


def test_every_mistake_is_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_rules(WRONG)
    problems = [line.split(": ")[:2] for line in raised.value.problems]
    assert [(int(place.removeprefix("the rules:")), key) for place, key in problems] == [
        (2, "date_windw"), (3, "settle_margin"), (4, "book_margin"), (5, "currency"),
        (7, "tolerance.KES"), (8, "tolerance.UGX"), (9, "tolerance.XAU"),
        (11, "accept_alone_max.KES"), (15, "fee.1.percent"), (16, "fee.2"), (19, "fee.2.percent"),
        (20, "fee.3.source"), (20, "fee.3.currency"), (22, "fee.3.flat"),
    ]  # fmt: skip


@for_each("text", ["tolerance = 3", "fee = 3", "fee = [3]", "not toml", "a\x00 = 1"])
def test_what_is_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_rules(text)


def test_a_file_that_is_far_too_large_is_not_parsed() -> None:
    with pytest.raises(ConfigurationError, match="larger than"):
        read_rules("#" * (MAX_BYTES + 1))


def test_rules_are_compared_with_limits_first_and_in_words() -> None:
    """Limits that follow by default are left out; of fees, the changed one is shown."""
    fee = '[[fee]]\nsource = "shop"\ncurrency = "{}"\npercent = "{}"\n'
    before = (
        'close_alone = false\n[tolerance]\nKES = "1.00"\n[accept_alone_max]\nKES = "10.00"\n'
        'JPY = "5"\nUSD = "1"\n[accept_alone_day]\nUSD = "3"\n'
    ) + fee.format("KES", "2.9")
    after = (
        'date_window = "2 days"\n[tolerance]\nKES = "2.00"\n[accept_alone_max]\nKES = "20.00"\n'
        'EUR = "5"\nUSD = "1"\n[accept_alone_day]\nUSD = "2"\n'
    ) + "".join(fee.format(*each) for each in (("USD", "1"), ("KES", "2.9")))
    found = [
        (each.what, each.before, each.after, each.note) for each in compare_rules(before, after)
    ]
    assert [(what, old, new, note.partition(":")[0]) for what, old, new, note in found] == [
        ("accept_alone_day.USD", "3.00", "2.00", "lowered"),
        ("accept_alone_max.EUR", "", "5.00", "new"),
        ("accept_alone_max.JPY", "5", "", "dropped"),
        ("accept_alone_max.KES", "10.00", "20.00", "raised"),
        ("close_alone", "false", "", "dropped"),
        ("date_window", "", "2 days", ""),
        ("fee", "", "source shop, currency USD, percent 1", ""),
        ("tolerance.KES", "1.00", "2.00", ""),
    ]
    sentence = limits_sentence(compare_rules(before, after))
    assert "accept_alone_max.KES changes from 10.00 to 20.00 (raised: one person" in sentence
    assert sentence.endswith("Other settings change: 3.")
    assert limits_sentence(compare_rules(before, before)) == "No limit changes."
