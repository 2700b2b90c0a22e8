"""Observations on what the provider said: single events, and the claims on one attempt.

Leaves out: money, and the merchant's side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from reconcile.correlate import AttemptEvidence, Case, Heard
from reconcile.events import ClaimKind
from reconcile.instants import Instant
from reconcile.ledger import Attempt, Facts, Finding, new_finding
from reconcile.movements import cites_of, same_dispute
from reconcile.outcome import Judgement, shared_references

_FINAL: Final[tuple[ClaimKind, ...]] = ("succeeded", "declined", "canceled", "expired")
_EXCLUDED_BY_AUTHORIZED: Final[tuple[ClaimKind, ...]] = ("declined", "canceled", "expired")
_EXCLUDING: Final = frozenset((*_FINAL, "authorized", "dispute_won", "dispute_lost"))
"""Claims of which one attempt can truly have only one; of two of them some pairs get on."""

_GIVEN_UP: Final[tuple[ClaimKind, ...]] = ("timed_out", "expired")


# --- of single events ----------------------------------------------------------------------------


def of_events(case: Case, judgement: Judgement) -> list[Finding]:
    """`redelivered`, `delivered_late`, `dated_in_future`, `unrecognized_event`, in one pass."""
    found: list[Finding] = []
    late_after = case.policy.late_after
    tolerance = case.policy.future_tolerance
    for heard in case.heard:
        if heard.count > 1:
            found.append(_redelivered(heard))
        delay = heard.first - heard.at
        if delay > late_after and heard.event.standing != "fetched":  # nobody sent an answer late
            found.append(_delayed(heard))
        elif -delay > tolerance:
            found.append(_dated_ahead(heard))
        if heard.event.claim == "unrecognized":
            found.append(_unrecognized(heard))
    return found


def _redelivered(heard: Heard) -> Finding:
    facts: Facts = (("deliveries", heard.count),)
    return new_finding(code="redelivered", cites=(heard.event.event_id,), facts=facts)


def _delayed(heard: Heard) -> Finding:
    facts: Facts = (
        ("delay_us", heard.first - heard.at),
        ("occurred_at", heard.at),
        ("received_at", heard.first),
    )
    return new_finding(code="delivered_late", cites=(heard.event.event_id,), facts=facts)


def _dated_ahead(heard: Heard) -> Finding:
    facts: Facts = (("occurred_at", heard.at), ("received_at", heard.first))
    return new_finding(code="dated_in_future", cites=(heard.event.event_id,), facts=facts)


def _unrecognized(heard: Heard) -> Finding:
    facts: Facts = (("kind", heard.event.kind),)
    return new_finding(code="unrecognized_event", cites=(heard.event.event_id,), facts=facts)


def same_id_different_body(case: Case, judgement: Judgement) -> list[Finding]:
    """One event id came with several bodies; all are kept."""
    return [
        new_finding(
            code="same_id_different_body", cites=cites_of(group), facts=(("bodies", len(group)),)
        )
        for group in judgement.bodies
    ]


# --- of attempts ---------------------------------------------------------------------------------


def of_attempts(case: Case, judgement: Judgement) -> list[Finding]:
    """`out_of_order`, `contradictory_claims`, `success_after_deadline`, in one pass."""
    found: list[Finding] = []
    for evidence, attempt in zip(case.attempts, judgement.attempts, strict=True):
        claims = evidence.claims
        if len(evidence.heard) > 1 and _arrived_late(evidence.heard):
            found += _overtaken(evidence)
        if len(claims) > 1 and len(_EXCLUDING.intersection(claims)) > 1:
            found += _contradictions(evidence)
        captured = claims.get("succeeded")
        if captured is not None:
            found += _after_deadline(evidence, captured, attempt.deadline)
    return found


def _arrived_late(heard: list[Heard]) -> bool:
    """Whether any of them came before one that is dated earlier; equal dates have no order."""
    date: Instant = -1
    earlier = same = 0
    for each in heard:
        if each.at != date:
            earlier, same, date = max(earlier, same), 0, each.at
        if each.first < earlier:
            return True
        if each.first > same:
            same = each.first
    return False


def _overtaken(attempt: AttemptEvidence) -> Iterable[Finding]:
    """Each event that arrived before one dated earlier, and each that so came too late."""
    dated = [
        heard
        for heard in attempt.heard
        if heard.event.occurred_at is not None and heard.event.standing != "fetched"
    ]
    moved = _early(dated, latest=max) | _early(dated[::-1], latest=min)
    if moved:
        cites = cites_of([heard for heard in dated if id(heard) in moved])
        facts: Facts = (("attempt", attempt.reference),)
        yield new_finding(code="out_of_order", cites=cites, facts=facts)


def _early(heard: list[Heard], *, latest: Callable[[Instant, Instant], Instant]) -> set[int]:
    """The ids of those that do not continue the run of arrivals; equal dates have no order."""
    found: set[int] = set()
    reached: Instant | None = None
    for _, same in groupby(heard, key=lambda each: each.at):
        arrivals = list(same)
        if reached is not None:
            found |= {id(h) for h in arrivals if latest(h.first, reached) != h.first}
        for each in arrivals:
            reached = each.first if reached is None else latest(each.first, reached)
    return found


def _contradictions(attempt: AttemptEvidence) -> list[Finding]:
    """One attempt is said to have ended in ways that exclude each other."""
    found: list[Finding] = []
    claims = attempt.claims
    said = [claim for claim in _FINAL if claim in claims]
    if "authorized" in claims and "succeeded" not in claims:
        said = ["authorized", *[claim for claim in _EXCLUDED_BY_AUTHORIZED if claim in claims]]
    if len(said) > 1:
        heard = [h for claim in said for h in claims[claim]]
        found.append(_contradiction(attempt, ", ".join(said), heard))
    won, lost = claims.get("dispute_won", ()), claims.get("dispute_lost", ())
    both = [(w, x) for w in won for x in lost if same_dispute(w, x)] if won and lost else []
    if both:
        heard = [h for pair in both for h in pair]
        found.append(_contradiction(attempt, "dispute_won, dispute_lost", heard))
    return found


def _contradiction(attempt: AttemptEvidence, said: str, heard: list[Heard]) -> Finding:
    facts: Facts = (("attempt", attempt.reference), ("claims", said))
    return new_finding(code="contradictory_claims", cites=cites_of(heard), facts=facts)


def _after_deadline(
    evidence: AttemptEvidence, captured: list[Heard], deadline: Instant | None
) -> list[Finding]:
    """Money moved, or was first known to have moved, after the attempt had been given up."""
    known = captured[0].first if len(captured) == 1 else min([h.first for h in captured])
    if captured[0].event.standing == "fetched":
        # Not given up: the provider was being asked since the unconfirmed word came.
        told = [h.first for h in evidence.heard if h.event.standing == "unconfirmed"]
        known = min([known, *told])
    happened = captured[0].at
    late = deadline is not None and (known >= deadline or happened >= deadline)
    reported: list[Heard] = []
    for claim in _GIVEN_UP:
        if claim in evidence.claims:
            reported += [heard for heard in evidence.claims[claim] if heard.at < happened]
    if not (late or reported):
        return []
    facts: Facts = (
        ("attempt", evidence.reference),
        ("occurred_at", happened),
        ("received_at", known),
        ("deadline_at", deadline),
    )
    cites = cites_of([*captured, *reported])
    return [new_finding(code="success_after_deadline", cites=cites, facts=facts)]


def recovered_on_later_attempt(case: Case, judgement: Judgement) -> list[Finding]:
    """Paid, after an earlier attempt had failed."""
    attempts = judgement.attempts
    if len(attempts) < 2:
        return []
    paid = [a for a in attempts if a.outcome == "succeeded"]
    if not paid or len(attempts) == len(paid):
        return []
    first = min(paid, key=_end) if len(paid) > 1 else paid[0]
    end = first.ended_at or 0
    failed = [a for a in attempts if a.outcome != "succeeded" and 0 < (a.ended_at or 0) <= end]
    if not failed:
        return []
    cites = tuple(dict.fromkeys([c for a in [*failed, first] for c in a.reason.cites]))
    facts: Facts = (("attempt", first.reference), ("failed", len(failed)))
    return [new_finding(code="recovered_on_later_attempt", cites=cites, facts=facts)]


def _end(attempt: Attempt) -> tuple[Instant, str]:
    return (attempt.ended_at or 0, attempt.reference)


def shared_with_other_order(case: Case, judgement: Judgement) -> list[Finding]:
    """One payment or session is claimed for two orders: `contradictory_claims` across orders."""
    return [
        new_finding(
            code="contradictory_claims",
            cites=shared.cites,
            facts=(("attempt", shared.attempt.reference), ("claims", "of this order, of another")),
        )
        for shared in shared_references(case)
    ]
