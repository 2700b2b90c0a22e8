"""Due marks: the time of each order's next fold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, insert_rows, run, select_rows
from reconcile.instants import Instant
from reconcile.matching.books import match_key

NEXT_DUE: Final = "SELECT min(due_at) FROM order_due WHERE due_at IS NOT NULL"
"""SQL for the earliest due time of an order."""

_RIGHT_MARKS = (
    "INSERT INTO order_due (order_key, due_at, generation) "
    "SELECT ledgers.order_key, ledgers.next_decision_at, coalesce(order_due.generation, 0) "
    "FROM ledgers LEFT JOIN order_due ON order_due.order_key = ledgers.order_key "
    "WHERE ledgers.order_key BETWEEN ? AND ? AND (order_due.order_key IS NULL "
    "OR coalesce(order_due.due_at, -1) <> coalesce(ledgers.next_decision_at, -1)) "
    "ON CONFLICT (order_key) DO UPDATE SET due_at=excluded.due_at"
)


@lru_cache(maxsize=4_096)
def backwards(reference: str) -> str:
    """Return a reference normalized and reversed, for suffix searches."""
    return match_key(reference)[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Due mark of an order. `generation` grows with the evidence."""

    order: str
    generation: int
    due_at: Instant | None = None


def due_orders(connection: PlainConnection, *, now: Instant, limit: int) -> list[Due]:
    """Return orders due at `now`, the longest waiting first."""
    rows = connection.ask(
        "SELECT order_key, generation, due_at FROM order_due "
        "WHERE due_at <= ? ORDER BY due_at LIMIT ?",
        (now, limit),
    )
    return [Due(order=row[0], generation=row[1], due_at=row[2]) for row in rows]


async def claim_orders(
    connection: AsyncConnection, *, now: Instant, limit: int, until: Instant
) -> list[Due]:
    """Claim due orders for a fold, and return their marks."""
    rows = await connection.execute(
        text(
            # Materialized: joined as a subquery it may be run again for each row, and each time
            # it passes over those that it has locked and takes the next.
            "WITH taken AS MATERIALIZED (SELECT order_key FROM order_due "
            "WHERE due_at <= :now ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED) "
            "UPDATE order_due SET due_at=:until FROM taken "
            "WHERE order_due.order_key = taken.order_key "
            "RETURNING order_due.order_key, generation, order_due.due_at"
        ),
        {"now": now, "limit": limit, "until": until},
    )
    return [Due(order=row[0], generation=row[1], due_at=row[2]) for row in rows]


async def marks_of(
    connection: AsyncConnection, orders: Iterable[str], *, to_write: bool = False
) -> list[Due]:
    """Return these orders' due marks, locked with `to_write`."""
    return await run(connection, marks_in, orders, to_write=to_write)


def marks_in(
    connection: PlainConnection, orders: Iterable[str], *, to_write: bool = False
) -> list[Due]:
    """Return these orders' due marks, locked with `to_write`."""
    sql = "SELECT order_key, generation, due_at FROM order_due WHERE order_key IN ({})"
    if to_write and connection.dialect != "sqlite":
        sql += " ORDER BY order_key FOR UPDATE"
    rows = select_rows(connection, sql=sql, values=orders)
    return [Due(order=row[0], generation=row[1], due_at=row[2]) for row in rows]


def unchanged(connection: PlainConnection, marks: Sequence[Due]) -> list[Due]:
    """Return the due marks that are still unchanged."""
    standing = set(marks_in(connection, [mark.order for mark in marks], to_write=True))
    return [mark for mark in marks if mark in standing]


def next_due(connection: PlainConnection) -> Instant | None:
    """Return the time of the next due fold, if any."""
    return cast(Instant | None, connection.ask(NEXT_DUE)[0][0])


async def count_due(connection: AsyncConnection, *, now: Instant, enough: int) -> int:
    """Return the number of due orders, at most `enough`."""
    row = await connection.execute(
        text(
            "SELECT count(*) FROM (SELECT 1 FROM order_due WHERE due_at <= :now LIMIT :enough) "
            "AS found"
        ),
        {"now": now, "enough": enough},
    )
    return int(row.scalar_one())


async def count_marks(connection: AsyncConnection) -> int:
    """Return how many orders have a due mark. Every order with evidence has one."""
    return int((await connection.execute(text("SELECT count(*) FROM order_due"))).scalar_one())


def put_marks_right(connection: PlainConnection, *, first: str, last: str) -> None:
    """Correct the due marks of a range of orders.

    No other process may use the database.
    """
    connection.ask(_RIGHT_MARKS, (first, last))
    made = connection.ask(
        "SELECT order_key FROM order_due WHERE backwards IS NULL AND order_key BETWEEN ? AND ?",
        (first, last),
    )
    for (order,) in made:
        connection.ask(
            "UPDATE order_due SET backwards=? WHERE order_key=?", (backwards(order), order)
        )


async def marks_without_reason(
    connection: AsyncConnection, *, beyond: Instant, limit: int
) -> list[str]:
    """Return up to `limit` orders due later than `beyond` for no known reason."""
    rows = await connection.execute(
        text(
            "SELECT order_due.order_key FROM order_due LEFT JOIN ledgers "
            "ON ledgers.order_key = order_due.order_key WHERE order_due.due_at > :beyond AND "
            "coalesce(ledgers.next_decision_at, -1) <> order_due.due_at LIMIT :limit"
        ),
        {"beyond": beyond, "limit": limit},
    )
    return [row[0] for row in rows]


async def call_up(
    connection: AsyncConnection, orders: Sequence[str], *, now: Instant, beyond: Instant
) -> None:
    """Make these orders due now, unless due by `beyond`."""
    marks = [
        (mark.order, now, mark.generation)
        for mark in await marks_of(connection, orders, to_write=True)
        if mark.due_at is not None and mark.due_at > beyond
    ]
    if marks:
        await run(connection, settle_marks, marks)


async def mark_all_due(connection: AsyncConnection, *, now: Instant) -> None:
    """Make every order that has a due mark due for a fold at `now`."""
    await connection.execute(
        text("UPDATE order_due SET due_at=:now, generation=generation+1"), {"now": now}
    )


Mark = tuple[str, Instant | None, int]
"""Due mark of a folded order: reference, time, generation."""


def settle_marks(connection: PlainConnection, marks: Sequence[Mark]) -> None:
    """Store folded orders' next due times, except after new evidence."""
    insert_rows(
        connection,
        table="order_due",
        columns=("order_key", "due_at", "generation", "backwards"),
        rows=[(*mark, backwards(mark[0])) for mark in marks],
        conflict="ON CONFLICT (order_key) DO UPDATE SET due_at=excluded.due_at "
        "WHERE order_due.generation=excluded.generation",
    )
