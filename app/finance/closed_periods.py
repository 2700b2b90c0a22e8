"""Read closed months with their reports and later adjustments."""

from dataclasses import replace
from typing import Final

from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.zones import zone_named
from app.database.engine import Connection
from app.finance import period_store
from app.finance.period_store import PeriodListDocument as PeriodListDocument
from app.finance.reports.render import ReportFormat, render
from app.orders.policy_version_store import engine_form
from reconcile.instants import TICK, Instant
from reconcile.ledger.policy import Policy, policy_text
from reconcile.periods import Calendar, Month
from reconcile.reporting.closing import ClosedMonth, Closing
from reconcile.reporting.report import Basis, Scope
from reconcile.reporting.tables import report_of

CLOSING_BASIS: Final[Basis] = "captured"
"""Basis of the amounts in every closing: the month in which the money moved."""


MATCHING_FORM: Final = "m7"
"""Version of the matching rules and the report. `FORM` in `reconcile/ledger/policy.py` says when to
raise the version."""


def rules_form(policy: Policy) -> str:
    """Return the version of all rules behind a report."""
    return f"{engine_form(policy_text(policy))}+{MATCHING_FORM}"


async def list_closed(context: AppContext) -> list[period_store.Closed]:
    """Return every closing by month and version, including reopened closings."""
    async with context.database.reading() as connection:
        return await period_store.all_closings(connection)


async def closed_within(context: AppContext, scope: Scope) -> list[str]:
    """Return the closed months that overlap a scope."""
    calendar = Calendar(zone_named(scope.zone))
    first, last = calendar.day_of(scope.start)[:7], calendar.day_of(scope.end - TICK)[:7]
    async with context.database.reading() as connection:
        closed = await period_store.closed_periods(connection)
    return [each.period for each in closed if first <= each.period <= last]


async def closed_report(
    context: AppContext, period: str, form: ReportFormat, *, version: int | None = None
) -> bytes:
    """Return a closed month's report, rendered anew if this format was not stored. Raise
    NotFoundError for an open month, and UsageError for an unavailable format."""
    async with context.database.reading() as connection:
        closing = await closing_named(connection, period, version=version)
        kept = await period_store.print_of(connection, period, form, version=closing.version)
    return render(report_of(dict(closing.report)), form) if kept is None else kept


async def closing_named(
    connection: Connection, period: str, *, version: int | None = None
) -> Closing:
    """Return one closing of a month, by default the closing in force. Raise NotFoundError for an
    unknown closing."""
    if version is None:
        standing = [e for e in await period_store.closed_periods(connection) if e.period == period]
        version = standing[0].version if standing else 0
    closing = await period_store.closing_of_period(connection, period, version=version)
    if closing is None:
        named = f"version {version} of {period[:40]}" if version else period[:40]
        raise NotFoundError(
            f"{named} is not closed; `tallyhook period list` shows which months are closed, and "
            "which were reopened"
        )
    return closing


async def stated_before(connection: Connection, scope: Scope) -> list[ClosedMonth]:
    """Return the earlier closed months with their reported adjustments. The result is empty unless
    the last closed month ends at the start of the scope."""
    closed = await closings_at(connection, scope.as_of)
    if not closed or closed[-1].month.end != scope.start:
        return []
    found: dict[str, ClosedMonth] = {}
    for closing in closed:
        for adjusted in closing.adjusted:
            old = found[adjusted.period]
            found[adjusted.period] = replace(old, reported=(*old.reported, *adjusted.figures))
        found[closing.month.name] = ClosedMonth(
            month=closing.month, closing=closing.digest, original=closing.figures
        )
    return list(found.values())


async def closings_at(connection: Connection, as_of: Instant) -> list[Closing]:
    """Return the closings in force at an instant, earliest first."""
    return [
        await closing_named(connection, each.period, version=each.version)
        for each in await period_store.closed_periods(connection, as_of=as_of)
    ]


async def calendar_of(context: AppContext, connection: Connection) -> Calendar:
    closed = await period_store.closed_periods(connection)
    last = (await closing_named(connection, closed[-1].period)).month if closed else None
    return Calendar(context.calendar_zone, closed=last)


async def month_in_books(context: AppContext, name: str) -> Month:
    """Return a month with its bounds, in the time zone of its closing, if closed. Raise UsageError
    for an invalid name."""
    async with context.database.reading() as connection:
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
    """Return the scope, adjusted to the closed months."""
    start, end = [await _on_books(context, at) for at in (scope.start, scope.end)]
    return replace(
        scope,
        start=start,
        end=end,
        zone=str(context.calendar_zone),
        merchant=context.settings.merchant,
    )


async def _on_books(context: AppContext, at: Instant) -> Instant:
    plain = Calendar(context.calendar_zone)
    day = plain.day_of(at)
    if not day.endswith("-01") or plain.day(day)[0] != at:
        return at
    async with context.database.reading() as connection:
        names = {each.period for each in await period_store.closed_periods(connection)}
        if day[:7] in names:
            return (await closing_named(connection, day[:7])).month.start
        return (await calendar_of(context, connection)).month(day[:7]).start
