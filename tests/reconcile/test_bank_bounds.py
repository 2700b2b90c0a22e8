"""Payouts against bank lines: each bound to its last moment, minor unit, character and word."""

from dataclasses import replace

import pytest

from reconcile.instants import DAY, TICK, Instant
from reconcile.matching.bank import BankLeg
from reconcile.matching.books import BankLine, Payout
from reconcile.matching.breaks import Break
from reconcile.matching.decide import Match
from reconcile.matching.period import Period
from reconcile.matching.rules import Coverage, Covered, HandMatch, MatchRules, Span, Tolerance
from reconcile.matching.tally import Unsettled
from reconcile.money import MAX_MINOR, Money
from tests.reconcile.test_bank import (
    COVERAGE,
    DAILY,
    PO,
    T,
    booked,
    breaks,
    covered,
    leg,
    paid,
    stands,
)
from tests.rows import for_each

DAYS_90 = 90 * DAY
TICKS: dict[str, tuple[tuple[Payout | BankLine, ...], str, str]] = {
    "a day before the payout": (
        (PO, booked("a", 50_000, booked_at=T + 9 * DAY)), "bnk_a.1", "by_date_window"),
    "more than a day before it": (
        (PO, booked("a", 50_000, booked_at=T + 9 * DAY - TICK)), "bnk_a.1", "bank_line_unknown"),
    "the last moment of the margin": (
        (PO, booked("a", 50_000, booked_at=T + 15 * DAY)), "bnk_a.1", "by_date_window"),
    "after the margin": (
        (PO, booked("a", 50_000, booked_at=T + 15 * DAY + TICK)), "bnk_a.1", "bank_line_unknown"),
    "named at the end of 90 days": (
        (PO, booked("a", 50_000, booked_at=T + 10 * DAY + DAYS_90, text="PO-100200")),
        "bnk_a.1", "by_reference"),
    "named after 90 days": (
        (PO, booked("a", 50_000, booked_at=T + 10 * DAY + DAYS_90 + TICK, text="PO-100200")),
        "pyt_PO-100200", "payout_not_in_bank"),
    "named 90 days before": (
        (PO, booked("a", 50_000, booked_at=T + 10 * DAY - DAYS_90, text="PO-100200")),
        "bnk_a.1", "by_reference"),
    "paid out at the bank's first moment": ((paid("PO-1", 5),), "pyt_PO-1", "payout_not_in_bank"),
    "paid out before it": ((paid("PO-1", 5, paid_at=T - TICK),), "pyt_PO-1", "not_covered"),
    "due at the bank's last moment": ((paid("PO-1", 5, 54),), "pyt_PO-1", "payout_not_in_bank"),
    "due after it": (
        (paid("PO-1", 5, paid_at=T + 54 * DAY + TICK),), "pyt_PO-1", "awaiting_bank"),
    "booked a margin after the statement's first moment": (
        (booked("a", 5, 5),), "bnk_a.1", "bank_line_unknown"),
    "booked before that": (
        (booked("a", 5, booked_at=T + 5 * DAY - TICK),), "bnk_a.1", "not_covered"),
    "booked at the statement's last moment": (
        (booked("a", 5, booked_at=T + 51 * DAY - TICK),), "bnk_a.1", "bank_line_unknown"),
    "booked after it": ((booked("a", 5, 51),), "bnk_a.1", "awaiting_statement"),
    "a line of nothing": ((booked("a", 0, 20),), "bnk_a.1", "other_business"),
}  # fmt: skip
"""A bound and the moment beyond it: who is looked at, and where that stands."""


@for_each("name", TICKS)
def test_each_bound_is_met_to_the_moment(name: str) -> None:
    both, who, expected = TICKS[name]
    assert stands(leg(*both))[who] == expected


