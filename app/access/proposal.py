"""Proposals: acts that one operator requests, and the decisions on them.

Leaves out: who may propose and decide (`proposals`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from reconcile.instants import Instant

Decision = Literal["approved", "rejected", "withdrawn"]
Standing = Literal["waiting", "expired", Decision]
STANDINGS: Final[tuple[Standing, ...]] = get_args(Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Decision on a proposal."""

    decision: Decision
    who: str
    role: str
    reason: str
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Act that one operator requests and another must approve.

    kind      the name of a ProposalKind
    subject   the break, month or import; never a phone number
    sentence  the act, with its money and consequence
    given     the act's other arguments; never personal data
    subject_state  the result of `ProposalKind.subject_state` at the time of the proposal
    role      the proposer's role at that time
    until     instant at which the proposal expires
    decided   None while the proposal waits
    """

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
        """Return `waiting`, `expired`, or the name of the decision."""
        if self.decided is not None:
            return self.decided.decision
        return "waiting" if now < self.until else "expired"
