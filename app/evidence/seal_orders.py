"""Once a day: the tree of all orders, how many leaves of the log each has. Its root is sealed.

1 scan     every order's count, on a snapshot: those that changed since the tree before, and, of the
           groups that they are in, the others
2 hash     those groups, and what is above them
3 keep     what changed, in small transactions, and at last the tree, which the sealer seals

With its path to the root a bundle shows how many leaves an order had that day, and so that none is
missing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.database.engine import Connection
from app.receiving.context import AppContext
from app.sealing.log_queue_store import log_size
from app.sealing.log_store import first_head_over
from app.sealing.order_tree_store import (
    ALL_GROUPS,
    UPPER,
    SealedTree,
    all_entries,
    keep_hashes,
    keep_states,
    keep_tree,
    kept_groups,
    newest_tree,
    portions,
)
from reconcile.instants import DAY, Instant
from reconcile.transparency.merkle import Hash
from reconcile.transparency.order_tree import (
    BITS,
    GROUPED,
    LEVELS,
    Keyed,
    folded,
    keyed,
)

REST_EVERY: Final = 256
"""Entries hashed before others have their turn: about a millisecond."""

_PACKED: Final = struct.Struct(">32sqq")
"""An entry in memory: a tuple would take three times as much."""


@dataclass(slots=True, kw_only=True)
class _Growing:
    """What of a tree is to be hashed and kept.

    changed  packed entries that changed, by the first byte of their commitments; others: the rest
    groups   hashes that are new, by bits and place
    """

    size: int
    before: SealedTree | None
    changed: list[list[bytes]] = field(default_factory=lambda: [[] for _ in ALL_GROUPS])
    others: list[list[bytes]] = field(default_factory=lambda: [[] for _ in ALL_GROUPS])
    orders: int = 0
    groups: dict[int, list[Keyed]] = field(default_factory=lambda: {bits: [] for bits in LEVELS})


async def seal_orders_if_due(context: AppContext) -> bool:
    """Make the day's tree where there is none yet, beside any number of others who do."""
    async with context.store.reading() as connection:
        if not await _is_due(connection, context.clock.now()):
            return False
    return await seal_orders(context)


async def _is_due(connection: Connection, now: Instant) -> bool:
    """On every day after that of the tree before, or of the log's beginning."""
    newest = await newest_tree(connection)
    if newest is not None:
        return newest.at // DAY < now // DAY
    first = await first_head_over(connection, 0)
    return first is not None and first.at // DAY < now // DAY


async def seal_orders(context: AppContext) -> bool:
    """Make the tree of all orders as they are now. False where another was first, or no leaf names
    an order yet."""
    at = context.clock.now()  # what is sealed from here on may not be counted
    async with context.store.reading() as connection:
        growing = await _scanned(connection)
        if not growing.orders:
            return False
        root = await _hashed(connection, growing)
    writer, before = context.store.writer, growing.before
    for group in growing.changed:
        for part in portions(group):
            await writer.commit(keep_states, growing.size, list(map(_PACKED.unpack, part)))
    for bits, hashes in growing.groups.items():
        for some in portions(hashes):
            await writer.commit(keep_hashes, growing.size, bits, some)
    tree = SealedTree(
        number=1 if before is None else before.number + 1,
        at=at,
        size=growing.size,
        orders=growing.orders,
        root=root,
    )
    return await writer.commit(keep_tree, tree)


async def _scanned(connection: Connection) -> _Growing:
    before = await newest_tree(connection)
    growing = _Growing(size=await log_size(connection), before=before)
    since = 0 if before is None else before.size
    changed, others, pack = growing.changed, growing.others, _PACKED.pack
    async for rows in all_entries(connection):
        growing.orders += len(rows)
        for of, leaves, last in rows:
            (changed if last >= since else others)[of[0]].append(pack(of, leaves, last))
        await asyncio.sleep(0)
    return growing


async def _hashed(connection: Connection, growing: _Growing) -> Hash:
    """The root; what is new of the hashes is noted."""
    since = -1 if growing.before is None else growing.before.size
    top = dict(await kept_groups(connection, UPPER, ALL_GROUPS, size=since))
    for first in ALL_GROUPS:
        if not growing.changed[first]:
            continue
        growing.changed[first].sort()  # so that they are kept, too, one behind the other
        below = range(first << UPPER, (first + 1) << UPPER)
        groups = dict(await kept_groups(connection, GROUPED, below, size=since))
        hashed = 0
        for place, members in _touched(growing, first):
            groups[place] = folded(members, bits=BITS)
            growing.groups[GROUPED].append((place, groups[place]))
            hashed += len(members)
            if hashed >= REST_EVERY:
                hashed = 0
                await asyncio.sleep(0)
        top[first] = _folded(groups, bits=GROUPED)
        growing.groups[UPPER].append((first, top[first]))
        growing.others[first].clear()
    return _folded(top, bits=UPPER)


def _folded(groups: Mapping[int, Hash], *, bits: int) -> Hash:
    return folded(sorted(groups.items()), bits=bits)


def _touched(growing: _Growing, first: int) -> Iterator[tuple[int, list[Keyed]]]:
    """The groups below a first byte in which something changed, with all of their entries."""
    members: list[list[bytes]] = [[] for _ in ALL_GROUPS]
    for packed in growing.changed[first]:
        members[packed[1]].append(packed)
    for packed in growing.others[first]:
        if group := members[packed[1]]:
            group.append(packed)
    for second, group in enumerate(members):
        if group:
            group.sort()
            yield first << UPPER | second, [keyed(_PACKED.unpack(packed)) for packed in group]
