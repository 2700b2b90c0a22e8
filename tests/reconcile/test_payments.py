"""Sums of payments: what went back, is kept, held or under way, and what counts toward a price."""

from collections.abc import Sequence
from typing import Any, Final

from reconcile.ledger.correlate import NOTHING_FILED, AttemptEvidence, arrange
from reconcile.ledger.doubt import cancellations_after, is_off_by_factor
from reconcile.ledger.movements import Payment, at_most_returned, payments_of
from reconcile.ledger.on_top import Counted, by_kind, counted_of, counting, discounted
from reconcile.ledger.outcome import standing, under_way
from reconcile.money import from_major
from tests.reconcile.build import seconds
from tests.reconcile.scenario_table import read
from tests.rows import for_each

CAPTURED: Final = "1s succeeded e1 pay=p money=15.00/KES"


def attempt_of(lines: tuple[str, ...]) -> AttemptEvidence:
    """Return the evidence of the payment p that these rows of a scenario report."""
    (scenario,) = read("table", "\n".join(["== one", *[f"{line} pay=p" for line in lines]]))
    (found,) = arrange(scenario.history(), policy=scenario.policy, as_of=seconds(100)).attempts
    return found


def payment_of(lines: tuple[str, ...]) -> Payment:
    (payment,) = payments_of([attempt_of(lines)], NOTHING_FILED)
    return payment


