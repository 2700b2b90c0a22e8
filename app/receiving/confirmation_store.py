"""Unconfirmed events, with the times of the next questions."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.ids import first_id
from app.database.locks import ASKING, take_lock_of
from app.database.mapping import EVENT_AT, EVENT_COLUMNS, EVENTS, delivery_of
from app.database.statements import PlainConnection, insert_rows, run, select_rows, statement
from app.receiving.refusals import LANES
from reconcile.instants import LATEST, Duration, Instant
from reconcile.ledger.events import UNCONFIRMED, Event

_COLUMNS = (
    "source",
    "event_id",
    "digest",
    "asked_since",
    "due_at",
    "tries",
    "named",
    "lane",
    "turn",
)
_CONFIRMATIONS = sa.table(
    "confirmations", *map(sa.column, (*_COLUMNS, "taken_until", "answered_at"))
)
_MARKS = _CONFIRMATIONS.c
_KEY = ("event_id", "source", "digest")
_OF_EVENT = sa.and_(*(_MARKS[name] == EVENTS.c[name] for name in _KEY))
_NAMED_PAYMENT = sa.func.coalesce(EVENTS.c.payment, "")

_DROP_SETTLED = (
    "DELETE FROM confirmations WHERE NOT EXISTS (SELECT 1 FROM events WHERE "
    "events.event_id=confirmations.event_id AND events.source=confirmations.source "
    "AND events.digest=confirmations.digest AND standing=:unconfirmed AND claim<>'ignored')"
)
_ADD_UNSETTLED = statement(
    "INSERT INTO confirmations "
    "(source, event_id, digest, asked_since, due_at, tries, named, lane, turn) "
    "SELECT source, event_id, digest, :now, :now, 0, CASE WHEN EXISTS (SELECT 1 FROM links "
    "WHERE links.source=events.source AND ((links.kind='payment' "
    "AND links.reference=events.payment) OR (links.kind='session' "
    "AND links.reference=events.session))) THEN 1 ELSE 0 END, 0, 0 FROM events "
    "WHERE standing=:unconfirmed AND claim<>'ignored' AND NOT EXISTS "
    "(SELECT 1 FROM events AS answer WHERE answer.order_key=events.order_key "
    "AND answer.source=events.source AND answer.standing IN ('fetched', 'answered') "
    "AND answer.received_at >= {event_at} "
    "AND (answer.claim NOT IN ('pending', 'unrecognized') OR answer.kind=:not_known)) "
    "ON CONFLICT DO NOTHING",
    event_at=EVENT_AT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Event about which the provider must be asked."""

    event: Event
    asked_since: Instant
    tries: int
    taken_until: Instant


class ToAsk(NamedTuple):
    """One event to ask about, with its arrival and its sender's group."""

    event: Event
    received_at: Instant
    lane: int


def note_confirmations(connection: PlainConnection, events: Sequence[ToAsk]) -> None:
    """Make these events due now. Groups of senders take turns."""
    if not events:
        return
    found = {each.event.key: each for each in events}
    names = {n for e in events for n in (e.event.payment, e.event.session) if n is not None}
    linked = select_rows(connection, sql=_LINKED, values=names) if names else []
    links = {tuple(row) for row in linked}
    turns: dict[tuple[str, int], int] = {}
    rows = []
    for key, (event, received, sender) in sorted(found.items()):
        known = [
            name
            for kind, name in (("session", event.session), ("payment", event.payment))
            if name is not None and (name, kind, event.source) in links
        ]
        lane = LANES + zlib.crc32(known[0].encode()) % LANES if known else sender
        turn = turns.get((event.source, lane))
        if turn is None:
            first = connection.ask(_FIRST_TURN, (event.source, int(bool(known)), received))[0][0]
            last = connection.ask(_LAST_TURN, (event.source, lane))[0][0]
            turn = max(first or 0, 0 if last is None else last + 1)
        turns[event.source, lane] = turn + 1
        rows.append((*key, received, received, 0, int(bool(known)), lane, turn))
    insert_rows(
        connection,
        table="confirmations",
        columns=_COLUMNS,
        rows=rows,
        conflict="ON CONFLICT (event_id, source, digest) DO UPDATE SET due_at=excluded.due_at, "
        "tries=0, turn=excluded.turn, "
        "named=CASE WHEN excluded.named > 0 THEN 1 ELSE confirmations.named END",
    )


