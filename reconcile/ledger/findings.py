"""Find unusual facts about an order. A finding never changes the outcome."""

from collections.abc import Callable, Iterable
from itertools import groupby, pairwise
from typing import Final

from reconcile.instants import EARLIEST, LATEST, TICK, Instant
from reconcile.ledger import findings_money
from reconcile.ledger.correlate import NOTHING_FILED, AttemptEvidence, Case, Heard, cites_of
from reconcile.ledger.doubt import cancellations_after, names_attempt, shared_references
from reconcile.ledger.events import ANSWERS, ClaimKind
from reconcile.ledger.ledger import Facts, Finding
from reconcile.ledger.movements import Payment, movement_date
from reconcile.ledger.outcome import Judgement, standing
from reconcile.ledger.records import MAYBE_OTHERS, STILL_ASKING, RecordKind
from reconcile.ledger.vocabulary import FINDING_CODES

_FINAL: Final[tuple[ClaimKind, ...]] = ("declined", "canceled", "expired")
_EXCLUDING: Final = frozenset((*_FINAL, "succeeded", "authorized", "dispute_won", "dispute_lost"))
"""Claims of events that can contradict each other on one attempt."""

_GIVEN_UP: Final[tuple[ClaimKind, ...]] = ("timed_out", "expired")


# --- findings about single events -----------------------------------------------------------------


def of_events(case: Case, judgement: Judgement) -> list[Finding]:
    """Find late, repeated, future-dated and unknown events."""
    found: list[Finding] = []
    late_after = case.policy.late_after
    tolerance = case.policy.future_tolerance
    for heard in case.heard:
        event, dated, first = heard.event, heard.at, heard.first
        facts: Facts
        if heard.count > 1:
            facts = (("deliveries", heard.count),)
            found.append(Finding(code="redelivered", cites=(event.event_id,), facts=facts))
        delay = first - dated
        if delay > late_after and event.standing not in ANSWERS:  # an answer is never late
            facts = (("delay_us", delay), ("occurred_at", dated), ("received_at", first))
            found.append(Finding(code="delivered_late", cites=(event.event_id,), facts=facts))
        elif -delay > tolerance:
            facts = (("occurred_at", dated), ("received_at", first))
            found.append(Finding(code="dated_in_future", cites=(event.event_id,), facts=facts))
        if event.claim == "unrecognized":
            facts, cites = (("kind", event.kind),), (event.event_id,)
            found.append(Finding(code="unrecognized_event", cites=cites, facts=facts))
    return found


def same_id_different_body(case: Case, judgement: Judgement) -> list[Finding]:
    return [
        Finding(
            code="same_id_different_body", cites=cites_of(group), facts=(("bodies", len(group)),)
        )
        for group in judgement.bodies
    ]


# --- findings about attempts ----------------------------------------------------------------------


def of_attempts(case: Case, judgement: Judgement) -> list[Finding]:
    """Find events out of order, contradicting claims, and successes after the deadline."""
    found: list[Finding] = []
    for evidence, attempt in zip(case.attempts, judgement.attempts, strict=True):
        claims = evidence.claims
        if len(evidence.heard) > 1 and _arrived_late(evidence.heard):
            dated = [
                heard
                for heard in evidence.heard
                if heard.event.occurred_at is not None and heard.event.standing not in ANSWERS
            ]
            moved = _early(dated, latest=max) | _early(dated[::-1], latest=min)
            if moved:
                cites = cites_of([heard for heard in dated if id(heard) in moved])
                facts: Facts = (("attempt", evidence.reference),)
                found.append(Finding(code="out_of_order", cites=cites, facts=facts))
        if len(claims) > 1 and len(_EXCLUDING.intersection(claims)) > 1:
            found += _contradictions(evidence)
            found += _recovered(evidence)
        captured = claims.get("succeeded")
        if captured is not None:
            found += _after_deadline(evidence, captured, attempt.deadline)
    return found


def _arrived_late(heard: list[Heard]) -> bool:
    date = EARLIEST - TICK
    earlier = same = 0
    for each in heard:
        if each.at != date:
            earlier, same, date = max(earlier, same), 0, each.at
        if each.first < earlier:
            return True
        if each.first > same:
            same = each.first
    return False


