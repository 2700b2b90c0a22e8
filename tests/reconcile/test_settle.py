"""End of an order: only silence and a final word bring it."""

from typing import Any

from reconcile.instants import DAY, HOUR, SECOND, TICK, Duration, format_known
from reconcile.ledger.explain import window_document
from reconcile.ledger.fold import FINAL, closed_at, fold, is_known, is_settled, last_heard
from reconcile.ledger.history import History
from reconcile.ledger.ledger import OUTCOMES
from reconcile.ledger.policy import Policy
from reconcile.money import Money
from tests.reconcile.build import T, delivery, event, history, record, seconds
from tests.rows import for_each

PRICE = Money(minor=150_000, currency="KES")


def settled(known: History, *, after: Duration, quiet: Duration = DAY) -> bool:
    ledger = fold(known, policy=Policy(), as_of=T + after)
    return is_settled(known, ledger, quiet=quiet)


def test_every_outcome_is_final_or_waits_for_somebody() -> None:
    waiting = {"unresolved", "disputed", "authorized", "pending", "not_attempted"}
    assert set(OUTCOMES) == FINAL | waiting
    assert not FINAL & waiting


def test_silence_is_counted_from_the_last_arrival() -> None:
    declined = event("e1", "declined", payment="p", money=PRICE)
    known = history(delivery("d1", 0, declined))
    assert last_heard(known) == T
    assert not settled(known, after=DAY - TICK)
    assert settled(known, after=DAY)
    again = history(delivery("d1", 0, declined), delivery("d2", 3_600, declined))
    assert last_heard(again) == T + HOUR
    assert not settled(again, after=DAY)
    assert settled(again, after=DAY + HOUR)
    canceled = again | history(record("r1", "order_canceled", 7_200))
    assert last_heard(canceled) == T + 2 * HOUR
    assert not settled(canceled, after=DAY + HOUR)
    assert last_heard(history()) == 0


@for_each("quiet", [SECOND, DAY])
def test_an_order_with_a_decision_to_come_is_not_over(quiet: Duration) -> None:
    known = history(
        record("r1", "order_placed", 0, money=PRICE),
        delivery("d1", 0, event("e1", "succeeded", payment="p", money=PRICE)),
    )
    assert not settled(known, after=DAY - TICK, quiet=quiet)  # it may yet be found unfulfilled
    assert settled(known, after=DAY, quiet=quiet)


def test_an_order_is_not_over_while_a_slow_payment_can_still_come_or_be_revoked() -> None:
    slow = event("e1", "pending", payment="p", method="sepa_debit", expected_by=T + 20 * DAY,
                 revocable_days=56)  # fmt: skip
    under_way = history(delivery("d1", 0, slow))
    assert not settled(under_way, after=365 * DAY)
    paid = under_way | history(
        record("r1", "order_placed", 0, money=PRICE),
        record("r2", "order_fulfilled", 0),
        delivery("d2", 0, event("e2", "succeeded", payment="p", money=PRICE)),
    )
    assert not settled(paid, after=56 * DAY - TICK)
    assert settled(paid, after=56 * DAY)


def test_the_window_is_of_the_slow_payment_that_ends_last() -> None:
    """Without one under way, it is of the payment that can be revoked longest."""
    sepa: dict[str, Any] = {"payment": "p1", "method": "sepa_debit", "revocable_days": 56}
    slow = delivery("d1", 0, event("e1", "pending", expected_by=T + 9 * DAY, **sepa))
    later: dict[str, Any] = {"payment": "p2", "method": "bacs", "expected_by": T + 12 * DAY}
    other = delivery("d2", 0, event("e2", "pending", **later))
    paid = delivery("d3", 0, event("e3", "succeeded", money=PRICE, **sepa))
    brief: dict[str, Any] = {"payment": "p3", "method": "ach", "revocable_days": 20, "money": PRICE}
    again = delivery("d4", 0, event("e4", "succeeded", **brief))
    quick = delivery("d5", 0, event("e5", "succeeded", payment="p9", money=PRICE))
    for members, window in (
        ((quick,), (None, None, None)),
        ((slow,), (T + 9 * DAY, "sepa_debit", None)),
        ((slow, other), (T + 12 * DAY, "bacs", None)),
        ((slow, paid, quick), (None, "sepa_debit", T + 56 * DAY)),
        ((paid, again), (None, "sepa_debit", T + 56 * DAY)),
        ((paid, other), (T + 12 * DAY, "bacs", T + 56 * DAY)),
    ):
        found = fold(history(*members), policy=Policy(), as_of=T).window
        assert tuple(found) == window
        assert window_document(found) == {
            "expected_by": format_known(window[0]),
            "method_class": window[1],
            "revocable_until": format_known(window[2]),
        }


