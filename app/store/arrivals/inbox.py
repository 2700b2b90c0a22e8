"""The inbox: what was accepted and is not read yet.

    receiver ──keep──▶ a row a commit ──unread──▶ reader ──let go and append──▶ in one transaction

A row is durable before its senders are answered. Who reads it lets it go in the transaction that
appends what it says, so that nothing is read twice, and nothing is lost, whoever dies when. Numbers
commit out of order where several receive: the reader goes by the rows that are there, never by the
highest number that it has read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.arrivals.rejections import Rejection
from app.store.sql.statements import PlainConnection, insert_rows
from reconcile.instants import Instant

MOST_TRIES: Final = 3
"""Times that a delivery that is alone in its row may fail to be appended; then it is set aside."""

_SIZES: Final = struct.Struct(">II")
"""Before each record: the bytes of its head, which is JSON, and of its body."""

_COLUMNS: Final = ("count", "received_at", "tries", "records")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One accepted request as it came. headers: as in `Arrival`; url: its address, without
    secrets."""

    delivery_id: str
    received_at: Instant
    source: str
    headers: str
    body: bytes
    url: str = ""


Item = Received | Rejection


class Unread(NamedTuple):
    """One row: its number, how often it could not be appended, and what it holds."""

    seq: int
    tries: int
    items: Sequence[Item]


class DamagedRow(ValueError):
    """A row's bytes are not what was framed."""


# --- rows -----------------------------------------------------------------------------------------


def keep_items(connection: PlainConnection, items: Sequence[Item], *, tries: int = 0) -> None:
    """Add one row that holds these."""
    oldest = min(item.received_at for item in items)
    row = (len(items), oldest, tries, b"".join([_framed(item) for item in items]))
    insert_rows(connection, table="inbox", columns=_COLUMNS, rows=[row])


def let_rows_go(connection: PlainConnection, rows: Sequence[Unread]) -> list[Unread]:
    """Take rows out; those that were still there. Another reader of a row that is being let go
    waits until that is over."""
    gone = set()
    for row in rows:
        gone |= {seq for (seq,) in connection.ask(_LET_GO, (row.seq,))}
    return [row for row in rows if row.seq in gone]


def split_row(connection: PlainConnection, row: Unread) -> None:
    """Put each of its records into a row of its own: one of them cannot be appended."""
    if let_rows_go(connection, [row]):
        for item in row.items:
            keep_items(connection, [item], tries=1)


def count_try(connection: PlainConnection, row: Unread) -> None:
    """Note that a row could not be appended once more."""
    connection.ask("UPDATE inbox SET tries=tries+1 WHERE seq=?", (row.seq,))


_LET_GO: Final = "DELETE FROM inbox WHERE seq=? RETURNING seq"


async def unread_rows(connection: AsyncConnection, *, limit: int) -> list[Unread]:
    """The next rows, the oldest first, about `limit` records of them; none that is set aside.

    Raises DamagedRow.
    """
    rows = await connection.execute(
        text(
            "SELECT seq, tries, count, records FROM inbox WHERE tries < :most "
            "ORDER BY seq LIMIT :limit"
        ),
        {"most": MOST_TRIES, "limit": limit},
    )
    found: list[Unread] = []
    count = 0
    for seq, tries, holds, records in rows:
        if found and count + holds > limit:
            break
        count += holds
        found.append(Unread(seq, tries, list(items_in(bytes(records)))))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is not read yet, without what is set aside.

    last    the number of the last row; None where there is none
    oldest  when the oldest of it came
    """

    records: int
    last: int | None
    oldest: Instant | None


async def backlog(connection: AsyncConnection, *, up_to: int | None = None) -> Backlog:
    """What is not read yet, of the rows up to a number, or of all."""
    row = (
        await connection.execute(
            text(
                "SELECT sum(count), max(seq), min(received_at) FROM inbox "
                "WHERE tries < :most AND seq <= :last"
            ),
            {"most": MOST_TRIES, "last": 2**63 - 1 if up_to is None else up_to},
        )
    ).one()
    return Backlog(records=int(row[0] or 0), last=row[1], oldest=row[2])


async def set_aside(connection: AsyncConnection) -> list[Unread]:
    """Rows of which the one record could not be appended, again and again."""
    rows = await connection.execute(
        text("SELECT seq, tries, records FROM inbox WHERE tries >= :most ORDER BY seq"),
        {"most": MOST_TRIES},
    )
    return [Unread(seq, tries, list(items_in(bytes(records)))) for seq, tries, records in rows]


async def count_set_aside(connection: AsyncConnection) -> int:
    """How many are set aside."""
    found = await connection.scalar(
        text("SELECT count(*) FROM inbox WHERE tries >= :most"), {"most": MOST_TRIES}
    )
    return int(found or 0)


async def try_again(connection: AsyncConnection) -> None:
    """Have what was set aside read again."""
    await connection.execute(
        text("UPDATE inbox SET tries=1 WHERE tries >= :most"), {"most": MOST_TRIES}
    )


# --- frames ---------------------------------------------------------------------------------------


def _framed(item: Item) -> bytes:
    head: list[Any] = [item.delivery_id, item.received_at, item.source, item.headers]
    if isinstance(item, Received):
        head.append(item.url)
    else:
        head += [item.verdict, item.digest, item.size, item.problem]
    written = json.dumps(head, separators=(",", ":")).encode("ascii")
    return _SIZES.pack(len(written), len(item.body)) + written + item.body


def items_in(records: bytes) -> Iterator[Item]:
    """What was framed. Raises DamagedRow."""
    at = 0
    while at < len(records):
        try:
            head_bytes, body_bytes = _SIZES.unpack_from(records, at)
            at += _SIZES.size
            head = json.loads(records[at : at + head_bytes])
            at += head_bytes
            body = records[at : at + body_bytes]
            at += body_bytes
            if at > len(records):
                raise DamagedRow("a record ends beyond its row")
            yield _item(head, body)
        except (struct.error, ValueError, TypeError, KeyError) as error:
            raise DamagedRow("a row of the inbox is not what was written") from error


def _item(head: list[Any], body: bytes) -> Item:
    delivery_id, received_at, source, headers, *rest = head
    if len(rest) == 1:
        return Received(
            delivery_id=delivery_id,
            received_at=received_at,
            source=source,
            headers=headers,
            body=body,
            url=rest[0],
        )
    verdict, digest, size, problem = rest
    return Rejection(
        delivery_id=delivery_id,
        received_at=received_at,
        source=source,
        verdict=verdict,
        digest=digest,
        size=size,
        headers=headers,
        body=body,
        problem=problem,
    )
