"""Payouts against bank lines: what is found and reported, and that nothing is counted twice."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.instants import DAY, EARLIEST, Instant
from reconcile.matching import bank as bank_module
from reconcile.matching.bank import BankLeg
from reconcile.matching.books import BankLine, Payout, StatementLine
from reconcile.matching.breaks import Break, Step, break_in, break_sentence, break_text, next_step
from reconcile.matching.control import FAMILIES
from reconcile.matching.exchange import exchanged, implied_rate
from reconcile.matching.period import Period
from reconcile.matching.rules import (
    Coverage,
    Covered,
    ExpectedRate,
    HandMatch,
    MatchRules,
    Span,
    Tolerance,
)
from reconcile.matching.tally import Unsettled
from reconcile.matching.texts import named_in
from reconcile.money import Money
from reconcile.reporting.inputs import BankView, OrderSeen
from reconcile.reporting.journal import Transaction, confirmed, transactions, written_off
from reconcile.reporting.report import Scope
from reconcile.reporting.tally import PeriodTally
from tests.reconcile.build import BANK_CAUSES
from tests.rows import for_each
from tests.searching import examples

T = Instant(20_000 * DAY)
AS_OF = T + 60 * DAY
STRICT = MatchRules()
USD_TO_KES = ExpectedRate(currency="USD", into="KES", micros=129_500_000)


def paid(name: str, minor: int, day: int = 0, currency: str = "KES", **more: Any) -> Payout:
    """Return a payout of the source `shop`, paid out `day` days after T."""
    given = {"source": "shop", "reference": name, "paid_at": T + day * DAY}
    return Payout(payout_id=f"pyt_{name}", currency=currency, minor=minor, **{**given, **more})


def booked(name: str, minor: int, day: int = 0, currency: str = "KES", **more: Any) -> BankLine:
    """Return a bank line booked `day` days after T."""
    given = {"account": "main", "booked_at": T + day * DAY}
    return BankLine(line_id=f"bnk_{name}.1", currency=currency, minor=minor, **{**given, **more})


EDGES = (paid("EDGE-0001", 11, 0), paid("EDGE-0002", 13, 50))
IN_BANK = (
    booked("e1", 11, 0, text="EDGE-0001"),
    booked("e2", 13, 50, text="EDGE-0002"),
    booked("last", -1, 59),
)
"""Rows at the ends of what the files cover."""

COVERAGE = Coverage(
    statements=(Covered(name="shop", spans=(Span(since=T, until=T + 51 * DAY),)),),
    bank=(Covered(name="main", spans=(Span(since=T, until=T + 59 * DAY),)),),
)


def leg(
    *both: Payout | BankLine, rules: MatchRules = STRICT, edges: bool = True, **more: Any
) -> BankLeg:
    """Match these beside others that reach over the whole time."""
    payouts = [each for each in both if isinstance(each, Payout)]
    lines = [each for each in both if isinstance(each, BankLine)]
    if edges:
        payouts, lines = [*payouts, *EDGES], [*lines, *IN_BANK]
    given = {"coverage": COVERAGE, **more}
    return BankLeg(payouts=payouts, lines=lines, rules=rules, as_of=AS_OF, **given)


def stands(found: BankLeg) -> dict[str, str]:
    """Return the bucket of each payout and line, without the edges."""
    places: dict[str, str] = {}
    for link in found.links:
        places |= {each.payout_id: link.bucket for each in link.payouts}
        places |= {each.line_id: link.bucket for each in link.lines}
    for alone in found.alone:
        if alone.payout is not None:
            places[alone.payout.payout_id] = alone.bucket
        if alone.line is not None:
            places[alone.line.line_id] = alone.bucket
    names = {e.payout_id for e in EDGES} | {e.line_id for e in IN_BANK}
    return {name: bucket for name, bucket in places.items() if name not in names}


def breaks(found: BankLeg) -> list[Break]:
    return [each for each in found.decisions() if isinstance(each, Break)]


PO = paid("PO-100200", 50_000, 10)

TABLE: dict[str, tuple[tuple[Payout | BankLine, ...], set[str]]] = {
    "the reference stands in the bank's text": (
        (PO, booked("a", 50_000, 30, text="PAYOUT PO-100200 THANKS")),
        {"by_reference"},
    ),
    "the bank broke the reference at the end of a line": (
        (PO, booked("a", 50_000, 12, text="PAYOUT PO- 100200")),
        {"by_reference"},
    ),
    "the reference stands in the name of who paid": (
        (PO, booked("a", 50_000, 30, counterparty="PROVIDER PO-100200")),
        {"by_reference"},
    ),
    "the reference is the bank's own": (
        (PO, booked("a", 50_000, 12, reference="po 100200")),
        {"by_reference"},
    ),
    "nothing is named, and amount and date fit": (
        (PO, booked("a", 50_000, 12)),
        {"by_date_window"},
    ),
    "the bank dates it a day earlier": ((PO, booked("a", 50_000, 9)), {"by_date_window"}),
    "the amount fits, and the date does not": (
        (PO, booked("a", 50_000, 16)),
        {"payout_not_in_bank", "bank_line_unknown"},
    ),
    "one transfer of two payouts that it names": (
        (PO, paid("PO-100201", 1_000, 11), booked("a", 51_000, 12, text="PO-100200 PO-100201")),
        {"by_group"},
    ),
    "one payout in two transfers": (
        (
            PO,
            booked("a", 20_000, 12, text="PO-100200 1/2"),
            booked("b", 30_000, 13, text="PO-100200 2/2"),
        ),
        {"by_group"},
    ),
    "the bank took its charge": (
        (PO, booked("a", 49_900, 12, text="PO-100200")),
        {"payout_amount_differs"},
    ),
    "the provider takes money back": (
        (paid("PO-9", -700, 10), booked("a", -700, 11)),
        {"by_date_window"},
    ),
    "what leaves the bank otherwise is other business": (
        (booked("rent", -70_000, 20),),
        {"other_business"},
    ),
    "nobody knows whose money came": ((booked("a", 700, 20),), {"bank_line_unknown"}),
    "a payout of nothing": ((paid("PO-0", 0, 10),), {"nothing_due"}),
    "a payout without a date": ((paid("PO-1", 5, paid_at=None),), {"not_covered"}),
    "a payout of before the bank's first line": ((paid("PO-1", 5, -3),), {"not_covered"}),
    "a payout that the bank may still book": ((paid("PO-1", 5, 56),), {"awaiting_bank"}),
    "money of before the first payout": ((booked("a", 5, -1),), {"not_covered"}),
    "money of after the last payout": ((booked("a", 5, 51),), {"awaiting_statement"}),
    "a currency that the bank has no account of": (
        (paid("PO-1", 5, 10, "USD"),),
        {"not_covered"},
    ),
    "money in a currency of which there is no payout": (
        (booked("a", 5, 10, "USD"),),
        {"not_covered"},
    ),
    "a payout in dollars that the bank booked in shillings": (
        (paid("PO-100300", 10_000, 10, "USD"), booked("a", 1_290_000, 11, text="PO-100300")),
        {"by_exchange"},
    ),
}


@for_each("name", TABLE)
def test_where_each_stands(name: str) -> None:
    both, expected = TABLE[name]
    found = leg(*both)
    assert set(stands(found).values()) == expected
    assert {each.cause for each in breaks(found)} == expected & BANK_CAUSES
    assert found.control().holds


SAID: dict[str, tuple[Callable[[], BankLeg], str, str]] = {
    "payout_not_in_bank": (
        lambda: leg(PO),
        "No bank statement that reaches beyond 2024-10-19T00:00:00Z has the provider's payout "
        "PO-100200 of KES 500.00.",
        "Ask the provider when and to which account it paid this out; if the bank has it, import "
        "that account's statement.",
    ),
    "bank_line_unknown": (
        lambda: leg(booked("a", 700, 20)),
        "The bank booked KES 7.00 at 2024-10-24T00:00:00Z, but no payout of any provider's "
        "statement is known for it.",
        "Import the provider's statement that contains it, or match it with a payout or an order. "
        "To leave out other business, name it in the rules (bank_payers, other_business).",
    ),
    "payout_amount_differs": (
        lambda: leg(PO, booked("a", 49_900, 12, text="PO-100200")),
        "The provider's payout PO-100200 is KES 500.00, but the bank booked KES 499.00 for it: "
        "KES 1.00 apart.",
        "Ask the bank which charges it took, and the provider what it sent; claim the difference, "
        "or accept it.",
    ),
    "exchanged at another rate than the rules have": (
        lambda: leg(
            paid("PO-100300", 10_000, 10, "USD"),
            booked("a", 1_250_000, 11, text="PO-100300"),
            rules=MatchRules(rates=(USD_TO_KES,)),
        ),
        "The provider's payout PO-100300 is USD 100.00, but the bank booked KES 12,500.00 for it, "
        "at a rate of 125.000000; at the rate in the rules it would be KES 12,950.00, KES 450.00 "
        "apart.",
        "Ask the bank for its exchange rate and its charges, or correct the rate in the rules. "
        "Then accept the difference.",
    ),
}
"""Cases of each cause, with the sentence and the next step, word by word."""


@for_each("name", SAID)
def test_what_is_said_is_what_is_known(name: str) -> None:
    found, sentence, step = SAID[name]
    (reported,) = breaks(found())
    assert (break_sentence(reported), next_step(reported)) == (sentence, step)
    assert T <= reported.since < AS_OF
    assert reported.cites
    assert break_in(break_text(reported)) == reported


def test_every_cause_of_the_bank_is_in_the_table() -> None:
    assert set(SAID) >= BANK_CAUSES


def test_a_break_keeps_its_identity_when_its_line_has_a_new_version() -> None:
    line = booked("a", 700, 20)
    (before,), (after,) = (
        breaks(leg(each)) for each in (line, replace(line, line_id="bnk_a.7", text="more"))
    )
    assert before.identity == after.identity


def test_equal_sums_are_exchangeable_and_one_too_many_is_reported_once() -> None:
    both = [paid(f"PO-{n}", 500, 10 + n) for n in range(2)]
    lines = [booked(f"l{n}", 500, 11 + n) for n in range(3)]
    found = leg(*both, *lines)
    assert Counter(stands(found).values()) == {"by_date_window": 4, "bank_line_unknown": 1}


def test_an_earlier_line_is_not_taken_from_a_payout_that_fits_no_other() -> None:
    found = leg(
        paid("PO-1", 500, 10), paid("PO-2", 500, 14), booked("a", 500, 14), booked("b", 500, 18)
    )
    assert set(stands(found).values()) == {"by_date_window"}


def test_a_short_reference_or_a_year_names_nothing() -> None:
    for name in ("PO", "2024", "12345"):
        found = leg(paid(name, 500, 10), booked("a", 600, 40, text=f"RENT {name}"))
        assert set(stands(found).values()) == {"payout_not_in_bank", "bank_line_unknown"}


@for_each("name", ["2026-10-31", "2026/10/31", "20261031", "31.10.2026", "10/31/2026", "31102026"])
def test_a_payout_that_is_called_by_its_day_is_found_by_amount_and_date(name: str) -> None:
    found = leg(
        paid(name, 1_000, 10),
        booked("a", 1_000, 11, text="SETTLEMENT"),
        booked("b", -300, 11, text=f"RENT {name}"),
    )
    assert stands(found) == {
        f"pyt_{name}": "by_date_window",
        "bnk_a.1": "by_date_window",
        "bnk_b.1": "other_business",
    }
    other = leg(paid(f"PO {name}", 1_000, 10), booked("a", 900, 11, text=f"PO {name}"))
    assert set(stands(other).values()) == {"payout_amount_differs"}


@for_each(("name", "text"), [
    ("PO-100200", "PAYOUT PO-100200."), ("PO-100200", "REF=PO-100200 OF MAY"),
    ("PO-100200", "PROVIDER*PO-100200"), ("PO-100200", "<PO-100200>"),
    ("201234", "PAYOUT 201234"), ("2026111", "PAYOUT 2026111"),
    ("PO/2026/11", "PAYOUT (PO/2026/11), MAY"), ("PO/2026/11", "/PO/2026/11/"),
    ("PO.1.2", "NO: PO.1.2."),
])  # fmt: skip
def test_a_payout_is_found_whatever_stands_around_its_name(name: str, text: str) -> None:
    found = leg(paid(name, 500, 10), booked("a", 495, 11, text=text))
    assert set(stands(found).values()) == {"payout_amount_differs"}
    other = leg(paid(name, 500, 10), booked("a", 495, 11, text=text.replace(name, f"{name}9")))
    assert set(stands(other).values()) == {"payout_not_in_bank", "bank_line_unknown"}


def test_a_reference_of_another_time_is_another_payout() -> None:
    found = leg(paid("NOV-PAYOUT", 500, 1), booked("a", 500, 49 + 50, text="NOV-PAYOUT"))
    assert "by_reference" not in stands(found).values()


def test_lines_of_nobody_who_pays_out_are_left_out_once_the_rules_say_who_does() -> None:
    rules = MatchRules(bank_payers=("Stripe", "paystack"))
    found = leg(
        PO,
        booked("fits", 50_000, 12, counterparty="LANDLORD"),
        booked("ours", 700, 20, text="STRIPE TECHNOLOGY"),
        booked("back", -300, 20, counterparty="Paystack"),
        rules=rules,
    )
    assert stands(found) == {
        "pyt_PO-100200": "payout_not_in_bank",
        "bnk_fits.1": "other_business",
        "bnk_ours.1": "bank_line_unknown",
        "bnk_back.1": "bank_line_unknown",
    }


def test_a_person_says_which_line_is_a_payouts() -> None:
    hand = HandMatch(one="pyt_PO-100200", other="bnk_a")
    for minor, bucket in ((50_000, "by_hand"), (49_000, "payout_amount_differs")):
        found = leg(PO, booked("a", minor, 40), hands=[hand])
        assert set(stands(found).values()) == {bucket}
    turned = HandMatch(one="bnk_a", other="pyt_PO-100200")
    assert stands(leg(PO, booked("a", 50_000, 40), hands=[turned])) == {
        "pyt_PO-100200": "by_hand",
        "bnk_a.1": "by_hand",
    }


def test_what_a_person_brought_together_whole_is_not_drawn_into_what_names_say() -> None:
    other = paid("PO-100201", 900, 11)
    wrong, right = booked("a", 50_000, 12, text="PO-100201"), booked("b", 900, 12, text="PO-100201")
    assert set(stands(leg(PO, other, wrong, right)).values()) == {
        "payout_amount_differs",
        "payout_not_in_bank",
    }
    found = leg(PO, other, wrong, right, hands=[HandMatch(one="pyt_PO-100200", other="bnk_a")])
    assert stands(found) == {
        "pyt_PO-100200": "by_hand",
        "bnk_a.1": "by_hand",
        "pyt_PO-100201": "by_reference",
        "bnk_b.1": "by_reference",
    }


def test_what_a_person_adds_to_a_transfer_makes_it_whole() -> None:
    both = booked("a", 20_000, 12, text="PO-100200"), booked("b", 30_000, 40)
    found = leg(PO, *both, hands=[HandMatch(one="pyt_PO-100200", other="bnk_b")])
    assert set(stands(found).values()) == {"by_hand"}


def test_a_tolerance_lets_a_charge_pass() -> None:
    rules = MatchRules(tolerances=(Tolerance(currency="KES", minor=100),))
    found = leg(PO, booked("a", 49_900, 12, text="PO-100200"), rules=rules)
    assert (set(stands(found).values()), breaks(found)) == ({"by_tolerance"}, [])


def covered(name: str, *days: tuple[int, int]) -> Covered:
    """Return what covers these days after T, the last of each left out."""
    spans = tuple([Span(since=T + one * DAY, until=T + other * DAY) for one, other in days])
    return Covered(name=name, spans=spans)


def test_an_account_without_payouts_says_nothing_of_what_the_bank_covers() -> None:
    """The savings account was imported to day 59, the account of payouts to day 11 only."""
    bank = covered("main", (0, 12)), covered("savings", (0, 59))
    found = leg(
        PO, paid("PO-100201", 900, 11), booked("a", 50_000, 11, text="PO-100200"),
        booked("s", -1, 59, account="savings"), edges=False,
        coverage=replace(COVERAGE, bank=bank),
    )  # fmt: skip
    assert stands(found)["pyt_PO-100201"] == "awaiting_bank"


@for_each(
    ("bank", "bucket"),
    [
        (((0, 60),), "payout_not_in_bank"),
        (((0, 12),), "awaiting_bank"),
        (((0, 9),), "awaiting_bank"),
        (((0, 9), (11, 60)), "not_covered"),
        (((0, 12), (13, 60)), "not_covered"),
        (((11, 60),), "not_covered"),
        ((), "not_covered"),
    ],
)
def test_a_payout_is_missing_only_where_the_bank_covers_its_whole_margin(
    bank: tuple[tuple[int, int], ...], bucket: str
) -> None:
    found = leg(PO, coverage=replace(COVERAGE, bank=(covered("main", *bank),)))
    assert stands(found)["pyt_PO-100200"] == bucket


@for_each(
    ("statements", "bucket"),
    [
        (((0, 60),), "bank_line_unknown"),
        (((0, 12), (13, 60)), "not_covered"),
        (((8, 60),), "not_covered"),
        (((0, 12),), "awaiting_statement"),
        ((), "not_covered"),
    ],
)
def test_money_in_the_bank_is_unknown_only_where_statements_cover_its_payout(
    statements: tuple[tuple[int, int], ...], bucket: str
) -> None:
    coverage = replace(COVERAGE, statements=(covered("shop", *statements),))
    assert stands(leg(booked("a", 700, 12), coverage=coverage))["bnk_a.1"] == bucket


def test_of_many_that_are_alone_each_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges of statements and bank are computed once, not for each line."""
    calls = Counter[str]()

    def counting(name: str, real: Any) -> Any:
        def counted(*given: Any, **more: Any) -> Any:
            calls[name] += isinstance(given[0], list)
            return real(*given, **more)

        return counted

    for name, real in (("min", min), ("max", max)):
        monkeypatch.setattr(bank_module, name, counting(name, real), raising=False)
    many = [paid(f"PO-2{n:05}", 100 + n, 10) for n in range(40)]
    more = [booked(f"n{n}", 100_000 + n, 20) for n in range(40)]
    found = leg(*many, *more)
    assert Counter(stands(found).values()) == {"payout_not_in_bank": 40, "bank_line_unknown": 40}
    assert calls.total() < 40


