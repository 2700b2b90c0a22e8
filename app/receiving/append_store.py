"""Store a batch of arrived deliveries in one transaction.

1. load the known event ids and links
2. decide the verdict on each arrival
3. find the order of each new event
4. write all rows
5. mark the orders as due for a fold

The lock LINKING lets one process at a time store a batch.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import StoreUnavailable
from app.database.layout import settle
from app.database.locks import LINKING, REFUSING, take_lock
from app.database.mapping import DELIVERY_COLUMNS, EVENT_COLUMNS, event_row
from app.database.statements import PlainConnection, insert_rows, run, select_rows
from app.receiving import unread_store
from app.receiving.confirmation_store import ToAsk, note_confirmations
from app.receiving.correlation_store import Linking, LinkMemory, Links
from app.receiving.due_store import backwards
from app.receiving.inbox_store import Suspect, Unread, take_out, take_suspect_out
from app.receiving.other_shop_store import hold_for_others
from app.receiving.phone_store import PhoneNote, phone_note, write_phone_notes
from app.receiving.refusal_store import NOT_KEPT, Rejection, RejectionRing
from app.receiving.source_state_store import Accepted, note_sources
from app.sealing.leaf_store import DELIVERY
from app.sealing.log_queue_store import mark_unsealed
from reconcile.instants import DAY, EARLIEST, MINUTE, Instant
from reconcile.ledger.events import UNCONFIRMED, Event

StoredVerdict = Literal[
    "stored", "duplicate", "duplicate_with_different_body", "unreadable", "not_ours"
]
ACCEPTED: Final[tuple[StoredVerdict, ...]] = get_args(StoredVerdict)
"""Verdicts of deliveries that are acknowledged. All other deliveries are refused."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Body of a request that brought several events, with the body's SHA-256."""

    digest: str
    body: bytes


class Arrival(NamedTuple):
    """Verified delivery that must be stored."""

    delivery_id: str
    received_at: Instant
    source: str
    digest: str
    headers: str
    """Headers without credentials, as lines `name: value` in Latin-1."""
    body: bytes
    event: Event | None
    problem: str | None = None
    whole: Envelope | None = None
    """The whole body, if `body` is one of several events."""
    customer: tuple[bytes, ...] = ()
    asked_about: bool = True
    """True if the provider is asked about an unconfirmed event."""
    values: frozenset[str] = frozenset()
    """Values in an unreadable signed body that can name an order."""
    peer: str = ""
    lane: int = 0
    """Number of the sender's network group, for fair turns in questions."""


NewEvent = tuple[Event, tuple[Any, ...]]

Bodies = dict[str, tuple[str | None, str | None]]
"""Known bodies of one event id, by digest: order of storage, and named order."""


