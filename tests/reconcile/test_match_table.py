"""The decision table: evidence on one side, what is told and where each row stands on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconcile.breaks import BREAK_CAUSES, Break
from reconcile.breaks_words import apart_words, break_sentence, next_step
from reconcile.instants import DAY, HOUR, Instant
from reconcile.match import Decision, Match, Matching
from reconcile.match_control import Control
from reconcile.match_rows import book_row, statement_row, taking_row
from reconcile.match_rules import Coverage, HandMatch, MatchRules
from tests.reconcile.books_strategies import in_key_order
from tests.reconcile.books_truth import (
    AS_OF,
    CALM,
    COVERAGE,
    RULES,
    START,
    TROUBLES,
    Case,
    Month,
)

AT = START + DAY


def case(reference: str = "ORD-1", minor: int = 1_500, at: Instant = AT) -> Case:
    """One order's case."""
    return Case(reference, minor, at)


def decided(
    *cases: Case,
    rules: MatchRules = RULES,
    coverage: Coverage = COVERAGE,
    as_of: Instant = AS_OF,
    hands: tuple[tuple[str, str], ...] = (),
) -> tuple[list[Decision], Control]:
    """What is told of these cases together."""
    paired = [HandMatch(one=one, other=other) for one, other in hands]
    matching = Matching(rules=rules, as_of=as_of, coverage=coverage, hands=paired)
    told = matching.decide(
        takings=in_key_order([taking_row(each) for one in cases for each in one.takings]),
        book=in_key_order([book_row(each) for one in cases for each in one.book]),
        statements=in_key_order([statement_row(each) for one in cases for each in one.lines]),
    )
    found = list(told)
    assert matching.control().holds
    return found, matching.control()


def causes(told: list[Decision]) -> list[str]:
    """The causes and kinds that are told, sorted."""
    return sorted(each.cause if isinstance(each, Break) else each.kind for each in told)


def stands(control: Control, side: str) -> list[str]:
    """The buckets in which rows of one side stand."""
    return sorted(line.bucket for line in control.lines if line.side == side)


@pytest.mark.parametrize("cause", BREAK_CAUSES)
def test_each_cause_is_found_alone_with_its_money(cause: str) -> None:
    """One case of one trouble gives one break, of that cause, with that money at stake."""
    trouble = TROUBLES[cause](case())
    (found,) = decided(trouble)[0]
    assert isinstance(found, Break)
    assert (found.cause, found.order, found.money.minor) == trouble.breaks[0]
    assert found.since <= AS_OF
    assert found.cites


@pytest.mark.parametrize("calm", CALM)
def test_what_is_in_order_is_no_break(calm: str) -> None:
    """Cases without trouble tell of matches at most."""
    made = CALM[calm](case())
    told, _ = decided(made)
    assert [(each.kind, each.order) for each in told if isinstance(each, Match)] == made.matches
    assert not [each for each in told if isinstance(each, Break)]


SOON = AT + 2 * HOUR


@pytest.mark.parametrize(
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
    """What is still on its way is awaited, and counted as that; later it is a break."""
    told, control = decided(made(case()), as_of=SOON)
    assert told == []
    assert bucket in stands(control, side)
    assert causes(decided(made(case()))[0]) != []


def test_without_statements_or_books_nothing_is_missed() -> None:
    """A shop that imported no statement, or no book, gets no break for each of its orders."""
    told, control = decided(case().pays(), coverage=Coverage())
    assert told == []
    assert stands(control, "takings") == ["not_covered"]
    assert stands(control, "settlement") == ["not_covered"]


def test_money_after_the_last_statement_is_awaited() -> None:
    """A statement that does not reach beyond the settle margin cannot hold the money."""
    early = replace(
        COVERAGE,
        statements=tuple(
            replace(reach, span=replace(reach.span, until=AT + HOUR + RULES.settle_margin - 1))
            for reach in COVERAGE.statements
        ),
    )
    told, control = decided(case().pays().books(), coverage=early)
    assert told == []
    assert stands(control, "settlement") == ["awaiting_settlement"]


def test_money_of_before_the_books_begin_is_not_covered() -> None:
    """An October book says nothing of an order of September."""
    old = case(at=START - 3 * DAY).pays()
    assert stands(decided(old)[1], "takings") == ["not_covered"]


def test_a_book_line_of_before_the_webhooks_came_is_not_covered() -> None:
    """What was paid before we listened, we could not hear."""
    since = replace(COVERAGE, takings=AT + 1)
    assert decided(case().books(), coverage=since)[0] == []
    assert causes(decided(case().books(), coverage=replace(since, takings=AT))[0]) != []


@pytest.mark.parametrize(
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
            lambda c: c.pays(findings=("paid_twice",), more=(c.taken(payment="pay_2"),))
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
            lambda c: c.pays(more=(c.taken(minor=-500),)).books().books(minor=-500).settles(),
            ["by_group"],
        ),
        (lambda c: c.pays(more=(c.taken(minor=-500),)).books(minor=1_000).settles(), []),
        (
            lambda c: c.pays(more=(c.taken(minor=-500),)).books("refunded").settles(),
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
    ],
)  # fmt: skip
def test_evidence_and_what_is_told_of_it(made: Callable[[Case], Case], expected: list[str]) -> None:
    """The rows of the README's decision table that the truth's month does not have."""
    assert causes(decided(made(case()))[0]) == expected


