"""Checks of stored bodies, revisions and the sealed log."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.text import LEAF, counted
from app.database.statements import statement
from app.evidence.store import node_count, strays
from app.receiving.header_codec import read_request
from app.receiving.verify import digest_of
from app.sealing.leaf_store import KINDS, READING
from app.sealing.log_queue_store import log_size
from reconcile.transparency.merkle import STEP

AT_ONCE: Final = 20_000
"""Number of deliveries that one statement checks."""


_COUNT: Final = "SELECT count(*) FROM {table} {which}"


async def _count(connection: AsyncConnection, table: str, which: str = "") -> int:
    return int(await connection.scalar(text(statement(_COUNT, table=table, which=which))) or 0)


_ODD: Final = (
    "SELECT id, digest, size, headers, body FROM deliveries WHERE {span} AND "
    "CASE WHEN body IS NULL THEN verdict <> 'duplicate' AND pruned_at IS NULL "
    "ELSE length(body) <> size OR length(body) = 0 OR {computed} <> digest END"
)
_STEP: Final = "SELECT id FROM deliveries WHERE id > :after ORDER BY id LIMIT 1 OFFSET :rows"


class Bodies(NamedTuple):
    """Numbers of stored and of deleted bodies. A duplicate's missing body is not deleted."""

    kept: int
    pruned: int


async def count_deliveries(connection: AsyncConnection) -> int:
    return await _count(connection, "deliveries")


async def count_bodies(connection: AsyncConnection) -> Bodies:
    row = await connection.execute(
        text(
            "SELECT count(body), count(CASE WHEN body IS NULL AND verdict <> 'duplicate' "
            "THEN 1 END) FROM deliveries"
        )
    )
    return Bodies(*row.one())


async def check_bodies(connection: AsyncConnection) -> AsyncIterator[tuple[int, list[str]]]:
    """Yield the number of checked deliveries and the wrong ones."""
    computed = await _digest(connection)
    to_the_end = text(statement(_ODD, computed=computed, span="id > :after"))
    to_the_last = text(statement(_ODD, computed=computed, span="id > :after AND id <= :last"))
    after, rest = "", await count_deliveries(connection)
    while True:
        ends: dict[str, Any] = {"after": after}
        last = await connection.scalar(text(_STEP), ends | {"rows": AT_ONCE - 1})
        if last is not None:
            ends["last"] = last
        odd = await connection.execute(to_the_end if last is None else to_the_last, ends)
        found = [sentence for row in odd for sentence in _misfits(*row)]
        if last is None:
            yield rest, found
            return
        yield AT_ONCE, found
        after, rest = last, rest - AT_ONCE


def _misfits(name: str, digest: str, size: int, headers: str, body: bytes | None) -> Iterator[str]:
    if body is None:
        yield f"the body of {name} is gone, but was not pruned"
        return
    if len(body) != size:
        yield f"the body of {name} does not have its size"
    # An empty body has the digest of the query, which is in the headers.
    if digest_of(body, read_request(headers).url) != digest:
        yield f"the body of {name} does not have its digest"


_WITHOUT_WHOLE: Final = (
    "SELECT id FROM deliveries WHERE envelope IS NOT NULL AND NOT EXISTS "
    "(SELECT 1 FROM envelopes WHERE envelopes.digest = deliveries.envelope) "
    "/* deliveries WHERE envelope IS NOT NULL */"
)
_ODD_WHOLES: Final = "SELECT digest FROM envelopes WHERE body IS NOT NULL AND {computed} <> digest"
_ODD_FILES: Final = "SELECT sha256 FROM attachment_files WHERE {computed} <> sha256 ORDER BY sha256"


async def odd_wholes(connection: AsyncConnection) -> list[str]:
    """Return a sentence for each missing or changed request body."""
    gone = await connection.execute(text(_WITHOUT_WHOLE))
    sql = statement(_ODD_WHOLES, computed=await _digest(connection))
    odd = await connection.execute(text(sql))
    return [
        *(f"the whole body that {row[0]} came in is missing" for row in gone),
        *(f"the whole body {row[0]} does not have its digest" for row in odd),
    ]


