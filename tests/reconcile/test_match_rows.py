"""Rows of ledger lines and of books: what a flat row says, what the lines of a reference say
together, and what money an order has."""

from dataclasses import replace
from itertools import permutations
from typing import Any

from reconcile.instants import DAY, HOUR, Instant
from reconcile.ledger.vocabulary import FINDING_CODES
from reconcile.matching.books import BookKind, BookStatus
from reconcile.matching.breaks import Break
from reconcile.matching.funds import Funds, Left, RefundDue, captures_of, funds_of
from reconcile.matching.ledger_lines import Doubted, LedgerLine, Taken
from reconcile.matching.rows import (
    WEIGHTY,
    BookRow,
    TakingRow,
    claims,
    ledger_line_row,
    lines_of,
    name_of,
    subject_of,
)
from reconcile.money import MAX_MINOR, Money
from tests.reconcile.books_cases import AT, case
from tests.reconcile.books_truth import SOURCE, book_row, kes, statement_row
from tests.rows import for_each

PAID = case().pays().takings[0]
UNPAID = case().untouched().takings[0]


def test_a_plain_order_is_flat() -> None:
    assert ledger_line_row(PAID) == TakingRow(
        "ord1", "ORD-1", 1_500, "KES", SOURCE, "pay_ORD-1", "evt_pay_ORD-1_paid", AT + HOUR, AT
    )


@for_each(("expected", "currency"), [(kes(1_500), "KES"), (None, "")])
def test_an_order_that_nobody_paid_is_flat(expected: Any, currency: str) -> None:
    row = ledger_line_row(replace(UNPAID, expected=expected))
    assert row == TakingRow("ord1", "ORD-1", 0, currency, "", "", "", AT, AT)


def test_an_order_that_is_not_plain_has_its_line_beside_it() -> None:
    odd = replace(PAID, owed=(kes(1),))
    assert ledger_line_row(odd) == TakingRow("ord1", "ORD-1", 0, "KES", "", "", "", AT, AT, odd)


TAKEN = PAID.taken[0]


@for_each(("line", "plain"), [
    (PAID, True),
    (UNPAID, True),
    (replace(UNPAID, outcome="unresolved"), False),
    (replace(UNPAID, outcome="succeeded"), True),
    (replace(PAID, outcome="partially_refunded"), False),
    (replace(PAID, owed=(kes(1),)), False),
    (replace(UNPAID, owed=(kes(1),)), False),
    (replace(PAID, doubted=(Doubted(source=SOURCE, payment="p"),)), False),
    (replace(PAID, taken=(TAKEN, TAKEN)), False),
    (replace(PAID, taken=(replace(TAKEN, kind="refunded"),)), False),
    (replace(PAID, taken=(replace(TAKEN, minor=1),)), True),
    (replace(PAID, taken=(replace(TAKEN, minor=0),)), False),
    (replace(PAID, taken=(replace(TAKEN, minor=-1),)), False),
    (replace(PAID, taken=(replace(TAKEN, cites=("a", "b")),)), False),
    (replace(PAID, taken=(replace(TAKEN, cites=()),)), False),
])  # fmt: skip
def test_which_order_is_plain(line: LedgerLine, plain: bool) -> None:
    assert (ledger_line_row(line).whole is None) == plain


@for_each("code", FINDING_CODES)
def test_a_finding_that_bears_on_a_match_is_not_plain(code: Any) -> None:
    for line in (PAID, UNPAID):
        row = ledger_line_row(replace(line, findings=(code,)))
        assert (row.whole is not None) == (code in WEIGHTY)


@for_each(("line", "subject", "name"), [
    ("bok_1.2", "bok_1", "bok_1"),
    ("stm_1.2.3", "stm_1", "stm_1"),
    ("bnk_1", "bnk_1", "bnk_1"),
    ("ORD-1.2", "ORD-1", "ORD-1.2"),
])  # fmt: skip
def test_what_a_line_is_called_from_one_version_to_the_next(
    line: str, subject: str, name: str
) -> None:
    assert (subject_of(line), name_of(line)) == (subject, name)


def row(
    line_id: str = "b1",
    minor: int = 5,
    status: BookStatus | None = "paid",
    *,
    kind: BookKind = "order",
    refunded: int | None = None,
    placed_at: Instant | None = AT,
    refunded_at: Instant | None = None,
    key: str = "a",
) -> BookRow:
    return BookRow(
        key, line_id, key, kind, minor, "KES", placed_at, status, None, refunded, refunded_at
    )