def test_near_misses_are_named_without_the_texts_of_the_bank() -> None:
    line = booked("a", 49_990, 12, counterparty="Jane Doe", text="Jane Doe, 0711 223344")
    found = breaks(leg(PO, line))
    assert {each.cause for each in found} == {"payout_not_in_bank", "bank_line_unknown"}
    assert {c.line for each in found for c in each.candidates} == {"bnk_a.1", "pyt_PO-100200"}
    assert not any("Jane" in break_text(each) for each in found)


# --- money in another currency --------------------------------------------------------------------


def test_the_rate_is_what_the_two_sums_imply() -> None:
    assert (
        implied_rate(Money(minor=10_000, currency="USD"), Money(minor=1_293_055, currency="KES"))
        == "129.305500"
    )
    assert (
        implied_rate(Money(minor=10_000, currency="USD"), Money(minor=15_000, currency="JPY"))
        == "150.000000"
    )
    yen = replace(USD_TO_KES, into="JPY", micros=150_000_000)
    assert exchanged(Money(minor=10_001, currency="USD"), yen) == 15_002


@for_each(("minor", "micros", "due"), [
    (100, 1_004_999, 100), (100, 1_005_000, 101), (-100, 1_004_999, -100), (-100, 1_005_000, -101),
    (1, 499_999, 0), (1, 500_000, 1), (0, 500_000, 0), (-1, 500_000, -1), (-1, 499_999, 0),
])  # fmt: skip
def test_what_is_exchanged_is_rounded_half_away_from_zero(
    minor: int, micros: int, due: int
) -> None:
    rate = replace(USD_TO_KES, micros=micros)
    assert exchanged(Money(minor=minor, currency="USD"), rate) == due


