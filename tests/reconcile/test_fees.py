"""Fee rules that are suggested from the fees of a month."""

import json
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from reconcile.matching.fees import FeeLine, suggested_fees
from reconcile.matching.rules import ExpectedFee, MatchRules, Terms
from tests.reconcile.books_truth import AS_OF, COVERAGE
from tests.rows import for_each


def lines(per_million: int, fixed: int, *, many: int = 12, **details: str) -> Iterator[FeeLine]:
    rule = ExpectedFee(source="card", currency="EUR", per_million=per_million, fixed=fixed)
    for number in range(many):
        gross = 1_990 + 730 * number
        stated = json.dumps(details) if details else None
        yield FeeLine("card", "EUR", gross, rule.of(gross), stated)


def told(found: list[FeeLine]) -> list[tuple[dict[str, tuple[str, ...]], int, int, int, int]]:
    return [
        (dict(each.rule.where), each.rule.per_million, each.rule.fixed, each.lines, each.exact)
        for each in suggested_fees(found)
    ]


def test_one_tariff_is_one_rule() -> None:
    assert told(list(lines(14_000, 25))) == [({}, 14_000, 25, 12, 12)]


def test_tariffs_are_told_apart_by_the_fewest_details() -> None:
    """Values of one tariff are joined; the commonest tariff is the general rule, and last."""
    found = [
        *lines(14_000, 25, card_country="DE", scheme="visa"),
        *lines(14_000, 25, card_country="FR", scheme="mastercard"),
        *lines(14_000, 25, card_country="AT", scheme="visa"),
        *lines(25_000, 25, card_country="GB", scheme="visa"),
        *lines(25_000, 25, card_country="CH", scheme="mastercard"),
        *lines(32_500, 25, card_country="US", scheme="visa"),
    ]
    assert told(found) == [
        ({"card_country": ("CH", "GB")}, 25_000, 25, 24, 24),
        ({"card_country": ("US",)}, 32_500, 25, 12, 12),
        ({}, 14_000, 25, 36, 36),
    ]


def test_the_general_rule_explains_values_of_which_there_are_few_lines() -> None:
    """Cards of home are special, if all others have one tariff."""
    found = [
        *lines(15_000, 25, many=30, card_country="DE"),
        *lines(32_500, 25, card_country="US"),
        *lines(32_500, 25, many=2, card_country="JP"),
    ]
    assert told(found) == [
        ({"card_country": ("DE",)}, 15_000, 25, 30, 30),
        ({}, 32_500, 25, 14, 14),
    ]


def test_two_details_are_used_where_one_does_not_explain_the_fees() -> None:
    found = [
        *lines(14_000, 25, method="card", card_country="DE"),
        *lines(29_000, 25, method="card", card_country="US"),
        *lines(8_000, 0, method="sepa", card_country="DE"),
        *lines(14_000, 25, method="card", card_country="FR"),
    ]
    assert told(found) == [
        ({"card_country": ("DE",), "method": ("sepa",)}, 8_000, 0, 12, 12),
        ({"card_country": ("US",), "method": ("card",)}, 29_000, 25, 12, 12),
        ({}, 14_000, 25, 24, 24),
    ]


def test_a_fee_beside_the_tariff_is_not_explained() -> None:
    found = [*lines(14_000, 25), FeeLine("card", "EUR", 5_000, 300)]
    assert told(found) == [({}, 14_000, 25, 13, 12)]


@for_each(("points", "tariff", "exact"), [
    # Rounding hides the percentage: it is a step below or above the usual slope.
    ([(1_117, 43), (2_177, 32), (2_308, 33), (2_956, 43)], (14_500, 0), 3),
    ([(1_187, 34), (1_514, 177), (2_777, 81), (2_997, 87)], (29_000, 0), 3),
    # Two lines of a kind stand beside others whose slopes lie around theirs.
    ([(2_226, 57), (3_395, 74), (4_193, 299), (8_708, 151)], (14_500, 25), 3),
    ([(269, 113), (448, 7), (459, 7), (469, 7), (596, 9)], (15_000, 0), 4),
    # The whole amount.
    ([(1_000, 1_000), (2_000, 2_000), (3_500, 3_500)], (1_000_000, 0), 3),
    # 1.41 % explains these fees too.
    ([(1_000, 14), (1_500, 21), (2_000, 28), (2_500, 35)], (14_000, 0), 4),
    # Of two fixed parts the smaller one.
    ([(100_000, 2_930), (200_000, 5_830), (300_000, 8_730),
      (900_000, 26_105), (1_000_000, 29_005), (1_100_000, 31_905)], (29_000, 5), 3),
])  # fmt: skip
def test_the_roundest_tariff_that_explains_the_most_lines_is_suggested(
    points: list[tuple[int, int]], tariff: tuple[int, int], exact: int
) -> None:
    found = [FeeLine("card", "EUR", gross, fee) for gross, fee in points]
    assert told(found) == [({}, *tariff, len(points), exact)]


def test_of_details_that_explain_as_much_the_first_by_name_is_used() -> None:
    found = [
        *lines(14_000, 25, country="DE", method="card"),
        *lines(29_000, 25, country="US", method="wire", many=9),
        FeeLine("card", "EUR", 5_000, 300, '{"country": "DE", "method": "card"}'),
    ]
    assert told(found) == [({"country": ("US",)}, 29_000, 25, 9, 9), ({}, 14_000, 25, 13, 12)]


@for_each("found", [
    [], list(lines(14_000, 25, many=2)), [FeeLine("card", "EUR", 1_000, 40)] * 9,
])  # fmt: skip
def test_too_few_lines_suggest_nothing(found: list[FeeLine]) -> None:
    assert told(found) == []


@given(
    st.integers(1, 80).map(lambda each: each * 500),
    st.integers(0, 100),
    st.lists(st.integers(500, 2_000_000), min_size=8, max_size=30, unique=True),
)
def test_any_usual_tariff_is_explained(per_million: int, fixed: int, grosses: list[int]) -> None:
    """Rounding may hide the true percentage, but each line's fee is explained to a unit."""
    rule = ExpectedFee(source="card", currency="EUR", per_million=per_million, fixed=fixed)
    found = [FeeLine("card", "EUR", gross, rule.of(gross)) for gross in grosses]
    (suggested,) = suggested_fees(found)
    assert suggested.exact >= len(found) * 3 // 4


def test_the_first_rule_that_fits_a_line_counts() -> None:
    """In any case of letters; an empty value means that the line does not state it."""

    def rule(percent: int, **where: tuple[str, ...]) -> ExpectedFee:
        return ExpectedFee(
            source="card", currency="EUR", per_million=percent * 10_000, where=tuple(where.items())
        )

    fees = (
        rule(1, method=("card",), card_country=("DE", "")),
        rule(2, method=("card",)),
        rule(3, method=("sepa", "ideal")),
    )
    terms = Terms(rules=MatchRules(fees=fees), as_of=AS_OF, coverage=COVERAGE)

    def fee(**details: str) -> int | None:
        stated = json.dumps(details) if details else None
        found = terms.expected_fee(10_000, source="card", currency="EUR", details=stated)
        return None if found is None else found[0]

    assert fee(method="Card", card_country="de") == 100
    assert fee(method="card") == 100
    assert fee(method="card", card_country="US") == 200
    assert fee(method="IDEAL") == 300
    assert (fee(method="wire"), fee()) == (None, None)