@for_each(("line", "claimed"), [
    (row(), True),
    (row(status="refunded"), True),
    (row(status="unpaid"), False),
    (row(status="canceled"), False),
    (row(status="canceled", refunded=5), False),
    (row(status=None), False),
    (row(status=None, refunded=0), False),
    (row(status=None, refunded=1), True),
    (row(status=None, kind="entry"), True),
    (row(status="unpaid", kind="entry"), False),
])  # fmt: skip
def test_which_line_says_that_money_moved(line: BookRow, claimed: bool) -> None:
    assert claims(line) == claimed
    assert lines_of([line]).claims == claimed


@for_each(("statuses", "said", "counted"), [
    (("paid", "paid"), "paid", 2),
    (("refunded", "refunded"), "refunded", 2),
    (("refunded", "paid"), "paid", 2),
    (("paid", "unpaid", None, "canceled"), "paid", 1),
    (("unpaid", "refunded"), "refunded", 1),
    (("unpaid", None), "nothing", 2),
    (("canceled", None), "nothing", 1),
    (("canceled", "unpaid"), "unpaid", 1),
    (("unpaid", "unpaid"), "unpaid", 2),
    (("canceled", "canceled"), "canceled", 2),
    ((None,), "nothing", 1),
])  # fmt: skip
def test_what_the_lines_of_a_reference_say_together(
    statuses: tuple[BookStatus | None, ...], said: str, counted: int
) -> None:
    lines = lines_of([row(f"b{n}", status=status) for n, status in enumerate(statuses)])
    assert (lines.status, len(lines.rows), len(lines.rest)) == (
        said,
        counted,
        len(statuses) - counted,
    )


@for_each(("rows", "charge", "credit", "repeated"), [
    ([row("b1", 5), row("b2", 3)], 8, 0, False),
    ([row("b1", 5), row("b2", -3)], 5, 3, False),
    ([row("b1", 5), row("b2", 0)], 5, 0, False),
    ([row("b1", 5), row("b2", 1)], 6, 0, False),
    # A line that says refunded states what became of the paid one's charge, if that is as much.
    ([row("b1", 5), row("b2", 5, "refunded")], 5, 5, True),
    ([row("b1", 5), row("b2", 6, "refunded")], 11, 6, False),
    ([row("b1", 5), row("b2", 6, "refunded", refunded=5)], 5, 5, True),
    ([row("b1", 5), row("b2", 2, "refunded"), row("b3", 3, "refunded")], 5, 5, True),
    ([row("b1", 5), row("b2", 2, "refunded"), row("b3", 4, "refunded")], 11, 6, False),
    ([row("b1", 1), row("b2", 1, "refunded")], 1, 1, True),
    ([row("b1", 5), row("b2", 5, "refunded", key="b")], 10, 5, False),  # of another reference
    ([row("b1", 5, "refunded")], 5, 5, False),
    ([row("b1", 5, "refunded"), row("b2", 5, "refunded")], 10, 10, False),
    # What is negative went back itself, and is no charge.
    ([row("b1", 5), row("b2", -5, "refunded")], 5, 5, False),
    ([row("b1", 5), row("b2", -1), row("b3", 6, "refunded")], 11, 7, False),
])  # fmt: skip
def test_what_the_lines_of_a_reference_charge_and_credit(
    rows: list[BookRow], charge: int, credit: int, repeated: bool
) -> None:
    for ordered in (rows, rows[::-1]):
        lines = lines_of(ordered)
        assert (lines.charge, lines.credit, lines.repeated) == (charge, credit, repeated)
    apart = lines_of(rows, apart=True)
    assert apart.charge == sum(each.minor for each in rows if each.minor > 0)
    assert (apart.credit, apart.repeated) == (credit, False)


LATER = Instant(AT + DAY)


@for_each(("rows", "placed_at", "refunded_at"), [
    ([row()], AT, None),
    ([row("b1"), row("b2", placed_at=LATER)], LATER, None),
    ([row("b1", placed_at=LATER), row("b2", placed_at=None)], LATER, None),
    ([row(placed_at=None)], None, None),
    ([row(refunded=1)], AT, AT),
    ([row(refunded=1, refunded_at=LATER)], AT, LATER),
    ([row(refunded=0, refunded_at=LATER)], AT, None),
    ([row(minor=-1, placed_at=LATER)], LATER, LATER),
    ([row("b1", refunded=1, refunded_at=LATER), row("b2", refunded=1)], AT, LATER),
    ([row("b1", refunded=1, placed_at=None)], None, None),
])  # fmt: skip
def test_the_latest_dates_of_a_reference_count(
    rows: list[BookRow], placed_at: Instant | None, refunded_at: Instant | None
) -> None:
    lines = lines_of(rows)
    assert (lines.placed_at, lines.refunded_at) == (placed_at, refunded_at)