@for_each(
    ("booked_minor", "bucket"),
    [(1_295_000, "by_exchange"), (1_282_050, "by_exchange"), (1_282_049, "payout_amount_differs")],
)
def test_a_rate_may_differ_by_what_the_rule_tolerates(booked_minor: int, bucket: str) -> None:
    rules = MatchRules(rates=(replace(USD_TO_KES, tolerance_per_million=10_000),))
    found = leg(
        paid("PO-100300", 10_000, 10, "USD"),
        booked("a", booked_minor, 11, text="PO-100300"),
        rules=rules,
    )
    assert set(stands(found).values()) == {bucket}


# --- laws -----------------------------------------------------------------------------------------


few = settings(max_examples=examples(40), deadline=None)
"""Fewer examples, as each is some dozens of payouts and lines that fit by chance."""

NAMES = st.sampled_from(["PO-1001", "PO-1002", "PO-1003", "PO-1004"])
MINORS = st.sampled_from([-500, 0, 300, 500, 800, 1_300])
DAYS = st.integers(0, 40)
RULES = st.builds(
    MatchRules,
    tolerances=st.sampled_from([(), (Tolerance(currency="KES", minor=200),)]),
    bank_payers=st.sampled_from([(), ("acme",)]),
    rates=st.sampled_from([(), (replace(USD_TO_KES, micros=1_500_000),)]),
)
CURRENCIES = st.sampled_from(["KES", "KES", "KES", "USD"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Payout], list[BankLine], MatchRules]:
    """Draw payouts and bank lines of few names, sums and days, so that much fits by chance."""
    payouts = [
        replace(paid(draw(NAMES), draw(MINORS), draw(DAYS), draw(CURRENCIES)), payout_id=f"pyt_{n}")
        for n in range(draw(st.integers(0, 6)))
    ]
    payouts = list({(e.reference, e.currency): e for e in payouts}.values())
    lines = [
        booked(
            str(n),
            draw(MINORS),
            draw(DAYS),
            draw(CURRENCIES),
            account=draw(st.sampled_from(["main", "other"])),
            text=" ".join(draw(st.lists(NAMES, max_size=2))),
            counterparty=draw(st.sampled_from([None, "ACME Ltd"])),
        )
        for n in range(draw(st.integers(0, 7)))
    ]
    return payouts, lines, draw(RULES)


