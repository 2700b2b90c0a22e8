"""Contents of a database, read with a plain read-only connection beside the service.

The store's own code is not used here, so that the check does not share its mistakes.
"""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.core.clock import SystemClock
from tests.bench.orders import Stretch

SETTLE_S = 900
"""Seconds that folding may take after the last acknowledgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The store compared with what was sent to it.

    lost            ids that were sent and are not stored
    surplus         rows beyond one for each id that was sent
    bodies_agree    whether the digests of stored and sent bodies have the same sum
    outcomes_agree  whether each outcome has as many ledgers as in the ground truth
    """

    stored: int
    lost: int
    surplus: int
    bodies_agree: bool
    folded: int
    outcomes_agree: bool

    def checks(self) -> dict[str, bool]:
        """Return the checks of a figure whose deliveries are all of the store."""
        return {
            "none is lost": self.lost == 0,
            "none is doubled or was never sent": self.surplus == 0,
            "the stored digests are those of the bodies sent": self.bodies_agree,
            "every order's ledger has the outcome of the ground truth": self.outcomes_agree,
        }


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as connection:
        yield connection


def settle(path: Path) -> float:
    """Return the seconds until all is read and no order is due.

    It looks for a first row only: counting a long backlog took a good part of the cores that are
    measured. Raises TimeoutError if something is still due after `SETTLE_S`.
    """
    started = time.monotonic()
    unread = "SELECT EXISTS (SELECT 1 FROM inbox WHERE seq > ?)"
    waiting = "SELECT EXISTS (SELECT 1 FROM order_due WHERE due_at <= ?)"
    with opened(path) as connection, opened(Path(f"{path}.inbox")) as inbox:
        while (
            inbox.execute(unread, (position(connection),)).fetchone()[0]
            or connection.execute(waiting, (SystemClock().now(),)).fetchone()[0]
        ):
            if time.monotonic() - started > SETTLE_S:
                raise TimeoutError("orders are still due; the worker does not keep up")
            time.sleep(0.02)
    return time.monotonic() - started


def wait_until_sealed(path: Path) -> None:
    """Wait until nothing is to be sealed. Raises TimeoutError after `SETTLE_S`."""
    started = time.monotonic()
    with opened(path) as connection:
        while connection.execute("SELECT EXISTS (SELECT 1 FROM unsealed)").fetchone()[0]:
            if time.monotonic() - started > SETTLE_S:
                raise TimeoutError("deliveries are still unsealed; the sealer does not keep up")
            time.sleep(0.02)


def unsealed(path: Path) -> int:
    """Return how many deliveries have no leaf."""
    with opened(path) as connection:
        count: int = connection.execute(
            "SELECT (SELECT count(*) FROM deliveries) - "
            "(SELECT count(*) FROM log_leaves WHERE kind = 'delivery')"
        ).fetchone()[0]
    return count


def position(connection: sqlite3.Connection) -> int:
    """Return the number of the last row of the inbox that was read."""
    query = "SELECT value FROM counters WHERE name='inbox position'"
    row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


def shares_of_disk(path: Path) -> list[tuple[str, float]]:
    """Return the share of each table and index in the database's pages, the largest first."""
    with opened(path) as connection:
        sizes = connection.execute("SELECT name, pgsize FROM dbstat WHERE aggregate = 1").fetchall()
    whole = sum(size for _, size in sizes)
    return sorted(((name, size / whole) for name, size in sizes), key=lambda each: -each[1])


def ledgers(path: Path) -> int:
    with opened(path) as connection:
        return outcome_counts(connection).total()


def audit(path: Path, *, sent: Iterable[Stretch], digests: int) -> Audit:
    """Compare the store with what was sent; `digests` is the sum of all bodies' SHA-256."""
    stretches = list(sent)
    missing = {event_id for stretch in stretches for event_id in stretch.event_ids()}
    wanted, stored, total = len(missing), 0, 0
    query = (
        "SELECT deliveries.event_id, events.digest FROM deliveries "
        "JOIN events ON events.event_id = deliveries.event_id WHERE verdict = 'stored'"
    )
    with opened(path) as connection:
        for event_id, digest in connection.execute(query):
            stored += 1
            total += int(digest, 16)
            missing.discard(event_id)
        events = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        outcomes = outcome_counts(connection)
    return Audit(
        stored=stored,
        lost=len(missing),
        surplus=max(stored, events) - (wanted - len(missing)),
        bodies_agree=total == digests,
        folded=outcomes.total(),
        outcomes_agree=outcomes == sum((each.outcomes() for each in stretches), Counter[str]()),
    )


def outcome_counts(connection: sqlite3.Connection) -> Counter[str]:
    rows = connection.execute("SELECT outcome, count(*) FROM ledgers GROUP BY outcome")
    return Counter(dict(rows.fetchall()))
