"""Pinned words of a matching: each kind of case alone and beside others, payouts, bank lines, and
the ledger of every scenario.

A break keeps its identity, its age and its words from run to run. New words for unchanged rows
would change everybody's list of breaks.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import product
from typing import Final
from unittest.mock import patch

import pytest

from reconcile.instants import DAY, HOUR, TICK, Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind
from reconcile.matching.breaks import (
    Break,
    apart_words,
    at_risk,
    break_sentence,
    break_text,
    next_step,
)
from reconcile.matching.control import Control, control_text
from reconcile.matching.decide import Decision
from reconcile.matching.ledger_lines import ledger_line_of, ledger_line_text
from reconcile.matching.match import Matching, OtherPeriods
from reconcile.matching.period import Period, joined_dates, within
from reconcile.matching.rules import ExpectedRate, HandMatch, MatchRules, Terms
from tests.reconcile.books_cases import AT, case, decided
from tests.reconcile.books_truth import (
    AS_OF,
    CALM,
    COVERAGE,
    FURTHER,
    RULES,
    TROUBLES,
    Case,
    streams,
)
from tests.reconcile.pinned import check, digest
from tests.reconcile.scenario_table import all_scenarios
from tests.reconcile.test_bank import TABLE, booked, leg, paid
from tests.reconcile.test_bank import T as BANK_START
from tests.reconcile.test_match_rest import WINDOW
from tests.rows import for_each

KINDS: Final[dict[str, Callable[[Case], Case]]] = {**TROUBLES, **FURTHER, **CALM}

BESIDE: Final[dict[str, Case]] = {
    "a book line that nobody paid": case("ORD-2").books(),
    "money that is in no book": case("ORD-2").pays().settles(),
    "a statement line that names nothing": case("ORD-2").settles(order="", payment="pay_ORD-1"),
    "a payment of the same order, written otherwise": case("ord 1").pays().settles(),
    "a book line of one character more": case("ORD-11", at=AT + HOUR).books(),
    "one that is in order": case("ORD-2", minor=1_505).pays().books().settles(),
}
"""Neighbours that take part in a case, or may be taken for part of it."""


HALVES: Final = (Period(until=BANK_START + 11 * DAY), Period(since=BANK_START + 11 * DAY))
"""Two periods that meet where what is looked at lies."""


PERIODS: Final = {
    "of the first": Period(since=AT, until=AT + DAY),
    "of the second": Period(since=AT + DAY),
    "of the first's money": Period(since=AT + HOUR, until=AT + DAY),
    "of the first's payout": Period(since=AT + 2 * DAY, until=AT + 2 * DAY + TICK),
    "before both": Period(until=AT),
}


TAKEN: Final[tuple[tuple[int, ...], ...]] = (
    (), (-300,), (-500,), (-300, -500), (-800,), (-400,), (-900,),
)  # fmt: skip
LINE_KINDS: Final[tuple[StatementKind, ...]] = ("refund", "dispute")


def words_of(decisions: Iterable[Decision], control: Control) -> list[str]:
    """Return all reports, a line each, the control totals, and their ties."""
    found = []
    for each in decisions:
        if isinstance(each, Break):
            parts = [break_text(each), break_sentence(each), next_step(each), str(at_risk(each))]
            found.append(" ".join([each.identity, *parts, *map(apart_words, each.candidates)]))
        else:
            found.append(f"{each.identity} {json.dumps(asdict(each), default=str)}")
    ties = [f"{each.side} {each.currency} {each.left} {each.right} {each.name}"
            for each in control.ties()]  # fmt: skip
    return [*found, control_text(control), *ties]


def of_kinds() -> Iterator[tuple[str, str, list[str]]]:
    for kind, make in KINDS.items():
        yield kind, "alone", words_of(*decided(make(case())))
        yield kind, "early", words_of(*decided(make(case()), as_of=AT + 5 * HOUR))
        for name, other in BESIDE.items():
            yield kind, name, words_of(*decided(make(case()), other, rules=WINDOW))


def of_bank() -> Iterator[tuple[str, str, list[str]]]:
    rates = (ExpectedRate(currency="USD", into="KES", micros=129_500_000),)
    wide = MatchRules(tolerances=RULES.tolerances, rates=rates, bank_payers=("payout",))
    for name, both in TABLE.items():
        for called, rules in (("strict", MatchRules()), ("wide", wide)):
            found = leg(*both[0], rules=rules)
            for when, period in (("ever", None), ("before", HALVES[0]), ("after", HALVES[1])):
                texts = words_of(found.decisions(period), found.control(period))
                yield name, f"{called}, {when}", texts
            yield name, f"{called}, links", [str(found.links), str(found.alone)]


def of_moments() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each kind at the end of each margin, from each of its dates, and a tick before."""
    margins = (RULES.book_margin, RULES.settle_margin, RULES.refund_margin)
    ends = sorted({AT + hours * HOUR + each for hours in (0, 1, 2) for each in margins})
    for kind, make in KINDS.items():
        for end in ends:
            lists = [words_of(*decided(make(case()), as_of=at)) for at in (end - TICK, end)]
            yield kind, f"{(end - AT) // HOUR} h later", [word for words in lists for word in words]


