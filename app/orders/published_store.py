"""Published revisions, as the outcome feed and the shop's notifications show them; their numbers.

Numbers follow one another, and none is given twice, not even by a database that was restored from a
backup: the numbers given since the backup are unknown, so a restore goes on far beyond them. Each
such gap is noted in `meta`, to tell it from any other.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import column, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import StoreUnavailable
from reconcile.instants import SECOND, Instant
from reconcile.ledger.ledger import Outcome

PUBLISHED_COLUMNS: Final = (
    "seq",
    "order_key",
    "at",
    "outcome",
    "fulfillable",
    "before_outcome",
    "before_fulfillable",
    "because",
)
"""The columns of `revisions` that make a published revision."""

REVISIONS: Final = table("revisions", *map(column, PUBLISHED_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Revision as the feed shows it. `seq` is its place in publishing order, from 1."""

    seq: int
    order: str
    at: Instant
    outcome: Outcome
    fulfillable: bool
    before_outcome: Outcome | None
    before_fulfillable: bool | None
    because: tuple[str, ...]


def published_of(row: Sequence[Any]) -> Published:
    """Return the revision in a row of PUBLISHED_COLUMNS."""
    return Published(
        seq=row[0],
        order=row[1],
        at=row[2],
        outcome=row[3],
        fulfillable=bool(row[4]),
        before_outcome=row[5],
        before_fulfillable=None if row[6] is None else bool(row[6]),
        because=tuple(json.loads(row[7])),
    )


# --- numbers -------------------------------------------------------------------------------------

AHEAD: Final = 2**40
"""Least count of numbers that a restore leaves out: more than were given since any backup."""

A_SECOND: Final = 2**20
"""Numbers that stand for one second of the restore's time: more than are given in one. So a later
restore has higher numbers, whatever the heads of the two backups."""

MAX_NUMBER: Final = 2**53 - 1
"""Largest whole number that every reader of JSON takes exactly. The seconds reach it in 2242."""

_JUMP: Final = "revisions after "
"""Name in `meta`, with the last number before a restore; its value is the first one after it."""


def first_after_restore(head: int, now: Instant, *, given: int = 0) -> int:
    """Return the first number that a restored database gives.

    head   last number that the backup gave
    given  last number that the replaced database gave, where that is known

    Raises StoreUnavailable where no reader of JSON could take it.
    """
    first = max(head + AHEAD, now // SECOND * A_SECOND, given + 1)
    if first > MAX_NUMBER:
        raise StoreUnavailable(
            f"the backup's last revision has the number {head}, after which there is no room for "
            "others; restore another backup"
        )
    return first


async def head_of(connection: AsyncConnection) -> int:
    """Return the last place in the feed; 0 where nothing was published.

    Between a restore and the next revision it is the place before that revision.
    """
    counter = await connection.scalar(text("SELECT value FROM counters WHERE name='revisions'"))
    newest = await connection.scalar(text("SELECT max(seq) FROM revisions"))
    return max(counter or 0, newest or 0)


async def go_on_from(connection: AsyncConnection, first: int) -> None:
    """Make this the next number, and note that those between are left out."""
    head = await head_of(connection)
    await connection.execute(
        text(
            "INSERT INTO counters (name, value) VALUES ('revisions', :value) "
            "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
        ),
        {"value": first - 1},
    )
    await connection.execute(
        text("INSERT INTO meta (name, value) VALUES (:name, :value)"),
        {"name": f"{_JUMP}{head}", "value": str(first)},
    )


async def jumps(connection: AsyncConnection) -> list[tuple[int, int]]:
    """Return the last number before each restore and the first after it, sorted."""
    rows = await connection.execute(
        text("SELECT name, value FROM meta WHERE name LIKE :name"), {"name": f"{_JUMP}%"}
    )
    return sorted((int(name.removeprefix(_JUMP)), int(value)) for name, value in rows)


async def place_to_read_from(connection: AsyncConnection) -> int:
    """Return the cursor from which a reader with a cursor beyond the head must read.

    Its cursor was beyond the last restore, so it has read what was published before that; of later
    revisions nothing is sure. Where no restore was noted, nothing at all is sure.
    """
    found = await jumps(connection)
    return found[-1][1] - 1 if found else 0


async def feed_gaps(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each fault of the feed's numbers.

    They must be 1, 2, 3 …, except for those that restores left out, and the next one must follow.
    """
    left_out = await jumps(connection)
    starts = [1, *(first for _, first in left_out)]
    newest = int(await connection.scalar(text("SELECT max(seq) FROM revisions")) or 0)
    head = max(newest, starts[-1] - 1)
    ends = [*(last for last, _ in left_out), head]
    wanted = sum(end - start + 1 for start, end in zip(starts, ends, strict=True))
    count = await connection.scalar(text("SELECT count(*) FROM revisions"))
    between = [
        await connection.scalar(
            text("SELECT count(*) FROM revisions WHERE seq BETWEEN :start AND :end"),
            {"start": start, "end": end},
        )
        for start, end in zip(starts, ends, strict=True)
    ]
    counter = await connection.scalar(text("SELECT value FROM counters WHERE name='revisions'"))
    found = []
    if not count == sum(between) == wanted:
        found.append("the outcome feed has gaps")
    if (counter or 0) != head:
        found.append("the outcome feed would go on at another number")
    return found
