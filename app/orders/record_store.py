"""The merchant's records: append-only, and the links that opened sessions and named references
make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import LINKING, take_lock
from app.database.mapping import RECORD_COLUMNS, RECORDS, record_of, record_row
from app.database.statements import PlainConnection, insert_rows, run
from app.receiving.append_store import mark_due
from app.receiving.correlation_store import Linking, LinkKey, LinkMemory, Links, keys_of_references
from app.sealing.leaf_store import RECORD
from app.sealing.log_queue_store import mark_unsealed
from reconcile.ledger.records import Record


async def add_records(
    connection: AsyncConnection, records: Sequence[Record], *, details: str | None = None
) -> None:
    """Write records, set their orders due, and link the sessions and payments that they name."""
    if records:
        await run(connection, _add, records, details)


def _add(connection: PlainConnection, records: Sequence[Record], details: str | None) -> None:
    insert_rows(
        connection,
        table="records",
        columns=RECORD_COLUMNS,
        rows=[record_row(record, details) for record in records],
    )
    mark_unsealed(connection, RECORD, [record.record_id for record in records])
    due = {record.order: record.recorded_at for record in records}
    links = reference_links(records)
    if links:
        take_lock(connection, LINKING)
        linking = Linking(LinkMemory())
        linking.link(connection, links)
        due |= dict.fromkeys(linking.touched(), max(due.values()))
    mark_due(connection, due)


def reference_links(records: Iterable[Record]) -> Links:
    """The links that records make: an opened session, and what the shop names, is the order's."""
    return {key: record.order for record in records for key in _keys(record)}


def _keys(record: Record) -> list[LinkKey]:
    return (
        []
        if record.source is None
        else keys_of_references(record.source, record.payment, record.session)
    )


Named = tuple[str, str | None, str | None]
"""(source, session, payment), of which one is None."""


async def owners_of(
    connection: AsyncConnection, references: Sequence[Named], *, lasting: bool = True
) -> dict[Named, str]:
    """The order that each reference belongs to by now, where it belongs to one.

    lasting  it stays so until the caller's transaction ends: who else links references waits
    """
    keys = {each: keys_of_references(each[0], each[2], each[1])[0] for each in references}
    links = await run(connection, _linked, list(keys.values()), lasting=lasting)
    return {each: links[key] for each, key in keys.items() if key in links}


def _linked(connection: PlainConnection, keys: list[LinkKey], *, lasting: bool) -> Links:
    if lasting:
        take_lock(connection, LINKING)
    linking = Linking(LinkMemory())
    linking.load(connection, keys)
    return linking.links


async def records_of(connection: AsyncConnection, order: str) -> list[Record]:
    """An order's records, in the order in which they were written down."""
    of_order = select(RECORDS).where(RECORDS.c.order_key == order)
    rows = await connection.execute(of_order.order_by(RECORDS.c.recorded_at, RECORDS.c.id))
    return [record_of(tuple(row)) for row in rows]


async def details_of(connection: AsyncConnection, record: Record) -> str | None:
    """The text kept beside a record; `records_of` gives what the engine reads, without it."""
    rows = await connection.execute(
        text("SELECT details FROM records WHERE id=:id"), {"id": record.record_id}
    )
    found: str | None = rows.scalar_one_or_none()
    return found
