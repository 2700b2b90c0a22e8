"""Control totals: every equation with both its sides, parts that add up; and what is learnt of the
orders of other periods."""

from dataclasses import replace

from reconcile.instants import DAY, HOUR, TICK, Instant
from reconcile.matching import control
from reconcile.matching.breaks import Break
from reconcile.matching.causes import BreakCause
from reconcile.matching.match import Matching, OtherPeriods
from reconcile.matching.period import Period, within
from reconcile.matching.rules import HandMatch, Terms
from reconcile.matching.tally import Unsettled
from reconcile.money import Money
from tests.reconcile.books_cases import AT, case
from tests.reconcile.books_truth import AS_OF, COVERAGE, RULES, SOURCE, Case, covered, streams
from tests.rows import for_each

NOW = Instant(5)


def line(
    side: control.Side, bucket: control.Bucket, minor: int, currency: str = "KES", **more: int
) -> control.ControlLine:
    return control.ControlLine(
        side=side, currency=currency, bucket=bucket, sum=minor, **{"count": 1, **more}
    )


def read(
    side: control.Side, minor: int, currency: str = "KES", count: int = 1, **more: int
) -> control.Read:
    return control.Read(side=side, currency=currency, count=count, sum=minor, **more)


MADE = control.Control(
    as_of=NOW,
    lines=(
        line("bank", "by_reference", 50),
        line("bank", "other_business", 7),
        line("bank", "by_hand", 8, "UGX"),
        line("book", "by_group", 100, count=2),
        line("book", "awaiting_money", 20),
        line("book", "book_paid_not_received", 3),
        line("payouts", "by_reference", 50),
        line("payouts", "payout_not_in_bank", 9),
        line("payouts", "by_hand", 8, "UGX"),
        line("settlement", "by_reference", 60),
        line("statement", "by_reference", 40, fee=4, net=36),
        line("statement", "fee_line", 0, fee=2, net=-2),
        line("takings", "by_reference", 60),
    ),
    read=(
        read("bank", 57, count=2),
        read("bank", 8, "UGX"),
        read("book", 123, count=4),
        read("payouts", 59, count=2),
        read("payouts", 8, "UGX"),
        read("settlement", 60),
        read("statement", 40, count=2, fee=6, net=34),
        read("takings", 60),
    ),
    breaks=(control.BreakTotal(cause="not_settled", currency="KES", count=1, minor=9),),
    unsearched=3,
)


def test_every_equation_is_reported_with_both_its_sides() -> None:
    found = [(tie.side, tie.currency, tie.left, tie.right) for tie in MADE.ties()]
    assert found == [
        ("bank", "KES", 2, 2), ("bank", "KES", 57, 57),
        ("bank", "UGX", 1, 1), ("bank", "UGX", 8, 8),
        ("book", "KES", 4, 4), ("book", "KES", 123, 123),
        ("payouts", "KES", 2, 2), ("payouts", "KES", 59, 59),
        ("payouts", "UGX", 1, 1), ("payouts", "UGX", 8, 8),
        ("settlement", "KES", 1, 1), ("settlement", "KES", 60, 60),
        ("statement", "KES", 2, 2), ("statement", "KES", 40, 40),
        ("statement", "KES", 6, 6), ("statement", "KES", 34, 34),
        ("takings", "KES", 1, 1), ("takings", "KES", 60, 60),
        ("settlement", "KES", 60, 60), ("settlement", "UGX", 0, 0),
        ("bank", "KES", 50, 50), ("bank", "UGX", 8, 8),
    ]  # fmt: skip
    assert MADE.holds


