"""All ledgers anew from what is stored: `refold --all` as a command, on one core and on two.

Beside it stands the time in which SQLite alone reads the same rows in the same order.
"""

from __future__ import annotations

import hashlib
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
from tests.bench.processes import Ran, last_core, last_two_cores, on_cores, run
from tests.bench.requests import secret_text, source

COMMAND = ("app", "refold", "--all")
SAID = (
    "SELECT order_key, outcome, fulfillable, findings, substance, next_decision_at, rules "
    "FROM ledgers ORDER BY order_key",
    "SELECT * FROM revisions ORDER BY seq",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What came of it.

    ran       the command over all orders whose ledgers were dropped
    on_two    the same in two processes on two cores, besides the one that writes
    digests   of all ledgers and revisions, of the one and of the other
    first     the same when nothing had been published: it also writes a revision for each order
    empty     the same command over a database without orders: what starting a process costs
    scan      seconds of the bare ordered scan, before the command
    right     as many ledgers of each outcome as the ground truth has
    """

    events: int
    ran: Ran
    on_two: Ran
    digests: tuple[str, str]
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
    one, two = {last_core()}, last_two_cores()
    without, first = (_refold(folder, path, secret, cores=one) for path in (empty, full))
    _drop_ledgers(full)
    before = _outcomes(full).total()
    ran = _refold(folder, full, secret, cores=one)
    after, digest = _outcomes(full), _digest(full)
    print("rebuild: refold --all on two cores", file=sys.stderr)
    _drop_ledgers(full)
    on_two = _refold(folder, full, secret, cores=two)
    return Rebuilt(
        events=stretch.events,
        ran=ran,
        on_two=on_two,
        digests=(digest, _digest(full)),
        first=first,
        empty=without,
        scan=scan,
        before=before,
        ledgers=after.total(),
        right=after == stretch.outcomes(),
    )


def _refold(folder: Path, path: Path, secret: str, *, cores: set[int]) -> Ran:
    log, env = folder / "refold.log", environment(path, secret)
    return run((*COMMAND, "--jobs", str(len(cores))), log=log, env=env, cores=cores)


def _drop_ledgers(path: Path) -> None:
    """As if the cache had been lost: deliveries, events and revisions are the truth and stay."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM ledgers")
    connection.close()


def _digest(path: Path) -> str:
    """Of all that ledgers and revisions say, but for the instant at which they were folded."""
    found = hashlib.sha256()
    with stored.opened(path) as connection:
        for statement in SAID:
            for row in connection.execute(statement):
                found.update(repr(row).encode())
    return found.hexdigest()


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
