"""Rows that no key joins: by hand, payment, group, amount and date; and near misses."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.instants import DAY, HOUR, Duration, Instant
from reconcile.matching.breaks import Break, apart_words
from reconcile.matching.fallback import MOST_FITS, Offer, fits
from reconcile.matching.match import Match, Matching
from reconcile.matching.rows import ledger_line_row
from reconcile.matching.rules import MatchRules
from tests.reconcile.books_cases import AT, case, causes, decided, stands
from tests.reconcile.books_truth import (
    AS_OF,
    COVERAGE,
    RULES,
    SOURCE,
    Case,
    book_row,
    kes,
    statement_row,
)
from tests.rows import for_each


def test_two_orders_with_one_key_are_ambiguous_and_a_person_can_tell_them_apart() -> None:
    one, other = case("ORD-1").pays().books(), case("ord 1").pays(payment="pay_9")
    one.settles(), other.settles(payment="pay_9")
    decisions, control = decided(one, other)
    assert causes(decisions) == ["ambiguous", "ambiguous"]
    assert stands(control, "book") == ["ambiguous"]
    decisions, _ = decided(one, other, hands=(("bok_ORD-1_0", "ORD-1"),))
    assert causes(decisions) == ["by_hand", "paid_not_in_book"]


def test_what_is_left_when_a_person_has_paired_is_matched_as_if_it_had_been_alone() -> None:
    one, other = case("ORD-1").pays().books(), case("ord 1").pays(payment="pay_9").books()
    one.settles(), other.settles(payment="pay_9")
    assert set(causes(decided(one, other)[0])) == {"ambiguous"}
    decisions, control = decided(one, other, hands=(("bok_ORD-1_0", "ORD-1"),))
    assert causes(decisions) == ["by_hand"]
    assert stands(control, "book") == ["by_hand", "by_reference"]


@for_each(("orders", "lines", "expected"), [
    (3, 2, ["ambiguous", "ambiguous", "by_hand"]),
    (2, 3, ["ambiguous", "by_hand"]),
    (2, 2, ["by_hand"]),
    (2, 1, ["by_hand", "paid_not_in_book"]),
    (1, 2, ["book_paid_not_received", "by_hand"]),
    (1, 1, []),
])  # fmt: skip
def test_of_several_of_one_key_a_person_paired_the_first_two(
    orders: int, lines: int, expected: list[str]
) -> None:
    written = ("ORD-1", "ord 1", "Ord_1")
    made = [case(name).pays(payment=f"p{name}").settles(payment=f"p{name}")
            for name in written[:orders]]  # fmt: skip
    books = [case(name).books() for name in written[:lines]]
    found, _ = decided(*made, *books, hands=(("bok_ORD-1_0", "ORD-1"),))
    assert causes(found) == expected


def test_a_person_pairs_an_order_with_a_line_of_another_reference() -> None:
    order, line = case("ORD-1").pays().settles(), case("XYZ").books()
    assert causes(decided(order, line)[0]) == ["book_paid_not_received", "paid_not_in_book"]
    hands = (("ORD-1", "bok_XYZ_0"),)
    assert causes(decided(order, line, hands=hands)[0]) == ["by_hand"]
    dear = case("XYZ").books(minor=1_700)
    assert causes(decided(order, dear, hands=hands)[0]) == ["amount_differs"]


def test_a_line_that_a_person_gave_and_that_does_not_fit_is_still_counted() -> None:
    order, line = case("ORD-1").pays().settles(), case("X").books()
    hands = (("ORD-1", "bok_X_0"), ("ORD-1", "bok_Y_0"))
    decisions, control = decided(order, line, case("Y").books(minor=300), hands=hands)
    assert causes(decisions) == ["book_paid_not_received", "by_hand"]
    assert stands(control, "book") == ["book_paid_not_received", "by_hand"]
    decisions, control = decided(order, line, case("Y").books("unpaid", minor=300), hands=hands)
    assert stands(control, "book") == ["by_hand", "nothing_due"]


@for_each(("minors", "expected"), [
    ((1_000, 500), ["by_hand"]),
    ((1_000, 400), ["amount_differs"]),
    ((1_500,), ["by_hand"]),
])  # fmt: skip
def test_a_person_pairs_several_lines_with_one_order(
    minors: tuple[int, ...], expected: list[str]
) -> None:
    lines = [case(f"X{n}", minor).books() for n, minor in enumerate(minors)]
    hands = tuple([("ORD-1", f"bok_X{n}_0") for n in range(len(minors))])
    assert causes(decided(case().pays().settles(), *lines, hands=hands)[0]) == expected


def test_what_is_apart_from_the_price_has_no_near_miss() -> None:
    made = case().pays(minor=1_600, owed=(kes(100),)).settles(gross=1_600)
    found = {e.cause: e for e in decided(made, case("ORD-11").books())[0] if isinstance(e, Break)}
    assert found["overpaid"].candidates == ()
    assert [each.reference for each in found["paid_not_in_book"].candidates] == ["ORD-11"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconcile.matching.funds.MOST_LEFT", 0)
        found = {each.cause: each for each in decided(made)[0] if isinstance(each, Break)}
    assert ("searched", False) not in found["overpaid"].facts
    assert ("searched", False) in found["paid_not_in_book"].facts


@for_each("minor", [1, 2])
def test_the_smallest_amount_is_matched_by_date_as_any_other(minor: int) -> None:
    order = case(minor=minor).pays().settles()
    assert causes(decided(order, case("XYZ", minor).books(), rules=WINDOW)[0]) == ["by_date_window"]
    decisions = decided(order, case("XYZ", 0).books(), rules=WINDOW)[0]
    assert causes(decisions) == ["paid_not_in_book"]


def test_a_person_pairs_several_orders_with_one_line() -> None:
    first = case("ORD-1", 1_000).pays().settles()
    second = case("ORD-2", 500).pays().settles()
    line = case("INV-9").books()
    hands = (("ORD-1", "bok_INV-9_0"), ("bok_INV-9_0", "ORD-2"))
    (found,) = decided(first, second, line, hands=hands)[0]
    assert isinstance(found, Match)
    assert (found.kind, found.money.minor) == ("by_hand", 1_500)


def test_a_person_pairs_a_statement_line() -> None:
    order, line = case("ORD-1").pays().books(), case("XYZ").settles()
    assert causes(decided(order, line, hands=(("ORD-1", "stm_XYZ_0"),))[0]) == ["by_hand"]
    booked = case("ORD-1").books()
    hands = (("bok_ORD-1_0", "stm_XYZ_0"),)
    assert causes(decided(booked, line, hands=hands)[0]) == ["by_hand"]


def test_a_person_says_which_of_two_book_lines_is_the_orders() -> None:
    doubled = case("ORD-1").pays().books().books().settles()
    assert causes(decided(doubled)[0]) == ["ambiguous"]
    decisions, control = decided(doubled, hands=(("ORD-1", "bok_ORD-1_1"),))
    assert causes(decisions) == ["book_paid_not_received", "by_hand"]
    (other,) = [each for each in decisions if isinstance(each, Break)]
    assert other.subject == "bok_ORD-1_0"
    assert stands(control, "takings") == ["by_hand"]


@for_each(("made", "hands", "expected", "book"), [
    (case().pays().books().books().books("unpaid"), (), ["ambiguous"],
     ["ambiguous", "nothing_due"]),
    (case().pays().books().books().books("unpaid"), (("ORD-1", "bok_ORD-1_1"),),
     ["book_paid_not_received", "by_hand"], ["book_paid_not_received", "by_hand", "nothing_due"]),
    (case().pays().books().books("unpaid"), (), [], ["by_reference", "nothing_due"]),
    (case().pays().books(minor=900).books(minor=600).books("canceled"), (), ["by_group"],
     ["by_group", "nothing_due"]),
    (case().pays().books().books(minor=900).books("canceled"), (), ["book_paid_not_received"],
     ["book_paid_not_received", "by_reference", "nothing_due"]),
    (case().books().books("unpaid"), (), ["book_paid_not_received"],
     ["book_paid_not_received", "nothing_due"]),
    (case().untouched().books().books("unpaid"), (), ["book_paid_not_received"],
     ["book_paid_not_received", "nothing_due"]),
])  # fmt: skip
def test_a_line_that_claims_nothing_beside_others_is_counted_once(
    made: Case, hands: tuple[tuple[str, str], ...], expected: list[str], book: list[str]
) -> None:
    found, control = decided(made.settles() if made.takings and made.takings[0].taken else made,
                             hands=hands)  # fmt: skip
    assert causes(found) == expected
    assert stands(control, "book") == book


def test_what_is_alone_is_reported_in_the_order_of_its_first_lines() -> None:
    made = case().books().books(reference="ord 1").books(reference="ord 1").books()
    found = [each for each in decided(made)[0] if isinstance(each, Break)]
    assert [each.cites for each in found] == [
        ("bok_ORD-1_0.1", "bok_ORD-1_3.1"), ("bok_ORD-1_1.1", "bok_ORD-1_2.1")]  # fmt: skip


def test_a_person_says_which_of_two_statement_lines_is_the_captures() -> None:
    twice = case("ORD-1").pays().books().settles().settles()
    (found,) = decided(twice)[0]
    assert isinstance(found, Break)
    assert [each.line for each in found.candidates] == ["stm_ORD-1_0.1", "stm_ORD-1_1.1"]
    for number in (0, 1):
        decisions, control = decided(twice, hands=(("ORD-1", f"stm_ORD-1_{number}"),))
        assert causes(decisions) == ["by_hand", "settled_never_notified"]
        assert stands(control, "settlement") == ["by_hand"]
        (other,) = [each for each in decisions if isinstance(each, Break)]
        assert other.subject == f"stm_ORD-1_{1 - number}"
    both = (("ORD-1", "stm_ORD-1_0"), ("ORD-1", "stm_ORD-1_1"))
    assert causes(decided(twice, hands=both)[0]) == ["ambiguous"]
    near = replace(RULES, date_window=30 * DAY)
    order, first, second = case("ORD-1").pays().books(), case("X").settles(), case("Y").settles()
    for each in (first, second):
        each.lines[0] = replace(each.lines[0], payment=None)
    (found,) = decided(order, first, second, rules=near)[0]
    assert isinstance(found, Break)
    assert [each.line for each in found.candidates] == ["stm_X_0.1", "stm_Y_0.1"]
    decisions, _ = decided(order, first, second, rules=near, hands=(("ORD-1", "stm_Y_0"),))
    assert causes(decisions) == ["by_hand", "settled_never_notified"]


def test_a_person_pairs_several_statement_lines_with_one_capture() -> None:
    order = case("ORD-1").pays().books()
    hands = (("ORD-1", "stm_X_0"), ("stm_Y_0", "ORD-1"))
    first, second = case("X").settles(gross=1_000), case("Y").settles(gross=500)
    assert causes(decided(order, first, second, hands=hands)[0]) == ["by_hand"]
    assert causes(decided(order, first, hands=hands)[0]) == ["amount_differs"]
    less = case("Y").settles(gross=400)
    assert causes(decided(order, first, less, hands=hands)[0]) == ["amount_differs"]


@for_each("named", [None, "ORD-7", "ORD-1"])
@for_each(("source", "own", "expected"), [
    ("", True, []),
    (SOURCE, True, []),
    ("other", True, ["not_settled", "settled_never_notified"]),
    ("other", False, []),
])  # fmt: skip
def test_another_sources_payment_of_the_same_reference_is_another(
    named: str | None, source: str, own: bool, expected: list[str]
) -> None:
    """A source without statements of its own may share another's."""
    if not own and named != "ORD-1":
        expected = ["settled_never_notified"]
    paid = case("ORD-1").pays(payment="1001").books()
    line = case("ORD-1").settles(payment="1001", order=named or "").lines[0]
    for payment in ("1001", None)[: 1 + (named == "ORD-1")]:
        coverage = COVERAGE if own else replace(COVERAGE, statements=())
        matching = Matching(rules=RULES, as_of=AS_OF, coverage=coverage)
        decisions = matching.decide(
            takings=[ledger_line_row(paid.takings[0])],
            book=[book_row(paid.book[0])],
            statements=[statement_row(line)._replace(source=source, payment=payment)],
        )
        found = [each for each in causes(list(decisions)) if each != "by_payment"]
        assert matching.control().holds
        assert found == expected