@for_each(("more", "broken"), [
    (line("book", "by_hand", 0), [("book", "rows read = rows placed", 4, 5)]),
    (line("book", "by_hand", 5, count=0),
     [("book", "read = matched + waiting + breaks", 123, 128)]),
    (line("statement", "fee_line", 0, count=0, fee=1, net=-1),
     [("statement", "fees read = fees placed", 6, 7)]),
    (line("statement", "fee_line", 0, count=0, net=1),
     [("statement", "gross - fees = net", 34, 35)]),
    (line("takings", "by_group", 1, count=0),
     [("takings", "read = matched + waiting + breaks", 60, 61),
      ("settlement", "captured against the book = captured against the statements", 61, 60)]),
    (line("payouts", "by_group", 1, count=0),
     [("payouts", "read = matched + waiting + breaks", 59, 60),
      ("bank", "payouts found in the bank = what the bank booked for them", 51, 50)]),
    (line("bank", "by_date_window", 1, count=0),
     [("bank", "read = matched + waiting + breaks", 57, 58),
      ("bank", "payouts found in the bank = what the bank booked for them", 50, 51)]),
    # Of an exchange, or within a tolerance, both sums are their own.
    (line("bank", "by_exchange", 1, count=0),
     [("bank", "read = matched + waiting + breaks", 57, 58)]),
    (line("bank", "by_tolerance", 1, count=0),
     [("bank", "read = matched + waiting + breaks", 57, 58)]),
    # What no stream read.
    (line("book", "by_hand", 2, "TZS"),
     [("book", "rows read = rows placed", 0, 1),
      ("book", "read = matched + waiting + breaks", 0, 2)]),
])  # fmt: skip
def test_what_does_not_tie_is_reported_by_its_equation(
    more: control.ControlLine, broken: list[tuple[str, str, int, int]]
) -> None:
    together = MADE + control.Control(as_of=NOW, lines=(more,))
    found = [(t.side, t.name, t.left, t.right) for t in together.ties() if not t.holds]
    assert found == broken
    assert not together.holds


@for_each(("name", "currency", "sides"), [
    ("rows read = rows placed", "KES", "123,456 and 5"),
    ("gross - fees = net", "KES", "KES 1,234.56 and KES 0.05"),
    ("gross - fees = net", "", "123,456 and 5"),
])  # fmt: skip
def test_an_equation_states_numbers_of_rows_or_money(name: str, currency: str, sides: str) -> None:
    tie = control.Equation(name=name, side="book", currency=currency, left=123_456, right=5)
    assert (tie.sides, tie.holds, tie.of_wallet) == (sides, False, False)


def test_parts_add_up_line_by_line() -> None:
    other = control.Control(
        as_of=Instant(9),
        lines=(line("book", "by_group", 1), line("book", "by_hand", 2)),
        read=(read("book", 1), read("book", 2, "TZS")),
        breaks=(
            control.BreakTotal(cause="ambiguous", currency="KES", count=1, minor=4),
            control.BreakTotal(cause="not_settled", currency="KES", count=2, minor=5),
        ),
        unsearched=4,
    )
    for whole in (MADE + other, other + MADE):
        assert (whole.as_of, whole.unsearched) == (9, 7)
        assert [(e.cause, e.count, e.minor) for e in whole.breaks] == [
            ("ambiguous", 1, 4), ("not_settled", 3, 14)]  # fmt: skip
        assert [(e.currency, e.count, e.sum) for e in whole.read if e.side == "book"] == [
            ("KES", 5, 124), ("TZS", 1, 2)]  # fmt: skip
        book = [(e.bucket, e.count, e.sum) for e in whole.lines if e.side == "book"]
        assert book == [
            ("awaiting_money", 1, 20), ("book_paid_not_received", 1, 3), ("by_group", 3, 101),
            ("by_hand", 1, 2)]  # fmt: skip
    twice = MADE + MADE
    assert [(e.fee, e.net) for e in twice.lines if e.side == "statement"] == [(8, 72), (4, -4)]
    assert twice.holds
    assert control.control_in(control.control_text(twice)) == twice


def test_breaks_are_counted_with_their_money_by_cause_and_currency() -> None:
    given: list[tuple[BreakCause, int, str]] = [
        ("overpaid", 3, "KES"), ("not_settled", 5, "UGX"), ("not_settled", 7, "KES"),
        ("not_settled", 2, "KES"),
    ]  # fmt: skip
    breaks = [
        Break(cause=cause, money=Money(minor=minor, currency=currency), since=NOW, cites=())
        for cause, minor, currency in given
    ]
    found = [(e.cause, e.currency, e.count, e.minor) for e in control.break_totals(breaks)]
    assert found == [("not_settled", "KES", 2, 9), ("not_settled", "UGX", 1, 5),
                     ("overpaid", "KES", 1, 3)]  # fmt: skip


