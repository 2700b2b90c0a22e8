"""Decide the order's outcome from its attempts and movements of money."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from reconcile.instants import Instant
from reconcile.ledger.correlate import Case, Heard, cites_of
from reconcile.ledger.doubt import Doubts, contradicting_bodies, doubts_of, held_to_prices
from reconcile.ledger.ledger import (
    OVERDUE,
    Attempt,
    AttemptOutcome,
    Balance,
    Facts,
    FactValue,
    Movement,
    Outcome,
    Reason,
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
from reconcile.ledger.on_top import Counted, counted_of, counting, discounted
from reconcile.ledger.outcome_attempts import decide_attempt
from reconcile.money import Money

_LAST_WORD: Final[dict[AttemptOutcome, Outcome]] = {
    "declined": "failed",
    "canceled": "canceled",
    "expired": "expired",
    "timed_out": "timed_out",
}


@dataclass(slots=True)
class Expectation:
    """Price of the order that providers should collect, with the evidence for the price."""

    money: Money | None
    """Amount due at providers. None if not stated, or if statements differ."""
    cites: tuple[str, ...]
    stated: tuple[Money, ...] = ()
    """The different amounts, if statements differ."""
    by_shop: bool = False
    """True if the shop itself stated the price."""
    tendered: Money | None = None
    """Part of the price that was paid without a provider, if any."""
    discount: Money | None = None
    """Part of the price that discounts at providers take off, if any."""

    def facts(self) -> Facts:
        """Return the amounts of the price as facts."""
        if self.money is None:
            return ()
        less = (("tendered", self.tendered), ("discount", self.discount))
        return (("expected", self.money), *[each for each in less if each[1] is not None])


@dataclass(slots=True)
class Judgement:
    """All conclusions about the money and outcome of an order."""

    expected: Expectation
    attempts: tuple[Attempt, ...]
    payments: list[Payment]
    movements: Sequence[Movement]
    captures: list[Movement]
    """Movements that brought money."""
    balances: tuple[Balance, ...]
    bodies: list[list[Heard]]
    """Groups of events that have one id but different bodies."""
    doubts: Doubts
    """Reasons for doubt, by the `id()` of the attempt's evidence."""
    currency: str | None = None
    """Currency of the price, or else of all captures, if they have one."""
    held: int = 0
    """Captured amount in `currency`, less returns and open disputes."""
    shares: Sequence[Counted] = ()
    """Amounts of each payment that is not in doubt. Empty without named parts."""
    came_on_top: int = 0
    """Amount paid on top of the price, without payments in doubt."""
    on_top: int = 0
    """Part of `came_on_top` that is still held."""
    percent: int = 0
    """Largest percentage of the price that a provider's discount may take off."""
    refused: Money | None = None
    """Part of the discounts that the shop does not accept, if any."""
    lost_in_doubt: int = 0
    """Money that went back on payments in doubt, beyond their certain captures."""
    counted: int = 0
    """Held amount of the payments not in doubt, less `on_top` and `lost_in_doubt`."""
    surplus: int = 0
    """Amount by which `counted` exceeds the price, or 0."""
    owed: int = 0
    """Amount to give back: the surplus, or everything if the shop canceled."""
    returning: int = 0
    """Part of `owed` that pending refunds will return."""
    outcome: Outcome = "not_attempted"
    reasons: tuple[Reason, ...] = ()
    withheld: tuple[Reason, ...] = ()
    open_disputes: Sequence[Dispute] = ()
    ship_by: Instant | None = None
    """Time when an unfulfilled order becomes a finding."""
    plain: bool = True
    """True if there are captures only."""

    @property
    def worth(self) -> int | None:
        """Return the price in minor units; None if the price is unknown."""
        return None if self.expected.money is None else self.expected.money.minor

    def is_paid_without(self, on_hold: Mapping[int, int], price: Money) -> bool:
        """Check whether the order would stay paid without the amounts on hold.

        on_hold  amount on hold for each payment, by the `id()` of the attempt's evidence
        """
        if not self.shares:
            return self.counted - sum(on_hold.values()) >= price.minor
        sure = zip(self.sure(), self.shares, strict=True)
        shares = [share.less(on_hold.get(id(payment.attempt), 0)) for payment, share in sure]
        off = 0 if self.expected.discount is None else self.expected.discount.minor
        due = price.minor + off
        due -= sum(discounted(shares, due, percent=self.percent))
        return counting(shares, due) - self.lost_in_doubt >= due

    def sure(self) -> list[Payment]:
        """Return the payments that are not in doubt."""
        if not self.doubts:
            return self.payments
        return [each for each in self.payments if id(each.attempt) not in self.doubts]


