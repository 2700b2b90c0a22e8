"""A person's assignment says which order a payment belongs to, whatever else names one."""

from dataclasses import replace
from itertools import islice, permutations
from typing import Any, Final

import pytest

from reconcile.instants import Instant
from reconcile.ledger.correlate import made_by
from reconcile.ledger.events import Delivery, Event
from reconcile.ledger.explain import explain
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import WITHDRAWN, Record
from reconcile.money import Money
from tests.reconcile import laws
from tests.reconcile.build import DUE, ORDER, POLICY, delivery, event, history, record, seconds
from tests.rows import for_each
from tests.searching import every

OTHER = "ORD-2"
ORDERS = (ORDER, OTHER, "ORD-3")
LITTLE: Final = Money(minor=100, currency="KES")


def paid(
    event_id: str = "evt_1", *, order: str | None = None, session: str | None = "cs_1"
) -> Event:
    return event(event_id, "succeeded", 1, order=order, session=session, payment="R1", money=DUE)


def assigned(name: str, at: int, order: str = ORDER, **fields: object) -> Record:
    more = {"source": "shop", "payment": "R1", **fields}
    return record(name, "payment_assigned", at, order=order, **more)


def withdrawn(name: str, at: int, order: str = ORDER) -> Record:
    return assigned(name, at, order, reason=WITHDRAWN)


def priced(order: str) -> Record:
    return record(f"price_{order}", "order_placed", 0, order=order, money=DUE)


MEMBERS: tuple[Delivery | Record, ...] = (
    delivery("d1", 1, paid(order=OTHER)),
    delivery("d2", 2, event("evt_2", "succeeded", 2, order=OTHER, session="cs_1", money=DUE)),
    assigned("rec_1", 10, ORDER),
    withdrawn("rec_2", 20, ORDER),
    assigned("rec_3", 30, "ORD-3", replaces="rec_2"),
    delivery("d3", 40, event("evt_3", "refunded", 40, order=None, payment="R1", money=DUE)),
)
"""An event names ORD-2. A person gives the payment to ORD-1, withdraws that, gives it to ORD-3."""

INSTANTS = {
    5: ("not_attempted", "succeeded", "not_attempted"),
    15: ("succeeded", "not_attempted", "not_attempted"),
    25: ("not_attempted", "succeeded", "not_attempted"),
    35: ("not_attempted", "not_attempted", "succeeded"),
    50: ("not_attempted", "not_attempted", "refunded"),
}
"""The outcomes of ORD-1, ORD-2 and ORD-3 at instants."""


def folded(*members: Delivery | Record, order: str = ORDER, at: int = 100) -> Ledger:
    return fold(history(priced(order), *members, order=order), policy=POLICY, as_of=seconds(at))


def codes(ledger: Ledger) -> set[str]:
    return {finding.code for finding in ledger.findings}


@for_each(("at", "outcomes"), INSTANTS.items())
def test_the_latest_assignment_counts_alone(at: int, outcomes: tuple[str, ...]) -> None:
    ledgers = [folded(*MEMBERS, order=order, at=at) for order in ORDERS]
    assert tuple(each.outcome for each in ledgers) == outcomes
    assert sum(len(each.entries) for each in ledgers) == (2 if at == 50 else 1)
    assert all(each.outcome != "unresolved" for each in ledgers)


@for_each("order", ORDERS)
@for_each("at", INSTANTS)
def test_laws_1_4_5_and_7_hold_over_assign_withdraw_and_assign_elsewhere(
    order: str, at: int
) -> None:
    whole, as_of = history(priced(order), *MEMBERS, order=order), seconds(at)
    some = islice(permutations([priced(order), *MEMBERS]), 0, None, every(61))
    assert laws.order_law(fold, whole, some, as_of=as_of) >= 83
    for earlier in INSTANTS:
        if earlier <= at:
            laws.growth_law(fold, whole, Instant(seconds(earlier)), as_of)
    laws.time_travel_law(fold, whole, as_of)
    laws.honest_law(fold, whole, as_of)
    laws.conservation_law(fold, whole, as_of)


