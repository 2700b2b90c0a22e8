"""Wiring: reports as files, which console and API have made in a process of its own."""

from __future__ import annotations

from typing import Final

from app.api.report_routes import AT_ONCE, MakeReport
from app.bootstrap_elsewhere import Elsewhere
from app.config.settings import Settings
from app.finance.report_period import report_period
from app.finance.reports.render import ReportFormat, render
from app.receiving.context import AppContext
from reconcile.reporting.report import Scope

DIED: Final = (
    "the process that made it has ended before its time: ask again, and look whether memory was "
    "short"
)

MOST_S: Final = 1_800
"""Seconds that a report may take: a service that reports more has a replica to do it on."""

TOO_LONG: Final = (
    f"it took more than {MOST_S // 60} minutes and was ended: ask for a shorter period, or let "
    "`tallyhook report period` or the schedule make it"
)


def making_reports(settings: Settings) -> MakeReport:
    """What makes a report's JSON as the command writes it."""
    processes = Elsewhere(settings, at_once=AT_ONCE, purpose="reading")

    async def make(scope: Scope) -> bytes:
        done: bytes = await processes.do(
            made_report, scope, "json", died=DIED, most_s=MOST_S, too_long=TOO_LONG
        )
        return done

    return make


async def made_report(
    context: AppContext, settings: Settings, scope: Scope, form: ReportFormat
) -> bytes:
    """A period's report in one form, as the command writes it."""
    return render(await report_period(context, scope, progress=lambda _: None), form)
