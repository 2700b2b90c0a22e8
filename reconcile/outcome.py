"""Judges the order from its attempts and movements: the decision tables as functions of a Case.

Leaves out: findings, which observe but do not decide, and every sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconcile.correlate import FOLLOWS_SUCCESS, AttemptEvidence, Case, Heard
from reconcile.events import ClaimKind, Event
from reconcile.ledger import (
    Attempt,
    AttemptOutcome,
    Balance,
    Facts,
    FactValue,
    Outcome,
    Reason,
    new_reason,
)
from reconcile.money import Money, new_money
from reconcile.movements import Movement, balances_of, cites_of, closes, movements_of
from reconcile.outcome_attempts import all_cites, judge_attempt
from reconcile.records import Record

_TAKES_MONEY: Final[frozenset[ClaimKind]] = FOLLOWS_SUCCESS | {"succeeded"}
"""Claims that are about money which moved."""

_LAST_WORD: Final[dict[AttemptOutcome, Outcome]] = {
    "declined": "failed",
    "canceled": "canceled",
    "expired": "expired",
    "timed_out": "timed_out",
}


@dataclass(slots=True)
class Expectation:
    """What the whole order costs, and the ids that say so. Two voices that differ: no money."""

    money: Money | None
    cites: tuple[str, ...]
    stated: tuple[Money, ...] = ()


@dataclass(slots=True)
class Judgement:
    """All that was concluded from a Case; `findings` reads it.

    captures  the movements that brought money
    bodies    see `contradicting_bodies`
    """

    expected: Expectation
    attempts: tuple[Attempt, ...]
    movements: list[Movement]
    captures: list[Movement]
    balances: tuple[Balance, ...]
    bodies: list[list[Heard]]
    outcome: Outcome = "not_attempted"
    reasons: tuple[Reason, ...] = ()


def judge(case: Case) -> Judgement:
    """Attempts first, then the order from all of them. Pure; no early return anywhere."""
    attempts = tuple([judge_attempt(evidence, case) for evidence in case.attempts])
    movements = movements_of(case.attempts)
    captures = [m for m in movements if m.kind == "captured"]
    balances, bodies = balances_of(movements), contradicting_bodies(case)
    judgement = Judgement(_expected(case), attempts, movements, captures, balances, bodies)
    decided = _unresolved(case, judgement)
    if decided is None:
        moved = movements or any(not _TAKES_MONEY.isdisjoint(a.claims) for a in case.attempts)
        decided = _money_moved(case, judgement) if moved else _no_money_moved(case, judgement)
    judgement.outcome, judgement.reasons = decided
    return judgement


Decision = tuple[Outcome, tuple[Reason, ...]]


# --- the order: what it costs --------------------------------------------------------------------


def _expected(case: Case) -> Expectation:
    """The shop's own word, else what the session asked for, else what the events say."""
    placed = case.filed.placed
    if placed is not None and placed.money is not None:
        return Expectation(placed.money, (placed.record_id,))
    if case.filed.sessions:
        asked = [f.requested for f in case.filed.sessions.values() if f.requested is not None]
        asked = [record for record in asked if record.money is not None]
        if asked:
            last = max(asked, key=lambda record: (record.recorded_at, record.record_id))
            return Expectation(last.money, (last.record_id,))
    return _expected_by_events(case.heard)


def _expected_by_events(heard: list[Heard]) -> Expectation:
    stated: list[Money] = []
    cites: list[str] = []
    for each in heard:
        money = each.event.order_money
        # There are hardly ever two: comparing is cheaper than hashing.
        if money is not None and money not in stated:
            stated.append(money)
            cites.append(each.event.event_id)
    if len(stated) == 1:
        return Expectation(stated[0], tuple(cites))
    stated.sort(key=lambda m: (m.currency, m.minor))
    return Expectation(None, tuple(cites), tuple(stated))


# --- the order: what a person must settle --------------------------------------------------------


def _unresolved(case: Case, judgement: Judgement) -> Decision | None:
    """Everything that keeps the money from being understood; all of it is told."""
    reasons = [*_bodies(judgement), *_shared(case), *_amounts(judgement)]
    if not reasons and judgement.balances:
        reasons = _against_expected(judgement)
    return ("unresolved", tuple(reasons)) if reasons else None


def contradicting_bodies(case: Case) -> list[list[Heard]]:
    """Events that share source and id but not their body, grouped, each with one of our own."""
    heard = case.heard + case.foreign if case.foreign else case.heard
    if len({h.event.event_id for h in heard}) == len(heard):
        return []
    groups: dict[tuple[str, str], list[Heard]] = {}
    for each in case.heard:
        groups.setdefault((each.event.source, each.event.event_id), []).append(each)
    for each in case.foreign:
        key = (each.event.source, each.event.event_id)
        if key in groups:
            groups[key].append(each)
    return [group for group in groups.values() if len(group) > 1]


