"""Twelve histories of eight events, each hard in a way of its own, as they arrive.

A row is: event id, claim, when it happened, when it came, and what else it says. Events of one
moment, undated ones, and several bodies under one id are frequent: there an order could matter.
"""

from dataclasses import dataclass
from typing import Any, Final

from reconcile.ledger.events import Delivery
from reconcile.ledger.history import History
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.reconcile.build import DUE, ORDER, delivery, event, record, seconds

LAST = seconds(4_000)
"""Instant at which everything is known, and every deadline has passed."""


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


@dataclass(frozen=True)
class Story:
    """One history; `redelivered` is the index of the event that comes once more at the end."""

    name: str
    arrivals: tuple[Delivery, ...]
    records: tuple[Record, ...]
    redelivered: int

    @property
    def again(self) -> Delivery:
        return delivery("d9", 3_000, self.arrivals[self.redelivered].event)

    def history(self, *more: Delivery) -> History:
        members = frozenset((*self.arrivals, *more))
        return History(order=ORDER, deliveries=members, records=frozenset(self.records))


Row = tuple[str, Any, int | None, int, dict[str, Any]]


def story(name: str, redelivered: int, rows: list[Row], *records: Record) -> Story:
    arrivals = tuple(
        delivery(f"d{number}", came, event(event_id, claim, at, **fields))
        for number, (event_id, claim, at, came, fields) in enumerate(rows, 1)
    )
    return Story(name, arrivals, records, redelivered)


P1: Final[dict[str, Any]] = {"payment": "pay_1", "session": "cs_1", "money": DUE}
P2: Final[dict[str, Any]] = {"payment": "pay_2", "session": "cs_1", "money": DUE}
P3: Final[dict[str, Any]] = {"payment": "pay_3", "session": "cs_2", "money": DUE}
PRICED: Final[dict[str, Any]] = {"order_money": DUE}
PLACED = record("r1", "order_placed", 0, money=DUE)
OPENED = record("r2", "session_opened", 1, key="k1", session="cs_1", source="shop",
                expires_at=seconds(600))  # fmt: skip

