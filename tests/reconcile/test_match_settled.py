"""Statement lines of one key: bounds of fees, amounts and dates, which of several is meant, and
what the quick way of plain orders may take."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reconcile.instants import DAY, HOUR, TICK, Instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.matching.books import StatementKind
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.decide import Match
from reconcile.matching.ledger_lines import Doubted, FailedRefund
from reconcile.matching.match import Matching
from reconcile.matching.returning import balance_of
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, ledger_line_row
from reconcile.matching.rules import ExpectedFee, Terms, Tolerance
from reconcile.matching.settling import unsettled_by
from reconcile.matching.tally import Plain, Sheet, merge
from reconcile.money import Money
from tests.reconcile.books_cases import AT, case, causes, decided, stands
from tests.reconcile.books_truth import (
    AS_OF,
    COVERAGE,
    KES,
    RULES,
    SOURCE,
    Case,
    book_row,
    covered,
    kes,
    statement_row,
)
from tests.reconcile.test_match_rest import WINDOW, unnamed
from tests.rows import for_each

SETTLED = AT + 2 * DAY
"""Instant at which the statement lines of these cases were settled."""


@for_each(("kind", "bucket"), [
    ("fee", "fee_line"), ("carried", "carried_line"), ("withdrawal", "wallet_line"),
    ("withdrawal_failed", "wallet_line"), ("deposit", "wallet_line"), ("transfer", "wallet_line"),
    ("hold", "wallet_line"), ("release", "wallet_line"), ("conversion", "wallet_line"),
    ("disbursement", "other_business"),
])  # fmt: skip
def test_a_line_of_no_payment_stands_by_its_kind(kind: StatementKind, bucket: str) -> None:
    for gross in (-300, 300):
        made = case().pays().books().settles().settles(kind=kind, gross=gross, fee=0)
        decisions, control = decided(made)
        assert decisions == []
        assert stands(control, "statement") == sorted(["by_reference", bucket])


def breaks_of(cause: str, *cases: Case) -> list[Break]:
    decisions = decided(*cases)[0]
    return [each for each in decisions if isinstance(each, Break) and each.cause == cause]


@for_each("booked", [True, False])
@for_each(("fee", "fits"), [
    (21, False), (22, True), (23, True), (24, True), (25, False),
])  # fmt: skip
def test_a_fee_may_differ_by_its_tolerance(fee: int, fits: bool, booked: bool) -> None:
    """23 is expected, give or take 1."""
    made = case().pays().settles(fee=fee)
    made = made.books() if booked else made
    assert [each.money.minor for each in breaks_of("fee_unexpected", made)] == (
        [] if fits else [abs(fee - 23)]
    )


@for_each(("source", "currency", "gross", "fee", "fits"), [
    (SOURCE, "KES", 1_500, 21, False),
    (SOURCE, "KES", 1_500, 22, True),
    (SOURCE, "KES", 1_500, 24, True),
    (SOURCE, "KES", 1_500, 25, False),
    (SOURCE, "KES", 1_499, 21, True),  # 22.485: 22 are due
    (SOURCE, "UGX", 1_500, 999, True),
    ("other", "KES", 1_500, 999, True),
])  # fmt: skip
def test_a_fee_fits_where_it_is_expected_or_none_is_known(
    source: str, currency: str, gross: int, fee: int, fits: bool
) -> None:
    terms = Terms(rules=RULES, as_of=AS_OF, coverage=COVERAGE)
    taking = ledger_line_row(case().pays().takings[0])._replace(source=source)
    line = statement_row(case().settles().lines[0])
    line = line._replace(gross=gross, fee=fee, currency=currency)
    assert terms.fee_fits(taking, line) == fits
    due = terms.expected_fee(gross, source=source, currency=currency)
    assert (due is None or abs(fee - due[0]) <= due[1]) == fits


@for_each(("gross", "per_million", "fixed", "due"), [
    (499_999, 1, 0, 0), (500_000, 1, 0, 1), (1_499_999, 1, 0, 1), (1_500_000, 1, 0, 2),
    (0, 1, 7, 7), (100, 10_000, 0, 1), (100, 1_000_000, 3, 103), (-500_001, 1, 0, -1),
    (-500_000, 1, 0, 0),
])  # fmt: skip
def test_a_fee_is_rounded_half_up(gross: int, per_million: int, fixed: int, due: int) -> None:
    fee = ExpectedFee(
        source=SOURCE, currency="KES", per_million=per_million, fixed=fixed, tolerance=0
    )
    terms = Terms(rules=replace(RULES, fees=(fee,)), as_of=AS_OF, coverage=COVERAGE)
    assert terms.expected_fee(gross, source=SOURCE, currency="KES") == (due, 0)
    taking = ledger_line_row(case().pays().takings[0])
    line = statement_row(case().settles().lines[0])._replace(gross=gross)
    assert [each for each in range(due - 2, due + 3) if terms.fee_fits(
        taking, line._replace(fee=each))] == [due]  # fmt: skip


@for_each(("apart", "fits"), [
    (-6, False), (-5, True), (5, True), (6, False),
])  # fmt: skip
def test_amounts_may_differ_by_their_tolerance(apart: int, fits: bool) -> None:
    """By 5 minor units, of statement and book, in both directions."""
    expected = ["by_tolerance"] if fits else ["amount_differs"]
    assert causes(decided(case().pays().books().settles(gross=1_500 + apart))[0]) == expected
    assert causes(decided(case().pays().books(minor=1_500 + apart).settles())[0]) == expected


@for_each("apart", [-1, 1])
def test_a_currency_without_a_tolerance_has_none(apart: int) -> None:
    rules = replace(WINDOW, tolerances=(Tolerance(currency="UGX", minor=5),))
    minor = 1_500 + apart
    for made in (case().pays().books().settles(gross=minor), case().pays().books(minor=minor)):
        assert "amount_differs" in causes(decided(made, rules=rules)[0])
    order = case().pays().settles()
    assert causes(decided(order, case("XYZ", minor).books(), rules=rules)[0]) == [
        "book_paid_not_received",
        "paid_not_in_book",
    ]


def refunded(*given: tuple[int, Instant], lines: tuple[int, ...]) -> Case:
    """Return an order with these refunds, and the lines that its statement took."""
    more = [replace(case().taken(minor=-minor), at=at) for minor, at in given]
    made = case().pays(outcome="partially_refunded", more=tuple(more)).settles()
    for minor in lines:
        made.settles(kind="refund", gross=-minor, fee=0)
    return made.books("refunded", minor=1_500)


@for_each(
    ("made", "expected"),
    [
        # The first of two equal refunds has the line.
        (refunded((300, AT), (300, AT + HOUR), lines=(300,)), [(300, AT + HOUR)]),
        (refunded((300, AT + HOUR), (300, AT), lines=(300,)), [(300, AT)]),
        # Two lines are together one refund, and not the other of the same sum.
        (refunded((300, AT), (300, AT + HOUR), lines=(100, 200)), [(300, AT + HOUR)]),
        (refunded((300, AT), (200, AT + HOUR), lines=(250, 250)), []),
        (refunded((300, AT), (200, AT + HOUR), lines=(0,)), [(200, AT + HOUR), (300, AT)]),
    ],
)
def test_which_refund_is_still_missed(made: Case, expected: list[tuple[int, int]]) -> None:
    found = breaks_of("refund_not_settled", made)
    assert sorted((each.money.minor, each.since) for each in found) == expected


def test_a_line_that_took_nothing_is_of_no_refund() -> None:
    made = refunded((300, AT), lines=(0,))
    assert breaks_of("refund_amount_differs", made) == []
    assert [each.money.minor for each in breaks_of("settled_never_notified", made)] == [0]


@for_each(("at", "expected"), [
    (SETTLED - TICK, ["refund_amount_differs"]),
    (SETTLED, ["refund_amount_differs"]),
    (SETTLED + TICK, ["refund_not_settled", "settled_never_notified"]),
])  # fmt: skip
def test_a_line_is_of_what_went_back_before_it(at: Instant, expected: list[str]) -> None:
    found = causes(decided(refunded((300, at), lines=(400,)))[0])
    assert [each for each in found if not each.startswith("refund_not_received")] == expected


def two_orders(lines: tuple[int, ...]) -> tuple[Case, Case]:
    """Return two orders of one key with refunds of 300 and 500; lines name neither payment."""
    one = case("ORD-1").pays(more=(case("ORD-1").taken(minor=-300),))
    other = case("ord 1").pays(payment="pay_9", more=(case().taken(minor=-500, payment="pay_9"),))
    for minor in lines:
        one.settles(kind="refund", gross=-minor, fee=0)
    return unnamed(one), other


def test_what_was_taken_otherwise_is_reported_of_the_first_of_what_went_back() -> None:
    (found,) = breaks_of("refund_amount_differs", *two_orders((900,)))
    assert (found.order, found.payment, found.subject) == ("ORD-1", "pay_ORD-1", "stm_ORD-1_0")
    assert (found.money.minor, [each.minor for each in found.left or ()]) == (100, [100])
    assert len(found.cites) == 3


def test_what_one_line_took_of_two_orders_is_reported_of_the_first() -> None:
    (found,) = [e for e in decided(*two_orders((800,)))[0] if isinstance(e, Match)]
    assert (found.kind, found.order, found.payment) == ("by_group", "ORD-1", "pay_ORD-1")
    assert (found.money, found.lines) == (kes(800), ("stm_ORD-1_0.1",))


def of_the_second(*, back: int = 0, won: bool = False) -> tuple[Case, Case]:
    """Return two paid and settled orders of one key; the second's payment went back."""
    more = (case().taken(minor=-back, payment="pay_9"),) if back else ()
    other = case("ord 1").pays(payment="pay_9", findings=("dispute_won",) if won else (), more=more)
    return case("ORD-1").pays().settles(), other.settles(payment="pay_9")