def of_amounts() -> Iterator[tuple[str, str, list[str]]]:
    """Yield book and statement lines that differ within the tolerance, at it, and beyond."""
    for apart in range(-7, 8):
        book = case().pays().books(minor=1_500 + apart).settles()
        yield "book", f"{apart} apart", words_of(*decided(book))
        line = case().pays().books().settles(gross=1_500 + apart)
        yield "statement", f"{apart} apart", words_of(*decided(line))
        fee = case().pays().books().settles(fee=22 + apart)
        yield "fee", f"{apart} apart", words_of(*decided(fee))


def of_dates() -> Iterator[tuple[str, str, list[str]]]:
    """Yield lines that only amount and date join, from before the window to after it."""
    window = WINDOW.date_window or 0
    steps = [start + step for start in (-window, 0, window) for step in (-TICK, 0, TICK)]
    for base in (0, HOUR, 2 * DAY):
        for step in steps:
            order = case().pays().settles()
            book = case("XYZ", at=Instant(AT + base + step)).books()
            name = f"{step} µs beyond {base // HOUR} h"
            yield "book", name, words_of(*decided(order, book, rules=WINDOW))
            order = case().pays().books()
            line = case("XYZ", at=Instant(AT + base + step - 2 * DAY)).settles()
            yield "statement", name, words_of(*decided(order, line, rules=WINDOW))


def of_bank_days() -> Iterator[tuple[str, str, list[str]]]:
    """Yield a payout, a bank line, and both, on each day on which something begins or ends."""
    days = (*range(-2, 7), *range(9, 17), *range(43, 62))
    for day in days:
        for called, both in (
            ("payout", (paid("PO-1", 500, day),)),
            ("line", (booked("a", 500, day),)),
            ("both", (paid("PO-1", 500, 10), booked("a", 500, day))),
            ("named", (paid("PO-100200", 500, 10), booked("a", 495, day, text="PO-100200"))),
        ):
            found = leg(*both, rules=RULES)
            texts = words_of(found.decisions(), found.control())
            yield called, f"day {day}", [*texts, str(found.links), str(found.alone)]


def of_periods() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each kind and a copy of the next day, in periods that hold one of them or none."""
    terms = Terms(rules=WINDOW, as_of=AS_OF, coverage=COVERAGE)
    for kind, make in KINDS.items():
        cases = [make(case()), make(case("ORD-2", at=AT + DAY)), case("ORD-3").settles(order="")]
        joined = joined_dates(
            **streams(*cases),
            hands=[HandMatch(one="ORD-2", other="stm_ORD-3_0")],
            settles=terms.settles,
        )
        yield kind, "joined", [str(sorted(joined.items()))]
        for name, period in PERIODS.items():
            elsewhere, others = set[str](), OtherPeriods(terms)
            matching = Matching(rules=WINDOW, as_of=AS_OF, coverage=COVERAGE)
            takings, book, statements = within(
                period,
                **streams(*cases),
                joined=joined if name.endswith("payout") else {},
                elsewhere=elsewhere,
                outside=others.order,
            )
            decisions = matching.decide(takings=takings, book=book, statements=statements)
            words = words_of(list(decisions), matching.control())
            yield kind, name, [*words, *sorted(elsewhere), *sorted(others.never_notified())]


def of_hands() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each kind beside unrelated rows that a person pairs with it."""
    for kind, make in KINDS.items():
        for name, other in list(BESIDE.items())[:3]:
            texts = []
            for hand in (
                ("ORD-1", f"bok_{other.reference}_0"),
                ("ORD-1", f"stm_{other.reference}_0"),
                ("bok_ORD-1_0", f"stm_{other.reference}_0"),
                (other.reference, "bok_ORD-1_0"),
                (other.reference, "stm_ORD-1_0"),
            ):
                texts += words_of(*decided(make(case()), other, hands=(hand,)))
            yield kind, name, texts


