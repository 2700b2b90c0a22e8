"""Store and read the log: leaves, stored hashes and checkpoints. Rows are only added, never
changed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.errors import StorePoisoned
from app.database import faults, statements
from app.database.locks import SEALING, take_lock
from app.sealing.leaf_store import LEAF_SELECT, Leaf
from app.sealing.log_queue_store import Unsealed, log_size
from app.sealing.order_store import OrderBook
from reconcile.instants import Instant
from reconcile.transparency.merkle import Hash, Node

Ranges = Iterable[tuple[int, int, int]]
"""Ranges of Merkle tree hashes: level, first, end position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHead:
    """Checkpoint: the head of the log's first `size` leaves, its time, and the signed note."""

    size: int
    head: Hash
    at: Instant
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Result of one round of sealing."""

    found: Unsealed
    book: OrderBook
    leaves: Sequence[Leaf]
    nodes: Sequence[tuple[Node, Hash]]
    signed: SignedHead | None


def grow_log(connection: statements.PlainConnection, growth: Growth) -> bool:
    """Extend the log. Return False after another process's round."""
    take_lock(connection, SEALING)
    rows = connection.ask("SELECT coalesce(max(number) + 1, 0) FROM log_leaves")
    if int(rows[0][0]) != growth.found.size:
        return False
    statements.insert_rows(connection, table="log_leaves", columns=Leaf._fields, rows=growth.leaves)
    statements.insert_rows(
        connection,
        table="log_nodes",
        columns=("level", "place", "hash"),
        rows=[(level, place, found) for (level, place), found in growth.nodes],
    )
    if growth.signed is not None:
        signed = growth.signed
        statements.insert_rows(
            connection,
            table="log_checkpoints",
            columns=("size", "head", "at", "note"),
            rows=[(signed.size, signed.head, signed.at, signed.note)],
        )
        growth.book.write(connection)
    found = growth.found
    if found.marks:
        sql = 'DELETE FROM unsealed WHERE "row" IN ({})'
        statements.select_rows(connection, sql=sql, values=found.marks)
    for name, values in (("counters", found.counters), ("meta", found.swept)):
        statements.insert_rows(
            connection,
            table=name,
            columns=("name", "value"),
            rows=list(values.items()),
            conflict="ON CONFLICT (name) DO UPDATE SET value=excluded.value",
        )
    return True


_LEAVES: Final = table("log_leaves", *map(column, Leaf._fields))
_LEAVES_OF: Final = statements.statement(
    "SELECT {leaf} FROM log_leaves WHERE subject IN ({})", leaf=LEAF_SELECT
)


async def leaves_of(connection: AsyncConnection, subjects: Iterable[str]) -> dict[str, Leaf]:
    """Return the leaves of these subjects. Subjects without a leaf are left out."""
    rows = await statements.select_in(connection, sql=_LEAVES_OF, values=set(subjects))
    return {leaf.subject: leaf for leaf in (Leaf(*row) for row in rows)}


async def leaves_after(connection: AsyncConnection, number: int, *, limit: int) -> list[Leaf]:
    """Return up to `limit` leaves in the log's order, beginning with the leaf `number`."""
    from_there = select(_LEAVES).where(_LEAVES.c.number >= number)
    rows = await connection.execute(from_there.order_by(_LEAVES.c.number).limit(limit))
    return [Leaf(*row) for row in rows]


async def kept_hashes(connection: AsyncConnection, ranges: Ranges) -> dict[Node, Hash]:
    """Load the stored hashes in these ranges."""
    merged: list[tuple[int, int, int]] = []
    for level, start, end in sorted((int(a), int(b), int(c)) for a, b, c in ranges):
        if merged and merged[-1][0] == level and start <= merged[-1][2]:
            merged[-1] = (level, merged[-1][1], max(end, merged[-1][2]))
        else:
            merged.append((level, start, end))
    rows = await statements.run(connection, _kept_in, merged)
    return {(row[0], row[1]): row[2] for row in rows}


def _kept_in(
    connection: statements.PlainConnection, merged: Sequence[tuple[int, int, int]]
) -> statements.Rows:
    leaves = [(start, end - 1) for level, start, end in merged if level == 0]
    nodes = [(level, start, end - 1) for level, start, end in merged if level > 0]
    found: statements.Rows = []
    for sql, one, parts in (
        ("SELECT 0, number, hash FROM log_leaves WHERE {ranges}", "number BETWEEN ? AND ?", leaves),
        (
            "SELECT level, place, hash FROM log_nodes WHERE {ranges}",
            "(level = ? AND place BETWEEN ? AND ?)",
            nodes,
        ),
    ):
        if parts:
            ranges = " OR ".join([one] * len(parts))
            found += connection.ask(
                statements.statement(sql, ranges=ranges), [*chain.from_iterable(parts)]
            )
    return found


_CHECKPOINTS: Final = table("log_checkpoints", *map(column, ("size", "head", "at", "note")))


async def newest_head(
    connection: AsyncConnection, *, until: Instant | None = None
) -> SignedHead | None:
    """Return the newest checkpoint, optionally as of `until`."""
    newest = select(_CHECKPOINTS).order_by(_CHECKPOINTS.c.size.desc()).limit(1)
    if until is not None:
        newest = newest.where(_CHECKPOINTS.c.at <= until)
    row = (await connection.execute(newest)).first()
    return None if row is None else SignedHead(**row._mapping)


