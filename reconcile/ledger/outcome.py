"""Judges the order from its attempts and movements: the decision tables as functions of a Case.

Leaves out: findings, which observe but do not decide, and every sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconcile.instants import Instant
from reconcile.ledger.correlate import Case, Heard, cites_of
from reconcile.ledger.doubt import Doubts, contradicting_bodies, doubts_of
from reconcile.ledger.events import Event
from reconcile.ledger.ledger import (
    Attempt,
    AttemptOutcome,
    Balance,
    Facts,
    FactValue,
    Movement,
    Outcome,
    Reason,
    new_reason,
)
from reconcile.ledger.movements import (
    Dispute,
    Payment,
    amount_of,
    at_most_returned,
    balances_of,
    movements_of,
    payments_of,
)
from reconcile.ledger.outcome_attempts import decide_attempt
from reconcile.money import Money, new_money

_LAST_WORD: Final[dict[AttemptOutcome, Outcome]] = {
    "declined": "failed",
    "canceled": "canceled",
    "expired": "expired",
    "timed_out": "timed_out",
}


@dataclass(slots=True)
class Expectation:
    """What the whole order costs, and the ids that say so. Two voices that differ: no money.

    by_shop  whether the shop itself said it: by its record, or by a session requested through us
    """

    money: Money | None
    cites: tuple[str, ...]
    stated: tuple[Money, ...] = ()
    by_shop: bool = False


@dataclass(slots=True)
class Judgement:
    """All that was concluded from a Case; `findings` reads it.

    payments  the money of each attempt of which any is spoken
    captures  the movements that brought money
    bodies    see `contradicting_bodies`
    doubts    why payments are in doubt, by attempt
    currency  that in which is counted: of the price, else of all that was captured; None where
              there is none, or no one
    held      in that currency: what came, less what went back and what open disputes hold
    counted   the same without the payments in doubt: what the price is compared with
    surplus   what is counted beyond the price; 0 where there is no price, or less
    withheld  see `fulfilling.withheld`; set once the order is judged
    ship_by   when it becomes a finding that the shop has not fulfilled it; set by `fold`, too
    plain     whether there is nothing but captures
    """

    expected: Expectation
    attempts: tuple[Attempt, ...]
    payments: list[Payment]
    movements: Sequence[Movement]
    captures: list[Movement]
    balances: tuple[Balance, ...]
    bodies: list[list[Heard]]
    doubts: Doubts
    currency: str | None = None
    held: int = 0
    counted: int = 0
    surplus: int = 0
    outcome: Outcome = "not_attempted"
    reasons: tuple[Reason, ...] = ()
    withheld: tuple[Reason, ...] = ()
    open_disputes: Sequence[Dispute] = ()
    ship_by: Instant | None = None
    plain: bool = True

    def sure(self) -> list[Payment]:
        """The payments that are not in doubt."""
        if not self.doubts:
            return self.payments
        return [each for each in self.payments if id(each.attempt) not in self.doubts]


def decide(case: Case) -> Judgement:
    """Attempts first, then the order from all of them. Pure; no early return anywhere."""
    attempts = tuple([decide_attempt(evidence, case) for evidence in case.attempts])
    payments = payments_of(case.attempts, case.filed)
    movements = movements_of(payments)
    captures = [m for m in movements if m.kind == "captured"]
    expected, bodies = _expected(case), contradicting_bodies(case)
    judgement = Judgement(
        expected=expected,
        attempts=attempts,
        payments=payments,
        movements=movements,
        captures=captures,
        balances=balances_of(movements),
        bodies=bodies,
        doubts=doubts_of(
            case, payments, bodies=bodies, price=expected.money, priced_by=expected.cites
        ),
    )
    judgement.plain = all(payment.plain for payment in payments)
    moved = judgement.doubts or captures or any(payment.moved for payment in payments)
    decided = _money_moved(judgement) if moved else _no_money_moved(case, judgement)
    judgement.outcome, judgement.reasons = decided
    return judgement


Decision = tuple[Outcome, tuple[Reason, ...]]


# --- the order: what it costs --------------------------------------------------------------------


def _expected(case: Case) -> Expectation:
    """The shop's own word, else what the session asked for, else what the events say."""
    placed = case.filed.placed
    if placed is not None and placed.money is not None:
        return Expectation(placed.money, (placed.record_id,), by_shop=True)
    if case.filed.sessions:
        asked = [f.requested for f in case.filed.sessions.values() if f.requested is not None]
        asked = [record for record in asked if record.money is not None]
        if asked:
            last = max(asked, key=lambda record: (record.recorded_at, record.record_id))
            return Expectation(last.money, (last.record_id,), by_shop=True)
    return _expected_by_events(case.heard)


