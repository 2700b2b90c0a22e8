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


def test_only_takes_every_delivery_of_a_cited_event() -> None:
    one, two = event("e1", "pending"), event("e1", "declined")
    cited = (delivery("d1", 1, one), delivery("d2", 2, one), delivery("d3", 3, two))
    whole = history(*cited, delivery("d4", 4, event("e2", "pending")))
    assert whole.only(["e1"]) == history(*cited)
