"""Changes by other rules: newly matched, lost, changed, with the money."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from reconcile.instants import DAY, HOUR, Instant
from reconcile.matching.breaks import Break
from reconcile.matching.match import Matching, MatchingPart, compare
from reconcile.matching.rules import MatchRules
from tests.reconcile.books_cases import AT, case, causes, decided
from tests.reconcile.books_strategies import World, worlds
from tests.reconcile.books_truth import AS_OF, COVERAGE, RULES, Case, streams
from tests.reconcile.test_match_laws import search
from tests.reconcile.test_match_rest import WINDOW
from tests.rows import for_each

STRICT = replace(RULES, tolerances=())


def changes(*cases: Case, before: MatchRules, after: MatchRules) -> list[tuple[str, str, int]]:
    """Return (effect, cause or kind, minor units) of each change."""
    reported = compare(decided(*cases, rules=before)[0], decided(*cases, rules=after)[0])
    return [
        (each.effect, getattr(each.before or each.after, "cause", "match"), each.money.minor)
        for each in reported
    ]


def test_a_tolerance_newly_matches_what_it_lets_pass() -> None:
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
    patient = replace(RULES, settle_margin=100 * DAY)
    assert changes(case().pays().books(), before=RULES, after=patient) == [
        ("gone_break", "not_settled", 1_500)
    ]


def test_another_expected_fee_changes_the_money_of_a_break() -> None:
    (fee,) = RULES.fees
    dearer = replace(RULES, fees=(replace(fee, fixed=50),))
    made = case().pays().books().settles(fee=10_000)
    assert changes(made, before=RULES, after=dearer) == [("changed", "fee_unexpected", 9_927)]


@pytest.mark.slow
@settings(search, max_examples=search.max_examples // 3)
@given(worlds(), worlds())
def test_a_comparison_is_exactly_what_differs(one: World, other: World) -> None:
    """Nothing between equals; swapped, the reverse; applied to the first, the second."""
    before, after = one.decided()[0], other.decided()[0]
    assert list(compare(before, before)) == []
    reported = list(compare(before, after))
    assert {(c.identity, c.before, c.after) for c in compare(after, before)} == {
        (c.identity, c.after, c.before) for c in reported
    }
    applied = {each.identity: each for each in before}
    for change in reported:
        assert applied.get(change.identity) == change.before
        if change.after is None:
            del applied[change.identity]
        else:
            applied[change.identity] = change.after
    assert applied == {each.identity: each for each in after}


@for_each("beside", [0, 1, 2])
@for_each("turned", [False, True])
def test_what_changed_is_reported_with_both_sides_whichever_is_met_first(
    beside: int, turned: bool
) -> None:
    (old,) = decided(case().pays().books(minor=2_000).settles())[0]
    (new,) = decided(case().pays().books(minor=2_100).settles())[0]
    others = [decided(case(f"X{n}").books())[0][0] for n in range(beside)]
    before, after = ([old], [*others, new]) if turned else ([*others, old], [new])
    reported = list(compare(before, after))
    assert [(e.before, e.after) for e in reported if e.effect == "changed"] == [(old, new)]
    assert sorted(each.identity for each in reported if each.effect != "changed") == sorted(
        each.identity for each in others
    )
    only = {each.effect for each in reported} - {"changed"}
    assert only == (set() if not beside else {"new_break"} if turned else {"gone_break"})
    assert [each.money for each in reported if each.effect == "changed"] == [new.money]


def left_over(*cases: Case, as_of: Instant = AS_OF) -> MatchingPart:
    part = Matching(rules=WINDOW, as_of=as_of, coverage=COVERAGE)
    reported = part.by_key(
        **streams(*cases),
    )
    assert list(reported) == []
    return part.part()


def test_parts_may_be_absorbed_in_any_order() -> None:
    reported = []
    for order in (0, 1):
        parts = [
            [
                made
                for n in numbers
                for made in (
                    case(f"A{n}", 700 + n).pays().settles(),
                    case(f"B{n}", 800 + n).books(),
                    case(f"C{n}", 900 + n).books("unpaid"),
                    case(f"D{n}", 600 + n).settles(),
                    case(f"E{n}", 500 + n).pays().books(),
                )
            ]
            for numbers in ((1, 3), (2,))
        ]
        whole = Matching(rules=WINDOW, as_of=AS_OF, coverage=COVERAGE)
        for each in (parts, parts[::-1])[order]:
            whole.absorb(left_over(*each))
        reported.append(list(whole.rest()))
        assert whole.control().holds
    assert [each.identity for each in reported[0]] == [each.identity for each in reported[1]]
    assert [str(each.order) for each in reported[0] if isinstance(each, Break)] == [
        f"{letter}{n}" for letter in "ABDE" for n in (1, 2, 3)
    ]


@for_each("turned", [False, True])
def test_unsettled_captures_beyond_the_limit_of_parts_are_summed_by_age(
    turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconcile.matching.funds.MOST_LEFT", 0)
    older, newer = AT, AT + 3 * DAY
    cases = [
        [case("A1", 700, at=older).pays().books(), case("B1", 800, at=newer).pays().books()],
        [case("A2", 600, at=older).pays().books()],
    ]
    whole = Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE)
    for each in cases[::-1] if turned else cases:
        part = Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE)
        assert causes(list(part.by_key(**streams(*each)))) == ["not_settled"] * len(each)
        whole.absorb(part.part())
    young, old = whole.unsettled()
    assert (young.number, young.minor) == (1, 800)
    assert (old.number, old.minor, old.days) == (2, 1_300, young.days + 3)


@for_each("turned", [False, True])
def test_what_is_ambiguous_is_reported_in_one_order_whichever_part_had_it(turned: bool) -> None:
    soon = AT + 3 * HOUR
    parts = []
    for n in (1, 2):
        awaited = case(f"A{n}").pays(payment="same").books()
        order = case(f"MEM-{n}", 600).pays().books("unpaid", minor=300, group="G")
        stray = [case("Z").settles(payment="same", order="")] if n == 1 else []
        parts.append(left_over(awaited, order, *stray, as_of=soon))
    whole = Matching(rules=WINDOW, as_of=soon, coverage=COVERAGE)
    for part in parts[::-1] if turned else parts:
        whole.absorb(part)
    found = [e for e in whole.rest() if isinstance(e, Break) and e.cause == "ambiguous"]
    assert [each.order for each in found] == ["A1", "A2", "MEM-1", "MEM-2"]
    assert [len(each.left or ()) for each in found[:2]] == [0, 1]
    ids = ["bok_MEM-1_0.1", "bok_MEM-2_0.1"]
    assert [[each.line for each in one.candidates] for one in found[2:]] == [ids, ids]
    assert whole.control().holds
