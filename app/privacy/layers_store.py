"""Proves by sets of rows that the layers of a store fit together; no body is read again.

    deliveries   bodies have their digest and size; each delivery that was read has its event
    events       each has its delivery, the order that it names, and its links
    records      have their links
    links        each is given by an event or a record; contested orders are those that share one
    orders       have a mark; what is not due has a ledger, which is what was last published
    the log      leaves without gaps, one for each row that does not wait for one

Every proof is one statement over a range of keys. It selects the rows that do not fit, so a sound
store returns none, whatever its size. Which fields of an event its body gives, and which ledger a
history gives, is not proved here: that takes reading and folding.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.text import LEAF, counted
from app.database.statements import statement
from app.evidence.store import node_count, strays
from app.privacy.consistency_store import differing_contests
from app.receiving.correlation_store import RETURNED
from app.sealing.leaf_store import KINDS, READING
from app.sealing.log_queue_store import log_size
from reconcile.instants import Instant
from reconcile.transparency.merkle import STEP

AT_ONCE: Final = 20_000
"""Rows in one range: a tenth of a second's work."""


class LayerProof(NamedTuple):
    """Condition of the rows that do not fit, and the sentence that their columns fill in."""

    sentence: str
    columns: str
    misfit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A table that is read in key ranges, and the proofs for each range.

    before  comes before every key
    beside  rows of other tables that are looked at with it
    """

    table: str
    key: str
    before: str | int
    beside: str = ""
    proofs: tuple[LayerProof, ...] = ()


class KeySpan(NamedTuple):
    """Range of a layer's keys, in SQL with its values, and the number of rows in it."""

    condition: str
    values: Mapping[str, Any]
    rows: int


_ITS_EVENT: Final = (
    "events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest AND events.received_at = deliveries.received_at"
)
_READ: Final = "deliveries.verdict IN ('stored', 'duplicate_with_different_body', 'not_ours')"
_WITHOUT_EVENT: Final = statement(
    "{read} AND NOT EXISTS (SELECT 1 FROM events WHERE {its_event} "
    "AND events.delivery_id = deliveries.id)",
    read=_READ,
    its_event=_ITS_EVENT,
)

_DELIVERIES: Final = Layer(
    table="deliveries",
    key="deliveries.id",
    before="",
    proofs=(
        LayerProof(
            "the body of {} does not have its size",
            "id",
            "body IS NOT NULL AND length(body) <> size",
        ),
        LayerProof(
            "the body of {} is gone, and was not pruned",
            "id",
            "body IS NULL AND verdict <> 'duplicate' AND pruned_at IS NULL",
        ),
        LayerProof(
            "the event {} of {} is missing in the index",
            "coalesce(event_id, 'without an id'), id",
            statement("pruned_at IS NULL AND {without}", without=_WITHOUT_EVENT),
        ),
        LayerProof(
            "{} was pruned, and its event is gone",
            "id",
            statement("pruned_at IS NOT NULL AND {without}", without=_WITHOUT_EVENT),
        ),
        LayerProof(
            "the verdict of {} does not fit its event",
            "id",
            "verdict NOT IN ('stored', 'duplicate_with_different_body', 'duplicate', 'not_ours') "
            "AND NOT (verdict = 'unreadable' AND event_id IS NULL)",
        ),
        LayerProof(
            "the whole body that {} came in is missing",
            "id",
            "envelope IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM envelopes WHERE envelopes.digest = deliveries.envelope)",
        ),
    ),
)


_LINKED: Final = (
    "(EXISTS (SELECT 1 FROM links WHERE links.reference = events.payment "
    "AND links.kind = 'payment' AND links.source = events.source AND {to}) "
    "OR EXISTS (SELECT 1 FROM links WHERE links.reference = events.session "
    "AND links.kind = 'session' AND links.source = events.source AND {to}))"
)

