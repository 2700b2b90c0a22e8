"""Reasons why data stays though its customer asks: each alone, and the moment it ends."""

from typing import Final

from app.privacy.erase_rules import (
    KeptData,
    Periods,
    disputable_until,
    kept_order,
    kept_since,
    kept_unknown,
)
from app.receiving.unread import WINDOW
from reconcile.instants import DAY, TICK, Duration, Instant, format_instant
from reconcile.ledger.fold import fold
from tests.reconcile.build import ORDER, POLICY, T, seconds
from tests.reconcile.scenario_table import read
from tests.rows import for_each

PLACED = "0s record order_placed r1 due=1500.00/KES\n"
PAID = f"{PLACED}1s succeeded e1 pay=pay_1 money=1500.00/KES\n"
OVER = f"{PAID}2s record order_fulfilled r9\n"

TWICE = f"{OVER}3s succeeded e2 pay=pay_2 money=1500.00/KES\n"

MINIMUM = Duration(7 * DAY)

ORDERS: dict[str, tuple[str, int, KeptData | None]] = {
    "over": (OVER, 8, None),
    "declined, long ago": (f"{PLACED}1s declined e1 pay=pay_1\n", 8, None),
    "nothing was said of it": (PLACED, 8, KeptData(what=ORDER, why="not_over",
                                                   detail="not_attempted")),
    "a payment is open": (f"{PLACED}1s pending e1 pay=pay_1\n", 0,
                          KeptData(what=ORDER, why="not_over", detail="pending")),
    "a slow payment is overdue at its provider": (
        f"{PLACED}1s pending e1 pay=pay_1 method=sepa_debit expects=20d\n", 90,
        KeptData(what=ORDER, why="not_over", detail="pending")),
    "the customer can revoke it": (
        f"{OVER}1s pending e2 pay=pay_1 method=sepa_debit revocable=56\n", 55,
        KeptData(what=ORDER, why="revocable", until=Instant(seconds(1) + 56 * DAY))),
    "the customer could revoke it": (
        f"{OVER}1s pending e2 pay=pay_1 method=sepa_debit revocable=56\n", 56, None),
    "paid, and the shop may still ship it": (PAID, 0, KeptData(what=ORDER, why="not_over",
                                                               detail="succeeded")),
    "disputed": (f"{OVER}3s disputed e2 pay=pay_1 ref=d1 money=1500.00/KES\n", 8,
                 KeptData(what=ORDER, why="disputed")),
    "disputed in part, and the rest makes up the price": (
        f"{PLACED}1s succeeded e1 pay=pay_1 money=1600.00/KES\n2s record order_fulfilled r9\n"
        "3s disputed e2 pay=pay_1 ref=d1 money=100.00/KES\n", 8,
        KeptData(what=ORDER, why="disputed")),
    "refunded, and disputed all the same": (
        f"{OVER}3s refunded e2 pay=pay_1 ref=r1 money=1500.00/KES\n"
        "4s disputed e3 pay=pay_1 ref=d1 money=1500.00/KES\n", 8,
        KeptData(what=ORDER, why="disputed")),
    "another order's event names its payment": (f"{OVER}0s record order_placed r2 order=ORD-2\n"
                                              "3s ignored e2 pay=pay_1 order=ORD-2\n", 8,
                                                KeptData(what=ORDER, why="shared")),
    "too young": (OVER, 1, KeptData(what=ORDER, why="minimum",
                                    until=Instant(seconds(2) + 7 * DAY))),
}  # fmt: skip
"""Events of an order, their age in days, and the reason why it stays."""

TO_SETTLE: dict[str, tuple[str, str]] = {
    "not what it costs": (f"{PLACED}1s succeeded e1 pay=pay_1 money=1.00/KES\n", "amount_mismatch"),
    "paid twice": (TWICE, "paid_twice"),
    "paid twice, and in two bodies": (
        f"{TWICE}4s succeeded e2 pay=pay_2 money=1500.00/KES body=b\n",
        "paid_twice, same_id_different_body",
    ),
}
"""Events of an order that a person must settle, and its findings."""