async def odd_attachments(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each missing or changed attached file."""
    gone = await connection.execute(
        text(
            "SELECT id FROM attachments WHERE gone_at IS NULL AND NOT EXISTS (SELECT 1 FROM "
            "attachment_files WHERE attachment_files.sha256 = attachments.sha256) ORDER BY id"
        )
    )
    sql = statement(_ODD_FILES, computed=await _digest(connection))
    odd = await connection.execute(text(sql))
    return [
        *(f"the bytes of {row[0]} are gone: restore a backup, or detach the file" for row in gone),
        *(f"the attached file {row[0]} does not have its digest: restore a backup" for row in odd),
    ]


async def _digest(connection: AsyncConnection) -> str:
    if connection.dialect.name != "sqlite":
        return "encode(sha256(body), 'hex')"
    raw = await connection.get_raw_connection()
    assert raw.driver_connection is not None
    await raw.driver_connection.create_function("body_digest", 1, _hex, deterministic=True)
    return "body_digest(body)"


def _hex(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


_READ: Final = "WHERE verdict IN ('stored', 'duplicate_with_different_body', 'not_ours')"
_WITHOUT_MARK: Final = (
    "SELECT order_key FROM {table} WHERE order_key <> '' AND NOT EXISTS "
    "(SELECT 1 FROM order_due WHERE order_due.order_key = {table}.order_key)"
)
_REVISIONS: Final = (
    "SELECT revisions.seq, revisions.order_key FROM revisions LEFT JOIN revisions AS last "
    "ON last.seq = (SELECT max(seq) FROM revisions AS older "
    "WHERE older.order_key = revisions.order_key AND older.seq < revisions.seq) "
    "WHERE coalesce(last.outcome, '') <> coalesce(revisions.before_outcome, '') "
    "OR coalesce(last.fulfillable, -1) <> coalesce(revisions.before_fulfillable, -1)"
)


async def check_counts(connection: AsyncConnection) -> list[str]:
    """Return sentences on wrong numbers of events, and on orders without a due mark."""
    events = await _count(connection, "events")
    read = await _count(connection, "deliveries", _READ)
    found = []
    if events != read:
        found.append(
            f"the index has {counted(events, 'event')}, but the deliveries give {read:,}; run "
            "`tallyhook db check --deep` to list them"
        )
    tables = ("events", "records", "ledgers")
    sql = " UNION ".join(statement(_WITHOUT_MARK, table=table) for table in tables)
    unmarked = await connection.execute(text(sql))
    return found + [f"order {row[0]} has no time at which it is due" for row in unmarked]


async def check_revisions(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each revision that leaves a gap."""
    return [
        f"revision {seq} of {order} does not follow the one before it"
        for seq, order in await connection.execute(text(_REVISIONS))
    ]


async def count_orders(connection: AsyncConnection) -> int:
    """Return the number of orders with a cached ledger."""
    return await _count(connection, "ledgers")


async def prove_log(connection: AsyncConnection, *, limit: int) -> list[str]:
    """Return about `limit` sentences on missing leaves and rows."""
    size, leaves = await log_size(connection), await _count(connection, "log_leaves")
    found = []
    if size != leaves:
        found.append("leaves of the log are missing; run `tallyhook log verify`")
    if await node_count(connection) != sum(size >> level for level in range(STEP, 64, STEP)):
        found.append("hashes of the log are missing, or too many; run `tallyhook log verify`")
    of_rows = sum([await _count(connection, *sealed) for sealed in _SEALED])
    of_rows += await _count(
        connection, "log_leaves", statement("WHERE kind = '{kind}'", kind=READING)
    )
    if leaves != of_rows:
        found.append(
            f"the log has {counted(leaves, *LEAF)}, but its rows have {of_rows:,}; run `tallyhook "
            "log verify`"
        )
    without = await strays(connection, limit=limit)
    return found + [
        f"{subject} has no leaf in the log, and is not queued for sealing" for subject in without
    ]


_SEALED: Final = tuple(
    (
        kind.table,
        statement(
            "JOIN log_leaves ON log_leaves.subject = {prefix}{key}",
            prefix=f"'{kind.name}:' || " if kind.numbered else "",
            key=kind.key_column,
        ),
    )
    for kind in KINDS
)
