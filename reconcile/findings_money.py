"""Observations on the money that moved: stated twice, stated differently, too much, too little.

Leaves out: whether the order is settled; that is `outcome`'s.
"""

from __future__ import annotations

from reconcile.correlate import Case
from reconcile.ledger import Facts, FactValue, Finding, FindingCode, new_finding
from reconcile.money import Money, exponent_of
from reconcile.movements import Movement, cites_of
from reconcile.outcome import Judgement, paid_several_times

# --- of movements --------------------------------------------------------------------------------


def semantic_duplicate(case: Case, judgement: Judgement) -> list[Finding]:
    """Several events, each with its own id, state one movement of money."""
    found: list[Finding] = []
    for movement in judgement.movements:
        cites = cites_of(movement.heard) if len(movement.heard) > 1 else ()
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
    """`paid_twice`, `amount_mismatch`, `amount_off_by_minor_unit`, `currency_mismatch`."""
    captured, expected = judgement.captures, judgement.expected
    if not captured or (expected.money is None and not expected.stated):
        return []
    if len(captured) == 1 and captured[0].money == expected.money:
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
    return [new_finding(code="paid_twice", cites=cites, facts=facts)]


def _amount_mismatches(judgement: Judgement, captured: list[Movement], total: int) -> list[Finding]:
    found = [_mismatch("amount_mismatch", judgement, captured)]
    expected = judgement.expected.money
    assert expected is not None
    # A currency without decimals is mistaken by the hundred that most others have.
    factor = 10 ** (exponent_of(expected.currency) or 2)
    if total and (total == expected.minor * factor or total * factor == expected.minor):
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
    """`refund_without_payment` and `refund_exceeds_capture`."""
    if len(judgement.captures) == len(judgement.movements):
        return []
    returned = [m for m in judgement.movements if m.kind != "captured"]
    cites = tuple(dict.fromkeys([c for m in returned for c in m.cites]))
    if len(returned) == len(judgement.movements):
        return [new_finding(code="refund_without_payment", cites=cites)]
    return [
        new_finding(
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