_EVENTS: Final = Layer(
    table="events",
    key='events."row"',
    before=-(2**62),
    proofs=(
        LayerProof(
            "the event {} of {} is in the index, and no delivery gives it",
            "event_id, coalesce(order_key, 'no order')",
            statement(
                "NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.id = events.delivery_id "
                "AND {its_event} AND {read})",
                its_event=_ITS_EVENT,
                read=_READ,
            ),
        ),
        LayerProof(
            "the event {} names {}, and is kept under {}",
            "event_id, order_ref, coalesce(order_key, 'no order')",
            # For another shop's event, the order that it names is that shop's.
            "order_ref IS NOT NULL AND (order_key IS NULL OR order_key <> order_ref) "
            "AND (shop IS NULL OR shop <> 'other')",
        ),
        LayerProof(
            "the event {} of no order has a link to one",
            "event_id",
            statement("order_key IS NULL AND {linked}", linked=statement(_LINKED, to="1 = 1")),
        ),
        LayerProof(
            "the event {} of {} names no order, and has no link to it",
            "event_id, order_key",
            statement(
                "order_ref IS NULL AND order_key IS NOT NULL AND NOT {linked}",
                linked=statement(_LINKED, to="links.order_key = events.order_key"),
            ),
        ),
    ),
)

_RECORDS: Final = Layer(table="records", key="records.id", before="")


_LINKS: Final = Layer(
    table="links",
    key="links.reference",
    before="",
    proofs=(
        LayerProof(
            "the link {} of {} is in the index, and nothing gives it",
            "reference, order_key",
            "NOT EXISTS (SELECT 1 FROM events WHERE events.order_key = links.order_key "
            "AND events.source = links.source AND links.reference = "
            "CASE WHEN links.kind IN ('payment', 'payment_returned') THEN events.payment "
            "ELSE events.session END "
            "AND events.standing <> 'unconfirmed') "
            "AND NOT EXISTS (SELECT 1 FROM records WHERE records.order_key = links.order_key "
            "AND records.source = links.source AND links.reference = "
            "CASE links.kind WHEN 'payment' THEN records.payment ELSE records.session END)",
        ),
    ),
)

_REVISIONS: Final = Layer(
    table="revisions",
    key="revisions.seq",
    before=-(2**62),
    beside="LEFT JOIN revisions AS last ON last.seq = (SELECT max(seq) FROM revisions AS older "
    "WHERE older.order_key = revisions.order_key AND older.seq < revisions.seq)",
    proofs=(
        LayerProof(
            "revision {} of {} does not follow the one before it",
            "revisions.seq, revisions.order_key",
            "coalesce(last.outcome, '') <> coalesce(revisions.before_outcome, '') "
            "OR coalesce(last.fulfillable, -1) <> coalesce(revisions.before_fulfillable, -1)",
        ),
    ),
)

_NOT_DUE: Final = "(order_due.due_at IS NULL OR order_due.due_at > :claimed)"

_ORDERS: Final = Layer(
    table="order_due",
    key="order_due.order_key",
    before="",
    beside="LEFT JOIN ledgers ON ledgers.order_key = order_due.order_key "
    "LEFT JOIN revisions AS latest ON latest.seq = "
    "(SELECT max(seq) FROM revisions WHERE revisions.order_key = order_due.order_key)",
    proofs=(
        LayerProof(
            "the ledger of {} is not cached, and nothing is due",
            "order_due.order_key",
            statement(
                "{not_due} AND ledgers.order_key IS NULL AND (EXISTS (SELECT 1 FROM events "
                "WHERE events.order_key = order_due.order_key) OR EXISTS (SELECT 1 FROM records "
                "WHERE records.order_key = order_due.order_key))",
                not_due=_NOT_DUE,
            ),
        ),
        LayerProof(
            "the ledger of {} was folded by other rules",
            "order_due.order_key",
            statement("{not_due} AND ledgers.rules <> :rules", not_due=_NOT_DUE),
        ),
        LayerProof(
            "the due mark of {} is not at its ledger's next decision",
            "order_due.order_key",
            statement(
                "{not_due} AND ledgers.order_key IS NOT NULL "
                "AND coalesce(order_due.due_at, -1) <> coalesce(ledgers.next_decision_at, -1)",
                not_due=_NOT_DUE,
            ),
        ),
        LayerProof(
            "the ledger of {} is not what was last published of it",
            "order_due.order_key",
            statement(
                "{not_due} AND CASE WHEN latest.seq IS NULL "
                "THEN ledgers.outcome <> 'not_attempted' OR ledgers.findings <> '' "
                "ELSE ledgers.substance <> latest.substance OR ledgers.outcome <> latest.outcome "
                "OR ledgers.fulfillable <> latest.fulfillable END",
                not_due=_NOT_DUE,
            ),
        ),
    ),
)