def test_what_went_back_in_parts_is_reported_of_its_own_order() -> None:
    one, other = of_the_second(back=500)
    for minor in (200, 300):
        other.settles(kind="refund", gross=-minor, fee=0, payment="pay_9")
    found = [each for each in decided(one, other)[0] if isinstance(each, Match)]
    assert [(each.order, each.payment) for each in found if each.kind == "by_group"] == [
        ("ord 1", "pay_9")
    ]


@for_each(("payment", "order"), [("pay_9", "ord 1"), ("pay_7", "ORD-1")])
def test_a_won_dispute_that_took_money_is_reported_of_its_own_order(
    payment: str, order: str
) -> None:
    one, other = of_the_second(won=True)
    other.settles(kind="dispute", gross=-900, fee=0, payment=payment)
    (found,) = breaks_of("dispute_won_not_returned", one, other)
    assert (found.order, found.payment, found.money.minor) == (order, payment, 900)


@for_each("kinds", [("refunded", "reversed"), ("reversed", "refunded")])
def test_how_it_went_back_is_reported_of_the_first(kinds: tuple[EntryKind, EntryKind]) -> None:
    more = tuple([case().taken(minor=-300, kind=kind) for kind in kinds])
    made = case().pays(more=more).settles().settles(kind="refund", gross=-700, fee=0)
    (found,) = breaks_of("refund_amount_differs", made)
    assert dict(found.facts)["how"] == kinds[0]
    assert found.money.minor == 100


