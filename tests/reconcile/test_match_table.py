"""The decision table: evidence on one side, reports and where each row stands on the other."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconcile.instants import DAY, HOUR, TICK, Instant
from reconcile.matching.books import BookStatus
from reconcile.matching.breaks import Break, break_sentence, next_step
from reconcile.matching.match import Match, Matching
from reconcile.matching.rows import ledger_line_row
from reconcile.matching.rules import Coverage
from reconcile.money import MAX_MINOR, Money
from tests.reconcile.books_cases import AT, case, causes, decided, stands
from tests.reconcile.books_truth import (
    AS_OF,
    CALM,
    COVERAGE,
    FURTHER,
    RULES,
    SOURCE,
    START,
    TROUBLES,
    Case,
    Month,
    book_row,
    covered,
    kes,
    statement_row,
)
from tests.reconcile.build import ORDER_CAUSES
from tests.rows import for_each


def test_every_cause_about_an_order_has_a_case() -> None:
    assert TROUBLES.keys() == ORDER_CAUSES, "add a case to TROUBLES of tests/reconcile/books_truth"


@for_each("cause", TROUBLES)
def test_each_cause_is_found_alone_with_its_money(cause: str) -> None:
    trouble = TROUBLES[cause](case())
    (found,) = decided(trouble)[0]
    assert isinstance(found, Break)
    assert (found.cause, found.order, found.money.minor) == trouble.breaks[0]
    assert found.since <= AS_OF
    assert found.cites


@for_each("kind", FURTHER)
def test_what_is_apart_from_the_price_is_reported_once_with_its_money(kind: str) -> None:
    made = FURTHER[kind](case())
    decisions, _ = decided(made)
    breaks = [each for each in decisions if isinstance(each, Break)]
    assert [(e.cause, e.order, e.money.minor) for e in breaks] == made.breaks
    assert breaks[0].cites


@for_each("calm", CALM)
def test_what_is_in_order_is_no_break(calm: str) -> None:
    made = CALM[calm](case())
    decisions, _ = decided(made)
    assert [
        (each.kind, each.order) for each in decisions if isinstance(each, Match)
    ] == made.matches
    assert not [each for each in decisions if isinstance(each, Break)]


@for_each("status", ["canceled", "unpaid"])
def test_what_came_and_went_back_is_returned(status: BookStatus) -> None:
    back = case()
    back.pays(more=(back.taken(minor=-1_500),)).books(status, minor=9_000).settles()
    back.settles(kind="refund", gross=-1_500, fee=0)
    decisions, control = decided(back)
    assert decisions == []
    assert stands(control, "takings") == stands(control, "book") == ["returned"]


def lost(paid: Case) -> Case:
    gone = replace(paid.taken(minor=-paid.minor), kind="dispute_lost")
    return paid.pays(outcome="charged_back", more=(gone,))


def back(made: Case) -> Case:
    """Return the case paid out, with a refund of 500 taken by the statement."""
    return made.settles().settles(kind="refund", gross=-500, fee=0)


def placed(made: Case, *dates: Instant | None) -> Case:
    made.book = [replace(line, placed_at=date) for line, date in zip(made.book, dates, strict=True)]
    return made


@for_each(
    ("made", "since"),
    [
        (placed(case().books(), AT + DAY), AT + DAY),
        (placed(case().books(), None), AS_OF),
        (placed(case().books(minor=700).books(minor=800), AT + DAY, AT), AT + DAY),
        (placed(case().books(minor=700).books(minor=800), AT, AT + DAY), AT + DAY),
        (placed(case().pays().books(minor=900).settles(), AT + DAY), AT + DAY),
        (placed(case().pays().books(minor=900).settles(), AT), AT + HOUR),
        (placed(case().pays().books(minor=900).settles(), None), AT + HOUR),
        (placed(TROUBLES["ambiguous"](case()), AT, AT + DAY), AT + DAY),
        (placed(TROUBLES["ambiguous"](case()), AT + DAY, AT), AT + DAY),
        (placed(TROUBLES["ambiguous"](case()), None, AT), AT + HOUR),
        (TROUBLES["paid_not_in_book"](case()), AT + HOUR),
    ],
)
def test_a_break_is_as_old_as_the_latest_of_what_disagrees(made: Case, since: int) -> None:
    (found,) = decided(made)[0]
    assert isinstance(found, Break)
    assert found.since == since


def test_money_that_the_book_states_is_missed_once_its_margin_is_over() -> None:
    over = AT + DAY + RULES.money_margin
    decisions, control = decided(placed(case().books(), AT + DAY), as_of=over - TICK)
    assert decisions == []
    assert stands(control, "book") == ["awaiting_money"]
    assert causes(decided(placed(case().books(), AT + DAY), as_of=over)[0]) == [
        "book_paid_not_received"
    ]


SOON = AT + 2 * HOUR
YEN = Money(minor=7, currency="JPY")


@for_each(
    ("made", "side", "bucket"),
    [
        (lambda c: c.pays(), "takings", "awaiting_book"),
        (lambda c: c.pays().books("unpaid"), "takings", "awaiting_book"),
        (lambda c: c.pays().books(), "settlement", "awaiting_settlement"),
        (lambda c: c.books(), "book", "awaiting_money"),
        (lambda c: c.pays().books("refunded"), "book", "awaiting_refund"),
    ],
)
def test_within_its_margin_nothing_is_a_break(
    made: Callable[[Case], Case], side: str, bucket: str
) -> None:
    decisions, control = decided(made(case()), as_of=SOON)
    assert decisions == []
    assert bucket in stands(control, side)
    assert causes(decided(made(case()))[0]) != []


PAID = AT + HOUR
"""Instant of capture in these cases; what went back did so an hour later."""


def back_unbooked(made: Case) -> Case:
    """Return the case with a refund of 500 that the book lacks."""
    return made.pays(more=(made.taken(minor=-500),)).books()


@for_each(
    ("made", "due", "side", "bucket", "waits"),
    [
        (lambda c: c.pays(), PAID + DAY, "takings", "paid_not_in_book", "awaiting_book"),
        (lambda c: c.pays().books("unpaid"), PAID + DAY, "takings", "book_unpaid_but_received",
         "awaiting_book"),
        (back_unbooked, PAID + HOUR + DAY, "book", "refund_not_in_book", "awaiting_book"),
        (lambda c: c.pays().books("refunded"), PAID + RULES.refund_margin, "book",
         "refund_not_received", "awaiting_refund"),
        (lambda c: c.pays().books(), PAID + RULES.settle_margin, "settlement", "not_settled",
         "awaiting_settlement"),
    ],
)  # fmt: skip
def test_each_margin_is_over_at_its_last_moment(
    made: Callable[[Case], Case], due: Instant, side: str, bucket: str, waits: str
) -> None:
    decisions, control = decided(made(case()), as_of=due)
    assert stands(control, side) == [bucket]
    assert bucket in causes(decisions)
    decisions, control = decided(made(case()), as_of=Instant(due - TICK))
    assert stands(control, side) == [waits]
    assert bucket not in causes(decisions)


def reaching(*, book: tuple[int, int], statements: tuple[int, int]) -> Coverage:
    return Coverage(books=(covered("book", *book),), statements=(covered(SOURCE, *statements),))


DUE = PAID + RULES.settle_margin


@for_each(
    ("book", "statements", "takings", "settlement"),
    [
        ((AT, PAID + TICK), (PAID, DUE), "paid_not_in_book", "not_settled"),
        ((AT + TICK, PAID + TICK), (PAID, DUE), "not_covered", "not_settled"),
        ((AT, PAID), (PAID, DUE), "awaiting_book", "not_settled"),
        ((AT, PAID + TICK), (PAID + TICK, DUE), "paid_not_in_book", "not_covered"),
        ((AT, PAID + TICK), (PAID, DUE - TICK), "paid_not_in_book", "awaiting_settlement"),
    ],
)
def test_books_and_statements_reach_to_their_first_and_last_moment(
    book: tuple[int, int], statements: tuple[int, int], takings: str, settlement: str
) -> None:
    _, control = decided(case().pays(), coverage=reaching(book=book, statements=statements))
    assert (stands(control, "takings"), stands(control, "settlement")) == ([takings], [settlement])


@for_each(
    ("owed", "bucket", "expected"),
    [
        ((kes(1_500), YEN), "overpaid", ["overpaid", "paid_twice"]),
        ((kes(1_500),), "paid_twice", ["paid_twice"]),
        ((YEN,), "overpaid", ["overpaid"]),
    ],
)
def test_an_order_stands_with_the_first_of_what_is_owed(
    owed: tuple[Money, ...], bucket: str, expected: list[str]
) -> None:
    again = case().taken(payment="pay_2")
    made = case().pays(findings=("paid_twice",), more=(again,), owed=owed).books()
    made.settles().settles(payment="pay_2")
    for also, shown in (([], made), (["paid_not_in_book"], replace(made, book=[]))):
        found, control = decided(shown)
        assert causes(found) == sorted([*expected, *also])
        assert stands(control, "takings") == [bucket]


def test_without_statements_or_books_nothing_is_missed() -> None:
    decisions, control = decided(case().pays(), coverage=Coverage())
    assert decisions == []
    assert stands(control, "takings") == ["not_covered"]
    assert stands(control, "settlement") == ["not_covered"]


def test_money_after_the_last_statement_is_awaited() -> None:
    until = AT + HOUR + RULES.settle_margin - TICK
    early = replace(COVERAGE, statements=(covered(SOURCE, START, until),))
    decisions, control = decided(case().pays().books(), coverage=early)
    assert decisions == []
    assert stands(control, "settlement") == ["awaiting_settlement"]


def test_money_of_before_the_books_begin_is_not_covered() -> None:
    old = case(at=START - 3 * DAY).pays()
    assert stands(decided(old)[1], "takings") == ["not_covered"]


def test_a_book_line_of_before_the_webhooks_came_is_not_covered() -> None:
    since = replace(COVERAGE, takings=AT + TICK)
    assert decided(case().books(), coverage=since)[0] == []
    assert causes(decided(case().books(), coverage=replace(since, takings=AT))[0]) != []


@for_each(
    ("made", "expected"),
    [
        # one difference, one break
        (lambda c: c.books().settles(), ["settled_never_notified"]),
        (lambda c: c.pays(findings=("success_after_deadline",)).settles(), ["late_money"]),
        (
            lambda c: c.pays(findings=("paid_after_cancel",)).books(None).settles(),
            ["late_money"],
        ),
        (
            lambda c: c.pays(
                outcome="unresolved", findings=("amount_mismatch",)
            ).books(minor=1_400).settles(),
            ["amount_differs"],
        ),
        (
            lambda c: c.pays(outcome="unresolved", findings=("amount_mismatch",)).books().settles(),
            ["unresolved"],
        ),
        # two differences, two breaks
        (lambda c: c.pays(), ["not_settled", "paid_not_in_book"]),
        (
            lambda c: c.pays(
                findings=("paid_twice",), more=(c.taken(payment="pay_2"),), owed=(kes(1_500),)
            )
            .settles()
            .settles(payment="pay_2"),
            ["paid_not_in_book", "paid_twice"],
        ),
        (
            lambda c: c.pays().books("unpaid").settles(gross=1_450),
            ["amount_differs", "book_unpaid_but_received"],
        ),
        # books that write a refund as a line of its own, or as a smaller amount
        (
            lambda c: back(c.pays(more=(c.taken(minor=-500),)).books().books(minor=-500)),
            ["by_group"],
        ),
        (lambda c: back(c.pays(more=(c.taken(minor=-500),)).books(minor=1_000)), []),
        (
            lambda c: back(c.pays(more=(c.taken(minor=-500),)).books("refunded")),
            ["refund_not_received"],
        ),
        # several lines of one reference
        (
            lambda c: c.pays().books(minor=1_000).books(minor=500).settles(),
            ["by_group"],
        ),
        (lambda c: c.pays().books().books().settles(), ["ambiguous"]),
        (
            lambda c: c.pays().books().books(minor=900).settles(),
            ["book_paid_not_received"],
        ),
        # statements
        (
            lambda c: c.pays().books().settles(gross=1_000, fee=15).settles(gross=500, fee=8),
            ["by_group"],
        ),
        (lambda c: c.pays().books().settles().settles(), ["ambiguous"]),
        (lambda c: c.pays().books().settles(gross=150_000), ["off_by_minor_unit"]),
        (
            lambda c: c.pays().books().settles(payment="pay_other"),
            ["not_settled", "settled_never_notified"],
        ),
        (
            lambda c: c.pays().books().settles().settles(kind="refund", gross=-500, fee=0),
            ["settled_never_notified"],
        ),
        (
            lambda c: c.pays(more=(c.taken(minor=-500),))
            .books()
            .books(minor=-500)
            .settles()
            .settles(kind="refund", gross=-500, fee=0),
            ["by_group"],
        ),
        (lambda c: c.pays().books().settles().settles(kind="fee", gross=0, fee=3), []),
        # a dispute that was won: it took money, and gave as much back
        (
            lambda c: c.pays().books().settles()
            .settles(kind="dispute", gross=1_500, fee=0)
            .settles(kind="dispute", gross=-1_500, fee=0),
            [],
        ),
        (
            lambda c: c.pays().books().settles()
            .settles(kind="dispute", gross=-1_500, fee=0)
            .settles(kind="dispute", gross=1_400, fee=0),
            ["settled_never_notified", "settled_never_notified"],
        ),
        (
            lambda c: lost(c).books("refunded").settles()
            .settles(kind="dispute", gross=-1_500, fee=0),
            [],
        ),
        (
            lambda c: lost(c).books("refunded").settles()
            .settles(kind="dispute", gross=1_500, fee=0),
            ["refund_not_settled", "settled_never_notified"],
        ),
    ],
)  # fmt: skip
def test_evidence_and_what_is_reported_of_it(
    made: Callable[[Case], Case], expected: list[str]
) -> None:
    assert causes(decided(made(case()))[0]) == expected


def test_a_refund_that_names_its_payment_comes_before_one_that_names_the_order_alone() -> None:
    one, other = case().taken(minor=-500), case().taken(minor=-500, payment="pay_2")
    paid = case().pays(more=(case().taken(payment="pay_2"), one, other)).books().books()
    paid.settles().settles(payment="pay_2")
    for named, bare in (("a", "b"), ("b", "a")):
        paid.lines[2:] = []
        paid.settles(kind="refund", gross=-500, fee=0).settles(kind="refund", gross=-500, fee=0)
        paid.lines[2] = replace(paid.lines[2], line_id=named)
        paid.lines[3] = replace(paid.lines[3], line_id=bare, payment=None)
        assert "settled_never_notified" not in causes(decided(paid)[0])


def test_a_break_keeps_its_identity_while_its_difference_is_the_same() -> None:
    first = decided(case().pays().books(minor=2_000).settles())[0][0]
    again = case().pays().books(minor=2_100).settles()
    again.book[0] = replace(again.book[0], line_id="bok_ORD-1_0.2")
    second = decided(again, as_of=AS_OF + DAY)[0][0]
    assert first.identity == second.identity
    assert first.money != second.money
    alone = case().books(minor=2_000)
    changed = case().books(minor=2_100)
    changed.book[0] = replace(changed.book[0], line_id="bok_ORD-1_0.2")
    assert decided(alone)[0][0].identity == decided(changed)[0][0].identity


@for_each(
    ("made", "in_doubt", "money"),
    [
        (lambda c: c.untouched(), (kes(900),), kes(900)),
        (lambda c: c.pays(), (kes(900),), kes(2_400)),
        (lambda c: c.pays(), (kes(900), kes(100), YEN), kes(2_500)),
        (lambda c: c.pays(), (YEN,), kes(1_500)),
        (lambda c: c.untouched(), (YEN, kes(900)), kes(900)),
        (lambda c: c.untouched(), (YEN,), YEN),
        (lambda c: c.pays(more=(c.taken(minor=-9_000),)), (kes(100),), kes(9_000)),
        (lambda c: c.untouched(), (kes(MAX_MINOR), kes(1)), kes(MAX_MINOR)),
    ],
)  # fmt: skip
def test_what_may_have_been_taken_is_at_stake(
    made: Callable[[Case], Case], in_doubt: tuple[Money, ...], money: Money
) -> None:
    doubtful = made(case())
    doubtful.takings[0] = replace(
        doubtful.takings[0],
        outcome="unresolved",
        findings=("conflicting_amounts",),
        in_doubt=in_doubt,
    )
    for shown in (replace(doubtful, book=[]), doubtful.books()):
        breaks = [each for each in decided(shown)[0] if isinstance(each, Break)]
        (found,) = [each for each in breaks if each.cause == "unresolved"]
        assert found.money == money
        said = "more may have been captured" in break_sentence(found)
        assert said == any(each.currency == money.currency for each in in_doubt)


@for_each("cause", TROUBLES)
def test_every_break_says_what_differs_and_what_to_do(cause: str) -> None:
    for made in (case(), case(minor=77)):
        (found,) = decided(TROUBLES[cause](made))[0]
        assert isinstance(found, Break)
        for sentence in (break_sentence(found), next_step(found)):
            assert sentence.endswith(".")
            assert "missing" not in sentence
            assert "{" not in sentence


def _refunded_and_lost(made: Case, refunded: int, lost: int) -> Case:
    gone = made.taken(minor=-lost, kind="dispute_lost")
    made.pays(outcome="charged_back", more=(made.taken(minor=-refunded), gone)).settles()
    made.settles(kind="refund", gross=-refunded, fee=0)
    return made.settles(kind="dispute", gross=-lost, fee=0)


SAID: dict[str, tuple[Callable[[Case], Case], str, str]] = {
    "a refund that no line takes": (
        TROUBLES["refund_not_settled"],
        "KES 3.00 was refunded, but no statement that reaches beyond 2026-10-09T02:00:00Z deducts "
        "it.",
        "Ask the provider whether this went through; if a refund failed, tell the customer, and "
        "start it again.",
    ),
    "a lost dispute that no line takes": (
        FURTHER["lost in a dispute, which the statement has not taken"],
        "KES 3.00 was lost in a dispute, but no statement that reaches beyond "
        "2026-10-09T02:00:00Z deducts it.",
        "Ask the provider whether the dispute was lost, and when it takes the money.",
    ),
    "a reversal that no line takes": (
        FURTHER["reversed after it was paid out, which the statement has not taken"],
        "KES 15.00 was reversed, but no statement that reaches beyond 2026-10-09T02:00:00Z "
        "deducts it.",
        "Ask the provider whether the payment was reversed, and when it takes the money.",
    ),
    "a refund that webhooks state otherwise": (
        TROUBLES["refund_amount_differs"],
        "KES 3.00 was refunded, but the statement deducts KES 4.00 for it: KES 1.00 apart.",
        "Ask the provider which amount is right, and claim the difference.",
    ),
    "a lost dispute that webhooks state otherwise": (
        FURTHER["lost in a dispute, of which the statement took more"],
        "KES 3.00 was lost in a dispute, but the statement deducts KES 3.40 for it: KES 0.40 "
        "apart.",
        "Ask the provider which amount is right, and claim the difference.",
    ),
    "a dispute of which webhooks say that it was won": (
        TROUBLES["dispute_won_not_returned"],
        "A dispute was won, but according to the statement the provider still keeps KES 9.00 of "
        "its money.",
        "Ask the provider to give back what it took for the dispute.",
    ),
    "a refund that failed": (
        TROUBLES["failed_refund_not_returned"],
        "The statement took KES 9.00 for a refund that failed at 2026-10-02T00:00:00Z, but no "
        "line gives it back.",
        "Ask the provider to give back what it took for the refund, and pay the customer in "
        "another way.",
    ),
    "a won dispute of which some came again": (
        FURTHER["won, and given back in part"],
        "A dispute was won, but according to the statement the provider still keeps KES 4.00 of "
        "its money.",
        "Ask the provider to give back what it took for the dispute.",
    ),
    "a won dispute that no line took": (
        lambda c: c.pays(findings=("dispute_won",)).books().settles()
        .settles(kind="dispute", gross=900, fee=0),
        "The statement returns KES 9.00 for a won dispute, but no statement line shows that this "
        "money had been taken.",
        "Import the statement that took the dispute's money, or ask the provider for it.",
    ),
    "a refund of which nothing is known": (
        lambda c: c.pays().books().settles().settles(kind="refund", gross=-500, fee=0),
        "The statement has a refund of KES 5.00, but no webhook that was read reports it.",
        "Ask the provider to send the event again, and check that its webhooks reach us.",
    ),
    "a refund of which webhooks say that it failed": (
        lambda c: c.pays(findings=("refund_failed",)).books().settles()
        .settles(kind="refund", gross=-500, fee=0),
        "The statement has a refund of KES 5.00, but no webhook that was read reports it.",
        "Ask the provider to send the event again, and check that its webhooks reach us.",
    ),
    "a payment of which nothing is known": (
        TROUBLES["settled_never_notified"],
        "The statement has a payment of KES 15.00, but no webhook that was read reports it.",
        "Ask the provider to send the event again, and check that its webhooks reach us.",
    ),
    "a payment of which webhooks say that it timed out": (
        lambda c: c.untouched().books().settles(),
        "The statement has a payment of KES 15.00, but no webhook that was read reports it.",
        "Ask the provider to send the event again, and check that its webhooks reach us.",
    ),
    "what was lost, and the book does not have": (
        FURTHER["lost, and the book says paid"],
        "KES 3.00 was lost in a dispute, but the order book has KES 0.00 of it.",
        "Book the chargeback: enter in the order book what it took, as given back or as an entry "
        "of its own, by hand where your shop's export has no column for it.",
    ),
    "what was reversed, and the book does not have": (
        FURTHER["reversed, and the book says paid"],
        "KES 15.00 was reversed, but the order book has KES 0.00 of it.",
        "Enter in the book that the payment was taken back.",
    ),
    "what was refunded, and the book does not have": (
        TROUBLES["refund_not_in_book"],
        "KES 3.00 was refunded, but the order book has KES 0.00 of it.",
        "Enter the refund in the book.",
    ),
    "what was refunded and what was lost, and the book does not have": (
        lambda c: _refunded_and_lost(c, 200, 300).books(),
        "KES 5.00 went back, but the order book has KES 0.00 of it.",
        "Enter the returned money in the order book, as a refund or as a lost dispute.",
    ),
    "a payment that the statement has otherwise": (
        lambda c: c.pays().books().settles(gross=1_450),
        "KES 15.00 was captured, but the statement says KES 14.50: KES 0.50 apart.",
        "Find out which amount is right, then correct the book or ask the provider.",
    ),
}  # fmt: skip
"""Cases with the sentence of their break, and what to do."""


@for_each("known", SAID)
def test_a_break_says_what_is_true(known: str) -> None:
    made, sentence, step = SAID[known]
    (found,) = [each for each in decided(made(case()))[0] if isinstance(each, Break)]
    assert (break_sentence(found), next_step(found)) == (sentence, step)


def test_a_refund_is_missed_from_its_own_margin_on_and_is_as_old_as_it_is() -> None:
    made = case().pays(more=(case().taken(minor=-300), case().taken(minor=-200, kind="reversed")))
    made.books(minor=1_000).settles()
    due = AT + 2 * HOUR + RULES.settle_margin
    assert causes(decided(made, as_of=due - TICK)[0]) == []
    found = [each for each in decided(made, as_of=due)[0] if isinstance(each, Break)]
    assert sorted((e.cause, e.money.minor, e.since) for e in found) == [
        ("refund_not_settled", 200, AT + 2 * HOUR),
        ("refund_not_settled", 300, AT + 2 * HOUR),
    ]
    assert len({each.identity for each in found}) == 2


def test_beyond_the_bound_rows_are_decided_at_once_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reconcile.matching.funds.MOST_LEFT", 2)
    lines = [case(f"XYZ-{n}").books() for n in range(5)]
    decisions, control = decided(*lines)
    assert causes(decisions) == ["book_paid_not_received"] * 5
    sentences = [break_sentence(each) for each in decisions if isinstance(each, Break)]
    unsearched = [each for each in sentences if "The search for a matching row" in each]
    assert len(unsearched) == control.unsearched == 3


def test_an_order_and_its_line_of_a_group_stay_together_where_another_matching_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = case(minor=1_400).pays().settles().books(minor=1_500, group="G")
    part, whole = (Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE) for _ in range(2))
    reported = list(
        part.by_key(
            takings=map(ledger_line_row, made.takings),
            book=map(book_row, made.book),
            statements=map(statement_row, made.lines),
        )
    )
    monkeypatch.setattr("reconcile.matching.funds.MOST_LEFT", 0)
    whole.absorb(part.part())
    (found,) = reported + list(whole.rest())
    assert isinstance(found, Break)
    assert (found.cause, found.order, found.money.minor) == ("amount_differs", "ORD-1", 100)
    assert whole.control().holds


@for_each("seed", [1, 2])
def test_a_month_with_every_trouble_has_none_false_and_none_missed(seed: int) -> None:
    month = Month(orders=3_000, each=9, seed=seed)
    expected = sorted(
        (str(cause), str(order), minor)
        for one in month.cases()
        for cause, order, minor in one.breaks
    )
    matches = sorted((kind, str(order)) for one in month.cases() for kind, order in one.matches)
    matching = Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE)
    reported = list(
        matching.decide(takings=month.takings(), book=month.book(), statements=month.statements())
    )
    breaks = [each for each in reported if isinstance(each, Break)]
    assert sorted((e.cause, str(e.order), e.money.minor) for e in breaks) == expected
    assert sorted((e.kind, str(e.order)) for e in reported if isinstance(e, Match)) == matches
    assert len(expected) == 9 * (len(TROUBLES) + len(FURTHER))
    assert matching.control().holds