async def rows_to_prove(connection: AsyncConnection) -> int:
    """Return how many rows the proofs read."""
    layers = (_DELIVERIES, _EVENTS, _RECORDS, _LINKS, _ORDERS)
    return sum([await _count(connection, layer.table) for layer in layers])


_COUNT: Final = "SELECT count(*) FROM {table} {which}"
_STEP: Final = "SELECT {key} FROM {table} WHERE {key} > :after ORDER BY {key} LIMIT 1 OFFSET :rows"
_ANY_MISFIT: Final = "SELECT 1 FROM {table} {beside} WHERE {span} AND ({misfit}) LIMIT 1"
_MISFITS: Final = "SELECT {columns} FROM {table} {beside} WHERE {span} AND ({misfit})"


async def _count(connection: AsyncConnection, table: str, which: str = "") -> int:
    return int(await connection.scalar(text(statement(_COUNT, table=table, which=which))) or 0)


async def _spans(connection: AsyncConnection, layer: Layer) -> AsyncIterator[KeySpan]:
    """Yield all keys of a layer, in ranges of about equally many rows."""
    key, after, last = layer.key, layer.before, None
    step = text(statement(_STEP, key=key, table=layer.table))
    to_the_end = statement("{key} > :after", key=key)
    to_the_last = statement("{key} > :after AND {key} <= :last", key=key)
    rest = await _count(connection, layer.table)
    while True:
        last = await connection.scalar(step, {"after": after, "rows": AT_ONCE - 1})
        if last is None:
            yield KeySpan(to_the_end, {"after": after}, rest)
            return
        rows = min(AT_ONCE, rest)
        yield KeySpan(to_the_last, {"after": after, "last": last}, rows)
        after, rest = last, rest - rows


async def _misfits(
    connection: AsyncConnection, layer: Layer, span: KeySpan, values: Mapping[str, Any]
) -> list[str]:
    """Return a sentence for each row in the span that does not fit. One statement first asks
    whether there is any; a sound store has none."""
    rows = {"table": layer.table, "beside": layer.beside, "span": span.condition}
    anything = " OR ".join(f"({proof.misfit})" for proof in layer.proofs)
    given = {**span.values, **values}
    sql = statement(_ANY_MISFIT, misfit=anything, **rows)
    if await connection.scalar(text(sql), given) is None:
        return []
    found: list[str] = []
    for proof in layer.proofs:
        sql = statement(_MISFITS, columns=proof.columns, misfit=proof.misfit, **rows)
        own = {name: value for name, value in given.items() if f":{name}" in sql}
        found += [proof.sentence.format(*row) for row in await connection.execute(text(sql), own)]
    return found


Step = tuple[int, Sequence[str]]
"""Number of rows checked, and a sentence for each row that does not fit."""


async def _prove(
    connection: AsyncConnection, layer: Layer, values: Mapping[str, Any] | None = None
) -> AsyncIterator[Step]:
    async for span in _spans(connection, layer):
        yield span.rows, await _misfits(connection, layer, span, values or {})


# --- deliveries ----------------------------------------------------------------------------------


class Odd(NamedTuple):
    """A delivery whose digest is not the SHA-256 of its body. Without a body, the digest is that of
    the query, which is in the headers."""

    delivery_id: str
    digest: str
    headers: str
    body: bytes


class Bodies(NamedTuple):
    """Counts of bodies, and of missing bodies that their delivery brought first."""

    kept: int
    pruned: int


async def count_bodies(connection: AsyncConnection) -> Bodies:
    """Count the bodies."""
    row = await connection.execute(
        text(
            "SELECT count(body), count(CASE WHEN body IS NULL AND verdict <> 'duplicate' "
            "THEN 1 END) FROM deliveries"
        )
    )
    return Bodies(*row.one())


_ODD_BODIES: Final = (
    "SELECT id, digest, headers, body FROM deliveries WHERE {span} AND body IS NOT NULL "
    "AND ({computed} <> digest OR length(body) = 0)"
)
_ODD_WHOLES: Final = "SELECT digest FROM envelopes WHERE body IS NOT NULL AND {computed} <> digest"
_ODD_FILES: Final = "SELECT sha256 FROM attachment_files WHERE {computed} <> sha256 ORDER BY sha256"


