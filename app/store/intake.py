"""One transaction's worth of arrivals: verdicts, rows, links and due marks.

The steps of `append` are numbered; each reads or writes for the whole batch at once:

1. which event ids are known             4. which orders become due
2. each arrival's verdict                5. write everything
3. each new event's order

A nameless event (one that names no order) goes to the order its payment or session is linked to.
If there is none yet it waits as an orphan, and the transaction that makes the link adopts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.mapping import DELIVERY_COLUMNS, EVENT_COLUMNS, event_row
from app.store.statements import insert_many, select_in
from reconcile.events import Event
from reconcile.instants import Instant

StoredVerdict = Literal["stored", "duplicate", "duplicate_with_different_body", "unreadable"]

LinkKey = tuple[str, str, str]
"""(reference, kind, source)"""

LINKS_REMEMBERED = 100_000
"""Links kept in memory, about 20 MB at most; beyond it the memory starts afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One verified delivery on its way into the store.

    headers  `name: value` lines, Latin-1, credentials left out
    event    what the body says; None where it could not be read
    problem  why it could not be read, one sentence
    """

    delivery_id: str
    received_at: Instant
    source: str
    digest: str
    headers: str
    body: bytes
    event: Event | None
    problem: str | None = None


class LinkMemory:
    """Links known to be committed. A link never changes, so remembering one is always right."""

    def __init__(self) -> None:
        self._orders: dict[LinkKey, str] = {}

    def get(self, key: LinkKey) -> str | None:
        """The order a reference belongs to, if it is remembered."""
        return self._orders.get(key)

    def add(self, links: dict[LinkKey, str]) -> None:
        """Remember committed links."""
        if len(self._orders) + len(links) > LINKS_REMEMBERED:
            self._orders.clear()
        self._orders.update(links)


@dataclass(slots=True)
class Batch:
    """What one transaction found and will write.

    known       the bodies of each event id: digest to (order key, the order it names)
    order_keys  the order of each new event that has one
    """

    known: dict[tuple[str, str], dict[str, tuple[str | None, str | None]]] = field(
        default_factory=dict
    )
    order_keys: dict[tuple[str, str, str], str] = field(default_factory=dict)
    links: dict[LinkKey, str] = field(default_factory=dict)
    new_links: dict[LinkKey, str] = field(default_factory=dict)
    adopted: dict[int, str] = field(default_factory=dict)
    contested: set[tuple[str, str]] = field(default_factory=set)
    due: dict[str, Instant] = field(default_factory=dict)

    async def find_known(self, connection: AsyncConnection, events: list[Event]) -> None:
        """Load the bodies that are stored under the events' ids."""
        if not events:
            return
        rows = await select_in(
            connection,
            sql="SELECT event_id, source, digest, order_key, order_ref FROM events "
            "WHERE event_id IN ({})",
            values={event.event_id for event in events},
        )
        for event_id, source, digest, order_key, order_ref in rows:
            self.known.setdefault((source, event_id), {})[digest] = (order_key, order_ref)

    def judge(self, event: Event) -> StoredVerdict:
        """The verdict of one more arrival of an event; it is known from now on."""
        bodies = self.known.get((event.source, event.event_id))
        if bodies is None:
            self.known[event.source, event.event_id] = {event.digest: (None, event.order)}
            return "stored"
        if event.digest in bodies:
            return "duplicate"
        for order_key, order_ref in bodies.values():
            self.contest(event.order, order_ref or order_key)
        bodies[event.digest] = (None, event.order)
        return "duplicate_with_different_body"

    def contest(self, one: str | None, other: str | None) -> None:
        """Two orders share a reference or an event id; each must see the other."""
        if one is not None and other is not None and one != other:
            self.contested |= {(one, other), (other, one)}


NewEvent = tuple[Event, str, Instant]
"""An event, the delivery that first brought it, and when."""


