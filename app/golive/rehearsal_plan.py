"""What a rehearsal plays: the scenarios, their test numbers, and how each must end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from app.core.errors import ConfigurationError
from app.sandbox.scenarios import SCENARIOS
from reconcile.ledger.ledger import FindingCode, Outcome

SIMULATED: Final = "2547000000"
"""Before the two digits that choose a scenario of the simulated provider."""

NUMBERS: Final = "TALLYHOOK_REHEARSAL__NUMBERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The end of a scenario, which also shows that all of it has been seen.

    ships     whether the order may be fulfilled
    claims    what events must have claimed by then
    findings  what the ledger must point out by then
    """

    outcome: Outcome
    ships: bool = False
    claims: frozenset[str] = frozenset()
    findings: frozenset[FindingCode] = frozenset()

    def met_by(self, ledger: Mapping[str, Any]) -> bool:
        """Whether a ledger (as JSON) has come to this end."""
        claims = {line["claim"] for line in ledger["timeline"]}
        codes = {finding["code"] for finding in ledger["findings"]}
        same = ledger["outcome"] == self.outcome and ledger["fulfillable"] is self.ships
        return same and self.claims <= claims and self.findings <= codes

    def __str__(self) -> str:
        return told(self.outcome, ships=self.ships, findings=self.findings)


def told(outcome: str, *, ships: bool, findings: frozenset[Any]) -> str:
    """An end in a few words."""
    words = f"{outcome}, {'ship' if ships else 'do not ship'}"
    return f"{words} ({', '.join(sorted(findings))})" if findings else words


def _paid(*findings: FindingCode, claims: tuple[str, ...] = ("succeeded",)) -> Expected:
    return Expected(
        outcome="succeeded", ships=True, claims=frozenset(claims), findings=frozenset(findings)
    )


EXPECTED: Final[Mapping[str, Expected]] = MappingProxyType(
    {
        "success": _paid(),
        "decline": Expected(outcome="failed", claims=frozenset({"declined"})),
        "timeout": Expected(outcome="timed_out"),
        "duplicate webhook": _paid("redelivered"),
        "delayed webhook": _paid(),  # how late is the provider's affair: within the grace it is not
        "out of order": _paid("out_of_order"),
        "declined, then paid": _paid("recovered_on_later_attempt"),
        "paid twice": _paid("paid_twice"),
        "other amount": Expected(outcome="unresolved", findings=frozenset({"amount_mismatch"})),
        "same id, other body": Expected(
            outcome="unresolved", findings=frozenset({"same_id_different_body"})
        ),
        "tampered": _paid(),
        "refund": Expected(outcome="refunded", claims=frozenset({"refunded"})),
        "dispute": _paid(claims=("succeeded", "dispute_won")),
        "reported timeout, then paid": _paid(claims=("timed_out", "succeeded")),
        "no answer": _paid(),
        "service trouble": _paid(),
    }
)
"""By the names of the simulated provider's scenarios; a real one offers some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to play.

    numbers     a test number for each scenario's name
    amount      in major units
    patience_s  seconds to wait for each end; None: until its deadline, and somewhat longer
    """

    numbers: Mapping[str, str] = field(repr=False)
    amount: str
    currency: str
    patience_s: float | None = None


def numbers_for(given: Mapping[str, str], *, environment: str | None) -> Mapping[str, str]:
    """The configured test numbers, else those of the simulated provider.

    Raises ConfigurationError for a scenario that is none, and in live without any number.
    """
    unknown = [name for name in given if name not in EXPECTED]
    if unknown:
        known = ", ".join(EXPECTED)
        raise ConfigurationError([f"{NUMBERS}: names a scenario that is none of: {known}"])
    if not given and environment != "sandbox":
        raise ConfigurationError(
            [f"{NUMBERS}: is missing; in live, only numbers for testing may be charged: name them"]
        )
    return given or {row.name: SIMULATED + row.ending for row in SCENARIOS.values()}
