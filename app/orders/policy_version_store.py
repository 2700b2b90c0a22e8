"""Rows of the policy, by which ledgers are computed, and of other changes that make many orders
due.

The policy is one row of `meta`:

    v1 {…}       every order was folded by this policy, or is due
    to v1 {…}    orders are being set due for this policy; after an interruption, this starts over
    several      a process has folded some orders by another policy
    (no row)     the policy is unknown: a new database, or an interrupted rebuild
"""

import hashlib
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, statement
from reconcile.instants import Instant

_SEVERAL: Final = "several"

_NOTE: Final = (
    "INSERT INTO meta (name, value) VALUES ('policy', :value) "
    "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
)

_SOME: Final = (
    "SELECT order_key FROM order_due WHERE order_key > :after ORDER BY order_key LIMIT :limit"
)

_SOME_WITH_MONEY: Final = (
    "SELECT order_key FROM order_due WHERE order_key > :after AND order_key <= :last "
    "AND EXISTS (SELECT 1 FROM ledgers WHERE ledgers.order_key = order_due.order_key AND outcome "
    "IN ('succeeded', 'partially_refunded', 'disputed', 'charged_back', 'unresolved')) "
    "ORDER BY order_key"
)
"""SQL for orders that have received money, as their cached ledgers state. Orders without a cached
ledger are due anyway."""

_SET_DUE: Final = (
    "UPDATE order_due SET generation=generation+1, "
    "due_at=CASE WHEN due_at <= :now THEN due_at ELSE :now END "
)


def _setting_due(some: str) -> dict[str, str]:
    return {
        "sqlite": statement(
            "{set_due} WHERE order_key IN ({some}) RETURNING order_key",
            set_due=_SET_DUE,
            some=some,
        ),
        "postgresql": statement(
            # Marks are locked in key order, as everywhere.
            "WITH taken AS MATERIALIZED ({some} FOR UPDATE) {set_due} "
            "FROM taken WHERE order_due.order_key = taken.order_key RETURNING order_due.order_key",
            set_due=_SET_DUE,
            some=some,
        ),
    }


_SET_SOME_DUE: Final = _setting_due(_SOME)
_SET_MONEY_DUE: Final = _setting_due(_SOME_WITH_MONEY)


def rules_of(policy: str) -> str:
    """Return the short name of a policy's rules: the engine's version and a digest of the policy.

    It is stored with each order, so its rules are known even after an interrupted upgrade.
    """
    return f"{engine_form(policy)}-{hashlib.sha256(policy.encode()).hexdigest()[:12]}"


def engine_form(noted: str) -> str:
    """Return the engine's version that a stored policy names, such as `v2`. Return an empty text if
    it names none."""
    return next((word for word in noted.split(" ") if word.startswith("v")), "")


async def noted_policy(connection: AsyncConnection) -> str | None:
    """Return the stored policy's text. Return None if nothing is stored."""
    row = await connection.execute(text("SELECT value FROM meta WHERE name='policy'"))
    noted: str | None = row.scalar_one_or_none()
    return noted


async def anything_folded(connection: AsyncConnection) -> bool:
    """Return whether any order's ledger was ever computed."""
    found = await connection.execute(
        text("SELECT EXISTS (SELECT 1 FROM revisions) OR EXISTS (SELECT 1 FROM takings)")
    )
    return bool(found.scalar_one())


async def note_policy(connection: AsyncConnection, policy: str) -> None:
    """Store the present policy. The caller states that every order was folded by this policy, or is
    due."""
    await connection.execute(text(_NOTE), {"value": policy})


async def note_change(connection: AsyncConnection, policy: str) -> None:
    """Record that a change to this policy has begun, so that orders are being marked as due."""
    await connection.execute(text(_NOTE), {"value": _to(policy)})


