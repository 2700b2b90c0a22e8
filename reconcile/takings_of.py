"""taking: what a ledger contributes to a reconciliation. Also in one line of text, for a cache.

Leaves out: any judgement. Movements are found again from the ledger's own evidence, because an
entry names neither the source that it came through nor when we first knew of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from reconcile.books import match_key
from reconcile.correlate import Case
from reconcile.instants import Instant
from reconcile.ledger import Ledger
from reconcile.money import Money
from reconcile.movements import Movement, movements_of
from reconcile.settle import closed_at
from reconcile.takings import Taken, Taking


def taking(ledger: Ledger) -> Taking | None:
    """The order's money as of the ledger's instant; None for an order nobody had spoken of."""
    opened = min(_dates(ledger.case), default=None)
    if opened is None:
        return None
    movements = movements_of(ledger.case.attempts)
    return Taking(
        key=match_key(ledger.order),
        order=ledger.order,
        as_of=ledger.as_of,
        outcome=ledger.outcome,
        fulfillable=ledger.fulfillable,
        expected=ledger.expected,
        opened_at=opened,
        taken=_taken(movements),
        payments=tuple([(each.source, each.reference) for each in ledger.attempts]),
        findings=tuple(dict.fromkeys([finding.code for finding in ledger.findings])),
        reason=ledger.reasons[0].code,
        closed_at=closed_at(ledger),
        in_doubt=_in_doubt(ledger, movements),
    )


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


def _taken(movements: Iterable[Movement]) -> tuple[Taken, ...]:
    """In the order of their dates, as the ledger's entries are."""
    found = [_one(each) for each in movements if each.money is not None]
    if len(found) > 1:
        found.sort(key=lambda t: (t.at, t.payment, t.kind, t.cites, t.source))
    return tuple(found)


def _one(movement: Movement) -> Taken:
    money, heard = movement.money, movement.heard
    assert money is not None
    return Taken(
        kind=movement.kind,
        source=movement.attempt.source,
        payment=movement.attempt.reference,
        minor=money.minor if movement.kind == "captured" else -money.minor,
        currency=money.currency,
        at=min([each.at for each in heard]),
        received_at=min([each.first for each in heard]),
        cites=movement.cites,
    )


def _in_doubt(ledger: Ledger, movements: list[Movement]) -> tuple[Money, ...]:
    """The most that may have been captured without an entry: of each capture that has no certain
    amount, and of the order itself where no movement of it has an amount. Table in the README."""
    if ledger.outcome != "unresolved":
        return ()
    unsure = [m.stated for m in movements if m.kind == "captured" and m.money is None]
    if not unsure and all(each.money is None for each in movements):
        unsure = [()]
    found: list[Money] = []
    for stated in unsure:
        found += _greatest(stated or _asked(ledger))
    return tuple(found)


def _asked(ledger: Ledger) -> list[Money]:
    """What the order costs; every price that was stated where they differ."""
    if ledger.expected is not None:
        return [ledger.expected]
    prices = [heard.event.order_money for heard in ledger.case.heard]
    return [price for price in prices if price is not None]


def _greatest(amounts: Iterable[Money]) -> Iterable[Money]:
    """The greatest of each currency, by its code."""
    ordered = sorted(amounts, key=lambda money: (money.currency, money.minor))
    return {money.currency: money for money in ordered}.values()


# --- as text -------------------------------------------------------------------------------------


def taking_text(found: Taking) -> str:
    """All that it says but key and instant, as JSON that `taking_in` reads again."""
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
        *[(money.minor, money.currency) for money in found.in_doubt],
    ]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def taking_in(text: str, *, as_of: Instant) -> Taking:
    """The taking that `taking_text` wrote, which still stands at `as_of`."""
    # fmt: off
    (order, outcome, fulfillable, price, opened_at, taken, payments, findings, reason,
     ended_at, *in_doubt) = json.loads(text)
    # fmt: on
    return Taking(
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
        in_doubt=tuple([Money(minor=minor, currency=code) for minor, code in in_doubt]),
    )


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
