"""Convert database rows to values of the package `reconcile`, and back.

Values are checked here, because the tables check nothing. Lists of columns stand here, because the
classes of `tables` load slowly.
"""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from sqlalchemy import column, table

from app.database.statements import statement
from reconcile.canonical import canonical_json
from reconcile.instants import Instant
from reconcile.ledger.events import CLAIM_KINDS, Delivery, Event
from reconcile.ledger.records import RECORD_KINDS, Record, RecordKind, Tender
from reconcile.money import Money
from reconcile.transparency.event_members import part_document, part_of, state_document, state_of

Value = TypeVar("Value")

DELIVERY_COLUMNS: Final = (
    "id",
    "received_at",
    "source",
    "verdict",
    "event_id",
    "digest",
    "size",
    "headers",
    "body",
    "problem",
    "envelope",
    "pruned_at",
)

EVENT_COLUMNS: Final = (
    "order_key",  # first, because an append knows it last
    "source",
    "event_id",
    "digest",
    "delivery_id",
    "received_at",
    "kind",
    "claim",
    "occurred_at",
    "order_ref",
    "session",
    "payment",
    "movement",
    "amount",
    "currency",
    "order_amount",
    "order_currency",
    "reason",
    "standing",
    "capture",
    "refunded_total",
    "refunded_currency",
    "unclear",
    "method",
    "expected_by",
    "revocable_days",
    "shop",
    "suggested",
    "agreement",
    "standalone",
    "parts",
    "states",
    "stated_at",
)

RECORD_COLUMNS: Final = (
    "id",
    "recorded_at",
    "kind",
    "order_key",
    "at",
    "amount",
    "currency",
    "source",
    "key",
    "session",
    "expires_at",
    "reason",
    "details",
    "payment",
    "author",
    "replaces",
    "tenders",
    "free",
    "dated",
)

REVISION_COLUMNS: Final = (
    "seq",
    "order_key",
    "at",
    "outcome",
    "fulfillable",
    "substance",
    "before_outcome",
    "before_fulfillable",
    "because",
)

EVENTS: Final = table("events", *map(column, EVENT_COLUMNS))
"""Table `events` for statements of SQLAlchemy, so that the slow table models need not be loaded."""

COUNTS_FROM: Final = (
    "coalesce((SELECT min(moved.at) FROM records AS moved "
    "WHERE moved.kind = 'redated' AND moved.replaces = {thing}), {stored})"
)
"""SQL expression for the instant at which a row became known, after corrections."""
DELIVERY_AT: Final = statement(COUNTS_FROM, thing="deliveries.id", stored="deliveries.received_at")
EVENT_AT: Final = statement(COUNTS_FROM, thing="events.delivery_id", stored="events.received_at")
RECORD_AT: Final = statement(COUNTS_FROM, thing="records.id", stored="records.recorded_at")
LATER_AT: Final = statement(COUNTS_FROM, thing="later.id", stored="later.recorded_at")
REVISION_AT: Final = statement(
    COUNTS_FROM, thing="'revision:' || revisions.seq", stored="revisions.at"
)

AUDIT_AT: Final = statement(COUNTS_FROM, thing="'deed:' || audit.number", stored="audit.at")

RECORD_STORED: Final = ", ".join(f'records."{name}"' for name in RECORD_COLUMNS)
EVENT_SELECT: Final = ", ".join(
    EVENT_AT if name == "received_at" else f"events.{name}" for name in EVENT_COLUMNS
)
RECORD_SELECT: Final = ", ".join(
    RECORD_AT if name == "recorded_at" else f'records."{name}"' for name in RECORD_COLUMNS
)

AMOUNTS_REMEMBERED: Final = 1_024
"""Maximum number of money amounts in the cache. A full cache takes about 300 kB."""

_CLAIMS: Final = frozenset(CLAIM_KINDS)
_RECORDS: Final = frozenset(RECORD_KINDS)


def event_row(
    event: Event, *, order_key: str | None, delivery_id: str, received_at: Instant
) -> tuple[Any, ...]:
    """Return an event's values for the columns in EVENT_COLUMNS.

    delivery_id, received_at  id and time of the first delivery that contained the event
    """
    money, order_money, refunded = event.money, event.order_money, event.refunded_total
    return (
        order_key,
        event.source,
        event.event_id,
        event.digest,
        delivery_id,
        received_at,
        event.kind,
        event.claim,
        event.occurred_at,
        event.order,
        event.session,
        event.payment,
        event.movement,
        None if money is None else money.minor,
        None if money is None else money.currency,
        None if order_money is None else order_money.minor,
        None if order_money is None else order_money.currency,
        event.reason,
        event.standing,
        event.capture,
        None if refunded is None else refunded.minor,
        None if refunded is None else refunded.currency,
        event.unclear,
        event.method,
        event.expected_by,
        event.revocable_days,
        event.shop,
        event.suggested,
        event.agreement,
        1 if event.standalone else None,
        _written(event.parts, part_document),
        _written(event.states, state_document),
        event.stated_at,
    )


