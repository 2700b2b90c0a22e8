"""Rows that one matching leaves over and another takes over: reported as one matching would do.
Cases: two orders and several book lines of one key, some paired by people."""

from collections.abc import Sequence
from itertools import product
from unittest.mock import patch

import pytest

from reconcile.matching.books import BookStatus
from reconcile.matching.breaks import Break
from reconcile.matching.match import Decision, Matching
from reconcile.matching.rules import HandMatch
from tests.reconcile.books_cases import case, decided
from tests.reconcile.books_truth import AS_OF, COVERAGE, RULES, TROUBLES, Case, streams
from tests.rows import for_each

Hands = tuple[tuple[str, str], ...]
Summary = tuple[list[tuple[str, str, int]], list[str]]


def at_once(cases: list[Case], hands: Hands) -> Summary:
    """Return (cause or kind, order, minor units) of all reports, and the totals."""
    decisions, control = decided(*cases, hands=hands)
    return _said(decisions), sorted(map(str, control.lines))


def in_two(cases: list[Case], hands: Hands) -> Summary:
    """Return the same of a matching that absorbs what another left over."""
    paired = [HandMatch(one=one, other=other) for one, other in hands]
    part, whole = (
        Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE, hands=paired) for _ in range(2)
    )
    reported = list(
        part.by_key(
            **streams(*cases),
        )
    )
    whole.absorb(part.part())
    reported += whole.rest()
    control = whole.control()
    assert control.holds
    return _said(reported), sorted(map(str, control.lines))


def _said(decisions: Sequence[Decision]) -> list[tuple[str, str, int]]:
    return sorted(
        (each.cause if isinstance(each, Break) else each.kind, str(each.order), each.money.minor)
        for each in decisions
    )


@pytest.mark.slow
@for_each("paired", [(0,), (1,), (0, 1), (0, 1, 2)])
@for_each("reference", ["ORD-1", "ord-1"])
def test_what_people_paired_of_one_key(paired: tuple[int, ...], reference: str) -> None:
    hands = tuple(("ORD-1", f"bok_ORD-1_{place}") for place in paired)
    states: tuple[BookStatus, ...] = ("paid", "unpaid")
    for second, more, group, status, third in product(
        (600, 700, 1_500), (700, 600, 1_500), (None, "G"), states, (None, 600, 800)
    ):
        one = case("ORD-1").pays().books()
        one.books(status, minor=more, group=group, reference=reference).settles()
        if third is not None:
            one.books(minor=third, group="G", reference="ord-1")
        cases = [one, case("ord-1", second).pays().settles()]
        assert in_two(cases, hands) == at_once(cases, hands), (second, more, group, status, third)


@for_each("room", [0, 1])
@for_each("kind", TROUBLES)
def test_what_two_parts_leave_over_is_decided_as_in_one_matching(kind: str, room: int) -> None:
    cases = [TROUBLES[kind](case(name)) for name in ("ORD-1", "ORD-2")]
    one, whole, *parts = (Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE) for _ in range(4))
    with patch("reconcile.matching.funds.MOST_LEFT", room):
        at_once = list(one.decide(**streams(*cases)))
        reported: list[Decision] = []
        for each, part in zip(cases, parts, strict=True):
            reported += part.by_key(**streams(each))
            whole.absorb(part.part())
        reported += whole.rest()
    assert sorted(map(repr, reported)) == sorted(map(repr, at_once))
    assert whole.control() == one.control()
    assert list(whole.unsettled()) == list(one.unsettled())
