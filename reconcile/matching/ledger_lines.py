"""Ledger lines: money and irregularities of one order, without explanations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reconcile.canonical import values_json
from reconcile.instants import Instant
from reconcile.ledger.correlate import AttemptEvidence
from reconcile.ledger.events import Part
from reconcile.ledger.fold import closed_at
from reconcile.ledger.ledger import EntryKind, Ledger, Movement, Outcome
from reconcile.ledger.movements import movement_date
from reconcile.ledger.outcome import Judgement, decide, standing
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.books import match_key
from reconcile.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One movement of money in an order's ledger. Returned money is negative."""

    kind: EntryKind
    source: str
    payment: str
    minor: int
    currency: str
    at: Instant
    """The provider's date of the movement."""
    received_at: Instant
    """Time when the movement first became known."""
    cites: tuple[str, ...]
    """Ids of the events that prove the movement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubted:
    """Payment in doubt, with the evidence for its money."""

    source: str
    payment: str
    unsure: tuple[EntryKind, ...] = ()
    """Kinds of the payment's movements whose amounts are uncertain."""
    cites: tuple[str, ...] = ()
    """Ids of the events that state the payment's movements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRefund:
    """Refund that the provider reported as failed."""

    source: str
    payment: str
    refund: str | None
    """Reference of the refund, if stated."""
    minor: int | None
    """Amount of the refund, if stated."""
    currency: str
    at: Instant
    """The provider's date of the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """Money and irregularities of one order, as of an instant."""

    key: str
    """Match key, by which ledger, book and statement rows are merged."""
    order: str
    as_of: Instant
    outcome: Outcome
    fulfillable: bool
    expected: Money | None
    """Amount due at providers, if known."""
    opened_at: Instant
    """Earliest date in the order's evidence."""
    taken: tuple[Taken, ...]
    """Movements of money."""
    payments: tuple[tuple[str, str], ...]
    """Source and reference of every attempt, including attempts without money."""
    findings: tuple[FindingCode, ...]
    """Codes of the ledger's findings, each once."""
    reason: str = ""
    """Code of the reason that decided the outcome."""
    closed_at: Instant | None = None
    """Time when the order got its final outcome, if it has one."""
    in_doubt: tuple[Money, ...] = ()
    """Amounts besides `taken` that may have been captured, by payment and currency."""
    doubted: tuple[Doubted, ...] = ()
    """Payments in doubt. Their movements in `taken` are uncertain."""
    owed: tuple[Money, ...] = ()
    """Money held beyond the price and owed back, for each currency. Empty if unresolved."""
    tendered: int = 0
    """Minor units of the whole price that are not part of `expected`."""
    on_top: tuple[Part, ...] = ()
    """Amounts paid beyond the price, one for each kind, such as tips."""
    failed: tuple[FailedRefund, ...] = ()
    """Refunds that failed."""
    fulfilled_at: Instant | None = None
    """Time when the shop fulfilled the order, if it did."""
    fulfilled_by: tuple[str, ...] = ()
    """Id of the shop's record of this."""


def ledger_line_of(ledger: Ledger) -> LedgerLine | None:
    """Return the ledger line of an order; None for an order without evidence."""
    filed, heard = ledger.case.filed, ledger.case.heard
    dates = [heard[0].at] if heard else []  # events are sorted by date
    dates += [r.at for r in (filed.placed, filed.canceled, filed.fulfilled) if r is not None]
    dates += [record.at for file in filed.sessions.values() for record in file.records()]
    if not dates:
        return None
    movements = ledger.movements
    taken = tuple(
        sorted(
            [_taken(each, each.money) for each in movements if each.money is not None],
            key=lambda t: (t.at, t.payment, t.kind, t.cites, t.source),
        )
    )
    # What statements call a payment may differ from the attempt's reference.
    attempts = [(each.source, each.reference) for each in ledger.attempts]
    payments = tuple(dict.fromkeys([*attempts, *[(t.source, t.payment) for t in taken]]))
    odd = None if _is_plain(ledger) else decide(ledger.case)
    tendered = None if filed.placed is None else filed.placed.tendered
    return LedgerLine(
        key=match_key(ledger.order),
        order=ledger.order,
        as_of=ledger.as_of,
        outcome=ledger.outcome,
        fulfillable=ledger.fulfillable,
        expected=ledger.expected,
        opened_at=min(dates),
        taken=taken,
        payments=payments,
        findings=tuple(dict.fromkeys([finding.code for finding in ledger.findings])),
        reason=ledger.reasons[0].code,
        closed_at=closed_at(ledger),
        in_doubt=_in_doubt(ledger, movements),
        doubted=() if odd is None else _doubted(odd),
        owed=() if odd is None else _owed(ledger, odd),
        tendered=sum([each.minor for each in (tendered, ledger.discount) if each is not None]),
        on_top=ledger.came_on_top,
        failed=_failed(ledger),
        fulfilled_at=None if filed.fulfilled is None else filed.fulfilled.at,
        fulfilled_by=() if filed.fulfilled is None else (filed.fulfilled.record_id,),
    )


def _taken(movement: Movement, money: Money) -> Taken:
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


def _failed(ledger: Ledger) -> tuple[FailedRefund, ...]:
    if all(finding.code != "refund_failed" for finding in ledger.findings):
        return ()
    stated = [each.event for each in ledger.case.heard if each.event.payment is not None]
    amounts = {
        (event.source, event.movement): event.money
        for event in stated
        if event.claim in ("refunded", "refund_pending") and event.money is not None
    }
    found: dict[tuple[str, str, str | None], FailedRefund] = {}
    for each in ledger.case.heard:
        event = each.event
        if event.claim != "refund_failed" or event.payment is None:
            continue
        money = event.money or amounts.get((event.source, event.movement))
        found[event.source, event.payment, event.movement] = FailedRefund(
            source=event.source,
            payment=event.payment,
            refund=event.movement,
            minor=None if money is None else money.minor,
            currency="" if money is None else money.currency,
            at=each.at,
        )
    return tuple(found.values())