@for_each(("later", "bucket"), [(0, "payout_not_in_bank"), (1, "awaiting_bank")])
def test_a_payout_is_missing_from_the_moment_at_which_it_is_due(later: int, bucket: str) -> None:
    beyond = replace(COVERAGE, bank=(covered("main", (0, 71)),))
    payout = paid("PO-1", 5, paid_at=T + 55 * DAY + later * TICK)
    assert stands(leg(payout, coverage=beyond))["pyt_PO-1"] == bucket


@for_each(("minor", "bucket"), [
    (49_899, "payout_amount_differs"), (49_900, "by_tolerance"), (50_000, "by_reference"),
    (50_100, "by_tolerance"), (50_101, "payout_amount_differs"),
])  # fmt: skip
def test_a_tolerance_is_met_to_the_minor_unit(minor: int, bucket: str) -> None:
    rules = MatchRules(tolerances=(Tolerance(currency="KES", minor=100),))
    found = leg(PO, booked("a", minor, 12, text="PO-100200"), rules=rules)
    assert set(stands(found).values()) == {bucket}
    missing = [each.minor for each_break in breaks(found) for each in each_break.left or ()]
    assert missing == ([50_000 - minor] if bucket == "payout_amount_differs" else [])


@for_each("currency", ["USD", "KES"])
@for_each("apart", [-1, 1])
def test_a_currency_without_a_tolerance_has_none_in_the_bank(currency: str, apart: int) -> None:
    some = (Tolerance(currency="JPY", minor=100),)
    for rules in (MatchRules(), MatchRules(tolerances=some)):
        payout = paid("PO-100200", 50_000, 10, currency)
        found = leg(payout, booked("a", 50_000 + apart, 12, currency, text="PO-100200"),
                    rules=rules)  # fmt: skip
        assert set(stands(found).values()) == {"payout_amount_differs"}


@for_each(("reference", "text", "named"), [
    ("PAY1", "RENT PAY1", True),
    ("PY1", "RENT PY1", False),
    ("123456", "RENT 123456", True),
    ("12345", "RENT 12345", False),
    ("123-456", "RENT 123-456", True),
    ("ONE TWO THREE", "OF ONE TWO THREE ALL", True),
    ("ONE TWO THREE FOUR", "OF ONE TWO THREE FOUR", False),
    ("ONE TWO THREE FOUR", "ONE TWO THREE FOUR", True),  # the text whole
    ("PAYOUT: SHOP, NOV (2)", "PAYOUT: SHOP, NOV (2)", True),
    ("PO-77", "x " * 199 + "PO-77 y", True),
    ("PO-77", "x " * 200 + "PO-77 y", False),
])  # fmt: skip
def test_what_names_a_payout(reference: str, text: str, named: bool) -> None:
    payout = paid("named", 50_000, 10, reference=reference)
    for texts in ({"text": text}, {"reference": text}, {"reference": "none", "text": text}):
        found = leg(payout, booked("a", 50_000, 40, **texts))
        assert stands(found)["pyt_named"] == ("by_reference" if named else "payout_not_in_bank")


@for_each(("payout", "line", "expected"), [
    (10_000, 1_290_000, {"by_exchange"}),
    (1, 1, {"by_exchange"}),
    (1, 0, {"payout_not_in_bank", "other_business"}),
    (0, 1, {"nothing_due", "bank_line_unknown"}),
    (1, -1, {"payout_not_in_bank", "other_business"}),
    (-1, 1, {"payout_not_in_bank", "bank_line_unknown"}),
    (-1, -1, {"payout_not_in_bank", "other_business"}),
])  # fmt: skip
def test_only_money_that_came_is_exchanged_by_its_name(
    payout: int, line: int, expected: set[str]
) -> None:
    edges = (paid("EDGE-0003", 11, 0, "USD"), paid("EDGE-0004", 11, 50, "USD"),
             booked("u1", 11, 0, "USD", text="EDGE-0003"),
             booked("u2", 11, 50, "USD", text="EDGE-0004"),
             booked("u3", -1, 59, "USD"))  # fmt: skip
    both = paid("PO-100300", payout, 10, "USD"), booked("a", line, 11, text="PO-100300")
    found = stands(leg(*both, *edges))
    assert {found["pyt_PO-100300"], found["bnk_a.1"]} == expected