@for_each(("back", "bucket"), [
    (1_499, "not_settled"), (1_500, "returned"), (1_501, "returned"),
])  # fmt: skip
def test_a_capture_is_not_missed_where_all_of_it_was_reversed(back: int, bucket: str) -> None:
    made = case().pays(more=(case().taken(minor=-back, kind="reversed"),))
    assert stands(decided(made)[1], "settlement") == [bucket]
    left = [each.money.minor for each in breaks_of("refund_not_settled", made)]
    assert left == {1_499: [1_499], 1_500: [], 1_501: [1]}[back]


@for_each(("lines", "left"), [
    (1, [[], [1_500]]),
    (2, [[], []]),
    (3, [[], [-1_500]]),
])  # fmt: skip
def test_what_two_ambiguous_captures_leave_is_counted_once(
    lines: int, left: list[list[int]]
) -> None:
    made = case().pays(more=(case().taken(payment="pay_2"),)).books(minor=3_000)
    for _ in range(lines):
        made.settles()
    found = [
        e for e in breaks_of("ambiguous", unnamed(made)) if ("against", "statement") in e.facts
    ]
    assert [[money.minor for money in each.left or ()] for each in found] == left


@for_each(("orders", "lines", "left"), [
    (1, 2, [[-1_500]]),
    (2, 1, [[], [1_500]]),
    (2, 2, [[-1_500], [1_500]]),
])  # fmt: skip
def test_what_is_ambiguous_by_date_leaves_each_line_once(
    orders: int, lines: int, left: list[list[int]]
) -> None:
    cases = [case(f"ORD-{n}").pays().books() for n in range(orders)]
    cases += [unnamed(case(f"XYZ-{n}").settles()) for n in range(lines)]
    decisions, control = decided(*cases, rules=WINDOW)
    found = [each for each in decisions if isinstance(each, Break)]
    assert [each.cause for each in found] == ["ambiguous"] * orders
    assert [[money.minor for money in each.left or ()] for each in found] == left
    assert stands(control, "settlement") == ["ambiguous"]


@for_each(("more", "expected"), [(0, ["by_date_window"]), (TICK, [])])
def test_a_window_of_dates_ends_with_its_last_moment(more: int, expected: list[str]) -> None:
    far = Instant(AT + HOUR + 2 * DAY + more)
    order, line = case().pays().settles(), case("XYZ", at=far).books()
    found = causes(decided(order, line, rules=WINDOW)[0])
    assert [each for each in found if each == "by_date_window"] == expected
    order, line = case().pays().books(), unnamed(case("XYZ", at=Instant(far - 2 * DAY)).settles())
    found = causes(decided(order, line, rules=WINDOW)[0])
    assert [each for each in found if each == "by_date_window"] == expected


@for_each(("made", "expected"), [
    ([case("ORD-1").untouched(), case("ord 1").pays()], ["not_settled", "paid_not_in_book"]),
    ([case("ORD-1").pays(), case("ord 1").untouched()], ["not_settled", "paid_not_in_book"]),
    ([case("ORD-1").untouched(), case("ord 1").pays().books()], ["ambiguous", "not_settled"]),
    ([case("ORD-1").untouched(), case("ord 1").untouched()], []),
    ([case("ORD-1").untouched().settles()], ["settled_never_notified"]),
    ([case("ORD-1").untouched().books(minor=500).books(minor=700)], ["book_paid_not_received"]),
])  # fmt: skip
def test_what_nobody_paid_hides_no_money_beside_it(made: list[Case], expected: list[str]) -> None:
    assert causes(decided(*made)[0]) == expected


Changed = Callable[[TakingRow, BookRow, StatementRow], tuple[list[TakingRow], list[BookRow],
                                                                list[StatementRow]]]  # fmt: skip

