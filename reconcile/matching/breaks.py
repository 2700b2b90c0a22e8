"""Breaks: differences between ledger, order book, statement and bank."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from reconcile.canonical import fingerprint, values_json
from reconcile.instants import Instant
from reconcile.ledger.explain import filled
from reconcile.ledger.ledger import Facts
from reconcile.matching.causes import CAUSES, BreakCause
from reconcile.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Possible partner of an unmatched line."""

    line: str
    reference: str
    money: Money
    apart: str
    """Code of the field in which the two lines differ most."""
    facts: Facts = ()
    """Facts about this difference."""
    days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One difference between ledger, order book, statement and bank."""

    cause: BreakCause
    order: str | None = None
    """Reference of the order, as the ledger, or else the book or statement, writes it."""
    payment: str | None = None
    subject: str | None = None
    """Permanent text that distinguishes breaks with equal cause, order and payment."""
    money: Money
    """Amount at stake, never negative."""
    since: Instant
    """Instant from which the break's age counts."""
    cites: tuple[str, ...]
    """Ids of the events, records and lines that show the break."""
    facts: Facts = ()
    candidates: tuple[Candidate, ...] = ()
    """Up to three lines that nearly fit, the nearest first."""
    left: tuple[Money, ...] = ()
    """Unsettled amount in each currency. Positive for money still to come."""

    @property
    def identity(self) -> str:
        """Return the permanent id of the break."""
        digest = fingerprint([self.cause, self.order, self.payment, self.subject])
        return "brk_" + digest.removeprefix("sha256:")[:20]


# --- money at risk -------------------------------------------------------------------------------


def at_risk(found: Break) -> int:
    """Return the amount that may be lost, in minor units."""
    risk, facts = CAUSES[found.cause].risk, dict(found.facts)
    if risk in ("held", "owed", "mistake"):
        return 0
    if risk == "sums":
        sums = {
            name: sum([m.minor for fact, m in found.facts if fact == name and isinstance(m, Money)])
            for name in ("captured", "booked", "settled", "expected", "tendered", "in_bank")
        }
        if "expected" in facts:  # in the currency of the settlement
            short = sums["settled"] < sums["expected"]
        elif facts.get("against") == "statement":
            short = sums["settled"] < sums["captured"]
        else:
            came = sums["in_bank"] + sums["captured" if "captured" in facts else "settled"]
            short = came + sums["tendered"] < sums["booked"]
    elif isinstance(risk, tuple):
        cost, due = (facts.get(name) for name in risk)
        due = facts.get("expected", due)  # in the currency of the deduction
        short = not (isinstance(cost, Money) and isinstance(due, Money)) or cost.minor > due.minor
    elif risk == "left":
        short = any(money.minor > 0 for money in found.left)
    else:
        short = True
    return found.money.minor if short else 0


# --- the life of a break -------------------------------------------------------------------------


State = Literal["open", "assigned", "accepted", "closed"]
STATES: Final[tuple[State, ...]] = get_args(State)

Turn = Literal["opened", "changed", "closed", "reopened"]

Act = Literal["assigned", "commented", "accepted", "matched", "unmatched", "settled"]
ACTS: Final[tuple[Act, ...]] = get_args(Act)
"""Actions that a person can take on a break."""

LateDecision = Literal["accept", "refund", "credit"]
SETTLINGS: Final[tuple[LateDecision, ...]] = get_args(LateDecision)
"""Decisions about money that came late."""

LateStanding = Literal["to_decide", "waits_for_refund", "settled", "closed"]
STANDINGS: Final[tuple[LateStanding, ...]] = get_args(LateStanding)
"""States of a break about money that came late.

A person's decision gives `settled`, and evidence gives `closed`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act of a run or a person on a break."""

    at: Instant
    kind: Turn | Act
    money: Money
    """Money at stake when the step was taken."""
    by: str | None = None
    """Person who took the step. None for a run."""
    second: str | None = None
    """Second person, if two people had to agree."""
    value: str = ""
    """The assignee, the matched or unmatched line, or the decision about late money."""
    reason: str = ""
    cites: tuple[str, ...] = ()
    """Evidence that closed the break."""
    run: int | None = None
    left: tuple[Money, ...] = ()
    """Amounts that the break left unsettled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Present state of a break."""

    state: State
    assignee: str | None
    settling: LateDecision | None
    """Current decision about the break's late money, if any."""
    because: str
    """Sentence that says why the break has this state."""
    closed_by: tuple[str, ...] = ()
    """Evidence that closed the break."""
    matched: tuple[str, ...] = ()
    """Lines that a person matched since the last run."""


