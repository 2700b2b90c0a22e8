"""Near misses across legs: book and statement, book and bank, payout and bank."""

from reconcile.instants import DAY, MINUTE
from reconcile.matching.breaks import Break, break_sentence, break_text
from reconcile.matching.candidates import suggestions
from reconcile.matching.match import Decision
from tests.reconcile.books_cases import AT, case, causes, decided
from tests.reconcile.books_truth import Case
from tests.reconcile.test_bank import booked, paid
from tests.reconcile.test_bank import leg as bank_leg
from tests.reconcile.test_outside import leg, order
from tests.rows import for_each


def near(decisions: list[Decision]) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Return by cause the candidates of its break, with the reasons for each."""
    return {
        each.cause: [(found.candidate.line, found.reasons) for found in suggestions(each)]
        for each in decisions
        if isinstance(each, Break)
    }


def never_notified(gross: int = 1_500) -> Case:
    """Return a statement line of a payment that nobody knows."""
    return case("POS-77", at=AT - 2 * DAY + 3 * MINUTE).settles(gross=gross, order="", fee=0)


@for_each(("gross", "reason"), [
    (1_500, "same_amount"), (1_490, "nearly_same_amount"), (1_430, "amount_less_a_charge"),
])  # fmt: skip
def test_a_line_of_the_statement_and_an_order_of_the_book_find_each_other(
    gross: int, reason: str
) -> None:
    found = near(decided(case().books(), never_notified(gross))[0])
    assert found == {
        "book_paid_not_received": [("stm_POS-77_0.1", (reason, "within_an_hour", "no_other"))],
        "settled_never_notified": [("bok_ORD-1_0.1", (reason, "within_an_hour", "no_other"))],
    }


@for_each(("gross", "left"), [(1_500, []), (1_490, ["amount_differs"])])
def test_a_person_may_match_both_and_only_a_difference_stays(gross: int, left: list[str]) -> None:
    made = (case().books(), never_notified(gross))
    decisions, _ = decided(*made, hands=(("bok_ORD-1_0", "stm_POS-77_0"),))
    assert causes(decisions) == (left or ["by_hand"])
    if left:
        (apart,) = decisions
        assert isinstance(apart, Break)
        assert break_sentence(apart) == (
            "The statement settles KES 14.90 for the order, but the order book says KES 15.00: "
            "KES 0.10 apart."
        )


def test_an_order_without_money_finds_the_bank_line_that_names_it() -> None:
    bank = leg(booked("a", 4_000, 12, text="Bestellung #10740", counterparty="Jane Doe"))
    made = Case("#10740", 5_000, AT).books()
    matching_side, _ = decided(made, beside=bank.credits_alone())
    assert near(matching_side)["book_paid_not_received"] == [
        ("bnk_a.1", ("named_in_text", "no_other"))
    ]
    (found,) = [each for each in matching_side if isinstance(each, Break)]
    assert "Jane" not in break_text(found)
    assert "Bestellung" not in break_text(found)


def test_a_bank_line_finds_the_order_that_it_names_and_the_payout_of_its_day() -> None:
    bank = leg(
        order("#10740", 5_000, status="unpaid"), booked("a", 4_000, 12, text="Bestellung 10740")
    )
    assert near([*bank.decisions()]) == {
        "bank_line_unknown": [("bok_10740.1", ("named_in_text", "within_a_week", "no_other"))]
    }
    short = bank_leg(paid("PO-9", 123_456, 12), booked("b", 122_256, 12))
    assert near([*short.decisions()]) == {
        "payout_not_in_bank": [("bnk_b.1", ("nearly_same_amount", "within_a_day", "no_other"))],
        "bank_line_unknown": [("pyt_PO-9", ("nearly_same_amount", "within_a_day", "no_other"))],
    }
    shorter = bank_leg(paid("PO-9", 30_000, 12), booked("b", 28_800, 12))
    assert near([*shorter.decisions()])["payout_not_in_bank"] == [
        ("bnk_b.1", ("amount_less_a_charge", "within_a_day", "no_other"))
    ]
