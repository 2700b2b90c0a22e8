"""Find the reasons why payments of an order are in doubt."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from reconcile.ledger.correlate import AttemptEvidence, Case, Heard, cites_of
from reconcile.ledger.events import FOLLOWS_SUCCESS, ClaimKind, Event
from reconcile.ledger.ledger import Facts, Reason
from reconcile.ledger.movements import Payment
from reconcile.ledger.on_top import counted_of, counting, discounted
from reconcile.ledger.outcome_attempts import all_cites
from reconcile.ledger.records import Record
from reconcile.money import Money, exponent_of

TAKES_MONEY: Final[frozenset[ClaimKind]] = FOLLOWS_SUCCESS | {"succeeded"}

Doubts = dict[int, list[Reason]]
"""Reasons for doubt, by the `id()` of the attempt's evidence."""


def doubts_of(
    case: Case,
    payments: Sequence[Payment],
    *,
    bodies: list[list[Heard]],
    price: Money | None,
    priced_by: tuple[str, ...],
    unpriced: Sequence[Payment],
) -> Doubts:
    """Return the reasons why each payment is in doubt.

    bodies     groups of events that have one id but different bodies
    price      price of the order; None if statements disagree or are missing
    priced_by  ids of the events or records that state the price
    unpriced   payments whose amount fits no price of the order
    """
    doubts: Doubts = {}
    for group in bodies:
        first = _substance(group[0])
        if any(_substance(each) != first for each in group):
            facts: Facts = (("bodies", len(group)),)
            reason = Reason(code="bodies_disagree", cites=cites_of(group), facts=facts)
            members = {id(each) for each in group}
            for attempt in case.attempts:
                if not members.isdisjoint([id(each) for each in attempt.heard]):
                    doubts.setdefault(id(attempt), []).append(reason)
    for shared in shared_references(case):
        # Money moved on the attempt, according to events of either order.
        if not TAKES_MONEY.isdisjoint(
            [*shared.attempt.claims, *[h.event.claim for h in shared.heard]]
        ):
            facts = (("reference", shared.attempt.reference),)
            reason = Reason(code="reference_shared", cites=shared.cites, facts=facts)
            doubts.setdefault(id(shared.attempt), []).append(reason)
    for payment in payments:
        captures, attempt = payment.captures, payment.attempt
        unclear = [h for h in attempt.heard if h.event.unclear and h.event.claim in TAKES_MONEY]
        if unclear:
            facts = (("attempt", attempt.reference),)
            reason = Reason(code="amount_unclear", cites=cites_of(unclear), facts=facts)
            doubts.setdefault(id(attempt), []).append(reason)
        elif (
            len(captures) == 1
            and price is not None
            and captures[0].money == price
            and not (payment.returns or payment.disputes or "canceled" in attempt.claims)
        ):
            continue  # nearly every payment is one capture of the price and nothing else
        placed = case.filed.placed
        found = _reasons(
            payment,
            price=price,
            tendered=None if placed is None else placed.tendered,
            priced_by=priced_by,
            unclear=bool(unclear),
        )
        if found:
            doubts.setdefault(id(attempt), []).extend(found)
    for payment in unpriced:
        facts = (
            ("attempt", payment.attempt.reference),
            *(("captured", capture.money) for capture in payment.captures),
        )
        cites = tuple(dict.fromkeys([c for m in payment.captures for c in m.cites]))
        reason = Reason(code="amount_not_price", cites=cites, facts=facts)
        doubts.setdefault(id(payment.attempt), []).append(reason)
    return doubts


# --- amounts of payments that only their order number links ---------------------------------------

MOST_TOGETHER: Final = 8
"""Maximum number of payments whose combined sums are compared with prices."""


def held_to_prices(case: Case, payments: Sequence[Payment]) -> tuple[list[Payment], list[str]]:
    """Return payments that fit no price, with related price records."""
    found = [
        each
        for each in payments
        if each.captures
        and each.attempt.source in case.policy.mismatch_held
        and each.attempt.assignment is None
    ]
    together = MOST_TOGETHER if len(found) <= MOST_TOGETHER else 1
    right: set[int] = set()
    prices: list[str] = []
    for count in range(1, together + 1):
        for some in combinations(found, count):
            price = _price_of(case, some)
            if price is not None:
                right |= {id(each) for each in some}
                prices.append(price.record_id)
    return [each for each in found if id(each) not in right], prices


def _price_of(case: Case, payments: Sequence[Payment]) -> Record | None:
    captures = [capture for payment in payments for capture in payment.captures]
    since = min([each.at for capture in captures for each in capture.heard])
    prices = case.filed.prices
    before = [n for n, record in enumerate(prices) if record.recorded_at <= since]
    amounts = [capture.money for capture in captures]
    for record in prices[max(before, default=0) :]:
        due = record.due
        if (
            due is not None
            and all(each is not None and each.currency == due.currency for each in amounts)
            and _makes_up(payments, due, percent=case.policy.provider_discount_percent)
        ):
            return record
    return None


def _makes_up(payments: Sequence[Payment], due: Money, *, percent: int) -> bool:
    shares = [counted_of(each, due.currency, kept=each.captured(due.currency)) for each in payments]
    captured = sum([share.captured - share.beyond for share in shares])
    price = due.minor - sum(discounted(shares, due.minor, percent=percent))
    return captured - sum([share.named for share in shares]) <= price <= captured and (
        counting(shares, price) == price
    )


