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

from app.core.ids import new_secret
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

    ran       the command over all orders whose ledgers were dropped
    first     the same when nothing had been published: it also writes a revision for each order
    empty     the same command over a database without orders: what starting a process costs
    scan      seconds of the bare ordered scan, before the command
    right     as many ledgers of each outcome as the ground truth has
    """

    events: int
    ran: Ran
    first: Ran
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
    scan = scan_seconds(full)
    print("rebuild: refold --all, the first time and again", file=sys.stderr)
    without, first = (_refold(folder, path, secret) for path in (empty, full))
    _drop_ledgers(full)
    before = _outcomes(full).total()
    ran = _refold(folder, full, secret)
    after = _outcomes(full)
    return Rebuilt(
        events=stretch.events,
        ran=ran,
        first=first,
        empty=without,
        scan=scan,
        before=before,
        ledgers=after.total(),
        right=after == stretch.outcomes(),
    )


def _refold(folder: Path, path: Path, secret: str) -> Ran:
    log, env = folder / "refold.log", environment(path, secret)
    return run(COMMAND, log=log, env=env, core=last_core())


def _drop_ledgers(path: Path) -> None:
    """As if the cache had been lost: deliveries, events and revisions are the truth and stay."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM ledgers")
    connection.close()


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
