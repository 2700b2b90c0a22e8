"""What other rules would change: newly matched, lost, changed, with the money."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from reconcile.instants import DAY
from reconcile.matching.match import compare
from reconcile.matching.rules import MatchRules
from tests.reconcile.books_cases import case, decided
from tests.reconcile.books_strategies import World, worlds
from tests.reconcile.books_truth import RULES, Case
from tests.reconcile.test_match_laws import search

STRICT = replace(RULES, tolerances=())


def changes(*cases: Case, before: MatchRules, after: MatchRules) -> list[tuple[str, str, int]]:
    """(effect, cause or kind, minor units) of each change."""
    told = compare(decided(*cases, rules=before)[0], decided(*cases, rules=after)[0])
    return [
        (each.effect, getattr(each.before or each.after, "cause", "match"), each.money.minor)
        for each in told
    ]


def test_a_tolerance_newly_matches_what_it_lets_pass() -> None:
    """The break goes, the match comes; the other way round it is lost again."""
    near = case().pays().books(minor=1_503).settles()
    far = case("ORD-2").pays().books(minor=1_600).settles()
    assert changes(near, far, before=STRICT, after=RULES) == [
        ("gone_break", "amount_differs", 3),
        ("newly_matched", "match", 1_500),
    ]
    assert changes(near, far, before=RULES, after=STRICT) == [
        ("no_longer_matched", "match", 1_500),
        ("new_break", "amount_differs", 3),
    ]


def test_a_longer_margin_takes_breaks_away() -> None:
    """What is not settled is awaited again."""
    patient = replace(RULES, settle_margin=100 * DAY)
    assert changes(case().pays().books(), before=RULES, after=patient) == [
        ("gone_break", "not_settled", 1_500)
    ]


def test_another_expected_fee_changes_the_money_of_a_break() -> None:
    """The same break, with more at stake."""
    (fee,) = RULES.fees
    dearer = replace(RULES, fees=(replace(fee, fixed=50),))
    made = case().pays().books().settles(fee=10_000)
    assert changes(made, before=RULES, after=dearer) == [("changed", "fee_unexpected", 9_927)]


@pytest.mark.slow
@settings(search, max_examples=search.max_examples // 3)
@given(worlds(), worlds())
def test_a_comparison_is_exactly_what_differs(one: World, other: World) -> None:
    """Nothing changes between equals; swapped, it tells the same the other way round; what is
    told, applied to the before, is the after."""
    before, after = one.decided()[0], other.decided()[0]
    assert list(compare(before, before)) == []
    told = list(compare(before, after))
    assert {(c.identity, c.before, c.after) for c in compare(after, before)} == {
        (c.identity, c.after, c.before) for c in told
    }
    applied = {each.identity: each for each in before}
    for change in told:
        assert applied.get(change.identity) == change.before
        if change.after is None:
            del applied[change.identity]
        else:
            applied[change.identity] = change.after
    assert applied == {each.identity: each for each in after}
