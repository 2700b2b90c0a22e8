"""Store the pseudonyms of orders in log leaves."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.ids import new_secret
from app.database import statements
from app.sealing import leaf_store
from reconcile.transparency.commitments import sealed_digest
from reconcile.transparency.order_tree import order_commitment

SECRET: Final = "log secret"  # noqa: S105  # where it is kept
"""Name of the secret for salts, which never leaves the database."""


@dataclass(slots=True, kw_only=True)
class NamedOrder:
    """Pseudonym of an order in the log's leaves."""

    number: int
    order: str
    key: bytes
    commitment: bytes
    leaves: int
    last: int | None
    fresh: bool = False


class OrderBook:
    """Pseudonyms and numbers of leaves of the orders in one batch. Each new leaf updates them."""

    def __init__(self, orders: Iterable[NamedOrder], *, count: int, secret: bytes | None) -> None:
        self._orders = {each.order: each for each in orders}
        self._count = count
        self._changed: dict[str, NamedOrder] = {}
        self._new_secret = secret is None
        self._secret = new_secret() if secret is None else secret

    def leaf(self, row: leaf_store.Sealable, *, number: int, salt: bytes) -> leaf_store.Leaf:
        """Build the leaf of a row, as the next leaf of its order."""
        place, order = None, row.order
        if order is not None:
            named = self._orders.get(order)
            if named is None:
                key, self._count = new_secret(), self._count + 1
                named = self._orders[order] = NamedOrder(
                    number=self._count,
                    order=order,
                    key=key,
                    commitment=order_commitment(key, order),
                    leaves=0,
                    last=None,
                    fresh=True,
                )
            self._changed[order] = named
            place = leaf_store.LeafPlace(named.commitment.hex(), named.leaves + 1, named.last)
            named.leaves, named.last = place.nth, number
        return leaf_store.leaf_of(row, number=number, salt=salt, place=place, secret=self._secret)

    def says_already(self, row: leaf_store.Sealable, leaves: Sequence[leaf_store.Leaf]) -> bool:
        """Check whether a delivery needs no further `reading` leaf."""
        named = None if row.order is None else self._orders.get(row.order)
        of = None if named is None else named.commitment.hex()
        if row.order is not None and named is None:
            return not leaves
        if not leaves:
            return True
        last = leaves[-1].members()
        if last.get("of") != of or "parts" not in last:
            return False
        salt = bytes.fromhex(last["salt"])
        written = row.written()
        return bool(
            last["parts"] == (written and sealed_digest(written, secret=self._secret, salt=salt))
        )

    def write(self, connection: statements.PlainConnection) -> None:
        """Store the pseudonyms and numbers of leaves of the batch's orders."""
        # Only new rows store the order's name, so that a concurrent erasure is not undone.
        statements.insert_rows(
            connection,
            table="order_keys",
            columns=("number", "order_key", "key", "commitment", "leaves", "last"),
            rows=[
                (
                    each.number,
                    each.order if each.fresh else None,
                    each.key if each.fresh else None,
                    each.commitment,
                    each.leaves,
                    each.last,
                )
                for each in self._changed.values()
            ],
            conflict="ON CONFLICT (number) DO UPDATE SET leaves=excluded.leaves, "
            "last=excluded.last",
        )
        if self._new_secret:
            connection.ask(
                "INSERT INTO meta (name, value) VALUES (?, ?)", (SECRET, self._secret.hex())
            )


async def order_book(connection: AsyncConnection, rows: Iterable[leaf_store.Sealable]) -> OrderBook:
    """Load the pseudonyms that the leaves of these rows need."""
    orders = {row.order for row in rows if row.order is not None}
    count = await connection.scalar(text("SELECT coalesce(max(number), 0) FROM order_keys"))
    return OrderBook(
        (await named_orders(connection, orders)).values(),
        count=int(count or 0),
        secret=await log_secret(connection),
    )


