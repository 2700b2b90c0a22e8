"""What a rehearsal expects, and which numbers it may use."""

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

LEDGER: dict[str, Any] = {
    "outcome": "succeeded",
    "fulfillable": True,
    "timeline": [{"claim": "pending"}, {"claim": "succeeded"}],
    "findings": [{"code": "redelivered"}],
}


def test_every_scenario_has_an_end() -> None:
    """The table and the simulated provider's scenarios are the same."""
    assert list(EXPECTED) == [row.name for row in SCENARIOS.values()]


@pytest.mark.parametrize(
    "change",
    [{"outcome": "pending"}, {"fulfillable": False}, {"timeline": []}, {"findings": []}],
)
def test_an_end_is_met_by_all_of_it(change: dict[str, Any]) -> None:
    """Another outcome, another word on shipping, a claim or a finding too few: not the end."""
    expected = EXPECTED["duplicate webhook"]
    assert expected.met_by(LEDGER)
    assert not expected.met_by({**LEDGER, **change})


def test_an_early_success_is_not_the_end_of_a_dispute() -> None:
    """A scenario that passes through its outcome is over only when the last event has come."""
    assert not EXPECTED["dispute"].met_by(LEDGER)
    assert EXPECTED["dispute"].met_by(
        {**LEDGER, "timeline": [*LEDGER["timeline"], {"claim": "dispute_won"}]}
    )


def test_numbers() -> None:
    """The simulated provider's in the sandbox; in live only those that are configured."""
    assert numbers_for({}, environment="sandbox")["refund"] == SIMULATED + "12"
    own = {"success": "254799000001"}
    for environment in ("sandbox", "live"):
        assert numbers_for(own, environment=environment) == own
    with pytest.raises(ConfigurationError, match="in live"):
        numbers_for({}, environment="live")
    with pytest.raises(ConfigurationError, match="none of: success"):
        numbers_for({"sucess": "254799000001"}, environment="sandbox")


def played(*names: str, wrong: str = "") -> list[RehearsedScenario]:
    """Scenarios that ended as they must, but for the wrong one."""
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
    """The same start once more is no scenario; what was not rehearsed is named."""
    whole, said = judged(played("success", SAME_START))
    assert not whole
    assert said.startswith("1 of 1 scenario ended as they must; not rehearsed: decline, timeout")
    assert NUMBERS in said
    whole, said = judged(played("success", SAME_START, "decline"))
    assert whole
    assert said.startswith("2 of 2 scenarios ended as they must; not rehearsed: timeout, ")


def test_a_rehearsal_of_everything() -> None:
    """It passes where all ended as they must, and the same start gave one session."""
    everything = (*EXPECTED, SAME_START)
    count = len(EXPECTED)
    assert judged(played(*everything)) == (
        True,
        f"{count} of {count} scenarios ended as they must",
    )
    assert judged(played(*everything, wrong="refund"))[0] is False
    assert judged(played(*everything, wrong=SAME_START))[0] is False
