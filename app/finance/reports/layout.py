"""The report as people turn it over: its tables in their order, summaries first, with their charts.

Leaves out: how a table is set. Page, paper and workbook read the parts that this gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from app.core.pages.charts import Series, bars, stacked
from app.core.zones import wall_clock, zone_named
from reconcile.instants import Instant, format_duration, format_instant
from reconcile.periods import Calendar
from reconcile.reporting.report import AGES, GROUPS, PeriodReport
from reconcile.reporting.summary import SUMMARIES
from reconcile.reporting.tables import TABLES, Table
from reconcile.reporting.words import AGE_WORDS, GROUP_WORDS

LISTS: Final = frozenset({"break_lines", "late_lines", "change_lines"})
"""Single things, one a row: as long as the period."""

PROOFS: Final = frozenset({"breaks", "matching", "ties", "unlisted"}) | LISTS
"""What proves the rest in full, and the lists: for whoever asks, and not for the first look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One table with its rows, and the chart above it, if it has one."""

    table: Table
    rows: Sequence[Any]
    chart: Markup | None = None

    @property
    def proves(self) -> bool:
        """Whether it is one of PROOFS."""
        return self.table.name in PROOFS


def parts(report: PeriodReport) -> Iterator[Part]:
    """Every table that has rows, but for the notes, in the order in which it is read."""
    for table, rows in in_order(report):
        drawn = _CHARTS.get(table.name)
        yield Part(table=table, rows=rows, chart=None if drawn is None else drawn(report))


def in_order(report: PeriodReport) -> Iterator[tuple[Table, Sequence[Any]]]:
    """The same tables without their charts."""
    found = {table.name: (table, rows(report)) for table, rows in SUMMARIES}
    found |= {table.name: (table, table.rows(report)) for table in TABLES}
    for name in _ORDER:
        table, rows = found[name]
        if rows:
            yield table, rows


_ORDER: Final = (
    "totals",
    "control",
    "outcomes",
    "times",
    "break_totals",
    "age_totals",
    "late",
    "changes",
    "adjustments",
    "money",
    "fees",
    "delays",
    "findings",
    "flow",
    "breaks",
    "matching",
    "ties",
    "break_lines",
    "late_lines",
    "change_lines",
    "unlisted",
)
"""Totals, where every order stands and why, what is wrong, what changed late, the way of the money;
then what proves it."""


def day_words(start: Instant, report: PeriodReport) -> str:
    """The first day of a stretch for an axis: `4 Oct`; a month where the stretches are months."""
    zone = zone_named(report.scope.zone)
    day = format_instant(wall_clock(start, zone))[:10]
    month = _MONTHS[int(day[5:7]) - 1]
    if len(report.times) > 1:
        following = report.times[1].start
        if following == Calendar(zone).next_month(report.times[0].start):
            return f"{month} {day[:4]}"
    return f"{int(day[8:])} {month}"


_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)


def _times(report: PeriodReport) -> Markup:
    series = [
        Series(GROUP_WORDS[group], [getattr(row, group) for row in report.times])
        for group in GROUPS
    ]
    totals = ", ".join(f"{sum(each.values):,} {each.name.lower()}" for each in series)
    return stacked(
        "times",
        title="Outcomes over time",
        about=f"{len(report.times)} bars: {totals}.",
        labels=[day_words(row.start, report) for row in report.times],
        series=series,
    )


def _delays(report: PeriodReport) -> Markup:
    ends = [row.up_to for row in report.delays]
    labels = ["longer" if end is None else f"up to {format_duration(end)}" for end in ends]
    values = [row.movements for row in report.delays]
    return _bars("delays", "Webhook delay", labels, values)


def _ages(report: PeriodReport) -> Markup:
    unsettled = [row for row in report.breaks if row.state != "accepted"]
    values = [sum(row.count for row in unsettled if row.age == age) for age in AGES]
    return _bars("ages", "Open breaks by age", [AGE_WORDS[age] for age in AGES], values)


def _bars(name: str, title: str, labels: list[str], values: list[int]) -> Markup:
    about = "; ".join(f"{label}: {value:,}" for label, value in zip(labels, values, strict=True))
    return bars(name, title=title, about=f"{about}.", labels=labels, values=values)


_CHARTS: Final[dict[str, Callable[[PeriodReport], Markup]]] = {
    "times": _times,
    "delays": _delays,
    "age_totals": _ages,
}
