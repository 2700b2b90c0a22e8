"""Find reasons why a paid order must not be fulfilled."""

from collections.abc import Iterable

from reconcile.ledger.correlate import Case, Heard, cites_of
from reconcile.ledger.events import speaks_of_money_going_back
from reconcile.ledger.ledger import Reason
from reconcile.ledger.movements import Payment
from reconcile.ledger.outcome import Judgement, standing
from reconcile.money import Money


def withheld(case: Case, judgement: Judgement) -> tuple[Reason, ...]:
    """Return every reason not to fulfill a paid order.

    The result is also empty for an unpaid order.
    """
    if judgement.outcome != "succeeded":
        return ()
    found = []
    canceled, expected = case.filed.canceled, judgement.expected
    if canceled is not None:
        found.append(Reason(code="canceled_by_shop", cites=(canceled.record_id,)))
    if expected.money is None:
        found.append(Reason(code="price_unknown", cites=()))
    elif expected.money.minor == 0:
        if not _is_free(case, judgement):
            found.append(Reason(code="price_of_nothing", cites=expected.cites))
    elif not expected.by_shop and _needs_a_record(case):
        found.append(Reason(code="price_not_of_shop", cites=expected.cites))
    for reason, record in sorted(case.filed.holds.items()):
        facts = (("hold", reason), ("held_at", record.at))
        found.append(Reason(code="held_back", cites=(record.record_id,), facts=facts))
    return (*found, *_may_go_back(case, judgement))


def _is_free(case: Case, judgement: Judgement) -> bool:
    placed = case.filed.placed
    return (
        placed is not None
        and placed.free
        and any(
            capture.money == placed.money
            and any(h.event.session and h.event.standing != "answered" for h in capture.heard)
            for payment in judgement.sure()
            for capture in payment.captures
        )
    )


def _needs_a_record(case: Case) -> bool:
    since = case.policy.require_order_record_since
    if since is None:
        return False
    heard = [
        each.first
        for each in case.heard
        if each.event.standing != "unconfirmed" and each.event.claim != "ignored"
    ]
    recorded = [record.recorded_at for record in case.filed.records()]
    return min([*heard, *recorded]) > since


def is_unread(heard: Heard) -> bool:
    """Check whether an unknown kind of event suggests returned money."""
    event = heard.event
    return (
        event.claim == "unrecognized"
        and event.standing != "unconfirmed"
        and speaks_of_money_going_back(event.kind)
    )


def _may_go_back(case: Case, judgement: Judgement) -> Iterable[Reason]:
    price = judgement.expected.money
    if price is None:
        return
    unplaced = _unplaced(case, judgement)
    if unplaced:
        yield Reason(code="money_may_go_back", cites=cites_of(unplaced), facts=())
        return
    if judgement.plain:
        return
    on_hold: dict[int, int] = {}
    cites: list[Heard] = []
    for payment in judgement.sure():
        held, heard = _on_hold(payment, price.currency)
        on_hold[id(payment.attempt)] = held
        cites += heard
    pending = sum(on_hold.values())
    if pending and not judgement.is_paid_without(on_hold, price):
        facts = (("pending", Money(minor=pending, currency=price.currency)),)
        yield Reason(code="money_may_go_back", cites=cites_of(cites), facts=facts)


def _on_hold(payment: Payment, currency: str) -> tuple[int, list[Heard]]:
    unstated = [d for d in payment.disputes if d.unstated and d.word != "won"]
    if not (payment.pending or payment.unread or unstated or payment.undos):
        return 0, []
    kept, disputed = standing(payment, currency)
    left = max(0, kept - disputed)
    heard = [*[h for p in payment.pending for h in p.heard], *payment.unread]
    heard += [h for d in unstated for h in d.heard]
    heard += [h for undo in payment.undos for h in undo.heard]
    amounts = [*[p.amount for p in payment.pending], *[undo.money for undo in payment.undos]]
    if payment.unread or unstated or any(m is None or m.currency != currency for m in amounts):
        return left, heard
    return min(left, sum([m.minor for m in amounts if m is not None])), heard


def _unplaced(case: Case, judgement: Judgement) -> list[Heard]:
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
