"""The laws on one history: arrival orders of seven deliveries, which hold a redelivery, one id with
two bodies, and a contradiction. The long form tries all 5,040 orders."""

from itertools import islice, permutations

import pytest

from reconcile.instants import SECOND, Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold, is_known
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import Record
from tests.reconcile import laws
from tests.reconcile.build import (
    DUE,
    ORDER,
    POLICY,
    delivery,
    event,
    history,
    record,
    seconds,
    seven_deliveries,
)
from tests.rows import for_each
from tests.searching import every

SEVEN = seven_deliveries()
INSTANTS = [seconds(12), seconds(16), seconds(100)]
SOME = every(61)
"""One order in so many of the 5,040."""

TRIED = -(-5_040 // SOME)


def test_the_seven_deliveries_are_as_hard_as_they_should_be() -> None:
    ledger = fold(history(*SEVEN), policy=POLICY, as_of=seconds(100))
    found = {finding.code for finding in ledger.findings}
    assert {"redelivered", "same_id_different_body", "contradictory_claims"} <= found
    assert ledger.outcome == "unresolved"
    outcomes = [fold(history(*SEVEN), policy=POLICY, as_of=i).outcome for i in INSTANTS]
    assert outcomes == ["pending", "succeeded", "unresolved"]


@for_each("as_of", INSTANTS)
def test_law_1_arrival_orders_give_byte_identical_ledgers(as_of: Instant) -> None:
    some = islice(permutations(SEVEN), 0, None, SOME)
    assert laws.order_law(fold, history(*SEVEN), some, as_of=as_of) == TRIED


def test_law_1_an_event_without_a_date_is_dated_by_its_first_arrival_in_all_orders() -> None:
    undated = event("evt_1", "succeeded", None, payment="pay_1", money=DUE)
    declined = event("evt_2", "declined", 20, payment="pay_1")
    four = [delivery(f"d{n}", at, undated) for n, at in enumerate((30, 10, 25))]
    four.append(delivery("d9", 21, declined))
    whole = history(*four)
    assert laws.order_law(fold, whole, permutations(four), as_of=seconds(100)) == 24
    ledger = fold(whole, policy=POLICY, as_of=seconds(100))
    assert [entry.at for entry in ledger.entries] == [seconds(10)]


def test_law_1_orders_of_union_give_byte_identical_ledgers() -> None:
    for tried, order in enumerate(islice(permutations(range(7)), 0, None, SOME)):
        fresh = seven_deliveries() if tried % 7 == 0 else SEVEN
        ones = [history(fresh[place]) for place in order]
        laws.union_law(fold, history(*SEVEN), ones, as_of=seconds(100))


def test_law_1_assignments_of_arrival_times_give_the_same_judgement() -> None:
    times = [d.received_at for d in SEVEN]
    expected = judged(fold(history(*SEVEN), policy=POLICY, as_of=seconds(100)))
    for assigned in islice(permutations(times), 0, None, SOME):
        moved = [
            Delivery(delivery_id=d.delivery_id, received_at=at, event=d.event)
            for d, at in zip(SEVEN, assigned, strict=True)
        ]
        assert judged(fold(history(*moved), policy=POLICY, as_of=seconds(100))) == expected


def judged(ledger: Ledger) -> tuple[object, ...]:
    """Return what must not depend on arrival times if every event is dated."""
    arrival = ("out_of_order", "delivered_late", "success_after_deadline", "dated_in_future")
    return (
        ledger.outcome,
        ledger.fulfillable,
        ledger.expected,
        ledger.balances,
        ledger.attempts,
        ledger.entries,
        ledger.reasons,
        tuple(f for f in ledger.findings if f.code not in arrival),
    )


def test_law_2_every_doubled_delivery_changes_only_counts() -> None:
    for again in SEVEN:
        for delay in (1, 50, 5_000):
            more = Delivery(
                delivery_id="again",
                received_at=again.received_at + delay * SECOND,
                event=again.event,
            )
            laws.duplication_law(fold, history(*SEVEN), more, as_of=seconds(6_000))


def test_law_3_every_split_in_two_rejoins_to_the_same_ledger() -> None:
    whole = history(*SEVEN)
    for mask in range(128):
        halves = [
            history(*[d for n, d in enumerate(SEVEN) if bool(mask >> n & 1) == side])
            for side in (True, False)
        ]
        laws.grouping_law(fold, whole, halves, seconds(100))


def test_laws_4_5_7_8_9_hold_at_every_instant_of_the_seven() -> None:
    """Growth, time travel, honest explanations, quiet and conservation, second by second."""
    whole = history(*SEVEN, record("rec_1", "order_placed", 0))
    for at in [*range(22), 2_099, 2_100, 2_109, 2_110, 2_111, 10**6]:
        for later in (at, at + 1, 5_000):
            laws.growth_law(fold, whole, seconds(at), seconds(later))
        laws.time_travel_law(fold, whole, seconds(at))
        laws.honest_law(fold, whole, seconds(at))
        laws.quiet_law(fold, whole, seconds(at))
        laws.conservation_law(fold, whole, seconds(at))


def test_law_6_deliveries_of_another_order_change_nothing() -> None:
    others = [
        Delivery(
            delivery_id="x" + d.delivery_id,
            received_at=d.received_at,
            event=type(d.event)(
                source="shop",
                event_id="x" + d.event.event_id,
                digest="x" + d.event.digest,
                kind=d.event.kind,
                claim=d.event.claim,
                occurred_at=d.event.occurred_at,
                order="ORD-2",
                session="cs_x",
                payment="x" + (d.event.payment or ""),
                money=d.event.money,
            ),
        )
        for d in SEVEN
    ]
    crowd = History(order=ORDER, deliveries=frozenset(others))
    for at in INSTANTS:
        laws.locality_law(fold, history(*SEVEN), crowd, at)


@pytest.mark.parametrize(
    "makes",
    [
        record("rec_1", "order_placed", 9, money=DUE),
        delivery("d5", 9, event("evt_5", "declined", 9, payment="pay_2")),
        delivery("d5", 9, event("evt_5", "succeeded", 9, payment="b2c_1", money=DUE)),
        delivery("d5", 9, event("evt_5", "succeeded", 9, order="ORD-2", payment="b2c_1")),
    ],
    ids=["the shop", "another payment", "its payment", "another order"],
)
def test_laws_1_4_5_7_and_9_hold_over_what_makes_the_order_of_a_refund_of_no_payment(
    makes: Delivery | Record,
) -> None:
    back = event("evt_1", "refunded", 2, payment="b2c_1", money=DUE, standalone=True)
    again = event("evt_2", "refunded", 3, movement="m_2", money=DUE, standalone=True)
    members = [delivery("d1", 4, back), delivery("d2", 5, back), delivery("d3", 6, again), makes]
    whole = history(*members)
    assert laws.order_law(fold, whole, permutations(members), as_of=seconds(99)) == 24
    assert (ledger := fold(whole, policy=POLICY, as_of=seconds(8))).entries == ()
    assert not is_known(ledger)
    assert is_known(fold(whole, policy=POLICY, as_of=seconds(9)))
    for at in (3, 4, 8, 9, 99):
        laws.growth_law(fold, whole, seconds(at), seconds(99))
        laws.time_travel_law(fold, whole, seconds(at))
        laws.honest_law(fold, whole, seconds(at))
        laws.conservation_law(fold, whole, seconds(at))