SUMS: Final[list[tuple[tuple[str, ...], tuple[int, tuple[int, int], int]]]] = [
    ((CAPTURED,), (0, (1_500, 0), 0)),
    ((CAPTURED, "2s refunded e2 ref=r1 money=1.00/KES", "3s refunded e3 ref=r2 money=2.00/KES"),
     (300, (1_200, 0), 0)),
    ((CAPTURED, "2s refunded e2 ref=r1 money=1.00/KES", "3s refunded e3 ref=r1 money=2.50/KES"),
     (250, (1_500, 0), 0)),
    ((CAPTURED, "2s refunded e2 ref=r1 money=5.00/USD"), (0, (1_500, 0), 0)),
    ((CAPTURED, "2s refunded e2 ref=r1 money=20.00/KES"), (2_000, (-500, 0), 0)),
    ((CAPTURED, "2s reversed e2"), (1_500, (0, 0), 0)),
    # disputes
    ((CAPTURED, "2s disputed e2 ref=d1 money=4.00/KES"), (0, (1_500, 400), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1"), (0, (1_500, 1_500), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1 money=4.00/USD"), (0, (1_500, 0), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1 money=9.00/KES", "3s disputed e3 ref=d2 money=9.00/KES"),
     (0, (1_500, 1_500), 0)),
    ((CAPTURED, "2s dispute_lost e2 ref=d1 money=4.00/KES"), (400, (1_100, 0), 0)),
    ((CAPTURED, "2s dispute_lost e2 ref=d1"), (0, (0, 0), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1 money=4.00/KES", "3s dispute_lost e3 ref=d1"),
     (400, (1_100, 0), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1 money=4.00/KES", "3s dispute_lost e3 ref=d1 money=1.50/KES"),
     (150, (1_350, 0), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1 money=4.00/USD", "3s dispute_lost e3 ref=d1 money=1.50/USD"),
     (0, (1_500, 0), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1 money=4.00/USD", "3s dispute_lost e3 ref=d1 money=4.00/KES"),
     (400, (1_500, 0), 0)),
    ((CAPTURED, "2s dispute_lost e2 ref=d1 money=4.00/KES", "3s dispute_won e3 ref=d1"),
     (0, (1_500, 0), 0)),
    ((CAPTURED, "2s dispute_lost e2 ref=d1 money=4.00/KES",
      "3s dispute_won e3 ref=d1 money=1.00/KES"), (300, (1_200, 0), 0)),
    ((CAPTURED, "2s dispute_lost e2 ref=d1 money=4.00/KES",
      "3s dispute_won e3 ref=d1 money=5.00/KES"), (0, (1_500, 0), 0)),
    ((CAPTURED, "2s dispute_lost e2 ref=d1 money=4.00/KES",
      "3s dispute_won e3 ref=d1 money=1.00/USD"), (400, (1_500, 0), 0)),
    ((CAPTURED, "2s disputed e2 ref=d1 money=4.00/KES", "3s dispute_lost e3 ref=d1 money=1.50/KES",
      "4s disputed e4 ref=d1 money=4.00/KES"), (400, (1_500, 400), 0)),
    ((CAPTURED, "2s refunded e2 ref=r1 money=14.00/KES", "3s dispute_lost e3 ref=d1 money=4.00/KES",
      "4s disputed e4 ref=d1 money=4.00/KES"), (1_800, (100, 400), 0)),
    # refunds under way
    ((CAPTURED, "2s refund_pending e2 ref=r1 money=6.00/KES"), (0, (1_500, 0), 600)),
    ((CAPTURED, "2s refund_pending e2 ref=r1 money=6.00/USD"), (0, (1_500, 0), 0)),
    ((CAPTURED, "2s refund_pending e2 ref=r1 money=6.00/KES", "3s refund_pending e3 ref=r2"),
     (0, (1_500, 0), 600)),
    ((CAPTURED, "2s refund_pending e2 ref=r1 money=6.00/KES",
      "3s refund_pending e3 ref=r2 money=6.00/KES", "4s disputed e4 ref=d1 money=5.00/KES"),
     (0, (1_500, 500), 1_000)),
    ((CAPTURED, "2s refunded e2 ref=r1 money=20.00/KES",
      "3s refund_pending e3 ref=r2 money=6.00/KES"), (2_000, (-500, 0), 0)),
    ((CAPTURED, "2s refund_pending e2 ref=r1 money=6.00/KES",
      "3s refunded e3 ref=r1 money=2.00/KES"), (200, (1_300, 0), 400)),
]  # fmt: skip
"""Rows about one payment. Results, in minor units of KES: the most that went back, what is kept and
what disputes hold, and what refunds under way will take."""


@for_each(("lines", "sums"), SUMS)
def test_the_sums_of_a_payment_are_those_of_its_events(
    lines: tuple[str, ...], sums: tuple[int, tuple[int, int], int]
) -> None:
    payment = payment_of(lines)
    found = at_most_returned(payment, "KES"), standing(payment, "KES"), under_way(payment, "KES")
    assert found == sums


# --- what counts toward the price ----------------------------------------------------------------


def share(captured: int, kept: int | None = None, **more: Any) -> Counted:
    return Counted(captured=captured, kept=captured if kept is None else kept, **more)


@for_each(("lines", "counted"), [
    ((f"{CAPTURED}",), share(1_500)),
    ((f"{CAPTURED} parts=tip:2.00/KES,fee:1.00/KES,tip:0.50/KES",),
     Counted(1_500, 1_500, named=350, kinds={"tip": 250, "fee": 100})),
    ((f"{CAPTURED} parts=tip:20.00/KES",),
     Counted(1_500, 1_500, named=1_500, kinds={"tip": 2_000})),
    ((f"{CAPTURED} parts=tip:0.00/KES,fee:-0.01/KES",),
     Counted(1_500, 1_500, kinds={"tip": 0, "fee": 0})),
    ((f"{CAPTURED} parts=tip:2.00/USD,fee:1.00/KES",),
     Counted(1_500, 1_500, named=100, kinds={"fee": 100})),
    ((f"{CAPTURED} parts=base:12.00/KES,tip:2.00/KES",),
     Counted(1_500, 1_500, beyond=300, kinds={"tip": 200, "surcharge": 100})),
    ((f"{CAPTURED} parts=base:12.00/KES,tip:4.00/KES,surcharge:0.50/KES",),
     Counted(1_500, 1_500, beyond=300, kinds={"tip": 400, "surcharge": 50})),
    ((f"{CAPTURED} parts=base:20.00/KES",), Counted(1_500, 1_500, kinds={"surcharge": 0})),
    ((f"{CAPTURED} parts=discount:1.00/KES,financed_discount:2.00/KES",),
     Counted(1_500, 1_500, discount=100, financed=200, kinds={})),
    # two events of one capture, then two captures, then captures and an event of their total
    ((f"{CAPTURED} parts=base:12.00/KES,tip:2.00/KES",
      "2s succeeded e2 money=15.00/KES parts=base:13.00/KES,tip:3.00/KES"),
     Counted(1_500, 1_500, beyond=300, kinds={"tip": 300, "surcharge": 0})),
    ((f"{CAPTURED} cap=c1 parts=tip:2.00/KES",
      "2s succeeded e2 cap=c2 money=5.00/KES parts=tip:1.00/KES"),
     Counted(2_000, 1_500, named=300, kinds={"tip": 300})),
    ((f"{CAPTURED} cap=c1", "2s succeeded e2 cap=c2 money=5.00/KES",
      "3s succeeded e3 parts=tip:3.00/KES"),
     Counted(2_000, 1_500, named=300, kinds={"tip": 300})),
    (("1s succeeded e1 cap=c1 parts=tip:1.00/KES",
      "2s succeeded e2 cap=c2 money=5.00/KES parts=tip:1.00/KES"),
     Counted(500, 1_500, named=100, kinds={"tip": 100})),
    ((f"{CAPTURED} cap=c1", "2s succeeded e2 cap=c2 money=5.00/KES parts=tip:1.00/KES",
      "3s succeeded e3 money=20.00/KES parts=tip:3.00/KES"),
     Counted(2_000, 1_500, named=100, kinds={"tip": 100})),
    (("1s succeeded e1 cap=c1 money=15.00/USD parts=tip:1.00/USD",
      "2s succeeded e2 cap=c2 money=5.00/KES parts=tip:1.00/KES"),
     Counted(500, 1_500, named=100, kinds={"tip": 100})),
])  # fmt: skip
def test_the_parts_of_a_payment_are_counted_once(lines: tuple[str, ...], counted: Counted) -> None:
    assert counted_of(payment_of(lines), "KES", kept=1_500) == counted


@for_each(("one", "price", "minor"), [
    (share(130, named=20), 100, 20),
    (share(130, named=20), 120, 10),
    (share(130, named=20), 130, 0),
    (share(130, named=20), 200, 0),
    (share(130, beyond=30), 130, 30),
    (share(150, beyond=30, named=30), 100, 50),
])  # fmt: skip
def test_parts_are_surely_on_top_where_the_payment_exceeds_the_price(
    one: Counted, price: int, minor: int
) -> None:
    assert one.surely_on_top(price) == minor
    assert one.less(7) == share(one.captured, one.kept - 7, beyond=one.beyond, named=one.named)


@for_each(("shares", "price", "minor"), [
    ([], 100, 0),
    ([share(100)], 100, 100),
    ([share(120, named=20)], 100, 100),
    ([share(120, named=20)], None, 120),
    ([share(120, beyond=20)], None, 100),
    ([share(120, 15, beyond=20)], None, 0),
    ([share(110, named=20)], 100, 100),
    ([share(100, named=20)], 100, 100),
    ([share(90, named=20)], 100, 90),
    ([share(60, named=10)] * 2, 100, 100),
    ([share(120, 50, named=20)], 100, 30),
    ([share(120, 10, named=20)], 100, 0),
    ([share(100), share(100, 0, beyond=20)], 100, 100),
    ([share(100), share(50, -10)], 100, 90),
    ([share(100), share(50, -1)], 100, 99),
    ([share(50, -5, beyond=3)], None, -5),
    ([share(150, -5, named=20)], 100, -5),
    ([share(100, named=20), share(30)], 100, 130),
    ([share(99, named=20), share(30)], 100, 109),
    ([share(60, named=10), share(50), share(50, 0)], 105, 105),
    ([share(60, named=10), share(50), share(50, 49)], 105, 149),
])  # fmt: skip
def test_kept_money_counts_without_what_is_on_top(
    shares: Sequence[Counted], price: int | None, minor: int
) -> None:
    assert counting(shares, price) == minor


@for_each(("shares", "price", "percent", "taken"), [
    ([share(90, discount=10)], 100, 10, (0, 10)),
    ([share(90, discount=10)], 100, 5, (0, 5)),
    ([share(90, discount=10)], 100, 0, (0, 0)),
    ([share(89, discount=10)], 99, 10, (0, 9)),
    ([share(90, financed=10)], 100, 0, (10, 0)),
    ([share(80, discount=10, financed=10)], 100, 10, (10, 10)),
    ([share(0, financed=150)], 100, 0, (100, 0)),
    ([share(0, financed=95, discount=10)], 100, 10, (95, 5)),
    ([share(90, discount=10)] * 2, 100, 50, (0, 10)),
    ([share(45, discount=5)] * 2, 100, 50, (0, 10)),
    ([share(48, discount=5)] * 2, 100, 50, (0, 5)),
    ([share(50, beyond=5, discount=5)] * 2, 100, 50, (0, 10)),
    ([share(90, 0, discount=10)], 100, 50, (0, 10)),
    ([share(90, 0, discount=10), share(95, discount=5)], 100, 50, (0, 5)),
    ([share(90, 1, discount=10), share(95, discount=5)], 100, 50, (0, 10)),
    ([share(90, 80, discount=10), share(95, discount=5)], 100, 50, (0, 10)),
])  # fmt: skip
def test_discounts_take_off_only_what_payments_leave_uncovered(
    shares: Sequence[Counted], price: int, percent: int, taken: tuple[int, int]
) -> None:
    assert discounted(shares, price, percent=percent) == taken


@for_each(("minor", "kinds"), [
    (0, []),
    (20, [("tip", 20)]),
    (30, [("tip", 25), ("fee", 5)]),
    (60, [("tip", 25), ("fee", 10), ("tax", 7)]),
])  # fmt: skip
def test_money_on_top_is_split_by_kind_tips_first_and_taxes_last(
    minor: int, kinds: list[tuple[str, int]]
) -> None:
    shares = [
        Counted(100, 100, kinds={"tax": 7, "fee": 10, "tip": 20}),
        share(100),
        Counted(100, 100, kinds={"tip": 5}),
    ]
    found = by_kind(shares, minor, "KES")
    assert [(part.kind, part.money.minor) for part in found] == kinds
    assert {part.money.currency for part in found} <= {"KES"}


# --- doubt ----------------------------------------------------------------------------------------


@for_each(("amount", "price", "off"), [
    ("150000.00/KES", "1500.00/KES", True),
    ("1500.00/KES", "1500.00/KES", False),
    ("15000.00/KES", "1500.00/KES", False),
    ("1500000/KWD", "1500.000/KWD", True),
    ("150000/KWD", "1500.000/KWD", False),
    ("150000/JPY", "1500/JPY", True),
    ("150000.00/USD", "1500.00/KES", False),
    ("0.00/KES", "0.00/KES", False),
    (None, "1500.00/KES", False),
    ("1500.00/KES", None, False),
])  # fmt: skip
def test_an_amount_is_off_by_the_factor_of_its_currency(
    amount: str | None, price: str | None, off: bool
) -> None:
    given = [None if each is None else from_major(*each.split("/")) for each in (amount, price)]
    assert is_off_by_factor(*given) is off


@for_each(("lines", "late"), [
    ((CAPTURED,), []),
    (("2s canceled e2",), []),
    ((CAPTURED, "2s canceled e2"), ["e2"]),
    ((CAPTURED, "2s canceled e2 at=1s"), []),
    ((CAPTURED, "2s canceled e2 at=0s", "3s canceled e3"), ["e3"]),
    ((CAPTURED, "2s canceled e2 at=none"), ["e2"]),
    ((CAPTURED, "2s canceled e2 at=0s", "3s succeeded e3 at=none"), ["e2"]),
    ((CAPTURED, "2s canceled e2", "4s succeeded e4"), ["e2"]),
])  # fmt: skip
def test_a_cancellation_is_late_unless_it_is_dated_by_the_first_capture(
    lines: tuple[str, ...], late: list[str]
) -> None:
    found = cancellations_after(attempt_of(lines))
    assert [each.event.event_id for each in found] == late