PLAIN: dict[str, tuple[Changed, bool]] = {
    "all three agree": (lambda t, b, s: ([t], [b], [s]), True),
    "no statement line": (lambda t, b, s: ([t], [b], []), True),
    "a book that has no status": (lambda t, b, s: ([t], [b._replace(status=None)], [s]), True),
    "a line without a payment": (lambda t, b, s: ([t], [b], [s._replace(payment=None)]), True),
    "a line of its source": (lambda t, b, s: ([t], [b], [s._replace(source=t.source)]), True),
    "nothing refunded": (lambda t, b, s: ([t], [b._replace(refunded=0)], [s]), True),
    "no book line": (lambda t, b, s: ([t], [], [s]), False),
    "no order": (lambda t, b, s: ([], [b], [s]), False),
    "two orders": (lambda t, b, s: ([t, t], [b], [s]), False),
    "two book lines": (lambda t, b, s: ([t], [b, b], [s]), False),
    "two statement lines": (lambda t, b, s: ([t], [b], [s, s]), False),
    "no money": (lambda t, b, s: ([t._replace(minor=0)], [b._replace(minor=0)], []), False),
    "an order that is not flat": (
        lambda t, b, s: ([t._replace(whole=case().pays().takings[0])], [b], [s]), False),
    "another amount of the book": (lambda t, b, s: ([t], [b._replace(minor=1_499)], [s]), False),
    "another currency": (lambda t, b, s: ([t], [b._replace(currency="UGX")], [s]), False),
    "some of it refunded": (lambda t, b, s: ([t], [b._replace(refunded=1)], [s]), False),
    "a book that says unpaid": (lambda t, b, s: ([t], [b._replace(status="unpaid")], [s]), False),
    "another gross": (lambda t, b, s: ([t], [b], [s._replace(gross=1_499)]), False),
    "a line in another currency": (lambda t, b, s: ([t], [b], [s._replace(currency="UGX")]), False),
    "a refund": (lambda t, b, s: ([t], [b], [s._replace(kind="refund")]), False),
    "another payment": (lambda t, b, s: ([t], [b], [s._replace(payment="pay_9")]), False),
    "another source": (lambda t, b, s: ([t], [b], [s._replace(source="other")]), False),
    "another fee": (lambda t, b, s: ([t], [b], [s._replace(fee=24)]), False),
}  # fmt: skip
"""Rows of one order in the three streams, and whether the quick way takes them."""


@for_each("name", PLAIN)
def test_the_quick_way_takes_what_plainly_agrees_and_nothing_else(name: str) -> None:
    made = case().pays().books().settles(fee=23)
    changed, quick = PLAIN[name]
    takings, book, lines = changed(
        ledger_line_row(made.takings[0]), book_row(made.book[0]), statement_row(made.lines[0])
    )
    agreed, settled, missed = Sheet(), Sheet(), list[TakingRow]()
    plain = Plain(agreed, settled, lambda _, line: line.fee == 23, missed.append)
    groups = list(merge(iter(takings), iter(book), iter(lines), plain=plain))
    if not quick:
        assert [each[1:] for each in groups] == [(takings, book, lines)]
        assert (dict(agreed), dict(settled), missed) == ({}, {}, [])
        return
    assert groups == []
    assert list(agreed["KES"][:2]) == [1, 1_500]
    assert [list(sums) for sums in settled.values()] == ([[1, 1_500, 23, 1_477]] if lines else [])
    assert missed == ([] if lines else takings)


@for_each(("since", "expected"), [
    (0, ["not_settled", "paid_not_in_book"]), (TICK, ["not_settled"]),
])  # fmt: skip
def test_a_book_covers_its_first_moment(since: int, expected: list[str]) -> None:
    books = (covered("book", AT + since),)
    found = decided(case().pays(), coverage=replace(COVERAGE, books=books))[0]
    assert causes(found) == expected


@for_each(("payment", "source", "kind", "expected"), [
    ("pay_2", SOURCE, "payment", []),
    (None, SOURCE, "payment", []),
    ("pay_3", SOURCE, "payment", ["settled_never_notified"]),
    ("pay_2", "other", "payment", ["settled_never_notified"]),
    ("pay_2", SOURCE, "refund", ["settled_never_notified"]),
])  # fmt: skip
def test_only_a_line_of_the_payment_in_doubt_is_reported_by_its_break(
    payment: str | None, source: str, kind: StatementKind, expected: list[str]
) -> None:
    doubt = Doubted(source=SOURCE, payment="pay_2", unsure=("captured",), cites=("evt_2",))
    made = case().pays(
        findings=("conflicting_amounts",),
        doubted=(doubt,),
        in_doubt=(Money(minor=900, currency="KES"),),
    )
    rows = [statement_row(each) for each in made.books().settles().settles(kind=kind).lines]
    rows[1] = rows[1]._replace(payment=payment, source=source)
    matching = Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE)
    found = matching.decide(
        takings=[ledger_line_row(made.takings[0])], book=[book_row(made.book[0])], statements=rows
    )
    assert causes(list(found)) == sorted(["payment_in_doubt", *expected])
    assert matching.control().holds


