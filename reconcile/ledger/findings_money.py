"""Observations on the money that moved: stated twice, stated differently, too much, too little.

Leaves out: whether the order is settled; that is `outcome`'s.
"""

from __future__ import annotations

from typing import Final

from reconcile.ledger.correlate import Case, cites_of
from reconcile.ledger.doubt import is_off_by_factor
from reconcile.ledger.fulfilling import is_unread
from reconcile.ledger.ledger import Facts, FactValue, Finding, Movement, new_finding
from reconcile.ledger.movements import (
    Dispute,
    DisputeWord,
    Payment,
    amount_of,
    by_movement,
    lost_of,
)
from reconcile.ledger.outcome import Judgement, paid_several_times
from reconcile.ledger.vocabulary import FindingCode
from reconcile.money import Money, new_money

# --- of movements --------------------------------------------------------------------------------


def semantic_duplicate(case: Case, judgement: Judgement) -> list[Finding]:
    """Several events, each with its own id, state one movement of money."""
    found: list[Finding] = []
    for movement in judgement.movements:
        # A dispute's events are words of one story, not one word several times.
        once = len(movement.heard) == 1 or movement.kind == "dispute_lost"
        cites = () if once else cites_of(movement.heard)
        if len(cites) > 1:
            facts: Facts = (
                ("attempt", movement.attempt.reference),
                ("movement", movement.kind),
                ("events", len(cites)),
            )
            found.append(new_finding(code="semantic_duplicate", cites=cites, facts=facts))
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
            found.append(new_finding(code="conflicting_amounts", cites=movement.cites, facts=facts))
    return found


def captures(case: Case, judgement: Judgement) -> list[Finding]:
    """`paid_twice`, `overpaid`, `other_currency_received`, `amount_mismatch`,
    `amount_off_by_minor_unit`, `currency_mismatch`."""
    captured, expected = judgement.captures, judgement.expected
    if not captured or (expected.money is None and not expected.stated):
        return []
    if len(captured) == 1 and captured[0].money == expected.money:
        return []
    if expected.money is None:
        return [_mismatch("amount_mismatch", judgement, captured)]
    found = _off_by_factor(judgement, captured, expected.money)
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
        found += _too_little(judgement, captured, expected.money)
    return found


def _off_by_factor(
    judgement: Judgement, captured: list[Movement], expected: Money
) -> list[Finding]:
    """Each capture that is the price times the currency's factor: judged by itself."""
    odd = [m for m in captured if is_off_by_factor(m.money, expected)]
    if not odd:
        return []
    codes: tuple[FindingCode, ...] = ("amount_mismatch", "amount_off_by_minor_unit")
    return [_mismatch(code, judgement, odd) for code in codes]


def _other_currencies(judgement: Judgement, expected: Money) -> list[Finding]:
    """Money that is held in another currency than the order's, beside some in its own."""
    cites: dict[str, list[str]] = {}
    for movement in judgement.movements:
        if movement.money is not None:
            cites.setdefault(movement.money.currency, []).extend(movement.cites)
    return [
        new_finding(
            code="other_currency_received",
            cites=tuple(dict.fromkeys(cites[b.currency])),
            facts=(("received", Money(minor=b.captured - b.returned, currency=b.currency)),),
        )
        for b in judgement.balances
        if b.currency != expected.currency and b.captured > b.returned
    ]


def _surplus(judgement: Judgement, expected: Money) -> Finding:
    """What is held beyond the price: of captures of the whole price, or any other. Those in doubt
    add nothing to it, and are not counted."""
    counting = {id(m) for payment in judgement.sure() for m in payment.captures}
    captured = [m for m in judgement.captures if id(m) in counting]
    owed = Money(minor=judgement.surplus, currency=expected.currency)
    cites = tuple(dict.fromkeys([c for m in captured for c in m.cites]))
    if paid_several_times(judgement):
        times = len([m for m in captured if m.money == expected])
        facts: Facts = (("times", times), ("expected", expected), ("owed", owed))
        return new_finding(code="paid_twice", cites=cites, facts=facts)
    return new_finding(
        code="overpaid", cites=cites, facts=(("expected", expected), ("surplus", owed))
    )


def _too_little(judgement: Judgement, captured: list[Movement], expected: Money) -> list[Finding]:
    total = sum([b.captured for b in judgement.balances if b.currency == expected.currency])
    if total >= expected.minor:
        return []
    found = [_mismatch("amount_mismatch", judgement, captured)]
    if is_off_by_factor(expected, Money(minor=total, currency=expected.currency)):
        found.append(_mismatch("amount_off_by_minor_unit", judgement, captured))
    return found


