"""Holds that stand: for an order and a reason, `held` was recorded after any `released`.

The rows are `records` like any other; the fold says what a hold means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import LATER_AT, RECORD_AT
from app.database.statements import select_in, statement
from reconcile.instants import Instant
from reconcile.ledger.records import HoldReason

_STANDING: Final = statement(
    "records.kind IN ('held', 'released') AND records.kind = 'held' AND NOT EXISTS "
    "(SELECT 1 FROM records AS later "
    "WHERE later.kind IN ('held', 'released') AND later.order_key = records.order_key "
    "AND later.reason = records.reason AND ({later} > {this} "
    "OR ({later} = {this} AND later.id > records.id)))",
    later=LATER_AT,
    this=RECORD_AT,
)
"""Condition on a record: it is the last on its reason, and says `held`. Both kinds are named as in
the text of their index `ix_records_holds`, or SQLite would go through all records."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One order that is held, for one reason, since an instant."""

    order: str
    reason: HoldReason
    since: Instant


async def holds_of(connection: AsyncConnection, orders: Iterable[str]) -> list[Hold]:
    """Return the holds of these orders that stand."""
    return [_hold(row) for row in await select_in(connection, sql=_OF_ORDERS, values=orders)]


async def some_holds(
    connection: AsyncConnection, *, reason: HoldReason, after: str, limit: int
) -> list[Hold]:
    """Return holds of one reason that stand, in key order, after a key."""
    rows = await connection.execute(text(_SOME), {"reason": reason, "after": after, "limit": limit})
    return [_hold(row) for row in rows]


async def count_held(connection: AsyncConnection) -> int:
    """Return how many orders are held, for any reason."""
    return int((await connection.execute(text(_COUNT))).scalar_one())


def _hold(row: Sequence[Any]) -> Hold:
    return Hold(order=row[0], reason=row[1], since=row[2])
