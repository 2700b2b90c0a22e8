"""Store the daily tree of all orders: hashes and changes."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import SEALING, take_lock
from app.database.statements import PlainConnection, Rows, insert_rows, run, stream
from reconcile.instants import Instant
from reconcile.transparency import order_tree
from reconcile.transparency.merkle import Hash

AT_ONCE: Final = 4_096
"""Number of rows in one transaction, which then takes some ten milliseconds."""

UPPER: Final = order_tree.LEVELS[1]
ALL_GROUPS: Final = range(1 << UPPER)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedTree:
    """Tree of all orders that have a leaf among the first `size` leaves of the log."""

    number: int
    at: Instant
    size: int
    orders: int
    root: Hash


_TREES: Final = table("order_trees", *map(column, ("number", "at", "size", "orders", "root")))


def _tree_of(row: Sequence[Any]) -> SealedTree:
    number, at, size, orders, root = row
    return SealedTree(number=number, at=at, size=size, orders=orders, root=bytes(root))


async def newest_tree(
    connection: AsyncConnection, *, until: Instant | None = None
) -> SealedTree | None:
    """Return the newest tree, optionally as of `until`."""
    newest = select(_TREES).order_by(_TREES.c.number.desc()).limit(1)
    if until is not None:
        newest = newest.where(_TREES.c.at <= until)
    row = (await connection.execute(newest)).first()
    return None if row is None else _tree_of(row)


async def all_trees(
    connection: AsyncConnection, *, after: Instant | None = None
) -> list[SealedTree]:
    """Return all trees, optionally after an instant, oldest first."""
    trees = select(_TREES).order_by(_TREES.c.number)
    if after is not None:
        trees = trees.where(_TREES.c.at > after)
    return [_tree_of(row) for row in await connection.execute(trees)]


async def all_entries(connection: AsyncConnection) -> AsyncIterator[Rows]:
    """Yield every order's commitment, number of leaves and newest leaf, in no particular order."""
    sql = "SELECT commitment, leaves, last FROM order_keys"
    async for rows in stream(connection, sql, at_once=AT_ONCE):
        yield rows


def keep_states(
    connection: PlainConnection, size: int, entries: Sequence[order_tree.Counted]
) -> None:
    """Store each order's number of leaves."""
    insert_rows(
        connection,
        table="order_states",
        columns=("commitment", "size", "leaves", "last"),
        rows=[(of, size, leaves, last) for of, leaves, last in entries],
        conflict="ON CONFLICT DO NOTHING",
    )


def keep_hashes(
    connection: PlainConnection, size: int, bits: int, hashes: Sequence[order_tree.Keyed]
) -> None:
    """Store the hashes of groups of orders."""
    insert_rows(
        connection,
        table="order_nodes",
        columns=("level", "place", "size", "hash"),
        rows=[(bits, place, size, found) for place, found in hashes],
        conflict="ON CONFLICT DO NOTHING",
    )


def keep_tree(connection: PlainConnection, tree: SealedTree) -> bool:
    """Store a tree. Return False after another process's tree."""
    take_lock(connection, SEALING)
    ((newest,),) = connection.ask("SELECT coalesce(max(number), 0) FROM order_trees")
    if newest != tree.number - 1:
        return False
    insert_rows(
        connection,
        table="order_trees",
        columns=("number", "at", "size", "orders", "root"),
        rows=[(tree.number, tree.at, tree.size, tree.orders, tree.root)],
    )
    return True


# Jump between groups that have hashes, since most groups of a young tree have none.
_HASHES: Final = (
    "WITH RECURSIVE places(place) AS ("
    "SELECT min(place) FROM order_nodes WHERE level = :level AND place >= :first UNION ALL "
    "SELECT (SELECT min(place) FROM order_nodes WHERE level = :level "
    "AND order_nodes.place > places.place) FROM places WHERE places.place < :last), "
    "newest(place, hash) AS (SELECT place, (SELECT hash FROM order_nodes WHERE level = :level "
    "AND order_nodes.place = places.place AND size <= :size ORDER BY size DESC LIMIT 1) "
    "FROM places WHERE place <= :last) "
    "SELECT place, hash FROM newest WHERE hash IS NOT NULL"
)


async def kept_groups(
    connection: AsyncConnection, bits: int, places: range, *, size: int
) -> Mapping[int, Hash]:
    """Return these groups' stored hashes, without empty groups."""
    values = {"first": places[0], "last": places[-1], "level": bits, "size": size}
    rows = await connection.execute(text(_HASHES), values)
    return {place: bytes(found) for place, found in rows}


_NEWEST_STATES: Final = (
    "SELECT commitment, leaves, last FROM order_states AS one WHERE size = (SELECT max(size) "
    "FROM order_states WHERE commitment = one.commitment AND size <= :size)"
)


async def kept_states(connection: AsyncConnection, *, size: int) -> AsyncIterator[Rows]:
    """Yield every order's commitment, leaf count and newest leaf."""
    async for rows in stream(connection, _NEWEST_STATES, at_once=AT_ONCE, values={"size": size}):
        yield rows


async def entry_in(
    connection: AsyncConnection, commitment: bytes, tree: SealedTree
) -> tuple[order_tree.OrderEntry, list[tuple[int, Hash]]] | None:
    """Return an order's entry in a tree, with its path."""
    members = await run(connection, _states, order_tree.group_of(commitment), tree.size)
    entry = next((each for each in members if each.commitment == commitment), None)
    if entry is None:
        return None
    place = int.from_bytes(commitment, "big")
    path = order_tree.siblings(map(order_tree.keyed, members), place, bits=order_tree.BITS)
    for bits in order_tree.LEVELS:
        above = order_tree.group_of(commitment, bits)
        level = range((above >> UPPER) << UPPER, ((above >> UPPER) + 1) << UPPER)
        groups = sorted((await kept_groups(connection, bits, level, size=tree.size)).items())
        path += order_tree.siblings(groups, above, bits=bits)
    return entry, path


_STATES: Final = (
    "SELECT commitment, leaves, last FROM order_states "
    "WHERE commitment >= ? AND commitment < ? AND size <= ? ORDER BY commitment, size"
)


def _states(connection: PlainConnection, group: int, size: int) -> list[order_tree.OrderEntry]:
    width = order_tree.GROUPED // 8
    first = group.to_bytes(width, "big")
    # An upper bound of all 32-byte commitments with this prefix.
    end = first + b"\xff" * (order_tree.BITS // 8 - width + 1)
    rows = connection.ask(_STATES, (first, end, size))
    newest = {bytes(row[0]): order_tree.OrderEntry(bytes(row[0]), row[1], row[2]) for row in rows}
    return list(newest.values())


def portions(rows: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Split the rows into parts that each fit into one transaction."""
    return (rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE))
