"""Which payments of an order are in doubt, and why: doubt is a payment's, never the whole order's.

Leaves out: what becomes of the order; a payment in doubt adds nothing to what counts, and `outcome`
says what that means. Only what is signed or fetched can put a payment in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from reconcile.ledger.correlate import FOLLOWS_SUCCESS, AttemptEvidence, Case, Heard, cites_of
from reconcile.ledger.events import ClaimKind, Event
from reconcile.ledger.ledger import Facts, Movement, Reason, new_reason
from reconcile.ledger.movements import Payment
from reconcile.ledger.outcome_attempts import all_cites
from reconcile.ledger.records import Record
from reconcile.money import Money, exponent_of

TAKES_MONEY: Final[frozenset[ClaimKind]] = FOLLOWS_SUCCESS | {"succeeded"}
"""Claims that are about money which moved."""

Doubts = dict[int, list[Reason]]
"""By the id of an attempt's evidence: why its payment is in doubt."""


def doubts_of(
    case: Case,
    payments: Sequence[Payment],
    *,
    bodies: list[list[Heard]],
    price: Money | None,
    priced_by: tuple[str, ...],
) -> Doubts:
    """Every reason of every payment. Reasons of one attempt stand in the order of the checks.

    price, priced_by  what the order costs, where one voice says it, and the ids that do
    """
    doubts: Doubts = {}
    if bodies:
        _add(doubts, _bodies(case, bodies))
    if case.foreign or case.foreign_records:
        _add(doubts, _shared(case))
    for payment in payments:
        if _is_plain(payment, price):
            continue
        found = [
            *_amounts(payment),
            *_factor(payment, price, priced_by),
            *_other_currency(payment),
            *_canceled(payment),
        ]
        if found:
            doubts.setdefault(id(payment.attempt), []).extend(found)
    return doubts


def _is_plain(payment: Payment, price: Money | None) -> bool:
    """Whether it is one capture of the price and nothing else, as nearly every payment is."""
    if payment.returns or payment.disputes or "canceled" in payment.attempt.claims:
        return False
    captures = payment.captures
    return len(captures) == 1 and price is not None and captures[0].money == price


def _add(doubts: Doubts, found: Iterable[tuple[AttemptEvidence, Reason]]) -> None:
    for attempt, reason in found:
        doubts.setdefault(id(attempt), []).append(reason)


# --- bodies of one id ----------------------------------------------------------------------------


def contradicting_bodies(case: Case) -> list[list[Heard]]:
    """Events that share source and id but not their body, grouped, each with one of our own.

    What is unconfirmed or ignored contradicts nobody: it is in no group.
    """
    heard = case.heard + case.foreign if case.foreign else case.heard
    if len({h.event.event_id for h in heard}) == len(heard):
        return []
    groups: dict[tuple[str, str], list[Heard]] = {}
    for each in case.heard:
        if each.event.standing != "unconfirmed" and each.event.claim != "ignored":
            groups.setdefault((each.event.source, each.event.event_id), []).append(each)
    for each in case.foreign:
        key = (each.event.source, each.event.event_id)
        if key in groups and each.event.claim != "ignored":
            groups[key].append(each)
    return [group for group in groups.values() if len(group) > 1]


def _bodies(case: Case, bodies: list[list[Heard]]) -> Iterable[tuple[AttemptEvidence, Reason]]:
    for group in bodies:
        first = _substance(group[0])
        if all(_substance(each) == first for each in group):
            continue
        facts: Facts = (("bodies", len(group)),)
        reason = new_reason(code="bodies_disagree", cites=cites_of(group), facts=facts)
        members = {id(each) for each in group}
        for attempt in case.attempts:
            if not members.isdisjoint([id(each) for each in attempt.heard]):
                yield attempt, reason


def _substance(heard: Heard) -> tuple[object, ...]:
    """What two bodies of one id must agree in: kind, money and references."""
    e = heard.event
    return (e.claim, e.money, e.order_money, e.refunded_total, e.order, e.session, e.payment,
            e.movement, e.capture)  # fmt: skip


# --- payments that another order claims ----------------------------------------------------------


class Shared(NamedTuple):
    """An attempt of this order that another order claims, too: by these events and records."""

    attempt: AttemptEvidence
    heard: list[Heard]
    records: list[Record]

    @property
    def cites(self) -> tuple[str, ...]:
        """The ids of all that speaks of it, for whichever order."""
        records = tuple([record.record_id for record in self.records])
        return all_cites(self.attempt) + cites_of(self.heard) + records