def test_a_reference_is_named_by_its_first_line() -> None:
    lines = lines_of([row("b2.1", 3), row("b1.7", 5)._replace(reference="A", group="G")])
    assert (lines.reference, lines.subject, lines.ids) == ("A", "b1", ("b1.7", "b2.1"))
    assert (lines.groups, lines.currencies) == (frozenset({"G"}), frozenset({"KES"}))
    assert lines.money == kes(8)
    assert lines_of([row(minor=-3)]).money == kes(3)


# --- an order's money -----------------------------------------------------------------------------


def moved(minor: int, currency: str = "KES", payment: str = "pay_1", kind: Any = None) -> Taken:
    """Return a capture, or a refund (or `kind`) if it is negative."""
    return case().taken(minor=minor, currency=currency, payment=payment, kind=kind or "refunded")


PRICE = kes(1_500)


def funds(*taken: Taken, price: Money | None = PRICE, **more: Any) -> Funds:
    line = replace(UNPAID, taken=taken, expected=price, **{"outcome": "disputed", **more})
    return funds_of([ledger_line_row(line)])


UGX = Money(minor=1_500, currency="UGX")


@for_each(("found", "currency", "others", "captured", "refunded"), [
    (funds(), "KES", False, 0, 0),
    (funds(price=None, outcome="unresolved"), "", False, 0, 0),
    (funds(moved(5)), "KES", False, 5, 0),
    (funds(moved(5, "UGX")), "UGX", False, 5, 0),
    (funds(moved(7, "UGX"), moved(5)), "KES", False, 5, 0),
    (funds(moved(7, "UGX"), moved(5), outcome="unresolved"), "KES", True, 5, 0),
    (funds(moved(7, "UGX"), moved(5), price=None), "UGX", True, 7, 0),
    (funds(moved(7, "UGX"), moved(5), price=UGX), "UGX", False, 7, 0),
    (funds(moved(7, "UGX"), moved(8, "UGX"), moved(-2, "UGX")), "UGX", False, 15, 2),
    (funds(moved(5), moved(-2), moved(-3, "UGX")), "KES", False, 5, 2),
    (funds(moved(-2, "UGX")), "UGX", False, 0, 2),
    (funds(in_doubt=(UGX,), outcome="unresolved"), "UGX", False, 0, 0),
    (funds(in_doubt=(UGX, kes(1)), outcome="unresolved"), "KES", False, 0, 0),
    (funds(moved(-2), in_doubt=(UGX,), price=None), "UGX", False, 0, 0),
])  # fmt: skip
def test_money_is_counted_in_one_currency(
    found: Funds, currency: str, others: bool, captured: int, refunded: int
) -> None:
    assert (found.currency, found.others) == (currency, others)
    assert (found.captured, found.refunded) == (captured, refunded)


@for_each(("taken", "over", "worth", "given_back", "kept"), [
    ((1_500,), 0, 1_500, 0, 1_500),
    ((1_501,), 1, 1_500, 0, 1_500),
    ((1_499,), 0, 1_499, 0, 1_499),
    ((1_600, -40), 100, 1_500, 0, 1_500),
    ((1_600, -100), 100, 1_500, 0, 1_500),
    ((1_600, -101), 100, 1_500, 1, 1_499),
    ((1_600, -1_600), 100, 1_500, 1_500, 0),
    ((1_500, -1_500), 0, 1_500, 1_500, 0),
    ((1_500, -1_501), 0, 1_500, 1_501, -1),
    ((1_000, 600), 100, 1_500, 0, 1_500),
])  # fmt: skip
def test_what_came_beyond_the_price_is_kept_apart_from_the_rest(
    taken: tuple[int, ...], over: int, worth: int, given_back: int, kept: int
) -> None:
    moves = [moved(minor) for minor in taken]
    found = funds(*moves)
    assert (found.over, found.worth) == (over, worth)
    assert (found.given_back, found.kept) == (given_back, kept)
    for other in (funds(*moves, price=None), funds(*moves, price=UGX),
                  funds(*moves, outcome="unresolved")):  # fmt: skip
        assert other.over == 0
        assert other.worth == sum(minor for minor in taken if minor > 0)
        assert other.kept == sum(taken)


@for_each(("taken", "in_doubt", "stake"), [
    ((1_500,), 0, 1_500), ((1_500,), 900, 2_400), ((), 900, 900), ((1_500, -2_000), 900, 2_400),
    ((1_500, -3_000), 900, 3_000), ((1_500,), MAX_MINOR, MAX_MINOR), ((), MAX_MINOR, MAX_MINOR),
])  # fmt: skip
def test_at_stake_is_what_came_or_went_back(
    taken: tuple[int, ...], in_doubt: int, stake: int
) -> None:
    doubts = (kes(in_doubt),) * bool(in_doubt)
    found = funds(*[moved(minor) for minor in taken], outcome="unresolved", in_doubt=doubts)
    assert (found.in_doubt, found.at_stake) == (in_doubt, stake)


