"""Read statement lines as known at an instant."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import COUNTS_FROM, EVENT_AT
from app.database.statements import Rows, select_in, statement, stream
from app.finance import import_store, staged_rows
from app.finance.line_version_store import lines_known
from reconcile.instants import Instant
from reconcile.matching.books import Payout, StatementLine, match_key

_WALLETS: Final = statement(
    "SELECT source, wallet, currency, settled_at, line || '.' || since, kind, payment, net, "
    "balance FROM statement_lines WHERE wallet IS NOT NULL AND settled_at IS NOT NULL AND {known} "
    "ORDER BY source, wallet, currency, settled_at",
    known=import_store.KNOWN,
)


async def wallet_rows(connection: AsyncConnection, *, as_of: Instant) -> AsyncIterator[Rows]:
    """Yield the dated changes of wallets."""
    values = {"number": await import_store.newest_published(connection, as_of=as_of)}
    async for rows in stream(connection, _WALLETS, at_once=AT_ONCE, values=values):
        yield rows


AT_ONCE: Final = 4_000

NO_KEY: Final = ""

COLUMNS: Final = (
    "key",
    "line_id",
    "payment",
    "order_ref",
    "kind",
    "currency",
    "gross",
    "fee",
    "net",
    "settled_at",
    "payout",
    "source",
    "known_at",
    "wallet",
    "refund",
    "details",
)

# Only for the few lines without a date: the first import that stated the line.
_SEEN_AT: Final = """
    CASE WHEN settled_at IS NULL THEN (SELECT published_at FROM imports WHERE number = (
        SELECT min(version.since) FROM statement_lines AS version
        WHERE version.subject = statement_lines.subject AND version.kind = statement_lines.kind
        AND version.source = statement_lines.source
        AND version.ordinal = statement_lines.ordinal
    )) END
"""

_FIELDS: Final = (
    "line || '.' || since, {payment}, order_ref, kind, currency, gross, fee, net, settled_at, "
    "payout, source, {seen_at}, wallet, refund, details"
)
ROW_FIELDS: Final = statement(_FIELDS, payment="payment", seen_at=_SEEN_AT)

# By the order's own events. A reference that several payments share stays as in the file.
_OF_PAYMENT: Final = statement(
    """
    CASE WHEN statement_lines.kind IN ('refund', 'returned', 'dispute') THEN coalesce((
        SELECT CASE WHEN min(events.payment) = max(events.payment) THEN min(events.payment) END
        FROM events WHERE events.order_key = statement_lines.order_ref
        AND events.movement = statement_lines.payment AND events.standing <> 'unconfirmed'
        AND statement_lines.source IN ('', events.source) AND {event_at} <= :as_of
    ), statement_lines.payment) ELSE statement_lines.payment END
""",
    event_at=EVENT_AT,
)
_OF_PAYMENTS: Final = statement(_FIELDS, payment=_OF_PAYMENT, seen_at=_SEEN_AT)

_NAMED: Final = (
    "SELECT match_key, {row} FROM statement_lines WHERE {known} AND {keys} ORDER BY match_key"
)
_NAMED_FROM: Final = statement(
    _NAMED, row=_OF_PAYMENTS, known=import_store.KNOWN, keys="match_key >= :first"
)
_NAMED_BETWEEN: Final = statement(
    _NAMED,
    row=_OF_PAYMENTS,
    known=import_store.KNOWN,
    keys="match_key >= :first AND match_key < :beyond",
)
_KEYED: Final = statement("match_key, {row}", row=ROW_FIELDS)
_OF_PAYOUT: Final = statement(
    "SELECT match_key, {row} FROM statement_lines WHERE {known} AND payout = :payout "
    "AND source = :source AND currency = :currency ORDER BY line, since LIMIT :limit",
    row=ROW_FIELDS,
    known=import_store.KNOWN,
)
_CALLED: Final = statement(
    "SELECT DISTINCT source, currency FROM statement_lines WHERE {known} AND payout = :payout "
    "ORDER BY source, currency",
    known=import_store.KNOWN,
)
_ORDERS_OF: Final = (
    "SELECT DISTINCT order_key FROM links WHERE kind = 'payment' AND reference IN ({}) "
    "ORDER BY order_key"
)

# One event on the payment must have come by `as_of`. A payment that renews an agreement does not
# belong to the order that its events name, unless the shop or a person says so.
_ORDER: Final = statement(
    """
    SELECT CASE WHEN min(links.order_key) = max(links.order_key) THEN min(links.order_key) END
    FROM links WHERE links.reference = statement_lines.payment AND links.kind = 'payment'
    AND statement_lines.source IN ('', links.source)
    AND EXISTS (SELECT 1 FROM events WHERE events.order_key = links.order_key
        AND events.payment = statement_lines.payment AND {event_at} <= :as_of)
    AND NOT EXISTS (SELECT 1 FROM events AS own JOIN events AS earlier
        ON earlier.agreement = own.agreement AND earlier.source = own.source
        AND earlier.order_key = own.order_key AND earlier.payment <> own.payment
        WHERE own.order_key = links.order_key AND own.source = links.source
        AND own.payment = links.reference AND own.agreement IS NOT NULL
        AND earlier.claim = 'succeeded' AND earlier.standing <> 'unconfirmed'
        AND {earlier_at} <= :as_of
        AND (coalesce(earlier.occurred_at, earlier.received_at), earlier.payment)
        < (coalesce(own.occurred_at, own.received_at), own.payment)
        AND NOT EXISTS (SELECT 1 FROM records WHERE records.order_key = own.order_key
            AND records.payment = own.payment AND records.recorded_at <= :as_of
            AND records.kind IN ('reference_named', 'payment_assigned')))
