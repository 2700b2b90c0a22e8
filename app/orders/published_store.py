"""Published revisions, as the outcome feed and the shop's notifications show them; their numbers.

Numbers are given one after another and none is given twice, not even by a database that was put
back from a backup: what the one before it gave since is unknown, so a restore goes on far beyond.
Where it did is noted in `meta`, so that such a gap can be distinguished from any other.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import column, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import StoreUnavailable
from reconcile.instants import SECOND, Instant

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
"""The columns of `revisions` that make one."""

REVISIONS: Final = table("revisions", *map(column, PUBLISHED_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One revision as the feed shows it. `seq` is its place in publishing order, from 1."""

    seq: int
    order: str
    at: Instant
    outcome: str
    fulfillable: bool
    before_outcome: str | None
    before_fulfillable: bool | None
    because: tuple[str, ...]


def published_of(row: Sequence[Any]) -> Published:
    """The revision in a row of PUBLISHED_COLUMNS."""
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
"""Numbers that a restore leaves out at least: more than were given since any backup."""

A_SECOND: Final = 2**20
"""Numbers that stand for one second of the restore's time: more than are given in one. So those of
a later restore are higher, whatever the heads of the two backups."""

MAX_NUMBER: Final = 2**53 - 1
"""The largest whole number that every reader of JSON takes exactly. The seconds reach it in the
year 2242."""

_JUMP: Final = "revisions after "
"""In `meta`: the last number before a restore, and beside it the first one after it."""


def first_after_restore(head: int, now: Instant, *, given: int = 0) -> int:
    """The first number that a restored database gives.

    head   the last one that the backup gave
    given  the last one that the database in whose place it comes gave, where that is known

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
    """The last place in the feed; 0 where nothing was published. After a restore and before the
    first revision that follows, the place before that one."""
    counter = await connection.scalar(text("SELECT value FROM counters WHERE name='revisions'"))
    newest = await connection.scalar(text("SELECT max(seq) FROM revisions"))
    return max(counter or 0, newest or 0)


async def go_on_from(connection: AsyncConnection, first: int) -> None:
    """Let this be the next number, and note that those between are left out."""
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
    """The last number before each restore and the first after it, in their order."""
    rows = await connection.execute(
        text("SELECT name, value FROM meta WHERE name LIKE :name"), {"name": f"{_JUMP}%"}
    )
    return sorted((int(name.removeprefix(_JUMP)), int(value)) for name, value in rows)


async def place_to_read_from(connection: AsyncConnection) -> int:
    """From where a reader whose cursor is beyond the head misses nothing that it cannot have seen.

    It has read what was published before the last restore, as it was beyond even that; of what was
    published since, nothing is sure. Without a restore that was noted, nothing at all is.
    """
    found = await jumps(connection)
    return found[-1][1] - 1 if found else 0


async def feed_gaps(connection: AsyncConnection) -> list[str]:
    """Whether the numbers of the feed are 1, 2, 3 …, but for what restores left out, and the next
    one is right."""
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