@for_each(("both", "expected"), [
    # What was exchanged for what would be unknown.
    ((PO, paid("PO-100201", 9, 11, "USD"), booked("a", 50_000, 12, text="PO-100200 PO-100201")),
     {"pyt_PO-100200": "by_reference", "pyt_PO-100201": "not_covered", "bnk_a.1": "by_reference"}),
    ((paid("PO-100200", 9, 10, "USD"), paid("PO-100201", 9, 11, "EUR"),
      booked("a", 50_000, 12, text="PO-100200 PO-100201")),
     {"pyt_PO-100200": "not_covered", "pyt_PO-100201": "not_covered",
      "bnk_a.1": "bank_line_unknown"}),
    ((paid("PO-100200", 9, 10, "USD"), booked("a", 50_000, 12, text="PO-100200"),
      booked("b", 9, 12, "EUR", text="PO-100200")),
     {"pyt_PO-100200": "not_covered", "bnk_a.1": "bank_line_unknown", "bnk_b.1": "not_covered"}),
    # Nothing is no transfer.
    ((paid("PO-0", 0, 10), booked("a", 0, 10)),
     {"pyt_PO-0": "nothing_due", "bnk_a.1": "other_business"}),
    # The earliest payout takes the earliest line, whatever they are called.
    ((paid("PO-2", 500, 10), paid("PO-1", 500, 14), booked("a", 500, 14), booked("b", 500, 18)),
     {"pyt_PO-2": "by_date_window", "pyt_PO-1": "by_date_window", "bnk_a.1": "by_date_window",
      "bnk_b.1": "by_date_window"}),
    ((paid("PO-1", 500, 14), booked("b", 500, 14), booked("a", 500, 18)),
     {"pyt_PO-1": "by_date_window", "bnk_b.1": "by_date_window", "bnk_a.1": "bank_line_unknown"}),
    # An earlier line of that sum is passed over, and is known to nobody.
    ((paid("PO-1", 500, 14), booked("a", 500, 5), booked("b", 500, 6), booked("c", 500, 15)),
     {"pyt_PO-1": "by_date_window", "bnk_a.1": "bank_line_unknown",
      "bnk_b.1": "bank_line_unknown", "bnk_c.1": "by_date_window"}),
    # The payout that no line fits takes none from the next.
    ((paid("PO-1", 500, 5), paid("PO-2", 500, 20), booked("a", 500, 21)),
     {"pyt_PO-1": "payout_not_in_bank", "pyt_PO-2": "by_date_window",
      "bnk_a.1": "by_date_window"}),
])  # fmt: skip
def test_which_payout_takes_which_line(
    both: tuple[Payout | BankLine, ...], expected: dict[str, str]
) -> None:
    assert stands(leg(*both)) == expected


@for_each(("texts", "ours"), [
    ({"counterparty": "STRIPE Ltd"}, True),
    ({"reference": "to stripe"}, True),
    ({"text": "by Stripe"}, True),
    ({"counterparty": "Landlord", "text": "paid by stripe"}, True),
    ({"counterparty": "STR", "reference": "IPE"}, False),
    ({}, False),
])  # fmt: skip
@for_each("minor", [700, -700])
def test_who_pays_out_is_found_in_each_text_of_a_line(
    texts: dict[str, str], ours: bool, minor: int
) -> None:
    rules = MatchRules(bank_payers=("Stripe",))
    found = leg(booked("a", minor, 20, **texts), rules=rules)
    assert stands(found) == {"bnk_a.1": "bank_line_unknown" if ours else "other_business"}
    matched = leg(paid("PO-1", minor, 20), booked("a", minor, 20, **texts), rules=rules)
    assert (stands(matched)["bnk_a.1"] == "by_date_window") == ours


