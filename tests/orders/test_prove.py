"""Cost of proving an order: it grows with its events, and not with their redeliveries."""

from typing import Any

import pytest

from app.orders import prove as proving
from app.orders.prove import EVENTS, LEAST, prove, trials_of
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from tests.reconcile.build import DUE, POLICY, delivery, event, history, seconds


def test_a_trial_folds_two_deliveries_of_each_event_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And one more, redelivered. The whole history is folded once."""
    paid = [event(f"e{n}", "succeeded", n, payment=f"p{n}", money=DUE) for n in range(4)]
    said = [delivery(f"d{n}_{again}", 10 + again, each) for n, each in enumerate(paid)
            for again in range(30)]  # fmt: skip
    folded = list[int]()

    def counting(given: History, **words: Any) -> Any:
        folded.append(len(given.deliveries))
        return fold(given, **words)

    monkeypatch.setattr(proving, "fold", counting)
    found = list(prove(history(*said), policy=POLICY, as_of=seconds(99), shuffles=9, seed=1))
    assert found == [[]] * 9
    assert folded.count(120) == 1
    assert max(each for each in folded if each < 120) <= 9


def test_an_order_with_many_events_has_fewer_trials() -> None:
    """Together they take as long as those of an order with EVENTS events."""
    assert trials_of(EVENTS, shuffles=100) == 100
    assert trials_of(10 * EVENTS, shuffles=100) == 10
    assert trials_of(1_000 * EVENTS, shuffles=100) == LEAST
    assert trials_of(1_000 * EVENTS, shuffles=3) == 3
    assert trials_of(10 * EVENTS, shuffles=1_000) == 100