def put_named_first(connection: PlainConnection, links: Mapping[tuple[str, str, str], str]) -> None:
    """Let waiting events whose reference is known be confirmed first."""
    for reference, kind, source in links:
        if connection.ask(_ANY_UNNAMED, (source,)):
            order = links[reference, kind, source]
            lane = LANES + zlib.crc32(reference.encode()) % LANES
            named = (source, kind, reference, kind, reference, MOST_PUT_FIRST)
            connection.ask(_PUT_FIRST, (lane, source, order, *named))


MOST_PUT_FIRST: Final = 10
"""Maximum number of a reference's events that come first; a provider sends two."""

_ANY_UNNAMED: Final = "SELECT 1 FROM confirmations WHERE source=? AND named=0 LIMIT 1"
_PUT_FIRST: Final = (
    "UPDATE confirmations SET named=1, turn=0, lane=? WHERE source=? AND (event_id, digest) IN "
    "(SELECT event_id, digest FROM events WHERE order_key=? AND source=? "
    "AND standing='unconfirmed' AND ((?='session' AND session=?) OR (?='payment' AND payment=?)) "
    'ORDER BY "row" LIMIT ?)'
)
_LINKED: Final = "SELECT reference, kind, source FROM links WHERE reference IN ({})"
_FIRST_TURN: Final = (
    "SELECT min(turn) FROM confirmations WHERE source=? AND named=? AND tries=0 AND due_at <= ?"
)
_LAST_TURN: Final = "SELECT max(turn) FROM confirmations WHERE source=? AND lane=? AND tries=0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Source whose provider must be asked."""

    source: str
    now: Instant
    lease: Duration
    longest: Duration

    def due(self) -> sa.ColumnElement[bool]:
        """Return the SQL condition for due events."""
        leased = self.now + self.lease
        return sa.and_(
            _MARKS.source == self.source,
            sa.or_(
                _MARKS.due_at <= self.now,
                _MARKS.due_at > leased + self.longest,
                sa.and_(_MARKS.tries == 0, _MARKS.due_at > leased),
            ),
        )


async def any_due(connection: AsyncConnection, asking: Asking) -> bool:
    """Return whether any event is due, without taking it."""
    found = await connection.execute(sa.select(_MARKS.source).where(asking.due()).limit(1))
    return found.first() is not None


async def take_due(
    connection: AsyncConnection, asking: Asking, *, limit: int
) -> list[Confirmation]:
    """Take up to `limit` due events for questions."""
    await run(connection, take_lock_of, ASKING, asking.source)
    held = sa.and_(_MARKS.taken_until > asking.now, _MARKS.taken_until <= asking.now + asking.lease)
    busy = (
        (
            await connection.execute(
                sa.select(_NAMED_PAYMENT)
                .join_from(_CONFIRMATIONS, EVENTS, _OF_EVENT)
                .where(_MARKS.source == asking.source, held)
            )
        )
        .scalars()
        .all()
    )
    due = (
        sa.select(*EVENTS.c, _MARKS.asked_since, _MARKS.tries)
        .join_from(_CONFIRMATIONS, EVENTS, _OF_EVENT)
        .where(asking.due(), sa.or_(_NAMED_PAYMENT == "", _NAMED_PAYMENT.not_in(busy)))
        .order_by(_MARKS.named.desc(), _MARKS.tries, _MARKS.turn, _MARKS.due_at)
        .limit(limit)
    )
    # SQLite, where one process writes, has no such lock, and SQLAlchemy leaves it out there.
    rows = await connection.execute(due.with_for_update(of=_CONFIRMATIONS, skip_locked=True))
    width = len(EVENT_COLUMNS)
    taken = [
        Confirmation(
            event=delivery_of(row[:width]).event,
            asked_since=row[width],
            tries=row[width + 1],
            taken_until=asking.now + asking.lease,
        )
        for row in rows
    ]
    first = {each.event.payment or each.event.key: each for each in taken[::-1]}
    taken = list(first.values())[::-1]
    for each in taken:
        await connection.execute(
            sa.update(_CONFIRMATIONS)
            .where(_is(each.event))
            .values(due_at=each.taken_until, taken_until=each.taken_until)
        )
    return taken