def test_two_orders_with_one_key_are_ambiguous_and_a_person_can_tell_them_apart() -> None:
    """Nothing is merged silently; what a person pairs is matched, and the rest judged anew."""
    one, other = case("ORD-1").pays().books(), case("ord 1").pays(payment="pay_9")
    one.settles(), other.settles(payment="pay_9")
    told, control = decided(one, other)
    assert causes(told) == ["ambiguous", "ambiguous"]
    assert stands(control, "book") == ["ambiguous"]
    told, _ = decided(one, other, hands=(("bok_ORD-1_0", "ORD-1"),))
    assert causes(told) == ["by_hand", "paid_not_in_book"]


def test_a_person_pairs_an_order_with_a_line_of_another_reference() -> None:
    """By hand the amounts still have to agree: a difference stays a break."""
    order, line = case("ORD-1").pays().settles(), case("XYZ").books()
    assert causes(decided(order, line)[0]) == ["book_paid_not_received", "paid_not_in_book"]
    hands = (("ORD-1", "bok_XYZ_0"),)
    assert causes(decided(order, line, hands=hands)[0]) == ["by_hand"]
    dear = case("XYZ").books(minor=1_700)
    assert causes(decided(order, dear, hands=hands)[0]) == ["amount_differs"]


def test_a_person_pairs_several_orders_with_one_line() -> None:
    """Several payments for one invoice, where nothing but a person knows it."""
    first = case("ORD-1", 1_000).pays().settles()
    second = case("ORD-2", 500).pays().settles()
    line = case("INV-9").books()
    hands = (("ORD-1", "bok_INV-9_0"), ("bok_INV-9_0", "ORD-2"))
    (found,) = decided(first, second, line, hands=hands)[0]
    assert isinstance(found, Match)
    assert (found.kind, found.money.minor) == ("by_hand", 1_500)


def test_a_person_pairs_a_statement_line() -> None:
    """With an order's open capture; or with the book line whose webhook will never come."""
    order, line = case("ORD-1").pays().books(), case("XYZ").settles()
    assert causes(decided(order, line, hands=(("ORD-1", "stm_XYZ_0"),))[0]) == ["by_hand"]
    booked = case("ORD-1").books()
    hands = (("bok_ORD-1_0", "stm_XYZ_0"),)
    assert causes(decided(booked, line, hands=hands)[0]) == ["by_hand"]


def test_a_payment_settled_under_another_order_is_found_by_its_reference() -> None:
    """The provider's payment reference is stronger than an order that someone typed."""
    order = case("ORD-1").pays().books()
    line = case("ORD-2").settles(payment="pay_ORD-1")
    assert causes(decided(order, line)[0]) == ["by_payment"]


def test_one_payment_for_the_lines_of_a_group() -> None:
    """The payment names the group, and its amount is that of all its lines."""
    paid = case("FAM-7", 900).pays().settles()
    lines = [case(f"MEM-{n}", 300).books(group="fam 7") for n in range(3)]
    (found,) = decided(paid, *lines)[0]
    assert isinstance(found, Match)
    assert (found.kind, len(found.lines)) == ("by_group", 3)
    short = decided(paid, *lines[:2])[0]
    assert causes(short) == ["book_paid_not_received", "book_paid_not_received", "paid_not_in_book"]


def test_several_payments_for_the_lines_of_a_group() -> None:
    """Two orders whose references are lines of the group, and together they are what it costs."""
    paid = [case("MEM-0", 500).pays().settles(), case("MEM-1", 400).pays().settles()]
    lines = [case(f"MEM-{n}", 300).books(group="F") for n in range(3)]
    assert causes(decided(*paid, *lines)[0]) == ["by_group"]


WINDOW = replace(RULES, date_window=2 * DAY)


def test_amount_and_date_match_only_where_a_rule_says_so() -> None:
    """And then as a match of its own kind, which names how far apart they were."""
    order, line = case("ORD-1").pays().settles(), case("XYZ").books()
    assert causes(decided(order, line, rules=RULES)[0]) != ["by_date_window"]
    assert causes(decided(order, line, rules=WINDOW)[0]) == ["by_date_window"]