""",
    event_at=EVENT_AT,
    earlier_at=statement(COUNTS_FROM, thing="earlier.delivery_id", stored="earlier.received_at"),
)

_NAMELESS: Final = statement(
    "SELECT ({order}), {row} FROM statement_lines WHERE match_key IS NULL AND {known}",
    order=_ORDER,
    row=ROW_FIELDS,
    known=import_store.KNOWN,
)

_BY_OWN_NAME: Final = statement(
    "SELECT movement, source, payment, order_key FROM events WHERE movement IS NOT NULL "
    "AND order_key IS NOT NULL AND standing <> 'unconfirmed' AND {at} <= :as_of",
    at=EVENT_AT,
)

_GOING_BACK: Final = ("refund", "returned", "dispute")

_Reported = dict[str, dict[str, set[tuple[str | None, str]]]]


async def statement_rows(
    connection: AsyncConnection, *, as_of: Instant, first: str = "", beyond: str | None = None
) -> AsyncIterator[Rows]:
    """Yield batches of statement lines, sorted by key."""
    number = await import_store.newest_published(connection, as_of=as_of)
    nameless = staged_rows.Staged(COLUMNS, order=("key", "line_id"))
    with closing(nameless):
        async for rows in _nameless(connection, {"number": number, "as_of": as_of}):
            nameless.add(
                row for row in rows if row[0] >= first and (beyond is None or row[0] < beyond)
            )
        sql = _NAMED_FROM if beyond is None else _NAMED_BETWEEN
        values: dict[str, Any] = {"number": number, "first": first, "as_of": as_of}
        values |= {} if beyond is None else {"beyond": beyond}
        named = stream(connection, sql, at_once=AT_ONCE, values=values)
        others = (row for rows in nameless.in_order() for row in rows)
        async for rows in _merged(named, others):
            yield rows


_SETTLED: Final = statement(
    "SELECT source, currency, gross, fee, details FROM statement_lines WHERE kind = 'payment' "
    "AND settled_at >= :begin AND settled_at < :finish AND {known}",
    known=import_store.KNOWN,
)


async def settled_payments(
    connection: AsyncConnection, *, since: Instant, until: Instant
) -> AsyncIterator[Rows]:
    """Yield the payments settled between two instants, in batches."""
    number = await import_store.newest_published(connection)
    values = {"number": number, "begin": since, "finish": until}
    async for rows in stream(connection, _SETTLED, at_once=AT_ONCE, values=values):
        yield rows


async def _nameless(connection: AsyncConnection, known: dict[str, Any]) -> AsyncIterator[Rows]:
    unknown = staged_rows.Staged(COLUMNS, order=("line_id",))
    with closing(unknown):
        async for rows in stream(connection, _NAMELESS, at_once=AT_ONCE, values=known):
            own = [row[0] is None and row[2] is not None and row[4] in _GOING_BACK for row in rows]
            unknown.add(row for row, apart in zip(rows, own, strict=True) if apart)
            yield [
                (_key_of(row[0]), *row[1:])
                for row, apart in zip(rows, own, strict=True)
                if not apart
            ]
        if unknown.count():
            names = {row[2] for rows in unknown.in_order() for row in rows}
            reported: _Reported = defaultdict(lambda: defaultdict(set))
            values = {"as_of": known["as_of"]}
            async for rows in stream(connection, _BY_OWN_NAME, at_once=AT_ONCE, values=values):
                for movement, source, payment, order in rows:
                    if movement in names:
                        reported[movement][source].add((payment, order))
            for rows in unknown.in_order():
                yield [_by_own_name(row, reported) for row in rows]


def _by_own_name(row: tuple[Any, ...], reported: _Reported) -> tuple[Any, ...]:
    of_source = reported.get(row[2], {})
    found = {each for source, some in of_source.items() if row[11] in ("", source) for each in some}
    payments, orders = ({each[part] for each in found} - {None} for part in (0, 1))
    if len(orders) != 1 or len(payments) > 1:
        return (NO_KEY, *row[1:])
    return (_key_of(orders.pop()), row[1], payments.pop() if payments else None, *row[3:])


def _key_of(order: str | None) -> str:
    return NO_KEY if order is None else match_key(order)


async def _merged(named: AsyncIterator[Rows], others: Iterator[Any]) -> AsyncIterator[Rows]:
    ready: Rows = []
    waiting = next(others, None)
    async for rows in named:
        if not ready and (waiting is None or waiting[0] >= rows[-1][0]):
            yield rows
            continue
        for row in rows:
            while waiting is not None and waiting[0] < row[0]:
                ready.append(waiting)
                waiting = next(others, None)
                if len(ready) >= AT_ONCE:
                    yield ready
                    ready = []
            ready.append(row)
        if len(ready) >= AT_ONCE:
            yield ready
            ready = []
    while waiting is not None:
        ready.append(waiting)
        waiting = next(others, None)
        if len(ready) >= AT_ONCE:
            yield ready
            ready = []
    if ready:
        yield ready


async def statement_lines_of(
    connection: AsyncConnection,
    keys: Iterable[str],
    *,
    payments: Iterable[str] = (),
    as_of: Instant,
) -> list[StatementLine]:
    """Return the statement lines of these orders or payments."""
    subjects = [f"p:{payment}" for payment in payments]
    rows = await lines_known(
        connection, "statement", _KEYED, as_of=as_of, match_key=keys, subject=subjects
    )
    return [statement_line_of(row) for row in sorted(rows, key=lambda row: row[1])]


async def statement_lines_named(
    connection: AsyncConnection, names: Iterable[str], *, as_of: Instant
) -> list[StatementLine]:
    """Return the statement lines with these subjects."""
    rows = await lines_known(connection, "statement", _KEYED, as_of=as_of, line=names)
    return [statement_line_of(row) for row in rows]


async def statement_lines_of_payouts(
    connection: AsyncConnection, payouts: Iterable[Payout], *, as_of: Instant, limit: int
) -> list[StatementLine]:
    """Return the first statement lines of each payout."""
    number = await import_store.newest_published(connection, as_of=as_of)
    found: list[StatementLine] = []
    for payout in payouts:
        values = {
            "number": number,
            "source": payout.source,
            "payout": payout.reference,
            "currency": payout.currency,
            "limit": limit,
        }
        rows = await connection.execute(text(_OF_PAYOUT), values)
        found += [statement_line_of(row) for row in rows]
    return found


async def payouts_called(
    connection: AsyncConnection, reference: str, *, as_of: Instant
) -> list[tuple[str, str]]:
    """Return (source, currency) for each payout with this reference."""
    number = await import_store.newest_published(connection, as_of=as_of)
    values = {"number": number, "payout": reference}
    rows = await connection.execute(text(_CALLED), values)
    return [(source, currency) for source, currency in rows]


async def orders_of_lines(connection: AsyncConnection, lines: Iterable[StatementLine]) -> list[str]:
    """Return the orders of these lines."""
    found: dict[str, None] = {}
    payments: set[str] = set()
    for line in lines:
        if line.order is not None:
            found[line.order] = None
        elif line.payment is not None:
            payments.add(line.payment)
    for row in await select_in(connection, sql=_ORDERS_OF, values=sorted(payments)):
        found[row[0]] = None
    return list(found)


def statement_line_of(row: Sequence[Any]) -> StatementLine:
    _, line_id, payment, order, kind, currency, gross, fee, net, *rest = row
    settled_at, payout, source, _, wallet, refund, details = rest
    return StatementLine(
        line_id=line_id,
        payment=payment,
        order=order,
        kind=kind,
        currency=currency,
        gross=gross,
        fee=fee,
        net=net,
        settled_at=settled_at,
        payout=payout,
        source=source,
        wallet=wallet,
        refund=refund,
        details=details,
    )