def test_an_order_is_known_by_its_own_evidence_or_by_what_contradicts_it() -> None:
    other = event("e1", "succeeded", order="ORD-2", payment="p", money=PRICE)
    alone = event("e1", "refunded", payment="p", money=PRICE, standalone=True)
    hold = record("r1", "held", 0, reason="rules_changed")
    elsewhere = record("r1", "payment_assigned", 0, source="shop", payment="p", order="ORD-2")
    named = delivery("d1", 0, event("e1", "succeeded", payment="p", money=PRICE))
    for members, known in (
        ((), False),
        ((delivery("d1", 0, alone),), False),
        ((named,), True),
        ((delivery("d1", 0, other),), True),
        ((named, elsewhere), True),
        ((hold,), True),
    ):
        assert is_known(fold(history(*members), policy=Policy(), as_of=T)) is known


def test_an_order_of_which_nothing_is_known_is_not_over() -> None:
    assert not settled(history(), after=365 * DAY)


def test_while_a_dispute_is_open_the_order_is_not_over() -> None:
    """Whatever the outcome: what the provider must be shown may not be deleted before."""
    paid = delivery("d1", 0, event("e1", "succeeded", payment="p", money=PRICE))
    back = delivery("d2", 60, event("e2", "refunded", 60, payment="p", money=PRICE, movement="r"))
    disputed = event("e3", "disputed", 90, payment="p", money=PRICE, movement="d")
    won = event("e4", "dispute_won", 99, payment="p", money=PRICE, movement="d")
    known = history(record("r1", "order_placed", 0, money=PRICE), paid, back)
    assert settled(known, after=2 * DAY)
    known |= history(delivery("d3", 90, disputed))
    assert fold(known, policy=Policy(), as_of=T + 2 * DAY).outcome == "refunded"
    assert not settled(known, after=2 * DAY)
    assert settled(known | history(delivery("d4", 99, won)), after=2 * DAY)


DECLINED = delivery("d1", 9, event("e1", "declined", 5, payment="p1", money=PRICE))
PAID = delivery("d2", 90, event("e2", "succeeded", 60, payment="p2", money=PRICE))
BACK = delivery("d3", 900, event("e3", "refunded", 900, payment="p2", money=PRICE, movement="r"))
PLACED = record("r1", "order_placed", 0, money=PRICE)


@for_each(
    ("known", "closed"),
    [
        (history(PLACED), None),
        (history(PLACED, DECLINED), 5),
        (history(PLACED, DECLINED, PAID), 60),
        (history(PLACED, DECLINED, PAID, BACK), 60),
        (history(PLACED, record("r2", "order_canceled", 7)), 7),
        (history(delivery("d1", 0, event("e1", "pending", 0, payment="p"))), 35 * 60),
        (history(delivery("d1", 0, event("e1", "authorized", 0, payment="p"))), None),
    ],
)
def test_an_order_closes_with_its_first_money_else_with_its_last_word(
    known: History, closed: int | None
) -> None:
    ledger = fold(known, policy=Policy(), as_of=T + DAY)
    assert closed_at(ledger) == (None if closed is None else seconds(closed))


def test_an_order_is_never_closed_after_it_was_judged() -> None:
    ahead = delivery("d1", 0, event("e1", "succeeded", 300, payment="p", money=PRICE))
    assert closed_at(fold(history(ahead), policy=Policy(), as_of=T)) == T
