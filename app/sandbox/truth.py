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

_TAKES_BACK: Final = frozenset({"payment.refunded", "payment.dispute_lost"})
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
            "captured": self._sum(frozenset({"payment.succeeded"})),
            "refunded": self._sum(_TAKES_BACK),
            "payments": [
                {"reference": payment, "outcome": payment_outcome(self.happenings, payment)}
                for payment in dict.fromkeys(h.payment for h in self.happenings)
            ],
        }

    def _sum(self, kinds: frozenset[str]) -> dict[str, str]:
        """In the order's own currency; a payment in another one makes the order unresolved."""
        return to_json(Money(minor=_total(self, kinds), currency=self.money.currency))


def _total(truth: OrderTruth, kinds: frozenset[str]) -> int:
    return sum(
        h.money.minor
        for h in truth.happenings
        if h.kind in kinds and h.money.currency == truth.money.currency
    )


def payment_outcome(happenings: list[Happening], payment: str) -> str:
    """The outcome of one payment."""
    kinds = {h.kind for h in happenings if h.payment == payment}
    return next(outcome for kind, outcome in _RANKS if kind in kinds)


def outcome_of(order: Money, happenings: list[Happening]) -> str:
    """The outcome every right receiver reaches when all is delivered and all deadlines passed."""
    captures = [h for h in happenings if h.kind == "payment.succeeded"]
    if not captures:
        return _outcome_unpaid(happenings)
    if any(h.contradicted for h in happenings) or any(h.money != order for h in captures):
        return "unresolved"
    opened = {h.movement for h in happenings if h.kind == "payment.disputed"}
    if opened - {h.movement for h in happenings if h.kind in _CLOSES}:
        return "disputed"
    captured = sum(h.money.minor for h in captures)
    returned = sum(h.money.minor for h in happenings if h.kind in _TAKES_BACK)
    if returned == 0:
        return "succeeded"
    return "refunded" if returned >= captured else "partially_refunded"


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