def _bodies(judgement: Judgement) -> list[Reason]:
    reasons = []
    for group in judgement.bodies:
        first = _substance(group[0])
        if any(_substance(each) != first for each in group):
            facts: Facts = (("bodies", len(group)),)
            reasons.append(new_reason(code="bodies_disagree", cites=cites_of(group), facts=facts))
    return reasons


def _substance(heard: Heard) -> tuple[object, ...]:
    """What two bodies of one id must agree in: kind, money and references."""
    e = heard.event
    return (e.claim, e.money, e.order_money, e.order, e.session, e.payment, e.movement)


class Shared(NamedTuple):
    """An attempt of this order that another order claims, too: by these events and records."""

    attempt: AttemptEvidence
    heard: list[Heard]
    records: list[Record]

    @property
    def cites(self) -> tuple[str, ...]:
        """The ids of all that speaks of it, for whichever order."""
        records = tuple([record.record_id for record in self.records])
        return all_cites(self.attempt) + cites_of(self.heard) + records


def shared_references(case: Case) -> list[Shared]:
    """Attempts of this order that events of another order, or sessions opened for one, claim."""
    found = []
    for attempt in case.attempts if case.foreign or case.foreign_records else ():
        heard = [h for h in case.foreign if _claims(h.event, attempt)]
        records = [r for r in case.foreign_records if _opened(r, attempt)]
        if heard or records:
            found.append(Shared(attempt, heard, records))
    return found


def _opened(record: Record, attempt: AttemptEvidence) -> bool:
    session = record.session
    return record.source == attempt.source and session is not None and attempt.belongs_to(session)


def _claims(event: Event, attempt: AttemptEvidence) -> bool:
    return event.source == attempt.source and (
        event.payment == attempt.reference
        or (event.session is not None and attempt.belongs_to(event.session))
    )


def _shared(case: Case) -> list[Reason]:
    """Shared references on which money moved, whichever order's events say that it did."""
    return [
        new_reason(
            code="reference_shared",
            cites=shared.cites,
            facts=(("reference", shared.attempt.reference),),
        )
        for shared in shared_references(case)
        if not _TAKES_MONEY.isdisjoint(
            [*shared.attempt.claims, *[h.event.claim for h in shared.heard]]
        )
    ]


def _amounts(judgement: Judgement) -> list[Reason]:
    reasons = []
    for movement in judgement.movements:
        if len(movement.stated) == 1:
            continue
        code = "amounts_conflict" if movement.stated else "amount_not_stated"
        facts: Facts = (
            ("attempt", movement.attempt.reference),
            ("movement", movement.kind),
            *((f"amount_{n}", money) for n, money in enumerate(movement.stated, 1)),
        )
        reasons.append(new_reason(code=code, cites=movement.cites, facts=facts))
    return reasons


def _against_expected(judgement: Judgement) -> list[Reason]:
    expected = judgement.expected
    captures = judgement.captures
    if not captures:
        return [_fact_reason(judgement, "refund_before_payment", judgement.movements)]
    if expected.stated:
        return [_order_amounts(judgement)]
    if len(judgement.balances) > 1:
        return [_currencies(judgement, judgement.movements)]
    if expected.money is None:
        return []
    balance = judgement.balances[0]
    if balance.currency != expected.money.currency:
        return [_currencies(judgement, captures)]
    if balance.captured != expected.money.minor and not paid_several_times(judgement):
        return [_fact_reason(judgement, "amount_differs", captures)]
    return []


def _currencies(judgement: Judgement, movements: list[Movement]) -> Reason:
    expected = judgement.expected
    moved = [m.money for m in movements if m.money is not None]
    facts: list[tuple[str, FactValue]] = [("moved", money) for money in moved]
    if expected.money is not None:
        facts.append(("expected", expected.money))
    cites = _union(*[m.cites for m in movements], expected.cites)
    return new_reason(code="currency_differs", cites=cites, facts=tuple(facts))


def _order_amounts(judgement: Judgement) -> Reason:
    expected = judgement.expected
    facts: Facts = tuple((f"amount_{n}", m) for n, m in enumerate(expected.stated, 1))
    cites = _union(expected.cites, *(m.cites for m in judgement.captures))
    return new_reason(code="order_amounts_conflict", cites=cites, facts=facts)


def paid_several_times(judgement: Judgement) -> bool:
    """Whether each of several captures alone is exactly what the order costs."""
    captures, expected = judgement.captures, judgement.expected.money
    return len(captures) > 1 and all(m.money == expected for m in captures)


# --- the order: money moved ----------------------------------------------------------------------