@for_each(("outcome", "in_doubt", "expected", "bucket", "left"), [
    ("unresolved", 900, ["unresolved"], "unresolved", [-900]),
    ("unresolved", 0, ["unresolved"], "unresolved", [-900]),
    ("succeeded", 900, ["payment_in_doubt"], "payment_in_doubt", [-900]),
    # Nothing is at stake in it, so no break would report the line.
    ("succeeded", 0, ["settled_never_notified"], "settled_never_notified", [-900]),
])  # fmt: skip
def test_a_line_of_a_payment_in_doubt_stands_where_something_is_reported_of_it(
    outcome: Outcome, in_doubt: int, expected: list[str], bucket: str, left: list[int]
) -> None:
    doubt = Doubted(source=SOURCE, payment="pay_2", unsure=("captured",), cites=("evt_2",))
    made = case().pays(
        outcome=outcome, doubted=(doubt,), in_doubt=(kes(in_doubt),) * bool(in_doubt)
    )
    made.books().settles().settles(gross=900, payment="pay_2")
    found, control = decided(made)
    assert causes(found) == expected
    assert stands(control, "statement") == sorted(["by_reference", bucket])
    (one,) = [each for each in found if isinstance(each, Break)]
    assert [money.minor for money in one.left or ()] == left


def test_what_a_line_in_doubt_leaves_is_reported_once() -> None:
    doubt = Doubted(source=SOURCE, payment="pay_2", unsure=("captured",), cites=("evt_2",))
    more = (kes(900), Money(minor=7, currency="UGX"))
    made = case().pays(minor=1_600, owed=(kes(100),), doubted=(doubt,), in_doubt=more).books()
    made.settles(gross=1_600).settles(gross=900, payment="pay_2")
    found = [each for each in decided(made)[0] if isinstance(each, Break)]
    assert [(each.cause, each.money.currency, each.left) for each in found] == [
        ("overpaid", "KES", ()),
        ("payment_in_doubt", "KES", (kes(-900),)),
        ("payment_in_doubt", "UGX", ()),
    ]


def test_a_line_of_two_orders_of_which_no_amount_is_known_is_reported_once() -> None:
    one, other = case("ORD-1").untouched(), case("ord 1").untouched()
    for each in (one, other):
        each.takings[0] = replace(each.takings[0], outcome="unresolved", in_doubt=(kes(1_500),))
    found, control = decided(one.settles(), other)
    reported = {each.order: each.left for each in found if isinstance(each, Break)}
    assert reported == {"ORD-1": (kes(-1_500),), "ord 1": ()}
    assert causes(found) == ["unresolved", "unresolved"]
    assert stands(control, "statement") == ["unresolved"]


