"""Observations on a ledger: each check is one small function, and CHECKS is all of them.

Leaves out: deciding. A finding never changes an outcome; it says what a person should know.
Every check is a function of the Case and its Judgement, so findings do not depend on arrival
order any more than outcomes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reconcile.correlate import AttemptEvidence, Case, Heard
from reconcile.events import ClaimKind
from reconcile.instants import Instant
from reconcile.ledger import FINDING_CODES, Facts, Finding
from reconcile.money import Money, exponent_of
from reconcile.movements import Movement, cites_of
from reconcile.outcome import (
    Judgement,
    contradicting_bodies,
    paid_several_times,
    shared_references,
)

Check = Callable[[Case, Judgement], Iterable[Finding]]

_FINAL: Final[tuple[ClaimKind, ...]] = ("succeeded", "declined", "canceled", "expired")
_EXCLUDED_BY_AUTHORIZED: Final[tuple[ClaimKind, ...]] = ("declined", "canceled", "expired")


def find(case: Case, judgement: Judgement) -> tuple[Finding, ...]:
    """Every finding, in the order of the vocabulary, then as the checks yield them."""
    found: list[Finding] = []
    for check in CHECKS:
        found += check(case, judgement)
    if len(found) > 1:
        found.sort(key=_place)
    return tuple(found)


def _place(finding: Finding) -> int:
    return _PLACES[finding.code]


_PLACES: Final = {code: place for place, code in enumerate(FINDING_CODES)}


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
        if delay > late_after:
            found.append(_delayed(heard))
        elif -delay > tolerance:
            found.append(_dated_ahead(heard))
        if heard.event.claim == "unrecognized":
            found.append(_unrecognized(heard))
    return found


def _redelivered(heard: Heard) -> Finding:
    facts: Facts = (("deliveries", heard.count),)
    return Finding(code="redelivered", cites=(heard.event.event_id,), facts=facts)


def _delayed(heard: Heard) -> Finding:
    facts: Facts = (
        ("delay_us", heard.first - heard.at),
        ("occurred_at", heard.at),
        ("received_at", heard.first),
    )
    return Finding(code="delivered_late", cites=(heard.event.event_id,), facts=facts)


def _dated_ahead(heard: Heard) -> Finding:
    facts: Facts = (("occurred_at", heard.at), ("received_at", heard.first))
    return Finding(code="dated_in_future", cites=(heard.event.event_id,), facts=facts)


def _unrecognized(heard: Heard) -> Finding:
    facts: Facts = (("kind", heard.event.kind),)
    return Finding(code="unrecognized_event", cites=(heard.event.event_id,), facts=facts)


def same_id_different_body(case: Case, judgement: Judgement) -> list[Finding]:
    """One event id came with several bodies; all are kept."""
    return [
        Finding(
            code="same_id_different_body", cites=cites_of(group), facts=(("bodies", len(group)),)
        )
        for group in contradicting_bodies(case)
    ]


# --- of attempts ---------------------------------------------------------------------------------


def out_of_order(case: Case, judgement: Judgement) -> list[Finding]:
    """Within an attempt, an event reached us before one that is dated earlier."""
    found: list[Finding] = []
    for attempt in case.attempts:
        heard = attempt.heard
        overtaken = [
            (before, after)
            for before, after in zip(heard, heard[1:], strict=False)
            if after.first < before.first and before.at < after.at
        ]
        if overtaken:
            cites = cites_of([h for pair in overtaken for h in pair])
            facts: Facts = (("attempt", attempt.reference),)
            found.append(Finding(code="out_of_order", cites=cites, facts=facts))
    return found


def contradictory_claims(case: Case, judgement: Judgement) -> list[Finding]:
    """One attempt is said to have ended in ways that exclude each other."""
    found: list[Finding] = []
    for attempt in case.attempts:
        if len(attempt.claims) > 1:
            found += _contradictions(attempt)
    return found


def _contradictions(attempt: AttemptEvidence) -> Iterable[Finding]:
    claims = attempt.claims
    said = [claim for claim in _FINAL if claim in claims]
    if len(said) < 2 and "authorized" in claims:
        said += [claim for claim in _EXCLUDED_BY_AUTHORIZED if claim in claims]
        said = ["authorized", *dict.fromkeys(said)] if "succeeded" not in said else []
    if "dispute_won" in claims and "dispute_lost" in claims:
        said += ["dispute_won", "dispute_lost"]
    if len(said) > 1:
        cites = cites_of([h for claim in said for h in claims[claim]])
        facts: Facts = (("attempt", attempt.reference), ("claims", ", ".join(said)))
        yield Finding(code="contradictory_claims", cites=cites, facts=facts)


def success_after_deadline(case: Case, judgement: Judgement) -> list[Finding]:
    """Money moved, or was first known to have moved, after the attempt had been given up."""
    found: list[Finding] = []
    for evidence, attempt in zip(case.attempts, judgement.attempts, strict=True):
        captured = evidence.claims.get("succeeded")
        if captured is not None:
            found += _after_deadline(evidence, captured, attempt.deadline)
    return found


def _after_deadline(
    evidence: AttemptEvidence, captured: list[Heard], deadline: Instant | None
) -> Iterable[Finding]:
    known = min([heard.first for heard in captured])
    happened = min([heard.at for heard in captured])
    given_up = [h for claim in ("timed_out", "expired") for h in evidence.claims.get(claim, ())]
    reported = [heard for heard in given_up if heard.at < happened]
    late = deadline is not None and max(known, happened) >= deadline
    if late or reported:
        facts: Facts = (
            ("attempt", evidence.reference),
            ("occurred_at", happened),
            ("received_at", known),
            ("deadline_at", deadline),
        )
        cites = cites_of([*captured, *reported])
        yield Finding(code="success_after_deadline", cites=cites, facts=facts)


def recovered_on_later_attempt(case: Case, judgement: Judgement) -> list[Finding]:
    """Paid, after an earlier attempt had failed."""
    attempts = judgement.attempts
    paid = [a for a in attempts if a.outcome == "succeeded"]
    if not paid or len(attempts) == len(paid):
        return []
    first = min(paid, key=lambda a: (a.ended_at or 0, a.reference))
    failed = [
        a
        for a in attempts
        if a.ended_at is not None
        and a.outcome != "succeeded"
        and a.ended_at <= (first.ended_at or 0)
    ]
    if not failed:
        return []
    cites = tuple(dict.fromkeys([c for a in [*failed, first] for c in a.reason.cites]))
    facts: Facts = (("attempt", first.reference), ("failed", len(failed)))
    return [Finding(code="recovered_on_later_attempt", cites=cites, facts=facts)]


# --- of movements --------------------------------------------------------------------------------


def semantic_duplicate(case: Case, judgement: Judgement) -> list[Finding]:
    """Several events, each with its own id, state one movement of money."""
    found: list[Finding] = []
    for movement in judgement.movements:
        if len(movement.heard) > 1 and len(movement.cites) > 1:
            facts: Facts = (
                ("attempt", movement.attempt.reference),
                ("movement", movement.kind),
                ("events", len(movement.cites)),
            )
            found.append(Finding(code="semantic_duplicate", cites=movement.cites, facts=facts))
    return found


def conflicting_amounts(case: Case, judgement: Judgement) -> list[Finding]:
    """Events state different amounts for one movement."""
    found: list[Finding] = []
    for movement in judgement.movements:
        if len(movement.stated) > 1:
            facts: Facts = (
                ("attempt", movement.attempt.reference),
                ("movement", movement.kind),
                *((f"amount_{n}", money) for n, money in enumerate(movement.stated, 1)),
            )
            found.append(Finding(code="conflicting_amounts", cites=movement.cites, facts=facts))
    return found


def captures(case: Case, judgement: Judgement) -> list[Finding]:
    """`paid_twice`, `amount_mismatch`, `amount_off_by_minor_unit`, `currency_mismatch`."""
    captured = [m for m in judgement.movements if m.kind == "captured"]
    expected = judgement.expected
    if not captured or (expected.money is None and not expected.stated):
        return []
    if expected.money is None:
        return [_mismatch("amount_mismatch", judgement, captured)]
    if any(m.money is None for m in captured):
        return _unstated(judgement, captured)
    if any(m.money and m.money.currency != expected.money.currency for m in captured):
        return [_mismatch("currency_mismatch", judgement, captured)]
    total = sum([m.money.minor for m in captured if m.money is not None])
    if total == expected.money.minor:
        return []
    if paid_several_times(judgement):
        return _paid_twice(judgement, captured, expected.money)
    return _amount_mismatches(judgement, captured, total)


def _unstated(judgement: Judgement, captured: list[Movement]) -> list[Finding]:
    silent = [m for m in captured if not m.stated]
    return [_mismatch("amount_mismatch", judgement, silent)] if silent else []


def _paid_twice(judgement: Judgement, captured: list[Movement], expected: Money) -> list[Finding]:
    balance = judgement.balances[0]
    owed = balance.captured - balance.refunded - expected.minor
    if owed <= 0:
        return []
    facts: Facts = (
        ("times", len(captured)),
        ("expected", expected),
        ("owed", Money(minor=owed, currency=expected.currency)),
    )
    cites = tuple(dict.fromkeys([c for m in captured for c in m.cites]))
    return [Finding(code="paid_twice", cites=cites, facts=facts)]


def _amount_mismatches(judgement: Judgement, captured: list[Movement], total: int) -> list[Finding]:
    found = [_mismatch("amount_mismatch", judgement, captured)]
    expected = judgement.expected.money
    assert expected is not None
    factor = 10 ** exponent_of(expected.currency)
    if factor > 1 and (total == expected.minor * factor or total * factor == expected.minor):
        found.append(_mismatch("amount_off_by_minor_unit", judgement, captured))
    return found


def _mismatch(code: str, judgement: Judgement, captured: list[Movement]) -> Finding:
    expected = judgement.expected
    facts: list[tuple[str, Money | str | int | None]] = [("expected", expected.money)]
    facts += [(f"stated_{n}", money) for n, money in enumerate(expected.stated, 1)]
    facts += [
        ("captured", Money(minor=balance.captured, currency=balance.currency))
        for balance in judgement.balances
        if balance.captured
    ]
    cites = [c for m in captured for c in m.cites] + list(expected.cites)
    return Finding(code=code, cites=tuple(dict.fromkeys(cites)), facts=tuple(facts))  # type: ignore[arg-type]


def refunds(case: Case, judgement: Judgement) -> list[Finding]:
    """`refund_without_payment` and `refund_exceeds_capture`."""
    returned = [m for m in judgement.movements if m.kind != "captured"]
    if not returned:
        return []
    cites = tuple(dict.fromkeys([c for m in returned for c in m.cites]))
    if len(returned) == len(judgement.movements):
        return [Finding(code="refund_without_payment", cites=cites)]
    return [
        Finding(
            code="refund_exceeds_capture",
            cites=cites,
            facts=(
                ("captured", Money(minor=b.captured, currency=b.currency)),
                ("refunded", Money(minor=b.refunded, currency=b.currency)),
            ),
        )
        for b in judgement.balances
        if b.refunded > b.captured
    ]


# --- of the merchant's side ----------------------------------------------------------------------


def order_unknown(case: Case, judgement: Judgement) -> list[Finding]:
    """The provider speaks of an order that nobody on the merchant's side has spoken of."""
    filed = case.filed
    if not case.heard or filed.placed or filed.sessions or filed.canceled or filed.fulfilled:
        return []
    return [Finding(code="order_unknown", cites=(case.heard[0].event.event_id,))]


