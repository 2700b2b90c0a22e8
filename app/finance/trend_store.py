"""Add up captures and settlements by quarter of an hour."""

import json
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import select_in, statement, stream
from app.finance import import_store
from app.finance.import_store import sum_of
from reconcile.instants import MINUTE, Instant
from reconcile.matching.ledger_lines import Taken, ledger_line_in

QUARTER: Final = 15 * MINUTE

AT_ONCE: Final = 1_000
"""Maximum number of rows in memory."""


class CapturedSum(NamedTuple):
    """Captures in one quarter of an hour, all and settled."""

    source: str
    currency: str
    at: Instant
    captures: int
    settled_captures: int
    minor: int
    settled_minor: int


class FeeSum(NamedTuple):
    """Payments settled in one quarter of an hour, with fees."""

    source: str
    currency: str
    method: str
    at: Instant
    payments: int
    gross: int
    fee: int


_SETTLED: Final = (
    "EXISTS (SELECT 1 FROM statement_lines WHERE subject = 'p:' || takings.payment "
    "AND kind = 'payment' AND until IS NULL AND source IN ('', takings.source))"
)
_PLAIN: Final = statement(
    "SELECT source, currency, at / :quarter, count(*), sum(settled), {captured}, {paid} FROM ("
    "SELECT source, currency, at, minor, CASE WHEN {settled} THEN 1 ELSE 0 END AS settled "
    "FROM takings WHERE plain = 1 AND minor > 0 AND at >= :since) AS seen GROUP BY 1, 2, 3",
    settled=_SETTLED,
    captured=import_store.summed("minor"),
    paid=import_store.summed("minor * settled"),
)
_OTHERS: Final = "SELECT told FROM takings WHERE plain = 0"
_SUBJECTS: Final = (
    "SELECT subject, source FROM statement_lines "
    "WHERE kind = 'payment' AND until IS NULL AND subject IN ({})"
)
_FEES: Final = statement(
    "SELECT source, currency, details, settled_at / :quarter, "
    "sum(CASE WHEN kind = 'payment' THEN 1 ELSE 0 END), "
    "{gross}, {fee} FROM statement_lines "
    "WHERE kind IN ('payment', 'fee') AND settled_at >= :since AND {known} GROUP BY 1, 2, 3, 4",
    gross=import_store.summed("CASE WHEN kind = 'payment' THEN gross ELSE 0 END"),
    fee=import_store.summed("fee"),
    known=import_store.KNOWN,
)


async def captured_sums(
    connection: AsyncConnection, *, since: Instant, as_of: Instant
) -> AsyncIterator[list[CapturedSum]]:
    """Yield sums of the captures since an instant, in batches."""
    values = {"since": since, "quarter": QUARTER}
    async for rows in stream(connection, _PLAIN, at_once=AT_ONCE, values=values):
        yield [
            CapturedSum(
                source=row[0],
                currency=row[1],
                at=Instant(row[2] * QUARTER),
                captures=row[3],
                settled_captures=int(row[4]),
                minor=sum_of(*row[5:7]),
                settled_minor=sum_of(*row[7:9]),
            )
            for row in rows
        ]
    async for rows in stream(connection, _OTHERS, at_once=AT_ONCE):
        lines = [ledger_line_in(row[0], as_of=as_of) for row in rows]
        taken = [
            each
            for line in lines
            for each in line.taken
            if each.kind == "captured" and each.at >= since
        ]
        names = sorted({f"p:{each.payment}" for each in taken})
        settled = set(await select_in(connection, sql=_SUBJECTS, values=names))
        yield [_alone(each, settled) for each in taken]


def _alone(taken: Taken, settled: set[tuple[str, str]]) -> CapturedSum:
    subject = f"p:{taken.payment}"
    found = bool({(subject, ""), (subject, taken.source)} & settled)
    return CapturedSum(
        source=taken.source,
        currency=taken.currency,
        at=taken.at,
        captures=1,
        settled_captures=int(found),
        minor=taken.minor,
        settled_minor=taken.minor if found else 0,
    )


async def fee_sums(
    connection: AsyncConnection, *, since: Instant, as_of: Instant
) -> AsyncIterator[list[FeeSum]]:
    """Yield sums of settled payments and fees, in batches."""
    number = await import_store.newest_published(connection, as_of=as_of)
    values = {"since": since, "quarter": QUARTER, "number": number}
    async for rows in stream(connection, _FEES, at_once=AT_ONCE, values=values):
        yield [
            FeeSum(
                source=row[0],
                currency=row[1],
                method=_method(row[2]),
                at=Instant(row[3] * QUARTER),
                payments=int(row[4]),
                gross=sum_of(*row[5:7]),
                fee=sum_of(*row[7:9]),
            )
            for row in rows
        ]


def _method(details: str | None) -> str:
    found = "" if details is None else json.loads(details).get("method", "")
    return str(found)
