"""Plan of a rehearsal: expected ends, and numbers that it may use."""

from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.golive.rehearse import (
    EXPECTED,
    NUMBERS,
    SAME_START,
    SIMULATED,
    RehearsedScenario,
    judged,
    numbers_for,
)
from app.sandbox.scenarios import SCENARIOS
from tests.rows import for_each

LEDGER: dict[str, Any] = {
    "outcome": "succeeded",
    "fulfillable": True,
    "timeline": [{"claim": "pending"}, {"claim": "succeeded"}],
    "findings": [{"code": "redelivered"}],
}


def test_every_scenario_has_an_end() -> None:
    assert list(EXPECTED) == [row.name for row in SCENARIOS.values()]


@for_each(
    "change",
    [{"outcome": "pending"}, {"fulfillable": False}, {"timeline": []}, {"findings": []}],
)
def test_an_end_is_met_by_all_of_it(change: dict[str, Any]) -> None:
    expected = EXPECTED["duplicate webhook"]
    assert expected.met_by(LEDGER)
    assert not expected.met_by({**LEDGER, **change})


def test_an_early_success_is_not_the_end_of_a_dispute() -> None:
    """A scenario that passes through its outcome ends with its last event."""
    assert not EXPECTED["dispute"].met_by(LEDGER)
    assert EXPECTED["dispute"].met_by(
        {**LEDGER, "timeline": [*LEDGER["timeline"], {"claim": "dispute_won"}]}
    )


def test_numbers() -> None:
    """The simulated provider's in the sandbox; in live only configured ones."""
    assert numbers_for({}, environment="sandbox")["refund"] == SIMULATED + "12"
    own = {"success": "254799000001"}
    for environment in ("sandbox", "live"):
        assert numbers_for(own, environment=environment) == own
    with pytest.raises(ConfigurationError, match="in live"):
        numbers_for({}, environment="live")
    with pytest.raises(ConfigurationError, match="known are: success"):
        numbers_for({"sucess": "254799000001"}, environment="sandbox")


def played(*names: str, wrong: str = "") -> list[RehearsedScenario]:
    """Build results that passed, except the wrong one."""
    return [
        RehearsedScenario(
            scenario=name,
            expected="",
            seen="",
            passed=name != wrong,
            seconds=1.0,
            explanation="",
        )
        for name in names
    ]


def test_one_scenario_alone_is_no_rehearsal() -> None:
    whole, said = judged(played("success", SAME_START))
    assert not whole
    assert said.startswith("1 of 1 scenario ended as expected; not rehearsed: decline, timeout")
    assert NUMBERS in said
    whole, said = judged(played("success", SAME_START, "decline"))
    assert whole
    assert said.startswith("2 of 2 scenarios ended as expected; not rehearsed: timeout, ")


def test_a_rehearsal_of_everything() -> None:
    everything = (*EXPECTED, SAME_START)
    count = len(EXPECTED)
    assert judged(played(*everything)) == (
        True,
        f"{count} of {count} scenarios ended as expected",
    )
    assert judged(played(*everything, wrong="refund"))[0] is False
    assert judged(played(*everything, wrong=SAME_START))[0] is False
