"""The laws on generated histories. `TALLYHOOK_LONG=1` searches a hundred times longer."""

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from reconcile.instants import SECOND, Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.reconcile import laws
from tests.reconcile.build import ORDER, POLICY, event, record, seconds
from tests.reconcile.strategies import (
    OFFSETS,
    histories,
    moments,
    positions,
    strangers,
    takings_away,
    tied_histories,
)

pytestmark = pytest.mark.slow

EXAMPLES = 20_000 if os.environ.get("TALLYHOOK_LONG") else 15

search = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="TALLYHOOK_LONG" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@search
@given(histories(), moments(), st.data())
def test_law_1_order(history: History, as_of: Instant, data: st.DataObject) -> None:
    """Any order of arrival gives the byte-identical ledger."""
    members = sorted([*history.deliveries, *history.records], key=repr)
    shuffled = [data.draw(st.permutations(members)) for _ in range(2)]
    laws.order_law(fold, history, [members, members[::-1], *shuffled], as_of=as_of)
    ones = data.draw(st.permutations(laws.parts(history)))
    laws.union_law(fold, history, ones, as_of=as_of)


@search
@given(histories(), moments(), st.data())
def test_law_2_duplication(history: History, as_of: Instant, data: st.DataObject) -> None:
    """Union is idempotent, and a redelivery changes only counts."""
    assume(history.deliveries)
    chosen = data.draw(st.sampled_from(sorted(history.deliveries, key=lambda d: d.delivery_id)))
    delay = data.draw(st.sampled_from(OFFSETS)) * SECOND
    again = replace(chosen, delivery_id="again", received_at=chosen.received_at + delay)
    laws.duplication_law(fold, history, again, as_of=as_of)


@search
@given(histories(), moments(), st.data())
def test_law_3_grouping(history: History, as_of: Instant, data: st.DataObject) -> None:
    """Any split, folded on the way and rejoined in any order, gives the same ledger."""
    members = sorted([*history.deliveries, *history.records], key=repr)
    marks = [data.draw(st.integers(0, 2)) for _ in members]
    groups = [
        History(
            order=ORDER,
            deliveries=frozenset(m for m in part if isinstance(m, Delivery)),
            records=frozenset(m for m in part if isinstance(m, Record)),
        )
        for part in ([m for m, mark in zip(members, marks, strict=True) if mark == n]
                     for n in range(3))
    ]  # fmt: skip
    laws.grouping_law(fold, history, data.draw(st.permutations(groups)), as_of)


@search
@given(histories(), moments(), moments())
def test_law_4_growth(history: History, one: Instant, other: Instant) -> None:
    """Earlier knowledge is a subset of later."""
    laws.growth_law(fold, history, min(one, other), max(one, other))


@search
@given(histories(), moments())
def test_law_5_time_travel(history: History, as_of: Instant) -> None:
    """The ledger at an instant needs nothing that came after it."""
    laws.time_travel_law(fold, history, as_of)


@search
@given(histories(), histories(), moments())
def test_law_6_locality(history: History, other: History, as_of: Instant) -> None:
    """Other orders' events and records change nothing."""
    laws.locality_law(fold, history, moved_away(other), as_of)


def moved_away(history: History) -> History:
    """Return the same evidence about ORD-9, with ids and references of its own."""
    return History(
        order=ORDER,
        deliveries=frozenset(_away(d) for d in history.deliveries),
        records=frozenset(
            replace(
                r,
                record_id="x" + r.record_id,
                order="ORD-9",
                session=r.session and "x" + r.session,
                payment=r.payment and "x" + r.payment,
            )
            for r in history.records
        ),
    )


def _away(delivery: Delivery) -> Delivery:
    e = delivery.event
    event = replace(
        e,
        event_id="x" + e.event_id,
        digest="x" + e.digest,
        order="ORD-9",
        session=e.session and "x" + e.session,
        payment=e.payment and "x" + e.payment,
    )
    return replace(delivery, delivery_id="x" + delivery.delivery_id, event=event)


@search
@given(histories() | tied_histories(), moments())
def test_law_7_honest_explanations(history: History, as_of: Instant) -> None:
    """Folding only what the explanation cites gives the same outcome."""
    laws.honest_law(fold, history, as_of)