def decide(case: Case) -> Judgement:
    """Decide each attempt, and then the outcome of the order."""
    attempts = tuple([decide_attempt(evidence, case) for evidence in case.attempts])
    payments = payments_of(case.attempts, case.filed)
    movements = movements_of(payments)
    captures = [m for m in movements if m.kind == "captured"]
    expected, bodies = _expected(case), contradicting_bodies(case)
    unpriced: Sequence[Payment] = ()
    if case.policy.mismatch_held:
        unpriced, prices = held_to_prices(case, payments)
        expected.cites = _union(expected.cites, tuple(prices))
    judgement = Judgement(
        expected=expected,
        attempts=attempts,
        payments=payments,
        movements=movements,
        captures=captures,
        balances=balances_of(movements),
        bodies=bodies,
        doubts=doubts_of(
            case,
            payments,
            bodies=bodies,
            price=expected.money,
            priced_by=expected.cites,
            unpriced=unpriced,
        ),
    )
    judgement.percent = case.policy.provider_discount_percent
    judgement.plain = all(payment.plain for payment in payments)
    moved = judgement.doubts or captures or any(payment.moved for payment in payments)
    decided = _money_moved(judgement) if moved else _no_money_moved(case, judgement)
    judgement.outcome, judgement.reasons = decided
    # Nobody knows the amount of an order in doubt.
    certain = judgement.outcome != "unresolved" or judgement.reasons[0].code == "amount_differs"
    if case.filed.canceled is not None and judgement.held > 0 and certain:
        judgement.owed = judgement.held
        judgement.returning = _returning(judgement, judgement.payments)
    return judgement


Decision = tuple[Outcome, tuple[Reason, ...]]


# --- the order: what it costs --------------------------------------------------------------------


def _expected(case: Case) -> Expectation:
    placed = case.filed.placed
    if placed is not None and placed.money is not None:
        return Expectation(placed.due, (placed.record_id,), by_shop=True, tendered=placed.tendered)
    if case.filed.sessions:
        asked = [f.requested for f in case.filed.sessions.values() if f.requested is not None]
        asked = [record for record in asked if record.money is not None]
        if asked:
            last = max(asked, key=lambda record: (record.recorded_at, record.record_id))
            return Expectation(last.money, (last.record_id,), by_shop=True)
    stated: list[Money] = []
    cites: list[str] = []
    for each in case.heard:
        event = each.event
        money = event.order_money
        # There are hardly ever two: comparing is cheaper than hashing.
        if (
            money is not None
            and money not in stated
            and event.standing != "unconfirmed"
            and event.claim != "ignored"
            and event.order in (None, case.order)
        ):
            stated.append(money)
            of = [each]
            if event.payment is None:  # other events tie it to its payment
                own = [a for a in case.attempts if a.links and any(h is each for h in a.heard)]
                of = [h for attempt in own for h in attempt.tied([each])] or of
            cites += cites_of(of)
    cites = list(dict.fromkeys(cites))
    if len(stated) == 1:
        return Expectation(stated[0], tuple(cites))
    stated.sort(key=lambda m: (m.currency, m.minor))
    return Expectation(None, tuple(cites), tuple(stated))


# --- the order: what is held ---------------------------------------------------------------------


class PaymentSum(NamedTuple):
    """Money that is left of one payment, in minor units of one currency."""

    kept: int
    """Captured less returned amount. Negative if more went back than came."""
    on_hold: int
    """Part of `kept` that open disputes hold."""