async def note_changed(connection: AsyncConnection, policy: str) -> bool:
    """Record that every order is now marked as due for this policy. Return False if another policy
    was stored in the meantime."""
    done = await connection.execute(
        text("UPDATE meta SET value=:own WHERE name='policy' AND value IN (:own, :to_own)"),
        {"own": policy, "to_own": _to(policy)},
    )
    return bool(done.rowcount)


def note_folded(connection: PlainConnection, policy: str) -> bool:
    """Record that some orders were folded by this policy. Return whether another policy was stored
    before."""
    noted = connection.ask(
        "UPDATE meta SET value=? WHERE name='policy' AND value NOT IN (?, ?, ?) RETURNING name",
        (_SEVERAL, _SEVERAL, policy, _to(policy)),
    )
    return bool(noted)


async def forget_policy(connection: AsyncConnection) -> None:
    """Delete the stored policy, so that the rules behind existing ledgers count as unknown."""
    await connection.execute(text("DELETE FROM meta WHERE name='policy'"))


async def set_some_due(
    connection: AsyncConnection, *, after: str, limit: int, now: Instant
) -> list[str]:
    """Mark up to `limit` orders as due, and return their references, sorted.

    after  reference after which the orders begin

    A running fold of one of these orders is discarded.
    """
    sql = _SET_SOME_DUE[connection.dialect.name]
    found = await connection.execute(text(sql), {"after": after, "limit": limit, "now": now})
    return [row[0] for row in found]


def _to(policy: str) -> str:
    return f"to {policy}"


async def required_since(connection: AsyncConnection) -> Instant | None:
    """Return the instant since which orders need a price from the shop. Return None if no instant
    is stored."""
    row = await connection.execute(
        text("SELECT value FROM meta WHERE name='order_record_required_since'")
    )
    noted = row.scalar_one_or_none()
    return None if noted is None else Instant(noted)


async def note_required(connection: AsyncConnection, *, now: Instant) -> None:
    """Store `now` as the instant since which orders need a price from the shop. An instant that is
    already stored stays."""
    await connection.execute(
        text(
            "INSERT INTO meta (name, value) VALUES ('order_record_required_since', :now) "
            "ON CONFLICT (name) DO NOTHING"
        ),
        {"now": str(now)},
    )


async def forget_required(connection: AsyncConnection) -> None:
    """Delete the time from which orders needed a price from the shop, because the setting is off
    now."""
    await connection.execute(text("DELETE FROM meta WHERE name='order_record_required_since'"))


async def gaps_to_follow(connection: AsyncConnection) -> int | None:
    """Return the number of accepted gaps if it has grown since orders were last marked, or None."""
    gaps = int(await connection.scalar(text("SELECT count(*) FROM gaps")) or 0)
    noted = await connection.scalar(text("SELECT value FROM meta WHERE name='gaps_followed'"))
    return gaps if gaps > int(noted or 0) else None


async def set_some_with_money_due(
    connection: AsyncConnection, *, after: str, limit: int, now: Instant
) -> str | None:
    """Mark those of the next `limit` orders that have received money as due.

    Return the last examined order, or None at the end.

    after  reference after which the orders begin
    """
    looked_at = await connection.execute(text(_SOME), {"after": after, "limit": limit})
    orders = looked_at.scalars().all()
    if not orders:
        return None
    sql = _SET_MONEY_DUE[connection.dialect.name]
    await connection.execute(text(sql), {"after": after, "last": orders[-1], "now": now})
    return str(orders[-1])


async def note_gaps_followed(connection: AsyncConnection, gaps: int) -> None:
    """Store the number of accepted gaps for which orders have been marked as due."""
    await connection.execute(
        text(
            "INSERT INTO meta (name, value) VALUES ('gaps_followed', :gaps) "
            "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
        ),
        {"gaps": str(gaps)},
    )


async def forget_gaps_followed(connection: AsyncConnection) -> None:
    """Delete the number of gaps for which orders were marked as due, so that all gaps are
    considered again."""
    await connection.execute(text("DELETE FROM meta WHERE name='gaps_followed'"))