@for_each(("second", "in_doubt", "at_doubt"), [
    ((700,), (), [("KES", 700)]),
    ((700, -900), (), [("KES", 900)]),
    ((1,), (kes(100),), [("KES", 101)]),
    ((-1,), (kes(100),), [("KES", 100)]),
    ((700, -600), (), [("KES", 700)]),
    ((), (kes(100),), [("KES", 100)]),
    ((700, -300), (kes(100),), [("KES", 800)]),
    ((700, -900), (kes(100), UGX), [("KES", 900), ("UGX", 1_500)]),
    ((), (kes(MAX_MINOR), kes(1)), [("KES", MAX_MINOR)]),
    ((), (), []),
])  # fmt: skip
def test_what_is_at_stake_in_a_payment_in_doubt(
    second: tuple[int, ...], in_doubt: tuple[Money, ...], at_doubt: list[tuple[str, int]]
) -> None:
    taken = [moved(1_500), moved(-20), *[moved(minor, payment="pay_2") for minor in second]]
    doubt = (Doubted(source=SOURCE, payment="pay_2"),)
    found = funds(*taken, doubted=doubt, in_doubt=in_doubt)
    assert [(each.currency, each.minor) for each in found.at_doubt] == at_doubt
    assert (found.captured, found.refunded, found.over) == (1_500, 20, 0)
    whole = funds(*taken, doubted=doubt, in_doubt=in_doubt, outcome="unresolved")
    assert whole.at_doubt == ()
    assert whole.captured == 1_500 + sum(minor for minor in second if minor > 0)
    other = funds(*taken, doubted=(Doubted(source="other", payment="pay_2"),))
    assert (other.at_doubt, other.captured) == ((), whole.captured)


@for_each(("hours", "at", "returned_at"), [
    ((), 0, 0), ((1,), 1, 1), ((1, 3), 3, 3), ((3, 1), 3, 3), ((1, -2), 1, 2), ((3, -5, -4), 3, 5),
    ((-2,), 0, 2),
])  # fmt: skip
def test_an_order_is_as_old_as_its_last_money(
    hours: tuple[int, ...], at: int, returned_at: int
) -> None:
    taken = [
        replace(moved(9 if hour > 0 else -9), at=Instant(AT + abs(hour) * HOUR)) for hour in hours
    ]
    found = funds(*taken)
    assert (found.at - AT, found.returned_at - AT) == (at * HOUR, returned_at * HOUR)


def test_several_orders_are_one_money() -> None:
    one = ledger_line_row(replace(PAID, outcome="disputed", expected=kes(1_400)))
    other = ledger_line_row(replace(UNPAID, order="ORD-2", opened_at=LATER))
    found = funds_of([one, other])
    assert (found.order, found.captured, found.over, found.at) == ("ORD-1", 1_500, 100, AT + HOUR)
    assert funds_of([other, one]).order == "ORD-2"
    assert funds_of([other, ledger_line_row(UNPAID)]).at == LATER


@for_each(("outcome", "findings", "disputed"), [
    ("disputed", (), True), ("succeeded", ("dispute_open",), True), ("charged_back", (), False),
])  # fmt: skip
def test_an_order_is_disputed_by_its_outcome_or_a_finding(
    outcome: Any, findings: Any, disputed: bool
) -> None:
    assert funds(moved(5), outcome=outcome, findings=findings).disputed == disputed


def waiting(*names: str) -> Left:
    """Return the rows of these orders, in this order."""
    left = Left()
    for name in names:
        made = case(name).pays().books().settles()
        taking = ledger_line_row(made.takings[0])
        book, line = (book_row(made.book[0]),), statement_row(made.lines[0])
        due = Break(cause="overpaid", order=name, money=kes(1), since=AT, cites=())
        left.orders.append(taking)
        left.book.append(book)
        left.idle.append(book)
        left.captures += captures_of(taking)
        left.awaited += captures_of(taking)
        left.lines.append(line)
        left.paid_out.append(line)
        left.refunds.append(RefundDue(due, (), ()))
    return left


def test_rows_that_wait_are_sorted_whatever_order_they_came_in() -> None:
    found = []
    for names in permutations(("ORD-1", "ORD-2", "ORD-3")):
        left = waiting(*names)
        left.sort()
        found.append(left)
    assert found == [found[0]] * 6
    assert [row.order for row in found[0].orders] == ["ORD-1", "ORD-2", "ORD-3"]