def _called(attempt: AttemptEvidence) -> str:
    captured = attempt.claims.get("succeeded", ())
    if not captured or captured[0].event.standing != "answered":
        return attempt.reference
    named = {each.event.payment for each in attempt.unconfirmed if each.event.payment is not None}
    return named.pop() if len(named) == 1 else attempt.reference


def _in_doubt(ledger: Ledger, movements: Sequence[Movement]) -> tuple[Money, ...]:
    unsure = [m.stated for m in movements if m.kind == "captured" and m.money is None]
    if ledger.outcome == "unresolved" and not unsure:
        unsure = [()] if all(each.money is None for each in movements) else []
    if not unsure:
        return ()
    price = ledger.expected
    counted = [h.event for h in ledger.case.heard if h.event.standing != "unconfirmed"]
    prices = [e.order_money for e in counted if e.order_money is not None]
    found: list[Money] = []
    for stated in unsure:
        amounts = stated or (prices if price is None else [price])
        # The greatest amount of each currency comes last, so that it overwrites the others.
        ordered = sorted(amounts, key=lambda money: (money.currency, money.minor))
        found += {money.currency: money for money in ordered}.values()
    return tuple(found)


def _is_plain(ledger: Ledger) -> bool:
    if ledger.outcome == "unresolved" or len(ledger.attempts) > 1 or len(ledger.balances) > 1:
        return False
    if ledger.held is None or ledger.expected is None:
        return True
    return ledger.held.minor <= ledger.expected.minor


def _doubted(odd: Judgement) -> tuple[Doubted, ...]:
    found = []
    for payment in odd.payments:
        if id(payment.attempt) not in odd.doubts:
            continue
        movements = (*payment.captures, *payment.returns)
        doubt = Doubted(
            source=payment.attempt.source,
            payment=_called(payment.attempt),
            unsure=tuple(dict.fromkeys([m.kind for m in movements if m.money is None])),
            cites=tuple(dict.fromkeys([cite for m in movements for cite in m.cites])),
        )
        found.append(doubt)
    return tuple(sorted(found, key=lambda each: (each.source, each.payment)))


def _owed(ledger: Ledger, odd: Judgement) -> tuple[Money, ...]:
    price = ledger.expected
    if price is None or ledger.outcome == "unresolved":
        return ()
    held = {price.currency: odd.surplus}
    for currency in [b.currency for b in ledger.balances if b.currency != price.currency]:
        stood = [standing(payment, currency) for payment in odd.sure()]
        held[currency] = sum([each.kept - each.on_hold for each in stood])
    owed = sorted(held.items())
    return tuple([Money(minor=minor, currency=currency) for currency, minor in owed if minor > 0])


def ledger_line_text(found: LedgerLine) -> str:
    """Encode a ledger line as JSON, without its key and its instant."""
    return values_json(
        [
            found.order,
            found.outcome,
            found.fulfillable,
            found.expected,
            found.opened_at,
            found.taken,
            found.payments,
            found.findings,
            found.reason,
            found.closed_at,
            found.in_doubt,
            found.doubted,
            found.owed,
            found.tendered,
            [(each.kind, each.money.minor, each.money.currency) for each in found.on_top],
            found.fulfilled_at,
            found.fulfilled_by,
            found.failed,
        ]
    )


def ledger_line_in(text: str, *, as_of: Instant) -> LedgerLine:
    """Decode a ledger line from the JSON that `ledger_line_text` returns."""
    # fmt: off
    (order, outcome, fulfillable, price, opened_at, taken, payments, findings, reason,
     ended_at, in_doubt, doubted, owed, tendered, on_top, fulfilled_at,
     fulfilled_by, failed) = json.loads(text)
    # fmt: on
    return LedgerLine(
        key=match_key(order),
        order=order,
        as_of=as_of,
        outcome=outcome,
        fulfillable=fulfillable,
        expected=None if price is None else Money(minor=price[0], currency=price[1]),
        opened_at=opened_at,
        taken=tuple(
            [
                Taken(
                    kind=kind,
                    source=source,
                    payment=payment,
                    minor=minor,
                    currency=currency,
                    at=at,
                    received_at=received_at,
                    cites=tuple(cites),
                )
                for kind, source, payment, minor, currency, at, received_at, cites in taken
            ]
        ),
        payments=tuple([(source, payment) for source, payment in payments]),
        findings=tuple(findings),
        reason=reason,
        closed_at=ended_at,
        in_doubt=_amounts_in(in_doubt),
        doubted=tuple(
            [
                Doubted(source=source, payment=payment, unsure=tuple(unsure), cites=tuple(cites))
                for source, payment, unsure, cites in doubted
            ]
        ),
        owed=_amounts_in(owed),
        tendered=tendered,
        on_top=tuple(
            [Part(kind=k, money=Money(minor=minor, currency=code)) for k, minor, code in on_top]
        ),
        fulfilled_at=fulfilled_at,
        fulfilled_by=tuple(fulfilled_by),
        failed=tuple(
            [
                FailedRefund(**dict(zip(FailedRefund.__slots__, each, strict=True)))
                for each in failed
            ]
        ),
    )


def _amounts_in(parts: list[Any]) -> tuple[Money, ...]:
    return tuple([Money(minor=minor, currency=code) for minor, code in parts])