def session_unknown(case: Case, judgement: Judgement) -> list[Finding]:
    """A session was asked for and no answer has come."""
    return [
        Finding(
            code="session_unknown",
            cites=(file.unknown.record_id,),
            facts=(("key", file.unknown.key),),
        )
        for file in case.filed.sessions.values()
        if file.unknown is not None and file.opened is None and file.refused is None
    ]


def fulfillable_since(case: Case, judgement: Judgement) -> Instant:
    """When we first could know that the whole order was paid: the last piece's arrival."""
    pieces = [min([h.first for h in m.heard]) for m in judgement.movements if m.kind == "captured"]
    if case.filed.placed is not None:
        pieces.append(case.filed.placed.recorded_at)
    return max(pieces, default=0)


def fulfillment_deadline(case: Case, judgement: Judgement) -> Instant | None:
    """When an order that is paid and not fulfilled becomes a finding; None where it cannot."""
    filed = case.filed
    window = case.policy.fulfillment_window
    if window is None or filed.placed is None or filed.fulfilled or filed.canceled:
        return None
    if judgement.outcome != "succeeded":
        return None
    return fulfillable_since(case, judgement) + window


def paid_but_not_fulfilled(case: Case, judgement: Judgement) -> list[Finding]:
    """Paid in full for a good while, and the shop has not said that it delivered."""
    if case.filed.placed is None:
        return []
    deadline = fulfillment_deadline(case, judgement)
    if deadline is None or case.as_of < deadline:
        return []
    facts: Facts = (("fulfillable_at", fulfillable_since(case, judgement)), ("due_at", deadline))
    cites = judgement.reasons[0].cites
    return [Finding(code="paid_but_not_fulfilled", cites=cites, facts=facts)]