WEEK: Final = Periods(minimum=MINIMUM)
FOR_DISPUTES: Final = Periods(disputes=Duration(120 * DAY))


def kept(
    text: str, *, days: int, to_do: tuple[str, ...] = (), periods: Periods = WEEK
) -> KeptData | None:
    """Return why the order of a table stays this many days later."""
    (scenario,) = read("kept.txt", f"== one\n{text}")
    as_of = Instant(seconds(10) + days * DAY)
    ledger = fold(scenario.history(), policy=POLICY, as_of=as_of)
    return kept_order(scenario.history(), ledger, periods, to_do=to_do)


@for_each("name", ORDERS)
def test_why_an_order_stays(name: str) -> None:
    """Whatever makes it somebody's business still; the first that fits is told."""
    text, days, wanted = ORDERS[name]
    assert kept(text, days=days) == wanted


@for_each("name", TO_SETTLE)
def test_what_a_person_must_settle_stays_until_nothing_is_left_to_do(name: str) -> None:
    """All that is to be done is told, and of what; then it goes like any other."""
    text, detail = TO_SETTLE[name]
    assert kept(text, days=8, to_do=("do this", "do that")) == KeptData(
        what=ORDER, why="to_settle", detail=detail, do="do this; do that. Then try again"
    )
    assert kept(text, days=8) is None


def test_evidence_stays_while_its_last_capture_can_be_disputed() -> None:
    """Also after a refund; an order that nobody paid has nothing to dispute."""
    until = Instant(seconds(1) + 120 * DAY)
    for text in (OVER, f"{OVER}3s refunded e2 pay=pay_1 ref=r1 money=1500.00/KES\n"):
        told = kept(text, days=119, periods=FOR_DISPUTES)
        assert told == KeptData(what=ORDER, why="disputable", until=until)
        assert kept(text, days=120, periods=FOR_DISPUTES) is None
    assert kept(f"{PLACED}1s declined e1 pay=pay_1\n", days=1, periods=FOR_DISPUTES) is None


def test_the_moment_at_which_a_capture_can_no_longer_be_disputed() -> None:
    (scenario,) = read("kept.txt", f"== one\n{OVER}")
    until = Instant(seconds(1) + 120 * DAY)
    for as_of, told in ((Instant(until - TICK), until), (until, None)):
        ledger = fold(scenario.history(), policy=POLICY, as_of=as_of)
        assert disputable_until(ledger, FOR_DISPUTES.disputes) == told


def test_the_moment_at_which_the_minimum_is_over() -> None:
    """Counted from the last word; in that moment it may go."""
    ends = Instant(T + 7 * DAY)
    told = [kept_since("x", T, MINIMUM, as_of=at) for at in (Instant(ends - TICK), ends)]
    assert told == [KeptData(what="x", why="minimum", until=ends), None]
    assert kept_since("x", T, Duration(0), as_of=T) is None


@for_each(
    ("minimum", "beside", "later", "detail"),
    [
        (0, "ORD-1", WINDOW * 9, "with ORD-1"),
        (0, None, WINDOW - TICK, f"after {format_instant(Instant(T + WINDOW))}"),
        (900, None, WINDOW - TICK, f"after {format_instant(Instant(T + 900 * DAY))}"),
        (0, None, WINDOW, None),
    ],
)
def test_what_nobody_could_read_stays_until_nobody_can_send_it_again(
    minimum: int, beside: str | None, later: int, detail: str | None
) -> None:
    """It may tell of a payment; with an order that stays, it stays as long."""
    as_of = Instant(T + later)
    kept = kept_unknown("x", T, Duration(minimum * DAY), why="unread", beside=beside, as_of=as_of)
    assert kept == (None if detail is None else KeptData(what="x", why="unread", detail=detail))


def test_a_sentence_says_until_when() -> None:
    """In place of the detail, where that is known."""
    kept = kept_since("x", T, MINIMUM, as_of=T)
    assert kept is not None
    assert kept.sentence == (
        f"TALLYHOOK_RETENTION_MINIMUM_DAYS keeps it until {format_instant(Instant(T + 7 * DAY))}"
    )