def _expected_by_events(heard: list[Heard]) -> Expectation:
    stated: list[Money] = []
    cites: list[str] = []
    for each in heard:
        money = each.event.order_money
        # There are hardly ever two: comparing is cheaper than hashing.
        if money is not None and money not in stated and _tells_prices(each.event):
            stated.append(money)
            cites.append(each.event.event_id)
    if len(stated) == 1:
        return Expectation(stated[0], tuple(cites))
    stated.sort(key=lambda m: (m.currency, m.minor))
    return Expectation(None, tuple(cites), tuple(stated))


def _tells_prices(event: Event) -> bool:
    return event.standing != "unconfirmed" and event.claim != "ignored"


# --- the order: what is held ---------------------------------------------------------------------


class Standing(NamedTuple):
    """What one payment comes to, in minor units of one currency.

    kept     what came less what went back; below zero where more went back than came
    on_hold  what open disputes hold of it, at most what is kept
    """

    kept: int
    on_hold: int


def standing(payment: Payment, currency: str) -> Standing:
    """What a payment comes to. A dispute that is open again after a loss holds all it is about:
    that it was opened once more brings no money back."""
    kept = payment.captured(currency)
    if payment.plain:
        return Standing(kept, 0)
    if payment.returns:
        kept -= payment.returned(currency)
    held = again = 0
    for dispute in payment.open_disputes if payment.disputes else ():
        amount = amount_of(dispute, payment)
        minor = max(kept, 0) if amount is None else amount.minor
        if amount is not None and amount.currency != currency:
            minor = 0
        if dispute.reopened:
            again += minor
        else:
            held += minor
    return Standing(kept, again + min(held, max(0, kept - again)))


def _weigh(judgement: Judgement) -> None:
    """Set what is held, what of it counts, and what of that is beyond the price. A payment in doubt
    counts for nothing; what went back of it beyond its smallest stated capture is taken off all the
    same."""
    currency = judgement.currency
    if currency is None:
        return
    for payment in judgement.payments:
        stood = standing(payment, currency)
        judgement.held += stood.kept - stood.on_hold
        if id(payment.attempt) not in judgement.doubts:
            judgement.counted += stood.kept - stood.on_hold
        elif payment.returns or payment.disputes:
            gone = at_most_returned(payment, currency)
            judgement.counted -= max(0, gone - _smallest(payment, currency))
    price = judgement.expected.money
    if price is not None and judgement.counted > price.minor:
        judgement.surplus = judgement.counted - price.minor


def _smallest(payment: Payment, currency: str) -> int:
    """The least that a payment may have brought."""
    stated = [[m.minor for m in c.stated if m.currency == currency] for c in payment.captures]
    return sum([min(amounts, default=0) for amounts in stated])


def _currency_of(judgement: Judgement) -> str | None:
    if judgement.expected.money is not None:
        return judgement.expected.money.currency
    found = {m.money.currency for m in judgement.captures if m.money is not None}
    return found.pop() if len(found) == 1 else None


# --- the order: money moved ----------------------------------------------------------------------


