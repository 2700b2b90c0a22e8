"""Read pages of order-book and statement lines."""

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any, Generic, TypedDict, TypeVar

from app.context.context import AppContext
from app.core.document_of import document_of
from app.database.engine import Connection
from app.database.statements import Rows
from app.finance.book_line_store import book_line_of, book_lines_of, book_rows
from app.finance.statement_store import statement_line_of, statement_lines_of, statement_rows
from reconcile.documents import InstantText, Keywords, MoneyDocument, NextText
from reconcile.instants import Instant
from reconcile.matching.books import BookLine, StatementLine, match_key
from reconcile.matching.rows import NO_KEY
from reconcile.money import Money, to_json

Line = TypeVar("Line", bound=BookLine | StatementLine)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePage(Generic[Line]):
    """Page of lines. `following` is the next page's position, or None on the last page."""

    lines: list[Line]
    following: str | None = None


async def book_page(
    context: AppContext,
    *,
    reference: str | None,
    as_of: Instant | None,
    after: str = "",
    limit: int,
) -> LinePage[BookLine]:
    """Return a page of an order book's lines."""
    at = context.clock.now() if as_of is None else as_of
    async with context.database.reading() as connection:
        if reference is None:
            first = after.partition(" ")[0]
            rows = book_rows(connection, as_of=at, first=first)
            return await _page(rows, book_line_of, after=after, limit=limit)
        found = await book_lines_of(connection, [match_key(reference)], as_of=at)
        return _cut([line for _, line in found], after=after, limit=limit)


async def list_book(
    context: AppContext, *, reference: str | None, as_of: Instant | None, limit: int
) -> list[BookLine]:
    """Return the first lines of an order book."""
    page = await book_page(context, reference=reference, as_of=as_of, limit=limit)
    return page.lines


async def statement_page(
    context: AppContext,
    *,
    reference: str | None,
    as_of: Instant | None,
    after: str = "",
    limit: int,
) -> LinePage[StatementLine]:
    """Return a page of statement lines."""
    at = context.clock.now() if as_of is None else as_of
    async with context.database.reading() as connection:
        if reference is None:
            first = after.partition(" ")[0]
            rows = statement_rows(connection, as_of=at, first=first)
            return await _page(rows, statement_line_of, after=after, limit=limit)
        found = await statement_lines_of(
            connection, [match_key(reference)], payments=[reference], as_of=at
        )
        return _cut(found, after=after, limit=limit)


async def list_statement(
    context: AppContext, *, reference: str | None, as_of: Instant | None, limit: int
) -> list[StatementLine]:
    """Return the first statement lines, as `statement_page` does."""
    page = await statement_page(context, reference=reference, as_of=as_of, limit=limit)
    return page.lines


async def lines_naming(
    connection: Connection, order: str, payments: Collection[str], as_of: Instant
) -> tuple[list[BookLine], list[StatementLine]]:
    """Return an order's book lines and statement lines."""
    key = match_key(order)
    books = await book_lines_of(connection, [key], as_of=as_of)
    statements = await statement_lines_of(connection, [key], payments=payments, as_of=as_of)
    return [line for _, line in books], list(statements)


def _cut(named: Iterable[Line], *, after: str, limit: int) -> LinePage[Line]:
    last = after.rpartition(" ")[2]
    left = sorted((each for each in named if each.line_id > last), key=lambda each: each.line_id)
    more = left[limit - 1].line_id if len(left) > limit else None
    return LinePage(lines=left[:limit], following=more)


async def _page(
    batches: AsyncIterator[Rows],
    value: Callable[[tuple[Any, ...]], Line],
    *,
    after: str,
    limit: int,
) -> LinePage[Line]:
    key, _, line = after.partition(" ")
    found: list[tuple[Any, ...]] = []
    waiting: Rows = []
    async for rows in batches:
        groups = groupby([*waiting, *rows], key=lambda row: row[0])
        *whole, waiting = (sorted(group, key=_place) for _, group in groups)
        if waiting[0][0] == NO_KEY:  # any number of lines, which come by id
            whole, waiting = [*whole, waiting], []
        for group in whole:
            found += [row for row in group if _place(row) > (key, line)]
        if len(found) > limit:
            break
    else:
        found += [row for row in waiting if _place(row) > (key, line)]
    more = " ".join(_place(found[limit - 1])) if len(found) > limit else None
    return LinePage(lines=[value(row) for row in found[:limit]], following=more)


def _place(row: tuple[Any, ...]) -> tuple[str, str]:
    return row[0], row[1]


class BookLineDocument(TypedDict):
    line: str
    reference: str
    kind: Annotated[str, Keywords(examples=["order"])]
    amount: MoneyDocument
    placed_at: InstantText | None
    status: Annotated[str | None, Keywords(examples=["paid"])]
    refunded_amount: MoneyDocument | None
    refunded_at: InstantText | None
    method: str | None
    group: str | None


class BookLinePageDocument(TypedDict):
    lines: list[BookLineDocument]
    next: NextText


class StatementLineDocument(TypedDict):
    line: str
    payment: str | None
    order: str | None
    type: Annotated[str, Keywords(examples=["payment"])]
    gross: MoneyDocument
    fee: MoneyDocument
    net: MoneyDocument
    settled_at: InstantText | None
    payout: str | None
    wallet: str | None
    refund: str | None
    details: dict[str, str] | None


class StatementLinePageDocument(TypedDict):
    lines: list[StatementLineDocument]
    next: NextText


def book_document(line: BookLine) -> BookLineDocument:
    back = None if line.refunded is None else to_json(replace(line.money, minor=line.refunded))
    return document_of(
        BookLineDocument, line, line=line.line_id, amount=to_json(line.money), refunded_amount=back
    )


def statement_document(line: StatementLine) -> StatementLineDocument:
    return document_of(
        StatementLineDocument,
        line,
        line=line.line_id,
        type=line.kind,
        gross=to_json(Money(minor=line.gross, currency=line.currency)),
        fee=to_json(Money(minor=line.fee, currency=line.currency)),
        net=to_json(Money(minor=line.net, currency=line.currency)),
        details=None if line.details is None else json.loads(line.details),
    )
