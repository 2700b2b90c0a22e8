"""Payments that a statement settles in another currency: matched, told, reported and posted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from reconcile.instants import DAY, EARLIEST
from reconcile.matching.breaks import Break, break_sentence, next_step
from reconcile.matching.match import Match
from reconcile.matching.rows import statement_row
from reconcile.matching.rules import ExpectedRate
from reconcile.reporting.input import merged, settled
from reconcile.reporting.journal import transactions
from reconcile.reporting.report import Scope
from reconcile.reporting.tally import PeriodTally
from tests.reconcile.books_cases import AT, case, decided
from tests.reconcile.books_strategies import in_key_order
from tests.reconcile.books_truth import AS_OF, RULES, Case

AT_28 = replace(
    RULES,
    rates=(
        ExpectedRate(currency="KES", into="UGX", micros=28_000_000, tolerance_per_million=10_000),
    ),
)
"""28 Ugandan shillings for a Kenyan one, of which one per cent may be missing."""


def abroad(gross: int = 41_900, fee: int = 0) -> Case:
    """1,500.00 in Kenya, for which the statement has so many Ugandan shillings."""
    return case(minor=150_000, at=AT).pays().books().settles(gross=gross, currency="UGX", fee=fee)


def test_the_rate_is_what_the_statement_implies() -> None:
    """No break, whatever it is, as long as no rule says otherwise."""
    (found,) = decided(abroad())[0]
    assert isinstance(found, Match)
    assert (found.kind, dict(found.facts)["rate"]) == ("by_exchange", "27.933333")
    assert decided(abroad())[1].holds


@pytest.mark.parametrize(("gross", "within"), [(42_000, True), (41_580, True), (41_579, False)])
def test_a_rule_says_how_far_from_its_rate_is_tolerated(gross: int, within: bool) -> None:
    (found,) = decided(abroad(gross), rules=AT_28)[0]
    assert isinstance(found, Match) == within


def test_what_is_beyond_it_is_told_with_rate_and_difference() -> None:
    (found,) = decided(abroad(40_000), rules=AT_28)[0]
    assert isinstance(found, Break)
    assert (found.cause, str(found.money)) == ("amount_differs", "UGX 2,000")
    assert [str(each) for each in found.left or ()] == ["UGX 2,000"]
    assert break_sentence(found) == (
        "KES 1,500.00 was captured, and the statement settles UGX 40,000 for it, a rate of "
        "26.666667: by the rate of the rules it would be UGX 42,000, UGX 2,000 apart."
    )
    assert next_step(found) == (
        "Ask the provider at which rate it exchanged and what it charged, or correct the rate in "
        "the rules; then accept the difference."
    )


@pytest.mark.parametrize(
    "made",
    [
        abroad(1_500),  # the same number: somebody wrote the wrong currency
        abroad().settles(gross=5, currency="TZS", fee=0),
        abroad().settles(gross=5),
    ],
)
def test_what_is_not_clear_is_still_another_currency(made: Case) -> None:
    causes = [each.cause for each in decided(made)[0] if isinstance(each, Break)]
    assert causes == ["currency_differs"]


def seen(made: Case) -> list:  # type: ignore[type-arg]
    """The order with its lines, as report and journal have it."""
    rows = in_key_order([statement_row(each) for each in made.lines])
    return list(merged(made.takings, rows))


def test_the_report_shows_both_sides_of_it_and_ties() -> None:
    scope = Scope(
        start=AT - DAY, end=AT + 10 * DAY, as_of=AS_OF, basis="captured", environment="sandbox"
    )
    tally = PeriodTally(scope)
    for each in seen(abroad(41_900, fee=900)):
        assert [one.exchanged for one in settled(each)] == [True]
        tally.order(each)
    report = tally.report()
    assert report.ties_hold
    told = {(row.flow, row.currency): row.sum for row in report.money if row.sum}
    assert told == {
        ("captured", "KES"): 150_000,
        ("net", "KES"): 150_000,
        ("other_currency", "KES"): 150_000,
        ("fees", "UGX"): 900,
        ("net", "UGX"): -900,
        ("settled", "UGX"): 41_000,
        ("other_currency", "UGX"): -41_900,
    }


def test_the_journal_names_the_lines_as_the_break_does() -> None:
    """Whatever order they came in."""
    made = abroad(20_000).settles(gross=19_000, currency="UGX", fee=0)
    (found,) = decided(made, rules=AT_28)[0]
    assert isinstance(found, Break)
    (each,) = seen(made)
    for lines in (each.lines, each.lines[::-1]):
        posted = transactions(
            replace(each, lines=lines), start=EARLIEST, end=AS_OF + DAY, rates=AT_28.rates
        )
        cited = {one.cites[:2] for one in posted if one.what == "exchanged"}
        assert cited == {found.cites[-2:]}


def test_a_line_that_the_matching_found_to_be_of_no_movement_is_no_exchange() -> None:
    """What is told of as never notified stands with its break alone."""
    (each,) = seen(abroad())
    (line,) = each.lines
    (found,) = settled(each, strange={line.line_id})
    assert (found.taken, found.exchanged) == ((), False)


def test_the_journal_posts_the_exchange_and_its_loss() -> None:
    """Clearing is empty in both currencies; 100 less came than by the rate of the rules."""
    sums: Counter[tuple[str, str]] = Counter()
    for each in seen(abroad(41_900)):
        found = transactions(each, start=EARLIEST, end=AS_OF + DAY, rates=AT_28.rates)
        for transaction in found:
            assert sum(posting.minor for posting in transaction.postings) == 0
            for posting in transaction.postings:
                sums[posting.role, transaction.currency] += posting.minor
    assert {key: minor for key, minor in sums.items() if minor} == {
        ("sales", "KES"): -150_000,
        ("exchange", "KES"): 150_000,
        ("exchange", "UGX"): -42_000,
        ("exchange_gains", "UGX"): 100,
        ("bank", "UGX"): 41_900,
    }
