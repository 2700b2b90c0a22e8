"""Wiring: what finance has made when it is asked for, in a process of its own: reports and journals
of a period, the proof of closed months, what other rules would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from app.api.report_routes import AT_ONCE, MAX_JOURNAL_BYTES, Makes
from app.bootstrap_elsewhere import Elsewhere, Use
from app.config.settings import Settings
from app.core.errors import ConfigurationError, UsageError
from app.finance.match_rules import preview_rules
from app.finance.report_period import report_period
from app.finance.reports.journal import JournalFormat, write_journal
from app.finance.reports.render import ReportFormat, render
from app.finance.verify_periods import verify_periods
from app.receiving.context import AppContext
from reconcile.reporting.report import Scope

DIED: Final = (
    "the process that made it has ended before its time: ask again, and look whether memory was "
    "short"
)

MOST_S: Final = 1_800
"""Seconds that one may take: a service that reports more has a replica to do it on."""

TOO_LONG: Final = (
    f"it took more than {MOST_S // 60} minutes and was ended: ask for a shorter period, or let "
    "the command or the schedule make it"
)

TOO_MUCH: Final = (
    f"the journal is longer than the {MAX_JOURNAL_BYTES // 1024 // 1024} MiB that an answer has: "
    "ask for a shorter period, or let `tallyhook report journal` write it"
)


def making_reports(settings: Settings) -> Makes:
    """What makes them as the commands do."""
    reading = Elsewhere(settings, at_once=AT_ONCE, purpose="reading")
    writing = Elsewhere(settings, at_once=AT_ONCE, purpose="writing")

    async def do(use: Use, *words: Any, by: Elsewhere = reading) -> Any:
        return await by.do(use, *words, died=DIED, most_s=MOST_S, too_long=TOO_LONG)

    return Makes(
        report=lambda scope: do(made_report, scope, "json"),
        journal=lambda scope, form, file: do(journal, scope, form, file),
        verification=lambda period: do(verification, period),
        # It stores what it folds anew of orders, as every run does.
        preview=lambda rules: do(preview, rules, by=writing),
    )


async def made_report(
    context: AppContext, settings: Settings, scope: Scope, form: ReportFormat
) -> bytes:
    """A period's report in one form, as the command writes it."""
    return render(await report_period(context, scope, progress=lambda _: None), form)


async def made_preview(context: AppContext, settings: Settings, rules: str) -> dict[str, Any]:
    """What other rules would change, as the command tells it."""
    return (await preview_rules(context, rules, progress=lambda _: None)).document()


async def preview(
    context: AppContext, settings: Settings, rules: str
) -> dict[str, Any] | tuple[str, ...]:
    """The same for whoever sends rules: or every mistake in them."""
    try:
        return await made_preview(context, settings, rules)
    except ConfigurationError as error:
        return error.problems


async def journal(
    context: AppContext, settings: Settings, scope: Scope, form: JournalFormat, path: Path
) -> None:
    """A period's journal in one form, into a new file. Raises UsageError where it is too long."""
    with path.open("xb") as file:  # nothing else is done in this process

        def write(part: bytes) -> None:
            if file.tell() + len(part) > MAX_JOURNAL_BYTES:
                raise UsageError(TOO_MUCH)
            file.write(part)

        await write_journal(context, scope, form, write=write, progress=lambda _: None)


async def verification(
    context: AppContext, settings: Settings, period: str | None
) -> list[dict[str, Any]]:
    """Every step on the closed months, or on one, as the command tells them."""
    found = verify_periods(context, only=period, progress=lambda _: None)
    return [each.document() async for each in found]
