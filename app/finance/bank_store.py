"""Read bank lines, balances and payouts as of an instant."""

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import Rows, statement, stream
from app.finance import import_store
from app.finance.line_version_store import lines_known
from reconcile.instants import EARLIEST, LATEST, Instant
from reconcile.matching.balances import StatementBalances
from reconcile.matching.books import BankLine, Payout


def payout_id(source: str, reference: str, currency: str) -> str:
    """Return a payout's id: `pyt_` and 20 hex digits."""
    digest = hashlib.blake2b("\x1f".join((source, reference, currency)).encode(), digest_size=10)
    return "pyt_" + digest.hexdigest()


AT_ONCE: Final = 4_000

_ROW: Final = (
    "line || '.' || since, account, currency, minor, booked_at, reference, counterparty, told"
)
_LINES: Final = statement(
    "SELECT {row} FROM bank_lines WHERE {known} ORDER BY subject, ordinal",
    row=_ROW,
    known=import_store.KNOWN,
)

STRETCH: Final = 20_000
"""Number of line versions in one step of a text search."""

STRETCHES: Final = 10
"""Maximum number of steps in one text search."""

_STRETCH: Final = (
    "SELECT booked_at FROM bank_lines WHERE booked_at < :before ORDER BY booked_at DESC "
    "LIMIT 1 OFFSET :stretch"
)

_SAYING: Final = statement(
    "SELECT {row} FROM bank_lines WHERE booked_at >= :first AND booked_at < :before "
    "AND {known} AND (lower(told) LIKE :like ESCAPE '!' "
    "OR lower(counterparty) LIKE :like ESCAPE '!' OR lower(reference) LIKE :like ESCAPE '!') "
    "AND NOT EXISTS (SELECT 1 FROM restrictions WHERE kind = 'bank_line' "
    "AND thing = subject || '.' || ordinal || '.' || bank_lines.since) "
    "ORDER BY booked_at DESC, line LIMIT :limit",
    row=_ROW,
    known=import_store.KNOWN,
)

_ANY: Final = statement("SELECT 1 FROM bank_lines WHERE {known} LIMIT 1", known=import_store.KNOWN)

_TO_BANK: Final = "('withdrawal', 'withdrawal_failed', 'deposit')"

# Written so that SQLite scans the table rather than its index: most rows have a payout, and a scan
# takes half the time.
_PAID_OUT: Final = "coalesce(payout, '') <> ''"

_PAYOUTS: Final = statement(
    "SELECT source, payout, currency, {net}, max(settled_at), count(*) FROM statement_lines "
    "WHERE {paid_out} AND {known} GROUP BY source, payout, currency",
    net=import_store.summed("net"),
    paid_out=_PAID_OUT,
    known=import_store.KNOWN,
)

_WITHDRAWN: Final = statement(
    "SELECT source, payout, currency, {net}, {sent}, max(settled_at) FROM statement_lines "
    "WHERE {paid_out} AND kind IN {to_bank} AND {known} GROUP BY source, payout, currency",
    net=import_store.summed("-gross"),
    sent=import_store.summed("(CASE WHEN kind = 'withdrawal' THEN -gross ELSE 0 END)"),
    paid_out=_PAID_OUT,
    to_bank=_TO_BANK,
    known=import_store.KNOWN,
)


async def any_bank_line(connection: AsyncConnection, *, as_of: Instant) -> bool:
    """Check if any bank file was imported by the instant."""
    number = await import_store.newest_published(connection, as_of=as_of)
    return await connection.scalar(text(_ANY), {"number": number}) is not None


async def bank_lines(connection: AsyncConnection, *, as_of: Instant) -> AsyncIterator[Rows]:
    """Yield the bank lines known at an instant, in batches."""
    values = {"number": await import_store.newest_published(connection, as_of=as_of)}
    async for rows in stream(connection, _LINES, at_once=AT_ONCE, values=values):
        yield rows


async def bank_lines_saying(
    connection: AsyncConnection,
    words: str,
    *,
    as_of: Instant,
    limit: int,
    before: Instant | None = None,
) -> tuple[list[BankLine], Instant | None]:
    """Return the bank lines with these words, newest first. The second result is the instant before
    which nothing was searched, or None."""
    number = await import_store.newest_published(connection, as_of=as_of)
    escaped = words.lower().replace("!", "!!").replace("%", "!%").replace("_", "!_")
    found, until = list[BankLine](), LATEST if before is None else before
    for _ in range(STRETCHES):
        span = {"before": until, "stretch": STRETCH - 1}
        first = await connection.scalar(text(_STRETCH), span)
        values = {"number": number, "like": f"%{escaped}%", "limit": limit - len(found)}
        values |= {"first": EARLIEST if first is None else first, "before": until}
        found += [bank_line_of(row) for row in await connection.execute(text(_SAYING), values)]
        if first is None or len(found) >= limit:
            return found, None
        until = Instant(first)
    return found, until