@search
@given(histories(), moments())
def test_law_8_quiet(history: History, as_of: Instant) -> None:
    """Without new evidence nothing changes before next_decision_at; at it something does."""
    laws.quiet_law(fold, history, as_of)


def accepting(history: History, *, policy: Policy, as_of: Instant) -> Ledger:
    """Fold with discounts at providers accepted."""
    accepts = replace(policy, provider_discount_percent=60)
    return fold(history, policy=accepts, as_of=as_of)


@search
@given(histories(), strangers(), takings_away(), moments(), st.sampled_from((5_000, 15_000)))
def test_discounts_that_are_accepted_keep_the_laws_of_money(
    history: History, strange: list[Delivery], taking: Delivery, as_of: Instant, price: int
) -> None:
    placed = record("rec_p", "order_placed", 200_001, money=Money(minor=price, currency="KES"))
    priced = history | History(order=ORDER, records=frozenset([placed]))
    laws.stranger_law(accepting, priced, strange, as_of)
    laws.direction_law(accepting, priced, taking, as_of)
    laws.conservation_law(accepting, priced, as_of)


def holding(history: History, *, policy: Policy, as_of: Instant) -> Ledger:
    """Fold with amounts held to the price."""
    return fold(history, policy=replace(policy, mismatch_held=("shop",)), as_of=as_of)


@search
@given(histories() | tied_histories(), histories(), takings_away(), moments())
def test_payments_that_are_held_to_the_price_keep_the_laws(
    history: History, other: History, taking: Delivery, as_of: Instant
) -> None:
    laws.time_travel_law(holding, history, as_of)
    laws.locality_law(holding, history, moved_away(other), as_of)
    laws.honest_law(holding, history, as_of)
    laws.quiet_law(holding, history, as_of)
    laws.conservation_law(holding, history, as_of)
    laws.direction_law(holding, history, taking, as_of)


@search
@given(histories(), moments())
def test_law_9_conservation(history: History, as_of: Instant) -> None:
    """Captured less returned equals the sum of the entries, per currency."""
    laws.conservation_law(fold, history, as_of)


@search
@given(histories(), takings_away(), moments())
def test_law_10_direction(history: History, taking: Delivery, as_of: Instant) -> None:
    """No event that takes money away makes an order fulfillable."""
    laws.direction_law(fold, history, taking, as_of)


@search
@given(positions(), moments(), st.sampled_from((None, 5_000, 15_000)))
def test_law_10_positions(
    stated: tuple[list[Delivery], Delivery], as_of: Instant, signed: int | None
) -> None:
    """No answer that states as much gone back as any other makes an order fulfillable."""
    answers, taking = stated
    placed = record("rec_p", "order_placed", 0, money=Money(minor=15_000, currency="KES"))
    paid = event("e_c", "succeeded", 0, payment="pay_1", money=Money(minor=15_000, currency="KES"))
    heard = [*answers, Delivery(delivery_id="d_c", received_at=seconds(0), event=paid)]
    known = History(order=ORDER, deliveries=frozenset(heard), records=frozenset([placed]))
    if signed is not None:
        refund = event("e_r", "refunded", 5, payment="pay_1", movement="m_1")
        money = Money(minor=signed, currency="KES")
        back = Delivery(
            delivery_id="d_r", received_at=seconds(5), event=replace(refund, money=money)
        )
        known |= History(order=ORDER, deliveries=frozenset([back]))
    before = fold(known, policy=POLICY, as_of=as_of)
    more = known | History(order=ORDER, deliveries=frozenset([taking]))
    assert before.fulfillable or not fold(more, policy=POLICY, as_of=as_of).fulfillable


@search
@given(histories(), strangers(), moments(), st.sampled_from((5_000, 10_000, 15_000)))
def test_law_10_strangers(
    history: History, strange: list[Delivery], as_of: Instant, price: int
) -> None:
    """No event of another payment stops an order that may be fulfilled."""
    placed = record("rec_p", "order_placed", 200_001, money=Money(minor=price, currency="KES"))
    priced = history | History(order=ORDER, records=frozenset([placed]))
    laws.stranger_law(fold, priced, strange, as_of)