def test_an_entry_cites_the_assignment_that_proves_its_amount_once() -> None:
    answer = event("evt_1", "succeeded", 1, order=None, payment="R1", standing="answered")
    ledger = folded(delivery("d1", 1, answer), assigned("rec_1", 10, money=DUE))
    (entry,) = ledger.entries
    assert (entry.money, entry.cites) == (DUE, ("evt_1", "rec_1"))


def test_an_assignment_outranks_the_shops_naming_and_the_number_in_the_event() -> None:
    named = record("rec_9", "reference_named", 3, order=OTHER, source="shop", payment="R1")
    members = (delivery("d1", 1, paid(order=OTHER)), named, assigned("rec_1", 10))
    mine, other = folded(*members), folded(*members, order=OTHER)
    assert (mine.outcome, mine.fulfillable) == ("succeeded", True)
    assert (other.outcome, other.entries) == ("not_attempted", ())
    assert not {"contradictory_claims", "assignment_contradicted"} & (codes(mine) | codes(other))


def test_the_other_order_keeps_the_events_and_its_own_payment_is_not_in_doubt() -> None:
    own = event("evt_5", "succeeded", 5, order=OTHER, session="cs_1", payment="R2", money=DUE)
    members = (delivery("d1", 1, paid(order=OTHER)), delivery("d5", 5, own), assigned("rec_1", 10))
    other = folded(*members, order=OTHER)
    assert [each.event.event_id for each in other.case.moved] == ["evt_1"]
    assert (other.outcome, other.fulfillable) == ("succeeded", True)
    assert [entry.cites for entry in other.entries] == [("evt_5",)]
    assert (
        "R1 does not count here: a person, or the shop, said that it is not this order's "
        "[evt_1, rec_1]."
    ) in explain(other)


def test_an_event_that_names_only_the_session_follows_the_payment_that_was_assigned() -> None:
    coarse = event("evt_2", "succeeded", 2, order=OTHER, session="cs_1", money=DUE)
    members = (
        delivery("d1", 1, paid(order=OTHER)),
        delivery("d2", 2, coarse),
        assigned("rec_1", 10),
    )
    assert folded(*members, order=OTHER).entries == ()
    mine = folded(*members)
    assert [entry.money for entry in mine.entries] == [DUE]


def test_the_price_that_an_event_states_is_of_the_order_that_it_names() -> None:
    said = event("evt_1", "succeeded", 1, order=OTHER, payment="R1", money=DUE, order_money=DUE)
    members = (delivery("d1", 1, said), assigned("rec_1", 10))
    ledger = fold(history(*members), policy=POLICY, as_of=seconds(100))
    assert (ledger.outcome, ledger.expected, ledger.fulfillable) == ("succeeded", None, False)


@pytest.mark.parametrize(
    ("later", "found"),
    [
        (delivery("d9", 20, paid("evt_9", order=OTHER)), ("rec_1", "evt_9")),
        (
            record("rec_9", "reference_named", 20, order=OTHER, source="shop", payment="R1"),
            ("rec_1", "rec_9"),
        ),
    ],
    ids=["an event", "the shop"],
)
def test_later_evidence_for_another_order_is_a_finding_and_changes_nothing_by_itself(
    later: Delivery | Record, found: tuple[str, ...]
) -> None:
    members = (delivery("d1", 1, paid()), assigned("rec_1", 10))
    before, after = folded(*members), folded(*members, later)
    [finding] = [each for each in after.findings if each.code == "assignment_contradicted"]
    assert (finding.severity, finding.cites) == ("warning", found)
    assert dict(finding.facts)["named"] == OTHER
    assert (after.outcome, after.fulfillable) == (before.outcome, before.fulfillable)
    assert (after.held, "assignment_contradicted" in codes(before)) == (before.held, False)


