"""What a ledger contributes to a reconciliation: one order's money, and what is odd about it.

Leaves out: everything that explains. A ledger line is small, so that a million can stream past;
whoever wants to know why reads the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reconcile.instants import Instant
from reconcile.ledger.correlate import AttemptEvidence, Case
from reconcile.ledger.fold import closed_at
from reconcile.ledger.ledger import EntryKind, Ledger, Movement, Outcome
from reconcile.ledger.movements import Payment, movement_date
from reconcile.ledger.outcome import Judgement, decide, standing
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.books import match_key
from reconcile.money import Money
from reconcile.values import frozen


@frozen
class Taken:
    """One movement of money, as the ledger entered it; what went back is negative.

    at           the provider's date
    received_at  when we first knew of it
    cites        the event ids that it rests on
    """

    kind: EntryKind
    source: str
    payment: str
    minor: int
    currency: str
    at: Instant
    received_at: Instant
    cites: tuple[str, ...]


@frozen
class Doubted:
    """A payment in doubt: nothing of it counts as sure.

    unsure  the kinds of its movements of which no one amount is known
    cites   the event ids that its movements rest on
    """

    source: str
    payment: str
    unsure: tuple[EntryKind, ...] = ()
    cites: tuple[str, ...] = ()


@frozen
class LedgerLine:
    """One order as of an instant.

    key        match_key(order): ledger lines, books and statements are merged in its order
    expected   what the order costs, where that is known
    opened_at  when the order was first spoken of: the earliest date among its evidence
    payments   every attempt's (source, reference), those without money too
    findings   codes of the ledger's findings, each once
    reason     the code of the reason that decided the outcome
    closed_at  `settle.closed_at` of the ledger: None while the outcome is not final
    in_doubt   what may have been captured beside `taken`: an amount for each payment, and for each
               currency that was stated for it
    doubted    the payments in doubt; what of them is in `taken` is not sure
    owed       what is held beyond the price and owed back, in each currency; nothing of an
               unresolved order, of which that is not known
    """

    key: str
    order: str
    as_of: Instant
    outcome: Outcome
    fulfillable: bool
    expected: Money | None
    opened_at: Instant
    taken: tuple[Taken, ...]
    payments: tuple[tuple[str, str], ...]
    findings: tuple[FindingCode, ...]
    reason: str = ""
    closed_at: Instant | None = None
    in_doubt: tuple[Money, ...] = ()
    doubted: tuple[Doubted, ...] = ()
    owed: tuple[Money, ...] = ()


# --- one ledger line ------------------------------------------------------------------------------


def ledger_line_of(ledger: Ledger) -> LedgerLine | None:
    """The order's money as of the ledger's instant; None for an order nobody had spoken of."""
    opened = min(_dates(ledger.case), default=None)
    if opened is None:
        return None
    movements = ledger.movements
    taken = _taken(movements)
    odd = None if _is_plain(ledger) else decide(ledger.case)
    return LedgerLine(
        key=match_key(ledger.order),
        order=ledger.order,
        as_of=ledger.as_of,
        outcome=ledger.outcome,
        fulfillable=ledger.fulfillable,
        expected=ledger.expected,
        opened_at=opened,
        taken=taken,
        payments=_payments(ledger, taken),
        findings=tuple(dict.fromkeys([finding.code for finding in ledger.findings])),
        reason=ledger.reasons[0].code,
        closed_at=closed_at(ledger),
        in_doubt=_in_doubt(ledger, movements),
        doubted=() if odd is None else _doubted(odd),
        owed=() if odd is None else _owed(ledger, odd),
    )


def _payments(ledger: Ledger, taken: Sequence[Taken]) -> tuple[tuple[str, str], ...]:
    """Every attempt, and what statements call the payments of those that have another name."""
    attempts = [(each.source, each.reference) for each in ledger.attempts]
    return tuple(dict.fromkeys([*attempts, *[(t.source, t.payment) for t in taken]]))


def _dates(case: Case) -> Iterator[Instant]:
    """Events are in the order of their dates: the first is the earliest."""
    if case.heard:
        yield case.heard[0].at
    filed = case.filed
    for record in (filed.placed, filed.canceled, filed.fulfilled):
        if record is not None:
            yield record.at
    for file in filed.sessions.values():
        yield from (record.at for record in file.records())


def _taken(movements: Sequence[Movement]) -> tuple[Taken, ...]:
    """In the order of their dates, as the ledger's entries are."""
    found = [_one(each) for each in movements if each.money is not None]
    if len(found) > 1:
        found.sort(key=lambda t: (t.at, t.payment, t.kind, t.cites, t.source))
    return tuple(found)


def _one(movement: Movement) -> Taken:
    money = movement.money
    assert money is not None
    return Taken(
        kind=movement.kind,
        source=movement.attempt.source,
        payment=_called(movement.attempt),
        minor=money.minor if movement.kind == "captured" else -money.minor,
        currency=money.currency,
        at=movement_date(movement),
        received_at=min([each.first for each in movement.stating]),
        cites=movement.cites,
    )


def _called(attempt: AttemptEvidence) -> str:
    """What a statement calls the payment. An answer that is about a session alone names none: then
    it is what the event said that was asked about, if that is one word."""
    captured = attempt.claims.get("succeeded", ())
    if not captured or captured[0].event.standing != "answered":
        return attempt.reference
    named = {each.event.payment for each in attempt.unconfirmed if each.event.payment is not None}
    return named.pop() if len(named) == 1 else attempt.reference