def standing(payment: Payment, currency: str) -> PaymentSum:
    """Return the money left of a payment, and the part that open disputes hold."""
    kept = payment.captured(currency)
    if payment.plain:
        return PaymentSum(kept, 0)
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
    return PaymentSum(kept, again + min(held, max(0, kept - again)))


def under_way(payment: Payment, currency: str) -> int:
    """Return the amount that pending refunds will take."""
    if not payment.pending:
        return 0
    kept, on_hold = standing(payment, currency)
    amounts = [each.amount for each in payment.pending if each.amount is not None]
    return min(max(0, kept - on_hold), sum([m.minor for m in amounts if m.currency == currency]))


def _returning(judgement: Judgement, payments: Sequence[Payment]) -> int:
    if judgement.plain or judgement.currency is None:
        return 0
    return min(judgement.owed, sum([under_way(each, judgement.currency) for each in payments]))


def _weigh(judgement: Judgement) -> None:
    price = judgement.expected.money
    if price is not None:
        currency = price.currency
    else:
        found = {m.money.currency for m in judgement.captures if m.money is not None}
        if len(found) != 1:
            return
        (currency,) = found
    judgement.currency = currency
    for payment in judgement.payments:
        kept, on_hold = standing(payment, currency)
        judgement.held += kept - on_hold
        if id(payment.attempt) not in judgement.doubts:
            judgement.counted += kept - on_hold
        elif payment.returns or payment.disputes:
            came = 0
            for capture in payment.captures:
                stated = [m.minor for m in capture.stated if m.currency == currency]
                came += min(stated, default=0)
            judgement.lost_in_doubt += max(0, at_most_returned(payment, currency) - came)
    if any(payment.attempt.parts for payment in judgement.sure()):
        price = _weigh_parts(judgement, currency)
    judgement.counted -= judgement.lost_in_doubt
    if price is not None and judgement.counted > price.minor:
        judgement.surplus = judgement.owed = judgement.counted - price.minor
        judgement.returning = _returning(judgement, judgement.sure())


def _weigh_parts(judgement: Judgement, currency: str) -> Money | None:
    expected, shares = judgement.expected, list[Counted]()
    for payment in judgement.sure():
        kept, on_hold = standing(payment, currency)
        shares.append(counted_of(payment, currency, kept=kept - on_hold))
    judgement.shares = shares
    if expected.money is not None:
        financed, taken = discounted(shares, expected.money.minor, percent=judgement.percent)
        refused, off = sum([each.discount for each in shares]) - taken, financed + taken
        if refused:
            judgement.refused = Money(minor=refused, currency=currency)
        if off:
            expected.discount = Money(minor=off, currency=currency)
            expected.money = Money(minor=expected.money.minor - off, currency=currency)
    whole = [replace(each, kept=each.captured) for each in shares]
    judgement.came_on_top = sum([each.kept for each in whole]) - counting(whole, judgement.worth)
    kept, judgement.counted = judgement.counted, counting(shares, judgement.worth)
    judgement.on_top = kept - judgement.counted
    return expected.money


# --- the order: money moved ----------------------------------------------------------------------


def _money_moved(judgement: Judgement) -> Decision:
    _weigh(judgement)
    gone = False
    if not judgement.plain:
        judgement.open_disputes = [d for p in judgement.payments for d in p.open_disputes]
        gone = any(payment.returns for payment in judgement.payments)
    for line in _LINES if gone else _LINES_WHERE_NOTHING_WENT_BACK:
        decided = line(judgement)
        if decided is not None:
            return decided
    raise AssertionError("no line decided the outcome, although the last line decides every order")


def stands_alone(judgement: Judgement, payment: Payment) -> bool:
    """Check whether a payment has only refunds that other captures cover."""
    returned = {m.money.currency for m in payment.returns if m.money is not None}
    return (
        not payment.captures
        and any(each.event.standalone for each in payment.attempt.heard)
        and all(b.returned <= b.captured for b in judgement.balances if b.currency in returned)
    )