def test_what_the_assigning_person_could_see_contradicts_nothing() -> None:
    members = (delivery("d1", 1, paid(order=OTHER)), assigned("rec_1", 10))
    assert "assignment_contradicted" not in codes(folded(*members))


def answered(event_id: str, **fields: Any) -> Delivery:
    said = event(event_id, "succeeded", 1, order=None, payment="R1", standing="answered", **fields)
    return delivery(f"d_{event_id}", 1, said)


@for_each(("deliveries", "amounts"), [
    ((answered("evt_1"),), [DUE]),
    ((answered("evt_1", money=LITTLE),), [DUE]),
    ((answered("evt_1"), delivery("d2", 2, paid("evt_2", session=None))), [DUE]),
    ((answered("evt_1"), delivery("d2", 2, replace(paid("evt_2", session=None), money=LITTLE))),
     [LITTLE]),
])  # fmt: skip
def test_an_assignment_states_the_amount_of_a_payment_that_only_answers_tell_of(
    deliveries: tuple[Delivery, ...], amounts: list[Money]
) -> None:
    known = history(priced(ORDER), *deliveries, assigned("rec_1", 10, money=DUE))
    ledger = fold(known, policy=POLICY, as_of=seconds(50))
    assert [each.money for each in ledger.entries] == amounts


def refund(event_id: str, **fields: Any) -> Delivery:
    return delivery(f"d_{event_id}", 1, event(event_id, "refunded", 1, standalone=True, **fields))


@for_each(("members", "proof"), [
    ((), ()),
    ((refund("evt_9", payment="R1"),), ()),
    ((refund("evt_9", payment="R1"), assigned("rec_8", 1, OTHER), assigned("rec_7", 2, OTHER)),
     ("rec_7", "evt_9")),
    ((refund("evt_9", payment="R2"), assigned("rec_7", 1, OTHER)), ()),
    ((refund("evt_9", payment="R1"), delivery("d1", 1, paid("evt_2", order=OTHER)),
      delivery("d2", 1, paid("evt_1", order=OTHER))), ("evt_1", "evt_9")),
    ((refund("evt_9", payment="R1"), delivery("d1", 1, paid("evt_2", order=ORDER))), ("evt_2",)),
    ((refund("evt_9", session="cs_2"), delivery("d1", 1, paid("evt_2", order=OTHER))), ()),
    ((refund("evt_9", session="cs_2"), delivery("d1", 1, paid("evt_9", order=OTHER))),
     ("evt_9", "evt_9")),
    ((delivery("d1", 1, paid("evt_1", order=ORDER)), priced(ORDER)), ("price_ORD-1",)),
    ((delivery("d1", 1, paid("evt_1", order=ORDER)), delivery("d2", 1, paid("evt_2"))), ("evt_1",)),
    ((assigned("rec_8", 1), assigned("rec_7", 2), priced(OTHER)), ("rec_8",)),
    ((delivery("d1", 1, replace(paid(order=ORDER), standing="unconfirmed")),), ()),
    ((record("rec_1", "redated", 1),), ()),
    ((refund("evt_9", payment="R1"), refund("evt_8", payment="R1", order=OTHER)),
     ("evt_8", "evt_9")),
])  # fmt: skip
def test_an_order_is_proved_by_its_first_record_or_event_or_by_another_order_of_its_refund(
    members: tuple[Delivery | Record, ...], proof: tuple[str, ...]
) -> None:
    assert made_by(history(*members)) == proof


def test_payments_of_an_agreement_renew_nothing_before_one_is_captured() -> None:
    tried = [event(f"evt_{n}", "declined", n, payment=f"pay_{n}", agreement="ag_1") for n in (1, 2)]
    known = history(priced(ORDER), *[delivery(f"d_{n}", n, each) for n, each in enumerate(tried)])
    ledger = fold(known, policy=POLICY, as_of=seconds(50))
    assert [each.reference for each in ledger.attempts] == ["pay_1", "pay_2"]
    assert ledger.case.renewals == frozenset()