def _money_moved(judgement: Judgement) -> Decision:
    """The table of DESIGN, line by line; the first that fits."""
    judgement.currency = _currency_of(judgement)
    _weigh(judgement)
    gone = False
    if not judgement.plain:
        judgement.open_disputes = [d for p in judgement.payments for d in p.open_disputes]
        gone = any(payment.returns for payment in judgement.payments)
    for line in _LINES if gone else _LINES_WHERE_NOTHING_WENT_BACK:
        decided = line(judgement)
        if decided is not None:
            return decided
    raise AssertionError("the last line always fits")


def _capture_unknown(judgement: Judgement) -> Decision | None:
    """Money went back on a payment whose capture nobody has reported."""
    unknown = [p for p in judgement.payments if p.returns and not p.captures]
    if not unknown:
        return None
    reason = _money_reason(judgement, "refund_before_payment", returned_on=unknown)
    return "unresolved", (reason, *_doubts(judgement))


def _all_gone(judgement: Judgement) -> Decision | None:
    """All that came went back, whatever the price is now."""
    if judgement.doubts or any(_over(p) for p in judgement.payments):
        return None
    balances = judgement.balances
    if not judgement.captures or not any(b.returned for b in balances):
        return None
    if any(b.captured != b.returned for b in balances):
        return None
    if any(b.lost for b in balances):
        return "charged_back", (_money_reason(judgement, "charged_back"),)
    return "refunded", (_money_reason(judgement, "refunded_in_full"),)


def _price_unknown(judgement: Judgement) -> Decision | None:
    """Prices that disagree, or no price: what can be said without it."""
    expected = judgement.expected
    if expected.money is not None:
        return None
    if judgement.doubts:
        return "unresolved", _doubts(judgement)
    if expected.stated and judgement.captures:
        return "unresolved", (_prices(judgement),)
    if judgement.captures and judgement.currency is None:
        return "unresolved", (_currencies(judgement, judgement.movements),)
    lines = (_disputed, _charged_back, _refunded, _partly_refunded, _without_payment)
    for line in lines:
        decided = line(judgement)
        if decided is not None:
            return decided
    return "succeeded", (_money_reason(judgement, "paid_amount_unconfirmed"),)


def _paid(judgement: Judgement) -> Decision | None:
    """A capture counts, and what is held without payments in doubt is at least the price."""
    price = judgement.expected.money
    assert price is not None
    if judgement.counted < price.minor or not _counting(judgement):
        return None
    if judgement.open_disputes and _disputes_of_the_unknown(judgement):
        return None  # of which payment money may go back is not known
    return "succeeded", (_money_reason(judgement, _paid_code(judgement)),)


def _disputes_of_the_unknown(judgement: Judgement) -> bool:
    return any(p.open_disputes and not p.captures for p in judgement.payments)


def _counting(judgement: Judgement) -> bool:
    for payment in judgement.sure():
        for capture in payment.captures:
            if capture.money is not None and capture.money.currency == judgement.currency:
                return True
    return False


def _paid_code(judgement: Judgement) -> str:
    returned = not judgement.plain and any(b.returned for b in judgement.balances)
    if not judgement.surplus:
        return "overpayment_returned" if returned else "paid_in_full"
    if paid_several_times(judgement):
        return "overpayment_returned_in_part" if returned else "paid_several_times"
    return "paid_with_surplus_returned_in_part" if returned else "paid_with_surplus"


def paid_several_times(judgement: Judgement) -> bool:
    """Whether each of at least two captures that count is exactly what the order costs."""
    price = judgement.expected.money
    captures = judgement.captures
    if len(captures) < 2 or price is None:
        return False
    whole = [m for p in judgement.sure() for m in p.captures if m.money == price]
    return len(whole) > 1


def _doubtful(judgement: Judgement) -> Decision | None:
    """Payments in doubt, or one that returned more than it brought and alone keeps the order from
    being paid."""
    price, currency = judgement.expected.money, judgement.currency
    assert price is not None
    assert currency is not None
    if judgement.doubts:
        return "unresolved", _doubts(judgement)
    over = [p for p in judgement.payments if _over(p)]
    lacking = sum([max(0, p.returned(currency) - p.captured(currency)) for p in over])
    if over and _counting(judgement) and judgement.counted + lacking >= price.minor:
        return "unresolved", (_money_reason(judgement, "returned_more_than_captured"),)
    return None


