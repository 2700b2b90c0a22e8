"""taking: what a ledger contributes to a reconciliation. Also in one line of text, for a cache.

Leaves out: any judgement. Movements are found again from the ledger's own evidence, because an
entry names neither the source that it came through nor when we first knew of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reconcile.books import match_key
from reconcile.correlate import Case
from reconcile.instants import Instant
from reconcile.ledger import Ledger
from reconcile.movements import Movement, movements_of
from reconcile.takings import Taken, Taking


def taking(ledger: Ledger) -> Taking | None:
    """The order's money as of the ledger's instant; None for an order nobody had spoken of."""
    opened = min(_dates(ledger.case), default=None)
    if opened is None:
        return None
    return Taking(
        key=match_key(ledger.order),
        order=ledger.order,
        as_of=ledger.as_of,
        outcome=ledger.outcome,
        fulfillable=ledger.fulfillable,
        expected=ledger.expected,
        opened_at=opened,
        taken=_taken(ledger.case),
        payments=tuple([(each.source, each.reference) for each in ledger.attempts]),
        findings=tuple(dict.fromkeys([finding.code for finding in ledger.findings])),
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


def _taken(case: Case) -> tuple[Taken, ...]:
    """In the order of their dates, as the ledger's entries are."""
    found = [_one(each) for each in movements_of(case.attempts) if each.money is not None]
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


# --- as text -------------------------------------------------------------------------------------


def movements_text(found: Taking) -> str:
    """Its movements and attempts, as JSON that `movements_in` reads again.

    An attempt with money is written once, as its movement; where that would change the order of
    the attempts, they are written as well.
    """
    parts: list[Any] = [
        (t.kind, t.source, t.payment, t.minor, t.currency, t.at, t.received_at, *t.cites)
        for t in found.taken
    ]
    if found.payments != _paid(found.taken):
        parts += found.payments
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def movements_in(text: str) -> tuple[tuple[Taken, ...], tuple[tuple[str, str], ...]]:
    """The movements and attempts that `movements_text` wrote."""
    taken, payments = [], []
    for part in json.loads(text):
        if len(part) == 2:
            payments.append((part[0], part[1]))
            continue
        kind, source, payment, minor, currency, at, received_at, *cites = part
        taken.append(
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
        )
    moved = tuple(taken)
    return moved, tuple(payments) or _paid(moved)


def _paid(taken: tuple[Taken, ...]) -> tuple[tuple[str, str], ...]:
    if len(taken) == 1:
        return ((taken[0].source, taken[0].payment),)
    return tuple(dict.fromkeys([(each.source, each.payment) for each in taken]))
