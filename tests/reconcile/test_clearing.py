"""Clearing accounts after every break was accepted: what was left is written off."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reconcile.instants import DAY, EARLIEST, HOUR
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind
from reconcile.matching.breaks import Break, Step
from reconcile.matching.ledger_lines import Doubted
from reconcile.matching.rules import ExpectedRate, MatchRules
from reconcile.reporting.inputs import merged
from reconcile.reporting.journal import transactions, written_off
from tests.reconcile.books_cases import AT, case, causes, decided
from tests.reconcile.books_truth import (
    AS_OF,
    CALM,
    FURTHER,
    SOURCE,
    TROUBLES,
    Case,
    in_key_order,
    statement_row,
)

WINDOW = MatchRules(date_window=DAY)
AMOUNTS = st.sampled_from([100, 300, 400, 500, 1_500, 150_000])
CURRENCIES = st.sampled_from(["KES", "KES", "UGX"])
LINES: tuple[StatementKind, ...] = ("payment", "payment", "refund", "dispute", "returned")
BACK: tuple[EntryKind, ...] = ("refunded", "reversed", "dispute_lost")

Clearing = Counter[str]


def cleared(cases: list[Case], rules: MatchRules = WINDOW) -> Clearing:
    """Return the balances of clearing after every break was accepted, without zeros."""
    found: Clearing = Counter()
    end = AS_OF + DAY
    takings = sorted([each for one in cases for each in one.takings], key=lambda each: each.key)
    rows = in_key_order([statement_row(each) for one in cases for each in one.lines])
    posted = [
        t
        for seen in merged(takings, rows)
        for t in transactions(seen, start=EARLIEST, end=end, rates=rules.rates)
    ]
    for each in decided(*cases, rules=rules)[0]:
        if isinstance(each, Break):
            steps = [
                Step(at=AS_OF, kind=kind, money=each.money, by="ann", left=each.left)
                for kind in ("opened", "accepted")
            ]
            posted += written_off(each, steps, start=EARLIEST, end=end)
    for transaction in posted:
        for posting in transaction.postings:
            if posting.role == "clearing":
                found[transaction.currency] += posting.minor
    return Counter({currency: minor for currency, minor in found.items() if minor})


@st.composite
def troubled(draw: st.DrawFn, reference: str) -> Case:
    """Draw an order on which nearly anything can be wrong."""
    made = case(reference, draw(AMOUNTS))
    payments = [made.payment, made.payment + "_2"]
    if draw(st.booleans()):
        more = [
            made.taken(minor=draw(AMOUNTS), payment=payments[1], currency=draw(CURRENCIES))
        ] * draw(st.integers(0, 1))
        for number in range(draw(st.sampled_from([0, 0, 1, 2]))):  # parts of one payment
            part = made.taken(minor=draw(AMOUNTS), payment=draw(st.sampled_from(payments)))
            more.append(replace(part, cites=(f"evt_{reference}_part_{number}",)))
        for number in range(draw(st.integers(0, 3))):
            back = made.taken(
                minor=-draw(AMOUNTS),
                payment=draw(st.sampled_from(payments)),
                kind=draw(st.sampled_from(BACK)),
                currency=draw(CURRENCIES),
            )
            more.append(replace(back, cites=(f"evt_{reference}_{number}",)))
        unsure = Doubted(
            source=SOURCE,
            payment=payments[1],
            unsure=draw(st.sampled_from([(), ("captured",), ("refunded",), ("dispute_lost",)])),
            cites=("evt_unsure",),
        )
        made.pays(
            outcome=draw(st.sampled_from(["succeeded", "succeeded", "unresolved"])),
            findings=draw(st.sampled_from([(), ("dispute_won",), ("conflicting_amounts",)])),
            more=tuple(more),
            doubted=(unsure,) * draw(st.integers(0, 1)),
        )
        if draw(st.integers(0, 5)) == 0:  # nothing that came is sure
            whole = made.takings[0]
            none = [each for each in whole.taken if each.kind != "captured"]
            made.takings[0] = replace(whole, taken=tuple(none), outcome="unresolved")
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(LINES))
        made.settles(
            kind=kind,
            gross=draw(AMOUNTS)
            * (draw(st.sampled_from([-1, 1])) if kind in ("refund", "dispute") else 1),
            payment=draw(st.sampled_from([*payments, "pay_else"])),
            currency=draw(CURRENCIES),
            fee=3,
        )
        if draw(st.booleans()):
            made.lines[-1] = replace(made.lines[-1], payment=None)
    if draw(st.booleans()):
        made.books(draw(st.sampled_from(["paid", "refunded", "unpaid"])), minor=draw(AMOUNTS))
    return made


RATES = st.sampled_from(
    [
        (),
        (ExpectedRate(currency="KES", into="UGX", micros=1_300_000, tolerance_per_million=50_000),),
    ]
)


@given(
    one=troubled("ORD-1"),
    other=troubled("ORD-2"),
    late=st.lists(AMOUNTS, max_size=2),
    rates=RATES,
)
def test_once_every_break_is_accepted_clearing_holds_what_is_not_yet_settled(
    one: Case, other: Case, late: list[int], rates: tuple[ExpectedRate, ...]
) -> None:
    waiting = [
        recent.pays(more=(recent.taken(minor=-60),))
        for place, minor in enumerate(late)
        for recent in [case(f"NEW-{place}", minor, AS_OF - 3 * HOUR)]
    ]
    unsettled = {"KES": sum(late) - 60 * len(late)}
    rules = replace(WINDOW, rates=rates)
    assert cleared([one, other, *waiting], rules) == {
        c: minor for c, minor in unsettled.items() if minor
    }


def test_refunds_written_with_both_signs_take_both() -> None:
    """400 and 300 were taken for one refund of 100, not the difference of 100."""
    made = case("ORD-1", 1_000)
    made.pays(outcome="partially_refunded", more=(made.taken(minor=-100),)).settles()
    for gross in (-400, 300):
        made.settles(kind="refund", gross=gross, fee=0)
    assert cleared([made]) == {}
    assert "by_group" not in causes(decided(made)[0])


def test_so_it_is_of_every_known_case() -> None:
    for name, made in {**TROUBLES, **FURTHER, **CALM}.items():
        if "disputed" not in name:  # money held in an open dispute is not yet settled
            assert cleared([made(case(at=AT))], MatchRules()) == {}, name


def test_money_held_in_an_open_dispute_is_not_yet_settled() -> None:
    assert cleared([CALM["a surplus that is disputed"](case())], MatchRules()) == {"KES": 100}
