"""Rows of the ledger cache and of the revisions.

If evidence arrives while an order is folded, the order stays due. Revisions get their numbers last
in the transaction, so the feed has no gaps and follows the order of commits.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database import statements
from app.database.mapping import REVISION_AT, REVISION_COLUMNS
from app.orders import listing_store
from app.orders.counter_store import FINDING, OUTCOME, count_anew, standing, tally
from app.orders.notification_store import write_notifications
from app.orders.published_store import REVISIONS, Published, published_of
from app.receiving.due_store import Due, settle_marks
from reconcile.instants import EARLIEST, LATEST, Instant
from reconcile.ledger.ledger import NO_WINDOW, Outcome, PaymentWindow
from reconcile.ledger.revise import Position, Revision

LEDGER_COLUMNS = (
    "order_key",
    "as_of",
    "outcome",
    "fulfillable",
    "findings",
    "substance",
    "next_decision_at",
    "rules",
    "expected_by",
    "method_class",
    "revocable_until",
)

_LEDGERS: Final = table("ledgers", *map(column, LEDGER_COLUMNS))

_REPLACE_LEDGER = statements.statement(
    "ON CONFLICT (order_key) DO UPDATE SET {columns}",
    columns=", ".join(f"{name}=excluded.{name}" for name in LEDGER_COLUMNS[1:]),
)

_WITHOUT_HISTORY: Final = (
    "NOT EXISTS (SELECT 1 FROM events WHERE events.order_key = ledgers.order_key) "
    "AND NOT EXISTS (SELECT 1 FROM records WHERE records.order_key = ledgers.order_key "
    "AND records.kind <> 'redated')"
)
WITHOUT_HISTORY: Final = statements.statement(
    "SELECT order_key FROM ledgers WHERE {without_history}", without_history=_WITHOUT_HISTORY
)
"""SQL query for the orders that have a cached ledger but lost their evidence when deliveries were
read again."""
_DROP_WITHOUT_HISTORY: Final = statements.statement(
    "DELETE FROM ledgers WHERE {without_history}", without_history=_WITHOUT_HISTORY
)

_LATEST_POSITIONS = (
    "SELECT order_key, outcome, fulfillable, substance FROM revisions AS latest "
    "WHERE order_key IN ({}) AND seq = "
    "(SELECT max(seq) FROM revisions WHERE revisions.order_key = latest.order_key)"
)

_LAST_PUBLISHED = (
    "SELECT latest.order_key, latest.outcome, latest.fulfillable, "
    "coalesce(ledgers.as_of, latest.at), ledgers.rules FROM revisions AS latest "
    "LEFT JOIN ledgers ON ledgers.order_key = latest.order_key WHERE latest.order_key IN ({}) AND "
    "latest.seq = (SELECT max(seq) FROM revisions WHERE revisions.order_key = latest.order_key)"
)

ALL_PUBLISHED = (
    "SELECT revisions.order_key, revisions.outcome, revisions.fulfillable, "
    "coalesce(ledgers.as_of, revisions.at), ledgers.rules FROM revisions "
    "LEFT JOIN ledgers ON ledgers.order_key = revisions.order_key "
    "ORDER BY revisions.order_key, revisions.seq"
)


def positions_of(condition: str) -> str:
    """Return an SQL query for the published positions of orders, an order's latest last."""
    return statements.statement(
        "SELECT order_key, outcome, fulfillable, substance FROM revisions "
        "WHERE {condition} ORDER BY order_key, seq",
        condition=condition,
    )


# --- positions and publishing --------------------------------------------------------------------


def position_in(row: Sequence[Any]) -> Position:
    """Return an order's published position from a row (order_key, outcome, fulfillable,
    substance)."""
    return Position(outcome=cast(Outcome, row[1]), fulfillable=bool(row[2]), substance=row[3])


async def latest_positions(
    connection: AsyncConnection, orders: Iterable[str]
) -> dict[str, Position]:
    """Return the last published position of each order that was ever published. The keys are the
    orders' references."""
    return await statements.run(connection, last_positions, orders)