@for_each(("minors", "grosses", "expected"), [
    ((1_500,), (1_500,), []),
    ((1_500,), (1_400,), [("amount_differs", 100)]),
    ((1_500,), (), [("not_settled", 1_500)]),
    ((1_500, 700), (700, 1_500), []),
    ((1_500, 700), (700,), [("not_settled", 1_500)]),
    ((1_500, 700), (800, 1_500), [("not_settled", 700), ("settled_never_notified", 800)]),
])  # fmt: skip
def test_a_line_without_a_payment_settles_the_only_capture_or_the_one_of_its_amount(
    minors: tuple[int, ...], grosses: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    more = tuple([case().taken(minor=minor, payment=f"pay_{minor}") for minor in minors[1:]])
    made = case().pays(more=more).books("unpaid")
    for gross in grosses:
        made.settles(gross=gross)
    found = [each for each in decided(unnamed(made))[0] if isinstance(each, Break)]
    named = [(each.cause, each.money.minor) for each in found]
    assert sorted(named) == sorted([*expected, ("book_unpaid_but_received", 1_500)])


def test_a_match_of_one_line_states_what_was_let_pass() -> None:
    (found,) = decided(case().pays().books().settles(gross=1_505))[0]
    assert found == Match(
        kind="by_tolerance",
        order="ORD-1",
        payment="pay_ORD-1",
        lines=("stm_ORD-1_0.1",),
        money=kes(1_500),
        facts=(("difference", kes(5)),),
    )
    (several,) = decided(case().pays().books().settles(gross=700).settles(gross=800))[0]
    assert several == Match(
        kind="by_group",
        order="ORD-1",
        payment="pay_ORD-1",
        lines=("stm_ORD-1_0.1", "stm_ORD-1_1.1"),
        money=kes(1_500),
    )


def test_lines_that_fit_one_capture_are_stated_with_their_money() -> None:
    made = case().pays().books().settles().settles()
    made.lines[1] = replace(made.lines[1], settled_at=None)
    for shown, name in ((replace(made), "pay_ORD-1"), (unnamed(made), "ORD-1")):
        (found,) = breaks_of("ambiguous", shown)
        assert found.candidates == (
            Candidate(line="stm_ORD-1_0.1", reference=name, money=kes(1_500), apart="fits", days=1),
            Candidate(line="stm_ORD-1_1.1", reference=name, money=kes(1_500), apart="fits"),
        )


@for_each(("payment", "given_back", "missed"), [
    ("pay_ORD-1", 500, []),
    ("pay_ORD-1", 300, [200]),
    ("pay_2", 500, [500]),
])  # fmt: skip
def test_only_the_part_of_a_loss_that_did_not_come_back_is_missed(
    payment: str, given_back: int, missed: list[int]
) -> None:
    lost = case().taken(minor=-500, kind="dispute_lost")
    came = replace(lost, minor=given_back, payment=payment, cites=("evt_won",))
    found = breaks_of("refund_not_settled", case().pays(more=(lost, came)).books().settles())
    assert [(each.money.minor, each.left) for each in found] == [(n, (kes(-n),)) for n in missed]


def test_what_went_back_of_one_event_is_distinguished_by_number() -> None:
    more = tuple([case().taken(minor=-minor) for minor in (100, 200, 300)])
    found = breaks_of("refund_not_settled", case().pays(more=more).books().settles())
    name = f"refunded:{more[0].cites[0]}"
    assert [(each.subject, each.money.minor) for each in found] == [
        (name, 100), (f"{name}#2", 200), (f"{name}#3", 300)]  # fmt: skip


@for_each("lines", [(-100,), (-60, -40), (-60, -50)])
def test_of_two_equal_movements_of_one_event_one_line_takes_one(lines: tuple[int, ...]) -> None:
    made = case().pays(more=(case().taken(minor=-100),) * 2).books().settles()
    for gross in lines:
        made.settles(kind="refund", gross=gross, fee=0)
    left = [m.minor for e in decided(made)[0] if isinstance(e, Break) for m in e.left or ()]
    assert sum(left) == -200 - sum(lines)


def test_a_decision_changes_nothing_of_what_is_matched_by_its_key() -> None:
    hands: tuple[tuple[str, str], ...] = (("ORD-1", "stm_ORD-1_0"),)
    assert causes(decided(case().pays().books().settles(), hands=hands)[0]) == []
    decisions = decided(case().pays().settles(), hands=hands)[0]
    assert causes(decisions) == ["paid_not_in_book"]
    hands = (*hands, ("ORD-1", "bok_ORD-1_0"))
    less = case().pays().books().books(minor=900).settles()
    assert causes(decided(less, hands=hands)[0]) == ["book_paid_not_received"]
    both = case().pays().books().settles().settles(gross=400)
    assert causes(decided(both, hands=hands)[0]) == ["amount_differs"]


def test_of_two_orders_of_one_key_no_payment_is_exchanged() -> None:
    one, other = case("ORD-1").pays(), case("ord 1").pays(payment="pay_9").settles(payment="pay_9")
    one.settles(gross=41_900, currency="UGX", fee=0)
    assert "currency_differs" in causes(decided(one, other)[0])
    assert "by_exchange" not in causes(decided(one, other)[0])
    assert "by_exchange" in causes(decided(one)[0])


def test_of_two_orders_of_one_key_nothing_that_went_back_is_exchanged() -> None:
    one, other = case("ORD-1"), case("ord 1").pays(payment="pay_9").settles(payment="pay_9")
    one.pays(more=(one.taken(minor=-500),)).settles()
    assert causes(decided(one)[0]) == ["paid_not_in_book", "refund_not_settled"]
    one.settles(kind="refund", gross=-140, currency="UGX", fee=0)
    named = causes(decided(one, other)[0])
    assert "by_exchange" not in named
    assert named.count("settled_never_notified") == named.count("refund_not_settled") == 1
    assert "by_exchange" in causes(decided(one)[0])


@for_each(("kind", "line"), [("refunded", "refund"), ("dispute_lost", "dispute")])
@for_each(("at", "gross", "expected"), [
    (SETTLED + TICK, -300, ["by_group", "refund_not_settled"]),
    (SETTLED + TICK, -350, ["by_group"]),
    (SETTLED + TICK, -301, ["refund_amount_differs", "refund_not_settled"]),
    (SETTLED, -300, ["refund_amount_differs"]),
    (SETTLED, -350, ["by_group"]),
])  # fmt: skip
def test_a_line_of_all_that_had_gone_back_by_then_is_of_that(
    at: Instant, gross: int, expected: list[str], kind: EntryKind, line: StatementKind
) -> None:
    """100 and 200 before the line, and 50 with it or a tick later, which it need not include."""
    more = [case().taken(minor=-minor, kind=kind) for minor in (100, 200, 50)]
    more[2] = replace(more[2], at=at)
    made = case().pays(outcome="partially_refunded", more=tuple(more)).books(minor=1_150)
    made.settles().settles(kind=line, gross=gross, fee=0)
    found = [each for each in causes(decided(made)[0]) if each != "refund_not_in_book"]
    assert found == expected
    assert all(each.money.minor for each in decided(made)[0])


@for_each("taken", [1, 299])
def test_a_line_that_took_less_than_went_back_is_of_it(taken: int) -> None:
    (found,) = breaks_of("refund_amount_differs", refunded((300, AT), lines=(taken,)))
    assert found.money.minor == 300 - taken
    assert breaks_of("settled_never_notified", refunded((300, AT), lines=(taken,))) == []


@for_each(("won", "grosses", "known"), [
    (True, (900, -100), [False, True]),
    (True, (900,), [True]),
    (True, (1,), [True]),
    (True, (0,), [False]),
    (False, (900,), [False]),
    (False, (900, -100), [False, False]),
])  # fmt: skip
def test_only_what_a_won_dispute_gave_back_is_said_to_be_of_it(
    won: bool, grosses: tuple[int, ...], known: list[bool]
) -> None:
    made = case().pays(findings=("dispute_won",) if won else ()).books().settles()
    for gross in grosses:
        made.settles(kind="dispute", gross=gross, fee=0)
    found = breaks_of("settled_never_notified", made)
    assert sorted(("won", True) in each.facts for each in found) == known
    assert sorted(each.money.minor for each in found) == sorted(map(abs, grosses))
    kinds = ["returned dispute" if gross > 0 else "dispute" for gross in grosses]
    assert [dict(each.facts)["kind"] for each in found] == kinds


@for_each(("refund", "failure", "minor", "expected"), [
    ("re_1", "re_1", 500, []),
    (None, "re_1", 500, []),
    (None, None, 500, []),
    ("re_1", "re_2", 500, ["settled_never_notified"] * 2),
    ("re_1", "re_1", 400, ["settled_never_notified"] * 2),
])  # fmt: skip
def test_a_refund_and_its_failure_undo_each_other(
    refund: str | None, failure: str | None, minor: int, expected: list[str]
) -> None:
    """The lines may be of two months' statements; no webhook needs to say either."""
    made = case().pays().books().settles()
    for kind, gross, name in (("refund", -500, refund), ("returned", minor, failure)):
        made.settles(kind=kind, gross=gross, fee=0)  # type: ignore[arg-type]
        made.lines[-1] = replace(made.lines[-1], refund=name)
    assert causes(decided(made)[0]) == expected


@for_each("kind", ["dispute", "returned"])
def test_a_chargeback_and_what_was_returned_of_it_undo_each_other(kind: StatementKind) -> None:
    made = case().pays().books().settles().settles(kind="dispute", gross=-500, fee=0)
    assert causes(decided(made.settles(kind=kind, gross=500, fee=0))[0]) == []


def test_what_was_announced_and_not_captured_is_a_negative_part_of_the_payment() -> None:
    """A payment that was announced and failed, and that no webhook told of, is no payment."""
    made = case().pays().books().settles(gross=2_500, fee=0).settles(gross=-1_000, fee=0)
    for gross in (700, -700):
        made.settles(payment="pay_9", order="", gross=gross, fee=0)
    assert causes(decided(made)[0]) == ["by_group"]


def test_a_refund_that_failed_is_still_missing_if_a_webhook_says_that_it_went() -> None:
    made = case()
    made.pays(more=(made.taken(minor=-500, kind="refunded"),)).settles()
    made.settles(kind="refund", gross=-500, fee=0).settles(kind="returned", gross=500, fee=0)
    assert "refund_not_settled" in causes(decided(made)[0])


@for_each(("failed_at", "other", "expected"), [
    (SETTLED, {}, ["failed_refund_not_returned"]),
    (AS_OF - 6 * DAY, {}, []),
    (SETTLED, {"minor": 499}, ["settled_never_notified"]),
    (SETTLED, {"payment": "pay_other"}, ["settled_never_notified"]),
    (SETTLED, {"refund": "re_2"}, ["settled_never_notified"]),
    (SETTLED, {"refund": "re_1", "payment": "ch_1"}, ["failed_refund_not_returned"]),
    (SETTLED, {"minor": None, "currency": ""}, ["failed_refund_not_returned"]),
])  # fmt: skip
def test_what_a_failed_refund_took_is_awaited_until_the_statement_reaches_beyond_the_failure(
    failed_at: Instant, other: dict[str, Any], expected: list[str]
) -> None:
    """Its line is that refund's by the refund's own reference, else by payment and amount."""
    made = case()
    failed = FailedRefund(
        source=SOURCE, payment=made.payment, refund=None, minor=500, currency=KES, at=failed_at
    )
    made.pays(failed=(replace(failed, **other),)).books().settles()
    made.settles(kind="refund", gross=-500, fee=0)
    made.lines[-1] = replace(made.lines[-1], refund="re_1")
    assert causes(decided(made)[0]) == expected


@for_each(("kind", "gross", "balance"), [
    ("payment", 5, 5), ("payment", -5, -5), ("refund", -5, -5), ("refund", 5, -5),
    ("refund", 1, -1), ("refund", 0, 0), ("dispute", -5, -5), ("dispute", 5, 5), ("fee", 5, 0),
    ("fee", -5, 0),
])  # fmt: skip
def test_a_line_changes_the_balance_by_its_gross(
    kind: StatementKind, gross: int, balance: int
) -> None:
    row = statement_row(case().settles(kind=kind, gross=gross).lines[0])
    assert balance_of(row) == balance
    assert unsettled_by(row).minor == -balance


@for_each("turned", [1, -1])
@for_each(("reversed_", "refunded_", "left"), [
    (1_500, 200, [("refunded", 200)]),
    (1_400, 200, [("refunded", 100)]),
    (1_600, 200, [("refunded", 200), ("reversed", 100)]),
])  # fmt: skip
def test_a_capture_without_a_line_was_taken_back_by_its_reversal_first(
    reversed_: int, refunded_: int, left: list[tuple[str, int]], turned: int
) -> None:
    more = [case().taken(minor=-reversed_, kind="reversed"), case().taken(minor=-refunded_)]
    made = case().pays(more=tuple(more[::turned]))
    found = breaks_of("refund_not_settled", made)
    assert sorted((str(dict(each.facts)["how"]), each.money.minor) for each in found) == left
    assert stands(decided(made)[1], "settlement") == ["returned"]


@for_each(("lost", "gross", "expected"), [
    (1, -1, []),
    (1, 1, ["refund_not_settled", "settled_never_notified"]),
    (0, 0, []),
])  # fmt: skip
def test_a_dispute_that_gave_money_is_none_that_was_lost(
    lost: int, gross: int, expected: list[str]
) -> None:
    gone = replace(case().taken(minor=-1, kind="dispute_lost"), minor=-lost)
    made = case().pays(more=(gone,)).books(minor=1_500 - lost).settles()
    assert causes(decided(made.settles(kind="dispute", gross=gross, fee=0))[0]) == expected


KIND_OF_LINE: dict[EntryKind, StatementKind] = {
    "captured": "payment", "refunded": "refund", "reversed": "refund", "dispute_lost": "dispute",
}  # fmt: skip


@for_each("unsure", KIND_OF_LINE)
@for_each("kind", ["payment", "refund", "dispute"])
def test_only_a_line_of_the_kind_that_is_unsure_stands_with_its_payment(
    unsure: EntryKind, kind: StatementKind
) -> None:
    doubt = Doubted(source=SOURCE, payment="pay_2", unsure=(unsure,), cites=("evt_2",))
    made = case().pays(doubted=(doubt,), in_doubt=(kes(900),)).books().settles()
    made.settles(kind=kind, gross=900 if kind == "payment" else -900, fee=0, payment="pay_2")
    own = ["settled_never_notified"] * (KIND_OF_LINE[unsure] != kind)
    assert causes(decided(made)[0]) == ["payment_in_doubt", *own]


def test_a_payment_of_nothing_is_not_of_what_went_back() -> None:
    gone = replace(case().taken(minor=-1), minor=0)
    decisions = decided(case().pays(more=(gone,)).books().settles().settles(gross=0))[0]
    assert causes(decisions) == ["by_group", "refund_not_settled"]


@for_each(("back", "gross", "expected"), [
    ((300,), -300, []),
    ((1,), -1, []),
    ((100, 200), -300, ["by_group"]),
    ((100, 200), -100, ["refund_not_settled"]),
    # Another amount is a correction of what the payment brought.
    ((300,), -50, ["amount_differs", "refund_not_settled"]),
    ((), -50, ["amount_differs"]),
    ((), 0, ["by_group"]),
])  # fmt: skip
def test_a_negative_payment_is_of_what_went_back_where_so_much_did(
    back: tuple[int, ...], gross: int, expected: list[str]
) -> None:
    made = case().pays(more=tuple([case().taken(minor=-minor) for minor in back])).settles()
    found = causes(decided(made.books(minor=1_500 - sum(back)).settles(gross=gross, fee=0))[0])
    assert found == expected


@for_each(("back", "gross", "expected"), [
    ({"reversed": 300}, -300, []),
    ({"reversed": 300}, -299, ["refund_not_settled", "settled_never_notified"]),
    ({"reversed": 300}, 300, ["refund_not_settled", "settled_never_notified"]),
    ({"refunded": 300}, -300, ["refund_not_settled", "settled_never_notified"]),
    ({"reversed": 300, "dispute_lost": 300}, -300, ["refund_not_settled"]),
])  # fmt: skip
def test_a_disputes_line_is_of_a_reversal_that_took_just_that(
    back: dict[EntryKind, int], gross: int, expected: list[str]
) -> None:
    made = case()
    more = [replace(made.taken(minor=-1, kind=k), minor=-minor) for k, minor in back.items()]
    made.pays(outcome="partially_refunded", more=tuple(more)).books(
        minor=made.minor - sum(back.values())
    )
    found = decided(made.settles().settles(kind="dispute", gross=gross, fee=0))[0]
    seen = [each for each in found if isinstance(each, Break)]
    assert sorted(each.cause for each in seen if "refund_not_in" not in each.cause) == expected
    missed = [dict(each.facts)["how"] for each in seen if each.cause == "refund_not_settled"]
    assert missed == [each for each in back if expected][: len(missed)]
