"""Lets go what else holds personal data, once it is older than it is kept: rejections, digests of
phone numbers, and phone numbers in order books. A page at a time, each in one short transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from app.access.operator_store import Operator
from app.access.operators import note_deed
from app.finance.book_phone_store import LineKey, empty_lines, old_lines
from app.orders.history_store import gather
from app.orders.retention_store import drop_rejections, old_rejections
from app.privacy.erase_store import owners
from app.privacy.retention import Retention
from app.privacy.settled import ended_orders
from app.receiving.context import Desk
from app.receiving.phone_store import PhoneNote, drop_notes, old_notes

PAGE: Final = 100
"""Rows let go in one transaction, so that no acknowledgement waits long for it."""


async def prune_others(
    desk: Desk, retention: Retention, *, dry_run: bool
) -> AsyncIterator[tuple[str, int]]:
    """Class by class and page by page, how many of a class are let go; with `dry_run` none is."""
    async for rejections in _old_rejections(desk, retention):
        if not dry_run:
            async with desk.store.writing() as connection:
                await drop_rejections(connection, rejections)
        yield "rejections", len(rejections)
    async for notes in _old_notes(desk, retention):
        if not dry_run:
            async with desk.store.writing() as connection:
                await drop_notes(connection, notes)
        yield "phones", len(notes)
    async for lines in _old_lines(desk, retention):
        if not dry_run:
            async with desk.store.writing() as connection:
                await empty_lines(connection, lines)
        yield "book_phones", len(lines)


async def note_pruning(desk: Desk, who: Operator, gone: Mapping[str, int]) -> None:
    """Add to the trail what was let go, if anything was."""
    facts = {name: count for name, count in gone.items() if count}
    if facts:
        async with desk.store.writing() as connection:
            await note_deed(
                connection,
                who,
                action="pruned",
                subject="what is older than is kept",
                at=desk.clock.now(),
                facts=facts,
            )


async def _old_rejections(desk: Desk, retention: Retention) -> AsyncIterator[list[str]]:
    """Rejections that are older than what is kept, a page at a time."""
    if retention.rejections is None:
        return
    before, after = desk.clock.now() - retention.rejections, ""
    while True:
        async with desk.store.reading() as connection:
            found = await old_rejections(connection, before=before, after=after, limit=PAGE)
        if not found:
            return
        yield found
        after = found[-1]


async def _old_notes(desk: Desk, retention: Retention) -> AsyncIterator[list[PhoneNote]]:
    """Digests of phone numbers of orders that have been settled for longer than they are kept."""
    quiet, after = retention.phones, None
    while quiet is not None:
        now = desk.clock.now()
        async with desk.store.reading() as connection:
            page = await old_notes(connection, before=now - quiet, after=after, limit=PAGE)
            if not page:
                return
            owned = await owners(connection, [note[2] for note in page if note[1] == "delivery"])
            orders = {each.delivery_id: each.order for each in owned}
            orders |= {note[2]: note[2] for note in page if note[1] == "order"}
            histories = await gather(connection, {each for each in orders.values() if each})
            ended = ended_orders(desk, histories, retention, now=now, quiet=quiet)
        yield [note for note in page if orders.get(note[2]) in ended]
        after = page[-1]


async def _old_lines(desk: Desk, retention: Retention) -> AsyncIterator[list[LineKey]]:
    """Versions of lines of order books that were imported longer ago than their phones are kept."""
    after: LineKey | None = None
    while retention.book_phones is not None:
        before = desk.clock.now() - retention.book_phones
        async with desk.store.reading() as connection:
            found = await old_lines(connection, before=before, after=after, limit=PAGE)
        if not found:
            return
        yield found
        after = found[-1]