def last_positions(
    connection: statements.PlainConnection, orders: Iterable[str]
) -> dict[str, Position]:
    """Return the last published position of each order that was ever published. The keys are the
    orders' references."""
    rows = statements.select_rows(connection, sql=_LATEST_POSITIONS, values=orders)
    return {row[0]: position_in(row) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPublished:
    """Last publication of an order."""

    order: str
    outcome: str
    fulfillable: bool
    as_of: Instant
    """Latest instant for which a computation gave this result."""
    rules: str | None
    """Short name of its rules, if known."""


def last_published_in(row: Sequence[Any]) -> LastPublished:
    """Return an order's last publication from a row (order_key, outcome, fulfillable, as_of,
    rules)."""
    return LastPublished(
        order=row[0], outcome=row[1], fulfillable=bool(row[2]), as_of=row[3], rules=row[4] or None
    )


def last_published(
    connection: statements.PlainConnection, orders: Iterable[str]
) -> dict[str, LastPublished]:
    """Return the last publication of each order that was ever published. The keys are the orders'
    references."""
    rows = statements.select_rows(connection, sql=_LAST_PUBLISHED, values=orders)
    return {row[0]: last_published_in(row) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Computed ledger of an order, ready to be published."""

    order: str
    as_of: Instant
    position: Position
    findings: str
    next_decision_at: Instant | None
    rules: str
    """Rules by which the ledger was computed."""
    window: PaymentWindow
    """Facts about the order's slow payments."""
    known: bool
    """True if anything is known about the order. Otherwise it is in no list."""
    revision: Revision | None


def publish(
    connection: statements.PlainConnection,
    publications: Sequence[Publication],
    *,
    due: Sequence[Due] = (),
    put_aside_until: Instant | None = None,
    notify: Instant | None = None,
) -> None:
    """Write the ledgers and revisions of orders, and when each is due, in the caller's transaction.

    put_aside_until  when orders that could not be folded are due again
    notify           when notifications of the revisions are due; None to notify nobody
    """
    orders = [each.order for each in publications]
    before, numbers = standing(connection, orders), listing_store.last_numbers(connection, orders)
    listed = [each for each in publications if each.known]
    statements.insert_rows(
        connection,
        table="ledgers",
        columns=LEDGER_COLUMNS,
        rows=[ledger_row(each) for each in listed],
        conflict=_REPLACE_LEDGER,
    )
    for each in publications:
        if not each.known:
            connection.ask("DELETE FROM ledgers WHERE order_key=?", (each.order,))
    if due:
        decisions = {each.order: each.next_decision_at for each in publications}
        settle_marks(
            connection,
            [(m.order, decisions.get(m.order, put_aside_until), m.generation) for m in due],
        )
    revisions = [each.revision for each in publications if each.revision is not None]
    after = {each.order: (each.position.outcome, each.findings) for each in listed}
    unmoved = after.keys() - {each.order for each in revisions}
    old = listing_store.lists_of(before, numbers)
    listing_store.leave_lists(
        connection, old - listing_store.lists_of({each: after[each] for each in unmoved}, numbers)
    )
    # Rows with numbers come last: until the commit nobody else can publish.
    first = tally(
        connection, before=before.values(), after=after.values(), revisions=len(revisions)
    )
    statements.insert_rows(
        connection,
        table="revisions",
        columns=REVISION_COLUMNS,
        rows=[_revision_row(first + n, each) for n, each in enumerate(revisions)],
    )
    if notify is not None:
        write_notifications(connection, revisions, first=first, now=notify)
    numbers |= {each.order: first + n for n, each in enumerate(revisions)}
    listing_store.enter_lists(connection, listing_store.lists_of(after, numbers) - old)


def ledger_row(publication: Publication) -> tuple[Any, ...]:
    """Return a publication's values for the columns in LEDGER_COLUMNS."""
    position = publication.position
    return (
        publication.order,
        publication.as_of,
        position.outcome,
        int(position.fulfillable),
        publication.findings,
        position.substance,
        publication.next_decision_at,
        publication.rules,
        *publication.window,
    )


def _revision_row(seq: int, revision: Revision) -> tuple[Any, ...]:
    before = revision.before
    return (
        seq,
        revision.order,
        revision.at,
        revision.after.outcome,
        int(revision.after.fulfillable),
        revision.after.substance,
        None if before is None else before.outcome,
        None if before is None else int(before.fulfillable),
        json.dumps(revision.because, ensure_ascii=False),
    )


# --- reading -------------------------------------------------------------------------------------


async def feed(connection: AsyncConnection, *, after: int, limit: int) -> list[Published]:
    """Return revisions of orders' ledgers from the feed, in the order of their publication.

    after  number of the last revision to leave out
    """
    later = select(REVISIONS).where(REVISIONS.c.seq > after)
    rows = await connection.execute(later.order_by(REVISIONS.c.seq).limit(limit))
    return [published_of(row) for row in rows]


_WINDOWS: Final = (
    "SELECT order_key, expected_by, method_class, revocable_until FROM ledgers "
    "WHERE order_key IN ({})"
)


async def windows_of_orders(
    connection: AsyncConnection, orders: Collection[str]
) -> dict[str, PaymentWindow]:
    """Return the facts about slow payments of each order, as its last ledger states them."""
    rows = await statements.select_in(connection, sql=_WINDOWS, values=orders)
    return dict.fromkeys(orders, NO_WINDOW) | {row[0]: PaymentWindow(*row[1:]) for row in rows}


_SUPERSEDED: Final = (
    "SELECT seq FROM revisions WHERE seq IN ({}) AND EXISTS (SELECT 1 FROM revisions AS later "
    "WHERE later.order_key = revisions.order_key AND later.seq > revisions.seq)"
)


async def superseded(connection: AsyncConnection, revisions: Iterable[int]) -> list[int]:
    """Return those of the revisions whose order has a later revision, sorted by number."""
    rows = await statements.select_in(connection, sql=_SUPERSEDED, values=revisions)
    return sorted(row[0] for row in rows)


async def times_released(connection: AsyncConnection, order: str) -> int:
    """Return the number of times that the feed has made an order fulfillable."""
    found = await connection.execute(
        text(
            "SELECT count(*) FROM revisions WHERE order_key=:order AND fulfillable=1 "
            "AND coalesce(before_fulfillable, 0)=0"
        ),
        {"order": order},
    )
    return int(found.scalar_one())


PUBLISHED_BETWEEN: Final = (
    "order_key IN (SELECT revisions.order_key FROM revisions WHERE at >= :since AND at < :until)"
)


async def listed_orders(
    connection: AsyncConnection,
    *,
    after: str,
    limit: int,
    outcome: str | None = None,
    finding: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> list[str]:
    """Return the references of orders in the ledger cache, sorted.

    after         reference after which the orders begin
    since, until  only orders published from `since` to before `until`
    """
    key = _LEDGERS.c.order_key
    listing = select(key).where(key > after)
    if outcome is not None:
        listing = listing.where(_LEDGERS.c.outcome == outcome)
    if finding is not None:
        listing = listing.where(_LEDGERS.c.findings.like(f"%|{finding}|%"))
    if since is not None or until is not None:
        bounds = {
            "since": EARLIEST if since is None else since,
            "until": LATEST if until is None else until,
        }
        listing = listing.where(text(PUBLISHED_BETWEEN).bindparams(**bounds))
    rows = await connection.execute(listing.order_by(key).limit(limit))
    return [row[0] for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRevision:
    """Number and instant of the last revision of an order."""

    order: str
    seq: int
    at: Instant


_ABOVE_ALL: Final = 2**62

_LATEST: Final = (
    "SELECT order_key, seq, at FROM revisions WHERE NOT EXISTS "
    "(SELECT 1 FROM revisions AS later WHERE later.order_key = revisions.order_key "
    "AND later.seq > revisions.seq) AND seq < :before ORDER BY seq DESC LIMIT :limit",
    "SELECT listed.order_key, listed.seq, at FROM order_listings AS listed "
    "JOIN revisions ON revisions.seq = listed.seq "
    "WHERE listed.word = :word_0 AND listed.seq < :before ORDER BY listed.seq DESC LIMIT :limit",
    "SELECT listed.order_key, listed.seq, at FROM order_listings AS listed "
    "JOIN revisions ON revisions.seq = listed.seq "
    "WHERE listed.word = :word_0 AND listed.seq < :before AND EXISTS "
    "(SELECT 1 FROM order_listings AS other WHERE other.word = :word_1 "
    "AND other.seq = listed.seq) ORDER BY listed.seq DESC LIMIT :limit",
)


async def latest_orders(
    connection: AsyncConnection,
    *,
    before: int | None,
    limit: int,
    outcome: str | None = None,
    finding: str | None = None,
) -> list[LastRevision]:
    """Return the last revision of each order that matches the filters, newest first.

    before  only smaller numbers; None for all
    """
    found = ((FINDING, finding), (OUTCOME, outcome))
    words = [kind + word for kind, word in found if word is not None]
    values: dict[str, Any] = {"before": _ABOVE_ALL if before is None else before, "limit": limit}
    values |= {f"word_{place}": word for place, word in enumerate(words)}
    rows = await connection.execute(text(_LATEST[len(words)]), values)
    return [LastRevision(order=row[0], seq=row[1], at=row[2]) for row in rows]


async def last_revision(connection: AsyncConnection) -> int:
    """Return the number of the newest revision. Return 0 if there is none."""
    found = await connection.execute(text("SELECT max(seq) FROM revisions"))
    return int(found.scalar_one() or 0)


_KNOWN: Final = statements.statement("{at} <= :until", at=REVISION_AT)


async def revisions_of_order(
    connection: AsyncConnection, order: str, *, until: Instant, limit: int
) -> list[Published]:
    """Return an order's revisions that were known at an instant, newest first."""
    known = text(_KNOWN).bindparams(until=until)
    of_order = select(REVISIONS).where(REVISIONS.c.order_key == order, known)
    rows = await connection.execute(of_order.order_by(REVISIONS.c.seq.desc()).limit(limit))
    return [published_of(row) for row in rows]


async def drop_ledger_lines(connection: AsyncConnection) -> None:
    """Empty the cache of ledger lines for reconciliation. The next reconciliation fills the cache
    again."""
    await connection.execute(text("DELETE FROM takings"))


async def drop_ledgers_without_history(connection: AsyncConnection) -> None:
    """Delete the cached ledgers of orders that have no evidence any more. Counters and lists are
    rebuilt."""
    await connection.execute(text(_DROP_WITHOUT_HISTORY))
    await count_anew(connection)
    await listing_store.list_anew(connection)
