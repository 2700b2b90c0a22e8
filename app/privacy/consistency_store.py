"""Compares the index and the caches with their sources, for a check that changes nothing.

The index is built a second time, by the code that `reindex` runs, in a scratch database of its own
that holds references and no bodies, and is deleted afterwards. Then the two are compared row by
row.

If several orders contest a reference, the first to arrive decides which order an event or link is
stored under. Histories do not depend on that, so orders of one contest count as equal here.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.engine import scratch_database
from app.database.mapping import EVENT_STORED, RECORD_COLUMNS, RECORD_STORED
from app.database.statements import insert_rows, run, select_in, statement, stream
from app.orders.index_store import drop_index
from app.orders.ledger_store import LEDGER_COLUMNS, WITHOUT_HISTORY
from app.privacy.erase_store import owners
from reconcile.instants import EARLIEST

AT_ONCE: Final = 1_000
"""Rows compared at a time."""

_COMPARED: Final = {
    "event": (
        statement("SELECT {event} FROM events", event=EVENT_STORED),
        statement("SELECT {event} FROM events WHERE event_id IN ({})", event=EVENT_STORED),
    ),
    "link": (
        "SELECT order_key, reference, kind, source FROM links",
        "SELECT order_key, reference, kind, source FROM links WHERE reference IN ({})",
    ),
}
"""Statements that select all rows of the index, and the rows with some ids."""
_LINKED_RECORDS: Final = statement(
    "SELECT {record} FROM records WHERE session IS NOT NULL OR payment IS NOT NULL",
    record=RECORD_STORED,
)
_LEDGERS: Final = statement(
    "SELECT {columns} FROM ledgers WHERE order_key IN ({})", columns=", ".join(LEDGER_COLUMNS)
)

_ROWS: Final = (
    "SELECT (SELECT count(*) FROM deliveries) "
    "- (SELECT count(*) FROM deliveries WHERE verdict = 'duplicate') "
    "+ (SELECT count(*) FROM events) + (SELECT count(*) FROM links) "
    "+ (SELECT count(*) FROM order_due)"
)

Contests = dict[str, frozenset[str]]
"""Maps each contested order to all orders of its contest."""


@asynccontextmanager
async def scratch_index(connection: AsyncConnection) -> AsyncIterator[AsyncConnection]:
    """Create an empty index beside the stored one, with only the links that stored records make."""
    async with scratch_database() as scratch:
        async for rows in stream(connection, _LINKED_RECORDS, at_once=AT_ONCE):
            await run(scratch, insert_rows, table="records", columns=RECORD_COLUMNS, rows=rows)
        await drop_index(scratch, now=EARLIEST)
        yield scratch


async def rows_to_check(connection: AsyncConnection) -> int:
    """Return about how many rows a check reads: bodies, what was read from them, and orders."""
    return int((await connection.execute(text(_ROWS))).scalar_one())


async def differences(
    connection: AsyncConnection, scratch: AsyncConnection, progress: Callable[[int], None]
) -> AsyncIterator[str]:
    """Yield a sentence for each difference between the stored and the rebuilt index. `progress` is
    called with how many stored rows were compared since its last call."""
    built = await _contests(scratch)
    async for sentence in _other_contests(connection, built):
        yield sentence
    for what in _COMPARED:
        comparing = _both_ways(connection, scratch, what, contests=built, progress=progress)
        async for sentence in comparing:
            yield sentence


async def differing_contests(
    connection: AsyncConnection, pairs: Iterable[tuple[str, str]]
) -> AsyncIterator[str]:
    """Yield a sentence for each stored contest that does not follow from the orders. `pairs` has
    the orders that share something, in both directions."""
    async for sentence in _other_contests(connection, _together(pairs)):
        yield sentence


async def _other_contests(connection: AsyncConnection, built: Contests) -> AsyncIterator[str]:
    stored = await _contests(connection)
    for order in sorted(stored.keys() | built.keys()):
        if stored.get(order) != built.get(order):
            yield f"the contested orders of {order} are not what the deliveries give"


async def _both_ways(
    connection: AsyncConnection,
    scratch: AsyncConnection,
    what: str,
    *,
    contests: Contests,
    progress: Callable[[int], None],
) -> AsyncIterator[str]:
    """Yield stored rows that differ, and rebuilt rows that are missing. Rows are (order, … key …,
    rest)."""
    everything, some = _COMPARED[what]
    width = 3
    place = 2 if what == "event" else 1
    async for rows in stream(connection, everything, at_once=AT_ONCE):
        found = await select_in(scratch, sql=some, values={row[place] for row in rows})
        built = {row[1 : 1 + width]: row for row in found}
        for row in rows:
            name = f"the {what} {row[place]} of {row[0] or 'no order'}"
            other = built.get(row[1 : 1 + width])
            if other is None:
                yield f"{name} is in the index, and no delivery gives it"
            elif other[1:] != row[1:] or (
                row[0] != other[0] and other[0] not in contests.get(row[0], ())
            ):
                yield f"{name} is not what its delivery gives"
        progress(len(rows))
    async for rows in stream(scratch, everything, at_once=AT_ONCE):
        found = await select_in(connection, sql=some, values={row[place] for row in rows})
        stored = {row[1 : 1 + width] for row in found}
        for row in rows:
            if row[1 : 1 + width] not in stored:
                yield f"the {what} {row[place]} of {row[0] or 'no order'} is missing in the index"


async def phones_not_noted(connection: AsyncConnection, scratch: AsyncConnection) -> int:
    """Return how many customers' numbers the bodies name and the store lacks; each counts once per
    order. The store may have others, from bodies that were deleted."""
    missing, contests = 0, await _contests(connection)
    noted = text("SELECT digest, kind, thing FROM phones WHERE digest BETWEEN :first AND :last")
    named = "SELECT digest, kind, thing FROM phones ORDER BY digest"
    async for rows in stream(scratch, named, at_once=AT_ONCE):
        ends = {"first": rows[0][0], "last": rows[-1][0]}
        stored = [tuple(row) for row in await connection.execute(noted, ends)]
        left = set(rows) - set(stored)
        if left:
            found = await _customers(connection, stored, contests)
            missing += len(await _customers(connection, left, contests) - found)
    return missing


async def _customers(
    connection: AsyncConnection, notes: Iterable[tuple[Any, ...]], contests: Contests
) -> set[tuple[bytes, str]]:
    """Return (digest, order) of notes on phone numbers. A delivery is replaced by its order, if it
    has one, and an order by the first order of its contest."""
    several = list(notes)
    deliveries = [thing for _, kind, thing in several if kind == "delivery"]
    orders = {each.delivery_id: each.order for each in await owners(connection, deliveries)}
    found = set()
    for digest, _, thing in several:
        order = orders.get(thing) or thing
        found.add((bytes(digest), min(contests.get(order, (order,)))))
    return found


async def _contests(connection: AsyncConnection) -> Contests:
    rows = await connection.execute(text("SELECT order_key, other FROM contested"))
    return _together((row[0], row[1]) for row in rows)


def _together(pairs: Iterable[tuple[str, str]]) -> Contests:
    together: dict[str, set[str]] = {}
    for order, other in pairs:
        joined = {order, other} | together.get(order, set()) | together.get(other, set())
        together |= dict.fromkeys(joined, joined)
    return {order: frozenset(orders) for order, orders in together.items()}


async def lonely_duplicates(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each redelivery of an event that is not in the index."""
    rows = await connection.execute(
        text(
            "SELECT deliveries.id FROM deliveries LEFT JOIN events "
            "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
            "AND events.digest = deliveries.digest WHERE deliveries.verdict = 'duplicate' "
            "AND deliveries.event_id IS NOT NULL AND events.event_id IS NULL"
        )
    )
    return [f"{row[0]} is a redelivery of an event that is not in the index" for row in rows]


async def cached_rows(
    connection: AsyncConnection, orders: Iterable[str]
) -> dict[str, tuple[Any, ...]]:
    """Return the cached rows of these orders, as `ledger_row` makes them."""
    rows = await select_in(connection, sql=_LEDGERS, values=orders)
    return {row[0]: row for row in rows}


async def ledgers_without_history(connection: AsyncConnection) -> AsyncIterator[Sequence[str]]:
    """Yield orders with a cached ledger and no evidence now: it was read differently before."""
    async for rows in stream(connection, WITHOUT_HISTORY, at_once=AT_ONCE):
        yield [row[0] for row in rows]