async def named_orders(connection: AsyncConnection, orders: Iterable[str]) -> dict[str, NamedOrder]:
    """Return the pseudonyms of these orders. Orders without a leaf have no entry."""
    rows = await statements.select_in(
        connection,
        sql="SELECT number, order_key, key, commitment, leaves, last FROM order_keys "
        "WHERE order_key IN ({})",
        values=orders,
    )
    return {
        order: NamedOrder(
            number=number, order=order, key=key, commitment=commitment, leaves=leaves, last=last
        )
        for number, order, key, commitment, leaves, last in rows
    }


async def log_secret(connection: AsyncConnection) -> bytes | None:
    """Return the secret for the parts' salts, if any."""
    found = await connection.scalar(
        text("SELECT value FROM meta WHERE name = :name"), {"name": SECRET}
    )
    return None if found is None else bytes.fromhex(found)


async def forget_order(connection: AsyncConnection, order: str) -> None:
    """Delete an order's key, so that nobody identifies the order."""
    await connection.execute(
        text("UPDATE order_keys SET order_key = NULL, key = NULL WHERE order_key = :order"),
        {"order": order},
    )


_READ_AGAIN: Final = statements.statement(
    "SELECT {leaf} FROM log_leaves WHERE subject >= ? AND subject < ? ORDER BY number",
    leaf=leaf_store.LEAF_SELECT,
)
_FIRST: Final = statements.statement(
    "SELECT {leaf} FROM log_leaves WHERE subject IN ({})", leaf=leaf_store.LEAF_SELECT
)


def read_leaves(
    connection: statements.PlainConnection, deliveries: Iterable[str]
) -> dict[str, list[leaf_store.Leaf]]:
    """Return each delivery's leaves, oldest first."""
    found: dict[str, list[leaf_store.Leaf]] = {each: [] for each in deliveries}
    for row in statements.select_rows(connection, sql=_FIRST, values=found):
        leaf = leaf_store.Leaf(*row)
        found[leaf.subject].append(leaf)
    for delivery, leaves in found.items():
        prefix = f"{leaf_store.READING}:{delivery}"
        rows = connection.ask(_READ_AGAIN, (f"{prefix}:", f"{prefix};"))
        leaves += [leaf_store.Leaf(*row) for row in rows]
    return found


_NUMBERED: Final = statements.statement(
    "SELECT {leaf} FROM log_leaves WHERE number = ?", leaf=leaf_store.LEAF_SELECT
)


def chain_of(
    connection: statements.PlainConnection,
    named: NamedOrder,
    *,
    known: Iterable[leaf_store.Leaf] = (),
) -> list[leaf_store.Leaf]:
    """Return every leaf of an order, oldest first.

    known  leaves that were already read
    """
    read = {leaf.number: leaf for leaf in known}
    found: list[leaf_store.Leaf] = []
    number = named.last
    while number is not None:
        if number in read:
            found.append(read[number])
        elif rows := connection.ask(_NUMBERED, (number,)):
            found.append(leaf_store.Leaf(*rows[0]))
        else:
            break
        number = found[-1].members().get("after")
    return found[::-1]


async def erased_orders(connection: AsyncConnection) -> set[str]:
    """Return the commitments of erased orders, in hex."""
    rows = await connection.execute(
        text("SELECT commitment FROM order_keys WHERE order_key IS NULL")
    )
    return {bytes(row[0]).hex() for row in rows}


AT_ONCE: Final = 1_000


async def kept_counts(
    connection: AsyncConnection,
) -> AsyncIterator[tuple[int, bytes, int, int]]:
    """Yield each order's number, commitment, number of leaves, and number of its newest leaf."""
    sql = "SELECT number, commitment, leaves, last FROM order_keys"
    async for rows in statements.stream(connection, sql, at_once=AT_ONCE):
        for number, commitment, leaves, last in rows:
            yield number, commitment, leaves, last
