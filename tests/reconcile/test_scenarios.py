"""The scenario tables: every row is as it says, and no outcome, finding or reason is left out."""

from functools import cache, partial

import pytest

from reconcile.instants import Instant, format_instant
from reconcile.ledger.explain import UNFILLED, explain, ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import OUTCOMES, Ledger
from reconcile.ledger.policy import Policy
from reconcile.ledger.vocabulary import ATTEMPT_REASONS, FINDING_CODES, REASONS
from tests.reconcile import laws
from tests.reconcile.scenario_table import Expectation, Scenario, all_scenarios, read
from tests.rows import for_each, row
from tests.searching import every

SCENARIOS = all_scenarios()
FILES = {one.file: [each for each in SCENARIOS if each.file == one.file] for one in SCENARIOS}

each_file = pytest.mark.parametrize("scenarios", FILES.values(), ids=FILES)


def _folded(scenario: Scenario, expected: Expectation) -> Ledger:
    return fold(scenario.history(), policy=scenario.policy, as_of=expected.as_of)


def _under(own: Policy, history: History, *, policy: Policy, as_of: Instant) -> Ledger:
    """Fold under the scenario's own policy, for laws that use the usual one."""
    return fold(history, policy=own, as_of=as_of)


def reason_codes(ledger: Ledger) -> list[str]:
    """Return the deciding reasons, then what withholds a paid order, as the tables write them."""
    return [r.code for r in ledger.reasons] + [f"!{r.code}" for r in ledger.withheld]


@cache
def _every_ledger() -> list[Ledger]:
    return [_folded(s, e) for s in SCENARIOS for e in s.expected]


@each_file
def test_every_row_is_as_the_table_says(scenarios: list[Scenario]) -> None:
    for scenario in scenarios:
        with row(scenario.name):
            _is_as_the_table_says(scenario)


def _is_as_the_table_says(scenario: Scenario) -> None:
    assert scenario.expected, "a scenario without an expectation proves nothing"
    for expected in scenario.expected:
        ledger = _folded(scenario, expected)
        seen = (ledger.outcome, ledger.fulfillable)
        assert seen == (expected.outcome, expected.ship), expected.where
        for column, codes in (
            (expected.reasons, reason_codes(ledger)),
            (expected.findings, sorted(f.code for f in ledger.findings)),
            (expected.attempts, [f"{a.reference}={a.outcome}" for a in ledger.attempts]),
        ):
            if column is not None:
                assert codes == (sorted(column) if column is expected.findings else column), (
                    expected.where
                )


@each_file
def test_every_row_obeys_the_laws_of_one_instant(scenarios: list[Scenario]) -> None:
    """The gate plays every third scenario."""
    obeyed = (laws.time_travel_law, laws.honest_law, laws.quiet_law, laws.conservation_law)
    for scenario in scenarios[:: every(3)]:
        with row(scenario.name):
            for expected in scenario.expected:
                for law in obeyed:
                    law(partial(_under, scenario.policy), scenario.history(), expected.as_of)


@each_file
def test_every_explanation_is_whole(scenarios: list[Scenario]) -> None:
    for scenario in scenarios:
        with row(scenario.name):
            _is_explained(scenario)


def _is_explained(scenario: Scenario) -> None:
    history = scenario.history()
    ids = {d.event.event_id for d in history.deliveries} | {r.record_id for r in history.records}
    for expected in scenario.expected:
        ledger = _folded(scenario, expected)
        for sentence in explain(ledger):
            assert sentence.endswith("."), sentence
            assert "{" not in sentence, sentence
            assert UNFILLED not in sentence, (expected.where, sentence)
        cites = [c for reason in ledger.reasons for c in reason.cites]
        cites += [c for finding in ledger.findings for c in finding.cites]
        assert set(cites) <= ids
        assert all(r.cites for r in ledger.reasons if r.code != "nothing_known")


def test_every_outcome_is_in_the_tables() -> None:
    assert len(OUTCOMES) == 13
    assert {e.outcome for s in SCENARIOS for e in s.expected} == set(OUTCOMES)


def test_every_finding_is_in_the_tables() -> None:
    """By name, in a column that must match."""
    named = {code for s in SCENARIOS for e in s.expected for code in e.findings or ()}
    assert named == set(FINDING_CODES)


def test_every_reason_with_a_sentence_is_in_the_tables() -> None:
    named = {code.lstrip("!") for s in SCENARIOS for e in s.expected for code in e.reasons or ()}
    named |= {a.reason.code for ledger in _every_ledger() for a in ledger.attempts}
    assert named == REASONS.keys() | ATTEMPT_REASONS.keys()


def test_only_what_is_succeeded_in_full_may_be_shipped() -> None:
    for ledger in _every_ledger():
        if ledger.fulfillable:
            assert ledger.expected is not None
            assert ledger.outcome == "succeeded"
            assert ledger.held is not None
            assert ledger.held.currency == ledger.expected.currency
            # What is held of a payment in doubt, or lacks on it, is no part of what pays.
            certain = all(finding.severity != "error" for finding in ledger.findings)
            assert ledger.held.minor >= ledger.expected.minor or not certain


def test_documents_have_the_promised_form() -> None:
    names = "order as_of outcome fulfillable totals explanation attempts entries timeline findings"
    for ledger in _every_ledger():
        document = ledger_document(ledger)
        assert list(document) == [*names.split(), "next_decision_at", "fingerprint"]
        assert document["as_of"] == format_instant(ledger.as_of)


@for_each(
    "line",
    ["soon tick", "0s succeded e1", "0s tick | succeeded", "0s again e1", "0s record nothing"],
)
def test_a_table_with_a_mistake_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ValueError, match=r"table\.txt:2"):
        read("table.txt", f"== one\n{line}\n")
