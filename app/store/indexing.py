"""Rebuilds the index over raw bytes: events, links and contested pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.deliveries import RawDelivery
from app.store.intake import Batch, LinkMemory, StoredVerdict, assign_orders, mark_due, write_index
from app.store.ledgers import mark_all_due
from reconcile.events import Event
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """One delivery read again: its event, or why there is none."""

    delivery: RawDelivery
    event: Event | None
    problem: str | None


async def drop_index(connection: AsyncConnection, *, now: Instant) -> None:
    """Empty the index, and set every order due: what it rests on is about to change."""
    for table in ("events", "links", "contested"):
        await connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608
    await mark_all_due(connection, now=now)
    rows = await connection.execute(
        text(
            "SELECT DISTINCT session, source, order_key FROM records "
            "WHERE session IS NOT NULL AND source IS NOT NULL"
        )
    )
    links = [{"s": row[0], "k": "session", "o": row[1], "r": row[2]} for row in rows]
    if links:
        await connection.execute(
            text(
                "INSERT INTO links (reference, kind, source, order_key) "
                "VALUES (:s, :k, :o, :r) ON CONFLICT DO NOTHING"
            ),
            links,
        )


async def index_again(
    connection: AsyncConnection, rereads: Sequence[Reread], *, now: Instant
) -> None:
    """Index some deliveries, in the order of their arrival, and correct their verdicts."""
    batch = Batch()
    await batch.find_known(connection, [r.event for r in rereads if r.event is not None])
    fresh = []
    for reread in rereads:
        verdict: StoredVerdict = "unreadable"
        if reread.event is not None:
            verdict = batch.judge(reread.event)
            if verdict in ("stored", "duplicate_with_different_body"):
                fresh.append(
                    (reread.event, reread.delivery.delivery_id, reread.delivery.received_at)
                )
        await _correct(connection, reread, verdict)
    await assign_orders(connection, batch, [event for event, _, _ in fresh], LinkMemory())
    await write_index(connection, batch, fresh)
    await mark_due(connection, dict.fromkeys(batch.order_keys.values(), now))


async def _correct(connection: AsyncConnection, reread: Reread, verdict: StoredVerdict) -> None:
    """Write the verdict that the door would give now, and let bodiless redeliveries follow."""
    delivery, event = reread.delivery, reread.event
    event_id = None if event is None else event.event_id
    if (verdict, event_id) == (delivery.verdict, delivery.event_id):
        return
    values = {
        "verdict": verdict,
        "event_id": event_id,
        "problem": reread.problem,
        "id": delivery.delivery_id,
        "was": delivery.event_id,
        "source": delivery.source,
        "digest": delivery.digest,
    }
    await connection.execute(
        text(
            "UPDATE deliveries SET verdict=:verdict, event_id=:event_id, problem=:problem "
            "WHERE id=:id"
        ),
        values,
    )
    await connection.execute(
        text(
            "UPDATE deliveries SET event_id=:event_id WHERE verdict='duplicate' AND body IS NULL "
            "AND event_id=:was AND source=:source AND digest=:digest"
        ),
        values,
    )