def _capture_unknown(judgement: Judgement) -> Decision | None:
    unknown = [
        p
        for p in judgement.payments
        if p.returns and not p.captures and not stands_alone(judgement, p)
    ]
    if not unknown:
        return None
    reason = _money_reason(judgement, "refund_before_payment", returned_on=unknown)
    return "unresolved", (reason, *_doubts(judgement))


def _all_gone(judgement: Judgement) -> Decision | None:
    if judgement.doubts or any(_over(judgement, p) for p in judgement.payments):
        return None
    balances = judgement.balances
    if not judgement.captures or not any(b.returned for b in balances):
        return None
    if any(b.captured != b.returned for b in balances):
        return None
    if any(b.lost for b in balances):
        return "charged_back", (_money_reason(judgement, "charged_back"),)
    return "refunded", (_all_given_back(judgement),)


def _price_unknown(judgement: Judgement) -> Decision | None:
    expected = judgement.expected
    if expected.money is not None:
        return None
    if judgement.doubts:
        return "unresolved", _doubts(judgement)
    if expected.stated and judgement.captures:
        facts: Facts = tuple((f"amount_{n}", m) for n, m in enumerate(expected.stated, 1))
        cites = _union(expected.cites, *(m.cites for m in judgement.movements))
        return "unresolved", (Reason(code="order_amounts_conflict", cites=cites, facts=facts),)
    if judgement.captures and judgement.currency is None:
        return "unresolved", (_currencies(judgement),)
    lines = (_disputed, _charged_back, _refunded, _partly_refunded, _without_payment)
    for line in lines:
        decided = line(judgement)
        if decided is not None:
            return decided
    return "succeeded", (_money_reason(judgement, "paid_amount_unconfirmed"),)


def _paid(judgement: Judgement) -> Decision | None:
    price = judgement.expected.money
    assert price is not None
    if judgement.counted < price.minor or not _counting(judgement):
        return None
    if judgement.open_disputes and any(
        p.open_disputes and not p.captures for p in judgement.payments
    ):
        return None  # the dispute may take money of any payment
    returned = not judgement.plain and any(b.returned for b in judgement.balances)
    if not judgement.surplus:
        code = "overpayment_returned" if returned else "paid_in_full"
    elif paid_several_times(judgement):
        code = "overpayment_returned_in_part" if returned else "paid_several_times"
    else:
        code = "paid_with_surplus_returned_in_part" if returned else "paid_with_surplus"
    return "succeeded", (_money_reason(judgement, code),)


def _counting(judgement: Judgement) -> bool:
    for payment in judgement.sure():
        for capture in payment.captures:
            if capture.money is not None and capture.money.currency == judgement.currency:
                return True
    return False


def paid_several_times(judgement: Judgement) -> bool:
    """Check whether at least two captures each equal the price."""
    return times_paid(judgement) > 1


def times_paid(judgement: Judgement) -> int:
    """Return the number of captures that equal the price."""
    price = judgement.expected.money
    if len(judgement.captures) < 2 or price is None:
        return 0
    if not judgement.shares:
        return len([m for p in judgement.sure() for m in p.captures if m.money == price])
    times = 0
    for payment, share in zip(judgement.sure(), judgement.shares, strict=True):
        exact = len([m for m in payment.captures if m.money == price])
        alone = share.captured - share.surely_on_top(price.minor) == price.minor
        times += 1 if len(payment.captures) == 1 and alone else exact
    return times


