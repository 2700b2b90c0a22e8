"""Find unusual facts about moved money, such as a contradicting, too large or too small amount."""

from typing import Final

from reconcile.instants import LATEST, Instant
from reconcile.ledger import movements, outcome
from reconcile.ledger.correlate import Case, Heard, cites_of
from reconcile.ledger.doubt import is_off_by_factor
from reconcile.ledger.events import ClaimKind
from reconcile.ledger.fulfilling import is_unread
from reconcile.ledger.ledger import Facts, FactValue, Finding, Movement
from reconcile.ledger.policy import Policy
from reconcile.ledger.vocabulary import FindingCode
from reconcile.money import Money


def semantic_duplicate(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Find captures, refunds or other movements that several events with different ids state."""
    found: list[Finding] = []
    for movement in judgement.movements:
        # Events of a dispute are its steps, not repetitions.
        once = len(movement.heard) == 1 or movement.kind == "dispute_lost"
        cites = () if once else cites_of(movement.heard)
        if len(cites) > 1:
            facts: Facts = (
                ("attempt", movement.attempt.reference),
                ("movement", movement.kind),
                ("events", len(cites)),
            )
            found.append(Finding(code="semantic_duplicate", cites=cites, facts=facts))
    return found


def conflicting_amounts(case: Case, judgement: outcome.Judgement) -> list[Finding]:
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


def captures(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Find captures that differ from the price."""
    captured, expected = judgement.captures, judgement.expected
    if not captured or (expected.money is None and not expected.stated):
        return []
    if len(captured) == 1 and captured[0].money == expected.money and not judgement.came_on_top:
        return []
    if expected.money is None:
        return [_mismatch("amount_mismatch", judgement, captured)]
    found: list[Finding] = []
    odd = [m for m in captured if is_off_by_factor(m.money, expected.money)]
    if odd:
        found.append(_mismatch("amount_mismatch", judgement, odd))
        found.append(_mismatch("amount_off_by_minor_unit", judgement, odd))
    silent = [m for m in captured if not m.stated]
    if silent:
        found.append(_mismatch("amount_mismatch", judgement, silent))
    if any(m.money is None for m in captured):
        return [*found, _surplus(judgement, expected.money)] if judgement.surplus else found
    if not any(m.money and m.money.currency == expected.money.currency for m in captured):
        return [_mismatch("currency_mismatch", judgement, captured), *found]
    found += _other_currencies(judgement, expected.money)
    if judgement.surplus:
        found.append(_surplus(judgement, expected.money))
    elif not found:
        currency = expected.money.currency
        total = sum([b.captured for b in judgement.balances if b.currency == currency])
        if total - judgement.came_on_top < expected.money.minor:
            found.append(_mismatch("amount_mismatch", judgement, captured))
            if is_off_by_factor(expected.money, Money(minor=total, currency=currency)):
                found.append(_mismatch("amount_off_by_minor_unit", judgement, captured))
    return found


def amounts_that_are_no_price(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Find payments whose amount fits no price of the order."""
    return [
        Finding(code="amount_not_price", cites=reason.cites, facts=reason.facts)
        for reasons in (judgement.doubts.values() if case.policy.mismatch_held else ())
        for reason in reasons
        if reason.code == "amount_not_price"
    ]


def _other_currencies(judgement: outcome.Judgement, expected: Money) -> list[Finding]:
    cites: dict[str, list[str]] = {}
    for movement in judgement.movements:
        if movement.money is not None:
            cites.setdefault(movement.money.currency, []).extend(movement.cites)
    return [
        Finding(
            code="other_currency_received",
            cites=tuple(dict.fromkeys(cites[b.currency])),
            facts=(
                ("received", Money(minor=b.captured - b.returned, currency=b.currency)),
                *_under_way(judgement, b.currency),
            ),
        )
        for b in judgement.balances
        if b.currency != expected.currency and b.captured > b.returned
    ]


def _under_way(judgement: outcome.Judgement, currency: str) -> Facts:
    minor = sum([outcome.under_way(payment, currency) for payment in judgement.payments])
    return (("under_way", Money(minor=minor, currency=currency)),) if minor else ()


def _surplus(judgement: outcome.Judgement, expected: Money) -> Finding:
    counting = {id(m) for payment in judgement.sure() for m in payment.captures}
    captured = [m for m in judgement.captures if id(m) in counting]
    owed = Money(minor=judgement.surplus, currency=expected.currency)
    cites = tuple(dict.fromkeys([c for m in captured for c in m.cites]))
    if outcome.paid_several_times(judgement):
        facts: Facts = (
            ("times", outcome.times_paid(judgement)),
            *judgement.expected.facts(),
            ("owed", owed),
        )
        facts += outcome.returning_facts(judgement)
        return Finding(code="paid_twice", cites=cites, facts=facts)
    facts = (*judgement.expected.facts(), ("surplus", owed), *outcome.returning_facts(judgement))
    return Finding(code="overpaid", cites=cites, facts=facts)


def _mismatch(code: FindingCode, judgement: outcome.Judgement, captured: list[Movement]) -> Finding:
    expected = judgement.expected
    facts: list[tuple[str, FactValue]] = list(expected.facts())
    facts += [("expected", money) for money in expected.stated]
    currencies = {m.money.currency for m in captured if m.money is not None}
    facts += [
        ("captured", Money(minor=balance.captured, currency=balance.currency))
        for balance in judgement.balances
        if balance.currency in currencies
    ]
    if not currencies:
        facts.append(("captured", None))
    cites = [c for m in captured for c in m.cites] + list(expected.cites)
    return Finding(code=code, cites=tuple(dict.fromkeys(cites)), facts=tuple(facts))


def refunds(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Find refunds without a payment, or above the capture."""
    if len(judgement.captures) == len(judgement.movements):
        return []
    found: list[Finding] = []
    alone = [h.event.event_id for h in case.heard if h.event.standalone]
    if alone:
        found.append(Finding(code="refund_standalone", cites=tuple(dict.fromkeys(alone))))
    unknown = [
        p
        for p in judgement.payments
        if p.returns and not p.captures and not outcome.stands_alone(judgement, p)
    ]
    if unknown:
        cites = tuple(dict.fromkeys([c for p in unknown for m in p.returns for c in m.cites]))
        found.append(Finding(code="refund_without_payment", cites=cites))
    for payment in judgement.payments:
        if not payment.captures or any(m.money is None for m in payment.captures):
            continue
        cites = tuple(dict.fromkeys([c for m in payment.returns for c in m.cites]))
        for currency in sorted({m.money.currency for m in payment.returns if m.money is not None}):
            captured, returned = payment.captured(currency), payment.returned(currency)
            if returned > captured:
                facts: Facts = (
                    ("captured", Money(minor=captured, currency=currency)),
                    ("refunded", Money(minor=returned, currency=currency)),
                )
                code: FindingCode = "refund_exceeds_capture"
                found.append(Finding(code=code, cites=cites, facts=facts))
    return found


def disputes(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Return a finding for each open, lost or won dispute."""
    if judgement.plain:
        return []
    return [
        _dispute(payment, dispute) for payment in judgement.payments for dispute in payment.disputes
    ]


_DISPUTE: Final[dict[movements.DisputeWord, tuple[FindingCode, str]]] = {
    "open": ("dispute_open", "disputed"),
    "lost": ("dispute_lost", "lost"),
    "won": ("dispute_won", "disputed"),
}


def _dispute(payment: movements.Payment, dispute: movements.Dispute) -> Finding:
    code, fact = _DISPUTE[dispute.word]
    named = next((h.event.movement for h in dispute.heard if h.event.movement is not None), None)
    of = movements.lost_of if dispute.word == "lost" else movements.amount_of
    facts: list[tuple[str, FactValue]] = [
        ("attempt", payment.attempt.reference),
        ("dispute", named),
        (fact, of(dispute, payment)),
    ]
    if dispute.word == "open":
        facts.append(("opened_at", min([h.at for h in dispute.heard])))
    else:
        facts.append(("decided_at", dispute.heard[-1].at))
    amount, lost = dispute.amount, dispute.lost
    if dispute.word == "lost" and amount is not None and lost is not None:
        left = Money(minor=amount.minor - lost.minor, currency=lost.currency)
        facts.append(("not_lost", left))
    if dispute.word == "won":  # part of an earlier loss that the win did not return
        still = [m.money for m in payment.returns if m.heard is dispute.heard]
        facts += [("still_lost", money) for money in still if money is not None]
    return Finding(code=code, cites=cites_of(dispute.heard), facts=tuple(facts))


def refunds_under_way(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Find refunds that are pending, overdue or failed."""
    if judgement.plain:
        return []
    found = []
    for payment in judgement.payments:
        named: tuple[str, FactValue] = ("attempt", payment.attempt.reference)
        for each in payment.pending:
            cites = cites_of(each.heard)
            facts: Facts = (named, ("pending", each.amount), ("begun_at", each.begun_at))
            found.append(Finding(code="refund_pending", cites=cites, facts=facts))
            due = refund_due(each, case.policy)
            if case.as_of >= due:
                facts += (("due_at", due),)
                found.append(Finding(code="refund_overdue", cites=cites, facts=facts))
        for group in movements.by_movement(payment.failed):
            facts = (
                named,
                ("failed", _failed_amount(group, payment)),
                ("failed_at", max([h.at for h in group])),
            )
            cites = cites_of(group)
            found.append(Finding(code="refund_failed", cites=cites, facts=facts))
    return found


def _failed_amount(failed: list[Heard], payment: movements.Payment) -> Money | None:
    name, claims = failed[0].event.movement, payment.attempt.claims
    begun = [h for c in _REFUNDS for h in claims.get(c, ()) if h.event.movement == name]
    for group in (failed, begun if name is not None else []):
        stated = {h.event.money for h in group if h.event.money is not None}
        if stated:
            return stated.pop() if len(stated) == 1 else None
    return None


_REFUNDS: Final[tuple[ClaimKind, ...]] = ("refund_pending", "refunded")


def refund_due(refund: movements.PendingRefund, policy: Policy) -> Instant:
    """Return the instant at which a pending refund becomes overdue."""
    return min(refund.begun_at + policy.refund_window, LATEST)


def next_refund_due(case: Case, judgement: outcome.Judgement) -> Instant | None:
    """Return the instant at which a pending refund becomes overdue."""
    payments = () if judgement.plain else judgement.payments
    due = [refund_due(each, case.policy) for payment in payments for each in payment.pending]
    return min([each for each in due if each > case.as_of], default=None)


def reversal_amounts(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Find reversals with an amount that fits nothing known."""
    return [
        Finding(
            code="reversal_amount_mismatch",
            cites=movement.cites,
            facts=(
                ("attempt", movement.attempt.reference),
                ("stated", stated),
                ("taken", movement.money),
            ),
        )
        for movement in judgement.movements
        for stated in outcome.reversal_mismatch(movement, judgement)
    ]


def unread_money_event(case: Case, judgement: outcome.Judgement) -> list[Finding]:
    """Find events of unknown kinds whose names suggest that money went back."""
    return [
        Finding(
            code="unread_money_event",
            cites=(heard.event.event_id,),
            facts=(("kind", heard.event.kind),),
        )
        for heard in case.heard
        if heard.event.claim == "unrecognized" and is_unread(heard)
    ]
