"""The merchant's calendar on its books: which months there are, by the zone in force and by what
was closed before in this zone or in another."""

from __future__ import annotations

from dataclasses import replace

from app.core.errors import NotFoundError, UsageError
from app.database.engine import Connection
from app.finance.closed_periods import closing_named
from app.finance.period_store import closed_periods
from app.receiving.context import AppContext
from reconcile.instants import Instant
from reconcile.periods import Calendar, Month
from reconcile.reporting.report import Scope


async def calendar_of(context: AppContext, connection: Connection) -> Calendar:
    """Days and months as they are counted now."""
    closed = await closed_periods(connection)
    last = (await closing_named(connection, closed[-1].period)).month if closed else None
    return Calendar(context.calendar_zone, closed=last)


async def month_in_books(context: AppContext, name: str) -> Month:
    """A month as it was closed, or as it is counted now. Raises UsageError for what is none."""
    async with context.store.reading() as connection:
        calendar = await calendar_of(context, connection)
        try:
            month = calendar.month(name)
        except ValueError as error:
            raise UsageError(f"{name[:40]!r}: {error}") from None
        try:
            return (await closing_named(connection, month.name)).month
        except NotFoundError:
            return month


async def on_the_books(context: AppContext, scope: Scope) -> Scope:
    """The scope in the merchant's name and zone, where an end of it that is the midnight before a
    first of a month is where that month begins in the books: they may have been closed in another
    zone."""
    start, end = [await _in_books(context, at) for at in (scope.start, scope.end)]
    return replace(
        scope, start=start, end=end, zone=str(context.calendar_zone), merchant=context.merchant
    )


async def _in_books(context: AppContext, at: Instant) -> Instant:
    plain = Calendar(context.calendar_zone)
    day = plain.day_of(at)
    if not day.endswith("-01") or plain.day(day)[0] != at:
        return at
    async with context.store.reading() as connection:
        names = {each.period for each in await closed_periods(connection)}
        if day[:7] in names:
            return (await closing_named(connection, day[:7])).month.start
        return (await calendar_of(context, connection)).month(day[:7]).start
