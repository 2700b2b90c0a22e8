"""Orders that need a person: until what was found is settled or accepted."""

from collections.abc import Iterator
from typing import Any, Final

from reconcile.ledger.attention import ACCEPTABLE, left_to_settle, needs_person
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.plain import staff_answer
from reconcile.ledger.records import Record
from reconcile.ledger.revise import position_of, revise
from reconcile.money import Money
from tests.reconcile.build import DUE, POLICY, delivery, event, history, record, seconds
from tests.rows import for_each

LITTLE: Final = Money(minor=100, currency="KES")
PLACED: Final = record("rec_1", "order_placed", 0, money=DUE)
REFUND: Final[dict[str, Any]] = {"payment": "pay_1", "movement": "re_1", "money": DUE}


def said(number: int, claim: Any, **members: Any) -> Delivery:
    return delivery(f"d{number}", number, event(f"e{number}", claim, number, **members))


def paid(number: int, payment: str = "pay_1") -> Delivery:
    return said(number, "succeeded", payment=payment, money=DUE)


EACH: Final[dict[str, tuple[tuple[Delivery | Record, ...], int]]] = {
    "refund_failed": ((paid(1), said(2, "refund_failed", **REFUND)), 9),
    "refund_overdue": ((paid(1), said(2, "refund_pending", **REFUND)), 10 * 86_400 + 2),
    "paid_twice": ((paid(1), paid(2, "pay_2")), 9),
    "overpaid": ((paid(1), said(2, "succeeded", payment="pay_2", money=LITTLE)), 9),
    "paid_after_cancel": ((record("rec_2", "order_canceled", 1), paid(2)), 9),
    "fulfilled_but_not_paid": ((record("rec_2", "order_fulfilled", 1),), 9),
}  # fmt: skip


def ledger_of(*members: Delivery | Record, at: int) -> Ledger:
    return fold(history(PLACED, *members), policy=POLICY, as_of=seconds(at))


def test_every_finding_that_can_be_accepted_is_here() -> None:
    assert set(EACH) == set(ACCEPTABLE)


@for_each("code", ACCEPTABLE)
def test_an_order_needs_a_person_until_somebody_has_accepted(code: str) -> None:
    members, at = EACH[code]
    ledger = ledger_of(*members, at=at)
    assert (needs_person(ledger), left_to_settle(ledger)) == (True, (code,))
    before = ledger_of(*members[:1], record("rec_9", "finding_accepted", 1, reason=code), at=at)
    late = ledger_of(*members, record("rec_9", "finding_accepted", 1, reason=code), at=at)
    assert not left_to_settle(before) or code == "fulfilled_but_not_paid"
    if len(members) > 1:
        assert left_to_settle(late) == (code,), "something came since"
    done = record("rec_9", "finding_accepted", at, reason=code)
    accepted = ledger_of(*members, done, at=at)
    assert not needs_person(accepted)
    assert [each.code for each in accepted.findings] == [each.code for each in ledger.findings]
    assert accepted.fulfillable == ledger.fulfillable
    assert len(staff_answer(accepted)) < len(staff_answer(ledger)) or code == "paid_after_cancel"


def test_a_failed_refund_is_settled_by_another_of_its_amount() -> None:
    failed = EACH["refund_failed"][0]
    again = said(3, "refunded", payment="pay_1", movement="re_2", money=DUE)
    assert left_to_settle(ledger_of(*failed, again, at=9)) == ()
    less = said(3, "refunded", payment="pay_1", movement="re_2", money=LITTLE)
    assert left_to_settle(ledger_of(*failed, less, at=9)) == ("refund_failed",)


def test_money_that_came_after_a_cancellation_is_settled_when_it_has_gone_back() -> None:
    canceled = EACH["paid_after_cancel"][0]
    back = said(3, "refunded", payment="pay_1", movement="re_2", money=DUE)
    assert left_to_settle(ledger_of(*canceled, back, at=9)) == ()


def test_an_acceptance_says_nothing_of_the_order_to_the_shop() -> None:
    """An order that only the provider knows stays unknown."""
    unknown = history(*EACH["refund_failed"][0])
    accepted = unknown | history(record("rec_9", "finding_accepted", 9, reason="refund_failed"))
    found = [fold(each, policy=POLICY, as_of=seconds(9)) for each in (unknown, accepted)]
    assert found[0].findings == found[1].findings


class Counted(list[Any]):
    """A list that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


def test_events_are_gone_through_a_few_times_however_many_findings_there_are() -> None:
    """Else an order with thousands of disputes and failed refunds takes minutes."""
    members: list[Delivery | Record] = [
        paid(1),
        record("rec_9", "finding_accepted", 2, reason="refund_failed"),
    ]
    for number in range(10, 30):
        refund = REFUND | {"movement": f"re_{number}", "money": LITTLE}
        members.append(said(number, "refund_failed", **refund))
        members.append(said(100 + number, "disputed", payment="pay_1", movement=f"dp_{number}"))
    ledger = ledger_of(*members, at=999)
    heard = ledger.case.heard = Counted(ledger.case.heard)
    assert left_to_settle(ledger) == ("refund_failed",)
    staff_answer(ledger)
    assert revise(position_of(ledger_of(paid(1), at=999)), ledger) is not None
    assert heard.times < 20