@few
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_in_which_they_come_does_not_matter(world: Any, chance: random.Random) -> None:
    payouts, lines, rules = world
    one = BankLeg(payouts=payouts, lines=lines, rules=rules, as_of=AS_OF, coverage=COVERAGE)
    other = BankLeg(
        payouts=chance.sample(payouts, len(payouts)),
        lines=chance.sample(lines, len(lines)),
        rules=rules,
        as_of=AS_OF,
        coverage=COVERAGE,
    )
    assert repr(list(other.decisions())) == repr(list(one.decisions()))
    assert (other.links, other.alone, other.control()) == (one.links, one.alone, one.control())


@few
@given(worlds())
def test_every_payout_and_line_is_matched_or_explained_once_and_the_sums_tie(world: Any) -> None:
    payouts, lines, rules = world
    found = BankLeg(payouts=payouts, lines=lines, rules=rules, as_of=AS_OF, coverage=COVERAGE)
    placed: list[Any] = [e for link in found.links for e in (*link.payouts, *link.lines)]
    placed += [alone.payout or alone.line for alone in found.alone]
    assert Counter(placed) == Counter([*payouts, *lines])
    control = found.control()
    assert control.holds
    counted: Counter[str] = Counter()
    for row in control.lines:
        counted[row.side] += row.count
    assert counted == Counter(payouts=len(payouts), bank=len(lines))
    reported = breaks(found)
    assert len({each.identity for each in reported}) == len(reported)
    assert sum(each.count for each in control.breaks) == len(reported)
    assert all(FAMILIES[link.bucket] != "waiting" for link in found.links)


