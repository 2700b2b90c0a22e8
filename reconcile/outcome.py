"""Judges each attempt, then the order: DESIGN's decision tables as functions of a Case.

Leaves out: findings, which observe but do not decide, and every sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reconcile.correlate import AttemptEvidence, Case, Heard, SessionFile
from reconcile.instants import Instant
from reconcile.ledger import (
    Attempt,
    AttemptOutcome,
    Balance,
    Facts,
    Outcome,
    Reason,
)
from reconcile.money import Money
from reconcile.movements import Movement, balances_of, cites_of, movements_of

RANKED: Final[tuple[AttemptOutcome, ...]] = (
    "succeeded",
    "authorized",
    "declined",
    "canceled",
    "expired",
    "timed_out",
)
"""An attempt is what its highest-ranked claim says, whenever that claim came."""

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
    """All that was concluded from a Case; `findings` reads it."""

    expected: Expectation
    attempts: tuple[Attempt, ...]
    movements: list[Movement]
    balances: tuple[Balance, ...]
    outcome: Outcome = "not_attempted"
    reasons: tuple[Reason, ...] = ()


def judge(case: Case) -> Judgement:
    """Attempts first, then the order from all of them. Pure; no early return anywhere."""
    attempts = tuple([judge_attempt(evidence, case) for evidence in case.attempts])
    movements = movements_of(case.attempts)
    judgement = Judgement(_expected(case), attempts, movements, balances_of(movements))
    decided = _unresolved(case, judgement)
    if decided is None:
        moved = bool(movements) or any("disputed" in a.claims for a in case.attempts)
        decided = _money_moved(case, judgement) if moved else _no_money_moved(case, judgement)
    judgement.outcome, judgement.reasons = decided
    return judgement


Decision = tuple[Outcome, tuple[Reason, ...]]


# --- attempts ---------------------------------------------------------------------------------


def judge_attempt(evidence: AttemptEvidence, case: Case) -> Attempt:
    """The highest-ranked claim; with no final one, the deadline; with neither, pending."""
    claims = evidence.claims
    for outcome in RANKED:
        said = claims.get(outcome)
        if said is not None:
            return _claimed(evidence, outcome, said, deadline=_deadline(evidence, case))
    if not evidence.heard and _all_refused(evidence.files):
        return _refused(evidence)
    return _waiting(evidence, case)


def _claimed(
    evidence: AttemptEvidence,
    outcome: AttemptOutcome,
    said: list[Heard],
    *,
    deadline: Instant | None,
) -> Attempt:
    facts: Facts = ()
    for each in said:
        if each.event.reason is not None:
            facts = (("reason", each.event.reason),)
    return Attempt(
        source=evidence.source,
        reference=evidence.reference,
        outcome=outcome,
        reason=Reason(code="event_says_" + outcome, cites=cites_of(said), facts=facts),
        deadline=deadline,
        ended_at=None if outcome == "authorized" else max([each.at for each in said]),
    )


def _all_refused(files: list[SessionFile]) -> bool:
    return bool(files) and all(f.refused is not None and f.opened is None for f in files)


def _refused(evidence: AttemptEvidence) -> Attempt:
    records = [file.refused for file in evidence.files if file.refused is not None]
    last = max(records, key=lambda record: (record.at, record.record_id))
    return Attempt(
        source=evidence.source,
        reference=evidence.reference,
        outcome="declined",
        reason=Reason(
            code="session_refused",
            cites=tuple(record.record_id for record in records),
            facts=(("reason", last.reason),),
        ),
        ended_at=last.at,
    )


def _waiting(evidence: AttemptEvidence, case: Case) -> Attempt:
    deadline = _deadline(evidence, case)
    over = deadline is not None and case.as_of >= deadline
    cites = cites_of(evidence.heard) + tuple(
        record.record_id for file in evidence.files for record in file.records()
    )
    code = "no_final_event_by_deadline" if over else "waiting_for_final_event"
    return Attempt(
        source=evidence.source,
        reference=evidence.reference,
        outcome="timed_out" if over else "pending",
        reason=Reason(code=code, cites=cites, facts=(("deadline_at", deadline),)),
        deadline=deadline,
        ended_at=deadline if over else None,
    )


def _deadline(evidence: AttemptEvidence, case: Case) -> Instant | None:
    """The session's own expiry if the service gave one, else its opening (or the first known
    date) and the policy's window and grace."""
    expiries, openings = [], []
    for file in evidence.files:
        opened = file.opened or file.requested
        if opened is not None:
            openings.append(opened.at)
            if opened.expires_at is not None:
                expiries.append(opened.expires_at)
    if expiries:
        return max(expiries)
    if openings:
        start = max(openings)
    elif evidence.heard:
        start = evidence.heard[0].at
    else:
        return None
    return start + case.policy.payment_window + case.policy.grace


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
    first: dict[Money, str] = {}
    previous: Money | None = None
    for each in heard:
        money = each.event.order_money
        # Most events repeat one amount: comparing is cheaper than hashing it again.
        if money is not None and money != previous:
            first.setdefault(money, each.event.event_id)
            previous = money
    if len(first) == 1:
        (money, event_id), *_ = first.items()
        return Expectation(money, (event_id,))
    stated = tuple(sorted(first, key=lambda m: (m.currency, m.minor)))
    return Expectation(None, tuple(first.values()), stated)


