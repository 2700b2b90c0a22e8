"""A proposal: an act that one operator asks for, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from reconcile.instants import Instant

Decision = Literal["approved", "rejected", "withdrawn"]
Standing = Literal["waiting", "expired", Decision]
STANDINGS: Final[tuple[Standing, ...]] = get_args(Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of a proposal: who said so, in which role, why and when."""

    decision: Decision
    who: str
    role: str
    reason: str
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An act that one operator asks for and another must agree to.

    kind      the name of what is proposed
    subject   what it would be done to: a break, a month, an import; never a phone number
    sentence  what would be done, with the money and the consequence
    given     what the act needs besides; never personal data
    subject_state  what the subject was like when this was proposed, by the kind's own account
    who       the proposer, and their role then
    until     the instant from which on nobody can approve it
    decided   what became of it; None: nobody has said
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
        """`waiting`, `expired`, or the word of its decision."""
        if self.decided is not None:
            return self.decided.decision
        return "waiting" if now < self.until else "expired"
