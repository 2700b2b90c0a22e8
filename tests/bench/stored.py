"""What a database holds, read with a plain read-only connection beside the service.

Not through the store's own code: whoever checks must not share its mistakes.
"""

from __future__ import annotations

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
    """The store beside what was sent to it.

    lost            ids that were sent and are not stored
    surplus         rows beyond one for each id that was sent: doubled, or never sent
    bodies_agree    the bodies' digests add up to those of the bodies that were sent
    outcomes_agree  as many ledgers of each outcome as the ground truth has
    """

    stored: int
    lost: int
    surplus: int
    bodies_agree: bool
    folded: int
    outcomes_agree: bool


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as connection:
        yield connection


def settle(path: Path) -> float:
    """Seconds until all is read and no order is due. Raises TimeoutError when that never comes."""
    started = time.monotonic()
    with opened(path) as connection, opened(Path(f"{path}.inbox")) as inbox:
        while _anything_left(connection, inbox):
            if time.monotonic() - started > SETTLE_S:
                raise TimeoutError("orders are still due; the worker does not keep up")
            time.sleep(0.02)
    return time.monotonic() - started


def _anything_left(connection: sqlite3.Connection, inbox: sqlite3.Connection) -> bool:
    """Whether anything is unread or due. It finds the first and counts none: what is measured has
    the same two cores, and counting a long backlog again and again took a good part of one."""
    unread = "SELECT EXISTS (SELECT 1 FROM inbox WHERE seq > ?)"
    waiting = "SELECT EXISTS (SELECT 1 FROM order_due WHERE due_at <= ?)"
    return bool(
        inbox.execute(unread, (position(connection),)).fetchone()[0]
        or connection.execute(waiting, (SystemClock().now(),)).fetchone()[0]
    )


def position(connection: sqlite3.Connection) -> int:
    """The number of the last row of the inbox that was read."""
    query = "SELECT value FROM counters WHERE name='inbox position'"
    row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


def count_unread(connection: sqlite3.Connection, inbox: sqlite3.Connection) -> int:
    """Deliveries that are accepted and not read yet."""
    unread = "SELECT sum(count) FROM inbox WHERE seq > ?"
    count = inbox.execute(unread, (position(connection),)).fetchone()[0]
    return int(count or 0)


def count_due(connection: sqlite3.Connection) -> int:
    """Orders whose fold is due now."""
    now = SystemClock().now()
    query = "SELECT count(*) FROM order_due WHERE due_at <= ?"
    count: int = connection.execute(query, (now,)).fetchone()[0]
    return count


def behind(path: Path) -> tuple[int, int]:
    """How many deliveries wait to be read, and how many orders to be folded."""
    with opened(path) as connection, opened(Path(f"{path}.inbox")) as inbox:
        return count_unread(connection, inbox), count_due(connection)


def due(path: Path) -> int:
    """How many orders wait to be folded."""
    with opened(path) as connection:
        return count_due(connection)


def audit(path: Path, *, sent: Iterable[Stretch], digests: int) -> Audit:
    """Compare the store with what was sent; `digests` is the sum of all bodies' SHA-256."""
    stretches = list(sent)
    missing = {event_id for stretch in stretches for event_id in stretch.event_ids()}
    truth = sum((stretch.outcomes() for stretch in stretches), Counter[str]())
    wanted = len(missing)
    with opened(path) as connection:
        stored, total = _strike(connection, missing)
        events = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        outcomes = outcome_counts(connection)
    found = wanted - len(missing)
    return Audit(
        stored=stored,
        lost=len(missing),
        surplus=max(stored, events) - found,
        bodies_agree=total == digests,
        folded=outcomes.total(),
        outcomes_agree=outcomes == truth,
    )


def _strike(connection: sqlite3.Connection, missing: set[str]) -> tuple[int, int]:
    """Take what is stored out of `missing`. Returns how many rows, and the sum of digests."""
    rows = total = 0
    query = (
        "SELECT deliveries.event_id, events.digest FROM deliveries "
        "JOIN events ON events.event_id = deliveries.event_id WHERE verdict = 'stored'"
    )
    for event_id, digest in connection.execute(query):
        rows += 1
        total += int(digest, 16)
        missing.discard(event_id)
    return rows, total


def outcome_counts(connection: sqlite3.Connection) -> Counter[str]:
    """Ledgers by outcome."""
    rows = connection.execute("SELECT outcome, count(*) FROM ledgers GROUP BY outcome")
    return Counter(dict(rows.fetchall()))
