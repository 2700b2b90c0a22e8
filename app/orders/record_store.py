"""Rows of the merchant's records, which are only added, and the links that records make."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import LINKING, take_lock
from app.database.mapping import RECORD_AT, RECORD_COLUMNS, RECORD_SELECT, record_of, record_row
from app.database.statements import PlainConnection, insert_rows, run, statement
from app.orders.history_store import contest_of
from app.orders.unallocated_store import PaymentKey, acts_on, orders_naming
from app.receiving.append_store import mark_due
from app.receiving.confirmation_store import put_named_first
from app.receiving.correlation_store import Linking, LinkMemory, Links, keys_of_references
from app.sealing.leaf_store import RECORD
from app.sealing.log_queue_store import mark_unsealed
from reconcile.instants import TICK, Instant
from reconcile.ledger.records import NO_ORDER, WITHDRAWN, HoldReason, Record, RecordKind


async def add_records(
    connection: AsyncConnection, records: Sequence[Record], *, details: str | None = None
) -> None:
    """Store records, mark their orders as due, and link the named sessions and payments.

    details  text that is stored beside each record
    """
    if records:
        await run(connection, keep_records, records, details=details)


def keep_records(
    connection: PlainConnection, records: Sequence[Record], *, details: str | None = None
) -> None:
    """Store records, mark their orders as due, and link the named sessions and payments.

    details  text that is stored beside each record
    """
    if not records:
        return
    insert_rows(
        connection,
        table="records",
        columns=RECORD_COLUMNS,
        rows=[record_row(record, details) for record in records],
    )
    mark_unsealed(connection, RECORD, [record.record_id for record in records])
    due = {each.order: each.recorded_at for each in records if each.order != NO_ORDER}
    latest = max(each.recorded_at for each in records)
    placed = {each.order for each in records if each.kind in _CONCERN_OTHERS}
    links = reference_links(records)
    if links:
        take_lock(connection, LINKING)
        linking = Linking(LinkMemory())
        linking.link(connection, links)
        due |= dict.fromkeys(linking.touched(), latest)
        put_named_first(connection, links)
    due |= dict.fromkeys(contest_of(connection, placed), latest)
    mark_due(connection, due)


_CONCERN_OTHERS: Final = frozenset[RecordKind](("payment_assigned", "order_placed", "redated"))


def reference_links(records: Iterable[Record]) -> Links:
    """Return the links that records make from sessions and payments to their orders."""
    return {
        key: record.order
        for record in records
        if record.source is not None and record.order != NO_ORDER
        for key in keys_of_references(record.source, record.payment, record.session)
    }


Named = tuple[str, str | None, str | None]
"""Reference of a payment or session: source, session and payment. Either the session or the payment
is None."""


async def owners_of(
    connection: AsyncConnection, references: Sequence[Named], *, lasting: bool = True
) -> dict[Named, str]:
    """Return the order to which each reference belongs now, if to any.

    lasting  whether the links are locked until the transaction ends
    """
    return await run(connection, linked_orders, references, lasting=lasting)


def linked_orders(
    connection: PlainConnection, references: Sequence[Named], *, lasting: bool = True
) -> dict[Named, str]:
    """Return the order to which each reference belongs now, without references of no order.

    A person's assignment outranks the first link; if withdrawn, the shop's naming counts.

    lasting  whether the links are locked until the caller's transaction ends
    """
    if lasting:
        take_lock(connection, LINKING)
    keys = {each: keys_of_references(each[0], each[2], each[1])[0] for each in references}
    linking = Linking(LinkMemory())
    linking.load(connection, list(keys.values()))
    found = {each: linking.links[key] for each, key in keys.items() if key in linking.links}
    payments = {each: PaymentKey(each[0], each[2] or each[1] or "") for each in references}
    acts = acts_on(connection, set(payments.values()))
    for each, payment in payments.items():
        assigned = [act for act in acts.get(payment, ()) if act.kind == "payment_assigned"]
        if not assigned:
            continue
        if assigned[-1].reason != WITHDRAWN:
            found[each] = assigned[-1].order
            continue
        among = {act.order for act in assigned} | {found.pop(each, NO_ORDER)}
        named = orders_naming(connection, payment, None, among - {NO_ORDER})
        if named:
            found[each] = named[0]
    return found


def order_records(connection: PlainConnection, order: str) -> list[Record]:
    """Return an order's records in the order in which they were stored."""
    return [record_of(row) for row in connection.ask(_OF_ORDER, (order,))]


_OF_ORDER: Final = statement(
    "SELECT {record} FROM records WHERE order_key = ? ORDER BY {at}, id",
    record=RECORD_SELECT,
    at=RECORD_AT,
)


def after_all(records: Iterable[Record], *, now: Instant) -> Instant:
    """Return an instant at which a new record counts as its order's latest: now, or just after one
    dated later."""
    return max([now, *(record.recorded_at + TICK for record in records)])


def details_of(connection: PlainConnection, record: Record) -> str | None:
    """Return the text that is stored beside a record. The computation of ledgers ignores this text.
    Return None if there is none."""
    rows = connection.ask("SELECT details FROM records WHERE id=?", (record.record_id,))
    return rows[0][0] if rows else None


BY_SERVICE: Final = "service"


def hold_record(
    order: str,
    kind: RecordKind,
    *,
    at: Instant,
    record_id: str,
    reason: HoldReason,
    author: str = BY_SERVICE,
) -> Record:
    """Return a record that begins or ends a hold of an order.

    kind  `held` or `released`
    """
    return Record(
        record_id=record_id,
        recorded_at=at,
        kind=kind,
        order=order,
        at=at,
        reason=reason,
        author=author,
    )
