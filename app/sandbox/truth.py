"""What really happened to each order's money, whatever was delivered of it.

Leaves out: webhooks, and any table of answers. The outcome of an order follows from the movements
of its money so far, judged as if every deadline had passed, in the words of the receiver's model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from app.sandbox.sessions import Session
from reconcile.instants import Instant
from reconcile.money import Money, to_json

_RANKS: Final = (
    ("payment.succeeded", "succeeded"),
    ("payment.authorized", "authorized"),
    ("payment.declined", "declined"),
    ("payment.canceled", "canceled"),
    ("payment.expired", "expired"),
    ("payment.timed_out", "timed_out"),
    ("payment.pending", "timed_out"),
)
"""What a payment comes to by the strongest thing that happened to it. What pends times out."""

_CAPTURED: Final = frozenset({"payment.succeeded"})
_REFUNDED: Final = frozenset({"payment.refunded"})
_LOST: Final = frozenset({"payment.dispute_lost"})
_CLOSES: Final = frozenset({"payment.dispute_won", "payment.dispute_lost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened to a payment. `contradicted`: the provider tells it in two ways."""

    at: Instant
    kind: str
    payment: str
    money: Money
    movement: str | None = None
    contradicted: bool = False


@dataclass(slots=True)
class OrderTruth:
    """One order: its money as first asked for, its latest session, and all that happened."""

    money: Money
    session: Session
    happenings: list[Happening] = field(default_factory=list)

    def entry(self) -> dict[str, Any]:
        """The order's entry of the truth file."""
        asked = self.session.asked
        return {
            "order": asked.order,
            "scenario": self.session.scenario.ending,
            "session": self.session.reference,
            "outcome": outcome_of(self.money, self.happenings),
            "captured": self._sum(_CAPTURED),
            "refunded": self._sum(_REFUNDED),
            **({"lost": self._sum(_LOST)} if any(h.kind in _LOST for h in self.happenings) else {}),
            "payments": [
                {"reference": payment, "outcome": payment_outcome(self.happenings, payment)}
                for payment in dict.fromkeys(h.payment for h in self.happenings)
            ],
        }

    def _sum(self, kinds: frozenset[str]) -> dict[str, str]:
        """In the order's own currency; a payment in another one makes the order unresolved."""
        currency = self.money.currency
        own = [h for h in self.happenings if h.money.currency == currency]
        return to_json(Money(minor=_total(own, kinds), currency=currency))


def _total(happenings: list[Happening], kinds: frozenset[str]) -> int:
    return sum(h.money.minor for h in happenings if h.kind in kinds)


def payment_outcome(happenings: list[Happening], payment: str) -> str:
    """The outcome of one payment."""
    kinds = {h.kind for h in happenings if h.payment == payment}
    return next(outcome for kind, outcome in _RANKS if kind in kinds)


def outcome_of(order: Money, happenings: list[Happening]) -> str:
    """The outcome every right receiver reaches when all is delivered and all deadlines passed:
    what is held of the payments that are told in one way, against the price."""
    captures = [h for h in happenings if h.kind in _CAPTURED]
    if not captures:
        return _outcome_unpaid(happenings)
    doubted = {h.payment for h in happenings if h.contradicted}
    sure = [
        h for h in happenings if h.payment not in doubted and h.money.currency == order.currency
    ]
    captured, refunded, lost = (_total(sure, kinds) for kinds in (_CAPTURED, _REFUNDED, _LOST))
    gone, disputed = refunded + lost, _in_open_disputes(sure)
    if gone and gone == captured and not doubted and len(sure) == len(happenings):
        return "charged_back" if lost else "refunded"
    if captured and captured - gone - disputed >= order.minor:
        return "succeeded"
    if doubted:
        return "unresolved"
    if disputed:
        return "disputed"
    if lost:
        return "charged_back"
    if refunded and captured >= order.minor:
        return "partially_refunded"
    return "unresolved"


def _in_open_disputes(happenings: list[Happening]) -> int:
    closed = {h.movement for h in happenings if h.kind in _CLOSES}
    return sum(
        h.money.minor
        for h in happenings
        if h.kind == "payment.disputed" and h.movement not in closed
    )


def _outcome_unpaid(happenings: list[Happening]) -> str:
    """Of payments without money, the one that ended last speaks for the order."""
    ends = {h.payment: payment_outcome(happenings, h.payment) for h in happenings}
    if "authorized" in ends.values():
        return "authorized"
    final = [h for h in happenings if h.kind != "payment.pending"]
    waiting = ends.keys() - {h.payment for h in final}
    if waiting or not final:
        return "timed_out"
    last = max(final, key=lambda h: (h.at, h.payment))
    return "failed" if ends[last.payment] == "declined" else ends[last.payment]


class TruthBook:
    """The truth of all orders. `changes` grows with every change, so that a writer can tell."""

    def __init__(self) -> None:
        self.changes = 0
        self._orders: dict[str, OrderTruth] = {}
        self._texts: dict[str, str] = {}

    def opened(self, session: Session) -> None:
        """A session is open; nothing has happened to money yet."""
        order = session.asked.order
        truth = self._orders.setdefault(order, OrderTruth(session.asked.money, session))
        truth.session = session
        self._changed(order)

    def happened(self, session: Session, happening: Happening) -> None:
        """Something happened in a session that `opened` was told of."""
        order = session.asked.order
        self._orders[order].happenings.append(happening)
        self._changed(order)

    def _changed(self, order: str) -> None:
        # Each order's text is kept, so that a change costs one order and not all of them.
        self._texts[order] = json.dumps(self._orders[order].entry())
        self.changes += 1

    def to_json(self) -> bytes:
        """A JSON list sorted by order, one entry a line."""
        lines = ",\n".join(self._texts[order] for order in sorted(self._texts))
        return f"[{lines}]\n".encode()