def test_the_sum_of_a_family_is_that_of_its_buckets() -> None:
    book = [each for each in MADE.lines if each.side == "book"]
    assert [control.total(book, family) for family in ("matched", "waiting", "break")] == [
        100,
        20,
        3,
    ]


TAKEN_AT = AT + HOUR
"""Instant of capture of each case."""


@for_each(("as_of", "since", "until", "days"), [
    (TAKEN_AT + 2 * DAY - TICK, TAKEN_AT, AS_OF, 1),
    (TAKEN_AT + 2 * DAY, TAKEN_AT, AS_OF, 2),
    (TAKEN_AT, TAKEN_AT, AS_OF, 0),
    (AT, TAKEN_AT, AS_OF, 0),
    (TAKEN_AT + 9 * DAY, TAKEN_AT, TAKEN_AT + TICK, 9),
    # No statement covers the capture.
    (TAKEN_AT + 9 * DAY, TAKEN_AT + TICK, AS_OF, None),
    (TAKEN_AT + 9 * DAY, TAKEN_AT - DAY, TAKEN_AT, None),
])  # fmt: skip
def test_captures_without_a_line_are_counted_by_their_age_in_whole_days(
    as_of: int, since: int, until: int, days: int | None
) -> None:
    statements = (covered(SOURCE, since, until),)
    matching = Matching(
        rules=RULES, as_of=Instant(as_of), coverage=replace(COVERAGE, statements=statements)
    )
    made = case("ORD-1").pays().books(), case("ORD-2", 700).pays().books()
    list(matching.decide(**streams(*made, case("ORD-3").pays().books().settles())))
    expected = [] if days is None else [Unsettled(SOURCE, "KES", days, number=2, minor=2_200)]
    assert list(matching.unsettled()) == expected


# --- orders of other periods ----------------------------------------------------------------------


def learnt(*cases: Case, hands: tuple[tuple[str, str], ...] = ()) -> set[str]:
    """Return the lines without a movement; none of the cases is of the period."""
    paired = [HandMatch(one=one, other=other) for one, other in hands]
    others = OtherPeriods(Terms(rules=RULES, as_of=AS_OF, coverage=COVERAGE, hands=paired))
    for stream in within(
        Period(since=AS_OF),
        **streams(*cases),
        outside=others.order,
    ):
        assert list(stream) == []
    return others.never_notified()


@for_each(("cases", "found"), [
    ([case().pays().settles()], set()),
    ([case().pays().settles().settles(payment="pay_9")], {"stm_ORD-1_1.1"}),
    ([case().pays().settles().settles(kind="refund", gross=-5)], {"stm_ORD-1_1.1"}),
    ([case().pays().settles().settles(kind="fee", gross=0, fee=3)], set()),
    ([case().untouched().settles()], {"stm_ORD-1_0.1"}),
    # A line beside no money can be of none.
    ([case().settles()], set()),
    ([case().books().settles()], set()),
    ([case().settles(kind="refund", gross=-5)], set()),
    # What the second look brings to another order is of its movement.
    ([case("ORD-1").pays().settles().settles(payment="pay_ORD-2"), case("ORD-2").pays()], set()),
])  # fmt: skip
def test_which_lines_of_orders_of_other_periods_are_of_no_movement(
    cases: list[Case], found: set[str]
) -> None:
    assert learnt(*cases) == found


def test_what_a_person_gave_to_an_order_of_another_period_is_of_it() -> None:
    made = case("ORD-1").pays().settles().settles(payment="x"), case("ORD-2").pays()
    assert learnt(*made) == {"stm_ORD-1_1.1"}
    assert learnt(*made, hands=(("ORD-2", "stm_ORD-1_1"),)) == set()