async def put_off(
    connection: AsyncConnection,
    taken: Confirmation,
    *,
    until: Instant,
    answered: Instant | None = None,
) -> None:
    """Postpone an event's next question, except after a new arrival."""
    await connection.execute(
        sa.update(_CONFIRMATIONS)
        .where(_is(taken.event))
        .values(
            tries=sa.case(
                (_MARKS.due_at == taken.taken_until, _MARKS.tries + 1), else_=_MARKS.tries
            ),
            turn=sa.case((_MARKS.due_at == taken.taken_until, 0), else_=_MARKS.turn),
            taken_until=None,
            answered_at=sa.func.coalesce(answered, _MARKS.answered_at),
            due_at=sa.case((_MARKS.due_at == taken.taken_until, until), else_=_MARKS.due_at),
        )
    )


async def settle(connection: AsyncConnection, taken: Confirmation) -> None:
    """Stop asking about this event, unless it has arrived again in the meantime."""
    await connection.execute(
        sa.delete(_CONFIRMATIONS).where(_is(taken.event), _MARKS.due_at == taken.taken_until)
    )
    await connection.execute(
        sa.update(_CONFIRMATIONS).where(_is(taken.event)).values(taken_until=None)
    )


async def any_since(connection: AsyncConnection, *, until: Instant) -> bool:
    """Return whether any event that arrived before `until` waits for its provider's answer."""
    found = await connection.execute(
        sa.select(_MARKS.source).where(_MARKS.asked_since < until).limit(1)
    )
    return found.first() is not None


class Waiting(NamedTuple):
    """One event that waits for its provider's answer."""

    event_id: str
    source: str
    digest: str
    payment: str


async def waiting_before(
    connection: AsyncConnection, *, until: Instant, limit: int
) -> list[Waiting]:
    """Return waiting events from before `until`, oldest first."""
    found = await connection.execute(
        sa.select(*(_MARKS[name] for name in _KEY), _NAMED_PAYMENT)
        .join_from(_CONFIRMATIONS, EVENTS, _OF_EVENT)
        .where(_MARKS.asked_since < until)
        .order_by(_MARKS.asked_since, *(_MARKS[name] for name in _KEY))
        .limit(limit)
    )
    return [Waiting(row[0], row[1], row[2], row[3]) for row in found]


async def make_due(
    connection: AsyncConnection, *, now: Instant, until: Instant, limit: int
) -> list[Waiting]:
    """Make waiting events due now. Return the events, oldest first."""
    waiting = await waiting_before(connection, until=until, limit=limit)
    for each in waiting:
        free = sa.or_(_MARKS.taken_until.is_(None), _MARKS.taken_until <= now)
        await connection.execute(
            sa.update(_CONFIRMATIONS)
            .where(*(_MARKS[name] == getattr(each, name) for name in _KEY), free)
            .values(due_at=sa.case((_MARKS.due_at < now, _MARKS.due_at), else_=now))
        )
    return waiting


async def unanswered(
    connection: AsyncConnection,
    waiting: Sequence[Waiting],
    *,
    since: Instant,
    until: Instant = LATEST,
) -> list[Waiting]:
    """Return the events in `waiting` that got no answer between `since` and `until`."""
    key = sa.tuple_(*(_MARKS[name] for name in _KEY))
    found = await connection.execute(
        sa.select(*(_MARKS[name] for name in _KEY)).where(
            key.in_([each[:3] for each in waiting]),
            ~sa.func.coalesce(_MARKS.answered_at, since - 1).between(since, until),
        )
    )
    left = {tuple(row) for row in found}
    return [each for each in waiting if each[:3] in left]


async def drop_most_asked(connection: AsyncConnection, source: str, *, keep: int) -> int:
    """Stop asking about all but `keep` events of a source."""
    key = [_MARKS[name] for name in _KEY]
    most = (
        sa.select(*key)
        .where(_MARKS.source == source, _MARKS.tries > 0)
        .order_by(_MARKS.named.desc(), _MARKS.tries, _MARKS.due_at)
        .offset(keep)
        # Rows that an arrival is locking are skipped, so that neither waits for the other.
        .with_for_update(skip_locked=True)
        # Materialized, so that it runs once: see `claim_orders`.
        .cte("most", nesting=True)
        .prefix_with("MATERIALIZED")
    )
    gone = await connection.execute(
        sa.delete(_CONFIRMATIONS).where(sa.tuple_(*key).in_(sa.select(most)))
    )
    return int(gone.rowcount)