def _over(payment: Payment) -> bool:
    """Whether more went back on a payment than came on it, in any currency."""
    if not payment.returns:
        return False
    currencies = {m.money.currency for m in payment.returns if m.money is not None}
    return any(payment.returned(c) > payment.captured(c) for c in currencies)


def _disputed(judgement: Judgement) -> Decision | None:
    if not judgement.open_disputes:
        return None
    heard = [h for d in judgement.open_disputes for h in d.heard]
    tied = [h for p in judgement.payments for d in p.open_disputes for h in p.attempt.tied(d.heard)]
    reason = _money_reason(judgement, "dispute_open", extra=cites_of([*heard, *tied]))
    return "disputed", (reason,)


def _charged_back(judgement: Judgement) -> Decision | None:
    if not any(b.lost for b in judgement.balances):
        return None
    return "charged_back", (_money_reason(judgement, "charged_back_in_part"),)


def _refunded(judgement: Judgement) -> Decision | None:
    gone = any(b.refunded or b.reversed for b in judgement.balances)
    others = [b for b in judgement.balances if b.currency != judgement.currency]
    if not gone or judgement.held > 0 or any(b.captured > b.returned for b in others):
        return None
    return "refunded", (_money_reason(judgement, "refunded_in_full"),)


def _partly_refunded(judgement: Judgement) -> Decision | None:
    price, currency = judgement.expected.money, judgement.currency
    own = [b for b in judgement.balances if b.currency == currency]
    if not any(b.refunded or b.reversed for b in judgement.balances):
        return None
    if price is not None and not any(b.captured >= price.minor for b in own):
        return None
    return "partially_refunded", (_money_reason(judgement, "refunded_in_part"),)


def _without_payment(judgement: Judgement) -> Decision | None:
    """Only disputes that were opened and closed are known, and no payment: nothing is settled."""
    if judgement.captures:
        return None
    heard = [h for p in judgement.payments for h in p.attempt.heard]
    return "unresolved", (new_reason(code="dispute_without_payment", cites=cites_of(heard)),)


def _not_the_price(judgement: Judgement) -> Decision:
    """Something came, and it is not what is due."""
    if not judgement.captures:
        decided = _without_payment(judgement)
        assert decided is not None
        return decided
    if not _counting(judgement):
        return "unresolved", (_currencies(judgement, judgement.movements),)
    return "unresolved", (_money_reason(judgement, "amount_differs"),)


_LINES: Final = (
    _capture_unknown,
    _all_gone,
    _price_unknown,
    _paid,
    _doubtful,
    _disputed,
    _charged_back,
    _refunded,
    _partly_refunded,
    _not_the_price,
)
_LINES_WHERE_NOTHING_WENT_BACK: Final = _LINES[2:]


# --- reasons -------------------------------------------------------------------------------------


def _doubts(judgement: Judgement) -> tuple[Reason, ...]:
    """Every doubt, each once, in the order of the attempts; the rest of the money beside them.

    What counts is cited too: on less evidence less would be held, for another reason.
    """
    found = list(dict.fromkeys([r for reasons in judgement.doubts.values() for r in reasons]))
    return tuple(found)


def _currencies(judgement: Judgement, movements: Sequence[Movement]) -> Reason:
    expected = judgement.expected
    moved = [m.money for m in movements if m.money is not None]
    facts: list[tuple[str, FactValue]] = [("moved", money) for money in moved]
    if expected.money is not None:
        facts.append(("expected", expected.money))
    cites = _union(*[m.cites for m in movements], expected.cites)
    return new_reason(code="currency_differs", cites=cites, facts=tuple(facts))


def _prices(judgement: Judgement) -> Reason:
    expected = judgement.expected
    facts: Facts = tuple((f"amount_{n}", m) for n, m in enumerate(expected.stated, 1))
    cites = _union(expected.cites, *(m.cites for m in judgement.movements))
    return new_reason(code="order_amounts_conflict", cites=cites, facts=facts)