async def bank_lines_named(
    connection: AsyncConnection, names: Iterable[str], *, as_of: Instant
) -> list[BankLine]:
    """Return the bank lines with these subjects."""
    wanted = [name.partition(".")[0] for name in names]
    rows = await lines_known(connection, "bank", _ROW, as_of=as_of, line=wanted)
    return [bank_line_of(row) for row in sorted(rows)]


def bank_line_of(row: Sequence[Any]) -> BankLine:
    line_id, account, currency, minor, booked_at, reference, counterparty, words = row
    return BankLine(
        line_id=line_id,
        account=account,
        currency=currency,
        minor=minor,
        booked_at=booked_at,
        reference=reference or None,
        counterparty=counterparty or None,
        text=words or None,
    )


PayoutName = tuple[str, str, str]
"""Name of a payout: (source, reference, currency)."""


async def payouts(connection: AsyncConnection, *, as_of: Instant) -> list[Payout]:
    """Return every payout that statement lines name."""
    withdrawn = await withdrawals(connection, as_of=as_of)
    values = {"number": await import_store.newest_published(connection, as_of=as_of)}
    found: list[Payout] = []
    async for rows in stream(connection, _PAYOUTS, at_once=AT_ONCE, values=values):
        for source, reference, currency, high, low, paid_at, count in rows:
            net = import_store.sum_of(high, low)
            left = withdrawn.get((source, reference, currency))
            minor, sent, at = (net, 0, paid_at) if left is None else left
            found.append(
                Payout(
                    payout_id=payout_id(source, reference, currency),
                    source=source,
                    reference=reference,
                    currency=currency,
                    minor=minor,
                    paid_at=at,
                    lines=count,
                    withdrawn=left is not None,
                    sent=sent,
                )
            )
    return found


async def withdrawals(
    connection: AsyncConnection, *, as_of: Instant
) -> dict[PayoutName, tuple[int, int, Instant | None]]:
    """Return final amount, withdrawn amount and last line's time of each wallet payout. Amounts are
    minor units."""
    values = {"number": await import_store.newest_published(connection, as_of=as_of)}
    rows = await connection.execute(text(_WITHDRAWN), values)
    return {
        (source, payout, currency): (
            import_store.sum_of(*halves[:2]),
            import_store.sum_of(*halves[2:]),
            at,
        )
        for source, payout, currency, *halves, at in rows
    }


BankKey = tuple[str, int, int]
"""Key of one line version: (subject, ordinal, since)."""

BankTexts = tuple[str, str, str, str]
"""Texts of a bank line: (entry, reference, counterparty, other text)."""

_TEXTS: Final = (
    "SELECT subject, ordinal, since, entry, reference, counterparty, told, booked_at "
    "FROM bank_lines"
)


async def bank_texts(
    connection: AsyncConnection,
) -> AsyncIterator[list[tuple[BankKey, BankTexts, Instant]]]:
    """Yield the texts of all versions of bank lines, in batches."""
    async for rows in stream(connection, _TEXTS, at_once=AT_ONCE):
        yield [((row[0], row[1], row[2]), (row[3], row[4], row[5], row[6]), row[7]) for row in rows]


async def rewrite_bank_texts(
    connection: AsyncConnection, texts: Iterable[tuple[BankKey, BankTexts]]
) -> None:
    for (subject, ordinal, since), (entry, reference, counterparty, words) in texts:
        await connection.execute(
            text(
                "UPDATE bank_lines SET entry = :entry, reference = :reference, "
                "counterparty = :counterparty, told = :told "
                "WHERE subject = :subject AND ordinal = :ordinal AND since = :since"
            ),
            {
                "entry": entry,
                "reference": reference,
                "counterparty": counterparty,
                "told": words,
                "subject": subject,
                "ordinal": ordinal,
                "since": since,
            },
        )


_BALANCES: Final = tuple(StatementBalances.__dataclass_fields__)

_ADD_BALANCES: Final = statement(
    "INSERT INTO bank_balances ({columns}) VALUES ({values})",
    columns=", ".join(_BALANCES),
    values=", ".join(f":{name}" for name in _BALANCES),
)

_STANDING_BALANCES: Final = statement(
    "SELECT {columns} FROM bank_balances JOIN imports ON imports.number = of_import "
    "WHERE imports.published_at <= :as_of AND NOT EXISTS (SELECT 1 FROM imports AS other "
    "WHERE other.withdraws = of_import AND other.published_at <= :as_of)",
    columns=", ".join(_BALANCES),
)


async def add_balances(
    connection: AsyncConnection, found: Iterable[StatementBalances], *, of_import: int
) -> None:
    for each in found:
        values = {name: getattr(each, name) for name in _BALANCES} | {"of_import": of_import}
        await connection.execute(text(_ADD_BALANCES), values)


async def standing_balances(
    connection: AsyncConnection, *, as_of: Instant
) -> list[StatementBalances]:
    """Return the balances of bank statements without withdrawn imports."""
    rows = await connection.execute(text(_STANDING_BALANCES), {"as_of": as_of})
    return [StatementBalances(**dict(zip(_BALANCES, row, strict=True))) for row in rows]