async def append(
    connection: AsyncConnection, arrivals: Sequence[Arrival], memory: LinkMemory
) -> tuple[list[StoredVerdict], Batch]:
    """Write the arrivals; the caller's transaction makes them durable, then remembers the links."""
    batch, verdicts, fresh = Batch(), list[StoredVerdict](), list[NewEvent]()
    await batch.find_known(connection, [a.event for a in arrivals if a.event is not None])  # 1
    for arrival in arrivals:  # 2
        event = arrival.event
        verdict = "unreadable" if event is None else batch.judge(event)
        verdicts.append(verdict)
        if event is not None and verdict != "duplicate":
            fresh.append((event, arrival.delivery_id, arrival.received_at))
    await assign_orders(connection, batch, [event for event, _, _ in fresh], memory)  # 3
    _mark_due(batch, arrivals)  # 4
    await _write_deliveries(connection, arrivals, verdicts)  # 5
    await write_index(connection, batch, fresh)
    await mark_due(connection, batch.due)
    return verdicts, batch


# --- 3: orders -----------------------------------------------------------------------------------


def _references(event: Event) -> Iterable[LinkKey]:
    if event.payment is not None:
        yield (event.payment, "payment", event.source)
    if event.session is not None:
        yield (event.session, "session", event.source)


async def assign_orders(
    connection: AsyncConnection, batch: Batch, fresh: Sequence[Event], memory: LinkMemory
) -> None:
    """Give each new event its order, link the references, and adopt orphans of new links."""
    await _load_links(connection, batch, [k for e in fresh for k in _references(e)], memory)
    nameless = []
    for event in fresh:
        if event.order is None:
            nameless.append(event)
        else:
            _assign(batch, event, event.order)
    for _ in range(2):  # a nameless event may link what a nameless one before it needs
        for event in nameless:
            order = _linked_order(batch, event)
            if order is not None:
                _assign(batch, event, order)
    if batch.new_links:
        await _adopt_orphans(connection, batch)


async def link(
    connection: AsyncConnection, batch: Batch, links: dict[LinkKey, str], memory: LinkMemory
) -> None:
    """Link references that a record names, such as an opened session's, and adopt its orphans."""
    await _load_links(connection, batch, list(links), memory)
    for key, order in links.items():
        _link(batch, key, order)
    if batch.new_links:
        await _adopt_orphans(connection, batch)
    await _write_links(connection, batch)
    await mark_due(connection, batch.due)


async def _load_links(
    connection: AsyncConnection, batch: Batch, keys: list[LinkKey], memory: LinkMemory
) -> None:
    missing = set()
    for key in keys:
        order = memory.get(key)
        if order is None:
            missing.add(key[0])
        else:
            batch.links[key] = order
    if missing:
        rows = await select_in(
            connection,
            sql="SELECT reference, kind, source, order_key FROM links WHERE reference IN ({})",
            values=missing,
        )
        batch.links |= {(row[0], row[1], row[2]): row[3] for row in rows}


def _assign(batch: Batch, event: Event, order: str) -> None:
    batch.order_keys[event.key] = order
    for key in _references(event):
        _link(batch, key, order)


def _link(batch: Batch, key: LinkKey, order: str) -> None:
    linked = batch.links.get(key)
    if linked is None:
        batch.links[key] = batch.new_links[key] = order
    else:
        batch.contest(order, linked)


def _linked_order(batch: Batch, event: Event) -> str | None:
    for key in _references(event):
        order = batch.links.get(key)
        if order is not None:
            return order
    return None


async def _adopt_orphans(connection: AsyncConnection, batch: Batch) -> None:
    """Orphans of the new links, and of the links that those orphans make in turn."""
    tried: set[LinkKey] = set()
    while True:
        keys = batch.new_links.keys() - tried
        if not keys:
            return
        tried |= keys
        for kind in ("payment", "session"):
            references = {reference for reference, of, _ in keys if of == kind}
            if references:
                await _adopt(connection, batch, kind, references)