async def head_of(connection: AsyncConnection, size: int) -> SignedHead | None:
    """Return the checkpoint of exactly this number of leaves; None if none was signed."""
    of_size = select(_CHECKPOINTS).where(_CHECKPOINTS.c.size == size)
    row = (await connection.execute(of_size)).first()
    return None if row is None else SignedHead(**row._mapping)


async def first_head_over(connection: AsyncConnection, number: int) -> SignedHead | None:
    """Return the first checkpoint that covers a leaf; None if there is none yet."""
    return next(iter(await heads_after(connection, number, limit=1)), None)


async def heads_after(connection: AsyncConnection, size: int, *, limit: int) -> list[SignedHead]:
    """Return the checkpoints of more than `size` leaves, smallest first."""
    larger = select(_CHECKPOINTS).where(_CHECKPOINTS.c.size > size)
    rows = await connection.execute(larger.order_by(_CHECKPOINTS.c.size).limit(limit))
    return [SignedHead(**row._mapping) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierOrigin:
    """Former origin of the log. Checkpoints of up to `size` leaves have this origin."""

    origin: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Origin of the log, and the public signing keys in hex, newest last."""

    origin: str
    earlier: tuple[EarlierOrigin, ...] = ()
    """Earlier origins, oldest first."""
    keys: tuple[str, ...]
    endorsements: tuple[str | None, ...]
    """The previous key's signature over each key, in hex, or None."""

    @property
    def origins(self) -> list[str]:
        return [*(each.origin for each in self.earlier), self.origin]

    def origin_at(self, size: int) -> str:
        """Return the origin that a checkpoint of this many leaves has."""
        return next((each.origin for each in self.earlier if size <= each.size), self.origin)

    def size_as(self, origin: str) -> int | None:
        """Return the log's size at an earlier origin's replacement."""
        return next((each.size for each in self.earlier if each.origin == origin), None)


_ORIGIN: Final = "log origin"
_EARLIER: Final = "log earlier origins"

ORIGIN_ROWS: Final = (_ORIGIN, _EARLIER)
"""Names of the `meta` rows with the log's origins."""


def earlier_origins(rows: Mapping[str, str]) -> tuple[EarlierOrigin, ...]:
    """Return the earlier origins of the log from the rows of the table `meta`."""
    pairs = json.loads(rows.get(_EARLIER, "[]"))
    return tuple(EarlierOrigin(origin=origin, size=size) for origin, size in pairs)


def all_origins(rows: Mapping[str, str]) -> tuple[str, ...]:
    """Return every origin of the log, oldest first."""
    if _ORIGIN not in rows:
        return ()
    return (*(each.origin for each in earlier_origins(rows)), rows[_ORIGIN])


async def identity(connection: AsyncConnection) -> Identity | None:
    """Return the log's origins and keys; None if no log has begun.

    Raise StorePoisoned for a log without a key, as a copy of a file in use can have.
    """
    rows = await connection.execute(
        text("SELECT name, value FROM meta WHERE name IN (:origin, :earlier)"),
        {"origin": _ORIGIN, "earlier": _EARLIER},
    )
    facts: dict[str, str] = {row[0]: row[1] for row in rows}
    found = await connection.execute(
        text("SELECT public, endorsement FROM log_keys ORDER BY number")
    )
    if _ORIGIN not in facts:
        return None
    keys = found.all()
    if not keys:
        raise StorePoisoned(f"the database is incomplete: its log has no key; {faults.PUT_BACK}")
    return Identity(
        origin=facts[_ORIGIN],
        earlier=earlier_origins(facts),
        keys=tuple(row[0] for row in keys),
        endorsements=tuple(row[1] for row in keys),
    )


async def begin_log(connection: AsyncConnection, *, origin: str, public: str, now: Instant) -> None:
    """Store the log's origin and first key, unless another process has already stored them."""
    done = await connection.execute(
        text(
            "INSERT INTO meta (name, value) VALUES (:name, :origin) "
            "ON CONFLICT DO NOTHING RETURNING name"
        ),
        {"name": _ORIGIN, "origin": origin},
    )
    if done.first() is not None:
        await add_key(connection, public=public, now=now)


async def change_origin(connection: AsyncConnection, known: Identity, *, origin: str) -> None:
    """Give the log a new origin. No sealer may run meanwhile."""
    size = await log_size(connection)
    earlier = (*known.earlier, EarlierOrigin(origin=known.origin, size=size))
    await connection.execute(
        text(
            "INSERT INTO meta (name, value) VALUES (:origin, :now), (:earlier, :before) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        ),
        {
            "origin": _ORIGIN,
            "now": origin,
            "earlier": _EARLIER,
            "before": json.dumps([(each.origin, each.size) for each in earlier]),
        },
    )


async def add_key(
    connection: AsyncConnection, *, public: str, now: Instant, endorsement: str | None = None
) -> None:
    """Store a new signing key."""
    await connection.execute(
        text(
            "INSERT INTO log_keys (number, public, since, endorsement) "
            "SELECT coalesce(max(number), 0) + 1, :public, :since, :endorsement FROM log_keys"
        ),
        {"public": public, "since": now, "endorsement": endorsement},
    )