BEFORE, AFTER = Period(until=T + 11 * DAY), Period(since=T + 11 * DAY)


@for_each(("both", "first"), [
    ((PO, booked("a", 50_000, 12, text="PO-100200")), True),
    ((paid("PO-100200", 50_000, 11), booked("a", 50_000, 10, text="PO-100200")), False),
    ((paid("PO-100200", 9, 10), paid("PO-100201", 9, 12), booked("a", 18, 10, text="PO-100200 "
     "PO-100201")), False),
    # Where no payout has a date, by the first that the bank has.
    ((paid("PO-100200", 18, paid_at=None), booked("a", 9, 12, text="PO-100200"),
      booked("b", 9, 10, text="PO-100200")), True),
    ((paid("PO-100200", 9, paid_at=None), paid("PO-100201", 9, 12),
      booked("a", 18, 10, text="PO-100200 PO-100201")), False),
])  # fmt: skip
def test_what_is_joined_belongs_to_one_period(
    both: tuple[Payout | BankLine, ...], first: bool
) -> None:
    found = leg(*both, edges=False)
    counts = [sum(each.count for each in found.control(period).lines) for period in (BEFORE, AFTER)]
    assert counts == ([len(both), 0] if first else [0, len(both)])


@for_each(("minors", "fits"), [
    ((MAX_MINOR,), True), ((MAX_MINOR - 1, 1), True), ((MAX_MINOR, 1), False),
    ((-MAX_MINOR, 1), False), ((MAX_MINOR - 1, -1), True),
])  # fmt: skip
def test_sums_of_a_group_are_bounded_to_the_minor_unit(minors: tuple[int, ...], fits: bool) -> None:
    payouts = [paid(f"PO-10020{n}", minor, 10) for n, minor in enumerate(minors)]
    text = " ".join(each.reference for each in payouts)
    lines = [booked(f"l{n}", minor, 10, text="PO-100209") for n, minor in enumerate(minors)]
    some: list[list[Payout | BankLine]] = [
        [*payouts, booked("a", 5, 10, text=text)],
        [paid("PO-100209", 5, 10), *lines],
    ]
    for both in some:
        if fits:
            assert set(stands(leg(*both)).values()) == {"payout_amount_differs"}
            continue
        with pytest.raises(ValueError, match="than can be stored"):
            leg(*both)


def test_of_many_payouts_of_a_group_three_are_named() -> None:
    payouts = [paid(f"PO-10020{n}", 9, 14 - n) for n in range(4)]
    text = " ".join(each.reference for each in payouts)
    (found,) = breaks(leg(*payouts, booked("a", 30, 14, text=text)))
    assert dict(found.facts)["payout"] == "PO-100203, PO-100202, PO-100201"
    assert found.cites == (*[f"pyt_PO-10020{n}" for n in (3, 2, 1, 0)], "bnk_a.1")
    assert (found.subject, found.money.minor) == ("pyt_PO-100200", 6)
    assert [each.minor for each in found.left or ()] == [6]


@for_each(("minor", "rules", "facts"), [
    (50_000, MatchRules(), []),
    (49_950, MatchRules(tolerances=(Tolerance(currency="KES", minor=100),)), [("difference", 50)]),
    (50_050, MatchRules(tolerances=(Tolerance(currency="KES", minor=100),)), [("difference", -50)]),
])  # fmt: skip
def test_a_match_says_what_was_let_pass(
    minor: int, rules: MatchRules, facts: list[tuple[str, int]]
) -> None:
    matches = [
        each
        for each in leg(
            PO,
            booked("a", minor, 40),
            rules=rules,
            hands=[HandMatch(one="bnk_a", other=PO.payout_id)],
        ).decisions()
        if isinstance(each, Match)
    ]
    # A person's match within the tolerance is reported as what lets it pass.
    assert [each.lines for each in matches] == [("bnk_a.1", "pyt_PO-100200")]
    assert [
        (name, each.minor) for name, each in matches[0].facts if isinstance(each, Money)
    ] == facts
    assert matches[0].money == Money(minor=50_000, currency="KES")


