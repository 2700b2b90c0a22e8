"""Compare derived rows with newly built rows, without any change."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import compress
from operator import ne
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.text import counted
from app.database.engine import scratch_database
from app.database.mapping import EVENT_COLUMNS, RECORD_COLUMNS, RECORD_STORED
from app.database.statements import Rows, insert_rows, run, select_in, statement, stream
from app.finance import ledger_line_store
from app.orders import counter_store, listing_store
from app.orders.index_store import Reread, drop_index
from app.orders.ledger_store import LEDGER_COLUMNS, WITHOUT_HISTORY
from app.privacy.erase_store import owners
from app.receiving.correlation_store import keys_of
from app.receiving.delivery_log_store import DigestRange
from reconcile.instants import EARLIEST

AT_ONCE: Final = 1_000
"""Number of rows that are compared at a time."""


class Derived(NamedTuple):
    """Kind of rows that are computed from other data. The name has placeholders for columns."""

    name: str
    columns: Sequence[str]
    key: slice
    basis: str
    mend: str = ""

    def compare(self, stored: Iterable[Sequence[Any]], built: Iterable[Sequence[Any]]) -> list[str]:
        """Return a sentence for each difference between the rows."""
        there = {row[self.key]: row for row in stored}
        wanted = {row[self.key]: row for row in built}
        if there == wanted:
            return []
        found = []
        for key, row in there.items():
            other = wanted.get(key)
            if other is None:
                found.append(self._sentence(row, f"has no source in {self.basis}"))
            elif other != row:
                names = ", ".join(compress(self.columns, map(ne, row, other)))
                found.append(self._sentence(row, f"differs from {self.basis}: {names}"))
        missing = (row for key, row in wanted.items() if key not in there)
        return found + [self._sentence(row, "is missing") for row in missing]

    def _sentence(self, row: Sequence[Any], verdict: str) -> str:
        return f"{self.name.format(row[0] or 'no order', *row[1:])} {verdict}{self.mend}"


# --- the index -----------------------------------------------------------------------------------


class IndexTable(NamedTuple):
    """Table of the index."""

    table: str
    place: int
    rows: Derived

    def select(self, which: str) -> str:
        """Return SQL for the rows that meet a condition."""
        columns = ", ".join(self.rows.columns)
        return statement(_SELECT, columns=columns, table=self.table, which=which)

    async def same(self, connection: AsyncConnection, rows: Rows) -> Rows:
        """Return the rows of this database that have the keys of the given rows."""
        found = statement("{column} IN ({})", column=self.rows.columns[self.place])
        values = {row[self.place] for row in rows}
        keys = {row[self.rows.key] for row in rows}
        same = await select_in(connection, sql=self.select(found), values=values)
        return [row for row in same if row[self.rows.key] in keys]


_SELECT: Final = "SELECT {columns} FROM {table} WHERE {which}"
_WITHIN: Final = "digest >= :first AND digest < :beyond"
_ORDERS: Final = statement(
    "SELECT DISTINCT order_key FROM events WHERE {within} AND order_key IS NOT NULL",
    within=_WITHIN,
)

_EVENTS: Final = IndexTable(
    "events", 2, Derived("the event {2} of {0}", EVENT_COLUMNS, slice(1, 4), "its delivery")
)
_LINK_COLUMNS: Final = ("order_key", "reference", "kind", "source")
_LINKS: Final = IndexTable(
    "links", 1, Derived("the link {1} of {0}", _LINK_COLUMNS, slice(1, 4), "a delivery")
)
_CONTESTS: Final = Derived("the contest of {}", ("order_key", "other"), slice(1), "the index")

_ALL_CONTESTED: Final = "SELECT order_key, other FROM contested"
_LINKED_RECORDS: Final = statement(
    "SELECT {record} FROM records WHERE session IS NOT NULL OR payment IS NOT NULL",
    record=RECORD_STORED,
)

Contests = dict[str, frozenset[str]]
"""Whole group of contesting orders for each order."""


@asynccontextmanager
async def scratch_index(
    connection: AsyncConnection, *, sampled: bool
) -> AsyncIterator[AsyncConnection]:
    """Yield a temporary database with an empty index."""
    async with scratch_database() as scratch:
        if sampled:
            await _copy(connection, scratch, "contested", ("order_key", "other"), _ALL_CONTESTED)
        else:
            await _copy(connection, scratch, "records", RECORD_COLUMNS, _LINKED_RECORDS)
            await drop_index(scratch, now=EARLIEST)
        yield scratch


async def _copy(
    connection: AsyncConnection,
    scratch: AsyncConnection,
    table: str,
    columns: tuple[str, ...],
    sql: str,
) -> None:
    async for rows in stream(connection, sql, at_once=AT_ONCE):
        await run(scratch, insert_rows, table=table, columns=columns, rows=rows)


async def copy_links(
    connection: AsyncConnection, scratch: AsyncConnection, rereads: Iterable[Reread]
) -> None:
    """Copy the stored links of the references in these events."""
    keys = {key for each in rereads if each.event is not None for key in keys_of(each.event)}
    sql = _LINKS.select("reference IN ({})")
    rows = await select_in(connection, sql=sql, values={reference for reference, _, _ in keys})
    await run(
        scratch,
        insert_rows,
        table="links",
        columns=_LINK_COLUMNS,
        rows=rows,
        conflict="ON CONFLICT DO NOTHING",
    )


async def rows_to_check(connection: AsyncConnection) -> int:
    """Return the approximate number of rows that a check reads."""
    return int((await connection.execute(text(_ROWS))).scalar_one())


_ROWS: Final = (
    "SELECT (SELECT count(*) FROM deliveries) "
    "- (SELECT count(*) FROM deliveries WHERE verdict = 'duplicate') "
    "+ (SELECT count(*) FROM events) + (SELECT count(*) FROM links) "
    "+ (SELECT count(*) FROM order_due)"
)


async def differences(
    connection: AsyncConnection,
    scratch: AsyncConnection,
    progress: Callable[[int], None],
    *,
    digests: DigestRange | None,
) -> AsyncIterator[Sequence[str]]:
    """Yield sentences on differences between stored and rebuilt index."""
    stored, contests = await _contests(connection), await _contests(scratch)
    yield _CONTESTS.compare(stored.items(), contests.items())
    for index in (_EVENTS, _LINKS):
        which, values = "1 = 1", dict[str, str]()
        if digests is not None:
            which = _WITHIN if index is _EVENTS else "1 = 0"
            values = digests._asdict() if index is _EVENTS else {}
        async for rows in stream(connection, index.select(which), at_once=AT_ONCE, values=values):
            built = await index.same(scratch, rows)
            yield index.rows.compare(rows, _as_stored(index.rows.key, rows, built, contests))
            progress(len(rows))
        async for rows in stream(scratch, index.select("1 = 1"), at_once=AT_ONCE):
            there = {row[index.rows.key] for row in await index.same(connection, rows)}
            yield index.rows.compare([], [row for row in rows if row[index.rows.key] not in there])


def _as_stored(key: slice, stored: Rows, built: Rows, contests: Contests) -> Rows:
    orders = {row[key]: row[0] for row in stored}
    return [
        (orders[row[key]], *row[1:]) if row[0] in contests.get(orders[row[key]], ()) else row
        for row in built
    ]


async def orders_of(connection: AsyncConnection, digests: DigestRange) -> list[str]:
    """Return the orders of the stored events in a sample."""
    return list(await connection.scalars(text(_ORDERS), digests._asdict()))


async def phones_not_noted(connection: AsyncConnection, scratch: AsyncConnection) -> int:
    """Return the number of customers' phone numbers missing from the store."""
    missing, contests = 0, await _contests(connection)
    noted = "SELECT digest, kind, thing FROM phones WHERE digest IN ({})"
    named = "SELECT digest, kind, thing FROM phones ORDER BY digest"
    async for rows in stream(scratch, named, at_once=AT_ONCE):
        stored = await select_in(connection, sql=noted, values={row[0] for row in rows})
        left = set(rows) - set(stored)
        if left:
            found = await _customers(connection, stored, contests)
            missing += len(await _customers(connection, left, contests) - found)
    return missing


