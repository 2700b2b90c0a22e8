"""What the tree of all orders takes, each day: the first one, and the next, when some have changed.

Orders are written straight into their table, beside a log of one leaf: how its leaves came to be
has no part in the tree.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.core.clock import SystemClock
from app.evidence.seal import seal_orders
from app.receiving.inbox import open_inbox
from app.sealing.order_tree_store import SealedTree, entry_in, newest_tree
from reconcile.transparency.order_tree import BITS, OrderEntry, folded, keyed, root_by
from tests.bench.long_log import settings, write_long_log
from tests.bench.machine import peak_rss_mib, rss_mib
from tests.bench.report import Figure
from tests.bench.sizes import BARS, Sizes

CHANGED: Final = 20
"""One of so many orders has changed by the second day."""

PROVED: Final = 50
"""Orders whose paths are found and followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Seconds of the clock and of the processor of each tree, and of one path; MiB that it took."""

    seconds: list[float]
    cpu: list[float]
    path_ms: float
    mib: float
    right: bool


def order_tree_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """The slower of the two days against its bar."""
    path = folder / "orders.db"
    write_long_log(path, leaves=1)
    done = asyncio.run(_trees(path, orders=sizes.tree_orders))
    return [
        Figure(
            name=f"the tree of {sizes.tree_orders:,} orders",
            value=max(done.seconds),
            unit="seconds",
            bar=BARS["order tree"],
            sense="at most",
            checks={"every path that was asked for leads to the root": done.right},
            details={
                "seconds of the first day, with all orders new": done.seconds[0],
                f"seconds of the next, one order of {CHANGED} changed": done.seconds[1],
                "seconds of the processor, each": done.cpu,
                "ms of one order's path": done.path_ms,
                "MiB that it took": done.mib,
            },
        )
    ]


async def _trees(path: Path, *, orders: int) -> Trees:
    entries = [OrderEntry(os.urandom(32), 1 + n % 9, 0) for n in range(orders)]
    _write(path, entries)
    before = rss_mib(os.getpid())
    seconds, cpu = [], []
    async with open_inbox(settings(path)) as inbox:
        context = inbox.context(clock=SystemClock())
        for day in range(2):
            if day:
                _grow(path)
            clock, used = time.perf_counter(), time.process_time()
            assert await seal_orders(context)
            seconds.append(time.perf_counter() - clock)
            cpu.append(time.process_time() - used)
            print(f"tree of {orders:,} orders: {seconds[-1]:.1f} s, {cpu[-1]:.1f} s of the "
                  "processor", file=sys.stderr)  # fmt: skip
        mib = (peak_rss_mib(os.getpid()) or 0.0) - before
        clock = time.perf_counter()
        async with inbox.database.reading() as connection:
            tree = await newest_tree(connection)
            assert tree is not None
            found = [await entry_in(connection, e.commitment, tree) for e in entries[:PROVED]]
        path_ms = (time.perf_counter() - clock) / PROVED * 1_000
    right = all(each is not None and root_by(*each) == tree.root for each in found)
    return Trees(
        seconds=seconds, cpu=cpu, path_ms=path_ms, mib=mib,
        right=right and tree.root == _expected(entries) and _counts(tree, orders),
    )  # fmt: skip


def _counts(tree: SealedTree, orders: int) -> bool:
    return (tree.number, tree.orders) == (2, orders)


def _write(path: Path, entries: list[OrderEntry]) -> None:
    rows = ((n, each.commitment, each.leaves) for n, each in enumerate(entries))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.executemany(
            "INSERT INTO order_keys (number, commitment, leaves, last) VALUES (?, ?, ?, 0)", rows
        )


def _grow(path: Path) -> None:
    """One more leaf, which is the newest of some orders."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO log_leaves VALUES (1, 'deed', 'deed:1', '{}', x'00')")
        connection.execute(
            f"UPDATE order_keys SET leaves = leaves + 1, last = 1 WHERE number % {CHANGED} = 0"
        )


def _expected(entries: list[OrderEntry]) -> bytes:
    """The root of all of them on the second day, at once."""
    now = [
        each if n % CHANGED else each._replace(leaves=each.leaves + 1, last=1)
        for n, each in enumerate(entries)
    ]
    return folded(sorted(keyed(each) for each in now), bits=BITS)
