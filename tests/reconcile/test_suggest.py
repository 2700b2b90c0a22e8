"""Points of a near miss: they add up, and their reasons are named."""

from dataclasses import replace
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.candidates import (
    REASON_WORDS,
    WEIGHTS,
    MatchReason,
    suggestions,
    the_one,
)
from reconcile.money import Money
from tests.reconcile.books_truth import AS_OF
from tests.rows import for_each

MONEY = Money(minor=150_000, currency="KES")
MISSED = Break(
    cause="not_settled",
    order="ORD-1042",
    payment="PAY-7701",
    subject="shop",
    money=MONEY,
    since=AS_OF,
    cites=("evt_1",),
)


def near(
    reference: str,
    minor: int = 150_000,
    currency: str = "KES",
    apart: str = "x",
    days: int | None = None,
) -> Candidate:
    money = Money(minor=minor, currency=currency)
    return Candidate(
        line=f"stm_{reference}", reference=reference, money=money, apart=apart, days=days
    )


def missed(*candidates: Candidate) -> Break:
    return replace(MISSED, candidates=candidates)


OTHER = near("ZZZ", 9)


@for_each(
    ("candidate", "reasons"),
    [
        (near("pay 7701"), ["same_reference", "same_amount"]),
        (near("ord1042", 151_000), ["same_reference", "nearly_same_amount"]),
        (near("PAY-77-01"), ["same_but_separators", "same_amount"]),
        (near("PAY-7710", 1_500), ["nearly_same_reference", "amount_by_factor"]),
        (near("PAY-9999", 152_000), []),
        (near("PAY-7701", currency="UGX"), ["same_reference"]),
        (near("", -150_000), ["same_amount"]),
        (near("X", apart="nothing"), ["same_amount", "nothing_apart"]),
        (near("X", apart="fits"), ["same_amount", "nothing_apart"]),
        (near("X", days=0), ["same_amount", "within_a_day"]),
        (near("PAY-7701", days=6), ["same_reference", "same_amount", "within_a_week"]),
        (near("PAY-7701", days=7), ["same_reference", "same_amount"]),
        # One part in a hundred, and no more.
        (near("X", 151_500), ["nearly_same_amount"]),
        (near("X", 151_501), []),
        (near("X", 148_500), ["nearly_same_amount"]),
        (near("X", -148_499), []),
    ],
)
def test_what_speaks_for_it_is_named(candidate: Candidate, reasons: list[MatchReason]) -> None:
    found = {each.candidate: each for each in suggestions(missed(candidate, OTHER))}[candidate]
    assert list(found.reasons) == reasons
    assert found.score == sum(WEIGHTS[each] for each in reasons)
    (alone,) = suggestions(missed(candidate))
    assert list(alone.reasons) == [*reasons, "no_other"]


@for_each(("candidate", "reasons"), [
    (replace(near("Z", 9), facts=(("named", True),)), ["named_in_text"]),
    (replace(near("Z", 9), facts=(("same_number", True),)), ["same_number"]),
    (replace(near("Z", 9, days=0), facts=(("minutes", 0),)), ["within_an_hour"]),
    # The reason of the most points counts.
    (replace(near("PAY-7701", 9), facts=(("same_number", True),)), ["same_reference"]),
    (replace(near("PAY-7710", 9), facts=(("named", True),)), ["named_in_text"]),
    # Sums of one day differ by a charge: five per cent.
    (near("Z", 142_500, days=0), ["amount_less_a_charge", "within_a_day"]),
    (near("Z", 142_499, days=0), ["within_a_day"]),
    (near("Z", 142_500, days=1), ["within_a_week"]),
])  # fmt: skip
def test_what_a_text_a_number_and_a_charge_say_is_named(
    candidate: Candidate, reasons: list[MatchReason]
) -> None:
    found = {each.candidate: each for each in suggestions(missed(candidate, OTHER))}[candidate]
    assert list(found.reasons) == reasons


