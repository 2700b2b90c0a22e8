"""The order law on twelve hard histories: every arrival order of eight events, and of nine
deliveries of which one is a redelivery. The short form tries some of them, the long form all."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from random import Random

import pytest

from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from tests.reconcile import laws
from tests.reconcile.build import POLICY
from tests.reconcile.test_laws_catch_broken_folds import first_body_wins
from tests.reconcile.twelve import LAST, TWELVE, Story

EVERY = pytest.mark.parametrize("story", TWELVE, ids=[story.name for story in TWELVE])
SOME = 15

Order = Sequence[Delivery]


def eights(story: Story) -> Iterator[Order]:
    return permutations(story.arrivals)


def nines(story: Story) -> Iterator[Order]:
    """Yield all 181,440 orders in which the redelivery comes after its first delivery."""
    first, again = story.arrivals[story.redelivered], story.again
    for order in permutations((*story.arrivals, again)):
        if order.index(first) < order.index(again):
            yield order


def shuffled(story: Story, *more: Delivery) -> Iterator[Order]:
    """Yield some orders, equal in every run, and the reverse order."""
    members, rng = [*story.arrivals, *more], Random(story.name)
    yield members[::-1]
    for _ in range(SOME - 1):
        rng.shuffle(members)
        yield tuple(members)


def tried(story: Story, orders: Iterator[Order], *more: Delivery, broken: laws.Fold = fold) -> int:
    """Return how many orders gave the same ledger and explanation, to the byte."""
    whole = story.history(*more)
    seen = ([*order, *story.records] for order in orders)
    return laws.order_law(broken, whole, seen, as_of=LAST)


def test_the_twelve_are_as_hard_as_they_should_be() -> None:
    ledgers = [fold(story.history(story.again), policy=POLICY, as_of=LAST) for story in TWELVE]
    for story in TWELVE:
        assert len({each.event.key for each in story.arrivals}) == 8
    outcomes = {ledger.outcome for ledger in ledgers}
    found = {finding.code for ledger in ledgers for finding in ledger.findings}
    outcomes_of_money = {"succeeded", "unresolved", "refunded", "disputed", "charged_back"}
    assert outcomes >= {*outcomes_of_money, "expired"}
    assert found >= {
        *("same_id_different_body", "conflicting_amounts", "contradictory_claims", "redelivered"),
        *("semantic_duplicate", "out_of_order", "delivered_late", "recovered_on_later_attempt"),
        *("refund_exceeds_capture", "paid_after_cancel", "success_after_deadline"),
        *("dated_in_future", "order_unknown", "unrecognized_event", "unread_money_event"),
        *("refund_pending", "refund_failed", "dispute_open", "dispute_lost", "dispute_won"),
    }


@EVERY
def test_some_orders_of_eight_events_and_with_one_doubled(story: Story) -> None:
    """Law 1: byte-identical ledgers and explanations."""
    assert tried(story, shuffled(story)) == SOME
    assert tried(story, shuffled(story, story.again), story.again) == SOME


def caught(broken: laws.Fold) -> int:
    """Return for how many of the twelve some orders show that a fold depends on the order."""
    found = 0
    for story in TWELVE:
        try:
            tried(story, shuffled(story, story.again), story.again, broken=broken)
        except AssertionError:
            found += 1
    return found


def test_a_fold_that_keeps_the_first_body_is_caught() -> None:
    assert caught(first_body_wins) >= 2


def test_a_fold_that_leaves_ties_as_they_came_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconcile.ledger.correlate.by_date", lambda heard: heard.at)
    assert caught(fold) >= 10


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@EVERY
def test_all_40320_orders_of_eight_events(story: Story) -> None:
    assert tried(story, eights(story)) == 40_320


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@EVERY
def test_all_181440_orders_with_one_event_doubled(story: Story) -> None:
    assert tried(story, nines(story), story.again) == 181_440