@dataclass(slots=True)
class KnownEvents:
    """Known bodies of each event id: bodies that are stored, and bodies of the present
    transaction."""

    bodies: dict[tuple[str, str], Bodies] = field(default_factory=dict)

    def load(self, connection: PlainConnection, events: Sequence[Event]) -> bool:
        """Load the stored bodies of these events."""
        rows = select_rows(
            connection,
            sql="SELECT event_id, source, digest, order_key, order_ref FROM events "
            "WHERE event_id IN ({})",
            values={event.event_id for event in events},
        )
        for event_id, source, digest, order_key, order_ref in rows:
            self.bodies.setdefault((source, event_id), {})[digest] = (order_key, order_ref)
        return bool(rows)

    def judge(self, event: Event, linking: Linking) -> StoredVerdict:
        """Return the verdict on an arrived event, and add it to the known events."""
        key = (event.source, event.event_id)
        bodies = self.bodies.get(key)
        if bodies is None:
            self.bodies[key] = {event.digest: (None, event.order)}
            return "not_ours" if event.shop == "other" else "stored"
        if event.digest in bodies:
            return "duplicate"
        linking.torn.add(key)
        bodies[event.digest] = (None, event.order)
        return "duplicate_with_different_body"

    def order_of(self, event: Event) -> str | None:
        """Return the order of an earlier body with this id."""
        bodies = self.bodies.get((event.source, event.event_id), {})
        return next((key for key, _ in bodies.values() if key is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Arrived deliveries with their verdicts and rows."""

    arrivals: Sequence[Arrival]
    verdicts: list[StoredVerdict]
    fresh: list[NewEvent]
    """New events."""
    linking: Linking
    known: KnownEvents
    pruned: Collection[str]
    """Ids of redeliveries whose first delivery lost its body."""


class Ready(NamedTuple):
    """Content read from one row of the inbox."""

    row: Unread | Suspect | None
    arrivals: Sequence[Arrival]
    rejections: Sequence[Rejection] = ()


class Appended(NamedTuple):
    """Deliveries that were not stored before, their verdicts, and the links to orders that the
    commit will store."""

    arrivals: Sequence[Arrival]
    verdicts: list[StoredVerdict]
    links: Links


def append_ready(
    connection: PlainConnection, ready: Sequence[Ready], *, memory: LinkMemory, ring: RejectionRing
) -> Appended:
    """Store what was read from rows of the inbox, and delete these rows."""
    if connection.spread or any(each.rejections or isinstance(each.row, Suspect) for each in ready):
        take_lock(connection, LINKING)  # before any rows that others lock while they hold it
    if any(each.rejections for each in ready):
        take_lock(connection, REFUSING)
    given = [each.row for each in ready if isinstance(each.row, Unread)]
    rows = {row.seq for row in take_out(connection, given)}
    ours = [each for each in ready if _is_ours(connection, each.row, rows)]
    arrivals = [arrival for each in ours for arrival in each.arrivals]
    if not connection.spread:
        arrivals = _unknown(connection, arrivals)
    rejections = _unknown(connection, [refused for each in ours for refused in each.rejections])
    appended = Appended([], [], {})
    # A suspect was noted as unread. It is appended now, and noted again if it is unreadable.
    tried = [each for each in ours if isinstance(each.row, Suspect)]
    set_aside = [arrival.delivery_id for each in tried for arrival in each.arrivals]
    concerned = unread_store.forget_unread(connection, set_aside)
    if concerned:
        latest = max(arrival.received_at for each in tried for arrival in each.arrivals)
        mark_due(connection, dict.fromkeys(concerned, latest))
    if arrivals and connection.spread:
        appended = _mark_ahead(connection, arrivals)
    elif arrivals:
        appended = append(connection, arrivals, memory)
    if rejections:
        ring.append(connection, [each for each in rejections if each.verdict != NOT_KEPT])
    count_arrivals(connection, appended.arrivals, rejections)
    note_sources(connection, accepted_of(appended), rejections)
    count_read(connection, appended)
    return appended


def append_ahead(
    connection: PlainConnection, ready: Sequence[Ready], *, memory: LinkMemory
) -> Links:
    """Store deliveries from the inbox without deleting the inbox's rows."""
    take_lock(connection, LINKING)  # a reader that took over a claim then sees its rows
    arrivals = _unknown(connection, [arrival for each in ready for arrival in each.arrivals])
    return _stored(connection, arrivals, memory).linking.links


def _mark_ahead(connection: PlainConnection, arrivals: Sequence[Arrival]) -> Appended:
    settle(connection)
    given = [each.delivery_id for each in arrivals]
    found: dict[str, StoredVerdict] = dict(select_rows(connection, sql=_VERDICTS, values=given))
    if any(each.delivery_id not in found for each in arrivals):
        raise StoreUnavailable("a database node does not show a commit yet", reason="busy")
    ids = {each.event.event_id for each in arrivals if each.event is not None}
    orders = {row[0] for row in select_rows(connection, sql=_ORDERS_OF_EVENTS, values=ids)}
    orders |= {row[0] for row in select_rows(connection, sql=_SHARING, values=orders)}
    latest = max(each.received_at for each in arrivals)
    named = _keep_unread(connection, arrivals)
    mark_due(connection, dict.fromkeys(orders | named, latest))
    sealed = {row[0] for row in select_rows(connection, sql=_SEALED, values=found)}
    mark_unsealed(connection, DELIVERY, [i for i in dict.fromkeys(given) if i not in sealed])
    return Appended(arrivals, [found[each.delivery_id] for each in arrivals], {})


_VERDICTS: Final = "SELECT id, verdict FROM deliveries WHERE id IN ({})"
_ORDERS_OF_EVENTS: Final = (
    "SELECT order_key FROM events WHERE order_key IS NOT NULL AND event_id IN ({})"
)
_SHARING: Final = "SELECT other FROM contested WHERE order_key IN ({})"
_SEALED: Final = "SELECT subject FROM log_leaves WHERE subject IN ({})"


def _is_ours(
    connection: PlainConnection, row: Unread | Suspect | None, rows: Collection[int]
) -> bool:
    if isinstance(row, Suspect):
        return take_suspect_out(connection, row)
    return row is None or row.seq in rows


Came = TypeVar("Came", Arrival, Rejection)


def _unknown(connection: PlainConnection, came: Sequence[Came]) -> list[Came]:
    if not came:
        return []
    ids = [each.delivery_id for each in came]
    known = {row[0] for row in select_rows(connection, sql=_STORED, values=ids)}
    if any(isinstance(each, Rejection) for each in came):
        known |= {row[0] for row in select_rows(connection, sql=_REFUSED, values=ids)}
    return list({each.delivery_id: each for each in came if each.delivery_id not in known}.values())


_STORED: Final = "SELECT id FROM deliveries WHERE id IN ({})"
_REFUSED: Final = "SELECT id FROM rejections WHERE id IN ({})"


ARRIVALS_KEPT: Final = 90 * DAY // MINUTE

_MORE_ARRIVALS: Final = (
    "ON CONFLICT (minute, source) DO UPDATE SET taken=arrivals.taken+excluded.taken, "
    "refused=arrivals.refused+excluded.refused"
)


def count_arrivals(
    connection: PlainConnection, arrivals: Sequence[Arrival], rejections: Sequence[Rejection]
) -> None:
    """Count arrivals for each minute and source."""
    taken = Counter((each.received_at // MINUTE, each.source) for each in arrivals)
    refused = Counter[tuple[int, str]]()
    for each in rejections:
        source = "" if each.verdict == "source_unknown" else each.source
        refused[each.received_at // MINUTE, source] += each.count
    rows = sorted((*key, taken[key], refused[key]) for key in taken.keys() | refused.keys())
    if rows:
        insert_rows(
            connection,
            table="arrivals",
            columns=("minute", "source", "taken", "refused"),
            rows=rows,
            conflict=_MORE_ARRIVALS,
        )
        connection.ask("DELETE FROM arrivals WHERE minute < ?", (rows[-1][0] - ARRIVALS_KEPT,))


def accepted_of(appended: Appended) -> list[Accepted]:
    """Return each source's latest readable and latest unreadable arrival."""
    latest: dict[tuple[str, bool], Instant] = {}
    for arrival, verdict in zip(appended.arrivals, appended.verdicts, strict=True):
        key = arrival.source, verdict != "unreadable"
        latest[key] = max(arrival.received_at, latest.get(key, EARLIEST))
    return [Accepted(source, at, is_read) for (source, is_read), at in latest.items()]


READ: Final = "read "
"""Prefix of the counters of deliveries read from the inbox."""

READ_END: Final = "read!"
"""Upper end of the names that begin with `read `."""


def count_read(connection: PlainConnection, appended: Appended) -> None:
    """Count the deliveries that were read. Call this function last."""
    counted = Counter(
        f"{READ}{arrival.source} {verdict}"
        for arrival, verdict in zip(appended.arrivals, appended.verdicts, strict=True)
    )
    insert_rows(
        connection,
        table="counters",
        columns=("name", "value"),
        rows=sorted(counted.items()),
        conflict="ON CONFLICT (name) DO UPDATE SET value=counters.value+excluded.value",
    )
    if connection.dialect == "sqlite":
        connection.ask("UPDATE counters SET value=0 WHERE name=? AND value<>0", (STARTS,))


STARTS: Final = "reader starts"
"""Name of SQLite's counter of reader starts since something was stored."""


def read_counts(connection: PlainConnection) -> dict[tuple[str, str], int]:
    """Return how many deliveries were read. The keys are source and verdict."""
    rows = connection.ask(
        "SELECT name, value FROM counters WHERE name >= ? AND name < ?", (READ, READ_END)
    )
    found = {}
    for name, value in rows:
        source, _, verdict = name.removeprefix(READ).rpartition(" ")
        found[source, verdict] = value
    return found


def append(
    connection: PlainConnection, arrivals: Sequence[Arrival], memory: LinkMemory
) -> Appended:
    """Store the arrivals. Cache the returned links after the commit."""
    mark_unsealed(connection, DELIVERY, [arrival.delivery_id for arrival in arrivals])
    judged = _stored(connection, arrivals, memory)
    named = _keep_unread(connection, arrivals)
    latest = max((each.received_at for each in arrivals), default=EARLIEST)
    mark_due(connection, dict.fromkeys(named, latest) | _due(judged))  # 5
    return Appended(arrivals, judged.verdicts, judged.linking.links)


def _stored(connection: PlainConnection, arrivals: Sequence[Arrival], memory: LinkMemory) -> Judged:
    events = [arrival.event for arrival in arrivals if arrival.event is not None]
    linking, known = Linking(memory), KnownEvents()
    guessed, any_known = None, False
    if connection.dialect != "sqlite" and not connection.spread:
        any_known = known.load(connection, events)
        guessed = _judge(connection, arrivals, known, linking)
        _write_deliveries(connection, guessed)
        known = KnownEvents()
    take_lock(connection, LINKING)
    linking.load_of(connection, events)  # 1
    any_known |= known.load(connection, events)  # now all nodes have every earlier commit
    judged = guessed
    if judged is None or any_known:  # a known id may have come meanwhile
        judged = _judge(connection, arrivals, known, linking)
    if guessed is None:
        _write_deliveries(connection, judged)
    elif (guessed.verdicts, guessed.pruned) != (judged.verdicts, judged.pruned):
        select_rows(connection, sql=_TAKE_BACK, values=[a.delivery_id for a in arrivals])
        _write_deliveries(connection, judged)
    fresh = [event for event, _ in judged.fresh]
    linking.assign(connection, fresh)  # 3
    new = [a for a, v in zip(arrivals, judged.verdicts, strict=True) if v != "duplicate"]
    _keep_whole(connection, new)
    write_index(connection, linking, judged.fresh)
    write_phone_notes(connection, _customers(new, linking))
    note_confirmations(connection, _unconfirmed(arrivals))
    latest = max((each.received_at for each in arrivals), default=EARLIEST)
    hold_for_others(connection, fresh, at=latest)
    return judged


_TAKE_BACK: Final = "DELETE FROM deliveries WHERE id IN ({})"


def _judge(
    connection: PlainConnection, arrivals: Sequence[Arrival], known: KnownEvents, linking: Linking
) -> Judged:
    came = ((each.event, each.delivery_id, each.received_at) for each in arrivals)
    verdicts, fresh = judge_all(came, known, linking)  # 2
    repeats = [a for a, v in zip(arrivals, verdicts, strict=True) if v == "duplicate"]
    return Judged(
        arrivals=arrivals,
        verdicts=verdicts,
        fresh=fresh,
        linking=linking,
        known=known,
        pruned=_of_pruned(connection, repeats),
    )


def judge_all(
    came: Iterable[tuple[Event | None, str, Instant]], known: KnownEvents, linking: Linking
) -> tuple[list[StoredVerdict], list[NewEvent]]:
    """Return each event's verdict, and the new events."""
    verdicts: list[StoredVerdict] = []
    fresh: list[NewEvent] = []
    for event, delivery_id, received_at in came:
        verdict = "unreadable" if event is None else known.judge(event, linking)
        verdicts.append(verdict)
        if event is not None and verdict != "duplicate":
            fresh.append(
                (
                    event,
                    event_row(
                        event, order_key=None, delivery_id=delivery_id, received_at=received_at
                    ),
                )
            )
    return verdicts, fresh


def _write_deliveries(connection: PlainConnection, judged: Judged) -> None:
    pairs = zip(judged.arrivals, judged.verdicts, strict=True)
    insert_rows(
        connection,
        table="deliveries",
        columns=DELIVERY_COLUMNS,
        rows=[_delivery_row(a, v, pruned=a.delivery_id in judged.pruned) for a, v in pairs],
    )


def _keep_unread(connection: PlainConnection, arrivals: Sequence[Arrival]) -> set[str]:
    unread = [
        unread_store.UnreadMessage(value, each.delivery_id, each.source, each.received_at)
        for each in arrivals
        for value in each.values
    ]
    if unread:
        unread_store.keep_unread(connection, unread)
    return unread_store.orders_named(connection, unread) if unread else set()


async def keep_arrivals(
    connection: AsyncConnection, arrivals: Sequence[Arrival]
) -> list[StoredVerdict]:
    """Store arrivals in the caller's transaction. Return their verdicts."""
    return (await run(connection, append, arrivals, LinkMemory())).verdicts


def _unconfirmed(arrivals: Sequence[Arrival]) -> list[ToAsk]:
    return [
        ToAsk(a.event, a.received_at, a.lane)
        for a in arrivals
        if a.event is not None and _awaits(a)
    ]


def _awaits(arrival: Arrival) -> bool:
    event = arrival.event
    if event is None or event.claim == "ignored":
        return False
    return event.standing == UNCONFIRMED and arrival.asked_about


def _customers(arrivals: Sequence[Arrival], linking: Linking) -> Iterator[PhoneNote]:
    for arrival in arrivals:
        if arrival.event is not None:
            order = linking.orders.get(arrival.event.key)
            for digest in arrival.customer:
                yield phone_note(digest, order, arrival.delivery_id, arrival.received_at)


_KEPT_AGAIN = "ON CONFLICT (digest) DO UPDATE SET body=excluded.body WHERE envelopes.body IS NULL"
_LEFT_AS_IT_IS = "ON CONFLICT (digest) DO NOTHING"


def _keep_whole(connection: PlainConnection, arrivals: Sequence[Arrival]) -> None:
    bodies = {a.whole.digest: a.whole.body for a in arrivals if a.whole is not None}
    read = {a.whole.digest for a in arrivals if a.whole is not None and a.event is not None}
    for digests, conflict in ((read, _KEPT_AGAIN), (bodies.keys() - read, _LEFT_AS_IT_IS)):
        if digests:
            insert_rows(
                connection,
                table="envelopes",
                columns=("digest", "body"),
                rows=[(digest, bodies[digest]) for digest in sorted(digests)],
                conflict=conflict,
            )


def _due(judged: Judged) -> dict[str, Instant]:
    known, linking = judged.known, judged.linking
    due: dict[str, Instant] = {}
    latest = EARLIEST
    for arrival in judged.arrivals:
        event = arrival.event
        if event is None:
            continue
        order = linking.orders.get(event.key) or known.order_of(event)
        received = arrival.received_at
        latest = max(latest, received)
        if order is not None:
            due[order] = min(received, due.get(order, received))
    for order in linking.touched():
        due.setdefault(order, latest)
    return due


_PRUNED: Final = (
    "SELECT events.event_id, events.source, events.digest FROM events "
    "JOIN deliveries ON deliveries.id = events.delivery_id "
    "WHERE deliveries.pruned_at IS NOT NULL AND events.event_id IN ({}) "
    "/* events WHERE event_id = ANY($1) */ "
    "/* deliveries WHERE id IN (SELECT delivery_id FROM events) */"
)


def _of_pruned(connection: PlainConnection, repeats: Sequence[Arrival]) -> set[str]:
    events = {each.event.event_id for each in repeats if each.event is not None}
    if not events:
        return set()
    pruned = {tuple(row) for row in select_rows(connection, sql=_PRUNED, values=events)}
    return {
        each.delivery_id
        for each in repeats
        if each.event is not None and (each.event.event_id, each.source, each.digest) in pruned
    }


def _delivery_row(arrival: Arrival, verdict: StoredVerdict, *, pruned: bool) -> tuple[object, ...]:
    event = arrival.event
    return (
        arrival.delivery_id,
        arrival.received_at,
        arrival.source,
        verdict,
        None if event is None else event.event_id,
        arrival.digest,
        len(arrival.body),
        "" if pruned else arrival.headers,
        None if verdict == "duplicate" else arrival.body,
        arrival.problem,
        None if arrival.whole is None else arrival.whole.digest,
        arrival.received_at if pruned else None,
    )


def write_index(connection: PlainConnection, linking: Linking, fresh: Sequence[NewEvent]) -> None:
    """Store new events, their links to orders, and changes of earlier links."""
    if fresh:
        orders = linking.orders
        insert_rows(
            connection,
            table="events",
            columns=EVENT_COLUMNS,
            rows=[(orders.get(event.key), *row[1:]) for event, row in fresh],
        )
    linking.write(connection)


def mark_due(connection: PlainConnection, due: dict[str, Instant]) -> None:
    """Mark orders with new evidence as due for a fold."""
    if due:
        insert_rows(
            connection,
            table="order_due",
            columns=("order_key", "due_at", "generation", "backwards"),
            rows=[(order, at, 1, backwards(order)) for order, at in sorted(due.items())],
            conflict="ON CONFLICT (order_key) DO UPDATE SET generation=order_due.generation+1, "
            "due_at=CASE WHEN order_due.due_at <= excluded.due_at THEN order_due.due_at "
            "ELSE excluded.due_at END",
        )


TRIAL: Final = Arrival(
    delivery_id="dlv_trial",
    received_at=EARLIEST,
    source="trial",
    digest="0" * 64,
    headers="",
    body=b"",
    event=Event(
        source="trial",
        event_id="trial",
        digest="0" * 64,
        kind="trial",
        claim="pending",
        order="trial",
        session="trial",
        payment="trial",
    ),
)
"""Trial delivery. Storing it touches every table that a real delivery touches."""
