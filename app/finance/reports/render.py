"""Render a report in any format. Equal reports give equal bytes."""

from importlib import import_module
from importlib.util import find_spec
from typing import Final, Literal, get_args

from app.core.errors import UsageError
from reconcile.reporting.report import PeriodReport

ReportFormat = Literal["table", "json", "csv", "xlsx", "html", "pdf"]
REPORT_FORMATS: Final[tuple[ReportFormat, ...]] = get_args(ReportFormat)

BINARY: Final[frozenset[ReportFormat]] = frozenset({"xlsx", "pdf"})

_TEXTS: Final[frozenset[ReportFormat]] = frozenset({"table", "json", "csv"})


def check_format(format: ReportFormat) -> None:
    """Raise UsageError if a format's package is not installed."""
    if format == "pdf" and find_spec("typst") is None:
        raise UsageError(
            "PDF needs typst, which is not installed: run `pip install typst` in the environment "
            "of Tallyhook, or use --format html and print the page"
        )


def render(report: PeriodReport, format: ReportFormat) -> bytes:
    """Return a report in a format. Raise UsageError if the format's package is not installed."""
    check_format(format)
    module = "text_forms" if format in _TEXTS else f"{format}_form"
    form = getattr(import_module(f"app.finance.reports.{module}"), format)
    written: bytes = form(report)
    return written