async def odd_bodies(connection: AsyncConnection) -> AsyncIterator[list[Odd]]:
    """Yield deliveries whose digest is not the SHA-256 of their body, range by range."""
    digest = await _digest(connection)
    async for span in _spans(connection, _DELIVERIES):
        sql = statement(_ODD_BODIES, span=span.condition, computed=digest)
        rows = await connection.execute(text(sql), dict(span.values))
        yield [Odd(*row) for row in rows]


async def odd_wholes(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each whole body of several events that does not match its digest."""
    sql = statement(_ODD_WHOLES, computed=await _digest(connection))
    rows = await connection.execute(text(sql))
    return [f"the whole body {row[0]} does not have its digest" for row in rows]


async def odd_attachments(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each attached file whose bytes are missing or do not match its
    digest."""
    gone = await connection.execute(
        text(
            "SELECT id FROM attachments WHERE gone_at IS NULL AND NOT EXISTS (SELECT 1 FROM "
            "attachment_files WHERE attachment_files.sha256 = attachments.sha256) ORDER BY id"
        )
    )
    sql = statement(_ODD_FILES, computed=await _digest(connection))
    odd = await connection.execute(text(sql))
    return [
        *(f"the bytes of {row[0]} are gone: restore a backup, or detach it" for row in gone),
        *(f"the attached file {row[0]} does not have its digest: restore a backup" for row in odd),
    ]


async def _digest(connection: AsyncConnection) -> str:
    """Return the SQL for the SHA-256 of a body, in hex. PostgreSQL has such a function; SQLite gets
    ours."""
    if connection.dialect.name != "sqlite":
        return "encode(sha256(body), 'hex')"
    raw = await connection.get_raw_connection()
    assert raw.driver_connection is not None
    await raw.driver_connection.create_function("body_digest", 1, _hex, deterministic=True)
    return "body_digest(body)"


def _hex(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


async def prove_deliveries(connection: AsyncConnection) -> AsyncIterator[Step]:
    """Check that each delivery was read as a stored event, or not at all."""
    async for step in _prove(connection, _DELIVERIES):
        yield step


# --- events, links and contests ------------------------------------------------------------------

Pairs = set[tuple[str, str]]
"""Orders that share a reference or an event id."""

_OTHER_LINK: Final = (
    "SELECT {table}.{reference}, {table}.order_key, links.order_key FROM {table} LEFT JOIN links "
    "ON links.reference = {table}.{reference} AND links.kind = '{reference}{end}' "
    "AND links.source = {table}.source "
    "WHERE {span} AND {table}.order_key IS NOT NULL AND {table}.{reference} IS NOT NULL "
    "AND {condition} AND (links.order_key IS NULL OR links.order_key <> {table}.order_key)"
)
_RETURNS: Final = (
    "(events.standing <> 'unconfirmed' AND coalesce(events.shop, '') <> 'other' "
    "AND events.order_ref IS NOT NULL AND events.claim IN "
    "('refunded', 'refund_pending', 'refund_failed', 'reversed', 'disputed', 'dispute_won', "
    "'dispute_lost'))"
)
"""Condition on an event that names an order but must not link anything (`placing.may_link`)."""

_SAME_ID: Final = (
    "SELECT source, event_id, coalesce(order_ref, order_key) FROM events "
    "WHERE standing <> 'unconfirmed' AND event_id IN "
    "(SELECT event_id FROM events GROUP BY event_id HAVING count(*) > 1)"
)


async def prove_index(connection: AsyncConnection) -> AsyncIterator[Step]:
    """Check that events have deliveries, orders and links; that links have events or records; and
    that contests are complete."""
    pairs = await _of_one_id(connection)
    for layer, condition in (
        (_EVENTS, f"events.standing <> 'unconfirmed' AND NOT {_RETURNS}"),
        (_RECORDS, "records.source IS NOT NULL AND records.order_key <> ''"),
    ):
        async for span in _spans(connection, layer):
            found = await _other_links(connection, layer.table, span, condition, pairs)
            if layer is _EVENTS:
                found += await _other_links(
                    connection, layer.table, span, _RETURNS, pairs, end=RETURNED
                )
                # Its payment may be linked to another order, or to none.
                await _other_links(connection, layer.table, span, _RETURNS, pairs)
            if layer.proofs:
                found += await _misfits(connection, layer, span, {})
            yield span.rows, found
    async for step in _prove(connection, _LINKS):
        yield step
    both = [pair for one, other in pairs for pair in ((one, other), (other, one))]
    yield 0, [sentence async for sentence in differing_contests(connection, both)]


async def _of_one_id(connection: AsyncConnection) -> Pairs:
    orders: dict[tuple[str, str], set[str]] = {}
    for source, event_id, order in await connection.execute(text(_SAME_ID)):
        if order is not None:
            orders.setdefault((source, event_id), set()).add(order)
    return {pair for each in orders.values() for pair in combinations(sorted(each), 2)}


async def _other_links(
    connection: AsyncConnection,
    table: str,
    span: KeySpan,
    condition: str,
    pairs: Pairs,
    *,
    end: str = "",
) -> list[str]:
    """Return rows without the expected link at this end. Rows linked to another order than their
    own are added to `pairs`."""
    found = []
    for reference in ("payment", "session"):
        sql = statement(
            _OTHER_LINK,
            table=table,
            reference=reference,
            span=span.condition,
            condition=condition,
            end=end,
        )
        for name, order, other in await connection.execute(text(sql), dict(span.values)):
            if other is None:
                found.append(f"the link {name} of {order} is missing in the index")
            else:
                pairs.add((order, other))
    return found


# --- orders and their published revisions ---------------------------------------------------------


_WITHOUT_MARK: Final = (
    "SELECT order_key FROM {table} WHERE order_key <> '' AND NOT EXISTS "
    "(SELECT 1 FROM order_due WHERE order_due.order_key = {table}.order_key)"
)


async def prove_marks(connection: AsyncConnection) -> list[str]:
    """Return a sentence on each order with events, records or a ledger but without a due mark."""
    tables = ("events", "records", "ledgers")
    sql = " UNION ".join(statement(_WITHOUT_MARK, table=table) for table in tables)
    return [f"order {row[0]} has no due mark" for row in await connection.execute(text(sql))]


async def prove_revisions(connection: AsyncConnection) -> AsyncIterator[Sequence[str]]:
    """Yield a sentence on each revision that does not begin where the order's last one ended."""
    async for _, found in _prove(connection, _REVISIONS):
        yield found


async def prove_orders(
    connection: AsyncConnection, *, claimed: Instant, rules: str
) -> AsyncIterator[Step]:
    """Check that orders that are not due have the ledger that was published last, and its due time.

    claimed  marks after this instant wait; those before it are due, or just being folded
    """
    async for step in _prove(connection, _ORDERS, {"claimed": claimed, "rules": rules}):
        yield step


async def count_orders(connection: AsyncConnection) -> int:
    """Return how many orders have a cached ledger."""
    return await _count(connection, "ledgers")


# --- the log -------------------------------------------------------------------------------------


async def prove_log(connection: AsyncConnection, *, limit: int) -> list[str]:
    """Return up to about `limit` sentences on missing leaves, leaves without a row, and rows that
    neither have a leaf nor wait for one. `log verify` checks hashes and signatures."""
    size, leaves = await log_size(connection), await _count(connection, "log_leaves")
    found = []
    if size != leaves:
        found.append("leaves of the log are missing; see `tallyhook log verify`")
    if await node_count(connection) != sum(size >> level for level in range(STEP, 64, STEP)):
        found.append("hashes of the log are missing, or too many; see `tallyhook log verify`")
    of_rows = sum([await _count(connection, *sealed) for sealed in _SEALED])
    of_rows += await _count(
        connection, "log_leaves", statement("WHERE kind = '{kind}'", kind=READING)
    )
    if leaves != of_rows:
        found.append(
            f"the log has {counted(leaves, *LEAF)}, and the rows that are there have {of_rows:,}; "
            "see `tallyhook log verify`"
        )
    without = await strays(connection, limit=limit)
    return found + [f"{subject} has no leaf in the log, and waits for none" for subject in without]


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
