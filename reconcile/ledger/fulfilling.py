"""Why an order that is paid must not be fulfilled all the same: every reason, or none.

Leaves out: whether it is paid; that is `outcome`'s. A shop may ship on `fulfillable`, which is true
where the outcome is `succeeded` and nothing here speaks against it.

What may still go back holds its own payment, and at most what that payment has: an open dispute, a
refund under way, an event of an unknown kind whose words speak of money going back. What names no
known payment may be about any of them, and holds all.
"""

from __future__ import annotations

from collections.abc import Iterable

from reconcile.ledger.correlate import Case, Heard, cites_of
from reconcile.ledger.events import speaks_of_money_going_back
from reconcile.ledger.ledger import Reason, new_reason
from reconcile.ledger.movements import Payment
from reconcile.ledger.outcome import Judgement, standing
from reconcile.money import new_money


def withheld(case: Case, judgement: Judgement) -> tuple[Reason, ...]:
    """Every reason why a paid order is not to be fulfilled; none of one that is not paid."""
    if judgement.outcome != "succeeded":
        return ()
    found = [*_canceled(case), *_price(case, judgement)]
    if case.filed.holds:
        found += _holds(case)
    return (*found, *_may_go_back(case, judgement))


def _canceled(case: Case) -> Iterable[Reason]:
    canceled = case.filed.canceled
    if canceled is not None:
        yield new_reason(code="canceled_by_shop", cites=(canceled.record_id,), facts=())


def _price(case: Case, judgement: Judgement) -> Iterable[Reason]:
    """That an order costs nothing only the shop itself can say; an event that does is a mistake."""
    expected = judgement.expected
    if expected.money is None:
        yield new_reason(code="price_unknown", cites=(), facts=())
    elif expected.by_shop:
        if expected.money.minor == 0 and case.filed.placed is None:
            yield new_reason(code="price_of_nothing", cites=expected.cites, facts=())
    elif expected.money.minor == 0:
        yield new_reason(code="price_of_nothing", cites=expected.cites, facts=())
    elif _needs_a_record(case):
        yield new_reason(code="price_not_of_shop", cites=expected.cites, facts=())


def _needs_a_record(case: Case) -> bool:
    """Whether the shop's own price is demanded: of orders first heard of after that began."""
    since = case.policy.require_order_record_since
    if since is None:
        return False
    heard = [each.first for each in case.heard if _counts(each)]
    recorded = [record.recorded_at for record in case.filed.records()]
    return min([*heard, *recorded]) > since


def _counts(heard: Heard) -> bool:
    return heard.event.standing != "unconfirmed" and heard.event.claim != "ignored"


def _holds(case: Case) -> Iterable[Reason]:
    for reason, record in sorted(case.filed.holds.items()):
        facts = (("hold", reason), ("held_at", record.at))
        yield new_reason(code="held_back", cites=(record.record_id,), facts=facts)


# --- money that may go back ----------------------------------------------------------------------


def is_unread(heard: Heard) -> bool:
    """Whether an event is signed or fetched, of a kind that no line of the profile names, and its
    words speak of money going back."""
    event = heard.event
    return (
        event.claim == "unrecognized"
        and event.standing != "unconfirmed"
        and speaks_of_money_going_back(event.kind)
    )


def _may_go_back(case: Case, judgement: Judgement) -> Iterable[Reason]:
    """Refunds under way, unread events and disputes, where what they hold leaves too little."""
    price = judgement.expected.money
    if price is None:
        return
    unplaced = _unplaced(case, judgement)
    if unplaced:
        yield new_reason(code="money_may_go_back", cites=cites_of(unplaced), facts=())
        return
    if judgement.plain:
        return
    on_hold = 0
    cites: list[Heard] = []
    for payment in judgement.sure():
        held, heard = _on_hold(payment, price.currency)
        on_hold += held
        cites += heard
    if on_hold and judgement.counted - on_hold < price.minor:
        facts = (("pending", new_money(minor=on_hold, currency=price.currency)),)
        yield new_reason(code="money_may_go_back", cites=cites_of(cites), facts=facts)


def _on_hold(payment: Payment, currency: str) -> tuple[int, list[Heard]]:
    """What refunds under way, unread events and disputes without an amount hold beside what open
    disputes do, and the events that say so; at most what the payment still has."""
    unstated = [d for d in payment.disputes if d.unstated and d.word != "won"]
    if not (payment.pending or payment.unread or unstated):
        return 0, []
    kept, disputed = standing(payment, currency)
    left = max(0, kept - disputed)
    heard = [*[h for p in payment.pending for h in p.heard], *payment.unread]
    heard += [h for d in unstated for h in d.heard]
    amounts = [p.amount for p in payment.pending]
    if payment.unread or unstated or any(m is None or m.currency != currency for m in amounts):
        return left, heard
    return min(left, sum([m.minor for m in amounts if m is not None])), heard


def _unplaced(case: Case, judgement: Judgement) -> list[Heard]:
    """Events of money that may go back, and nobody knows on which payment."""
    found = [h for h in case.heard if h.event.claim == "unrecognized" and is_unread(h)]
    if found:
        placed = {id(h) for attempt in case.attempts for h in attempt.heard}
        found = [h for h in found if id(h) not in placed]
    for payment in () if judgement.plain else judgement.payments:
        if not payment.captures:
            found += [h for pending in payment.pending for h in pending.heard]
            if not payment.known:
                found += payment.unread
            found += _reversals_of_others(payment, judgement)
    return found


def _reversals_of_others(payment: Payment, judgement: Judgement) -> list[Heard]:
    """Reversals on a payment that was not captured, which may be about one that was: they name no
    payment, or that one was captured without a name."""
    found = []
    captured = [p.attempt for p in judgement.payments if p.captures]
    for heard in payment.attempt.claims.get("reversed", ()):
        event = heard.event
        for attempt in captured:
            nameless = all(h.event.payment is None for h in attempt.claims["succeeded"])
            if attempt.source != event.source or not (event.payment is None or nameless):
                continue
            session = event.session
            if session is None or attempt.session is None or attempt.belongs_to(session):
                found.append(heard)
                break
    return found
