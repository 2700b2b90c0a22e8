"""Holds that are in force: an order's latest `held` or `released` record with a reason is `held`.

The fold decides what a hold means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import LATER_AT, RECORD_AT
from app.database.statements import select_in, statement
from reconcile.instants import Instant
from reconcile.ledger.events import Event
from reconcile.ledger.history import History
from reconcile.ledger.records import HoldReason, Record, RecordKind

_STANDING: Final = statement(
    "records.kind IN ('held', 'released') AND records.kind = 'held' AND NOT EXISTS "
    "(SELECT 1 FROM records AS later "
    "WHERE later.kind IN ('held', 'released') AND later.order_key = records.order_key "
    "AND later.reason = records.reason AND ({later} > {this} "
    "OR ({later} = {this} AND later.id > records.id)))",
    later=LATER_AT,
    this=RECORD_AT,
)
"""SQL condition for a `held` record whose hold is in force, naming both kinds for the index."""

_OF_ORDERS: Final = statement(
    "SELECT order_key, reason, {at} FROM records WHERE {standing} AND order_key IN ({})",
    at=RECORD_AT,
    standing=_STANDING,
)

_SOME: Final = statement(
    "SELECT order_key, reason, {at} FROM records "
    "WHERE {standing} AND reason = :reason AND order_key > :after "
    "ORDER BY order_key LIMIT :limit",
    at=RECORD_AT,
    standing=_STANDING,
)

_COUNT: Final = statement(
    "SELECT count(DISTINCT order_key) FROM records WHERE {standing}", standing=_STANDING
)

_COUNT_FOR: Final = statement(
    "{count} AND reason = :reason AND recorded_at >= :since AND recorded_at < :until", count=_COUNT
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Hold that is in force: one order is held for one reason since an instant."""

    order: str
    reason: HoldReason
    since: Instant


class HoldChange(NamedTuple):
    """New hold of an order, or the release of one, which must be recorded."""

    kind: RecordKind
    reason: HoldReason
    at: Instant
    """Earliest instant that the new record can have."""
    ask: tuple[Event, ...] = ()
    """Events of payments whose present state the provider must be asked for."""


def last_word(history: History, reason: HoldReason) -> Record | None:
    """Return the latest record that holds the order for this reason or releases it. Return None if
    there is no such record."""
    words = [r for r in history.records if r.kind in ("held", "released") and r.reason == reason]
    return max(words, key=lambda r: (r.recorded_at, r.record_id), default=None)


def stands(history: History, reason: HoldReason) -> bool:
    """Return whether the order is still held for this reason."""
    last = last_word(history, reason)
    return last is not None and last.kind == "held"


async def holds_of(connection: AsyncConnection, orders: Iterable[str]) -> list[Hold]:
    """Return the holds of these orders that are in force."""
    return [_hold(row) for row in await select_in(connection, sql=_OF_ORDERS, values=orders)]


async def some_holds(
    connection: AsyncConnection, *, reason: HoldReason, after: str, limit: int
) -> list[Hold]:
    """Return up to `limit` holds that are in force for a reason, sorted by order.

    after  reference after which the orders begin
    """
    rows = await connection.execute(text(_SOME), {"reason": reason, "after": after, "limit": limit})
    return [_hold(row) for row in rows]


async def count_held(connection: AsyncConnection) -> int:
    """Return the number of orders that are held for any reason."""
    return int((await connection.execute(text(_COUNT))).scalar_one())


async def count_held_for(
    connection: AsyncConnection, reason: HoldReason, *, since: Instant, until: Instant
) -> int:
    """Return the number of orders still held for this reason since `since`, before `until`."""
    values = {"reason": reason, "since": since, "until": until}
    return int((await connection.execute(text(_COUNT_FOR), values)).scalar_one())


def _hold(row: Sequence[Any]) -> Hold:
    return Hold(order=row[0], reason=row[1], since=row[2])
