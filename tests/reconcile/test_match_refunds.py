"""Partial refunds of an order book: what one line, or the rows of one order, say went back."""

from dataclasses import replace
from typing import Any

from reconcile.instants import DAY, Instant
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.books import BookKind, BookStatus
from reconcile.matching.breaks import Break, next_step
from reconcile.matching.rows import BookRow, StatementRow, lines_of
from reconcile.matching.tally import KeepingTally
from tests.reconcile.books_cases import AT, case, causes, decided
from tests.reconcile.books_strategies import World
from tests.reconcile.books_truth import AS_OF, RULES, Case, kes, statement_row
from tests.rows import for_each

Row = tuple[BookKind, int, BookStatus | None, int | None]
"""Kind, amount, status, what the line says was refunded."""

OLD = AS_OF - AT
"""Age of the orders of these cases."""


def booked(made: Case, *rows: Row) -> Case:
    for kind, minor, status, refunded in rows:
        made.books(status, minor=minor)
        made.book[-1] = replace(made.book[-1], kind=kind, refunded=refunded)
    return made


def moved(captured: int, refunded: int) -> Case:
    """Return an order with this captured, paid out, and this refunded."""
    made = case(minor=captured)
    more = (made.taken(minor=-refunded),) if refunded else ()
    outcome: Any = "succeeded"
    if refunded:
        outcome = "refunded" if refunded == captured else "partially_refunded"
    made.pays(outcome=outcome, more=more).settles()
    return made.settles(kind="refund", gross=-refunded, fee=0) if refunded else made


@for_each(
    ("captured", "refunded", "rows", "expected"),
    [
        # One line that says what went back.
        (1_500, 500, [("order", 1_500, "paid", 500)], []),
        (1_500, 500, [("order", 1_500, None, 500)], []),
        (1_500, 500, [("order", 1_500, "refunded", 500)], []),
        (1_500, 1_500, [("order", 1_500, "refunded", 0)], []),
        (1_500, 0, [("order", 1_500, "paid", 0)], []),
        (1_500, 500, [("order", 1_500, "paid", 400)], ["refund_not_in_book"]),
        (1_500, 500, [("order", 1_500, "paid", None)], ["refund_not_in_book"]),
        (1_500, 0, [("order", 1_500, "paid", 500)], ["refund_not_received"]),
        (1_500, 500, [("order", 1_500, "paid", 600)], ["refund_not_received"]),
        # Rows of one order whose statuses add up are one story: what is reported of it is a match.
        (1_500, 500, [("order", 1_500, "paid", None), ("invoice", 500, "refunded", None)], 1),
        (1_500, 1_500, [("order", 1_500, "paid", None), ("invoice", 1_500, "refunded", None)], 1),
        (1_500, 500, [("order", 1_500, "paid", None), ("entry", -500, None, None)], 1),
        (1_500, 500, [("order", 1_500, "paid", None), ("invoice", 1_500, "refunded", 500)], 1),
        (
            1_500,
            0,
            [("order", 1_500, "paid", None), ("invoice", 500, "refunded", None)],
            ["refund_not_received"],
        ),
        # Two charges of one order, one of which came and went back, are no story and fit as well.
        (1_500, 500, [("order", 1_000, "paid", None), ("invoice", 500, "refunded", None)], 1),
        # More went back than was paid: that does not add up.
        (
            1_500,
            200,
            [("order", 1_000, "paid", None), ("invoice", 1_200, "refunded", None)],
            ["amount_differs"],
        ),
    ],
)
def test_what_the_book_says_went_back_is_held_against_what_did(
    captured: int, refunded: int, rows: list[Row], expected: list[str] | int
) -> None:
    found, control = decided(booked(moved(captured, refunded), *rows))
    assert causes(found) == (["by_group"] if expected == 1 else expected)
    assert control.holds


@for_each(("days_after", "expected"), [(0, ["refund_not_received"]), (1, [])])
def test_a_refund_is_awaited_from_its_own_date_on(days_after: int, expected: list[str]) -> None:
    made = booked(moved(1_500, 0), ("order", 1_500, "paid", 500))
    began = AS_OF - RULES.refund_margin
    made.book[0] = replace(made.book[0], refunded_at=began + days_after * DAY)
    assert RULES.refund_margin < OLD
    assert causes(decided(made)[0]) == expected


def test_a_refund_of_the_first_moment_has_a_date() -> None:
    first = Instant(0)
    row = BookRow("a", "b-1", "a", "order", 5, "KES", AS_OF, "paid", None, 3, first)
    assert lines_of([row]).refunded_at == first


@for_each(("minor", "status", "refunded", "credit"), [
    (0, "paid", 500, 500), (0, "refunded", 0, 0), (1, "refunded", 0, 1), (-1, None, None, 1),
    (-1, "refunded", 500, 1), (1, "paid", None, 0), (1, "paid", 1, 1),
])  # fmt: skip
def test_what_one_line_says_went_back(
    minor: int, status: BookStatus | None, refunded: int | None, credit: int
) -> None:
    row = BookRow("a", "b-1", "a", "order", minor, "KES", AS_OF, status, None, refunded)
    assert lines_of([row]).credit == credit


@for_each(("refunded", "status", "expected"), [
    (1_499, None, ["paid_not_in_book"]),
    (1_500, None, []),
    (1_501, None, []),
    (1_499, "unpaid", ["book_unpaid_but_received"]),
    (1_500, "unpaid", []),
    (1_501, "unpaid", []),
    (1, "paid", ["refund_not_in_book"]),
    (0, "paid", []),
])  # fmt: skip
def test_a_minor_unit_that_is_kept_or_went_back_is_missed_in_the_book(
    refunded: int, status: BookStatus | None, expected: list[str]
) -> None:
    made = moved(1_500, refunded)
    found = decided(made.books(status) if status else made)[0]
    assert causes(found) == expected
    assert [each.money.minor for each in found] == [1] * len(expected)