def _early(heard: list[Heard], *, latest: Callable[[Instant, Instant], Instant]) -> set[int]:
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
    claims = attempt.claims
    found: list[Finding] = []
    against: dict[str, list[Heard]]
    if "succeeded" in claims:
        captured = claims["succeeded"]
        against = {
            "succeeded": captured,
            "declined": [h for h in claims.get("declined", ()) if _after_all(h, captured)],
            "canceled": cancellations_after(attempt),
            "expired": claims.get("expired", []),
        }
    else:
        against = {claim: claims.get(claim, []) for claim in ("authorized", *_FINAL)}
        reserved = against["authorized"]
        if reserved:
            # An end that the provider dates after the reservation has released the reservation.
            for claim in _FINAL:
                if any(_after_all(end, reserved) for end in against[claim]):
                    del against[claim]
    against = {claim: heard for claim, heard in against.items() if heard}
    if len(against) > 1:
        found.append(
            _contradiction(
                attempt, ", ".join(against), [h for group in against.values() for h in group]
            )
        )
    won, lost = claims.get("dispute_won", ()), claims.get("dispute_lost", ())
    both = [h for w in won for x in lost if _same_end(w, x) for h in (w, x)]
    if both:
        found.append(_contradiction(attempt, "dispute_won, dispute_lost", both))
    return found


def _after_all(heard: Heard, captured: list[Heard]) -> bool:
    compared = [heard, *captured]
    if any(each.event.occurred_at is None for each in compared):
        return False
    return heard.at > max([each.at for each in captured])


def _same_end(won: Heard, lost: Heard) -> bool:
    names = (won.event.movement, lost.event.movement)
    if None not in names and names[0] != names[1]:
        return False
    return None in (won.event.occurred_at, lost.event.occurred_at) or won.at == lost.at


def _recovered(attempt: AttemptEvidence) -> list[Finding]:
    captured = attempt.claims.get("succeeded")
    declined = attempt.claims.get("declined")
    if captured is None or declined is None:
        return []
    last = max([(h.event.occurred_at is not None, h.at) for h in captured])
    tries = [h for h in declined if h.event.occurred_at is not None and last[0] and h.at <= last[1]]
    if not tries:
        return []
    # Not counted: two events may be about one try.
    cites = cites_of([*tries, *captured])
    facts: Facts = (("attempt", attempt.reference),)
    return [Finding(code="recovered_on_later_attempt", cites=cites, facts=facts)]


def _contradiction(attempt: AttemptEvidence, claims: str, heard: list[Heard]) -> Finding:
    facts: Facts = (("attempt", attempt.reference), ("claims", claims))
    return Finding(code="contradictory_claims", cites=cites_of(heard), facts=facts)


def _after_deadline(
    evidence: AttemptEvidence, captured: list[Heard], deadline: Instant | None
) -> list[Finding]:
    known = captured[0].first if len(captured) == 1 else min([h.first for h in captured])
    if captured[0].event.standing in ANSWERS:
        # Not given up: the provider has been asked since the unconfirmed event arrived.
        known = min([known, *[h.first for h in evidence.unconfirmed]])
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
    return [Finding(code="success_after_deadline", cites=cites, facts=facts)]


def recovered_on_later_attempt(case: Case, judgement: Judgement) -> list[Finding]:
    """Find an order that was paid after an earlier attempt had failed."""
    attempts = judgement.attempts
    if len(attempts) < 2:
        return []
    paid = [a for a in attempts if a.outcome == "succeeded"]
    if not paid or len(attempts) == len(paid):
        return []
    first = min(paid, key=lambda a: (a.ended_at or EARLIEST, a.reference))
    end = first.ended_at or 0
    failed = [a for a in attempts if a.outcome != "succeeded" and 0 < (a.ended_at or 0) <= end]
    if not failed:
        return []
    cites = tuple(dict.fromkeys([c for a in [*failed, first] for c in a.reason.cites]))
    facts: Facts = (("attempt", first.reference), ("failed", len(failed)))
    return [Finding(code="recovered_on_later_attempt", cites=cites, facts=facts)]


def shared_with_other_order(case: Case, judgement: Judgement) -> list[Finding]:
    """Find payments and sessions that evidence claims for this order and for another order."""
    return [
        Finding(
            code="contradictory_claims",
            cites=shared.cites,
            facts=(("attempt", shared.attempt.reference), ("claims", "of this order, of another")),
        )
        for shared in shared_references(case)
    ]


