"""Seconds that the daily tree of all orders takes: when all are new, and when some have changed.

Orders are written straight into their table, beside a log of one leaf.
"""

import asyncio
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from app.core.clock import SystemClock
from app.evidence.seal import seal_orders
from app.receiving.inbox import open_inbox
from app.sealing.order_tree_store import entry_in, newest_tree
from reconcile.transparency.order_tree import BITS, OrderEntry, folded, keyed, root_by
from tests.bench.long_log import write_long_log
from tests.bench.machine import peak_rss_mib, rss_mib
from tests.bench.report import Figure
from tests.bench.sizes import BARS, Sizes
from tests.contexts import settings_of

CHANGED: Final = 20
"""One order in so many changes by the second day."""

PROVED: Final = 50
"""Orders whose paths are found and followed."""


def order_tree_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Return the slower of two days beside its bar."""
    path = folder / "orders.db"
    write_long_log(path, leaves=1)
    return [asyncio.run(_trees(path, orders=sizes.tree_orders))]


async def _trees(path: Path, *, orders: int) -> Figure:
    entries = [OrderEntry(os.urandom(32), 1 + n % 9, 0) for n in range(orders)]
    _write(path, entries)
    before = rss_mib(os.getpid())
    seconds, cpu = [], []
    async with open_inbox(settings_of(path)) as inbox:
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
    return Figure(
        name=f"the tree of {orders:,} orders",
        value=max(seconds),
        unit="seconds",
        bar=BARS["order tree"],
        checks={
            "every path that was asked for leads to the root": all(
                each is not None and root_by(*each) == tree.root for each in found
            ),
            "the tree is the second, of all orders": (tree.number, tree.orders) == (2, orders),
            "its root is that of all orders at once": tree.root == _expected(entries),
        },
        details={
            "seconds of the first day, with all orders new": seconds[0],
            f"seconds of the next, one order of {CHANGED} changed": seconds[1],
            "seconds of the processor, each": cpu,
            "ms of one order's path": path_ms,
            "MiB that it took": mib,
        },
    )


def _write(path: Path, entries: list[OrderEntry]) -> None:
    rows = ((n, each.commitment, each.leaves) for n, each in enumerate(entries))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.executemany(
            "INSERT INTO order_keys (number, commitment, leaves, last) VALUES (?, ?, ?, 0)", rows
        )


def _grow(path: Path) -> None:
    """Add a leaf that is the newest of some orders."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO log_leaves VALUES (1, 'deed', 'deed:1', '{}', x'00')")
        connection.execute(
            f"UPDATE order_keys SET leaves = leaves + 1, last = 1 WHERE number % {CHANGED} = 0"
        )


def _expected(entries: list[OrderEntry]) -> bytes:
    """Return the root of all entries on the second day, folded at once."""
    now = [
        each if n % CHANGED else each._replace(leaves=each.leaves + 1, last=1)
        for n, each in enumerate(entries)
    ]
    return folded(sorted(keyed(each) for each in now), bits=BITS)