async def await_again(
    connection: AsyncConnection, *, now: Instant, not_known: str, never: Sequence[str] = ()
) -> None:
    """Mark all events without a final answer as waiting."""
    await connection.execute(sa.text(_DROP_SETTLED), {"unconfirmed": UNCONFIRMED})
    await connection.execute(
        sa.text(_ADD_UNSETTLED), {"now": now, "not_known": not_known, "unconfirmed": UNCONFIRMED}
    )
    if never:
        unasked = sa.text("DELETE FROM confirmations WHERE source IN :never")
        await connection.execute(
            unasked.bindparams(sa.bindparam("never", expanding=True)), {"never": list(never)}
        )


async def unasked(connection: AsyncConnection, source: str, *, over: int) -> bool:
    """Return whether a source has more than `over` events that were never asked about."""
    sql = "SELECT 1 FROM confirmations WHERE source=:source AND tries=0 LIMIT 1 OFFSET :over"
    found = await connection.execute(sa.text(sql), {"source": source, "over": over})
    return found.first() is not None


async def asked_count(connection: AsyncConnection, source: str) -> int:
    """Return the number of asked events without an answer."""
    waiting = "SELECT count(*) FROM confirmations WHERE source=:source AND tries > 0"
    found = await connection.execute(sa.text(waiting), {"source": source})
    return int(found.scalar_one())


def _is(event: Event) -> sa.ColumnElement[bool]:
    return sa.and_(*(_MARKS[name] == getattr(event, name) for name in _KEY))


async def is_known(connection: AsyncConnection, event: Event) -> bool:
    """Return whether an event with the same source, id and digest is stored."""
    found = await connection.execute(
        sa.text(
            "SELECT 1 FROM events WHERE event_id=:event_id AND source=:source AND digest=:digest"
        ),
        {"event_id": event.event_id, "source": event.source, "digest": event.digest},
    )
    return found.first() is not None


async def named_references(
    connection: AsyncConnection, sources: Sequence[str], *, since: Instant, limit: int
) -> list[tuple[str, str]]:
    """Return references that records have named since an instant."""
    values = {"start": first_id("rec_", since), "sources": list(sources), "limit": limit}
    rows = await connection.execute(
        sa.text(_NAMED).bindparams(sa.bindparam("sources", expanding=True)), values
    )
    return [
        (source, name)
        for source, session, payment in reversed(rows.all())
        for name in (session, payment)
        if name is not None
    ]


_NAMED: Final = (
    "SELECT source, session, payment FROM records WHERE id >= :start AND id < 'rec_g' "
    "AND kind IN ('reference_named', 'session_opened') AND source IN :sources "
    "ORDER BY id DESC LIMIT :limit"
)


async def last_positions(connection: AsyncConnection, event: Event) -> list[Event]:
    """Return the two latest answers about the payment's money."""
    found = await connection.execute(
        sa.select(*EVENTS.c)
        .where(
            EVENTS.c.source == event.source,
            EVENTS.c.payment == event.payment,
            EVENTS.c.stated_at.is_not(None),
        )
        .order_by(EVENTS.c.stated_at.desc(), EVENTS.c.digest)
        .limit(2)
    )
    return [delivery_of(row[: len(EVENT_COLUMNS)]).event for row in found]


async def gap_since_answer(connection: AsyncConnection, event: Event) -> bool:
    """Return whether deliveries can be lost since the last answer."""
    found = await connection.execute(
        sa.text(_GAP_SINCE_ANSWER), {"source": event.source, "payment": event.payment}
    )
    return found.first() is not None


_GAP_SINCE_ANSWER: Final = (
    "SELECT 1 FROM gaps WHERE accepted_at > (SELECT max(received_at) FROM events "
    "WHERE source=:source AND payment=:payment AND stated_at IS NOT NULL) LIMIT 1"
)