def test_a_payment_settled_under_another_order_is_found_by_its_reference() -> None:
    order = case("ORD-1").pays().books()
    line = case("ORD-2").settles(payment="pay_ORD-1")
    assert causes(decided(order, line)[0]) == ["by_payment"]


def test_one_payment_for_the_lines_of_a_group() -> None:
    paid = case("FAM-7", 900).pays().settles()
    lines = [case(f"MEM-{n}", 300).books(group="fam 7") for n in range(3)]
    (found,) = decided(paid, *lines)[0]
    assert isinstance(found, Match)
    assert (found.kind, len(found.lines)) == ("by_group", 3)
    short = decided(paid, *lines[:2])[0]
    assert causes(short) == ["book_paid_not_received", "book_paid_not_received", "paid_not_in_book"]


@for_each("of", ["lines", "order"])
def test_a_group_in_another_currency_is_not_paid_by_it(of: str) -> None:
    lines = [case(f"MEM-{n}", 300).books(group="fam 7", currency="UGX" if of == "lines" else "KES")
             for n in range(3)]  # fmt: skip
    paid = case("FAM-7", 900).pays().settles()
    if of == "order":
        first = paid.takings[0].taken[0]
        paid.takings[0] = replace(
            paid.takings[0], expected=None, taken=(replace(first, currency="UGX"),)
        )
        paid.lines[0] = replace(paid.lines[0], currency="UGX")
    assert causes(decided(paid, *lines)[0]) == [*["book_paid_not_received"] * 3, "paid_not_in_book"]


