"""A report in every format that can be made here."""

from __future__ import annotations

from app.core.errors import UsageError
from app.finance.reports.render import REPORT_FORMATS, render
from reconcile.reporting.report import PeriodReport


def printed(report: PeriodReport) -> dict[str, bytes]:
    """Bytes by format. PDF is missing where the extra that lays it out is not installed."""
    found: dict[str, bytes] = {}
    for form in REPORT_FORMATS:
        try:
            found[form] = render(report, form)
        except UsageError:
            continue
    return found