def shared_references(case: Case) -> list[Shared]:
    """Attempts of this order that events of another order, or its records, claim."""
    found = []
    for attempt in case.attempts if case.foreign or case.foreign_records else ():
        if not attempt.heard and not attempt.files:
            continue  # known by unconfirmed words only, which share nothing
        heard = [h for h in case.foreign if _claims(h.event, attempt)]
        records = [r for r in case.foreign_records if _names(r, attempt)]
        if heard or records:
            found.append(Shared(attempt, heard, records))
    return found


def _names(record: Record, attempt: AttemptEvidence) -> bool:
    if record.source != attempt.source:
        return False
    if record.payment is not None and record.payment == attempt.reference:
        return True
    return record.session is not None and attempt.belongs_to(record.session)


def _claims(event: Event, attempt: AttemptEvidence) -> bool:
    if event.claim == "ignored":
        return False
    return event.source == attempt.source and (
        event.payment == attempt.reference
        or (event.session is not None and attempt.belongs_to(event.session))
    )


def _shared(case: Case) -> Iterable[tuple[AttemptEvidence, Reason]]:
    """Shared references on which money moved, whichever order's events say that it did."""
    for shared in shared_references(case):
        claims = [*shared.attempt.claims, *[h.event.claim for h in shared.heard]]
        if not TAKES_MONEY.isdisjoint(claims):
            facts: Facts = (("reference", shared.attempt.reference),)
            reason = new_reason(code="reference_shared", cites=shared.cites, facts=facts)
            yield shared.attempt, reason


# --- the payment's own events --------------------------------------------------------------------


def _amounts(payment: Payment) -> Iterable[Reason]:
    """A movement with several amounts, or with none."""
    for movement in (*payment.captures, *payment.returns):
        if len(movement.stated) == 1:
            continue
        code = "amounts_conflict" if movement.stated else "amount_not_stated"
        facts: Facts = (
            ("attempt", movement.attempt.reference),
            ("movement", movement.kind),
            *((f"amount_{n}", money) for n, money in enumerate(movement.stated, 1)),
        )
        yield new_reason(code=code, cites=movement.cites, facts=facts)


def is_off_by_factor(amount: Money | None, price: Money | None) -> bool:
    """Whether an amount is the price times exactly the currency's factor, so that minor units were
    taken for major ones. A currency without decimals is mistaken by the hundred of most others."""
    if amount is None or price is None or amount.currency != price.currency or not price.minor:
        return False
    factor: int = 10 ** (exponent_of(price.currency) or 2)
    return amount.minor == price.minor * factor


def _factor(payment: Payment, price: Money | None, priced_by: tuple[str, ...]) -> Iterable[Reason]:
    for capture in payment.captures:
        if price is not None and is_off_by_factor(capture.money, price):
            facts: Facts = (
                ("attempt", payment.attempt.reference),
                ("captured", capture.money),
                ("expected", price),
            )
            cites = tuple(dict.fromkeys((*capture.cites, *priced_by)))
            yield new_reason(code="amount_off_by_factor", cites=cites, facts=facts)


def _other_currency(payment: Payment) -> Iterable[Reason]:
    """Money that goes back in another currency than came."""
    came = {m.money.currency for m in payment.captures if m.money is not None}
    if not came or not (payment.returns or payment.disputes):
        return
    stated = [(money, m.cites) for m in payment.returns for money in m.stated]
    for dispute in payment.disputes:
        if dispute.word != "won":
            cites = cites_of(payment.attempt.tied(dispute.heard))
            stated += [(h.event.money, cites) for h in dispute.heard if h.event.money is not None]
    odd = [(money, cites) for money, cites in stated if money.currency not in came]
    if odd:
        captured = tuple([c for m in payment.captures for c in m.cites])
        facts: Facts = (
            ("attempt", payment.attempt.reference),
            *(("returned", money) for money in dict.fromkeys([money for money, _ in odd])),
        )
        cites = tuple(dict.fromkeys([*captured, *[c for _, own in odd for c in own]]))
        yield new_reason(code="returned_in_other_currency", cites=cites, facts=facts)


def cancellations_after(attempt: AttemptEvidence) -> list[Heard]:
    """Cancellations of a captured payment that the provider does not date before or with it."""
    canceled, captured = attempt.claims.get("canceled"), attempt.claims.get("succeeded")
    if canceled is None or captured is None:
        return []
    if any(h.event.occurred_at is None for h in captured):
        return canceled
    first = min([h.at for h in captured])
    return [h for h in canceled if h.event.occurred_at is None or h.at > first]


def _canceled(payment: Payment) -> Iterable[Reason]:
    late = cancellations_after(payment.attempt)
    if late:
        captured: Sequence[Movement] = payment.captures
        cites = (*[c for m in captured for c in m.cites], *cites_of(payment.attempt.tied(late)))
        facts: Facts = (("attempt", payment.attempt.reference),)
        yield new_reason(
            code="canceled_after_capture", cites=tuple(dict.fromkeys(cites)), facts=facts
        )
