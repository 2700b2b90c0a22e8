"""Answers that state a position: which of them are stored, and when the provider is asked again."""

from dataclasses import replace

import pytest

from app.receiving.confirm import says_nothing_new
from reconcile.instants import HOUR, NO_TIME, SECOND, Duration
from reconcile.ledger.events import Event, State
from reconcile.money import Money
from tests.reconcile.build import T, event


def answer(refunded: int, *, after: Duration) -> Event:
    """Return an answer that states a sum of refunds."""
    state = State(member="refunded", money=Money(minor=refunded, currency="KES"))
    made = event(f"a{after}", "succeeded", 0, payment="p", standing="fetched")
    return replace(made, states=(state,), stated_at=T + after)


FIRST, UNDONE = answer(90, after=NO_TIME), answer(0, after=10 * SECOND)


@pytest.mark.parametrize(
    ("new", "known", "nothing_new"),
    [
        (FIRST, [], False),
        (answer(90, after=2 * HOUR), [FIRST], True),
        (UNDONE, [FIRST], False),
        (answer(0, after=HOUR), [UNDONE, FIRST], True),
        (answer(0, after=HOUR + 10 * SECOND), [UNDONE, FIRST], False),
        (answer(0, after=9 * HOUR), [answer(0, after=2 * HOUR), UNDONE], True),
    ],
    ids=["the first", "a repetition", "a change", "too early", "repeats an undoing", "once"],
)
def test_an_equal_answer_is_stored_again_only_where_it_repeats_an_undoing_an_hour_later(
    new: Event, known: list[Event], nothing_new: bool
) -> None:
    assert says_nothing_new(new, known) == nothing_new