TWELVE: Final = (
    story("paid at the third attempt", 6, [
        ("e1", "pending", 1, 2, P1), ("e2", "declined", 5, 6, {**P1, "reason": "no_funds"}),
        ("e3", "pending", 8, 30, P2), ("e4", "expired", 20, 21, P2),
        ("e5", "pending", 25, 26, P3), ("e6", "authorized", 27, 28, P3),
        ("e7", "succeeded", 29, 29, P3), ("e8", "unrecognized", 29, 29, P3),
    ], PLACED),
    story("one id with four bodies", 1, [
        ("e1", "pending", 1, 2, P1), ("e2", "succeeded", 5, 6, P1),
        ("e2", "succeeded", 5, 6, {**P1, "money": kes(1)}), ("e2", "declined", 5, 6, P1),
        ("e2", "succeeded", 5, 7, {**P1, "payment": "pay_9"}), ("e3", "declined", 6, 8, P1),
        ("e4", "unrecognized", 6, 8, P1), ("e5", "authorized", 4, 9, P1),
    ]),
    story("paid twice, and part of it given back", 3, [
        ("e1", "pending", 1, 2, P1), ("e2", "pending", 1, 2, P2),
        ("e3", "succeeded", 5, 9, P1), ("e4", "succeeded", 5, 9, P2),
        ("e5", "refunded", 7, 8, {**P2, "movement": "re_1", "money": kes(50_000)}),
        ("e6", "refunded", 7, 8, {**P2, "movement": "re_2", "money": kes(100_000)}),
        ("e7", "reversed", 9, 9, {**P2, "money": None}), ("e8", "canceled", 4, 11, P1),
    ], PLACED, record("r3", "order_fulfilled", 12)),
    story("more given back than was taken", 2, [
        ("e1", "succeeded", 5, 6, P1),
        ("e2", "refunded", 7, 8, {**P1, "movement": "re_1", "money": kes(100_000)}),
        ("e3", "refunded", 7, 8, {**P1, "movement": "re_1", "money": kes(100_000)}),
        ("e4", "refunded", 7, 9, {**P1, "movement": "re_2", "money": kes(60_000)}),
        ("e5", "refunded", 8, 9, {**P1, "movement": "re_3", "money": kes(7)}),
        ("e6", "refund_pending", 6, 9, {**P1, "movement": "re_4", "money": kes(50)}),
        ("e7", "refund_failed", 9, 11, {**P1, "movement": "re_2", "money": None}),
        ("e8", "refunded", 9, 10, {**P1, "money": None, "refunded_total": kes(150_000)}),
    ], PLACED),
    story("disputed, won, and disputed again", 4, [
        ("e1", "succeeded", 5, 6, {**P1, **PRICED}),
        ("e2", "disputed", 100, 101, {**P1, "movement": "dp_1"}),
        ("e3", "dispute_won", 200, 150, {**P1, "movement": "dp_1"}),
        ("e4", "disputed", 300, 301, {**P1, "movement": "dp_2", "money": kes(50_000)}),
        ("e5", "disputed", 300, 301, {**P1, "movement": "dp_2", "money": kes(50_000)}),
        ("e6", "dispute_lost", 250, 260, {**P1, "movement": "dp_1"}),
        ("e7", "dispute_won", None, 302, {**P1, "movement": "dp_2", "money": kes(20_000)}),
        ("e8", "disputed", 400, 90, {**P1, "movement": "dp_1", "money": kes(90_000)}),
    ]),
    story("a dispute that was lost", 1, [
        ("e1", "succeeded", 5, 6, {**P1, **PRICED}),
        ("e2", "disputed", 100, 101, {**P1, "movement": "dp_1"}),
        ("e3", "dispute_lost", 200, 201, {**P1, "movement": "dp_1"}),
        ("e4", "dispute_lost", 200, 201, {**P1, "movement": "dp_1"}),
        ("e5", "declined", 2, 3, P2), ("e6", "declined", 2, 3, P3),
        ("e7", "authorized", 4, 4, P1), ("e8", "unrecognized", None, 5, {}),
    ], PLACED),
    story("other currencies and other amounts", 5, [
        ("e1", "succeeded", 5, 6, P1),
        ("e2", "succeeded", 5, 6, {**P2, "money": Money(minor=150_000, currency="USD")}),
        ("e3", "succeeded", 5, 6, {**P3, "money": kes(149_999)}),
        ("e4", "succeeded", 6, 7, {**P3, "money": kes(150_001)}),
        ("e5", "pending", 1, 2, {**P1, "order_money": kes(1)}),
        ("e6", "pending", 1, 2, {**P2, "order_money": kes(2)}),
        ("e7", "refunded", 8, 9, {**P2, "money": kes(5), "movement": "re_1"}),
        ("e8", "succeeded", 6, 8, {**P3, "capture": "c_1", "money": kes(75_000)}),
    ], PLACED),
    story("nothing is dated", 7, [
        ("e1", "pending", None, 5, P1), ("e2", "declined", None, 5, P1),
        ("e3", "pending", None, 6, P2), ("e4", "canceled", None, 6, P2),
        ("e5", "pending", None, 6, P3), ("e6", "expired", None, 6, P3),
        ("e7", "unrecognized", None, 7, {"kind": "charge.refund_issued"}),
        ("e8", "ignored", None, 5, P2),
    ]),
    story("two sources with the same references", 0, [
        ("e1", "succeeded", 5, 6, {**P1, **PRICED}),
        ("e1", "succeeded", 5, 6, {**P1, **PRICED, "source": "till"}),
        ("e2", "pending", 1, 2, {**P1, "source": "till"}), ("e3", "pending", 1, 2, P1),
        ("e4", "refunded", 9, 9, {**P1, "source": "till", "movement": "re_1"}),
        ("e5", "declined", 3, 4, {**P2, "source": "till"}), ("e6", "declined", 3, 4, P2),
        ("e7", "authorized", 4, 4, {**P3, "source": "till"}),
    ]),
    story("paid late, after it was called off, and dated in the future", 4, [
        ("e1", "pending", 1, 2, P1), ("e2", "timed_out", 700, 701, P1),
        ("e3", "canceled", 800, 801, P1), ("e4", "pending", 900, 2_999, P2),
        ("e5", "succeeded", 2_500, 2_600, P1), ("e6", "succeeded", 2_500, 2_600, P1),
        ("e7", "declined", 9_000, 2_700, P2), ("e8", "pending", -90_000, 2_800, P3),
    ], PLACED, OPENED, record("r3", "order_canceled", 850)),
    story("events that name only the session, or nothing", 2, [
        ("e1", "pending", 1, 2, {"session": "cs_1"}),
        ("e2", "pending", 1, 2, {"session": "cs_1", "payment": "pay_1"}),
        ("e3", "succeeded", 5, 6, {"session": "cs_1", "money": DUE}),
        ("e4", "authorized", 4, 6, {"session": "cs_1", "payment": "pay_2"}),
        ("e5", "declined", 4, 6, {"payment": "pay_2"}), ("e6", "declined", 4, 6, {}),
        ("e7", "expired", 9, 9, {"session": "cs_2"}),
        ("e8", "succeeded", 5, 6, {"payment": "pay_1", "money": DUE}),
    ], PLACED, OPENED),
    story("another order names its payment", 1, [
        ("e1", "pending", 1, 2, P1), ("e2", "succeeded", 5, 6, {**P1, "order": "ORD-2"}),
        ("e3", "succeeded", 5, 6, {**P1, "order": None}),
        ("e4", "pending", 1, 2, {**P2, "order": None}),
        ("e3", "succeeded", 5, 6, {**P1, "order": "ORD-2"}), ("e5", "declined", 6, 7, P2),
        ("e6", "authorized", 5, 5, {**P1, "standing": "fetched"}),
        ("e7", "pending", 5, 5, {**P1, "standing": "unconfirmed"}),
    ]),
)  # fmt: skip