async def _customers(
    connection: AsyncConnection, notes: Iterable[tuple[Any, ...]], contests: Contests
) -> set[tuple[bytes, str]]:
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


# --- orders --------------------------------------------------------------------------------------

LEDGERS: Final = Derived(
    "the ledger of {}", (LEDGER_COLUMNS[0], *LEDGER_COLUMNS[2:]), slice(1), "its history"
)
"""Comparison of cached ledgers without their `as_of`."""
PUBLISHED: Final = Derived(
    "the latest published outcome of {}",
    ("order_key", "outcome", "fulfillable", "substance"),
    slice(1),
    "its history",
)
MARKS: Final = Derived(
    "the time at which {} is due", ("order_key", "due_at"), slice(1), "its history"
)
LEDGER_LINES: Final = Derived(
    "the ledger line of {1}", ledger_line_store.COLUMNS, slice(1, 2), "its history"
)
VERDICTS: Final = Derived("the verdict of {}", ("id", "verdict", "event_id"), slice(1), "its body")

_MEND: Final = "; `tallyhook refold --all` corrects it"
_COUNTERS: Final = Derived(
    "the counter of orders with the {}", ("name", "value"), slice(1), "a full count", _MEND
)
_LISTS: Final = Derived(
    "the list of orders with the {}", ("word", "length"), slice(1), "a full count", _MEND
)


async def differing_counts(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each wrong counter or list."""
    found = _COUNTERS.compare(
        (await counter_store.stored_counts(connection)).items(),
        (await counter_store.full_counts(connection)).items(),
    )
    found += _LISTS.compare(
        (await listing_store.stored_counts(connection)).items(),
        (await listing_store.full_counts(connection)).items(),
    )
    strays = await listing_store.count_strays(connection)
    if strays:
        found.append(
            f"{counted(strays, 'order is', 'orders are')} listed by an outdated revision; "
            "`tallyhook refold --all` corrects the lists"
        )
    return found


async def lonely_duplicates(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each redelivery whose event is not in the index."""
    rows = await connection.execute(
        text(
            "SELECT deliveries.id FROM deliveries LEFT JOIN events "
            "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
            "AND events.digest = deliveries.digest WHERE deliveries.verdict = 'duplicate' "
            "AND deliveries.event_id IS NOT NULL AND events.event_id IS NULL"
        )
    )
    return [f"{row[0]} is a redelivery of an event that is not in the index" for row in rows]


_LEDGERS: Final = statement(
    "SELECT {columns} FROM ledgers WHERE order_key IN ({})", columns=", ".join(LEDGERS.columns)
)


async def cached_rows(
    connection: AsyncConnection, orders: Iterable[str]
) -> dict[str, tuple[Any, ...]]:
    """Return these orders' cached ledger rows, by order."""
    rows = await select_in(connection, sql=_LEDGERS, values=orders)
    return {row[0]: row for row in rows}


async def ledgers_without_history(connection: AsyncConnection) -> list[str]:
    """Return the orders that have a cached ledger but no evidence now."""
    return list(await connection.scalars(text(WITHOUT_HISTORY)))