def contradicting_bodies(case: Case) -> list[list[Heard]]:
    """Group the events of one id that have different bodies."""
    others = case.foreign + [h for h in case.moved if h.event.standing != "unconfirmed"]
    heard = case.heard + others if others else case.heard
    if len({h.event.event_id for h in heard}) == len(heard):
        return []
    groups: dict[tuple[str, str], list[Heard]] = {}
    for each in case.heard:
        if each.event.standing != "unconfirmed" and each.event.claim != "ignored":
            groups.setdefault((each.event.source, each.event.event_id), []).append(each)
    for each in others:
        key = (each.event.source, each.event.event_id)
        if key in groups and each.event.claim != "ignored":
            groups[key].append(each)
    return [group for group in groups.values() if len(group) > 1]


def _substance(heard: Heard) -> tuple[object, ...]:
    e = heard.event
    return (e.claim, e.money, e.order_money, e.refunded_total, e.unclear, e.order, e.session,
            e.payment, e.movement, e.capture)  # fmt: skip


class Shared(NamedTuple):
    """Attempt of this order that another order's evidence also claims."""

    attempt: AttemptEvidence
    heard: list[Heard]
    """Events of the other order."""
    records: list[Record]
    """Records of either order that claim the attempt."""

    @property
    def cites(self) -> tuple[str, ...]:
        """Return the ids of all evidence that claims the attempt for either order."""
        records = tuple([record.record_id for record in self.records])
        return all_cites(self.attempt) + cites_of(self.heard) + records


def shared_references(case: Case) -> list[Shared]:
    """Return the attempts of this order that another order's evidence also claims."""
    found = []
    for attempt in case.attempts if case.foreign or case.foreign_records else ():
        if (not attempt.heard and not attempt.files) or attempt.assignment:
            continue  # it has only unconfirmed events, which share nothing, or an assignment
        heard = [
            h
            for h in case.foreign
            if h.event.claim != "ignored" and names_attempt(h.event, attempt)
        ]
        records = [r for r in case.foreign_records if names_attempt(r, attempt)]
        if heard or records:
            own = [r for r in case.filed.named if names_attempt(r, attempt)]
            found.append(Shared(attempt, heard, [*own, *records]))
    return found


def names_attempt(each: Event | Record, attempt: AttemptEvidence) -> bool:
    """Check whether an event or record names the attempt's payment or session."""
    return each.source == attempt.source and (
        each.payment == attempt.reference
        or (each.session is not None and attempt.belongs_to(each.session))
    )


def is_off_by_factor(amount: Money | None, price: Money | None) -> bool:
    """Check whether an amount is exactly 100 times the price.

    The factor is 1000 for currencies with three decimals.
    """
    if amount is None or price is None or amount.currency != price.currency or not price.minor:
        return False
    factor: int = 10 ** (exponent_of(price.currency) or 2)
    return amount.minor == price.minor * factor


def _reasons(
    payment: Payment,
    *,
    price: Money | None,
    tendered: Money | None,
    priced_by: tuple[str, ...],
    unclear: bool,
) -> list[Reason]:
    found = []
    named = ("attempt", payment.attempt.reference)
    for movement in (*payment.captures, *payment.returns):
        if len(movement.stated) > 1 or not (movement.stated or unclear):
            amounts = [(f"amount_{n}", money) for n, money in enumerate(movement.stated, 1)]
            facts: Facts = (named, ("movement", movement.kind), *amounts)
            code = "amounts_conflict" if movement.stated else "amount_not_stated"
            found.append(Reason(code=code, cites=movement.cites, facts=facts))
    for capture in payment.captures:
        if is_off_by_factor(capture.money, price):
            facts = (named, ("captured", capture.money), ("expected", price))
            facts += () if tendered is None else (("tendered", tendered),)
            cites = tuple(dict.fromkeys((*capture.cites, *priced_by)))
            found.append(Reason(code="amount_off_by_factor", cites=cites, facts=facts))
    if payment.returns or payment.disputes:
        found += _other_currency(payment)
    late = cancellations_after(payment.attempt)
    if late:
        captured = [c for m in payment.captures for c in m.cites]
        cites = tuple(dict.fromkeys([*captured, *cites_of(payment.attempt.tied(late))]))
        found.append(Reason(code="canceled_after_capture", cites=cites, facts=(named,)))
    return found


def _other_currency(payment: Payment) -> Iterable[Reason]:
    came = {m.money.currency for m in payment.captures if m.money is not None}
    if not came:
        return
    returned = [(money, m.cites) for m in payment.returns for money in m.stated]
    disputed: list[tuple[Money, tuple[str, ...]]] = []
    for dispute in payment.disputes:
        if dispute.word != "won":
            cites = cites_of(payment.attempt.tied(dispute.heard))
            amounts = [h.event.money for h in dispute.heard if h.event.money is not None]
            # An open dispute has taken nothing yet.
            stated = disputed if dispute.word == "open" else returned
            stated += [(money, cites) for money in amounts]
    captured = [c for m in payment.captures for c in m.cites]
    for name, stated in (("returned", returned), ("disputed", disputed)):
        odd = [(money, cites) for money, cites in stated if money.currency not in came]
        if odd:
            facts: Facts = (
                ("attempt", payment.attempt.reference),
                *((name, money) for money in dict.fromkeys([money for money, _ in odd])),
            )
            cites = tuple(dict.fromkeys([*captured, *[c for _, own in odd for c in own]]))
            yield Reason(code=f"{name}_in_other_currency", cites=cites, facts=facts)


def cancellations_after(attempt: AttemptEvidence) -> list[Heard]:
    """Return the cancellations dated after the attempt's first capture.

    If dates are missing, all cancellations are returned.
    """
    canceled, captured = attempt.claims.get("canceled"), attempt.claims.get("succeeded")
    if canceled is None or captured is None:
        return []
    if any(h.event.occurred_at is None for h in captured):
        return canceled
    first = min([h.at for h in captured])
    return [h for h in canceled if h.event.occurred_at is None or h.at > first]
