"""The shop tells what it knows of an order: placed, canceled, fulfilled. Facts are only added."""

from __future__ import annotations

from dataclasses import dataclass

from app.ids import new_id
from app.operations.desk import Desk
from app.store.folding.records import add_records, records_of
from reconcile.instants import Instant
from reconcile.money import Money
from reconcile.records import Record, RecordKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the shop says of an order now. Absent moments say nothing."""

    order: str
    money: Money
    placed_at: Instant | None = None
    canceled_at: Instant | None = None
    fulfilled_at: Instant | None = None


async def tell_order(desk: Desk, told: Told) -> list[Record]:
    """Write down what is new in it. The same again changes nothing. Returns the new records."""
    async with desk.store.writing() as connection:
        known = await records_of(connection, told.order)
        # After all that is known of it, even where that was dated by a clock that was ahead: of two
        # prices the one that was told last counts.
        earlier = max([record.recorded_at for record in known], default=-1)
        fresh = news(known, told, now=max(desk.clock.now(), earlier + 1))
        await add_records(connection, fresh)
    desk.store.evidence_arrived.set()
    return fresh


def news(known: list[Record], told: Told, *, now: Instant) -> list[Record]:
    """The records that what is told adds to what is known."""
    fresh = []
    placed = [record for record in known if record.kind == "order_placed"]
    last = placed[-1] if placed else None
    if last is None or last.money != told.money or told.placed_at not in (None, last.at):
        at = told.placed_at or (last.at if last is not None else now)
        fresh.append(_record(told, "order_placed", at, now=now))
    moments: tuple[tuple[RecordKind, Instant | None], ...] = (
        ("order_canceled", told.canceled_at),
        ("order_fulfilled", told.fulfilled_at),
    )
    for kind, moment in moments:
        said = {record.at for record in known if record.kind == kind}
        if moment is not None and moment not in said:
            fresh.append(_record(told, kind, moment, now=now))
    return fresh


def _record(told: Told, kind: RecordKind, at: Instant, *, now: Instant) -> Record:
    return Record(
        record_id=new_id("rec_", now),
        recorded_at=now,
        kind=kind,
        order=told.order,
        at=at,
        money=told.money if kind == "order_placed" else None,
    )
