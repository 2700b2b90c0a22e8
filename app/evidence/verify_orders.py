"""How the leaves of a log name their orders: each is the next one of its order, under the name that
the order has, and the counts that are kept are those that the leaves give.

Memory grows with the orders: some 250 bytes for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.core.text import counted
from app.database.engine import Connection
from app.sealing.leaf_store import Leaf, Members, Sealable
from app.sealing.order_store import (
    NamedOrder,
    kept_counts,
    log_secret,
    named_orders,
)
from app.sealing.order_tree_store import SealedTree
from reconcile.instants import format_instant
from reconcile.transparency.order_tree import OrderEntry, OrderTree, order_commitment
from reconcile.transparency.readings import sealed_reading

SURE: Final = frozenset(("record", "revision"))
"""Kinds of which a row never comes to belong to another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How leaves name some orders now.

    erased  commitments of which nobody can tell the order any more
    secret  what the salts of readings are drawn from
    """

    orders: Mapping[str, tuple[NamedOrder, bytes]]
    erased: set[str]
    secret: bytes | None

    def fits(self, of: str | None, order: str | None) -> bool:
        """Whether a leaf that names its order so is of this order, as far as anybody can tell."""
        if of is None or order is None:
            return of is order is None
        if of in self.erased:
            return True
        if order not in self.orders:
            return False
        named, key = self.orders[order]
        return of == named.commitment.hex() == order_commitment(key, order).hex()

    def reads_otherwise(self, sealed: Members, row: Sealable) -> bool:
        """Whether a delivery is read otherwise, or belongs to another order, than was sealed."""
        if "reading" not in sealed:
            return False
        if not self.fits(sealed.get("of"), row.order):
            return True
        if row.event is None or self.secret is None:
            return sealed["reading"] is not None
        salt = bytes.fromhex(sealed["salt"])
        return bool(sealed["reading"] != sealed_reading(row.event, secret=self.secret, salt=salt))


async def names_of(connection: Connection, rows: Iterable[Sealable], *, erased: set[str]) -> Names:
    """The names of these rows' orders. erased: what `erased_orders` gives, which may be long."""
    return Names(
        orders=await named_orders(connection, {row.order for row in rows if row.order}),
        erased=erased,
        secret=await log_secret(connection),
    )


def wrong_name(leaf: Leaf, row: Sealable, names: Names) -> str | None:
    """Why a leaf does not name the order of its row, one sentence; None where it does."""
    if leaf.kind not in SURE:
        return None
    sealed = leaf.members()
    if "order" in sealed:  # of before leaves named their orders by commitments
        fits = sealed["order"] == row.order
    else:
        fits = names.fits(sealed.get("of"), row.order)
    if fits:
        return None
    return (
        f"leaf {leaf.number} ({leaf.subject}) sealed another order than its row has: one of the "
        "two was changed"
    )


class OrderCounts:
    """Grows with the log's leaves: how many each order has, and the number of the newest."""

    def __init__(self, trees: Sequence[SealedTree]) -> None:
        """trees: those that were made of the log, the oldest first."""
        self._tree = OrderTree()
        self._trees = deque(trees)

    def append(self, leaf: Leaf) -> str | None:
        """Count a leaf; why it is not the next one of its order, None where it is."""
        try:
            sealed: dict[str, Any] = leaf.members()
            of = bytes.fromhex(sealed["of"]) if "of" in sealed else None
        except (TypeError, ValueError):
            return None  # it has not its hash: told with its row
        if of is None:
            return None
        count, last = self._tree.get(of) or (0, None)
        self._tree.put(OrderEntry(of, count + 1, leaf.number))
        if (sealed.get("nth"), sealed.get("after")) == (count + 1, last):
            return None
        return (
            f"leaf {leaf.number} ({leaf.subject}) is not the next one of the order that it names: "
            "one before it was taken out, or put in"
        )

    def wrong_trees(self, size: int) -> Iterator[str]:
        """Why trees of the log's first `size` leaves, all of which were counted, are not theirs."""
        while self._trees and self._trees[0].size <= size:
            tree = self._trees.popleft()
            if (tree.size, tree.orders, tree.root) != (size, self._tree.count, self._tree.root()):
                yield (
                    f"the tree of all orders of {format_instant(tree.at)} is not that of the "
                    f"log's first {counted(tree.size, 'leaf', 'leaves')}: it, or one of them, was "
                    "changed"
                )

    async def wrong_counts(self, connection: Connection) -> list[str]:
        """Why what is kept of orders is not what their leaves give, a sentence for each."""
        problems = [
            f"the tree of all orders of {format_instant(tree.at)} is of "
            f"{counted(tree.size, 'leaf', 'leaves')}, more than there are: the end of the log was "
            "cut off"
            for tree in self._trees
        ]
        known = 0
        async for number, commitment, leaves, last in kept_counts(connection):
            found = self._tree.get(bytes(commitment))
            known += found is not None
            if found != (leaves, last):
                problems.append(
                    f"what is kept of order {number} of the log is not what its leaves give: it "
                    "was changed"
                )
        if known != self._tree.count:
            problems.append(
                f"the log's leaves name {counted(self._tree.count, 'order')}, and {known:,} of "
                "them are kept: a row of order_keys was deleted or changed"
            )
        return problems