# --- the order: what a person must settle --------------------------------------------------------


def _unresolved(case: Case, judgement: Judgement) -> Decision | None:
    """Everything that keeps the money from being understood; all of it is told."""
    reasons = [*_bodies(case), *_shared(case, judgement), *_amounts(judgement)]
    if not reasons and judgement.balances:
        reasons = _against_expected(judgement)
    return ("unresolved", tuple(reasons)) if reasons else None


def contradicting_bodies(case: Case) -> list[list[Heard]]:
    """Events that share source and id but not their body, grouped, in the order of their dates."""
    heard = case.heard + case.foreign if case.foreign else case.heard
    if len({(h.event.source, h.event.event_id) for h in heard}) == len(heard):
        return []
    groups: dict[tuple[str, str], list[Heard]] = {}
    for each in heard:
        groups.setdefault((each.event.source, each.event.event_id), []).append(each)
    return [group for group in groups.values() if len(group) > 1]


def _bodies(case: Case) -> list[Reason]:
    reasons = []
    for group in contradicting_bodies(case):
        if len({_substance(each) for each in group}) > 1:
            facts: Facts = (("bodies", len(group)),)
            reasons.append(Reason(code="bodies_disagree", cites=cites_of(group), facts=facts))
    return reasons


def _substance(heard: Heard) -> tuple[object, ...]:
    """What two bodies of one id must agree in: kind, money and references."""
    e = heard.event
    return (e.claim, e.money, e.order_money, e.order, e.session, e.payment, e.movement)


def shared_references(case: Case) -> list[tuple[str, list[Heard]]]:
    """Attempts of this order that an event of another order also claims, with both sides."""
    found = []
    for attempt in case.attempts if case.foreign else ():
        others = [h for h in case.foreign if _claims(h, attempt)]
        if others:
            found.append((attempt.reference, attempt.heard + others))
    return found


def _claims(heard: Heard, attempt: AttemptEvidence) -> bool:
    event = heard.event
    return event.source == attempt.source and attempt.reference in (
        event.payment,
        event.session if event.payment is None else None,
    )


