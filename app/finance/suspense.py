"""Find payments that belong, or belonged, to no order."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.core.errors import UsageError
from app.database.engine import Connection
from app.database.statements import PlainConnection, run
from app.orders import unallocated_store
from reconcile.instants import Instant
from reconcile.ledger.events import UNCONFIRMED, Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import WITHDRAWN, Record
from reconcile.ledger.shops import judge_shops
from reconcile.matching.ledger_lines import ledger_line_of
from reconcile.matching.suspense import PlacedIn, Placement, Suspended, suspended

AT_ONCE: Final = 500

MOST: Final = 100_000


async def suspended_payments(
    connection: Connection, *, policy: Policy, as_of: Instant
) -> tuple[Suspended, ...]:
    """Return every payment that once had money but no order."""
    return await run(connection, _suspended, policy, as_of)


def _suspended(
    connection: PlainConnection, policy: Policy, as_of: Instant
) -> tuple[Suspended, ...]:
    keys = dict.fromkeys(unallocated_store.placed_keys(connection))
    after = 0
    while some := unallocated_store.unplaced_keys(
        connection, source=None, after=after, limit=AT_ONCE
    ):
        keys |= dict.fromkeys(key for key, _ in some)
        after = max(number for _, number in some)
        if len(keys) > MOST:
            raise UsageError(
                f"more than {MOST:,} payments have no order: assign or dismiss these payments. "
                "With later payments, send the order's reference to the provider, in the member "
                "that the source's profile reads"
            )
    after = 0
    while some := unallocated_store.other_shops_keys(
        connection, source=None, after=after, limit=AT_ONCE
    ):
        keys |= dict.fromkeys(key for key, _ in some)
        after = max(number for _, number in some)
    wanted, found = list(keys), list[Suspended]()
    cases: dict[str, frozenset[tuple[str, str]]] = {}
    for begin in range(0, len(wanted), AT_ONCE):
        part = wanted[begin : begin + AT_ONCE]
        evidence, acts = (
            unallocated_store.evidence_of(connection, part),
            unallocated_store.acts_on(connection, part),
        )
        for deliveries in dict.fromkeys(evidence.values()):
            renewals = unallocated_store.renewals_among(
                connection, deliveries, policy=policy, as_of=as_of, cases=cases
            )
            found += _folded(deliveries, acts, renewals, policy=policy, as_of=as_of)
            found += _of_other_shops(deliveries, acts, as_of=as_of)
    return tuple({(each.source, each.payment): each for each in sorted(found, key=_name)}.values())


def _name(each: Suspended) -> tuple[str, str]:
    return each.source, each.payment


def _folded(
    deliveries: Sequence[Delivery] | frozenset[Delivery],
    acts: Mapping[unallocated_store.PaymentKey, Sequence[Record]],
    renewals: Collection[tuple[str, str]],
    *,
    policy: Policy,
    as_of: Instant,
) -> list[Suspended]:
    known = [
        replace(each, event=replace(each.event, order=None, agreement=None))
        for each in deliveries
        if each.received_at <= as_of
        and (each.event.order is None or (each.event.source, each.event.payment or "") in renewals)
    ]
    if all(each.event.standing == UNCONFIRMED for each in known):
        return []
    # An event that names neither payment nor session is an attempt named after its order.
    name = min(each.event.event_id for each in known)
    ledger = fold(History(order=name, deliveries=frozenset(known)), policy=policy, as_of=as_of)
    line = ledger_line_of(ledger)
    taken = () if line is None else line.taken
    return [
        suspended(
            source,
            payment,
            taken=[each for each in taken if (each.source, each.payment) == (source, payment)],
            placements=[
                _placement(each)
                for each in acts.get(unallocated_store.PaymentKey(source, payment), ())
                if each.recorded_at <= as_of
            ],
        )
        for source, payment in dict.fromkeys((each.source, each.payment) for each in taken)
    ]


def _of_other_shops(
    deliveries: Sequence[Delivery] | frozenset[Delivery],
    acts: Mapping[unallocated_store.PaymentKey, Sequence[Record]],
    *,
    as_of: Instant,
) -> list[Suspended]:
    known = {each.event.key: each.event for each in deliveries if each.received_at <= as_of}
    placed = {
        key
        for key, records in acts.items()
        for each in [r for r in records if r.recorded_at <= as_of][-1:]
        if _placement(each).into == "order"
    }
    aside = judge_shops(known.values()).aside
    names = dict.fromkeys(
        (each.source, each.payment)
        for key, each in sorted(known.items())
        if aside.get(key) == "other"
        and each.payment is not None
        and unallocated_store.PaymentKey(each.source, each.payment) not in placed
    )
    return [
        Suspended(source=source, payment=payment, taken=(), steps=(), stands=None, other_shop=True)
        for source, payment in names
        if payment is not None
    ]


def _placement(record: Record) -> Placement:
    into: PlacedIn = "order"
    if record.kind == "payment_dismissed":
        into = "to_refund" if record.reason == "to_refund" else "other_business"
    elif record.reason == WITHDRAWN:
        into = "nowhere"
    return Placement(
        at=record.recorded_at,
        into=into,
        order=record.order or None,
        account=record.key if into == "other_business" else None,
        record=record.record_id,
    )