@few
@given(worlds(), st.integers(0, 40))
def test_two_periods_that_meet_are_together_the_whole(world: Any, day: int) -> None:
    payouts, lines, rules = world
    found = BankLeg(payouts=payouts, lines=lines, rules=rules, as_of=AS_OF, coverage=COVERAGE)
    border = T + day * DAY
    halves = [Period(until=border), Period(since=border)]
    dated = {e.payout_id for e in payouts if e.paid_at is None}
    assert not dated
    reported = [repr(each) for half in halves for each in found.decisions(half)]
    assert Counter(reported) == Counter(repr(each) for each in found.decisions())
    whole = found.control(halves[0]) + found.control(halves[1])
    assert whole == found.control()


DAILY = tuple(paid(f"D-{day}", 1_000, day) for day in (0, 1, 2, 4, 5, 6, 7))


@for_each(
    ("payouts", "waits", "told"),
    [
        # The longest time between two was 2 days: 2 and one of grace after day 7 it is late.
        (DAILY, [("shop", 3, 700), ("shop", 2, 50), ("other", 9, 90)], 700),
        (DAILY, [("shop", 2, 700)], None),  # it may have come after the expected payout
        (DAILY, [("shop", 7, 700)], None),  # it is a break of its own by now
        (DAILY[:4], [("shop", 6, 700)], None),  # no rhythm yet
        ((*DAILY, paid("D-30", 1_000, 30)), [("shop", 6, 700)], None),  # a pause is usual
        (tuple(replace(each, withdrawn=True) for each in DAILY), [("shop", 6, 700)], None),
    ],
)
def test_a_provider_that_pays_out_later_than_ever_is_reported_with_what_waits(
    payouts: tuple[Payout, ...], waits: list[tuple[str, int, int]], told: int | None
) -> None:
    found = leg(*payouts, edges=False)
    found.expect([Unsettled(name, "KES", days, number=1, minor=of) for name, days, of in waits])
    late = [each for each in breaks(found) if each.cause == "payout_late"]
    assert [each.money.minor for each in late] == ([] if told is None else [told])
    assert [each.since for each in late] == ([] if told is None else [T + 10 * DAY])
    counted = {each.cause: each.count for each in found.control().breaks}
    assert counted.get("payout_late", 0) == len(late)
    unknown = leg(*payouts, edges=False, coverage=replace(COVERAGE, statements=()))
    unknown.expect([Unsettled("shop", "KES", 6, number=1, minor=700)])
    assert unknown.late == ()