def test_an_exchange_states_its_rate_and_what_the_bank_has() -> None:
    (found,) = [
        each
        for each in leg(
            paid("PO-100300", 10_000, 10, "USD"), booked("a", 1_290_000, 11, text="PO-100300")
        ).decisions()
        if isinstance(each, Match)
    ]
    assert dict(found.facts) == {
        "rate": "129.000000",
        "in_bank": Money(minor=1_290_000, currency="KES"),
    }


def test_only_what_may_be_a_payouts_is_a_near_miss_of_one() -> None:
    near, nearer = booked("a", 49_990, 16), booked("b", 49_990, 12)
    rent = booked("c", -50_000, 10)
    by_cause = {each.cause: each for each in breaks(leg(PO, near, nearer, rent))}
    assert [each.line for each in by_cause["payout_not_in_bank"].candidates] == [
        "bnk_b.1",
        "bnk_a.1",
    ]
    assert [each.days for each in by_cause["payout_not_in_bank"].candidates] == [2, 6]


def test_groups_are_reported_in_the_order_of_their_first_payouts() -> None:
    found = leg(
        paid("PO-C000", 5, 10), paid("PO-A000", 5, 11), paid("PO-B000", 5, 12),
        paid("PO-D000", 5, 13), booked("a", 10, 14, text="PO-C000 PO-A000"),
        booked("b", 10, 14, text="PO-B000 PO-D000"), edges=False,
    )  # fmt: skip
    names = [[each.reference for each in link.payouts] for link in found.links]
    assert names == [["PO-B000", "PO-D000"], ["PO-C000", "PO-A000"]]
    reported = [each.lines for each in found.decisions() if isinstance(each, Match)]
    assert [lines[0] for lines in reported] == ["bnk_b.1", "bnk_a.1"]


FAILED = paid("F-100400", 0, 10, sent=500, withdrawn=True)


@for_each(("came", "went", "joined"), [
    (10 * DAY, 15 * DAY, True),
    (10 * DAY, 15 * DAY + TICK, False),
    (12 * DAY, 12 * DAY, True),
    (12 * DAY + TICK, 12 * DAY, False),
    (10 * DAY - DAYS_90, 11 * DAY, True),
    (10 * DAY - DAYS_90 - TICK, 11 * DAY, False),
])  # fmt: skip
def test_a_failed_payout_came_and_went_within_its_margin(
    came: int, went: int, joined: bool
) -> None:
    there = booked("a", 500, booked_at=T + came)
    back = booked("b", -500, booked_at=T + went)
    other = booked("c", -500, booked_at=there.booked_at - TICK)
    found = leg(FAILED, other, there, back, edges=False).links
    assert [(link.bucket, link.payouts, link.lines) for link in found] == (
        [("by_group", (FAILED,), (there, back))] if joined else []
    )


@for_each(("again", "joined"), [
    ([paid("A-1", 500, 10)], "A-1"),
    ([paid("A-1", 500, paid_at=T + 10 * DAY - TICK)], None),
    ([paid("A-1", 500, 14), paid("A-2", 500, 12)], "A-2"),
    ([paid("A-1", 500, 12, source="other")], None),
    ([paid("A-1", 499, 12)], None),
])  # fmt: skip
def test_a_failed_payout_stands_with_the_first_later_payout_of_its_sum(
    again: list[Payout], joined: str | None
) -> None:
    lines = [booked(each.reference, each.minor, booked_at=each.paid_at) for each in again]
    found = leg(FAILED, *again, *lines, edges=False)
    assert len(found.links) == len(again)
    beside = [link.lines[0].line_id for link in found.links if FAILED in link.payouts]
    assert beside == ([] if joined is None else [f"bnk_{joined}.1"])
    assert [each.payout for each in found.alone] == ([FAILED] if joined is None else [])


