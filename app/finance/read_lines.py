"""Lines of order books and statements, as they are known or were at an instant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, TypeVar

from app.database.engine import Connection
from app.database.statements import Rows
from app.finance.book_line_store import book_line_of, book_lines_of, book_rows
from app.finance.statement_store import statement_line_of, statement_lines_of, statement_rows
from app.receiving.context import AppContext
from reconcile.instants import Instant
from reconcile.matching.books import BookLine, StatementLine, match_key

Line = TypeVar("Line")


async def list_book(
    context: AppContext, *, reference: str | None, as_of: Instant | None, limit: int
) -> list[BookLine]:
    """The lines that a reference or a group names, or the first ones by key."""
    at = context.clock.now() if as_of is None else as_of
    async with context.store.reading() as connection:
        if reference is None:
            return await _first(book_rows(connection, as_of=at), book_line_of, limit)
        found = await book_lines_of(connection, [match_key(reference)], as_of=at)
        return [line for _, line in found[:limit]]


async def list_statement(
    context: AppContext, *, reference: str | None, as_of: Instant | None, limit: int
) -> list[StatementLine]:
    """The lines that name an order or a payment, or the first ones by key."""
    at = context.clock.now() if as_of is None else as_of
    async with context.store.reading() as connection:
        if reference is None:
            return await _first(statement_rows(connection, as_of=at), statement_line_of, limit)
        found = await statement_lines_of(
            connection, [match_key(reference)], payments=[reference], as_of=at
        )
        return found[:limit]


async def lines_naming(
    connection: Connection, order: str, payments: Collection[str], as_of: Instant
) -> tuple[list[BookLine], list[StatementLine]]:
    """Those of the books that name an order, and those of statements that name it or one of its
    payments."""
    key = match_key(order)
    books = await book_lines_of(connection, [key], as_of=as_of)
    statements = await statement_lines_of(connection, [key], payments=payments, as_of=as_of)
    return [line for _, line in books], list(statements)


async def _first(
    batches: AsyncIterator[Rows], value: Callable[[tuple[Any, ...]], Line], limit: int
) -> list[Line]:
    found: list[Line] = []
    async for rows in batches:
        found += [value(row) for row in rows[: limit - len(found)]]
        if len(found) == limit:
            break
    return found