def _shared(case: Case, judgement: Judgement) -> list[Reason]:
    moved = {movement.attempt.reference for movement in judgement.movements}
    return [
        Reason(code="reference_shared", cites=cites_of(heard), facts=(("reference", reference),))
        for reference, heard in shared_references(case)
        if reference in moved
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
        reasons.append(Reason(code=code, cites=movement.cites, facts=facts))
    return reasons


def _against_expected(judgement: Judgement) -> list[Reason]:
    expected = judgement.expected
    captured = [b for b in judgement.balances if b.captured]
    if not captured:
        return [_fact_reason(judgement, "refund_before_payment", judgement.movements)]
    if expected.stated:
        return [_order_amounts(judgement)]
    money = expected.money
    captures = [m for m in judgement.movements if m.kind == "captured"]
    if len(judgement.balances) > 1:
        return [_fact_reason(judgement, "currency_differs", judgement.movements)]
    if money is None:
        return []
    if captured[0].currency != money.currency:
        return [_fact_reason(judgement, "currency_differs", captures)]
    if captured[0].captured != money.minor and not paid_several_times(judgement):
        return [_fact_reason(judgement, "amount_differs", captures)]
    return []


def _order_amounts(judgement: Judgement) -> Reason:
    expected = judgement.expected
    facts: Facts = tuple((f"amount_{n}", m) for n, m in enumerate(expected.stated, 1))
    captures = [m for m in judgement.movements if m.kind == "captured"]
    cites = _union(expected.cites, *(m.cites for m in captures))
    return Reason(code="order_amounts_conflict", cites=cites, facts=facts)


def paid_several_times(judgement: Judgement) -> bool:
    """Whether each of several captures alone is exactly what the order costs."""
    captures = [m for m in judgement.movements if m.kind == "captured"]
    expected = judgement.expected.money
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
        return "unresolved", (Reason(code="dispute_without_payment", cites=cites_of(heard)),)
    balance = judgement.balances[0]
    if balance.refunded == 0:
        return "succeeded", (_fact_reason(judgement, _paid_code(judgement), movements),)
    if balance.refunded >= balance.captured:
        return "refunded", (_fact_reason(judgement, "refunded_in_full", movements),)
    if _still_paid(judgement, balance):
        return "succeeded", (_fact_reason(judgement, "overpayment_returned", movements),)
    return "partially_refunded", (_fact_reason(judgement, "refunded_in_part", movements),)


def _still_paid(judgement: Judgement, balance: Balance) -> bool:
    """Paid several times, and what was given back leaves the order paid in full."""
    expected = judgement.expected.money
    return (
        expected is not None
        and paid_several_times(judgement)
        and balance.captured - balance.refunded >= expected.minor
    )


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
            found += [each for each in opened if not any(_closes(c, each) for c in closed)]
    return found


def _closes(closing: Heard, opening: Heard) -> bool:
    names = (closing.event.movement, opening.event.movement)
    return None in names or names[0] == names[1]


def _fact_reason(
    judgement: Judgement, code: str, movements: Iterable[Movement], *, extra: tuple[str, ...] = ()
) -> Reason:
    """A reason about the whole money: what was expected, captured and given back."""
    facts: list[tuple[str, Money | str | int | None]] = []
    expected = judgement.expected
    if expected.money is not None:
        facts.append(("expected", expected.money))
    for balance in judgement.balances:
        facts.append(("captured", Money(minor=balance.captured, currency=balance.currency)))
        if balance.refunded:
            facts.append(("refunded", Money(minor=balance.refunded, currency=balance.currency)))
    cites = _union(*[m.cites for m in movements], extra, expected.cites)
    return Reason(code=code, cites=cites, facts=tuple(facts))


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
    if waiting:
        return "pending", (_of_open("still_open", waiting),)
    last = max(attempts, key=lambda a: (a.ended_at or 0, a.reference, a.source))
    facts: Facts = (("attempt", last.reference), ("ended_at", last.ended_at), *last.reason.facts)
    code = "last_word_" + last.reason.code
    return _LAST_WORD[last.outcome], (Reason(code=code, cites=last.reason.cites, facts=facts),)


def _of_open(code: str, attempts: list[Attempt]) -> Reason:
    facts: Facts = (("attempts", len(attempts)), *attempts[0].reason.facts)
    return Reason(code=code, cites=_union(*[a.reason.cites for a in attempts]), facts=facts)


def _untried(case: Case) -> Decision:
    filed = case.filed
    canceled = filed.canceled
    if canceled is not None:
        return "canceled", (
            Reason(
                code="canceled_by_merchant",
                cites=(canceled.record_id,),
                facts=(("canceled_at", canceled.at),),
            ),
        )
    record = filed.placed or filed.fulfilled
    cites = (record.record_id,) if record is not None else ()
    return "not_attempted", (Reason(code="nothing_attempted", cites=cites),)
