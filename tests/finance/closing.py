"""A quiet October and the months after it: closed, verified, and read again."""

from typing import Any

from app.context.context import AppContext
from app.core.clock import SetClock
from app.finance.close_period import CloseRequest, close_period, scope_of
from app.finance.closed_periods import closing_named
from app.finance.report_period import report_period
from app.finance.reports.journal import closed_journal
from app.finance.verify_periods import VerifiedPeriods, verify_periods
from reconcile.instants import DAY, Instant, parse_instant
from reconcile.periods import month_named
from reconcile.reporting.closing import Closing, Figure, added, figures
from tests.database.builders import opened, quiet
from tests.finance.loading import into_store, keep_arrivals, settle
from tests.finance.month import CLOSED_AT, Month
from tests.finance.plots import ORDINARY, never_notified, pays

QUIET = Month(orders=len(ORDINARY))
"""A month in which nothing is wrong."""

LATE = Month(orders=1, plots=(never_notified,), prefix="10-late-")
"""A payment of October that becomes known late."""

DECEMBER = parse_instant("2026-12-12T09:00:00Z")
JANUARY = parse_instant("2027-01-12T09:00:00Z")


def put(context: AppContext, at: Instant) -> None:
    assert isinstance(context.clock, SetClock)
    context.clock.put(at)


def asked(period: str = "2026-10", **words: Any) -> CloseRequest:
    given = {"by": None, "as_of": None, "margin_days": 10, "still_s": 0.0, **words}
    return CloseRequest(period=period, **given)


async def close(context: AppContext, period: str = "2026-10", **words: Any) -> Closing:
    """Close a month that nothing blocks, by one person."""
    done = await close_period(context, asked(period, **words), progress=quiet)
    assert isinstance(done, Closing), done
    return done


async def verified(context: AppContext, only: str | None = None) -> list[VerifiedPeriods]:
    return [each async for each in verify_periods(context, only=only, progress=quiet)]


async def wrong(context: AppContext) -> list[tuple[str, str]]:
    """Return the steps that fail, and why."""
    return [(each.step, each.sentence) for each in await verified(context) if not each.passed]


async def printed_journal(
    context: AppContext, period: str, form: Any, *, version: int | None = None
) -> bytes:
    parts = closed_journal(context, period, form, version=version)
    return b"".join([part async for part in parts])


async def closing_of(context: AppContext, period: str) -> Closing:
    async with context.database.reading() as connection:
        return await closing_named(connection, period)


async def fresh_figures(context: AppContext, as_of: Instant) -> list[Figure]:
    """Return October's figures as of an instant, in order."""
    scope = scope_of(context, month_named("2026-10"), as_of)
    return sorted(figures(await report_period(context, scope, progress=quiet)), key=repr)


async def three_closings(url: str) -> None:
    """Close October to December on a database; each late event is an adjustment once."""
    month = Month(orders=6, plots=(pays, never_notified))
    await into_store(url, month)
    async with opened(url) as inbox:
        await settle(inbox, month)
        context = inbox.context(clock=SetClock(CLOSED_AT))
        stated = list((await close(context)).figures)
        for place, (period, at) in enumerate((("2026-11", DECEMBER), ("2026-12", JANUARY))):
            await keep_arrivals(inbox, [month.late(at - DAY)[place]])
            put(context, at)
            closing = await close(context, period)
            (adjusted,) = [each for each in closing.adjusted if each.period == "2026-10"]
            assert adjusted.figures
            stated += adjusted.figures
            assert sorted(added(stated), key=repr) == await fresh_figures(context, at)
        assert await wrong(context) == []
