"""Closed months: which there are, what each says, and what was stated of them since."""

from __future__ import annotations

from dataclasses import replace

from app.errors import NotFoundError
from app.operations.desk import Desk
from app.reports.render import ReportFormat, render
from app.store.closings import Closed, closed_periods, closing_of_period, print_of
from app.store.engine import Connection
from reconcile.closing import Closing
from reconcile.figures import Stated
from reconcile.instants import Instant
from reconcile.report_document import report_of


async def list_closed(desk: Desk) -> list[Closed]:
    """Every closed month, the earliest first."""
    async with desk.store.reading() as connection:
        return await closed_periods(connection)


async def closed_report(desk: Desk, period: str, form: ReportFormat) -> bytes:
    """The bytes of a closed month's report: those that were kept at closing, where it was printed
    in this format then, else printed now from the report that was kept.

    Raises NotFoundError for a month that is not closed, UsageError for a format that cannot be
    printed here.
    """
    async with desk.store.reading() as connection:
        kept = await print_of(connection, period, form)
        if kept is not None:
            return kept
        closing = await closing_named(connection, period)
    return render(report_of(dict(closing.report)), form)


async def closing_named(connection: Connection, period: str) -> Closing:
    """The closing of a month. Raises NotFoundError where it is not closed."""
    closing = await closing_of_period(connection, period)
    if closing is None:
        raise NotFoundError(
            f"{period[:40]} is not closed; `tallyhook period list` shows which months are"
        )
    return closing


async def stated_at(connection: Connection, scope_start: Instant) -> list[Stated]:
    """What was said of each closed month, for a report that begins where the closed books end;
    nothing for any other report."""
    closed = await closed_periods(connection)
    if not closed or (await closing_named(connection, closed[-1].period)).month.end != scope_start:
        return []
    return await stated_by(connection, closed)


async def stated_by(connection: Connection, closed: list[Closed]) -> list[Stated]:
    """The figures of these closings, and what later ones of them add to those of earlier ones."""
    found: dict[str, Stated] = {}
    for each in closed:
        closing = await closing_named(connection, each.period)
        for adjusted in closing.adjusted:
            old = found[adjusted.period]
            found[adjusted.period] = replace(old, told=(*old.told, *adjusted.figures))
        found[each.period] = Stated(
            period=each.period, closing=each.digest, original=closing.figures
        )
    return list(found.values())