def test_two_that_fit_by_amount_and_date_are_ambiguous() -> None:
    """Whichever were chosen would be a guess; a second order is in the way as well."""
    order, other = case("ORD-1").pays().settles(), case("ORD-2").pays().settles()
    line, again = case("XYZ").books(), case("XYW").books()
    told, control = decided(order, line, again, rules=WINDOW)
    assert causes(told) == ["ambiguous"]
    assert stands(control, "book") == ["ambiguous"]
    assert causes(decided(order, other, line, rules=WINDOW)[0]) == ["ambiguous", "ambiguous"]


def test_a_statement_line_that_names_no_payment_is_found_by_amount_and_date() -> None:
    """Only within the window."""
    order = case("ORD-1").pays().books()
    line = case("XYZ").settles()
    line.lines[0] = replace(line.lines[0], payment=None)
    assert causes(decided(order, line, rules=WINDOW)[0]) == ["by_date_window"]
    strict = causes(decided(order, line)[0])
    assert strict == ["not_settled", "settled_never_notified"]


NEAR = [
    (case("ORD-1O42").books(), "reference differs in one character", RULES),
    (case("ORD1-042").books(), "digits differ only by separators", RULES),
    (case("XYZ", 150_000).books(), "amount 100 times larger: minor units?", RULES),
    (case("XYZ", 15).books(), "amount 100 times smaller: minor units?", RULES),
    (case("XYZ").books(), "another reference", RULES),
    (case("XYZ", at=AT + 4 * DAY + HOUR).books(), "2 d outside the window", WINDOW),
    (case("ORD-1O42", 1_510).books(), "amount differs by KES 0.10", RULES),
    (case("XYZ").books(currency="UGX"), None, RULES),
]


@pytest.mark.parametrize(("line", "apart", "rules"), NEAR)
def test_the_one_field_that_keeps_the_nearest_apart(
    line: Case, apart: str | None, rules: MatchRules
) -> None:
    """Told in words, from both sides."""
    order = case("ORD-1042").pays().settles()
    told = {each.cause: each for each in decided(order, line, rules=rules)[0]}
    found = told["paid_not_in_book"].candidates
    assert [apart_words(each) for each in found] == ([] if apart is None else [apart])
    back = told["book_paid_not_received"].candidates
    assert [each.line for each in back] == ([] if apart is None else ["ORD-1042"])


def test_no_more_than_three_candidates_the_nearest_first() -> None:
    """The nearest differ least; of equals the first by name."""
    order = case("ORD-1042").pays().settles()
    lines = [case(name).books() for name in ("XA", "XB", "ORD-1O42", "XC", "ORD-10-42")]
    told = decided(order, *lines)[0]
    (found,) = [each for each in told if isinstance(each, Break) and each.candidates and
                each.cause == "paid_not_in_book"]  # fmt: skip
    assert [each.reference for each in found.candidates] == ["ORD-10-42", "ORD-1O42", "XA"]


def test_a_break_keeps_its_identity_while_its_difference_is_the_same() -> None:
    """Other money, later, a new version of the line: the same break."""
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


@pytest.mark.parametrize("cause", BREAK_CAUSES)
def test_every_break_says_what_differs_and_what_to_do(cause: str) -> None:
    """Whole sentences, in which no fact is missing."""
    for made in (case(), case(minor=77)):
        (found,) = decided(TROUBLES[cause](made))[0]
        assert isinstance(found, Break)
        for sentence in (break_sentence(found), next_step(found)):
            assert sentence.endswith(".")
            assert "missing" not in sentence
            assert "{" not in sentence


def test_beyond_the_bound_rows_are_decided_at_once_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is too much for the second look is a break by its key alone; the totals still tie."""
    monkeypatch.setattr("reconcile.match_left.MOST_LEFT", 2)
    lines = [case(f"XYZ-{n}").books() for n in range(5)]
    told, control = decided(*lines)
    assert causes(told) == ["book_paid_not_received"] * 5
    unsearched = [each for each in told if "No partner was looked for" in break_sentence(each)]
    assert len(unsearched) == control.unsearched == 3


@pytest.mark.parametrize("seed", [1, 2])
def test_a_month_with_every_trouble_has_none_false_and_none_missed(seed: int) -> None:
    """Every break and every special match of the ground truth, with its money, and no other."""
    month = Month(orders=3_000, each=9, seed=seed)
    expected = sorted(
        (str(cause), str(order), minor)
        for one in month.cases()
        for cause, order, minor in one.breaks
    )
    matches = sorted((kind, str(order)) for one in month.cases() for kind, order in one.matches)
    matching = Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE)
    told = list(
        matching.decide(takings=month.takings(), book=month.book(), statements=month.statements())
    )
    breaks = [each for each in told if isinstance(each, Break)]
    assert sorted((e.cause, str(e.order), e.money.minor) for e in breaks) == expected
    assert sorted((e.kind, str(e.order)) for e in told if isinstance(e, Match)) == matches
    assert len(expected) == 9 * len(BREAK_CAUSES)
    assert matching.control().holds