def _doubtful(judgement: Judgement) -> Decision | None:
    price, currency = judgement.expected.money, judgement.currency
    assert price is not None
    assert currency is not None
    if judgement.doubts:
        first, *others = _doubts(judgement)
        # Without their own returns, the payments that are not in doubt might make up the price.
        sure = judgement.sure()
        if sum([payment.captured(currency) for payment in sure]) >= price.minor:
            heard = [h for p in sure for movement in p.returns for h in movement.heard]
            heard += [h for p in sure for dispute in p.disputes for h in dispute.heard]
            cites = _union(first.cites, cites_of(heard))
            first = Reason(code=first.code, cites=cites, facts=first.facts)
        return "unresolved", (first, *others)
    over = [p for p in judgement.payments if _over(judgement, p)]
    lacking = sum([max(0, p.returned(currency) - p.captured(currency)) for p in over])
    if over and _counting(judgement) and judgement.counted + lacking >= price.minor:
        return "unresolved", (_money_reason(judgement, "returned_more_than_captured"),)
    return None


def _over(judgement: Judgement, payment: Payment) -> bool:
    if not payment.returns or stands_alone(judgement, payment):
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
    if (
        not gone
        or judgement.held > judgement.on_top
        or any(b.captured > b.returned for b in others)
    ):
        return None
    return "refunded", (_all_given_back(judgement),)


def _all_given_back(judgement: Judgement) -> Reason:
    for movement in judgement.movements:
        stated = reversal_mismatch(movement, judgement)
        if stated:
            reason = _money_reason(judgement, "reversal_amount_unclear")
            named = (("attempt", movement.attempt.reference), ("stated", stated[0]))
            return Reason(code=reason.code, cites=reason.cites, facts=(*named, *reason.facts))
    reason, currency = _money_reason(judgement, "refunded_in_full"), judgement.currency
    if not judgement.on_top or currency is None:
        return reason
    left = ("not_given_back", Money(minor=judgement.on_top, currency=currency))
    return Reason(code=reason.code, cites=reason.cites, facts=(*reason.facts, left))


def reversal_mismatch(movement: Movement, judgement: Judgement) -> tuple[Money, ...]:
    """Return the amounts of a reversal that do not fit."""
    if movement.kind != "reversed" or movement.money is None:
        return ()
    currency, stated = movement.money.currency, [h.event.money for h in movement.heard]
    whole = {movement.money.minor}
    for payment in judgement.payments:
        if payment.attempt is movement.attempt:
            captures = [m.money for m in payment.captures if m.money is not None]
            whole |= {payment.captured(currency), *[m.minor for m in captures]}
    odd = [m for m in stated if m is not None and (m.currency != currency or m.minor not in whole)]
    return tuple(dict.fromkeys(odd))


def _partly_refunded(judgement: Judgement) -> Decision | None:
    price, currency = judgement.expected.money, judgement.currency
    own = [b for b in judgement.balances if b.currency == currency]
    if not any(b.refunded or b.reversed for b in judgement.balances):
        return None
    if price is not None and not any(
        b.captured - judgement.came_on_top >= price.minor for b in own
    ):
        return None
    return "partially_refunded", (_money_reason(judgement, "refunded_in_part"),)


def _without_payment(judgement: Judgement) -> Decision | None:
    if judgement.captures:
        return None
    heard = [h for p in judgement.payments for h in p.attempt.heard]
    return "unresolved", (Reason(code="dispute_without_payment", cites=cites_of(heard)),)


def _not_the_price(judgement: Judgement) -> Decision:
    decided = _without_payment(judgement)
    if decided is not None:
        return decided
    if not _counting(judgement):
        return "unresolved", (_currencies(judgement),)
    reason = _money_reason(judgement, "amount_differs")
    if judgement.refused is not None:
        facts = (*reason.facts, ("refused_discount", judgement.refused))
        reason = Reason(code=reason.code, cites=reason.cites, facts=facts)
    return "unresolved", (reason,)


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
    return tuple(dict.fromkeys([r for reasons in judgement.doubts.values() for r in reasons]))


def _currencies(judgement: Judgement) -> Reason:
    expected, movements = judgement.expected, judgement.movements
    moved = [m.money for m in movements if m.money is not None]
    facts: Facts = (*[("moved", money) for money in moved], *expected.facts())
    cites = _union(*[m.cites for m in movements], expected.cites)
    return Reason(code="currency_differs", cites=cites, facts=facts)


