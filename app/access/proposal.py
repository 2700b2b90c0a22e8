"""Data types of proposals: acts that one operator requests, and the decisions about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from reconcile.instants import Instant

Decision = Literal["approved", "rejected", "withdrawn"]
Standing = Literal["waiting", "expired", Decision]
STANDINGS: Final[tuple[Standing, ...]] = get_args(Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Decision of an operator about a proposal."""

    decision: Decision
    who: str
    role: str
    reason: str
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Act that one operator requests and another must approve."""

    id: str
    kind: str
    subject: str
    sentence: str
    given: Mapping[str, str] = field(default_factory=dict)
    subject_state: str
    who: str
    role: str
    reason: str
    at: Instant
    until: Instant
    decided: Decided | None = None

    def standing(self, now: Instant) -> Standing:
        """Return `waiting`, `expired` or the name of the decision."""
        if self.decided is not None:
            return self.decided.decision
        return "waiting" if now < self.until else "expired"