def assignment_contradicted(case: Case, judgement: Judgement) -> list[Finding]:
    """Find assigned payments that later evidence claims for another order."""
    found: dict[tuple[str, str], list[str]] = {}
    for attempt in case.attempts:
        record = case.filed.assigned.get(attempt.assignment or "")
        if record is None:
            continue
        for each in attempt.heard:
            named = each.event.order
            if named not in (None, case.order) and each.first > record.recorded_at:
                cites = found.setdefault((attempt.reference, named), [record.record_id])
                cites.append(each.event.event_id)
        for other in case.foreign_records:
            if names_attempt(other, attempt) and other.recorded_at > record.recorded_at:
                cites = found.setdefault((attempt.reference, other.order), [record.record_id])
                cites.append(other.record_id)
    return [
        Finding(
            code="assignment_contradicted",
            cites=tuple(dict.fromkeys(cites)),
            facts=(("attempt", reference), ("named", order)),
        )
        for (reference, order), cites in found.items()
    ]


Check = Callable[[Case, Judgement], Iterable[Finding]]


def find(case: Case, judgement: Judgement) -> tuple[Finding, ...]:
    """Run all checks, and return their findings in fixed order."""
    found: list[Finding] = []
    for check in CHECKS:
        found += check(case, judgement)
    if case.filed is not NOTHING_FILED:
        for check in CHECKS_OF_RECORDS:
            found += check(case, judgement)
    if len(found) > 1:
        found.sort(key=lambda finding: _PLACES[finding.code])
    return tuple(found)


_PLACES: Final = {code: place for place, code in enumerate(FINDING_CODES)}


# --- findings about the merchant's records --------------------------------------------------------


_OURS: Final[frozenset[RecordKind]] = frozenset(("held", "payment_assigned"))


def order_unknown(case: Case, judgement: Judgement) -> list[Finding]:
    """Find an order about which the shop has stated nothing."""
    filed = case.filed
    stated = () if filed is NOTHING_FILED else filed.records()
    if not case.heard or any(record.kind not in _OURS for record in stated):
        return []
    return [Finding(code="order_unknown", cites=(case.heard[0].event.event_id,))]


def session_unknown(case: Case, judgement: Judgement) -> list[Finding]:
    """Find requested sessions for which no answer came and none is expected any more."""
    return [
        Finding(
            code="session_unknown",
            cites=(file.unknown.record_id,),
            facts=(("key", file.unknown.key),),
        )
        for file in case.filed.sessions.values()
        if file.unknown is not None
        and file.opened is None
        and file.refused is None
        and file.unknown.reason != STILL_ASKING
    ]


def fulfillable_since(case: Case, judgement: Judgement) -> Instant:
    """Return the instant since which the order is paid and nothing prevents shipping."""
    pieces = [_paid_since(judgement), case.filed.released_at]
    for attempt in case.attempts:
        for claim in _GIVES_BACK:
            pieces += [heard.first for heard in attempt.claims.get(claim, ())]
    filed = case.filed
    pieces += [r.recorded_at for r in (filed.placed, filed.not_canceled) if r is not None]
    return max(pieces)


def _paid_since(judgement: Judgement) -> Instant:
    price = judgement.expected.money
    if price is None:
        return EARLIEST
    sure = judgement.sure()
    if len(sure) == 1:
        return _arrived(sure[0])
    kept = []
    for payment in sure:
        amount, on_hold = standing(payment, price.currency)
        if amount > on_hold:
            kept.append((_arrived(payment), amount - on_hold))
    reached, total = EARLIEST, 0
    for arrived, amount in sorted(kept):
        if total < price.minor or not reached:
            reached, total = arrived, total + amount
    return reached


def _arrived(payment: Payment) -> Instant:
    return max([min([h.first for h in m.heard]) for m in payment.captures])


def fulfillment_deadline(case: Case, judgement: Judgement) -> Instant | None:
    """Return the instant at which an unfulfilled order becomes a finding."""
    filed = case.filed
    window = case.policy.fulfillment_window
    if window is None or filed.placed is None or filed.fulfilled:
        return None
    if judgement.outcome != "succeeded" or judgement.withheld:
        return None
    return min(fulfillable_since(case, judgement) + window, LATEST)