_PAID_ONCE: Final = frozenset(("succeeded", "refunded", "partially_refunded", "disputed"))


def fulfilled_but_not_paid(case: Case, judgement: Judgement) -> list[Finding]:
    """The shop says that it delivered, and the money for the order has not come."""
    fulfilled = case.filed.fulfilled
    if fulfilled is None or judgement.outcome in _PAID_ONCE:
        return []
    cites = (fulfilled.record_id, *judgement.reasons[0].cites)
    facts: Facts = (("fulfilled_at", fulfilled.at), ("outcome", judgement.outcome))
    return [Finding(code="fulfilled_but_not_paid", cites=cites, facts=facts)]


def paid_after_cancel(case: Case, judgement: Judgement) -> list[Finding]:
    """Money moved after the shop had canceled the order."""
    canceled = case.filed.canceled
    if canceled is None:
        return []
    late = [
        heard
        for movement in judgement.movements
        if movement.kind == "captured"
        for heard in movement.heard
        if heard.at > canceled.at
    ]
    if not late:
        return []
    facts: Facts = (("canceled_at", canceled.at), ("occurred_at", late[0].at))
    cites = (canceled.record_id, *cites_of(late))
    return [Finding(code="paid_after_cancel", cites=cites, facts=facts)]


def shared_with_other_order(case: Case, judgement: Judgement) -> list[Finding]:
    """One payment or session is claimed for two orders: `contradictory_claims` across orders."""
    return [
        Finding(
            code="contradictory_claims",
            cites=cites_of(heard),
            facts=(("attempt", reference), ("claims", "two orders")),
        )
        for reference, heard in shared_references(case)
    ]


CHECKS: Final[tuple[Check, ...]] = (
    of_events,
    semantic_duplicate,
    out_of_order,
    recovered_on_later_attempt,
    success_after_deadline,
    contradictory_claims,
    shared_with_other_order,
    order_unknown,
    session_unknown,
    refunds,
    paid_but_not_fulfilled,
    same_id_different_body,
    conflicting_amounts,
    captures,
    fulfilled_but_not_paid,
    paid_after_cancel,
)
"""Every check. A new finding is one function here, its code in `ledger`, its words in `reasons`."""
