"""Delivery log: deliveries and rejections, listed and shown."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    TextClause,
    cast,
    column,
    func,
    null,
    or_,
    select,
    table,
    text,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import EVENT_SELECT, delivery_of
from app.database.statements import Rows, statement, stream
from reconcile.instants import MILLISECOND, Instant
from reconcile.ledger.events import Event

_SHOWN: Final[dict[str, ColumnElement[Any]]] = {
    name: column(name)
    for name in ("id", "received_at", "source", "verdict", "digest", "size", "problem", "headers")
}
_REFUSED_SHOWN: Final = (
    *_SHOWN.values(),
    null().label("event_id"),
    cast(null(), BigInteger).label("pruned_at"),
)
_REJECTIONS: Final = table("rejections")

_ACCEPTED_HALF: Final = select(
    *_SHOWN.values(), column("event_id"), column("pruned_at")
).select_from(table("deliveries"))
_REFUSED_HALF: Final = select(*_REFUSED_SHOWN).select_from(_REJECTIONS)
"""Rows of one shape, for `_entry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One arrival as the receiver judged it. Never its body."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDelivery:
    """A stored delivery's own bytes, to be read again.

    body   None where it was pruned; `kept` is then the event that was read from it
    whole  of one of several events in one request: the whole body
    lone   whether that is gone, and only the event's own bytes are left; `kept` is there then, too,
           if they could be read
    """

    delivery_id: str
    received_at: Instant
    source: str
    verdict: str
    event_id: str | None
    digest: str
    headers: str
    body: bytes | None
    whole: bytes | None
    pruned_at: Instant | None
    kept: Event | None
    lone: bool = False


def _entry(row: Sequence[Any]) -> LogEntry:
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
    )


_ACCEPTED: Final = ("stored", "duplicate", "duplicate_with_different_body", "unreadable")
"""Verdicts of the half that was accepted."""

_UNUSUAL: Final = text("verdict <> 'stored'")
"""As in the text of the index that holds these alone: see `ix_deliveries_verdict`."""


async def list_log(
    connection: AsyncConnection,
    *,
    verdict: str | None,
    limit: int,
    before: str | None = None,
    source: str | None = None,
    refused: bool = True,
) -> list[LogEntry]:
    """The latest arrivals, newest first, of all verdicts and sources or of one; those before an id.
    refused: whether those that were refused are among them.

    Each half is cut by itself: a database that sorts both whole reads every arrival there is. A
    verdict stands in one of them alone.
    """
    conditions: list[ColumnElement[bool] | TextClause] = []
    if verdict is not None:
        conditions.append(_SHOWN["verdict"] == verdict)
        if verdict != "stored":
            conditions.append(_UNUSUAL)
    if source is not None:
        conditions.append(_SHOWN["source"] == source)
    if before is not None:
        conditions.append(_SHOWN["id"] < before)
    accepted = verdict is None or verdict in _ACCEPTED
    wanted = [_ACCEPTED_HALF] if accepted else []
    wanted += [_REFUSED_HALF] if refused and (verdict is None or not accepted) else []
    if not wanted:
        return []
    halves = [half.where(*conditions).order_by(_SHOWN["id"].desc()).limit(limit) for half in wanted]
    log = union_all(*(select(half.subquery()) for half in halves)).subquery("delivery_log")
    rows = await connection.execute(select(log).order_by(log.c.id.desc()).limit(limit))
    return [_entry(row) for row in rows]


async def newest_arrival(connection: AsyncConnection) -> str:
    """The id of the latest arrival, refused or not; empty where there is none."""
    rows = await connection.execute(
        text("SELECT max(id) FROM (SELECT max(id) AS id FROM deliveries UNION ALL "
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
    """How many arrivals were taken and refused in each minute since 1970, from one on; none where
    nothing came."""
    rows = await connection.execute(text(ARRIVALS_SINCE), {"first": first})
    return {int(row[0]): (int(row[1]), int(row[2])) for row in rows}


async def last_arrivals(connection: AsyncConnection, source: str) -> tuple[int | None, int | None]:
    """The minute in which a delivery of a source was last taken, and that in which one was last
    refused; None where none is counted."""
    row = (await connection.execute(text(LAST_ARRIVALS), {"source": source})).one()
    return row[0], row[1]


async def refused_naming(
    connection: AsyncConnection, names: Sequence[str], *, looked_at: int, limit: int
) -> list[LogEntry]:
    """Of the latest refused arrivals those whose body has one of these texts in it."""
    place_of = func.instr if connection.dialect.name == "sqlite" else func.pg_catalog.position
    body: ColumnElement[Any] = column("body")
    latest = (
        select(*_SHOWN.values(), body)
        .select_from(_REJECTIONS)
        .order_by(_SHOWN["id"].desc())
        .limit(looked_at)
    ).subquery("latest")
    naming = select(*_REFUSED_SHOWN).select_from(latest).order_by(_SHOWN["id"].desc()).limit(limit)
    rows = await connection.execute(
        naming.where(or_(*(place_of(body, name.encode()) > 0 for name in names)))
    )
    return [_entry(row) for row in rows]


async def find_in_log(connection: AsyncConnection, delivery_id: str) -> LogEntry | None:
    """One arrival by its id."""
    halves = (half.where(_SHOWN["id"] == delivery_id) for half in (_ACCEPTED_HALF, _REFUSED_HALF))
    row = (await connection.execute(union_all(*halves))).first()
    return None if row is None else _entry(row)


# The join only where there is no body, or it would look up every delivery there is.
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
    which="deliveries.body IS NOT NULL OR deliveries.verdict <> 'duplicate'",
)
_RAW_ONE: Final = statement(
    _RAW,
    event=EVENT_SELECT,
    which="deliveries.id = :id "
    "AND (deliveries.body IS NOT NULL OR deliveries.verdict <> 'duplicate')",
)


async def raw_delivery(connection: AsyncConnection, delivery_id: str) -> RawDelivery | None:
    """One delivery with its own bytes; None where there is none, or another holds its body."""
    row = (await connection.execute(text(_RAW_ONE), {"id": delivery_id})).first()
    return None if row is None else _raw(row)


async def raw_deliveries(
    connection: AsyncConnection, *, at_once: int
) -> AsyncIterator[list[RawDelivery]]:
    """Every delivery that first brought its body, by arrival, about `at_once` at a time."""
    async for rows in _by_arrival(stream(connection, _RAW_ONES, at_once=at_once)):
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
    """Rows that come by id, put in the order of arrival: an id gives the millisecond and no more.

    The rows of a partition's last millisecond wait for the next, which may bring more of them.
    """
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