def life(steps: Iterable[Step]) -> Life:
    """Return the state of a break after steps in time order."""
    state = _BreakState()
    for step in steps:
        state.take(step)
    return state.now()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Amounts of a break that a person accepted: the money at stake, and the unsettled amounts."""

    money: Money
    left: tuple[Money, ...]


def acceptances(
    steps: Iterable[Step],
) -> Iterator[tuple[Step, Accepted | None, Accepted | None]]:
    """Yield each step that changed the accepted amounts, with both amounts."""
    state, before = _BreakState(), None
    for step in steps:
        state.take(step)
        after = state.accepted()
        if after != before:
            yield step, before, after
        before = after


class _BreakState:
    def __init__(self) -> None:
        self._seen = True
        self._money: Money | None = None
        self._left: tuple[Money, ...] | None = None
        self._accepted: Step | None = None
        self._assigned: Step | None = None
        self._settled: Step | None = None
        self._matched: dict[str, Step] = {}
        self._because = "No run has found this break yet."
        self._closed_by: tuple[str, ...] = ()

    def take(self, step: Step) -> None:
        if step.kind in ("opened", "changed", "reopened"):
            self._saw(step)
        elif step.kind == "closed":
            self._seen, self._closed_by = False, step.cites
            why = _NOTHING_CITED
            if step.cites:
                why = f"this later evidence closed it: {', '.join(step.cites)}"
            self._because = f"Run {step.run} no longer found this break; {why}."
        elif step.kind == "assigned":
            self._assigned = step if step.value else None
        elif step.kind == "accepted":
            self._decided(step, "accepted")
        elif step.kind == "settled":
            self._decided(step, f"decided to {step.value}")
        elif step.kind == "matched":
            self._matched[step.value] = step
            self._because = f"{step.by} matched it with {step.value}: {step.reason}"
        elif step.kind == "unmatched":
            self._matched.pop(step.value, None)
            self._because = f"{step.by} undid its match with {step.value}: {step.reason}"

    def _saw(self, step: Step) -> None:
        accepted, matched = self._accepted, self._matched
        self._matched = {}
        if step.kind == "reopened" and matched and self._seen:
            self._because = (
                f"It was matched with {', '.join(matched)}, but run {step.run} still found it: "
                "the match does not explain the break."
            )
            self._accepted = self._settled = None
        elif step.kind == "opened":
            self._because = f"Run {step.run} was the first to find this break."
        elif step.kind == "reopened":
            self._because = f"Run {step.run} found this break again after it had been closed."
            self._accepted = self._settled = None
        elif accepted is not None and accepted.money != step.money:
            self._because = (
                f"It was accepted at {accepted.money}, but run {step.run} found {step.money}."
            )
            self._accepted = self._settled = None
        elif accepted is not None and self._left not in (None, step.left):
            self._because = (
                f"It was accepted at {accepted.money}, but run {step.run} found another amount "
                "that remains to be settled."
            )
            self._accepted = self._settled = None
        self._seen, self._closed_by = True, ()
        self._money, self._left = step.money, step.left

    def _decided(self, step: Step, did: str) -> None:
        people = f"{step.by} and {step.second}" if step.second else str(step.by)
        self._because = f"{people} {did} {step.money}: {step.reason}"
        if self._money not in (None, step.money):  # a run ended while the person decided
            self._because = f"{people} {did} {step.money}, but a run has found {self._money}."
            return
        self._accepted = None if step.value == "refund" else step
        if step.kind == "settled":
            self._settled = step

    def accepted(self) -> Accepted | None:
        """Return the accepted amounts of the last break, if any."""
        if not self._seen or self._accepted is None:
            return None
        return Accepted(money=self._accepted.money, left=self._left or ())

    def now(self) -> Life:
        assignee = None if self._assigned is None else self._assigned.value
        state: State = "open" if assignee is None else "assigned"
        if not self._seen or self._matched:
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
            matched=tuple(self._matched) if self._seen else (),
        )


_NOTHING_CITED: Final = (
    "no new evidence arrived, but time has passed, or the matching row was found elsewhere"
)


# --- a break as text, to be stored ---------------------------------------------------------------


def break_text(found: Break) -> str:
    """Encode a break as JSON. Equal breaks give equal text."""
    return values_json(found)


def break_in(text: str) -> Break:
    """Decode a break from the JSON that `break_text` returns."""
    given = _members_in(Break, json.loads(text))
    given["cites"] = tuple(given["cites"])
    near = [_members_in(Candidate, each) for each in given["candidates"]]
    given["candidates"] = tuple([Candidate(**each) for each in near])
    given["left"] = tuple([_money_in(each) for each in given["left"]])
    return Break(**given)


def _members_in(kind: type[Break | Candidate], parts: list[Any]) -> dict[str, Any]:
    given = dict(zip(kind.__slots__, parts, strict=True))
    return given | {"money": _money_in(given["money"]), "facts": _facts_in(given["facts"])}


def _facts_in(parts: list[Any]) -> Facts:
    return tuple(
        [(name, _money_in(value) if isinstance(value, list) else value) for name, value in parts]
    )


def _money_in(pair: list[Any]) -> Money:
    return Money(minor=pair[0], currency=pair[1])


# --- the wording of breaks -----------------------------------------------------------------------


APART: Final[dict[str, str]] = {
    "separators": "digits differ only by separators",
    "characters": "reference differs in {characters}",
    "reference": "another reference",
    "factor": "amount {factor} times {sense}: minor units?",
    "amount": "amount differs by {difference}",
    "currency": "another currency",
    "date": "{beyond_us} outside the window",
    "fits": "fits, but so do others",
    "nothing": "all compared fields agree, except the reference",
}

_WORDS: Final[dict[str, dict[str, str]]] = {
    "why": {"canceled": "canceled", "given_up": "given up as expired or timed out"},
    "how": {
        "refunded": "was refunded",
        "reversed": "was reversed",
        "dispute_lost": "was lost in a dispute",
    },
}

_BANK_DIFFERS: Final = (
    "The bank booked {in_bank} for the order, but the order book says {booked}: {difference} apart"
)

_STATEMENT_DIFFERS: Final = (
    "The statement settles {settled} for the order, but the order book says {booked}: "
    "{difference} apart"
)

_DISPUTE_TAKEN_ELSEWHERE: Final = (
    "The statement returns {settled} for a won dispute, but no statement line shows that this "
    "money had been taken"
)


def break_sentence(found: Break) -> str:
    """Return the sentence that describes a break, including the full stop."""
    facts = [
        (name, _WORDS[name].get(str(value), value) if name in _WORDS else value)
        for name, value in found.facts
    ]
    facts += [("stated", value) for name, value in found.facts if name in ("booked", "settled")]
    if found.cause == "refund_not_in_book" and "how" not in dict(found.facts):
        facts.append(("how", "went back"))  # in several ways
    cause = CAUSES[found.cause]
    form = cause.sentence
    if ("won", True) in found.facts:
        form = _DISPUTE_TAKEN_ELSEWHERE
    elif found.cause == "amount_differs" and "captured" not in dict(found.facts):
        form = _BANK_DIFFERS if "in_bank" in dict(found.facts) else _STATEMENT_DIFFERS
    elif any(name == "rate" for name, _ in found.facts):
        form = cause.rated
    sentence = filled(form, tuple(facts)) + "."
    if any(name == "in_doubt" for name, _ in found.facts):
        sentence += filled(" Up to {in_doubt} more may have been captured.", found.facts)
    if any(name == "tendered" for name, _ in found.facts):
        sentence += filled(" {tendered} of the price was paid by other means.", found.facts)
    if ("how", "between files") in found.facts:
        sentence += filled(
            " The lines before come from import {earlier}, and this one from import {later}.",
            found.facts,
        )
    if any(name == "lost_from_at" for name, _ in found.facts):
        sentence += filled(
            " Data received from {lost_from_at} to {lost_until_at} may be lost.", found.facts
        )
    if ("searched", False) in found.facts:
        sentence += (
            " The search for a matching row used only the reference, because too many rows were "
            "left over."
        )
    return sentence


def next_step(found: Break) -> str:
    """Return the sentence on what to do about a break."""
    if ("won", True) in found.facts:
        return "Import the statement that took the dispute's money, or ask the provider for it."
    if found.cause == "refund_not_received" and found.candidates:
        return (
            "If a candidate is this refund, match it, because a second refund would pay the "
            "customer twice. If no candidate is, start the refund at the provider, or correct the "
            "order book."
        )
    cause = CAUSES[found.cause]
    if any(name == "rate" for name, _ in found.facts):
        who = "bank" if cause.about == "bank" else "provider"
        return (
            f"Ask the {who} for its exchange rate and its charges, or correct the rate in the "
            "rules. Then accept the difference."
        )
    return cause.step_by_how.get(str(dict(found.facts).get("how")), cause.step) + "."


def apart_words(candidate: Candidate) -> str:
    """Return words on how a candidate differs."""
    facts = tuple(
        (name, "one character" if (name, value) == ("characters", 1) else
         f"{value} characters" if name == "characters" else value)
        for name, value in candidate.facts
    )  # fmt: skip
    return filled(APART[candidate.apart], facts)
