"""Rebuild the index of all deliveries: their events, their links, and the orders that share
evidence. Other modules read the deliveries' bytes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import column, delete, table, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import RECORD_AT
from app.database.statements import PlainConnection, run, statement
from app.receiving import append_store
from app.receiving.correlation_store import Linking, LinkMemory, keys_of_references
from app.receiving.delivery_log_store import RawDelivery
from app.receiving.due_store import mark_all_due
from app.receiving.phone_store import phone_note, write_phone_notes
from app.receiving.unread_store import UnreadMessage, forget_unread, keep_unread
from app.sealing.log_queue_store import mark_read_again
from reconcile.instants import Instant
from reconcile.ledger.events import Event

_DELIVERIES = table("deliveries", *map(column, ("event_id", "source", "digest", "body")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """Delivery that was read again, with its event or the problem."""

    delivery: RawDelivery
    event: Event | None = None
    problem: str | None = None
    customer: tuple[bytes, ...] = ()
    """Keyed digests of the customer."""
    values: frozenset[str] = frozenset()
    """Values of an unreadable message."""


async def drop_index(connection: AsyncConnection, *, now: Instant) -> None:
    """Empty the index, and mark every order as due, because the evidence of all orders is about to
    change."""
    for name in ("events", "links", "contested"):
        await connection.execute(delete(table(name)))
    await mark_all_due(connection, now=now)
    await run(connection, _link_records)


_LINKING: Final = statement(
    "SELECT source, payment, session, order_key FROM records WHERE source IS NOT NULL "
    "AND order_key <> '' AND (payment IS NOT NULL OR session IS NOT NULL) "
    "ORDER BY {at}, id",
    at=RECORD_AT,
)


def _link_records(connection: PlainConnection) -> None:
    linking = Linking(LinkMemory())
    for source, payment, session, order in connection.ask(_LINKING):
        linking.join(keys_of_references(source, payment, session), order)
    linking.write(connection)


async def index_again(
    connection: AsyncConnection, rereads: Sequence[Reread], *, now: Instant
) -> list[append_store.StoredVerdict]:
    """Add deliveries to the index in the order of their arrival, and correct their verdicts. Return
    the verdicts."""
    verdicts = await run(connection, _index, rereads, now)
    for reread, verdict in zip(rereads, verdicts, strict=True):
        await _correct(connection, reread, verdict)
    return verdicts


def _index(
    connection: PlainConnection, rereads: Sequence[Reread], now: Instant
) -> list[append_store.StoredVerdict]:
    known, linking = append_store.KnownEvents(), Linking(LinkMemory())
    events = [reread.event for reread in rereads if reread.event is not None]
    linking.load_of(connection, events)
    known.load(connection, events)  # once all nodes have the commits
    came = ((r.event, r.delivery.delivery_id, r.delivery.received_at) for r in rereads)
    verdicts, fresh = append_store.judge_all(came, known, linking)
    linking.assign(connection, [event for event, _ in fresh])
    append_store.write_index(connection, linking, fresh)
    notes = [
        phone_note(
            digest,
            linking.orders.get(each.event.key),
            each.delivery.delivery_id,
            each.delivery.received_at,
        )
        for each in rereads
        if each.event is not None
        for digest in each.customer
    ]
    write_phone_notes(connection, notes)
    read = [each.delivery.delivery_id for each in rereads if each.event is not None]
    forget_unread(connection, read)  # every order is due already
    keep_unread(
        connection,
        [
            UnreadMessage(value, each.delivery_id, each.source, each.received_at)
            for each, values in ((reread.delivery, reread.values) for reread in rereads)
            if each.verdict != "unreadable"
            for value in values
        ],
    )
    mark_read_again(connection, [reread.delivery.delivery_id for reread in rereads])
    orders = {*linking.orders.values(), *linking.touched()}
    append_store.mark_due(connection, dict.fromkeys(sorted(orders), now))
    return verdicts


async def _correct(
    connection: AsyncConnection, reread: Reread, verdict: append_store.StoredVerdict
) -> None:
    delivery, event = reread.delivery, reread.event
    event_id = None if event is None else event.event_id
    if (verdict, event_id) == (delivery.verdict, delivery.event_id):
        return
    values = {
        "verdict": verdict,
        "event_id": event_id,
        "problem": reread.problem,
        "id": delivery.delivery_id,
    }
    await connection.execute(
        text(
            "UPDATE deliveries SET verdict=:verdict, event_id=:event_id, problem=:problem "
            "WHERE id=:id"
        ),
        values,
    )
    # Redeliveries of a body that was unreadable for a time have no event id to find them by.
    kept = _DELIVERIES.c
    await connection.execute(
        update(_DELIVERIES)
        .where(
            text("verdict = 'duplicate'"),  # as in the text of `ix_deliveries_again`
            kept.body.is_(None),
            kept.event_id == delivery.event_id,  # IS NULL of None
            kept.source == delivery.source,
            kept.digest == delivery.digest,
        )
        .values(event_id=event_id)
    )


_READ_BY = "read by "


async def noted_readings(connection: AsyncConnection) -> dict[str, str]:
    """Return the digests of the settings by which each source's deliveries were last read. The keys
    are the sources' names."""
    rows = await connection.execute(
        text("SELECT name, value FROM meta WHERE name LIKE :name"), {"name": f"{_READ_BY}%"}
    )
    return {row[0].removeprefix(_READ_BY): row[1] for row in rows}


async def note_readings(connection: AsyncConnection, digests: Mapping[str, str]) -> None:
    """Store the digests of the settings by which each source's deliveries are read. Earlier digests
    are replaced."""
    for source, digest in sorted(digests.items()):
        await connection.execute(
            text(
                "INSERT INTO meta (name, value) VALUES (:name, :value) "
                "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
            ),
            {"name": f"{_READ_BY}{source}", "value": digest},
        )


async def sources_with_deliveries(connection: AsyncConnection, sources: Iterable[str]) -> set[str]:
    """Return the names in `sources` for which at least one delivery is stored."""
    sql = text("SELECT EXISTS (SELECT 1 FROM deliveries WHERE source = :source)")
    return {each for each in sources if await connection.scalar(sql, {"source": each})}
