"""Rows that groups, decisions of people and payments join across orders, as of an instant.

Only what may be joined is read: lines of groups, lines and orders that people named, and statement
lines whose payment is another order's than the one they name, or of several.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import Rows, select_in, statement, stream
from app.finance.book_line_store import book_rows_of
from app.finance.import_store import KNOWN, KNOWN_AT, newest_published
from app.finance.statement_store import ROW_FIELDS
from reconcile.instants import Instant
from reconcile.matching.books import match_key
from reconcile.matching.rows import BookRow, StatementRow
from reconcile.matching.rules import HandMatch

AT_ONCE: Final = 4_000
"""Rows in memory at a time while they are looked through."""

_GROUPED: Final = statement(
    "SELECT match_key, group_key FROM book_lines WHERE group_key IS NOT NULL AND {known}",
    known=KNOWN,
)

_ELSEWHERE: Final = statement(
    "SELECT match_key, {row}, order_key FROM statement_lines "
    "JOIN (SELECT reference, order_key FROM links WHERE kind = 'payment') "
    "AS paid ON paid.reference = statement_lines.payment "
    "WHERE match_key IS NOT NULL AND order_ref <> order_key AND {known}",
    row=ROW_FIELDS,
    known=KNOWN,
)
"""Lines that name an order and a payment of another one."""

_CONTESTED: Final = statement(
    "SELECT '', {row} FROM statement_lines WHERE match_key IS NULL AND payment IS NOT NULL "
    "AND (SELECT count(DISTINCT order_key) FROM links WHERE links.kind = 'payment' "
    "AND links.reference = statement_lines.payment) > 1 AND {known}",
    row=ROW_FIELDS,
    known=KNOWN,
)
"""Lines that name no order, of a payment that several orders claim."""

_NAMED_BOOK: Final = "SELECT match_key FROM book_lines WHERE line IN ({})"

_NAMED_LINES: Final = statement(
    "SELECT coalesce(match_key, ''), {row} FROM statement_lines WHERE {known} AND line IN ({})",
    row=ROW_FIELDS,
    known=KNOWN_AT,
)

_ORDERS: Final = "SELECT order_key FROM links WHERE kind = 'payment' AND reference IN ({})"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedLines:
    """keys: of the orders that may be joined; and the lines of books and statements that join
    them."""

    keys: Collection[str]
    book: list[BookRow]
    statements: list[StatementRow]


async def joined_lines(
    connection: AsyncConnection, hands: Iterable[HandMatch], *, as_of: Instant
) -> JoinedLines:
    """What may be joined, as it was known at an instant."""
    number = await newest_published(connection, as_of=as_of)
    keys: set[str] = set()
    async for rows in stream(connection, _GROUPED, at_once=AT_ONCE, values={"number": number}):
        keys.update(key for row in rows for key in row)
    lines: dict[str, StatementRow] = {}
    for row in await _elsewhere(connection, number):
        keys.update((row[0], match_key(row[-1])))
        lines[row[1]] = StatementRow(*row[:-1])
    async for rows in stream(connection, _CONTESTED, at_once=AT_ONCE, values={"number": number}):
        lines.update({row[1]: StatementRow(*row) for row in rows})
    names = {name for hand in hands for name in (hand.one, hand.other)}
    subjects = {name for name in names if name.startswith(("bok_", "stm_"))}
    keys.update(match_key(name) for name in names - subjects)
    keys.update(row[0] for row in await select_in(connection, sql=_NAMED_BOOK, values=subjects))
    known = (number, number)
    for row in await select_in(connection, sql=_NAMED_LINES, values=subjects, first=known):
        lines[row[1]] = StatementRow(*row)
        keys.add(row[0])
    payments = {line.payment for line in lines.values() if line.payment is not None}
    owners = await select_in(connection, sql=_ORDERS, values=payments)
    keys.update(match_key(row[0]) for row in owners)
    keys.discard("")
    book = await book_rows_of(connection, keys, as_of=as_of)
    return JoinedLines(
        keys=keys, book=[BookRow(*row) for row in book], statements=list(lines.values())
    )


async def _elsewhere(connection: AsyncConnection, number: int) -> Rows:
    """Lines of `_ELSEWHERE` whose order and payment are not only written differently."""
    found: Rows = []
    values = {"number": number}
    async for rows in stream(connection, _ELSEWHERE, at_once=AT_ONCE, values=values):
        found += [row for row in rows if match_key(row[-1]) != row[0]]
    return found
