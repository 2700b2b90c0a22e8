"""Histories: sets that only grow, of one order."""

import json

import pytest
from hypothesis import given

from reconcile.instants import TICK, Instant
from reconcile.ledger.history import History
from reconcile.transparency.evidence import history_document, history_of
from tests.reconcile.build import POLICY, delivery, event, history, record, seconds
from tests.reconcile.strategies import histories, moments


@pytest.mark.slow
@given(histories(), histories(), histories())
def test_union_is_a_semilattice(a: History, b: History, c: History) -> None:
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | a == a


@pytest.mark.slow
@given(histories(), moments())
def test_a_history_document_reads_back_as_what_was_known(given: History, as_of: Instant) -> None:
    document = json.loads(json.dumps(history_document(given, policy=POLICY, as_of=as_of)))
    assert history_of(document) == (given.known_at(as_of), POLICY, as_of)


def test_different_orders_have_no_union() -> None:
    with pytest.raises(ValueError, match="different orders"):
        history() | history(order="ORD-2")


def test_known_at_includes_its_instant() -> None:
    whole = history(delivery("d1", 5, event("e1", "pending")), record("r1", "order_placed", 5))
    assert whole.known_at(seconds(5)) == whole
    assert whole.known_at(seconds(5) - TICK) == history()


def test_only_takes_every_cited_record_and_delivery_of_a_cited_event() -> None:
    one, two = event("e1", "pending"), event("e1", "declined")
    cited = (delivery("d1", 1, one), delivery("d2", 2, one), delivery("d3", 3, two))
    placed, canceled = record("r1", "order_placed", 1), record("r2", "order_canceled", 2)
    whole = history(*cited, delivery("d4", 4, event("e2", "pending")), placed, canceled)
    assert whole.only(["e1"]) == history(*cited)
    assert whole.only(["e2", "r1"]) == history(delivery("d4", 4, event("e2", "pending")), placed)


def test_a_fold_is_as_of_now_or_of_the_latest_arrival_beyond_it() -> None:
    whole = history(delivery("d1", 5, event("e1", "pending")), record("r1", "order_placed", 7))
    assert whole.instant_at(seconds(9)) == seconds(9)
    assert whole.instant_at(seconds(6)) == seconds(7)
    late = whole | history(delivery("d2", 8, event("e1", "pending")))
    assert late.instant_at(seconds(6)) == seconds(8)
    corrected = whole | history(record("r2", "redated", 20, replaces="r1"))
    assert corrected.instant_at(seconds(6)) == seconds(7)


def test_what_a_fast_clock_misdated_has_a_stored_and_a_corrected_instant() -> None:
    """The earliest correction of an id counts. A correction that lacks the wrong instant leaves the
    corrected one."""
    other = (delivery("d2", 4, event("e2", "pending")), record("r2", "order_canceled", 4))
    said = event("e1", "pending")
    moves = [
        record("m1", "redated", 5, replaces="d1", expires_at=seconds(90)),
        record("m2", "redated", 6, replaces="d1", expires_at=seconds(91)),
        record("m3", "redated", 7, replaces="r1", expires_at=seconds(92)),
    ]
    corrected = history(delivery("d1", 5, said), record("r1", "order_placed", 7), *other, *moves)
    stored = corrected.as_stored()
    assert stored == history(
        delivery("d1", 90, said),
        record("r1", "order_placed", 7, recorded_at=seconds(92)),
        *other,
        *moves,
    )
    assert stored.as_it_counts() == corrected
    unnamed = history(delivery("d1", 9, said), record("m1", "redated", 5, replaces="d1"))
    assert unnamed.as_stored() == unnamed.as_it_counts()
    assert unnamed.as_stored() == history(
        delivery("d1", 5, said), record("m1", "redated", 5, replaces="d1")
    )
    plain = history(*other)
    assert plain.as_stored() is plain
