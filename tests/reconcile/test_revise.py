"""Revisions: reported where the substance differs, and silent where only counts do."""

from typing import Any

from reconcile.ledger.events import ClaimKind, Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import Record
from reconcile.ledger.revise import Revision, position_of, revise
from reconcile.money import Money
from tests.reconcile.build import DUE, POLICY, delivery, event, history, record, seconds

PLACED = record("r1", "order_placed", 0, money=DUE)
PENDING = delivery("d1", 1, event("e1", "pending", 1, payment="pay_1"))
PAID = delivery("d2", 2_200, event("e2", "succeeded", 5, payment="pay_1", money=DUE))


def _folded(*members: Delivery | Record, at: int = 5_000) -> Ledger:
    return fold(history(*members), policy=POLICY, as_of=seconds(at))


def _revised(earlier: Ledger, later: Ledger) -> Revision:
    revision = revise(position_of(earlier), later)
    assert revision is not None
    return revision


def test_the_first_ledger_is_a_revision_of_nothing() -> None:
    revision = revise(None, _folded(PLACED, PENDING, at=2))
    assert revision is not None
    assert revision.before is None
    assert revision.because == (
        "Pending: no final event yet; one is awaited until 2026-11-20T10:35:01Z [e1].",
    )


def test_an_order_nobody_has_tried_to_pay_is_not_published() -> None:
    assert revise(None, _folded(PLACED)) is None


def test_a_redelivery_is_no_revision() -> None:
    before = _folded(PLACED, PENDING, PAID)
    again = Delivery(delivery_id="d9", received_at=seconds(3_000), event=PAID.event)
    assert revise(position_of(before), _folded(PLACED, PENDING, PAID, again)) is None
    assert revise(position_of(before), before) is None


def test_a_late_success_is_reported_as_the_difference_of_two_folds() -> None:
    revision = _revised(_folded(PLACED, PENDING, at=2_150), _folded(PLACED, PENDING, PAID))
    assert (revision.before and revision.before.outcome) == "timed_out"
    assert revision.after.outcome == "succeeded"
    assert revision.after.fulfillable
    assert revision.because == (
        "Paid in full: KES 1,500.00 captured of KES 1,500.00 due [e2, r1].",
        "It was timed_out before.",
        "It may be shipped now.",
        "Attempt pay_1: The provider says it succeeded [e2].",
        "The success of pay_1, dated 2026-11-20T10:00:05Z, became known at 2026-11-20T10:36:40Z, "
        "after the attempt had been given up [e2].",
    )


def test_a_deadline_that_passes_is_a_revision_without_an_event() -> None:
    revision = _revised(_folded(PLACED, PENDING, at=2), _folded(PLACED, PENDING, at=2_101))
    assert revision.at == seconds(2_101)
    assert "It was pending before." in revision.because


def test_a_cancellation_that_only_stops_shipping_is_reported() -> None:
    canceled = record("r2", "order_canceled", 3_000)
    revision = _revised(_folded(PLACED, PAID), _folded(PLACED, PAID, canceled))
    assert revision.after.outcome == "succeeded"
    assert revision.because[1:] == (
        "It may not be shipped.",
        "Do not ship: the shop canceled the order [r2].",
    )


def test_why_a_paid_order_may_not_be_shipped_is_reported_once() -> None:
    unstated = delivery("d2", 3, event("e2", "succeeded", 3, payment="pay_1", money=DUE))
    first = revise(None, _folded(unstated))
    assert first is not None
    assert first.because[1:] == ("Do not ship: what the order costs is not known.",)
    strange = delivery("d3", 4, event("e3", "unrecognized", 4, payment="pay_2", kind="sparkled"))
    second = _revised(_folded(unstated), _folded(unstated, strange))
    assert not [each for each in second.because if each.startswith("Do not ship")]
    held = _revised(
        _folded(PLACED, PAID),
        _folded(PLACED, PAID, record("h1", "held", 2_300, reason="rules_changed")),
    )
    assert [each for each in held.because if "[h1]" in each] == [
        "Held back since 2026-11-20T10:38:20Z (rules_changed): not to be fulfilled until it is "
        "released [h1].",
    ]


def test_what_is_refunded_of_a_disputed_order_is_reported() -> None:
    back = event("e5", "refunded", 2_400, payment="pay_1", money=Money(minor=500, currency="KES"))
    disputed = _folded(PLACED, PAID, _dispute(4, "disputed", "dp_1"))
    both = _folded(PLACED, PAID, _dispute(4, "disputed", "dp_1"), delivery("d5", 2_400, back))
    assert _revised(disputed, both).because == (
        "Disputed: the customer disputes the payment, and the dispute is open; captured: "
        "KES 1,500.00; refunded: KES 5.00 [e2, e5, e4, r1].",
    )


def test_a_reference_cannot_forge_a_part_of_the_substance() -> None:
    forged: dict[str, Any] = {"payment": "pay_1=declined|pay_2"}
    honest = [
        delivery("d1", 1, event("e1", "declined", payment="pay_1")),
        delivery("d2", 2, event("e2", "declined", payment="pay_2")),
    ]
    one = position_of(_folded(delivery("d1", 1, event("e1", "declined", **forged))))
    assert one.substance != position_of(_folded(*honest)).substance