def test_several_payments_for_the_lines_of_a_group() -> None:
    paid = [case("MEM-0", 500).pays().settles(), case("MEM-1", 400).pays().settles()]
    lines = [case(f"MEM-{n}", 300).books(group="F") for n in range(3)]
    assert causes(decided(*paid, *lines)[0]) == ["by_group"]


def test_two_payments_that_each_fit_a_group_are_ambiguous() -> None:
    paid = [case(f"MEM-{n}", 600).pays().settles() for n in range(2)]
    lines = [case(f"MEM-{n}", 300).books(group="F") for n in range(2)]
    decisions, control = decided(*paid, *lines)
    assert causes(decisions) == ["ambiguous", "ambiguous"]
    assert stands(control, "book") == ["ambiguous"]


WINDOW = replace(RULES, date_window=2 * DAY)


def unnamed(made: Case) -> Case:
    """Remove the payments from the statement lines of a case."""
    made.lines = [replace(line, payment=None) for line in made.lines]
    return made


def test_amount_and_date_match_only_where_a_rule_says_so() -> None:
    order, line = case("ORD-1").pays().settles(), case("XYZ").books()
    assert causes(decided(order, line, rules=RULES)[0]) != ["by_date_window"]
    assert causes(decided(order, line, rules=WINDOW)[0]) == ["by_date_window"]


