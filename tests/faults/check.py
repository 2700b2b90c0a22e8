"""A check of a database that a fault has left behind.

It does not use the store's own code, so that it does not share its mistakes.
"""

import json
import sqlite3
import struct
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

_NO_EVENT = """
SELECT count(*) FROM deliveries d WHERE d.verdict <> 'unreadable' AND NOT EXISTS (
    SELECT 1 FROM events e
    WHERE e.event_id = d.event_id AND e.source = d.source AND e.digest = d.digest)
"""
_NO_DELIVERY = """
SELECT count(*) FROM events e
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.id = e.delivery_id AND d.body IS NOT NULL)
"""
_NO_MARK = """
SELECT count(*) FROM events e WHERE e.order_key IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM order_due o WHERE o.order_key = e.order_key)
AND NOT EXISTS (SELECT 1 FROM ledgers l WHERE l.order_key = e.order_key)
"""
_NO_LINK = """
SELECT count(*) FROM events e WHERE e.order_key IS NOT NULL AND e.payment IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM links l WHERE l.reference = e.payment AND l.source = e.source)
"""
_MADE = "SELECT count(*) FROM sqlite_master WHERE name = 'deliveries'"
"""A database that was cut short while it was made is empty, and has promised nothing."""

HALVES = {
    "a delivery without its event": _NO_EVENT,
    "an event without its delivery": _NO_DELIVERY,
    "an order with neither mark nor ledger": _NO_MARK,
    "an event whose payment has no link": _NO_LINK,
}


def unread(rows: Iterable[bytes]) -> set[str]:
    """Return the ids in the inbox: a record is the sizes of its head and body, a head in JSON that
    begins with the id, and a body."""
    ids = set()
    for row in rows:
        at = 0
        while at < len(row):
            head, body = struct.unpack_from(">II", row, at)
            ids.add(json.loads(row[at + 8 : at + 8 + head])[0])
            at += 8 + head + body
    return ids


@dataclass(frozen=True, slots=True)
class Found:
    """A database as it was found; `corrupt` and `halves` are sentences about what is wrong."""

    deliveries: frozenset[str] = frozenset()
    corrupt: tuple[str, ...] = ()
    halves: tuple[str, ...] = field(default=())

    def lost(self, acknowledged: Iterable[str]) -> set[str]:
        """Return the acknowledged deliveries that are not there."""
        return set(acknowledged) - self.deliveries


def look(path: Path) -> Found:
    """Open a database as any program would, which replays its log, and check all of it."""
    try:
        ids, checked = _accepted(Path(f"{path}.inbox"))
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            checked += [row[0] for row in database.execute("PRAGMA quick_check(3)")]
            checked = [each for each in checked if each != "ok"]
            if not database.execute(_MADE).fetchone()[0]:
                return Found(frozenset(ids), tuple(checked))
            ids |= {row[0] for row in database.execute("SELECT id FROM deliveries")}
            ids |= unread(row[0] for row in database.execute("SELECT records FROM inbox"))
            ids |= unread(row[0] for row in database.execute("SELECT record FROM suspects"))
            halves = tuple(
                name for name, query in HALVES.items() if database.execute(query).fetchone()[0]
            )
    except sqlite3.DatabaseError as error:
        return Found(corrupt=(str(error),))
    return Found(frozenset(ids), tuple(checked), halves)


def _accepted(path: Path) -> tuple[set[str], list[str]]:
    """Return the ids in the inbox, and the faults of its file."""
    if not path.exists():
        return set(), []
    with closing(sqlite3.connect(path, isolation_level=None)) as inbox:
        checked = [row[0] for row in inbox.execute("PRAGMA quick_check(3)")]
        made = inbox.execute("SELECT count(*) FROM sqlite_master WHERE name='inbox'").fetchone()
        rows = inbox.execute("SELECT records FROM inbox") if made[0] else []
        return unread(row[0] for row in rows), checked


def assert_kept(path: Path, acknowledged: Iterable[str]) -> Found:
    """Check that nothing acknowledged is lost, and nothing is damaged or half there."""
    found = look(path)
    assert found.corrupt == ()
    assert found.halves == ()
    assert found.lost(acknowledged) == set()
    return found
