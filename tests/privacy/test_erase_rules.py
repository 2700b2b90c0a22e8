"""Conditions that settle an order whose data may not go yet."""

from app.privacy.erase_rules import OTHERWISE, SETTLED_BY, ToSettle, steps_for, to_settle
from reconcile.ledger.vocabulary import FINDINGS
from tests.reconcile.scenario_table import all_scenarios
from tests.reconcile.test_pinned import ledgers_of
from tests.rows import for_each


def test_of_each_finding_that_a_person_must_settle_it_is_known_what_settles_it() -> None:
    """By a break that finance decides, or by a command; a new finding must say by which."""
    errors = {code for code, words in FINDINGS.items() if words.severity == "error"}
    assert SETTLED_BY.keys() | OTHERWISE.keys() == errors | {"unresolved"}
    assert not SETTLED_BY.keys() & OTHERWISE.keys()


@for_each("code", [*SETTLED_BY, *OTHERWISE])
def test_nothing_is_settled_because_there_was_nothing_to_compare_it_with(code: ToSettle) -> None:
    """A run without a line of the book saw no break, and nobody has decided anything."""
    assert steps_for(code, [], "ORD-1", booked=False)
    stays = code in OTHERWISE or code == "fulfilled_but_not_paid"
    assert bool(steps_for(code, [], "ORD-1", booked=True)) == stays


def test_an_order_that_is_unresolved_is_to_be_settled_whatever_else_is_found() -> None:
    """Its own break is of no finding."""
    unresolved = [
        each for one in all_scenarios() for each in ledgers_of(one) if each.outcome == "unresolved"
    ]
    assert all("unresolved" in to_settle(each) for each in unresolved)
    assert any(len(to_settle(each)) > 1 for each in unresolved)