def _money_reason(
    judgement: Judgement,
    code: str,
    *,
    extra: tuple[str, ...] = (),
    returned_on: Sequence[Payment] | None = None,
) -> Reason:
    expected = judgement.expected
    facts: list[tuple[str, FactValue]] = list(expected.facts())
    if not judgement.balances:
        facts.append(("captured", None))
    for b in judgement.balances:
        facts.append(("captured", Money(minor=b.captured, currency=b.currency)))
        if judgement.on_top and b.currency == judgement.currency:
            facts.append(("on_top", Money(minor=judgement.on_top, currency=b.currency)))
        if b.refunded + b.reversed:
            money = Money(minor=b.refunded + b.reversed, currency=b.currency)
            facts.append(("refunded", money))
        if b.lost:
            facts.append(("lost", Money(minor=b.lost, currency=b.currency)))
    if not judgement.plain:
        payments = judgement.payments if returned_on is None else returned_on
        returns = [m for payment in payments for m in payment.returns]
        currencies = sorted({m.money.currency for m in returns if m.money is not None})
        if returns and not currencies:
            facts.append(("returned", None))
        for currency in currencies:
            minor = sum([p.returned(currency) for p in payments])
            facts.append(("returned", Money(minor=minor, currency=currency)))
    if expected.money is not None and judgement.surplus:
        surplus = Money(minor=judgement.surplus, currency=expected.money.currency)
        facts.append(("surplus", surplus))
        facts += returning_facts(judgement)
    cites = [cite for movement in judgement.movements for cite in movement.cites]
    cites += (*extra, *expected.cites)
    return Reason(code=code, cites=tuple(dict.fromkeys(cites)), facts=tuple(facts))


def returning_facts(judgement: Judgement) -> Facts:
    """Return the owed amount that pending refunds will return, as a fact."""
    if not judgement.returning or judgement.currency is None:
        return ()
    return (("under_way", Money(minor=judgement.returning, currency=judgement.currency)),)


def _union(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([cite for group in groups for cite in group]))


# --- the order: no money moved -------------------------------------------------------------------


def _no_money_moved(case: Case, judgement: Judgement) -> Decision:
    attempts, filed = judgement.attempts, case.filed
    if not attempts:
        canceled = filed.canceled
        if canceled is not None:
            facts: Facts = (("canceled_at", canceled.at),)
            cites = (canceled.record_id,)
            return "canceled", (Reason(code="canceled_by_merchant", cites=cites, facts=facts),)
        record = filed.placed or filed.fulfilled
        if record is None:
            return "not_attempted", (Reason(code="nothing_known", cites=()),)
        return "not_attempted", (Reason(code="nothing_attempted", cites=(record.record_id,)),)
    reserved = [a for a in attempts if a.outcome == "authorized"]
    if reserved:
        return "authorized", (_of_open("money_reserved", reserved),)
    waiting = [a for a in attempts if a.outcome == "pending"]
    unconfirmed = [a for a in waiting if a.reason.code == "awaiting_confirmation"]
    if unconfirmed:
        return "pending", (_of_open("confirmation_awaited", unconfirmed),)
    if waiting and all(a.overdue for a in waiting):
        return "pending", (_of_open(OVERDUE, waiting),)
    if waiting:
        return "pending", (_of_open("still_open", waiting),)
    last = max(attempts, key=lambda a: (a.ended_at or 0, a.reference, a.source))
    facts = (("attempt", last.reference), ("ended_at", last.ended_at), *last.reason.facts)
    code = "last_word_" + last.reason.code
    return _LAST_WORD[last.outcome], (Reason(code=code, cites=last.reason.cites, facts=facts),)


def _of_open(code: str, attempts: list[Attempt]) -> Reason:
    facts: Facts = (("attempts", len(attempts)),)
    if code in ("still_open", OVERDUE):
        # The order is open as long as any attempt is, until the last deadline of its attempts.
        facts = (*facts, ("deadline_at", max([a.deadline or 0 for a in attempts])))
    return Reason(code=code, cites=_union(*[a.reason.cites for a in attempts]), facts=facts)