def _in_doubt(ledger: Ledger, movements: Sequence[Movement]) -> tuple[Money, ...]:
    """The most that may have been captured without an entry: of each capture that has no certain
    amount, and of an unresolved order itself where no movement of it has an amount. Table in the
    README."""
    unsure = [m.stated for m in movements if m.kind == "captured" and m.money is None]
    if ledger.outcome == "unresolved" and not unsure:
        unsure = [()] if all(each.money is None for each in movements) else []
    found: list[Money] = []
    for stated in unsure:
        found += _greatest(stated or _asked(ledger))
    return tuple(found)


def _is_plain(ledger: Ledger) -> bool:
    """Whether it can neither hold a payment in doubt nor owe anything back."""
    if ledger.outcome == "unresolved" or len(ledger.attempts) > 1 or len(ledger.balances) > 1:
        return False
    if ledger.held is None or ledger.expected is None:
        return True
    return ledger.held.minor <= ledger.expected.minor


def _doubted(odd: Judgement) -> tuple[Doubted, ...]:
    found = [_doubt(each) for each in odd.payments if id(each.attempt) in odd.doubts]
    return tuple(sorted(found, key=lambda each: (each.source, each.payment)))


def _doubt(payment: Payment) -> Doubted:
    movements = (*payment.captures, *payment.returns)
    return Doubted(
        source=payment.attempt.source,
        payment=_called(payment.attempt),
        unsure=tuple(dict.fromkeys([m.kind for m in movements if m.money is None])),
        cites=tuple(dict.fromkeys([cite for m in movements for cite in m.cites])),
    )


def _owed(ledger: Ledger, odd: Judgement) -> tuple[Money, ...]:
    """The surplus in the order's currency, and all that sure payments hold in others."""
    price = ledger.expected
    if price is None or ledger.outcome == "unresolved":
        return ()
    held = {price.currency: odd.surplus}
    for currency in [b.currency for b in ledger.balances if b.currency != price.currency]:
        stood = [standing(payment, currency) for payment in odd.sure()]
        held[currency] = sum([each.kept - each.on_hold for each in stood])
    owed = sorted(held.items())
    return tuple([Money(minor=minor, currency=currency) for currency, minor in owed if minor > 0])


def _asked(ledger: Ledger) -> list[Money]:
    """What the order costs; every price that was stated where they differ."""
    if ledger.expected is not None:
        return [ledger.expected]
    counted = [h.event for h in ledger.case.heard if h.event.standing != "unconfirmed"]
    prices = [event.order_money for event in counted]
    return [price for price in prices if price is not None]


def _greatest(amounts: Iterable[Money]) -> Iterable[Money]:
    """The greatest of each currency, by its code."""
    ordered = sorted(amounts, key=lambda money: (money.currency, money.minor))
    return {money.currency: money for money in ordered}.values()


# --- as text -------------------------------------------------------------------------------------


def ledger_line_text(found: LedgerLine) -> str:
    """All that it says but key and instant, as JSON that `ledger_line_in` reads again."""
    price = found.expected
    parts: list[Any] = [
        found.order,
        found.outcome,
        found.fulfillable,
        None if price is None else (price.minor, price.currency),
        found.opened_at,
        [
            (t.kind, t.source, t.payment, t.minor, t.currency, t.at, t.received_at, t.cites)
            for t in found.taken
        ],
        found.payments,
        found.findings,
        found.reason,
        found.closed_at,
        _amounts_text(found.in_doubt),
        [(each.source, each.payment, each.unsure, each.cites) for each in found.doubted],
        _amounts_text(found.owed),
    ]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _amounts_text(amounts: Iterable[Money]) -> list[tuple[int, str]]:
    return [(money.minor, money.currency) for money in amounts]


def ledger_line_in(text: str, *, as_of: Instant) -> LedgerLine:
    """The ledger line that `ledger_line_text` wrote, which still stands at `as_of`."""
    # fmt: off
    (order, outcome, fulfillable, price, opened_at, taken, payments, findings, reason,
     ended_at, in_doubt, doubted, owed) = json.loads(text)
    # fmt: on
    return LedgerLine(
        key=match_key(order),
        order=order,
        as_of=as_of,
        outcome=outcome,
        fulfillable=fulfillable,
        expected=None if price is None else Money(minor=price[0], currency=price[1]),
        opened_at=opened_at,
        taken=tuple([_taken_in(each) for each in taken]),
        payments=tuple([(source, payment) for source, payment in payments]),
        findings=tuple(findings),
        reason=reason,
        closed_at=ended_at,
        in_doubt=_amounts_in(in_doubt),
        doubted=tuple([_doubted_in(each) for each in doubted]),
        owed=_amounts_in(owed),
    )


def _amounts_in(parts: list[Any]) -> tuple[Money, ...]:
    return tuple([Money(minor=minor, currency=code) for minor, code in parts])


def _doubted_in(parts: list[Any]) -> Doubted:
    source, payment, unsure, cites = parts
    return Doubted(source=source, payment=payment, unsure=tuple(unsure), cites=tuple(cites))


def _taken_in(parts: list[Any]) -> Taken:
    kind, source, payment, minor, currency, at, received_at, cites = parts
    return Taken(
        kind=kind,
        source=source,
        payment=payment,
        minor=minor,
        currency=currency,
        at=at,
        received_at=received_at,
        cites=tuple(cites),
    )