@for_each(("minor", "currency", "its", "close"), [
    (30_000, "KES", 28_000, True),  # 20.00, which is more than five per cent
    (30_000, "KES", 27_999, False),
    (15_000, "KES", 13_500, True),  # a tenth, which is less than 20.00
    (15_000, "KES", 13_499, False),
    (300, "UGX", 280, True),
    (300, "UGX", 279, False),
    (0, "KES", 0, False),
])  # fmt: skip
def test_a_charge_is_at_most_twenty_and_a_tenth_of_the_sum(
    minor: int, currency: str, its: int, close: bool
) -> None:
    found = replace(missed(near("Z", its, currency, days=0), OTHER),
                    money=Money(minor=minor, currency=currency))  # fmt: skip
    (reasons,) = [e.reasons for e in suggestions(found) if e.candidate.money.minor == its]
    assert ("amount_less_a_charge" in reasons) == close


@for_each(("order", "reference", "nearly"), [
    ("AB-1234", "AB-12", True),
    ("AB-123", "AB-1", False),
    ("AB-1234", "AB-1", False),
    ("AB-12345", "AB-12", False),
    ("AB-1234567", "AB-12345", True),
    ("AB-1234567", "AB-1234", False),
    ("AB-1", "AB-2", True),
    ("A-1", "A-2", False),
])  # fmt: skip
def test_a_reference_is_nearly_the_same_but_for_a_third(
    order: str, reference: str, nearly: bool
) -> None:
    found = replace(missed(near(reference, 9), OTHER), order=order, payment=None)
    reasons_of = {each.candidate.reference: each.reasons for each in suggestions(found)}
    assert reasons_of[reference] == (("nearly_same_reference",) if nearly else ())


def test_the_payout_of_a_break_is_a_name_of_it() -> None:
    bank = replace(
        missed(near("PO-100200")), order=None, payment=None, facts=(("payout", "PO-100200"),)
    )
    assert suggestions(bank)[0].reasons == ("same_reference", "same_amount", "no_other")


def test_the_one_that_stands_out_is_reported_and_of_equals_none() -> None:
    best, worse = near("PAY-7710"), near("X")
    assert [each.candidate for each in suggestions(missed(worse, best))] == [best, worse]
    one = the_one(missed(worse, best), least=60)
    assert one is not None
    assert one.candidate == best
    assert the_one(missed(worse, best), least=61) is None
    assert the_one(missed(worse, near("Y")), least=0) is None
    assert the_one(missed(), least=0) is None


def test_a_score_without_a_reference_is_below_that_of_many() -> None:
    (found,) = suggestions(missed(near("X", apart="nothing", days=0)))
    assert found.reasons == ("same_amount", "within_a_day", "nothing_apart", "no_other")
    assert found.score < 60


@for_each(("candidate", "score"), [
    (near("PAY-7701", apart="nothing", days=0), 100),
    (near("PAY-77-01", apart="nothing", days=0), 95),
    (near("PAY-7710", apart="nothing", days=0), 80),
    (near("PAY-7701", apart="nothing", days=6), 95),
    (near("PAY-7701", 151_000, apart="nothing", days=0), 80),
    (near("PAY-7701", 1_500, apart="nothing", days=0), 80),
    (near("PAY-7701", days=0), 95),
    (near("X", apart="nothing", days=0), 55),
    (near("X", 9), 5),
])  # fmt: skip
def test_the_points_of_what_is_alone_add_up_to_these(candidate: Candidate, score: int) -> None:
    assert [each.score for each in suggestions(missed(candidate))] == [score]


def test_every_reason_has_its_weight_and_its_words() -> None:
    assert set(WEIGHTS) == set(get_args(MatchReason)) == set(REASON_WORDS)


NAMES = st.sampled_from(["PAY-7701", "PAY7701", "ORD-1042", "PAY-7710", "", "Z"])
NEAR = st.builds(
    near, NAMES, st.integers(-200_000, 200_000), st.sampled_from(["KES", "UGX"]),
    st.sampled_from(["nothing", "fits", "date"]), st.none() | st.integers(0, 9),
)  # fmt: skip


@given(st.lists(NEAR, max_size=3))
def test_a_score_is_of_a_hundred_and_each_near_miss_has_one(candidates: list[Candidate]) -> None:
    found = suggestions(missed(*candidates))
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= each <= 100 for each in scores)
    assert sorted(map(repr, candidates)) == sorted(repr(each.candidate) for each in found)