def _money_moved(case: Case, judgement: Judgement) -> Decision:
    movements = judgement.movements
    disputes = open_disputes(case)
    if disputes:
        reason = _fact_reason(judgement, "dispute_open", movements, extra=cites_of(disputes))
        return "disputed", (reason,)
    if not movements:
        # Only disputes that were opened and closed are known, and no payment: nothing is settled.
        heard = [h for a in case.attempts for h in a.heard]
        return "unresolved", (new_reason(code="dispute_without_payment", cites=cites_of(heard)),)
    balance = judgement.balances[0]
    if balance.refunded == 0:
        return "succeeded", (_fact_reason(judgement, _paid_code(judgement), movements),)
    if balance.refunded >= balance.captured:
        return "refunded", (_fact_reason(judgement, "refunded_in_full", movements),)
    surplus = _surplus(judgement, balance)
    if surplus is None or surplus < 0:
        return "partially_refunded", (_fact_reason(judgement, "refunded_in_part", movements),)
    code = "overpayment_returned_in_part" if surplus else "overpayment_returned"
    return "succeeded", (_fact_reason(judgement, code, movements),)


def _surplus(judgement: Judgement, balance: Balance) -> int | None:
    """Of an order paid several times: what we hold beyond its price. None for any other."""
    expected = judgement.expected.money
    if expected is None or not paid_several_times(judgement):
        return None
    return balance.captured - balance.refunded - expected.minor


def _paid_code(judgement: Judgement) -> str:
    if judgement.expected.money is None:
        return "paid_amount_unconfirmed"
    return "paid_several_times" if paid_several_times(judgement) else "paid_in_full"


def open_disputes(case: Case) -> list[Heard]:
    """Events that opened a dispute which no `dispute_won` or `dispute_lost` has closed."""
    found = []
    for attempt in case.attempts:
        opened = attempt.claims.get("disputed")
        if opened is not None:
            closed = attempt.claims.get("dispute_won", []) + attempt.claims.get("dispute_lost", [])
            found += [each for each in opened if not any(closes(c, each, attempt) for c in closed)]
    return found


def _fact_reason(
    judgement: Judgement, code: str, movements: Iterable[Movement], *, extra: tuple[str, ...] = ()
) -> Reason:
    """A reason about the whole money: what was expected, captured and given back."""
    facts: list[tuple[str, FactValue]] = []
    expected = judgement.expected
    if expected.money is not None:
        facts.append(("expected", expected.money))
    if not judgement.balances:
        facts.append(("captured", None))
    for balance in judgement.balances:
        facts.append(("captured", new_money(minor=balance.captured, currency=balance.currency)))
        if balance.refunded:
            facts.append(("refunded", new_money(minor=balance.refunded, currency=balance.currency)))
    cites = _union(*[m.cites for m in movements], extra, expected.cites)
    return new_reason(code=code, cites=cites, facts=tuple(facts))


def _union(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([cite for group in groups for cite in group]))


# --- the order: no money moved -------------------------------------------------------------------


def _no_money_moved(case: Case, judgement: Judgement) -> Decision:
    attempts = judgement.attempts
    if not attempts:
        return _untried(case)
    reserved = [a for a in attempts if a.outcome == "authorized"]
    if reserved:
        return "authorized", (_of_open("money_reserved", reserved),)
    waiting = [a for a in attempts if a.outcome == "pending"]
    unconfirmed = [a for a in waiting if a.reason.code == "awaiting_confirmation"]
    if unconfirmed:
        return "pending", (_of_open("confirmation_awaited", unconfirmed),)
    if waiting:
        return "pending", (_of_open("still_open", waiting),)
    last = max(attempts, key=lambda a: (a.ended_at or 0, a.reference, a.source))
    facts: Facts = (("attempt", last.reference), ("ended_at", last.ended_at), *last.reason.facts)
    code = "last_word_" + last.reason.code
    return _LAST_WORD[last.outcome], (new_reason(code=code, cites=last.reason.cites, facts=facts),)


def _of_open(code: str, attempts: list[Attempt]) -> Reason:
    facts: Facts = (("attempts", len(attempts)),)
    if code == "still_open":
        # The order is open as long as any attempt is: the last deadline is the one that counts.
        facts = (*facts, ("deadline_at", max([a.deadline or 0 for a in attempts])))
    return new_reason(code=code, cites=_union(*[a.reason.cites for a in attempts]), facts=facts)


def _untried(case: Case) -> Decision:
    filed = case.filed
    canceled = filed.canceled
    if canceled is not None:
        return "canceled", (
            new_reason(
                code="canceled_by_merchant",
                cites=(canceled.record_id,),
                facts=(("canceled_at", canceled.at),),
            ),
        )
    record = filed.placed or filed.fulfilled
    if record is None:
        return "not_attempted", (new_reason(code="nothing_known", cites=()),)
    return "not_attempted", (new_reason(code="nothing_attempted", cites=(record.record_id,)),)
