"""What a matching says: of each kind of case alone and beside others, of payouts and bank lines,
and of the ledger of every scenario. A break keeps its identity, its age and its words from run to
run: where they change for rows that are as they were, everybody's list of breaks is another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Final

from reconcile.instants import HOUR
from reconcile.ledger.fold import fold
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
from reconcile.matching.rules import ExpectedRate, MatchRules
from tests.reconcile.books_cases import AT, case, decided
from tests.reconcile.books_truth import AS_OF, CALM, FURTHER, RULES, TROUBLES, Case
from tests.reconcile.pinned import check, digest
from tests.reconcile.scenario_table import all_scenarios
from tests.reconcile.test_bank import TABLE, leg
from tests.reconcile.test_match_rest import WINDOW

KINDS: Final[dict[str, Callable[[Case], Case]]] = {**TROUBLES, **FURTHER, **CALM}

BESIDE: Final[dict[str, Case]] = {
    "a book line that nobody paid": case("ORD-2").books(),
    "money that is in no book": case("ORD-2").pays().settles(),
    "a statement line that names nothing": case("ORD-2").settles(order="", payment="pay_ORD-1"),
    "a payment of the same order, written otherwise": case("ord 1").pays().settles(),
    "a book line of one character more": case("ORD-11", at=AT + HOUR).books(),
    "one that is in order": case("ORD-2", minor=1_505).pays().books().settles(),
}
"""What may be taken for part of a case, or takes part of it."""


def words_of(told: Iterable[Decision], control: Control) -> list[str]:
    """All that is told, a line each, and the control totals."""
    found = []
    for each in told:
        if isinstance(each, Break):
            parts = [break_text(each), break_sentence(each), next_step(each), str(at_risk(each))]
            found.append(" ".join([each.identity, *parts, *map(apart_words, each.candidates)]))
        else:
            found.append(f"{each.identity} {json.dumps(asdict(each), default=str)}")
    return [*found, control_text(control)]


def of_kinds() -> Iterator[tuple[str, str, list[str]]]:
    """Each kind alone, early and late, and beside each other thing."""
    for kind, make in KINDS.items():
        yield kind, "alone", words_of(*decided(make(case())))
        yield kind, "early", words_of(*decided(make(case()), as_of=AT + 5 * HOUR))
        for name, other in BESIDE.items():
            yield kind, name, words_of(*decided(make(case()), other, rules=WINDOW))


def of_bank() -> Iterator[tuple[str, str, list[str]]]:
    """Each row of the bank's table, by strict rules and by others."""
    rates = (ExpectedRate(currency="USD", into="KES", micros=129_500_000),)
    wide = MatchRules(tolerances=RULES.tolerances, rates=rates, bank_payers=("payout",))
    for name, both in TABLE.items():
        for called, rules in (("strict", MatchRules()), ("wide", wide)):
            found = leg(*both[0], rules=rules)
            told = words_of(found.decisions(), found.control())
            yield name, called, [*told, str(found.links), str(found.alone)]


def of_scenarios() -> Iterator[tuple[str, str, list[str]]]:
    """The ledger line of each scenario, by itself and beside a book line that says paid."""
    for scenario in all_scenarios():
        last = max(each.as_of for each in scenario.expected)
        line = ledger_line_of(fold(scenario.history(), policy=scenario.policy, as_of=last))
        if line is not None:
            made = case(minor=150_000).books()
            made.takings.append(line)
            called = f"{scenario.file}: {scenario.name}"
            told = words_of(*decided(made, as_of=max(last, AS_OF)))
            yield called, "beside a book line", [ledger_line_text(line), *told]


PINS: Final = {"kinds": of_kinds, "bank": of_bank, "scenarios": of_scenarios}


def test_what_is_said_of_each_kind_is_what_was_said() -> None:
    """Of all troubles, of what is no trouble, and of both beside others."""
    check("matched_kinds", lines_of(of_kinds()))


def test_what_is_said_of_payouts_is_what_was_said() -> None:
    """Of the whole table of the bank."""
    check("matched_bank", lines_of(of_bank()))


def test_what_is_said_of_each_scenario_is_what_was_said() -> None:
    """What a ledger gives to a matching, and what comes of it."""
    check("matched_scenarios", lines_of(of_scenarios()))


def lines_of(told: Iterable[tuple[str, str, list[str]]]) -> list[str]:
    """A line each."""
    return [f"{kind} | {way} | {digest(repr(words))}" for kind, way, words in told]


def main(words: str) -> None:
    """Print what is told of the cases of this name."""
    for made in PINS.values():
        for kind, way, told in made():
            if kind.startswith(words):
                print(f"== {kind} | {way}", *told, sep="\n")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
