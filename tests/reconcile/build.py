"""Short ways to write evidence in tests. Times are seconds after T, a fixed instant in 2026."""

import hashlib
from typing import Any

from reconcile.canonical import canonical_json
from reconcile.instants import SECOND, Instant, parse_instant
from reconcile.ledger.events import ClaimKind, Delivery, Event
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record, RecordKind
from reconcile.matching.causes import CAUSES
from reconcile.money import Money

T = parse_instant("2026-11-20T10:00:00Z")
ORDER = "ORD-1"
POLICY = Policy()
DUE = Money(minor=150_000, currency="KES")

ORDER_CAUSES = frozenset([code for code, cause in CAUSES.items() if cause.about == "order"])
BANK_CAUSES = frozenset([code for code, cause in CAUSES.items() if cause.about == "bank"])


def seconds(offset: int) -> Instant:
    """Return the instant `offset` seconds after T."""
    return T + offset * SECOND


def event(event_id: str, claim: ClaimKind, at: int | None = 0, **fields: Any) -> Event:
    """Make an event of ORD-1 dated `at`. Its digest follows from its content."""
    content: dict[str, Any] = {
        "source": "shop",
        "kind": "payment." + claim,
        "occurred_at": None if at is None else seconds(at),
        "order": ORDER,
        **fields,
    }
    digest = hashlib.sha256(repr((event_id, claim, sorted(content.items()))).encode()).hexdigest()
    return Event(event_id=event_id, claim=claim, digest=digest, **content)


def delivery(name: str, received: int, said: Event) -> Delivery:
    return Delivery(delivery_id=name, received_at=seconds(received), event=said)


def record(record_id: str, kind: RecordKind, at: int, **fields: Any) -> Record:
    """Make a record of ORD-1 that happened, and was recorded, at `at`."""
    content: dict[str, Any] = {"order": ORDER, "at": seconds(at), "recorded_at": seconds(at)}
    return Record(record_id=record_id, kind=kind, **{**content, **fields})


def history(*members: Delivery | Record, order: str = ORDER) -> History:
    return History(
        order=order,
        deliveries=frozenset(m for m in members if isinstance(m, Delivery)),
        records=frozenset(m for m in members if isinstance(m, Record)),
    )


def document_bytes(ledger: Ledger) -> bytes:
    """Return the ledger document as bytes, which must be equal for equal evidence."""
    return canonical_json(ledger_document(ledger))


def seven_deliveries() -> tuple[Delivery, ...]:
    """Return a failed attempt, then a paid one with every complication.

    Its success is redelivered, has a second body under its id, and is contradicted by a decline
    dated later.
    """
    fields = {"session": "cs_1", "money": DUE, "order_money": DUE}
    paid = event("evt_4", "succeeded", 15, payment="pay_2", **fields)
    other_body = {**fields, "money": Money(minor=1, currency="KES")}
    return (
        delivery("d1", 1, event("evt_1", "pending", 0, payment="pay_1", **fields)),
        delivery("d2", 6, event("evt_2", "declined", 5, payment="pay_1", reason="no", **fields)),
        delivery("d3", 11, event("evt_3", "pending", 10, payment="pay_2", **fields)),
        delivery("d4", 16, paid),
        delivery("d5", 17, paid),
        delivery("d6", 18, event("evt_4", "succeeded", 15, payment="pay_2", **other_body)),
        delivery("d7", 19, event("evt_5", "declined", 16, payment="pay_2", **fields)),
    )
