"""The delivery log: it lists and shows deliveries and rejections. The verdicts have been decided
before."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import EVENT_SELECT, EVENTS, delivery_of
from app.database.statements import Rows, statement, stream
from app.receiving.append_store import ACCEPTED
from reconcile.instants import MILLISECOND, Instant
from reconcile.ledger.events import Event
from reconcile.money import Money

_SHOWN: Final = ("id", "received_at", "source", "verdict", "digest", "size", "problem", "headers")
_REJECTIONS: Final = sa.table("rejections", *map(sa.column, _SHOWN))
_DELIVERIES: Final = sa.table("deliveries", *map(sa.column, (*_SHOWN, "event_id", "pruned_at")))

_REFUSED_SHOWN: Final = (
    *_REJECTIONS.c,
    sa.null().label("event_id"),
    sa.cast(sa.null(), sa.BigInteger).label("pruned_at"),
)
_ACCEPTED_HALF: Final = sa.select(*_DELIVERIES.c)
_REFUSED_HALF: Final = sa.select(*_REFUSED_SHOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """Arrived delivery with its verdict, without its body."""

    delivery_id: str
    received_at: Instant
    source: str
    verdict: str
    digest: str
    size: int
    problem: str | None
    headers: str
    event_id: str | None
    pruned_at: Instant | None
    kind: str | None = None
    claim: str | None = None
    order: str | None = None
    money: Money | None = None
    restricted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Conditions for listing arrived deliveries; None for no condition."""

    verdict: str | None = None
    source: str | None = None
    kind: str | None = None
    order: str | None = None
    no_order: bool = False
    refused: bool = True

    @property
    def has_no_index(self) -> bool:
        """Return whether no index covers the conditions."""
        return self.order is None and (self.no_order or self.kind is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDelivery:
    """Bytes of a stored delivery, from which the delivery can be read again."""

    delivery_id: str
    received_at: Instant
    source: str
    verdict: str
    event_id: str | None
    digest: str
    headers: str
    body: bytes | None
    """Body; None if pruned, and then `kept` has the event."""
    whole: bytes | None
    """The whole body of a request with several events."""
    pruned_at: Instant | None
    kept: Event | None
    lone: bool = False
    """True if only this event's bytes are stored."""


_OF_EVENT: Final = tuple(
    EVENTS.c[name] for name in ("kind", "claim", "order_key", "amount", "currency")
)


def _with_events(arrivals: sa.Subquery) -> sa.Select[Any]:
    return (
        sa.select(*arrivals.c, *_OF_EVENT)
        .select_from(arrivals.outerjoin(EVENTS, _event_of(arrivals)))
        .order_by(arrivals.c.id.desc())
    )


def _event_of(arrivals: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(
        *(EVENTS.c[name] == arrivals.c[name] for name in ("event_id", "source", "digest"))
    )


def _entry(row: Sequence[Any]) -> LogEntry:
    amount, currency = row[13:15]
    return LogEntry(
        delivery_id=row[0],
        received_at=row[1],
        source=row[2],
        verdict=row[3],
        digest=row[4],
        size=row[5],
        problem=row[6],
        headers=row[7],
        event_id=row[8],
        pruned_at=row[9],
        kind=row[10],
        claim=row[11],
        order=row[12],
        money=None if amount is None else Money(minor=amount, currency=currency),
    )


_UNUSUAL: Final = sa.text("verdict <> 'stored'")

_AGAIN: Final = _DELIVERIES.alias("again")
_BROUGHT: Final = sa.union_all(
    sa.select(EVENTS.c.delivery_id).where(EVENTS.c.order_key == sa.bindparam("order")),
    sa.select(_AGAIN.c.id)
    .select_from(EVENTS.join(_AGAIN, _event_of(_AGAIN)))
    .where(EVENTS.c.order_key == sa.bindparam("order"), sa.text("again.verdict = 'duplicate'")),
)


async def list_log(
    connection: AsyncConnection,
    wanted: LogFilter,
    *,
    limit: int,
    before: str | None = None,
    since: str | None = None,
) -> list[LogEntry]:
    """Return the latest matching deliveries, newest first. `since` is inclusive."""
    asks_event = wanted.order is not None or wanted.has_no_index
    accepted = wanted.verdict is None or wanted.verdict in ACCEPTED
    refused = wanted.refused and not asks_event and (wanted.verdict is None or not accepted)
    halves = []
    for half, of, is_wanted in (
        (_ACCEPTED_HALF, _DELIVERIES, accepted),
        (_REFUSED_HALF, _REJECTIONS, refused),
    ):
        conditions: list[sa.ColumnElement[bool] | sa.TextClause] = []
        if wanted.verdict is not None:
            conditions.append(of.c.verdict == wanted.verdict)
            if wanted.verdict != "stored":
                conditions.append(_UNUSUAL)
        if wanted.source is not None:
            conditions.append(of.c.source == wanted.source)
        if before is not None:
            conditions.append(of.c.id < before)
        if since is not None:
            conditions.append(of.c.id >= since)
        if asks_event:
            half = half.join(EVENTS, _event_of(_DELIVERIES))
        if wanted.order is not None:
            conditions.append(of.c.id.in_(_BROUGHT))
        if wanted.kind is not None:
            conditions.append(EVENTS.c.kind == wanted.kind)
        if wanted.no_order:
            conditions.append(EVENTS.c.order_key.is_(None))
        if is_wanted:
            halves.append(half.where(*conditions).order_by(of.c.id.desc()).limit(limit))
    if not halves:
        return []
    log = sa.union_all(*(sa.select(half.subquery()) for half in halves)).subquery("delivery_log")
    newest = sa.select(log).order_by(log.c.id.desc()).limit(limit).subquery("newest")
    values = {} if wanted.order is None else {"order": wanted.order}
    rows = await connection.execute(_with_events(newest), values)
    return [_entry(row) for row in rows]


async def delivery_before(
    connection: AsyncConnection, before: str | None, *, count: int
) -> str | None:
    """Return the id of the delivery `count` places before another."""
    rows = await connection.execute(
        sa.text(
            "SELECT id FROM deliveries WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :count"
        ),
        {"before": before or LAST, "count": count - 1},
    )
    found: str | None = rows.scalar_one_or_none()
    return found


LAST: Final = "\U0010ffff"


async def newest_arrival(connection: AsyncConnection) -> str:
    """Return the latest delivery's id; "" without one."""
    rows = await connection.execute(
        sa.text("SELECT max(id) FROM (SELECT max(id) AS id FROM deliveries UNION ALL "
             "SELECT max(id) AS id FROM rejections) AS latest")
    )  # fmt: skip
    return str(rows.scalar_one() or "")


ARRIVALS_SINCE: Final = (
    "SELECT minute, sum(taken), sum(refused) FROM arrivals WHERE minute >= :first GROUP BY minute"
)
LAST_ARRIVALS: Final = (
    "SELECT (SELECT max(minute) FROM arrivals WHERE source = :source AND taken > 0), "
    "(SELECT max(minute) FROM arrivals WHERE source = :source AND refused > 0)"
)


async def arrivals_since(connection: AsyncConnection, first: int) -> dict[int, tuple[int, int]]:
    """Return the numbers of accepted and rejected deliveries per minute."""
    rows = await connection.execute(sa.text(ARRIVALS_SINCE), {"first": first})
    return {int(row[0]): (int(row[1]), int(row[2])) for row in rows}


async def last_arrivals(connection: AsyncConnection, source: str) -> tuple[int | None, int | None]:
    """Return a source's last accepted and rejected arrivals, in minutes since 1970."""
    row = (await connection.execute(sa.text(LAST_ARRIVALS), {"source": source})).one()
    return row[0], row[1]


async def refused_naming(
    connection: AsyncConnection, names: Sequence[str], *, looked_at: int, limit: int
) -> list[LogEntry]:
    """Return the latest rejected deliveries whose body contains a name."""
    place_of = sa.func.instr if connection.dialect.name == "sqlite" else sa.func.pg_catalog.position
    body: sa.ColumnElement[Any] = sa.column("body")
    latest = (
        sa.select(*_REFUSED_SHOWN, body)
        .select_from(_REJECTIONS)
        .order_by(_REJECTIONS.c.id.desc())
        .limit(looked_at)
    ).subquery("latest")
    naming = (
        sa.select(*(each for each in latest.c if each.name != "body"))
        .where(sa.or_(*(place_of(latest.c.body, name.encode()) > 0 for name in names)))
        .order_by(latest.c.id.desc())
        .limit(limit)
    )
    rows = await connection.execute(_with_events(naming.subquery("naming")))
    return [_entry(row) for row in rows]


async def find_in_log(connection: AsyncConnection, delivery_id: str) -> LogEntry | None:
    found = sa.union_all(
        _ACCEPTED_HALF.where(_DELIVERIES.c.id == delivery_id),
        _REFUSED_HALF.where(_REJECTIONS.c.id == delivery_id),
    )
    row = (await connection.execute(_with_events(found.subquery("found")))).first()
    return None if row is None else _entry(row)


# Join only rows without a body; otherwise every delivery would be looked up.
_RAW: Final = (
    "SELECT deliveries.id, deliveries.received_at, deliveries.source, deliveries.verdict, "
    "deliveries.event_id, deliveries.digest, deliveries.headers, deliveries.body, "
    "envelopes.body, deliveries.pruned_at, "
    "CASE WHEN deliveries.envelope IS NOT NULL AND envelopes.body IS NULL THEN 1 ELSE 0 END, "
    "{event} FROM deliveries "
    "LEFT JOIN envelopes ON envelopes.digest = deliveries.envelope LEFT JOIN events "
    "ON (deliveries.body IS NULL OR deliveries.envelope IS NOT NULL AND envelopes.body IS NULL) "
    "AND events.event_id = deliveries.event_id "
    "AND events.source = deliveries.source AND events.digest = deliveries.digest "
    "WHERE {which} ORDER BY deliveries.id"
)
_RAW_ONES: Final = statement(
    _RAW,
    event=EVENT_SELECT,
    which="deliveries.digest >= :first AND deliveries.digest < :beyond "
    "AND (deliveries.body IS NOT NULL OR deliveries.verdict <> 'duplicate')",
)
_RAW_ONE: Final = statement(
    _RAW,
    event=EVENT_SELECT,
    which="deliveries.id = :id "
    "AND (deliveries.body IS NOT NULL OR deliveries.verdict <> 'duplicate')",
)


async def raw_delivery(connection: AsyncConnection, delivery_id: str) -> RawDelivery | None:
    """Return one delivery with its bytes, if stored."""
    row = (await connection.execute(sa.text(_RAW_ONE), {"id": delivery_id})).first()
    return None if row is None else _raw(row)


class DigestRange(NamedTuple):
    """Range of body digests, from `first` inclusive to `beyond` exclusive."""

    first: str = ""
    beyond: str = LAST


EVERY_DIGEST: Final = DigestRange()


async def raw_deliveries(
    connection: AsyncConnection, *, at_once: int, digests: DigestRange = EVERY_DIGEST
) -> AsyncIterator[list[RawDelivery]]:
    """Yield the first delivery of each body, by arrival."""
    values = digests._asdict()
    async for rows in _by_arrival(stream(connection, _RAW_ONES, at_once=at_once, values=values)):
        yield [_raw(row) for row in rows]


def _raw(row: Sequence[Any]) -> RawDelivery:
    source_of_event = row[12]
    return RawDelivery(
        delivery_id=row[0],
        received_at=row[1],
        source=row[2],
        verdict=row[3],
        event_id=row[4],
        digest=row[5],
        headers=row[6],
        body=row[7],
        whole=row[8],
        pruned_at=row[9],
        lone=bool(row[10]),
        kept=None if source_of_event is None else delivery_of(row[11:]).event,
    )


async def _by_arrival(
    partitions: AsyncIterator[Rows],
) -> AsyncIterator[Rows]:
    waiting: Rows = []
    async for rows in partitions:
        waiting = sorted([*waiting, *rows], key=lambda row: int(row[1]))
        last = waiting[-1][1] // MILLISECOND
        ready = [row for row in waiting if row[1] // MILLISECOND != last]
        waiting = waiting[len(ready) :]
        if ready:
            yield ready
    if waiting:
        yield waiting
