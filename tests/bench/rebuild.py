"""All ledgers rebuilt by the command `refold --all`, on one core and on two.

Compared with the time in which SQLite alone reads the same rows in the same order.
"""

import hashlib
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from app.core.ids import new_secret
from tests.bench import stored
from tests.bench.dataset import fill
from tests.bench.ingest import SEED, environment
from tests.bench.orders import Stretch
from tests.bench.processes import Ran, last_core, last_two_cores, on_cores, run
from tests.bench.report import Figure
from tests.bench.requests import secret_text, source
from tests.bench.sizes import BARS

COMMAND = ("app", "refold", "--all")
SAID = (
    "SELECT order_key, outcome, fulfillable, findings, substance, next_decision_at, rules "
    "FROM ledgers ORDER BY order_key",
    "SELECT * FROM revisions ORDER BY seq",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Results of the command over all orders whose ledgers were dropped.

    on_two    the same in two processes on two cores, besides the one that writes
    digests   of all ledgers and revisions, on one core and on two
    first     the same before anything was published, which also writes a revision for each order
    empty     the same command over a database without orders: the cost of starting
    scan      seconds of the bare ordered scan, before the command
    right     whether each outcome has as many ledgers as in the ground truth
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
    one, two = {last_core()}, last_two_cores()

    def refold(path: Path, cores: set[int]) -> Ran:
        print(f"rebuild: refold --all of {path.name} on {len(cores)}", file=sys.stderr)
        words, env = (*COMMAND, "--jobs", str(len(cores))), environment(path, secret)
        return run(words, log=folder / "refold.log", env=env, cores=cores)

    without, first = refold(empty, one), refold(full, one)
    before = _without_ledgers(full).total()
    ran = refold(full, one)
    after, digest = _outcomes(full), _digest(full)
    _without_ledgers(full)
    on_two = refold(full, two)
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


def _without_ledgers(path: Path) -> Counter[str]:
    """Delete all ledgers, as if the cache were lost; return those that are left."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM ledgers")
    return _outcomes(path)


def _digest(path: Path) -> str:
    """Return a digest of all ledgers and revisions, without the instant of the fold."""
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
    """Return the seconds to fetch every column of all events, sorted by order, on one core."""
    with stored.opened(path) as connection, on_cores({last_core()}):
        started = perf_counter()
        cursor: sqlite3.Cursor = connection.execute("SELECT * FROM events ORDER BY order_key")
        while cursor.fetchmany(2_000):
            pass
        return perf_counter() - started


def rebuild_figures(rebuilt: Rebuilt) -> list[Figure]:
    """Return the rate on one core and on two, without the command's start, and peak memory."""
    start, one, two = rebuilt.empty, rebuilt.ran, rebuilt.on_two
    seconds, seconds_on_two = one.seconds - start.seconds, two.seconds - start.seconds
    speed = Figure(
        name="rebuild of all ledgers",
        value=rebuilt.events / seconds,
        unit="events per second",
        bar=BARS["rebuild"],
        checks={
            "there were no ledgers before": rebuilt.before == 0,
            "every order's ledger has the outcome of the ground truth": rebuilt.right,
        },
        details={
            "events": rebuilt.events,
            "ledgers": rebuilt.ledgers,
            "seconds, whole command": one.seconds,
            "seconds, the first time, publishing every order": rebuilt.first.seconds,
            "seconds, the same command without orders": start.seconds,
            "seconds, bare ordered scan": rebuilt.scan,
            "times the bare scan": seconds / rebuilt.scan,
            "events per second of processor time": (
                rebuilt.events / (one.processor - start.processor)
            ),
        },
    )
    on_two = Figure(
        name="rebuild of all ledgers on two cores",
        value=rebuilt.events / seconds_on_two,
        unit="events per second",
        bar=BARS["rebuild on two"],
        checks={"ledgers and revisions are those of one core": len(set(rebuilt.digests)) == 1},
        details={
            "times the rate on one core": seconds / seconds_on_two,
            "seconds, whole command": two.seconds,
            "events per second of processor time": (
                rebuilt.events / (two.processor - start.processor)
            ),
            "digests on one core and on two": rebuilt.digests,
        },
    )
    memory = Figure(
        name="rebuild's peak memory",
        value=one.peak_rss_mib,
        unit="MiB",
        bar=BARS["rebuild memory"],
        details={"MiB without orders": start.peak_rss_mib},
    )
    return [speed, on_two, memory]