def of_alike() -> Iterator[tuple[str, str, list[str]]]:
    """Yield up to three payments and orders that several lines fit equally."""
    for many, several in product((1, 2, 3), (0, 1, 2, 3)):
        paid_more = tuple(case().taken(payment=f"pay_{n}") for n in range(2, many + 1))
        made = case().pays(more=paid_more).books(minor=1_500 * many)
        for number in range(several):
            made.settles(gross=1_500 + 3 * number)
        made.lines = [replace(line, payment=None) for line in made.lines]
        yield f"{many} payments", f"{several} lines", words_of(*decided(made))
        orders = [case(f"ORD-{n}").pays().settles() for n in range(many)]
        books = [case(f"XYZ-{n}", minor=1_500 + 3 * n).books() for n in range(several)]
        texts = words_of(*decided(*orders, *books, rules=WINDOW))
        yield f"{many} orders", f"{several} book lines", texts


def of_returns() -> Iterator[tuple[str, str, list[str]]]:
    """Yield two returns of a payment, of each kind, with lines that take less, as much, or more."""
    kinds: tuple[EntryKind, ...] = ("refunded", "reversed", "dispute_lost")
    for one, other, line, came in product(kinds, kinds, LINE_KINDS, (1_500, 600)):
        texts = []
        for gross, taken in product((None, came, came - 300), TAKEN):
            back = case().taken(minor=-300, kind=one), case().taken(minor=-500, kind=other)
            made = case().pays(minor=came, more=back, outcome="partially_refunded").books(minor=700)
            if gross is not None:
                made.settles(gross=gross)
            for minor in taken:
                made.settles(kind=line, gross=minor, fee=0)
            texts += words_of(*decided(made))
        yield f"{one}, {other} of {came}", f"taken as {line}", texts


def of_crowds() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each kind twice, with no room for a second look, or room for one row of each kind."""
    for kind, make in KINDS.items():
        for room in (0, 1):
            with patch("reconcile.matching.funds.MOST_LEFT", room):
                texts = words_of(*decided(make(case()), make(case("ORD-2")), rules=WINDOW))
            yield kind, f"room for {room}", texts


def of_scenarios() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the ledger line of each scenario, alone and beside a book line that says paid."""
    for scenario in all_scenarios():
        last = max(each.as_of for each in scenario.expected)
        line = ledger_line_of(fold(scenario.history(), policy=scenario.policy, as_of=last))
        if line is not None:
            made = case(minor=150_000).books()
            made.takings.append(line)
            called = f"{scenario.file}: {scenario.name}"
            texts = words_of(*decided(made, as_of=max(last, AS_OF)))
            yield called, "beside a book line", [ledger_line_text(line), *texts]


PINS: Final = {
    "kinds": of_kinds,
    "moments": of_moments,
    "amounts": of_amounts,
    "dates": of_dates,
    "periods": of_periods,
    "hands": of_hands,
    "alike": of_alike,
    "returns": of_returns,
    "crowds": of_crowds,
    "bank": of_bank,
    "bank_days": of_bank_days,
    "scenarios": of_scenarios,
}


@pytest.mark.slow
@for_each("name", PINS)
def test_what_is_said_is_what_was_said(name: str) -> None:
    check(f"matched_{name}", lines_of(PINS[name]()))


def lines_of(cases: Iterable[tuple[str, str, list[str]]]) -> list[str]:
    return [f"{kind} | {way} | {digest(repr(words))}" for kind, way, words in cases]


def main(words: str) -> None:
    """Print the reports of the cases with this name."""
    for made in PINS.values():
        for kind, way, texts in made():
            if kind.startswith(words):
                print(f"== {kind} | {way}", *texts, sep="\n")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
