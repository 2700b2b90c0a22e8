"""Payments that were captured in several parts, against the statement: no part is lost, and none is
taken for another."""

from dataclasses import replace

from reconcile.matching.breaks import Break
from tests.reconcile.books_cases import case, decided, stands
from tests.reconcile.books_truth import Case
from tests.rows import for_each


def in_parts(*parts: int, event: str = "") -> Case:
    """Return an order whose payment was captured in these parts, with its book line.

    event  the event on which all parts but the first rest; else each has its own
    """
    made = case(minor=sum(parts))
    more = [
        replace(made.taken(minor=minor), cites=(event or f"evt_{n}",))
        for n, minor in enumerate(parts[1:], 2)
    ]
    return made.pays(minor=parts[0], more=tuple(more)).books()


def breaks(made: Case) -> list[tuple[str, int, str | None]]:
    found = [each for each in decided(made)[0] if isinstance(each, Break)]
    assert len({each.identity for each in found}) == len(found)
    return [(each.cause, each.money.minor, each.subject) for each in found]


@for_each(("event", "subjects"), [
    ("", ["checkout", "checkout:evt_2", "checkout:evt_3"]),
    ("evt_x", ["checkout", "checkout:evt_x", "checkout:evt_x#2"]),
])  # fmt: skip
def test_each_part_of_a_payment_that_no_statement_has_is_missed(
    event: str, subjects: list[str]
) -> None:
    made = in_parts(1_000, 300, 300, event=event)
    missed = zip((1_000, 300, 300), subjects, strict=True)
    assert breaks(made) == [("not_settled", minor, subject) for minor, subject in missed]
    assert stands(decided(made)[1], "settlement") == ["not_settled"]


@for_each(("captured", "lines", "settlement", "statement", "expected"), [
    # each part in a line of its own, in whatever order
    ((1_000, 500), (500, 1_000), ["by_reference"], ["by_reference"], []),
    ((700, 700), (700, 700), ["by_reference"], ["by_reference"], []),
    # of two alike the first is settled; the second is still to come
    ((700, 700), (700,), ["by_reference", "not_settled"], ["by_reference"],
     [("not_settled", 700, "checkout:evt_2")]),
    ((1_000, 500), (1_000,), ["by_reference", "not_settled"], ["by_reference"],
     [("not_settled", 500, "checkout:evt_2")]),
    # several in one line, or in others than they came in
    ((1_000, 500), (1_500,), ["by_group"], ["by_group"], []),
    ((1_000, 500, 200), (200, 1_500), ["by_group", "by_reference"],
     ["by_group", "by_reference"], []),
    ((1_000, 500), (900, 600), ["by_group"], ["by_group"], []),
    ((1_000, 500), (1_000, 450, 50), ["by_group", "by_reference"],
     ["by_group", "by_reference"], []),
    # one of another amount; one too many, which may be of a part that no webhook stated
    ((1_000, 500), (1_000, 480), ["amount_differs", "by_reference"],
     ["amount_differs", "by_reference"], [("amount_differs", 20, "stm_ORD-1_1")]),
    ((1_000, 500), (1_000, 500, 200), ["by_reference"],
     ["by_reference", "settled_never_notified"],
     [("settled_never_notified", 200, "stm_ORD-1_2")]),
    # which of them is meant nobody knows
    ((1_000, 500), (1_000, 500, 500), ["ambiguous", "by_reference"],
     ["ambiguous", "by_reference"], [("ambiguous", 500, "checkout:evt_2")]),
    ((1_000, 500), (800, 100), ["ambiguous"], ["ambiguous"],
     [("ambiguous", 1_000, "checkout"), ("ambiguous", 500, "checkout:evt_2")]),
])  # fmt: skip
@for_each("named", ["ORD-1", "XYZ", ""])
def test_a_line_settles_the_part_of_its_amount(
    captured: tuple[int, ...],
    lines: tuple[int, ...],
    settlement: list[str],
    statement: list[str],
    expected: list[tuple[str, int, str]],
    named: str,
) -> None:
    made = in_parts(*captured)
    for gross in lines:
        made.settles(gross=gross, order=named)
    control = decided(made)[1]
    plain = {"by_payment": "by_reference"}
    assert sorted({plain.get(each, each) for each in stands(control, "settlement")}) == settlement
    assert sorted({plain.get(each, each) for each in stands(control, "statement")}) == statement
    assert sorted(breaks(made)) == sorted(expected)


def test_a_person_may_say_which_line_of_two_settles_a_part() -> None:
    made = in_parts(1_000, 500).settles(gross=1_000).settles(gross=500).settles(gross=500)
    decisions, control = decided(made, hands=(("ORD-1", "stm_ORD-1_2"),))
    assert stands(control, "settlement") == ["by_hand", "by_reference"]
    left = [each for each in decisions if isinstance(each, Break)]
    assert [(each.cause, each.cites) for each in left] == [
        ("settled_never_notified", ("stm_ORD-1_1.1",))
    ]


def test_a_correction_of_a_line_is_no_money_of_its_own() -> None:
    made = in_parts(1_000, 500)
    for gross in (1_000, 500, 40, -40):
        made.settles(gross=gross, fee=0)
    assert breaks(made) == []
    assert stands(decided(made)[1], "settlement") == ["by_group"]


def test_parts_of_two_payments_are_not_taken_for_each_other() -> None:
    made = case(minor=1_400)
    made.pays(minor=700, more=(made.taken(minor=700, payment="pay_2"),)).books()
    made.settles(gross=700)
    made.lines = [replace(each, payment=None) for each in made.lines]
    assert [each[0] for each in breaks(made)] == ["ambiguous", "ambiguous"]