def _mismatch(code: FindingCode, judgement: Judgement, captured: list[Movement]) -> Finding:
    expected = judgement.expected
    facts: list[tuple[str, FactValue]] = []
    if expected.money is not None:
        facts.append(("expected", expected.money))
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
    return new_finding(code=code, cites=tuple(dict.fromkeys(cites)), facts=tuple(facts))


def refunds(case: Case, judgement: Judgement) -> list[Finding]:
    """`refund_without_payment` and `refund_exceeds_capture`, payment by payment."""
    if len(judgement.captures) == len(judgement.movements):
        return []
    found: list[Finding] = []
    unknown = [p for p in judgement.payments if p.returns and not p.captures]
    if unknown:
        cites = tuple(dict.fromkeys([c for p in unknown for m in p.returns for c in m.cites]))
        found.append(new_finding(code="refund_without_payment", cites=cites))
    for payment in judgement.payments:
        certain = payment.captures and all(m.money is not None for m in payment.captures)
        if payment.returns and certain:
            found += _exceeding(payment)
    return found


def _exceeding(payment: Payment) -> list[Finding]:
    """More went back on one payment than came on it."""
    returned = [m.money.currency for m in payment.returns if m.money is not None]
    cites = tuple(dict.fromkeys([c for m in payment.returns for c in m.cites]))
    return [
        new_finding(
            code="refund_exceeds_capture",
            cites=cites,
            facts=(
                ("captured", Money(minor=payment.captured(currency), currency=currency)),
                ("refunded", Money(minor=payment.returned(currency), currency=currency)),
            ),
        )
        for currency in sorted(set(returned))
        if payment.returned(currency) > payment.captured(currency)
    ]


# --- money that may go back, did, or came back ---------------------------------------------------


def disputes(case: Case, judgement: Judgement) -> list[Finding]:
    """`dispute_open`, `dispute_lost`, `dispute_won`: each dispute by its latest word."""
    if judgement.plain:
        return []
    return [
        _dispute(payment, dispute) for payment in judgement.payments for dispute in payment.disputes
    ]


_DISPUTE: Final[dict[DisputeWord, tuple[FindingCode, str]]] = {
    "open": ("dispute_open", "disputed"),
    "lost": ("dispute_lost", "lost"),
    "won": ("dispute_won", "disputed"),
}


def _dispute(payment: Payment, dispute: Dispute) -> Finding:
    code, fact = _DISPUTE[dispute.word]
    named = next((h.event.movement for h in dispute.heard if h.event.movement is not None), None)
    of = lost_of if dispute.word == "lost" else amount_of
    facts: Facts = (
        ("attempt", payment.attempt.reference),
        ("dispute", named),
        (fact, of(dispute, payment)),
        *_not_lost(dispute),
        *_still_lost(payment, dispute),
    )
    return new_finding(code=code, cites=cites_of(dispute.heard), facts=facts)


def _not_lost(dispute: Dispute) -> Facts:
    """What a loss in part left to the shop."""
    amount, lost = dispute.amount, dispute.lost
    if dispute.word != "lost" or amount is None or lost is None:
        return ()
    left = new_money(minor=amount.minor - lost.minor, currency=lost.currency)
    return (("not_lost", left),)


def _still_lost(payment: Payment, dispute: Dispute) -> Facts:
    """What a win did not give back of a loss before it."""
    if dispute.word != "won":
        return ()
    lost = [m.money for m in payment.returns if m.heard is dispute.heard]
    return tuple([("still_lost", money) for money in lost if money is not None])


def refunds_under_way(case: Case, judgement: Judgement) -> list[Finding]:
    """`refund_pending` and `refund_failed`."""
    if judgement.plain:
        return []
    found = []
    for payment in judgement.payments:
        named: tuple[str, FactValue] = ("attempt", payment.attempt.reference)
        for each in payment.pending:
            facts: Facts = (named, ("pending", each.amount))
            cites = cites_of(each.heard)
            found.append(new_finding(code="refund_pending", cites=cites, facts=facts))
        for group in by_movement(payment.failed):
            cites = cites_of(group)
            found.append(new_finding(code="refund_failed", cites=cites, facts=(named,)))
    return found


def unread_money_event(case: Case, judgement: Judgement) -> list[Finding]:
    """A kind that nobody explained, whose words speak of money going back."""
    return [
        new_finding(
            code="unread_money_event",
            cites=(heard.event.event_id,),
            facts=(("kind", heard.event.kind),),
        )
        for heard in case.heard
        if heard.event.claim == "unrecognized" and is_unread(heard)
    ]