def settled(payouts: list[Payout]) -> list[OrderSeen]:
    """Return two statement lines for each of these payouts."""
    found = []
    for each in payouts:
        for part, gross in enumerate((each.minor // 2, each.minor - each.minor // 2)):
            line = StatementLine(
                line_id=f"stm_{each.payout_id}_{part}",
                payment=f"pay_{each.payout_id}_{part}",
                order=None,
                kind="payment" if gross >= 0 else "refund",
                currency=each.currency,
                gross=gross,
                fee=0,
                net=gross,
                settled_at=each.paid_at,
                payout=each.reference,
                source=each.source,
            )
            found.append(OrderSeen(taking=None, lines=(line,)))
    return found


@few
@given(worlds())
def test_what_was_settled_is_in_the_bank_or_it_is_reported_why_not(world: Any) -> None:
    payouts, lines, rules = world
    found = BankLeg(payouts=payouts, lines=lines, rules=rules, as_of=AS_OF, coverage=COVERAGE)
    sums: Counter[tuple[str, str]] = Counter()
    for start, end in ((T, T + 15 * DAY), (T + 15 * DAY, T + 41 * DAY)):
        scope = Scope(start=start, end=end, as_of=AS_OF, basis="settled", environment="sandbox")
        tally = PeriodTally(scope, bank=BankView(found))
        for seen in settled(payouts):
            tally.order(seen)
        report = tally.report()
        assert report.ties_hold
        for row in report.money:
            sums[row.flow, row.currency] += row.sum
    for currency in ("KES", "USD"):
        of = [e for e in found.links if e.expected is None and e.paid.currency == currency]
        assert sums["in_bank", currency] == sum(link.booked.minor for link in of)
        assert sums["bank_differs", currency] == sum(link.missing.minor for link in of)
        paid_out = sum(each.minor for each in payouts if each.currency == currency)
        assert sums["settled", currency] == paid_out


def posted(found: BankLeg, payouts: list[Payout]) -> list[Transaction]:
    """Return the journal's transactions of these payouts after every break was accepted."""
    start, end, view = EARLIEST, AS_OF + DAY, BankView(found)
    some = [
        each
        for seen in settled(payouts)
        for each in transactions(seen, start=start, end=end, bank=view)
    ]
    some += confirmed(view, start=start, end=end)
    for each in breaks(found):
        steps = [
            Step(at=AS_OF, kind=kind, money=each.money, by="ann", left=each.left)
            for kind in ("opened", "accepted")
        ]
        some += written_off(each, steps, start=start, end=end)
    return some


@few
@given(worlds())
def test_once_every_break_is_accepted_what_is_on_its_way_is_what_is_awaited(world: Any) -> None:
    payouts, lines, rules = world
    found = BankLeg(payouts=payouts, lines=lines, rules=rules, as_of=AS_OF, coverage=COVERAGE)
    balance: Counter[str] = Counter()
    for each in posted(found, payouts):
        assert sum(posting.minor for posting in each.postings) == 0
        for posting in each.postings:
            if posting.role == "in_transit":
                balance[each.currency] += posting.minor
    awaited: Counter[str] = Counter()
    for alone in found.alone:
        if alone.bucket == "awaiting_bank" and alone.payout:
            awaited[alone.payout.currency] += alone.payout.minor
        if alone.bucket == "awaiting_statement" and alone.line:
            awaited[alone.line.currency] -= alone.line.minor
    for link in found.links:
        if link.bucket == "by_tolerance":
            awaited[link.missing.currency] += link.missing.minor
    assert {c: m for c, m in balance.items() if m} == {c: m for c, m in awaited.items() if m}


def test_gains_and_losses_of_an_exchange_are_posted() -> None:
    """By the rules' rate 12,950.00 were expected; the bank booked 50.00 more."""
    rules = MatchRules(rates=(replace(USD_TO_KES, tolerance_per_million=10_000),))
    payout = paid("PO-100300", 10_000, 10, "USD")
    found = leg(payout, booked("a", 1_300_000, 11, text="PO-100300"), rules=rules, edges=False)
    sums: Counter[tuple[str, str]] = Counter()
    for each in posted(found, [payout]):
        for posting in each.postings:
            sums[posting.role, each.currency] += posting.minor
    assert {key: minor for key, minor in sums.items() if minor} == {
        ("clearing", "USD"): -10_000,
        ("exchange", "USD"): 10_000,
        ("bank", "KES"): 1_300_000,
        ("exchange", "KES"): -1_295_000,
        ("exchange_gains", "KES"): -5_000,
    }


def test_words_of_a_text_are_looked_at_up_to_a_bound() -> None:
    assert "po1001" in named_in(["a PO-1001 b"])
    assert len(named_in(["x " * 100_000])) < 10


def test_sums_that_do_not_fit_are_refused() -> None:
    huge = 2**62
    both = [paid(f"PO-100{n}", huge, 10) for n in range(3)]
    with pytest.raises(ValueError, match="than can be stored"):
        leg(*both, booked("a", 1, 10, text="PO-1000 PO-1001 PO-1002"))


def test_ages_count_from_the_latest_date_of_what_disagrees() -> None:
    (late,) = breaks(leg(PO))
    assert late.since == PO.paid_at
    (differs,) = breaks(
        leg(PO, booked("a", 1, 12, text="PO-100200"), booked("b", 1, 14, text="PO-100200"))
    )
    assert differs.since == T + 14 * DAY
