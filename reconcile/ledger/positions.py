"""Compute the sums, refunds and chargebacks of a payment from its provider's answers.

An answer may come from an outdated copy, so that a withdrawn amount needs a second answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from reconcile.instants import EARLIEST, HOUR, Duration, Instant
from reconcile.ledger.correlate import SAYS_NOTHING_FINAL, AttemptEvidence, Heard
from reconcile.ledger.events import ANSWERS, STATE_WORDS, ClaimKind, State, StateMember
from reconcile.money import Money

REPEATED_AFTER: Final[Duration] = HOUR
"""Minimum time between two answers that together withdraw an amount."""

_MEANS: Final[dict[tuple[StateMember, str], ClaimKind]] = {
    ("refund", "done"): "refunded",
    ("refund", "pending"): "refund_pending",
    ("refund", "undone"): "refund_failed",
    ("chargeback", "done"): "dispute_lost",
    ("chargeback", "pending"): "disputed",
    ("chargeback", "undone"): "dispute_won",
}


class Step(NamedTuple):
    """Sum that the provider states for one version of a payment."""

    version: Instant
    """Date of the payment's version."""
    minor: int
    said: list[Heard]
    """Answers that state the sum, each with the date of the sum."""


@dataclass(slots=True)
class Undo:
    """Withdrawal of a stated amount that no further answer has confirmed."""

    money: Money
    heard: Sequence[Heard]


class Position:
    """Sums, refunds and chargebacks of one payment in the provider's answers.

    claims    single refunds and chargebacks from the answers, as events
    repeated  references of refunds and chargebacks that two answers withdrew
    """

    def __init__(self, attempt: AttemptEvidence) -> None:
        self.claims: dict[ClaimKind, list[Heard]] = {}
        self.repeated: set[str] = set()
        self._states: list[tuple[Heard, State]] = []
        named: dict[tuple[StateMember, str], list[tuple[Instant, Heard, State]]] = {}
        for each in attempt.heard if attempt.states else ():
            event = each.event
            if event.standing not in ANSWERS or event.claim in SAYS_NOTHING_FINAL:
                continue  # such an answer never moves money
            for state in event.states:
                self._states.append((each, state))
                if (state.member, state.word) in _MEANS and state.reference is not None:
                    stated = named.setdefault((state.member, state.reference), [])
                    stated.append((event.stated_at or EARLIEST, each, state))
        for (member, reference), stated in sorted(named.items(), key=lambda one: one[0]):
            stated.sort(
                key=lambda one: (one[0], STATE_WORDS.index(one[2].word), one[1].event.digest)
            )
            self._name(member, reference, stated)

    def _name(
        self, member: StateMember, reference: str, stated: list[tuple[Instant, Heard, State]]
    ) -> None:
        done = [one for one in stated if one[2].word == "done"]
        undone = [one for one in stated if one[2].word == "undone"]
        if done:
            # A version that states both `undone` and `done` takes nothing back.
            undone = [one for one in undone if one[0] > done[-1][0]]
        waits = stated[-1:] if stated[-1][2].word == "pending" else []
        for stating in (done, undone, waits):
            if not stating:
                continue
            version, _, first = stating[0]
            state = stating[-1][2]
            # A refund that is pending after it was done or undone was tried again.
            again = stating is waits and (done or undone)
            at = version if first.at is None or again else first.at
            for _, heard, _ in (stating[0], stating[-1])[: len(stating)]:
                event = replace(
                    heard.event,
                    claim=_MEANS[(member, state.word)],
                    movement=reference,
                    money=None if state.word == "undone" else state.money,
                    refunded_total=None,
                    occurred_at=at,
                )
                own = Heard(event, heard.first, heard.count, at, heard.by)
                self.claims.setdefault(event.claim, []).append(own)
        if undone and undone[-1][0] - undone[0][0] >= REPEATED_AFTER:
            self.repeated.add(reference)

    def currencies(self, member: StateMember) -> list[str]:
        """Return the currencies in which the answers state this kind of sum, sorted."""
        return sorted({s.money.currency for _, s in self._states if s.member == member and s.money})

    def states_capture(self, answer: Heard) -> bool:
        """Check whether an answer states the captured sum."""
        return any(
            each is answer and state.member == "captured" and state.money
            for each, state in self._states
        )

    def steps(self, member: StateMember, currency: str) -> list[Step]:
        """Return the stated sums, one for each version."""
        found: dict[tuple[bool, Instant], Step] = {}
        for each, state in self._states:
            money, version = state.money, each.event.stated_at
            if state.member != member or money is None or money.currency != currency:
                continue
            sure = version is not None and each.event.payment is not None
            at = state.at or (member == "captured" and each.event.occurred_at) or version or each.at
            said = Heard(each.event, each.first, each.count, at, each.by)
            key = (sure, EARLIEST if version is None else version)
            step = found.get(key)
            if step is None or money.minor > step.minor:
                found[key] = Step(key[1], money.minor, [said])
            elif money.minor == step.minor:
                step.said.append(said)
        steps = sorted(found.items())
        weak = [step for (sure, _), step in steps if not sure]
        strong = [step for (sure, _), step in steps if sure]
        if not (weak and strong):
            return weak or strong
        floor = weak[-1]
        return [s if s.minor >= floor.minor else Step(s.version, *floor[1:]) for s in strong]


NO_POSITION: Final = Position(AttemptEvidence("", ""))
"""Shared empty position. Callers must not add anything to this object."""


def still_stated(steps: Sequence[Step]) -> int:
    """Return the largest sum that no confirmed answer has replaced."""
    return max(
        [
            step.minor
            for step, after in zip(steps, [*steps[1:], None], strict=True)
            if after is None or steps[-1].version - after.version < REPEATED_AFTER
        ]
    )