def _written(values: tuple[Value, ...], document: Callable[[Value], dict[str, Any]]) -> str | None:
    return canonical_json([document(each) for each in values]).decode() if values else None


def _read(text: str | None, parse: Callable[[dict[str, Any]], Value]) -> tuple[Value, ...]:
    return () if text is None else tuple([parse(each) for each in json.loads(text)])


def delivery_of(row: Sequence[Any]) -> Delivery:
    """Return the first delivery of an event from a database row with the columns in
    EVENT_COLUMNS."""
    # fmt: off
    (_, source, event_id, digest, delivery_id, received_at, kind, claim, occurred_at, order,
     session, payment, movement, amount, currency, order_amount, order_currency,
     reason, standing, capture, refunded, refunded_currency, unclear,
     method, expected_by, revocable_days, shop, suggested, agreement, standalone, parts, states,
     stated_at) = row
    # fmt: on
    if claim not in _CLAIMS:
        raise ValueError(
            f"this version cannot read the stored claim of event {event_id}; run `tallyhook "
            "reindex`"
        )
    return Delivery(
        delivery_id=delivery_id,
        received_at=received_at,
        event=Event(
            source=source,
            event_id=event_id,
            digest=digest,
            kind=kind,
            claim=claim,
            occurred_at=occurred_at,
            order=order,
            session=session,
            payment=payment,
            movement=movement,
            capture=capture,
            money=None if currency is None else _money(amount, currency),
            order_money=None if order_currency is None else _money(order_amount, order_currency),
            refunded_total=None
            if refunded_currency is None
            else _money(refunded, refunded_currency),
            reason=reason,
            standing=standing,
            unclear=unclear,
            method=method,
            expected_by=expected_by,
            revocable_days=revocable_days,
            shop=shop,
            suggested=suggested,
            agreement=agreement,
            standalone=bool(standalone),
            parts=_read(parts, part_of),
            states=_read(states, state_of),
            stated_at=stated_at,
        ),
    )


# Events of an order repeat its price. A cached value is compared by identity in a fold.
@lru_cache(maxsize=AMOUNTS_REMEMBERED)
def _money(minor: int, currency: str) -> Money:
    return Money(minor=minor, currency=currency)


def record_row(record: Record, details: str | None = None) -> tuple[Any, ...]:
    """Return a record's values for the columns in RECORD_COLUMNS.

    details  text that is stored beside the record
    """
    return (
        record.record_id,
        record.recorded_at,
        record.kind,
        record.order,
        record.at,
        None if record.money is None else record.money.minor,
        None if record.money is None else record.money.currency,
        record.source,
        record.key,
        record.session,
        record.expires_at,
        record.reason,
        details,
        record.payment,
        record.author,
        record.replaces,
        tenders_text(record.tenders),
        1 if record.free else None,
        1 if record.dated else None,
    )


def tenders_text(tenders: Sequence[Tender]) -> str | None:
    """Return tenders as JSON `[[kind, minor], …]`, or None without any."""
    if not tenders:
        return None
    parts = [[each.kind, each.money.minor] for each in tenders]
    return json.dumps(parts, separators=(",", ":"))


def record_of(row: Sequence[Any]) -> Record:
    # fmt: off
    (record_id, recorded_at, kind, order, at, amount, currency, source, key, session,
     expires_at, reason, _, payment, author, replaces, tenders, free, dated) = row
    # fmt: on
    if kind not in _RECORDS:
        raise ValueError(f"this version does not know the stored kind of record {record_id}")
    return Record(
        record_id=record_id,
        recorded_at=recorded_at,
        kind=cast(RecordKind, kind),
        order=order,
        at=at,
        money=None if currency is None else Money(minor=amount, currency=currency),
        source=source,
        key=key,
        session=session,
        payment=payment,
        expires_at=expires_at,
        reason=reason,
        author=author,
        replaces=replaces,
        tenders=()
        if tenders is None
        else tuple(
            [
                Tender(kind=kind, money=Money(minor=minor, currency=currency))
                for kind, minor in json.loads(tenders)
            ]
        ),
        free=bool(free),
        dated=bool(dated),
    )
