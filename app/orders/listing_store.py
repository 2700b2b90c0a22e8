"""Lists of orders for each outcome and each finding, sorted by the orders' last revision.

The publishing transaction updates them, so that the newest orders with a rare finding are found
quickly. `refold --all` builds them again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database import statements
from app.orders.counter_store import OUTCOME, LedgerWords, words_of

LastNumbers = Mapping[str, int]

_COLUMNS: Final = ("word", "seq", "order_key")
_LAST: Final = (
    "SELECT order_key, max(seq) FROM revisions WHERE order_key IN ({}) GROUP BY order_key"
)
_LEAVE: Final = (
    "DELETE FROM order_listings USING unnest(?::text[], ?::bigint[]) AS gone(word, number) "
    "WHERE order_listings.word = gone.word AND seq = gone.number"
)
_KEPT: Final = "SELECT word, count(*) FROM order_listings GROUP BY word"
_ALL: Final = (
    "SELECT ledgers.order_key, outcome, findings, seq FROM ledgers JOIN "
    "(SELECT order_key, max(seq) AS seq FROM revisions GROUP BY order_key) AS latest "
    "ON latest.order_key = ledgers.order_key ORDER BY ledgers.order_key"
)
_STRAY: Final = (
    "SELECT count(*) FROM order_listings WHERE seq <> "
    "(SELECT max(seq) FROM revisions WHERE revisions.order_key = order_listings.order_key)"
)
_PUBLISHED: Final = (
    "SELECT outcome, findings, count(*) FROM ledgers WHERE EXISTS "
    "(SELECT 1 FROM revisions WHERE revisions.order_key = ledgers.order_key) "
    "GROUP BY outcome, findings"
)
_AT_ONCE: Final = 10_000


def last_numbers(connection: statements.PlainConnection, orders: Iterable[str]) -> dict[str, int]:
    """Return the number of the last revision of each order that was ever published. The keys are
    the orders' references."""
    return {row[0]: row[1] for row in statements.select_rows(connection, sql=_LAST, values=orders)}


Listed = tuple[str, int, str]


def lists_of(ledgers: Mapping[str, LedgerWords], numbers: LastNumbers) -> set[Listed]:
    """Return the list entries of these orders: one for the outcome and one for each finding of a
    published ledger."""
    return {
        (word, numbers[order], order)
        for order, words in ledgers.items()
        if order in numbers
        for word in words_of(*words)
    }


def leave_lists(connection: statements.PlainConnection, listed: Collection[Listed]) -> None:
    """Delete these entries from the lists of orders for each outcome and finding."""
    places = [place[:2] for place in sorted(listed)]
    if connection.dialect == "sqlite":
        for place in places:
            connection.ask("DELETE FROM order_listings WHERE word=? AND seq=?", place)
    elif places:
        connection.ask(_LEAVE, [list(column) for column in zip(*places, strict=True)])


def enter_lists(connection: statements.PlainConnection, listed: Collection[Listed]) -> None:
    """Add these entries to the lists of orders for each outcome and finding. Existing entries
    stay."""
    statements.insert_rows(
        connection,
        table="order_listings",
        columns=_COLUMNS,
        rows=sorted(listed),
        conflict="ON CONFLICT (word, seq) DO NOTHING",
    )


async def listed_with(connection: AsyncConnection, outcome: str) -> int:
    """Return the number of published orders with an outcome. The function is meant for rare
    outcomes, because it counts rows."""
    found = await connection.execute(
        text("SELECT count(*) FROM order_listings WHERE word = :word"), {"word": OUTCOME + outcome}
    )
    return int(found.scalar_one())


async def list_anew(connection: AsyncConnection) -> None:
    """Rebuild the lists of orders for each outcome and finding from the cached ledgers."""
    await connection.execute(text("DELETE FROM order_listings"))
    async for rows in statements.stream(connection, _ALL, at_once=_AT_ONCE):
        ledgers = {row[0]: (row[1], row[2]) for row in rows}
        listed = lists_of(ledgers, {row[0]: row[3] for row in rows})
        await statements.run(connection, enter_lists, listed)


async def stored_counts(connection: AsyncConnection) -> Counter[str]:
    """Return the number of orders in each list. The keys are the lists' names."""
    rows = await connection.execute(text(_KEPT))
    return Counter({row[0]: int(row[1]) for row in rows})


async def full_counts(connection: AsyncConnection) -> Counter[str]:
    """Return the number of published ledgers that belong in each list. The keys are the lists'
    names."""
    full = Counter[str]()
    for outcome, findings, count in await connection.execute(text(_PUBLISHED)):
        for word in words_of(outcome, findings):
            full[word] += int(count)
    return full


async def count_strays(connection: AsyncConnection) -> int:
    """Return the number of list entries whose revision is not the last revision of their order."""
    return int((await connection.execute(text(_STRAY))).scalar_one())
