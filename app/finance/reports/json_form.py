"""The report as one JSON document."""

from __future__ import annotations

import json

from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tables import report_document


def render(report: PeriodReport) -> bytes:
    """The document, indented, in UTF-8, with a line end."""
    text = json.dumps(report_document(report), ensure_ascii=False, indent=2)
    return text.encode("utf-8", "backslashreplace") + b"\n"
