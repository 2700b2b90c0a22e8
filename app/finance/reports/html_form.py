"""The report as one page that needs nothing beside it: tables, and three charts above theirs."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from app.core.pages import page
from app.core.pages.charts import Series, bars, stacked
from app.core.zones import wall_clock, zone_named
from app.finance.reports.values import cell_words, headlines, moment, scope_lines, shown_columns
from reconcile.instants import DAY, TICK, format_duration
from reconcile.periods import Calendar
from reconcile.reporting.report import AGES, GROUPS, PeriodReport
from reconcile.reporting.tables import TABLES, Column, Table

ROWS_MAX: Final = 1_000
"""Rows of a table in the page: more would make it slow to open, and nobody reads them there."""

_SMALL: Final = frozenset({"next_step", "since", "cites"})
"""Columns that stand in small print below the last one, for a page has no room beside it."""


def html(report: PeriodReport) -> bytes:
    """The page in UTF-8."""
    values = {
        "period": period_words(report),
        "scope": scope_lines(report.scope),
        "headlines": headlines(report),
        "notes": [note.sentence for note in report.notes],
        "sections": [_section(table, report) for table in TABLES[1:] if table.rows(report)],
    }
    return page("report.html", values).encode("utf-8", "backslashreplace")


def period_words(report: PeriodReport) -> str:
    """`2026-10-01 to 2026-10-31`, the first and the last day; a moment where it ends within one."""
    scope = report.scope
    zone = zone_named(scope.zone)
    end = moment(scope.end, zone)
    if wall_clock(scope.end, zone) % DAY == 0:
        end = Calendar(zone).day_of(scope.end - TICK)
    return f"{moment(scope.start, zone)} to {end}"


def _section(table: Table, report: PeriodReport) -> dict[str, Any]:
    rows, zone = table.rows(report), zone_named(report.scope.zone)
    columns = shown_columns(table)
    wide = [column for column in columns if column.name not in _SMALL]
    small = [column for column in columns if column.name in _SMALL]
    return {
        "title": table.title,
        "about": table.about,
        "chart": drawn(report) if (drawn := CHARTS.get(table.name)) else "",
        "columns": [(column.heading, _look(column)) for column in wide],
        "rows": [
            {
                "cells": [(cell_words(column, row, zone=zone), _look(column)) for column in wide],
                "small": [
                    (column.heading, words)
                    for column in small
                    if (words := cell_words(column, row, zone=zone))
                ],
                "wrong": table.name == "ties" and not row.holds,
            }
            for row in rows[:ROWS_MAX]
        ],
        "left_out": f"{len(rows) - ROWS_MAX:,}" if len(rows) > ROWS_MAX else "",
    }


def _look(column: Column) -> str:
    """The class of its cells: how they are set, and where they may be broken."""
    if column.kind in ("count", "money"):
        return "number"
    return {"sentence": "wide", "because": "wide", "order": "long", "payment": "long"}.get(
        column.name, ""
    )


def _times(report: PeriodReport) -> Markup:
    series = [Series(group, [getattr(row, group) for row in report.times]) for group in GROUPS]
    totals = ", ".join(f"{sum(each.values):,} {each.name}" for each in series)
    return stacked(
        "times",
        title="Outcomes over time",
        about=f"{len(report.times)} bars: {totals}.",
        labels=[moment(row.start, zone_named(report.scope.zone))[5:10] for row in report.times],
        series=series,
    )


def _delays(report: PeriodReport) -> Markup:
    ends = [row.up_to for row in report.delays]
    labels = ["longer" if end is None else f"≤ {format_duration(end)}" for end in ends]
    values = [row.movements for row in report.delays]
    return _bars("delays", "How long webhooks took", labels, values)


def _ages(report: PeriodReport) -> Markup:
    unsettled = [row for row in report.breaks if row.state != "accepted"]
    values = [sum(row.count for row in unsettled if row.age == age) for age in AGES]
    labels = [age.replace("_", " ") for age in AGES]
    return _bars("ages", "Breaks by age, those not accepted", labels, values)


def _bars(name: str, title: str, labels: list[str], values: list[int]) -> Markup:
    about = "; ".join(f"{label}: {value:,}" for label, value in zip(labels, values, strict=True))
    return bars(name, title=title, about=f"{about}.", labels=labels, values=values)


CHARTS: Final = {"times": _times, "delays": _delays, "breaks": _ages}
"""The tables that have a chart above them."""
