"""By which policy the orders are folded: one row of `meta`, and what else is true of it; and the
short name of a policy that stands beside each order's last fold.

    v1 {…}       every order was folded by this policy since, or is due
    to v1 {…}    orders are being set due for it; broken off, that begins anew
    several      somebody folded by another policy than was noted: nobody knows which order by which
    (no row)     not known: a new database, or a rebuild that was broken off

It is written after due marks in the same transaction, so that locks are taken in one order.
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

_SET_DUE: Final = (
    "UPDATE order_due SET generation=generation+1, "
    "due_at=CASE WHEN due_at <= :now THEN due_at ELSE :now END "
)

_SET_DUE_SQLITE: Final = statement(
    "{set_due} WHERE order_key IN ({some}) RETURNING order_key", set_due=_SET_DUE, some=_SOME
)

_SET_DUE_POSTGRESQL: Final = statement(
    # Marks are locked in key order, as everybody does.
    "WITH taken AS MATERIALIZED ({some} FOR UPDATE) {set_due} "
    "FROM taken WHERE order_due.order_key = taken.order_key RETURNING order_due.order_key",
    set_due=_SET_DUE,
    some=_SOME,
)


def rules_of(policy: str) -> str:
    """The short name of the rules that the text of a policy stands for: of the engine's form and
    of the merchant's choices. Kept beside each order, so that it is known which of them were folded
    by these, also where an upgrade or a rebuild was broken off."""
    return f"{engine_form(policy)}-{hashlib.sha256(policy.encode()).hexdigest()[:12]}"


def engine_form(noted: str) -> str:
    """The engine's form in the text of a policy, or in what is noted of one: `v2`; empty where the
    note does not say."""
    return next((word for word in noted.split(" ") if word.startswith("v")), "")


async def noted_policy(connection: AsyncConnection) -> str | None:
    """What is noted; None where nothing is."""
    row = await connection.execute(text("SELECT value FROM meta WHERE name='policy'"))
    noted: str | None = row.scalar_one_or_none()
    return noted


async def anything_folded(connection: AsyncConnection) -> bool:
    """Whether an order was ever folded: the first fold of each leaves a revision."""
    found = await connection.execute(
        text("SELECT EXISTS (SELECT 1 FROM revisions) OR EXISTS (SELECT 1 FROM takings)")
    )
    return bool(found.scalar_one())


async def note_policy(connection: AsyncConnection, policy: str) -> None:
    """Every order was folded by it, or is due."""
    await connection.execute(text(_NOTE), {"value": policy})


async def note_change(connection: AsyncConnection, policy: str) -> None:
    """Orders are being set due for it."""
    await connection.execute(text(_NOTE), {"value": _to(policy)})


async def note_changed(connection: AsyncConnection, policy: str) -> bool:
    """Every order has been set due for it; False where somebody folded by another meanwhile."""
    done = await connection.execute(
        text("UPDATE meta SET value=:own WHERE name='policy' AND value IN (:own, :to_own)"),
        {"own": policy, "to_own": _to(policy)},
    )
    return bool(done.rowcount)


def note_folded(connection: PlainConnection, policy: str) -> bool:
    """Orders have been folded by it. True where another one was noted: that is no longer so."""
    noted = connection.ask(
        "UPDATE meta SET value=? WHERE name='policy' AND value NOT IN (?, ?, ?) RETURNING name",
        (_SEVERAL, _SEVERAL, policy, _to(policy)),
    )
    return bool(noted)


async def forget_policy(connection: AsyncConnection) -> None:
    """It is not known by which policy each order was folded."""
    await connection.execute(text("DELETE FROM meta WHERE name='policy'"))


async def set_some_due(
    connection: AsyncConnection, *, after: str, limit: int, now: Instant
) -> list[str]:
    """Set orders due, in key order from after a key on; what is due already keeps its place.

    Each counts a generation, as if something were said of it: a fold under way is dropped, and
    what else was made of the order is behind.
    """
    sql = _SET_DUE_SQLITE if connection.dialect.name == "sqlite" else _SET_DUE_POSTGRESQL
    found = await connection.execute(text(sql), {"after": after, "limit": limit, "now": now})
    return [row[0] for row in found]


def _to(policy: str) -> str:
    return f"to {policy}"


# --- since when an order needs a price of the shop's own ------------------------------------------


async def required_since(connection: AsyncConnection) -> Instant | None:
    """The instant that is noted; None where none is."""
    row = await connection.execute(
        text("SELECT value FROM meta WHERE name='order_record_required_since'")
    )
    noted = row.scalar_one_or_none()
    return None if noted is None else Instant(noted)


async def note_required(connection: AsyncConnection, *, now: Instant) -> None:
    """Note it, unless one is noted: it never moves."""
    await connection.execute(
        text(
            "INSERT INTO meta (name, value) VALUES ('order_record_required_since', :now) "
            "ON CONFLICT (name) DO NOTHING"
        ),
        {"now": str(now)},
    )


async def forget_required(connection: AsyncConnection) -> None:
    """It is not required any more."""
    await connection.execute(text("DELETE FROM meta WHERE name='order_record_required_since'"))
