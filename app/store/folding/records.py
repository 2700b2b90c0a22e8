"""The merchant's records: append-only, and the links that opened sessions make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.arrivals.intake import marking_due
from app.store.arrivals.links import Linking, LinkKey, LinkMemory
from app.store.database.locks_shared import LINKING, taking
from app.store.evidence.leaves import RECORD
from app.store.evidence.unsealed import marking
from app.store.sql.mapping import RECORD_COLUMNS, RECORD_SELECT, record_of, record_row
from app.store.sql.statements import Script, inserting, run
from reconcile.records import Record


async def add_records(
    connection: AsyncConnection, records: Sequence[Record], *, details: str | None = None
) -> None:
    """Write records, set their orders due, and link the sessions that they opened."""
    if records:
        await run(connection, _adding(connection.dialect.name, records, details))


def _adding(dialect: str, records: Sequence[Record], details: str | None) -> Script[None]:
    yield from inserting(
        dialect,
        table="records",
        columns=RECORD_COLUMNS,
        rows=[record_row(record, details) for record in records],
    )
    yield from marking(dialect, RECORD, [record.record_id for record in records])
    due = {record.order: record.recorded_at for record in records}
    links = session_links(records)
    if links:
        yield from taking(dialect, LINKING)
        linking = Linking(LinkMemory())
        yield from linking.link(dialect, links)
        due |= dict.fromkeys(linking.touched(), max(due.values()))
    yield from marking_due(dialect, due)


def session_links(records: Iterable[Record]) -> dict[LinkKey, str]:
    """The links that records make: an opened session belongs to its order."""
    return {
        (record.session, "session", record.source): record.order
        for record in records
        if record.session is not None and record.source is not None
    }


async def records_of(connection: AsyncConnection, order: str) -> list[Record]:
    """An order's records, in the order in which they were written down."""
    rows = await connection.execute(
        text(
            f"SELECT {RECORD_SELECT} FROM records WHERE order_key=:order ORDER BY recorded_at, id"  # noqa: S608
        ),
        {"order": order},
    )
    return [record_of(tuple(row)) for row in rows]


async def details_of(connection: AsyncConnection, record: Record) -> str | None:
    """The text kept beside a record; `records_of` gives what the engine reads, without it."""
    rows = await connection.execute(
        text("SELECT details FROM records WHERE id=:id"), {"id": record.record_id}
    )
    found: str | None = rows.scalar_one_or_none()
    return found
