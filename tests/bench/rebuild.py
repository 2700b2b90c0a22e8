"""All ledgers anew from what is stored: `refold --all` as a command, on one core.

Beside it stands the time in which SQLite alone reads the same rows in the same order.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from app.ids import new_secret
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.ingest import SEED, environment
from tests.bench.orders import Stretch
from tests.bench.processes import Ran, last_core, on_cores, run
from tests.bench.requests import secret_text, source

COMMAND = ("app", "refold", "--all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What came of it.

    ran       the command over all orders
    empty     the same command over a database without orders: what starting a process costs
    scan      seconds of the bare ordered scan, before the command
    right     as many ledgers of each outcome as the ground truth has
    """

    events: int
    ran: Ran
    empty: Ran
    scan: float
    before: int
    ledgers: int
    right: bool


def rebuild(folder: Path, *, orders: int) -> Rebuilt:
    """Fill a database, rebuild it, and compare its ledgers with the ground truth."""
    secret, stretch = secret_text(new_secret()), Stretch(seed=SEED, first=0, count=orders)
    full, empty = folder / "rebuild.db", folder / "empty.db"
    fill(full, stretch, source(secret))
    fill(empty, Stretch(seed=SEED, first=0, count=0), source(secret))
    before = _outcomes(full).total()
    scan = scan_seconds(full)
    print("rebuild: refold --all", file=sys.stderr)
    without, ran = (
        run(COMMAND, log=folder / "refold.log", env=environment(path, secret), core=last_core())
        for path in (empty, full)
    )
    after = _outcomes(full)
    return Rebuilt(
        events=stretch.events,
        ran=ran,
        empty=without,
        scan=scan,
        before=before,
        ledgers=after.total(),
        right=after == stretch.outcomes(),
    )


def _outcomes(path: Path) -> Counter[str]:
    with stored.opened(path) as connection:
        return stored.outcome_counts(connection)


def scan_seconds(path: Path) -> float:
    """Seconds to fetch every column of every event in the order of their orders, on one core."""
    with stored.opened(path) as connection, on_cores({last_core()}):
        started = perf_counter()
        cursor: sqlite3.Cursor = connection.execute("SELECT * FROM events ORDER BY order_key")
        while cursor.fetchmany(2_000):
            pass
        return perf_counter() - started