UNPAID = "book_paid_not_received"
UNKNOWN = "settled_never_notified"


@for_each(
    ("order", "line", "expected"),
    [
        (case().pays(more=(case().taken(minor=-1_500),)).settles(), case("XYZ").books(),
         [UNPAID, "refund_not_settled"]),
        (case().pays(outcome="unresolved").settles(), case("XYZ").books(), [UNPAID, "unresolved"]),
        (case().pays().settles(), case("XYZ").books(minor=1_600), [UNPAID, "paid_not_in_book"]),
        (case().pays().settles(), case("XYZ").books(currency="UGX"), [UNPAID, "paid_not_in_book"]),
        (case().pays().settles(), case("XYZ").books().books(minor=800, currency="UGX"),
         [UNPAID, "paid_not_in_book"]),
        (case().pays().settles(), case("XYZ").books(minor=700).books(minor=800, currency="UGX"),
         [UNPAID, "paid_not_in_book"]),
        (case().pays().books(), case("XYZ").settles(), ["not_settled", UNKNOWN]),
        (case().pays().books(), unnamed(case("XYZ").settles(gross=1_600)),
         ["not_settled", UNKNOWN]),
        (case().pays().books(), unnamed(case("XYZ").settles(currency="UGX")),
         ["not_settled", UNKNOWN]),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_not_matched_by_amount_and_date(
    order: Case, line: Case, expected: list[str]
) -> None:
    assert causes(decided(order, line, rules=WINDOW)[0]) == expected


@for_each(("gross", "currency", "expected"), [
    (1_500, "KES", ["by_hand"]),
    (1_499, "KES", ["amount_differs"]),
    (1_501, "KES", ["amount_differs"]),
    (1_500, "UGX", ["book_paid_not_received", "settled_never_notified"]),
])  # fmt: skip
def test_a_book_line_and_a_statement_line_that_a_person_pairs_agree_or_differ(
    gross: int, currency: str, expected: list[str]
) -> None:
    booked, line = case().books(), case("XYZ").settles(gross=gross, currency=currency)
    found, control = decided(booked, line, hands=(("bok_ORD-1_0", "stm_XYZ_0"),))
    assert causes(found) == expected
    matched = [each for each in found if isinstance(each, Match)]
    assert [(each.payment, each.money.minor, each.lines) for each in matched] == (
        [("pay_XYZ", 1_500, ("bok_ORD-1_0.1", "stm_XYZ_0.1"))] if expected == ["by_hand"] else []
    )
    assert stands(control, "book") == [expected[0]]


def test_a_statement_line_that_a_person_gave_to_an_order_of_two_open_captures_is_of_neither() -> (
    None
):
    order = case().pays(more=(case().taken(payment="pay_2"),)).books(minor=3_000)
    decisions, control = decided(order, case("XYZ").settles(), hands=(("ORD-1", "stm_XYZ_0"),))
    assert causes(decisions).count("not_settled") == 2
    assert "settled_never_notified" in causes(decisions)
    assert stands(control, "settlement") == ["not_settled"]


def test_a_line_of_the_order_s_own_reference_is_nearer_than_any_date() -> None:
    order = case("ORD-1").pays().books(minor=1_800, group="G").settles()
    other = case("XYZ").books()
    named = causes(decided(order, other, rules=WINDOW)[0])
    assert named == ["amount_differs", "book_paid_not_received"]


def test_two_that_fit_by_amount_and_date_are_ambiguous() -> None:
    order, other = case("ORD-1").pays().settles(), case("ORD-2").pays().settles()
    line, again = case("XYZ").books(), case("XYW").books()
    decisions, control = decided(order, line, again, rules=WINDOW)
    assert causes(decisions) == ["ambiguous"]
    assert stands(control, "book") == ["ambiguous"]
    assert causes(decided(order, other, line, rules=WINDOW)[0]) == ["ambiguous", "ambiguous"]


def test_a_statement_line_that_names_no_payment_is_found_by_amount_and_date() -> None:
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
    (case("ORD-1O42", 1_515).books(), "amount differs by KES 0.15", RULES),
    (case("ORD-1O42", 1_516).books(), None, RULES),  # more than one part in a hundred
    (case("XYZ").books(currency="UGX"), None, RULES),
]


@for_each(("line", "apart", "rules"), NEAR)
def test_the_one_field_that_keeps_the_nearest_apart(
    line: Case, apart: str | None, rules: MatchRules
) -> None:
    order = case("ORD-1042").pays().settles()
    breaks: list[Any] = decided(order, line, rules=rules)[0]
    by_cause = {each.cause: each for each in breaks}
    found = by_cause["paid_not_in_book"].candidates
    assert [apart_words(each) for each in found] == ([] if apart is None else [apart])
    back = by_cause["book_paid_not_received"].candidates
    assert [each.line for each in back] == ([] if apart is None else ["ORD-1042"])


def test_no_more_than_three_candidates_the_nearest_first() -> None:
    order = case("ORD-1042").pays().settles()
    lines = [case(name).books() for name in ("XA", "XB", "ORD-1O42", "XC", "ORD-10-42")]
    decisions = decided(order, *lines)[0]
    (found,) = [each for each in decisions if isinstance(each, Break) and each.candidates and
                each.cause == "paid_not_in_book"]  # fmt: skip
    assert [each.reference for each in found.candidates] == ["ORD-10-42", "ORD-1O42", "XA"]


@pytest.mark.parametrize(("room", "made", "wanted", "unsearched"), [
    (0, [case().untouched().books()], ["book_paid_not_received"], 1),
    (0, [case().untouched().books("unpaid")], [], 1),
    (0, [case().books("unpaid")], [], 1),
    (0, [case().untouched()], [], 0),
    (0, [case().books()], ["book_paid_not_received"], 1),
    (0, [case().pays().settles()], ["paid_not_in_book"], 1),
    (0, [case().pays().books()], ["not_settled"], 1),
    (0, [case().settles()], ["settled_never_notified"], 1),
    (0, [case().pays().books("paid", minor=1_800, group="G").settles()], ["amount_differs"], 0),
    # Lines that claim something have a room of their own, and so has what claims nothing.
    (1, [case().untouched().books(), case("ORD-2").untouched().books("unpaid")],
     ["book_paid_not_received"], 0),
    (1, [case(f"ORD-{n}").untouched().books() for n in range(2)], ["book_paid_not_received"] * 2,
     1),
    (1, [case(f"ORD-{n}").untouched().books("unpaid") for n in range(3)], [], 2),
    (1, [case("ORD-1").pays().settles(), case("ORD-2").pays().settles()], ["paid_not_in_book"] * 2,
     1),
    # Of an order and a line that may be of a group both are kept, or neither.
    (1, [case("ORD-1").books(), case("ORD-2").pays().books(minor=1_800, group="G").settles(),
         case("ORD-3").pays().settles()],
     ["amount_differs", "book_paid_not_received", "paid_not_in_book"], 0),
    (1, [case("ORD-1").books("unpaid"),
         case("ORD-2").pays().books(minor=1_800, group="G").settles(),
         case("ORD-3").pays().settles()],
     ["amount_differs", "paid_not_in_book"], 1),
])  # fmt: skip
def test_what_there_is_no_room_for_is_decided_at_once(
    monkeypatch: pytest.MonkeyPatch, room: int, made: list[Case], wanted: list[str], unsearched: int
) -> None:
    monkeypatch.setattr("reconcile.matching.funds.MOST_LEFT", room)
    found, control = decided(*made)
    assert causes(found) == wanted
    assert control.unsearched == unsearched


T = Instant(1_000)

PAIRED: list[tuple[tuple[Offer, ...], tuple[Offer, ...], list[tuple[str, str]]]] = [
    # The last amount and the last moment that fit, and the first beyond, in both directions.
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 105, T, "x"),), [("a", "x")]),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 106, T, "x"),), []),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 95, T, "x"),), [("a", "x")]),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 94, T, "x"),), []),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 100, Instant(T + 10), "x"),), [("a", "x")]),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 100, Instant(T + 11), "x"),), []),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 100, Instant(T - 10), "x"),), [("a", "x")]),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 100, Instant(T - 11), "x"),), []),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 105, Instant(T + 10), "x"),), [("a", "x")]),
    # A currency without a tolerance; another currency.
    ((Offer("UGX", 100, T, "a"),), (Offer("UGX", 101, T, "x"),), []),
    ((Offer("UGX", 100, T, "a"),), (Offer("UGX", 100, T, "x"),), [("a", "x")]),
    ((Offer("KES", 100, T, "a"),), (Offer("UGX", 100, T, "x"),), []),
    # Each is paired with what alone fits it, past others of other amounts and dates.
    (
        (Offer("KES", 100, T, "a"), Offer("KES", 200, T, "b")),
        (Offer("KES", 203, T, "y"), Offer("KES", 98, T, "x")),
        [("a", "x"), ("b", "y")],
    ),
    (
        (Offer("KES", 100, T, "a"),),
        (Offer("KES", 101, Instant(T + 50), "x"), Offer("KES", 103, T, "y")),
        [("a", "y")],
    ),
    # Of two that fit none is taken, whichever side has them.
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 100, T, "x"), Offer("KES", 101, T, "y")), []),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 95, T, "x"), Offer("KES", 105, T, "y")), []),
    ((Offer("KES", 100, T, "a"),), (Offer("KES", 101, T, "x"), Offer("KES", 99, T, "y")), []),
    ((Offer("KES", 101, T, "a"), Offer("KES", 99, T, "b")), (Offer("KES", 100, T, "x"),), []),
    (
        (Offer("KES", 100, T, "a"), Offer("KES", 106, T, "b")),
        (Offer("KES", 103, T, "x"), Offer("KES", 111, T, "y")),
        [],
    ),
]


@for_each(("left", "right", "pairs"), PAIRED)
def test_what_fits_by_amount_and_date_and_fits_nothing_else(
    left: tuple[Offer, ...], right: tuple[Offer, ...], pairs: list[tuple[str, str]]
) -> None:
    """Within 5 minor units and 10 microseconds."""
    found = fits(left, right, window=Duration(10), tolerance=lambda c: 5 if c == "KES" else 0)
    assert found.pairs == pairs
    one = {(name, other) for name, others in found.left.items() for other in others}
    other = {(name, other) for other, names in found.right.items() for name in names}
    assert one == other
    assert not {name for pair in pairs for name in pair} & {*found.left, *found.right}


def test_of_very_many_that_fit_the_first_are_named() -> None:
    many = [Offer("KES", 100, Instant(T + n), f"x{n:04}") for n in range(MOST_FITS + 5)]
    found = fits([Offer("KES", 100, T, "a")], many, window=DAY, tolerance=lambda _: 0)
    assert found.left == {"a": tuple([each.name for each in many[:MOST_FITS]])}
