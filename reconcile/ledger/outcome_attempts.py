"""Decide the outcome of one payment attempt."""

from typing import Final

from reconcile.instants import DAY, LATEST, Duration, Instant
from reconcile.ledger.correlate import AttemptEvidence, Case, Heard, by_date, cites_of
from reconcile.ledger.events import ANSWERS, UNKNOWN_METHOD, ClaimKind
from reconcile.ledger.ledger import OVERDUE, Attempt, AttemptOutcome, Facts, Reason

RANKED: Final[tuple[AttemptOutcome, ...]] = (
    "succeeded",
    "authorized",
    "declined",
    "canceled",
    "expired",
    "timed_out",
)
"""Claims that decide an attempt, the strongest first."""

_RELEASES: Final[tuple[ClaimKind, ...]] = ("declined", "canceled", "reversed", "expired")

LONGEST_WINDOW: Final[Duration] = 60 * DAY
"""Maximum time for which a slow payment keeps an attempt open.

A date from the provider could keep an order open for ever.
"""

_SAYS: Final[dict[AttemptOutcome, str]] = {outcome: "event_says_" + outcome for outcome in RANKED}


def decide_attempt(evidence: AttemptEvidence, case: Case) -> Attempt:
    """Decide an attempt by its strongest claim or its deadline."""
    claims = evidence.claims
    for outcome in RANKED:
        stated = claims.get(outcome)
        if outcome == "canceled" and "reversed" in claims:
            stated = sorted([*(stated or ()), *claims["reversed"]], key=by_date)
        if stated is None or (outcome == "authorized" and _released(evidence, stated)):
            continue
        facts: Facts = ()
        for each in stated:
            if each.event.reason is not None:
                facts = (("reason", each.event.reason),)
        # Events are sorted by date: a success counts from its first, any other end from its last.
        ended = None if outcome == "authorized" else stated[0 if outcome == "succeeded" else -1].at
        code, rests_on = _SAYS[outcome], stated
        if outcome in ("canceled", "expired") and "authorized" in claims:
            code = "event_says_released"
            rests_on = [h for claim in ("authorized", *_RELEASES) for h in claims.get(claim, ())]
        cites = cites_of(evidence.tied(rests_on))
        return Attempt(
            source=evidence.source,
            reference=evidence.reference,
            outcome=outcome,
            reason=Reason(code=code, cites=cites, facts=facts),
            deadline=deadline_of(evidence, case),
            ended_at=ended,
            method=_method(evidence),
            revocable_until=_revocable_until(evidence, stated) if outcome == "succeeded" else None,
        )
    return _undecided(evidence, case)


def _slow(evidence: AttemptEvidence) -> list[Heard]:
    if not evidence.slow:
        return []
    return [h for h in evidence.claims.get("pending", ()) if h.event.method is not None]


def _slow_until(heard: Heard) -> Instant:
    latest = heard.first + LONGEST_WINDOW
    expected = heard.event.expected_by
    return latest if expected is None else min(expected, latest)


def _method(evidence: AttemptEvidence) -> str | None:
    if not evidence.slow:
        return None
    named = [h.event.method for h in evidence.heard if h.event.method is not None]
    known = [each for each in named if each != UNKNOWN_METHOD]
    return known[-1] if known else next(iter(named), None)


def _revocable_until(evidence: AttemptEvidence, captures: list[Heard]) -> Instant | None:
    if not evidence.slow:
        return None
    spans = [h for h in evidence.heard if h.event.revocable_days is not None]
    known = [h for h in spans if h.event.method != UNKNOWN_METHOD]
    days = [h.event.revocable_days or 0 for h in known or spans]
    return min(captures[-1].at + max(days) * DAY, LATEST) if days else None


def _released(evidence: AttemptEvidence, reserved: list[Heard]) -> bool:
    if any(each.event.occurred_at is None for each in reserved):
        return False
    ends = [h for claim in _RELEASES for h in evidence.claims.get(claim, ())]
    return any(h.event.occurred_at is not None and h.at > reserved[-1].at for h in ends)


def _undecided(evidence: AttemptEvidence, case: Case) -> Attempt:
    files = evidence.files
    refused = [file.refused for file in files if file.refused is not None and file.opened is None]
    if files and not evidence.heard and len(refused) == len(files):
        last = max(refused, key=lambda record: (record.at, record.record_id))
        return Attempt(
            source=evidence.source,
            reference=evidence.reference,
            outcome="declined",
            reason=Reason(
                code="session_refused",
                cites=tuple(record.record_id for record in refused),
                facts=(("reason", last.reason),),
            ),
            ended_at=last.at,
        )
    method, slow = _method(evidence), _slow(evidence)
    expected_by = max([_slow_until(each) for each in slow], default=None)
    asked = max([each.first for each in evidence.unconfirmed], default=-1)
    answers = [each.first for each in evidence.heard if each.event.standing in ANSWERS]
    if asked > max(answers, default=-1):
        # No deadline: the provider may know the end already, and is being asked.
        return Attempt(
            source=evidence.source,
            reference=evidence.reference,
            outcome="pending",
            reason=Reason(code="awaiting_confirmation", cites=all_cites(evidence), facts=()),
            method=method,
            expected_by=expected_by,
        )
    deadline = deadline_of(evidence, case)
    over = deadline is not None and case.as_of >= deadline
    code = "no_final_event_by_deadline" if over else "waiting_for_final_event"
    if over and slow:
        code = OVERDUE  # the money may still come: only the provider knows
    return Attempt(
        source=evidence.source,
        reference=evidence.reference,
        outcome="timed_out" if over and not slow else "pending",
        reason=Reason(code=code, cites=all_cites(evidence), facts=(("deadline_at", deadline),)),
        deadline=deadline,
        ended_at=deadline if over and not slow else None,
        method=method,
        expected_by=deadline if slow else None,
    )


def all_cites(evidence: AttemptEvidence) -> tuple[str, ...]:
    records = [record.record_id for file in evidence.files for record in file.records()]
    return cites_of([*evidence.heard, *evidence.unconfirmed]) + tuple(records)


def deadline_of(evidence: AttemptEvidence, case: Case) -> Instant | None:
    """Return the instant at which an attempt's waiting ends."""
    heard, grace = evidence.heard, case.policy.grace
    window = case.policy.payment_window + grace
    opened = [file.opened for file in evidence.files if file.opened is not None]
    slow = _slow(evidence)
    if opened:
        ends = [
            r.at + window if r.expires_at is None or slow else r.expires_at + grace for r in opened
        ]
        end = max(ends)
    elif heard:
        first = heard[0]
        begun = first.at
        if begun - first.first > case.policy.future_tolerance:
            # A date too far ahead of its arrival can't hold the attempt open.
            begun = min([each.first for each in heard])
        end = begun + window
    else:
        requests = [record.at for file in evidence.files for record in file.records()[:1]]
        if not requests:
            return None
        end = max(requests) + window
    if slow:
        end = max([end, *[_slow_until(each) for each in slow]])
    return min(end, LATEST)  # providers write the end of the calendar for "never"