def paid_but_not_fulfilled(case: Case, judgement: Judgement) -> list[Finding]:
    """Find a paid order that was not shipped in time."""
    placed, deadline = case.filed.placed, judgement.ship_by
    if placed is None or deadline is None or case.as_of < deadline:
        return []
    facts: Facts = (("fulfillable_at", fulfillable_since(case, judgement)), ("due_at", deadline))
    cites = tuple(dict.fromkeys([*judgement.reasons[0].cites, placed.record_id]))
    return [Finding(code="paid_but_not_fulfilled", cites=cites, facts=facts)]


_GIVES_BACK: Final[tuple[ClaimKind, ...]] = ("dispute_won", "refund_failed")

_PAID_ONCE: Final = frozenset(
    ("succeeded", "refunded", "partially_refunded", "disputed", "charged_back")
)


_ALL_GONE: Final = frozenset(("refunded_in_full", "reversal_amount_unclear", "charged_back"))


def fulfilled_but_not_paid(case: Case, judgement: Judgement) -> list[Finding]:
    """Find a fulfilled order without payment, or with all money returned."""
    fulfilled, price = case.filed.fulfilled, judgement.expected.money
    if fulfilled is None:
        return []
    paid = judgement.outcome in _PAID_ONCE and (
        price is None
        or sum([p.captured(price.currency) for p in judgement.payments]) >= price.minor
    )
    if paid and judgement.reasons[0].code in _ALL_GONE:
        back = [movement_date(m) for m in judgement.movements if m.kind != "captured"]
        paid = max(back, default=LATEST) >= fulfilled.at
    if paid:
        return []
    cites = (fulfilled.record_id, *judgement.reasons[0].cites)
    facts: Facts = (("fulfilled_at", fulfilled.at), ("outcome", judgement.outcome))
    return [Finding(code="fulfilled_but_not_paid", cites=cites, facts=facts)]


def paid_after_cancel(case: Case, judgement: Judgement) -> list[Finding]:
    canceled = case.filed.canceled
    if canceled is None:
        return []
    late = [m.heard for m in judgement.captures if m.heard[0].at > canceled.at]
    if not late:
        return []
    facts: Facts = (
        ("canceled_at", canceled.at),
        ("occurred_at", min([heard[0].at for heard in late])),
    )
    cites = (canceled.record_id, *cites_of([h for heard in late for h in heard]))
    return [Finding(code="paid_after_cancel", cites=cites, facts=facts)]


def price_changed(case: Case, judgement: Judgement) -> list[Finding]:
    prices = case.filed.prices
    return [
        Finding(
            code="price_changed",
            cites=(before.record_id, after.record_id),
            facts=(("before", before.due), ("after", after.due), ("author", after.author)),
        )
        for before, after in pairwise(prices)
        if before.due != after.due
    ]


def held_back(case: Case, judgement: Judgement) -> list[Finding]:
    """Find holds that are not released."""
    return [
        Finding(
            code="held_back",
            cites=(record.record_id,),
            facts=(("hold", reason), ("held_at", record.at)),
        )
        for reason, record in sorted(case.filed.holds.items())
    ]


def maybe_other_shop(case: Case, judgement: Judgement) -> list[Finding]:
    """Find a hold that was placed because a payment may belong to another shop."""
    record = case.filed.holds.get(MAYBE_OTHERS)
    if record is None:
        return []
    facts = (("held_at", record.at),)
    return [Finding(code="maybe_other_shop", cites=(record.record_id,), facts=facts)]


CHECKS: Final[tuple[Check, ...]] = (
    of_events,
    findings_money.semantic_duplicate,
    of_attempts,
    recovered_on_later_attempt,
    shared_with_other_order,
    order_unknown,
    findings_money.refunds,
    same_id_different_body,
    findings_money.conflicting_amounts,
    findings_money.captures,
    findings_money.disputes,
    findings_money.refunds_under_way,
    findings_money.reversal_amounts,
    findings_money.amounts_that_are_no_price,
    findings_money.unread_money_event,
)
"""Checks that need no record from the shop."""

CHECKS_OF_RECORDS: Final[tuple[Check, ...]] = (
    assignment_contradicted,
    session_unknown,
    paid_but_not_fulfilled,
    fulfilled_but_not_paid,
    paid_after_cancel,
    price_changed,
    held_back,
    maybe_other_shop,
)