@for_each("refunded", [1, 2])
def test_a_minor_unit_that_the_book_says_went_back_is_missed(refunded: int) -> None:
    (found,) = decided(booked(moved(1_500, 0), ("order", 1_500, "paid", refunded)))[0]
    assert isinstance(found, Break)
    assert (found.cause, found.money.minor) == ("refund_not_received", refunded)


AMOUNTS: tuple[FindingCode, ...] = ("amount_mismatch",)
BODIES: tuple[FindingCode, ...] = ("amount_mismatch", "same_id_different_body")


@for_each(("findings", "captured", "in_doubt", "expected"), [
    (AMOUNTS, True, 0, "amount_differs"),
    (AMOUNTS, True, 900, "unresolved"),
    (AMOUNTS, False, 0, "unresolved"),
    (AMOUNTS, False, 900, "unresolved"),
    (BODIES, True, 0, "unresolved"),
    ((), True, 0, "unresolved"),
])  # fmt: skip
def test_amounts_of_an_unresolved_order_are_compared_where_only_they_are_odd(
    findings: tuple[FindingCode, ...], captured: bool, in_doubt: int, expected: str
) -> None:
    made = case().pays() if captured else case().untouched()
    made.takings[0] = replace(
        made.takings[0],
        outcome="unresolved",
        findings=findings,
        in_doubt=(kes(in_doubt),) * bool(in_doubt),
    )
    made = made.books(minor=1_400)
    assert causes(decided(made.settles() if captured else made)[0]) == [expected]


@for_each(("findings", "surplus", "status", "expected"), [
    (("paid_after_cancel",), 0, None, ["late_money"]),
    (("paid_after_cancel", "overpaid"), 100, None, ["overpaid", "paid_not_in_book"]),
    (("paid_after_cancel",), 0, "canceled", ["late_money"]),
    (("paid_after_cancel", "overpaid"), 100, "canceled", ["book_unpaid_but_received", "overpaid"]),
    (("success_after_deadline",), 0, "unpaid", ["late_money"]),
    ((), 0, "canceled", ["book_unpaid_but_received"]),
])  # fmt: skip
def test_late_money_is_reported_where_nothing_of_it_is_beyond_the_price(
    findings: tuple[FindingCode, ...], surplus: int, status: BookStatus | None, expected: list[str]
) -> None:
    owed = (kes(surplus),) * bool(surplus)
    made = case().pays(minor=1_500 + surplus, findings=findings, owed=owed)
    made.settles(gross=1_500 + surplus)
    assert causes(decided(made.books(status) if status else made)[0]) == expected


def paid_out(order: str, *, minor: int = 500, payment: str = "B2C-1") -> Case:
    """Return a till's payment to a person; `order`: the one that its row names, if any."""
    return case("WAGE").settles(
        kind="disbursement", gross=-minor, fee=0, payment=payment, order=order
    )


@for_each(("named", "minor", "hands", "expected", "bucket"), [
    ("ORD-1", 500, (), ["by_payment"], "by_payment"),
    ("", 500, (("ORD-1", "stm_WAGE_0"),), ["by_hand"], "by_hand"),
    ("", 500, (), ["refund_not_received"], "other_business"),
    ("", 400, (("ORD-1", "stm_WAGE_0"),), ["refund_not_received"], "other_business"),
    ("ORD-1", 400, (), ["refund_not_received"], "other_business"),
    ("ORD-9", 500, (), ["refund_not_received"], "other_business"),
])  # fmt: skip
def test_a_payment_to_a_person_is_a_refund_only_where_it_or_a_person_names_the_order(
    named: str,
    minor: int,
    hands: tuple[tuple[str, str], ...],
    expected: list[str],
    bucket: str,
) -> None:
    made = booked(moved(1_500, 0), ("order", 1_500, "paid", 500))
    decisions, control = decided(made, paid_out(named, minor=minor), hands=hands)
    assert causes(decisions) == expected
    stood = {line.bucket: line.sum for line in control.lines if line.side == "statement"}
    assert stood == {"by_reference": 1_500, bucket: -minor}


def test_a_payment_of_the_sum_is_a_candidate_and_nothing_proposes_to_pay_twice() -> None:
    made = booked(moved(1_500, 0), ("order", 1_500, "paid", 500))
    (alone,) = decided(made)[0]
    (found,) = decided(made, paid_out("", minor=500))[0]
    assert isinstance(alone, Break)
    assert isinstance(found, Break)
    assert [each.line for each in found.candidates] == ["stm_WAGE_0.1"]
    assert next_step(alone).startswith("Start the refund")
    assert "pay the customer twice" in next_step(found)


def test_payments_to_persons_are_listed_by_their_ids_whatever_orders_they_name() -> None:
    made = case("WAGE")
    for order in ("ORD-9", "ORD-8"):
        made.settles(kind="disbursement", gross=-500, fee=0, order=order)
    keeping = KeepingTally("KES", side="statement", bucket="other_business", currency="KES", most=1)
    lines = tuple(map(statement_row, made.lines))
    World(takings=(), book=(), lines=lines).decided(keeping=keeping)
    assert [row.line_id for row in keeping.rows if isinstance(row, StatementRow)] == [
        "stm_WAGE_0.1"
    ]
