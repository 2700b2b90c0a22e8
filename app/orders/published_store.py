"""Published revisions of orders' ledgers, for the outcome feed and notifications, and their
numbers.

Numbers are consecutive and never assigned twice. After a restore, the numbering continues far
beyond, and `meta` records the skipped numbers.
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

REVISIONS: Final = table("revisions", *map(column, PUBLISHED_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Revision of an order's ledger as the feed shows it, with its number `seq`, from 1."""

    seq: int
    order: str
    at: Instant
    outcome: Outcome
    fulfillable: bool
    before_outcome: Outcome | None
    before_fulfillable: bool | None
    because: tuple[str, ...]


def published_of(row: Sequence[Any]) -> Published:
    """Return the revision in a database row with the columns in PUBLISHED_COLUMNS."""
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


AHEAD: Final = 2**40
"""Minimum distance between a backup's last revision number and the first after its restore."""

A_SECOND: Final = 2**20
"""Revision numbers for each second. After a restore, numbering continues at this factor times the
seconds since 1970."""

MAX_NUMBER: Final = 2**53 - 1
"""Largest integer that every JSON reader represents exactly, and therefore the highest number of a
revision."""

_JUMP: Final = "revisions after "
"""Beginning of a name in `meta` that records a restore, before the last number.

The value is the first number after the restore.
"""


def first_after_restore(head: int, now: Instant, *, given: int = 0) -> int:
    """Return the first revision number that a restored database may assign.

    head   last number that was assigned in the backup
    given  last number that was assigned in the replaced database, if known

    Raises StoreUnavailable if the number is too large for JSON readers.
    """
    first = max(head + AHEAD, now // SECOND * A_SECOND, given + 1)
    if first > MAX_NUMBER:
        raise StoreUnavailable(
            f"the backup's last revision has the number {head}, and no higher number is possible; "
            "restore another backup"
        )
    return first


async def head_of(connection: AsyncConnection) -> int:
    """Return the last number of the feed, including numbers that a restore skipped. Return 0 if
    nothing was ever published."""
    counter = await connection.scalar(text("SELECT value FROM counters WHERE name='revisions'"))
    newest = await connection.scalar(text("SELECT max(seq) FROM revisions"))
    return max(counter or 0, newest or 0)


async def go_on_from(connection: AsyncConnection, first: int) -> None:
    """Make `first` the feed's next number, and record which numbers are skipped."""
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
    """Return, for each restore, the last number before and the first number after it. The list is
    sorted."""
    rows = await connection.execute(
        text("SELECT name, value FROM meta WHERE name LIKE :name"), {"name": f"{_JUMP}%"}
    )
    return sorted((int(name.removeprefix(_JUMP)), int(value)) for name, value in rows)


async def place_to_read_from(connection: AsyncConnection) -> int:
    """Return the cursor from which a reader must continue after reading beyond the feed's end.

    The cursor is the start of the numbers after the last restore, or 0 if no restore was recorded.
    """
    found = await jumps(connection)
    return found[-1][1] - 1 if found else 0


async def feed_gaps(connection: AsyncConnection) -> list[str]:
    """Return a sentence for each fault in the feed's numbers: 1, 2, 3 …, less skipped ones."""
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
        found.append("the outcome feed would continue with a wrong number")
    return found
