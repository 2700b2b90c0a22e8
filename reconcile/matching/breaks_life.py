"""The life of a break: what runs saw of it and what people did about it, folded into its state.

Leaves out: who may do what, and wording of the break itself. Steps are only ever added; the state
is a function of all steps up to an instant, so it can be asked as of any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.money import Money
from reconcile.values import frozen

State = Literal["open", "assigned", "accepted", "closed"]
STATES: Final[tuple[State, ...]] = get_args(State)

Turn = Literal["opened", "changed", "closed", "reopened"]
"""What a run did: it saw the break first, with other content, no longer, or again."""

Deed = Literal["assigned", "commented", "accepted", "matched", "unmatched", "settled"]
DEEDS: Final[tuple[Deed, ...]] = get_args(Deed)
"""What a person did. unmatched: took a match back. settled: decided what becomes of late money."""

Settling = Literal["accept", "refund", "credit"]
SETTLINGS: Final[tuple[Settling, ...]] = get_args(Settling)
"""accept: the money is kept, the order is served after all. refund: it goes back; the break stays
open until the refund has come. credit: it stays with the merchant in the customer's favour."""


@frozen
class Step:
    """One step. `by` is the person, or None for a run.

    money   what was at stake in the eyes of who took the step
    value   to whom it was assigned, which line was matched or no longer is, how late money was
            settled
    reason  the person's words
    cites   of a run that closed it: the evidence that did
    """

    at: Instant
    kind: Turn | Deed
    money: Money
    by: str | None = None
    second: str | None = None
    value: str = ""
    reason: str = ""
    cites: tuple[str, ...] = ()
    run: int | None = None


@frozen
class Life:
    """Where a break stands.

    assignee  whose it is, in whatever state; None: nobody's
    settling  how its late money was settled, while that holds
    because   why it stands so, in one sentence
    closed_by the evidence that closed it; empty in other states
    """

    state: State
    assignee: str | None
    settling: Settling | None
    because: str
    closed_by: tuple[str, ...] = ()


def life(steps: Iterable[Step]) -> Life:
    """The state after these steps, which are in the order in which they were taken."""
    being = _Being()
    for step in steps:
        being.take(step)
    return being.now()


def acceptances(steps: Iterable[Step]) -> Iterator[tuple[Step, Money, bool]]:
    """What was accepted of a break over time: each step that did, or that ended it, with the money,
    and whether it is accepted from then on."""
    being, before = _Being(), None
    for step in steps:
        being.take(step)
        after = being.accepted()
        if after != before:
            if before is not None:
                yield step, before, False
            if after is not None:
                yield step, after, True
        before = after


class _Being:
    """A life while its steps are taken."""

    def __init__(self) -> None:
        self._seen = True
        self._money: Money | None = None
        self._accepted: Step | None = None
        self._assigned: Step | None = None
        self._settled: Step | None = None
        self._because = "No run has seen it yet."
        self._closed_by: tuple[str, ...] = ()

    def take(self, step: Step) -> None:
        """Go one step on."""
        if step.kind in ("opened", "changed", "reopened"):
            self._saw(step)
        elif step.kind == "closed":
            self._closed(step)
        elif step.kind == "assigned":
            self._assigned = step if step.value else None
        elif step.kind == "accepted":
            self._decided(step, "accepted")
        elif step.kind == "settled":
            self._decided(step, f"decided to {step.value}")
        elif step.kind == "matched":
            self._because = f"{step.by} matched it with {step.value}; the next run will use that."
        elif step.kind == "unmatched":
            self._because = f"{step.by} took back its match with {step.value}: {step.reason}"

    def _saw(self, step: Step) -> None:
        accepted = self._accepted
        if step.kind == "opened":
            self._because = f"Run {step.run} saw it first."
        elif step.kind == "reopened":
            self._because = f"Run {step.run} saw it again, after it had closed."
            self._accepted = self._settled = None
        elif accepted is not None and accepted.money != step.money:
            self._because = (
                f"It was accepted at {accepted.money}, and run {step.run} saw {step.money}."
            )
            self._accepted = self._settled = None
        self._seen, self._closed_by, self._money = True, (), step.money

    def _closed(self, step: Step) -> None:
        self._seen, self._closed_by = False, step.cites
        why = f"what came since closed it: {', '.join(step.cites)}" if step.cites else _NOTHING_SAID
        self._because = f"Run {step.run} no longer saw it; {why}."

    def _decided(self, step: Step, did: str) -> None:
        """The last word counts, if it was about the money that runs have seen."""
        self._because = f"{_people(step)} {did} {step.money}: {step.reason}"
        if self._money not in (None, step.money):  # the run was at work when the person looked
            self._because = f"{_people(step)} {did} {step.money}, and a run has seen {self._money}."
            return
        self._accepted = None if step.value == "refund" else step
        if step.kind == "settled":
            self._settled = step

    def accepted(self) -> Money | None:
        """What is accepted of what runs see."""
        return self._accepted.money if self._seen and self._accepted is not None else None

    def now(self) -> Life:
        """Where it stands."""
        assignee = None if self._assigned is None else self._assigned.value
        state: State = "open" if assignee is None else "assigned"
        if not self._seen:
            state = "closed"
        elif self.accepted() is not None:
            state = "accepted"
        settled = None if self._settled is None else self._settled.value
        return Life(
            state=state,
            assignee=assignee,
            settling=next((each for each in SETTLINGS if each == settled), None),
            because=self._because,
            closed_by=self._closed_by,
        )


_NOTHING_SAID: Final = (
    "nothing was said of it since: time has passed, or what belongs to it was found elsewhere"
)


def _people(step: Step) -> str:
    return f"{step.by} and {step.second}" if step.second else str(step.by)