def _money_reason(
    judgement: Judgement,
    code: str,
    *,
    extra: tuple[str, ...] = (),
    returned_on: Sequence[Payment] | None = None,
) -> Reason:
    """A reason about the whole money: what was expected, captured and what went back in each way;
    `returned`: in all ways, on these payments, else on all."""
    facts: list[tuple[str, FactValue]] = []
    expected = judgement.expected
    if expected.money is not None:
        facts.append(("expected", expected.money))
    if not judgement.balances:
        facts.append(("captured", None))
    for b in judgement.balances:
        facts.append(("captured", new_money(minor=b.captured, currency=b.currency)))
        if b.refunded + b.reversed:
            money = new_money(minor=b.refunded + b.reversed, currency=b.currency)
            facts.append(("refunded", money))
        if b.lost:
            facts.append(("lost", new_money(minor=b.lost, currency=b.currency)))
    if not judgement.plain:
        facts += _returned(judgement.payments if returned_on is None else returned_on)
    if expected.money is not None and judgement.surplus:
        surplus = new_money(minor=judgement.surplus, currency=expected.money.currency)
        facts.append(("surplus", surplus))
    cites = [cite for movement in judgement.movements for cite in movement.cites]
    cites += (*extra, *expected.cites)
    return new_reason(code=code, cites=tuple(dict.fromkeys(cites)), facts=tuple(facts))


def _returned(payments: Sequence[Payment]) -> Facts:
    """What went back on these payments, in each currency; None where no event says how much."""
    returns = [m for payment in payments for m in payment.returns]
    currencies = sorted({m.money.currency for m in returns if m.money is not None})
    if returns and not currencies:
        return (("returned", None),)
    amounts = [(sum([p.returned(c) for p in payments]), c) for c in currencies]
    return tuple([("returned", new_money(minor=minor, currency=c)) for minor, c in amounts])


def _union(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([cite for group in groups for cite in group]))


# --- the order: no money moved -------------------------------------------------------------------


def _no_money_moved(case: Case, judgement: Judgement) -> Decision:
    attempts = judgement.attempts
    if not attempts:
        return _untried(case)
    reserved = [a for a in attempts if a.outcome == "authorized"]
    if reserved:
        return "authorized", (_of_open("money_reserved", reserved),)
    waiting = [a for a in attempts if a.outcome == "pending"]
    unconfirmed = [a for a in waiting if a.reason.code == "awaiting_confirmation"]
    if unconfirmed:
        return "pending", (_of_open("confirmation_awaited", unconfirmed),)
    if waiting:
        return "pending", (_of_open("still_open", waiting),)
    last = max(attempts, key=lambda a: (a.ended_at or 0, a.reference, a.source))
    facts: Facts = (("attempt", last.reference), ("ended_at", last.ended_at), *last.reason.facts)
    code = "last_word_" + last.reason.code
    return _LAST_WORD[last.outcome], (new_reason(code=code, cites=last.reason.cites, facts=facts),)


def _of_open(code: str, attempts: list[Attempt]) -> Reason:
    facts: Facts = (("attempts", len(attempts)),)
    if code == "still_open":
        # The order is open as long as any attempt is: the last deadline is the one that counts.
        facts = (*facts, ("deadline_at", max([a.deadline or 0 for a in attempts])))
    return new_reason(code=code, cites=_union(*[a.reason.cites for a in attempts]), facts=facts)


def _untried(case: Case) -> Decision:
    filed = case.filed
    canceled = filed.canceled
    if canceled is not None:
        return "canceled", (
            new_reason(
                code="canceled_by_merchant",
                cites=(canceled.record_id,),
                facts=(("canceled_at", canceled.at),),
            ),
        )
    record = filed.placed or filed.fulfilled
    if record is None:
        return "not_attempted", (new_reason(code="nothing_known", cites=()),)
    return "not_attempted", (new_reason(code="nothing_attempted", cites=(record.record_id,)),)
