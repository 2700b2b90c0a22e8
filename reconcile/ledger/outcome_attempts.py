"""Judges one attempt: its highest-ranked claim, else whether its deadline has passed.

Leaves out: money. What an attempt is said to have done to the order is `outcome`'s.
"""

from __future__ import annotations

from typing import Final

from reconcile.instants import LATEST, Duration, Instant
from reconcile.ledger.correlate import AttemptEvidence, Case, Heard, SessionFile, by_date, cites_of
from reconcile.ledger.events import ANSWERS, ClaimKind
from reconcile.ledger.ledger import Attempt, AttemptOutcome, Facts, new_attempt, new_reason

RANKED: Final[tuple[AttemptOutcome, ...]] = (
    "succeeded",
    "authorized",
    "declined",
    "canceled",
    "expired",
    "timed_out",
)
"""An attempt is what its highest-ranked claim says, whenever that claim came."""

_RELEASES: Final[tuple[ClaimKind, ...]] = ("declined", "canceled", "reversed", "expired")
"""What ends a reservation of money, where the provider dates it after it."""

_SAYS: Final[dict[AttemptOutcome, str]] = {outcome: "event_says_" + outcome for outcome in RANKED}


def decide_attempt(evidence: AttemptEvidence, case: Case) -> Attempt:
    """The highest-ranked claim; with no final one, the deadline; with neither, pending.

    A reversal where nothing was captured is a cancellation.
    """
    claims = evidence.claims
    for outcome in RANKED:
        stated = claims.get(outcome)
        if outcome == "canceled" and "reversed" in claims:
            stated = sorted([*(stated or ()), *claims["reversed"]], key=by_date)
        if stated is not None and not (outcome == "authorized" and _released(evidence, stated)):
            return _claimed(evidence, outcome, stated, deadline=deadline_of(evidence, case))
    if not evidence.heard and _all_refused(evidence.files):
        return _refused(evidence)
    return _waiting(evidence, case)


def _released(evidence: AttemptEvidence, reserved: list[Heard]) -> bool:
    """Whether the reservation ended: both dates are the provider's, and the end's is later."""
    if any(each.event.occurred_at is None for each in reserved):
        return False
    ends = [h for claim in _RELEASES for h in evidence.claims.get(claim, ())]
    return any(h.event.occurred_at is not None and h.at > reserved[-1].at for h in ends)


def _claimed(
    evidence: AttemptEvidence,
    outcome: AttemptOutcome,
    stated: list[Heard],
    *,
    deadline: Instant | None,
) -> Attempt:
    facts: Facts = ()
    for each in stated:
        if each.event.reason is not None:
            facts = (("reason", each.event.reason),)
    return new_attempt(
        source=evidence.source,
        reference=evidence.reference,
        outcome=outcome,
        reason=new_reason(code=_SAYS[outcome], cites=cites_of(evidence.tied(stated)), facts=facts),
        deadline=deadline,
        ended_at=_ended(outcome, stated),
    )


def _ended(outcome: AttemptOutcome, stated: list[Heard]) -> Instant | None:
    """The date of the final word. `said` is by date: success counts from its first mention."""
    if outcome == "authorized":
        return None
    return stated[0 if outcome == "succeeded" else -1].at


def _all_refused(files: list[SessionFile]) -> bool:
    return bool(files) and all(f.refused is not None and f.opened is None for f in files)


def _refused(evidence: AttemptEvidence) -> Attempt:
    records = [file.refused for file in evidence.files if file.refused is not None]
    last = max(records, key=lambda record: (record.at, record.record_id))
    return new_attempt(
        source=evidence.source,
        reference=evidence.reference,
        outcome="declined",
        reason=new_reason(
            code="session_refused",
            cites=tuple(record.record_id for record in records),
            facts=(("reason", last.reason),),
        ),
        ended_at=last.at,
    )


def _waiting(evidence: AttemptEvidence, case: Case) -> Attempt:
    if _unconfirmed(evidence):
        return new_attempt(
            source=evidence.source,
            reference=evidence.reference,
            outcome="pending",
            reason=new_reason(code="awaiting_confirmation", cites=all_cites(evidence), facts=()),
        )
    deadline = deadline_of(evidence, case)
    over = deadline is not None and case.as_of >= deadline
    code = "no_final_event_by_deadline" if over else "waiting_for_final_event"
    return new_attempt(
        source=evidence.source,
        reference=evidence.reference,
        outcome="timed_out" if over else "pending",
        reason=new_reason(code=code, cites=all_cites(evidence), facts=(("deadline_at", deadline),)),
        deadline=deadline,
        ended_at=deadline if over else None,
    )


def _unconfirmed(evidence: AttemptEvidence) -> bool:
    """Whether the provider said something that its own answer, heard since, has not settled.

    Such an attempt has no deadline: what ended it may be known already, and is being asked for.
    """
    unconfirmed = [each.first for each in evidence.unconfirmed]
    if not unconfirmed:
        return False
    answers = [each.first for each in evidence.heard if each.event.standing in ANSWERS]
    return max(unconfirmed) > max(answers, default=-1)


def all_cites(evidence: AttemptEvidence) -> tuple[str, ...]:
    """The ids of every event and record that speaks of the attempt."""
    records = [record.record_id for file in evidence.files for record in file.records()]
    return cites_of([*evidence.heard, *evidence.unconfirmed]) + tuple(records)


def deadline_of(evidence: AttemptEvidence, case: Case) -> Instant | None:
    """The session's own expiry if the service gave one, else its opening (or the first known
    date, or the request for it) and the policy's window; and the grace, in which the final event
    may still be on its way. Services write the end of the calendar for a session that never ends:
    no deadline lies beyond it."""
    awaited = _awaited_until(evidence, case)
    return None if awaited is None else min(awaited, LATEST)


def _awaited_until(evidence: AttemptEvidence, case: Case) -> Instant | None:
    grace = case.policy.grace
    window = case.policy.payment_window + grace
    if evidence.heard and not evidence.files:
        return _first_known(evidence.heard, case) + window
    ends = [end for file in evidence.files if (end := _end_of(file, window, grace)) is not None]
    if ends:
        return max(ends)
    if evidence.heard:
        return _first_known(evidence.heard, case) + window
    requests = [record.at for file in evidence.files for record in file.records()[:1]]
    return max(requests) + window if requests else None


def _end_of(file: SessionFile, window: Duration, grace: Duration) -> Instant | None:
    opened = file.opened
    if opened is None:
        return None
    return opened.at + window if opened.expires_at is None else opened.expires_at + grace


def _first_known(heard: list[Heard], case: Case) -> Instant:
    """The earliest date; a date too far ahead of its arrival cannot hold the attempt open."""
    first = heard[0]
    if first.at - first.first > case.policy.future_tolerance:
        return min([each.first for each in heard])
    return first.at