def test_one_line_is_of_one_failed_payout() -> None:
    other = replace(FAILED, payout_id="pyt_F-2", reference="F-2")
    lines = booked("a", 500, 10), booked("b", -500, 11), booked("c", -500, 11)
    links = leg(FAILED, other, *lines, edges=False).links
    assert [(link.payouts, link.lines) for link in links] == [((FAILED,), lines[:2])]


def test_only_a_failed_payout_stands_with_another_one() -> None:
    undated = replace(FAILED, payout_id="pyt_F-2", reference="F-2", paid_at=None)
    missing = paid("P-1", 700, 5, sent=700), paid("P-2", 800, 5), undated
    lines = booked("a", 500, 10), booked("b", -500, 11)
    found = leg(FAILED, *missing, *lines, edges=False)
    assert [link.payouts for link in found.links] == [(FAILED,)]
    assert {each.payout for each in found.alone if each.payout} == {*missing}


@for_each(("as_of", "since", "until", "late"), [
    (10 * DAY, 7 * DAY, 10 * DAY, True),
    (10 * DAY - TICK, 7 * DAY, 10 * DAY, False),
    (10 * DAY, 7 * DAY + TICK, 10 * DAY, False),
    (10 * DAY, 7 * DAY, 10 * DAY - TICK, False),
])  # fmt: skip
def test_a_provider_is_late_from_the_moment_when_its_payout_is_due(
    as_of: int, since: int, until: int, late: bool
) -> None:
    span = Span(since=Instant(T + since), until=Instant(T + until))
    found = BankLeg(
        payouts=DAILY,
        lines=[],
        rules=MatchRules(),
        as_of=Instant(T + as_of),
        coverage=Coverage(statements=(Covered(name="shop", spans=(span,)),)),
    )
    found.expect([Unsettled("shop", "KES", 3, number=1, minor=1)])
    one = Money(minor=1, currency="KES")
    told = Break(
        cause="payout_late",
        subject="pyt_D-7",
        money=one,
        since=T + 10 * DAY,
        cites=("pyt_D-7",),
        facts=(("wallet", "shop"), ("waiting", one), ("last_at", T + 7 * DAY),
               ("due_at", T + 10 * DAY)),
    )  # fmt: skip
    assert found.late == ((told,) if late else ())
    of_period = [*found.decisions(Period(since=T + 10 * DAY))]
    assert of_period == [*found.late]
    assert told not in found.decisions(Period(until=T + 10 * DAY))


@for_each(("minor", "due"), [(1, 11), (0, 10), (-1, 10)])
def test_only_payouts_of_money_make_a_rhythm(minor: int, due: int) -> None:
    found = leg(*DAILY, paid("D-8", minor, 8), edges=False)
    found.expect([Unsettled("shop", "KES", 3, number=1, minor=1)])
    assert [each.since for each in found.late] == [T + due * DAY]


@for_each(("minor", "days", "late"), [
    (1, 3, True), (0, 3, False), (-1, 3, False), (1, 2, False), (1, 6, True), (1, 7, False),
])  # fmt: skip
def test_money_that_waits_for_a_payout_is_no_break_of_its_own(
    minor: int, days: int, late: bool
) -> None:
    found = leg(*DAILY, edges=False)
    found.expect([Unsettled("shop", "KES", days, number=1, minor=minor)])
    assert bool(found.late) == late


def test_only_money_that_came_alone_may_be_a_customers_transfer() -> None:
    found = leg(booked("a", 1, 20), booked("b", 0, 20), booked("c", -1, 20), edges=False)
    assert [each.line for each in found.credits_alone()] == ["bnk_a.1"]