def test_the_substance_is_written_as_it_always_was() -> None:
    """It is stored with what was published: another spelling would report every order again."""
    canceled = record("r2", "order_canceled", 1)
    decline = delivery("d3", 7, event("e3", "declined", 6, payment="pay_1"))
    assert position_of(_folded(PLACED, PENDING, PAID, decline, canceled)).substance == (
        "succeeded|held|due 150000 KES|got 150000-0 KES|pay_1=succeeded"
        "|contradictory_claims|paid_after_cancel|success_after_deadline"
    )
    assert position_of(_folded(PLACED, PAID)).substance.startswith("succeeded|fulfillable|due")
    barred = delivery("d4", 1, event("e4", "declined", payment="a|b"))
    declined = position_of(_folded(PLACED, barred))
    assert declined.substance == "failed|held|due 150000 KES|a/b=declined"


def test_a_delivery_before_any_payment_is_published() -> None:
    revision = revise(None, _folded(PLACED, record("r2", "order_fulfilled", 1)))
    assert revision is not None
    assert revision.after.outcome == "not_attempted"


def test_what_was_reported_before_is_not_reported_again() -> None:
    strange = delivery("d3", 2, event("e3", "unrecognized", 2, payment="pay_1", kind="sparkled"))
    decline = delivery("d4", 9, event("e4", "declined", 8, payment="pay_2"))
    heard = [strange, delivery("d1", 1, event("e1", "declined", payment="pay_1"))]
    revision = _revised(_folded(*heard), _folded(*heard, decline, PLACED))
    assert revision.because[1:] == (
        "Attempt pay_2: The provider says it was declined [e4].",
        "No longer found: order_unknown.",
    )
    paid = delivery("d5", 10, event("e5", "succeeded", 9, payment="pay_2", money=DUE))
    fulfilled = record("r2", "order_fulfilled", 8)
    both = _revised(_folded(strange, fulfilled, decline), _folded(PLACED, strange, fulfilled, paid))
    assert both.because[-1] == "No longer found: fulfilled_but_not_paid."


def _dispute(number: int, claim: ClaimKind, name: str, *, minor: int = 50_000) -> Delivery:
    at, part = 2_300 + number, Money(minor=minor, currency="KES")
    said = event(f"e{number}", claim, at, payment="pay_1", money=part, movement=name)
    return delivery(f"d{number}", at, said)


def test_a_second_dispute_is_reported_though_the_outcome_stays() -> None:
    first, second = _dispute(4, "disputed", "dp_1"), _dispute(5, "disputed", "dp_2")
    one, two = _folded(PLACED, PAID, first), _folded(PLACED, PAID, first, second)
    assert (one.outcome, two.outcome) == ("disputed", "disputed")
    revision = _revised(one, two)
    assert [each for each in revision.because if "e5" in each and "dispute" in each.lower()]
    assert "No longer found" not in " ".join(revision.because)
    again = Delivery(delivery_id="d9", received_at=seconds(3_000), event=second.event)
    assert revise(position_of(two), _folded(PLACED, PAID, first, second, again)) is None
    won = _folded(PLACED, PAID, first, second, _dispute(6, "dispute_won", "dp_1"))
    both = _folded(
        PLACED, PAID, first, second, _dispute(6, "dispute_won", "dp_1"),
        _dispute(7, "dispute_won", "dp_2"),
    )  # fmt: skip
    assert any("e6" in each for each in _revised(two, won).because)
    assert any("e7" in each for each in _revised(won, both).because)


def test_a_dispute_that_comes_to_be_about_more_is_reported_once() -> None:
    first, other = _dispute(4, "disputed", "dp_1"), _dispute(5, "disputed", "dp_2")
    raised = _dispute(6, "disputed", "dp_1", minor=80_000)
    two, more = _folded(PLACED, PAID, first, other), _folded(PLACED, PAID, first, other, raised)
    assert position_of(two).substance.endswith("|2 dispute_open")
    sentences = _revised(two, more).because[1:]
    assert len(sentences) == 1
    assert "KES 800.00" in sentences[0]
    assert "e6" in sentences[0]
    for minor in (80_000, 40_000):
        again = _dispute(7, "disputed", "dp_1", minor=minor)
        assert revise(position_of(more), _folded(PLACED, PAID, first, other, raised, again)) is None
    less = _dispute(6, "disputed", "dp_1", minor=40_000)
    assert revise(position_of(two), _folded(PLACED, PAID, first, other, less)) is None


def test_of_what_there_was_more_often_nothing_is_reported_again_but_how_many_are_left() -> None:
    disputes = [_dispute(number, "disputed", f"dp_{number}") for number in (4, 5, 6)]
    three = _folded(PLACED, PAID, *disputes)
    two = _folded(PLACED, PAID, *disputes, _dispute(7, "dispute_won", "dp_4"))
    sentences = _revised(three, two).because
    assert "No longer found as often: dispute_open (2 of 3)." in sentences
    assert not [each for each in sentences[1:] if "[e5" in each or "[e6" in each]


def test_a_second_refund_under_way_and_a_second_event_nobody_reads_are_reported() -> None:
    claims: tuple[tuple[ClaimKind, str], ...] = (
        ("refund_pending", "refund_pending"),
        ("unrecognized", "payment.clawback"),
    )
    for claim, kind in claims:
        members: list[Delivery | Record] = [PLACED, PAID]
        ledgers = [_folded(*members)]
        for number in (4, 5):
            said = event(
                f"e{number}", claim, 2_300, kind=kind, payment="pay_1", movement=f"r{number}",
                money=Money(minor=1, currency="KES"),
            )  # fmt: skip
            members.append(delivery(f"d{number}", 2_300 + number, said))
            ledgers.append(_folded(*members))
        assert any("e5" in each for each in _revised(ledgers[1], ledgers[2]).because), claim