async def _adopt(
    connection: AsyncConnection, batch: Batch, kind: str, references: set[str]
) -> None:
    rows = await select_in(
        connection,
        sql=f'SELECT "row", source, payment, session FROM events WHERE order_key IS NULL '  # noqa: S608
        f"AND {kind} IN ({{}})",
        values=references,
    )
    for row, source, payment, session in rows:
        keys: list[LinkKey] = []
        if payment is not None:
            keys.append((payment, "payment", source))
        if session is not None:
            keys.append((session, "session", source))
        orders = [batch.links[key] for key in keys if key in batch.links]
        if orders and row not in batch.adopted:
            batch.adopted[row] = orders[0]
            for key in keys:
                _link(batch, key, orders[0])


# --- 4 and 5: due marks and rows -----------------------------------------------------------------


def _mark_due(batch: Batch, arrivals: Sequence[Arrival]) -> None:
    for arrival in arrivals:
        event = arrival.event
        if event is None:
            continue
        order = batch.order_keys.get(event.key)
        if order is None:
            bodies = batch.known.get((event.source, event.event_id), {})
            order = next((key for key, _ in bodies.values() if key is not None), None)
        if order is not None:
            batch.due[order] = max(arrival.received_at, batch.due.get(order, 0))
    latest = max((arrival.received_at for arrival in arrivals), default=0)
    for order in (*batch.adopted.values(), *(one for one, _ in batch.contested)):
        batch.due.setdefault(order, latest)


async def _write_deliveries(
    connection: AsyncConnection, arrivals: Sequence[Arrival], verdicts: list[StoredVerdict]
) -> None:
    await insert_many(
        connection,
        table="deliveries",
        columns=DELIVERY_COLUMNS,
        rows=[_delivery_row(a, verdict) for a, verdict in zip(arrivals, verdicts, strict=True)],
    )


async def write_index(connection: AsyncConnection, batch: Batch, fresh: Sequence[NewEvent]) -> None:
    """Write new events, links, adoptions and contested pairs."""
    if fresh:
        await insert_many(
            connection,
            table="events",
            columns=EVENT_COLUMNS,
            rows=[
                event_row(
                    event,
                    order_key=batch.order_keys.get(event.key),
                    delivery_id=delivery_id,
                    received_at=received_at,
                )
                for event, delivery_id, received_at in fresh
            ],
            conflict="ON CONFLICT DO NOTHING",
        )
    await _write_links(connection, batch)


def _delivery_row(arrival: Arrival, verdict: StoredVerdict) -> tuple[object, ...]:
    event = arrival.event
    return (
        arrival.delivery_id,
        arrival.received_at,
        arrival.source,
        verdict,
        None if event is None else event.event_id,
        arrival.digest,
        len(arrival.body),
        arrival.headers,
        None if verdict == "duplicate" else arrival.body,
        arrival.problem,
    )


async def _write_links(connection: AsyncConnection, batch: Batch) -> None:
    if batch.new_links:
        await insert_many(
            connection,
            table="links",
            columns=("reference", "kind", "source", "order_key"),
            rows=[(*key, order) for key, order in batch.new_links.items()],
            conflict="ON CONFLICT DO NOTHING",
        )
    for row, order in batch.adopted.items():
        await connection.exec_driver_sql(*_adoption(connection.dialect.name, row, order))
    if batch.contested:
        await insert_many(
            connection,
            table="contested",
            columns=("order_key", "other"),
            rows=sorted(batch.contested),
            conflict="ON CONFLICT DO NOTHING",
        )


def _adoption(dialect: str, row: int, order: str) -> tuple[str, tuple[object, ...]]:
    marks = ("?", "?") if dialect == "sqlite" else ("$1", "$2")
    return f'UPDATE events SET order_key={marks[0]} WHERE "row"={marks[1]}', (order, row)  # noqa: S608


async def mark_due(connection: AsyncConnection, due: dict[str, Instant]) -> None:
    """Set orders due: new evidence has arrived, so a fold under way must not clear the mark."""
    if due:
        await insert_many(
            connection,
            table="order_due",
            columns=("order_key", "due_at", "generation"),
            rows=[(order, at, 1) for order, at in due.items()],
            conflict="ON CONFLICT (order_key) DO UPDATE SET due_at=excluded.due_at, "
            "generation=order_due.generation+1",
        )
