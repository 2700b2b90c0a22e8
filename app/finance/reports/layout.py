"""Lay out the report for people: tables, charts and cells."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final

from markupsafe import Markup

from app.core.pages.charts import Series, bars, stacked
from app.core.text import counted
from app.core.zones import local_text, wall_clock, zone_named
from reconcile import instants
from reconcile.matching.causes import CAUSES
from reconcile.money import Money, major_text
from reconcile.periods import Calendar
from reconcile.reporting.report import (
    AGES,
    GROUPS,
    CoverageRow,
    PeriodReport,
    Scope,
)
from reconcile.reporting.summary import SUMMARIES
from reconcile.reporting.tables import TABLES, Column, ReportTable
from reconcile.reporting.words import (
    AGE_WORDS,
    BASIS_WORDS,
    CODE_WORDS,
    GROUP_WORDS,
    code_words,
    figure_words,
)

LISTS: Final = frozenset({"break_lines", "late_lines", "change_lines"})
"""Tables with one row per break, late item or changed order."""

PROOFS: Final = frozenset({"breaks", "coverage", "matching", "rates", "ties", "unlisted"}) | LISTS
"""Tables with the details behind the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """Table of the report with its rows and chart."""

    table: ReportTable
    rows: Sequence[Any]
    chart: Markup | None = None

    @property
    def proves(self) -> bool:
        return self.table.name in PROOFS


def parts(report: PeriodReport) -> Iterator[ReportPart]:
    """Yield the report's nonempty tables with their charts."""
    for table, rows in shown_tables(report):
        drawn = _CHARTS.get(table.name)
        yield ReportPart(table=table, rows=rows, chart=None if drawn is None else drawn(report))


def shown_tables(report: PeriodReport) -> Iterator[tuple[ReportTable, Sequence[Any]]]:
    """Yield the report's nonempty tables with their rows."""
    found = {table.name: (table, rows(report)) for table, rows in SUMMARIES}
    found |= {table.name: (table, table.rows(report)) for table in TABLES}
    for name in _ORDER:
        table, rows = found[name]
        if rows:
            yield table, rows


_ORDER: Final = (
    "exceptions",
    "totals",
    "own",
    "control",
    "outcomes",
    "times",
    "break_totals",
    "age_totals",
    "late",
    "changes",
    "adjustments",
    "suspense",
    "money",
    "unsettled",
    "settled_in",
    "wallets",
    "balances",
    "fees",
    "delays",
    "findings",
    "flow",
    "breaks",
    "matching",
    "coverage",
    "rates",
    "ties",
    "break_lines",
    "late_lines",
    "change_lines",
    "unlisted",
)


def day_words(start: instants.Instant, report: PeriodReport) -> str:
    """Format a start for an axis, such as `4 Oct`."""
    zone = zone_named(report.scope.zone)
    day = instants.format_instant(wall_clock(start, zone))[:10]
    month = instants.MONTHS[int(day[5:7]) - 1][:3]
    if len(report.times) > 1:
        following = report.times[1].start
        if following == Calendar(zone).next_month(report.times[0].start):
            return f"{month} {day[:4]}"
    return f"{int(day[8:])} {month}"


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
    labels = ["longer" if end is None else f"up to {instants.format_duration(end)}" for end in ends]
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


# --- cells ----------------------------------------------------------------------------------------


def headlines(report: PeriodReport) -> tuple[str, ...]:
    """Return the first sentences of a report."""
    return verdict(report), at_risk(report), *compared(report)


def compared(report: PeriodReport) -> Iterator[str]:
    """Yield sentences on the compared days."""
    zone = zone_named(report.scope.zone)
    by_name: dict[tuple[str, str, str | None], list[CoverageRow]] = {}
    for row in report.coverage:
        by_name.setdefault((row.kind, row.name, row.wallet), []).append(row)
    for (kind, name, wallet), rows in by_name.items():
        days = " and ".join(
            f"from {moment(each.since, zone)} to {_last_day(each.until, zone)}"
            for each in rows
            if each.since is not None and each.until is not None
        )
        source = name or "an unnamed source"
        own = f" of {wallet}" if wallet else ""
        payments = counted(rows[0].payments, "payment")
        what, file = {
            "statement": (f"{payments} of {source}", f"its statement{own}"),
            "bank": ("Payouts", f"bank account {name}"),
            "book": ("Orders", f"the order book {name}"),
        }[kind]
        were = "was" if what.startswith("1 ") else "were"
        by = f", as {rows[0].declared_by} declared" if rows[0].declared_by else ""
        rest = "" if rows[0].whole else "; payments of other days were not compared"
        if days:
            yield f"{what} {were} compared with {file} {days}{by}{rest}."
        elif kind == "statement":
            its = f"its {payments} {were} not compared"
            yield f"{source} has no statement{own} of the period: {its}."
        else:
            yield f"{what} were not compared with {file}: its files cover no day of the period."
    for kind, sentence in _NO_FILES.items():
        if not any(row.kind == kind for row in report.coverage):
            yield sentence


_NO_FILES: Final = {
    "statement": "No statement is imported, so payments were not compared.",
    "bank": "No bank file is imported, so payouts were not compared.",
    "book": "No order book is imported, so orders were not compared.",
}


def _last_day(until: instants.Instant, zone: tzinfo) -> str:
    if wall_clock(until, zone) % instants.DAY:
        return moment(until, zone)
    return Calendar(zone).day_of(instants.Instant(until - instants.TICK))


def verdict(report: PeriodReport) -> str:
    """Return a sentence on the equations between totals."""
    broken = [
        tie.name if tie.currency is None else f"{tie.name} ({tie.currency})"
        for tie in report.ties
        if not tie.holds
    ]
    if not broken:
        agree = f"All {len(report.ties)} control sums agree"
        if not all(row.whole for row in report.coverage) or not report.coverage:
            return f"{agree} over the imported data, which do not cover the whole period."
        return f"{agree}: every order and every amount that was read is counted once."
    return f"{len(broken)} of {len(report.ties)} control sums do not agree: {', '.join(broken)}."


def at_risk(report: PeriodReport) -> str:
    """Return a sentence on the money of unaccepted breaks."""
    risk, units, count = Counter[str](), Counter[str](), Counter[str]()
    for row in report.breaks:
        count["accepted" if row.state == "accepted" else "open"] += row.count
        if row.state != "accepted" and CAUSES[row.cause].risk == "mistake":
            units[row.currency] += row.sum
            count["units"] += row.count
        if row.at_risk:
            risk[row.currency] += row.at_risk
    rest = f" {counted(count['accepted'], 'break')} accepted." if count["accepted"] else ""
    if not count["open"]:
        return f"No break is open.{rest}"
    if count["units"]:
        of_them = counted(count["units"], "mistake of unit", "mistakes of unit")
        rest = f" {of_them} apart: {_moneys(units)}.{rest}"
    at_stake = f"at risk: {_moneys(risk)}" if risk else "no money at risk"
    return f"{counted(count['open'], 'break')} open, {at_stake}.{rest}"


def _moneys(sums: Counter[str]) -> str:
    return ", ".join([str(Money(minor=sums[each], currency=each)) for each in sorted(sums)])


def cell_text(column: Column, row: Any) -> str:
    """Return a cell as text for programs."""
    value = getattr(row, column.name)
    if value is None:
        return ""
    if (money := column.money_in(row)) is not None:
        return major_text(money)
    if column.kind == "instant":
        return instants.format_instant(value)
    if column.kind == "yes":
        return "yes" if value else "no"
    return ", ".join(value) if column.kind == "list" else str(value)


def cell_words(column: Column, row: Any, *, zone: tzinfo = UTC) -> str:
    """Return a cell as text for people."""
    value = getattr(row, column.name)
    if column.kind == "duration":
        return "longer" if value is None else f"up to {instants.format_duration(value)}"
    if value is None:
        return ""
    if (money := column.money_in(row)) is not None:
        return str(money).partition(" ")[2]
    if column.kind in ("count", "money"):
        return f"{value:,}"
    if column.kind == "instant":
        return moment(value, zone)
    return word_of(column, row, zone=zone)


def word_of(column: Column, row: Any, *, zone: tzinfo = UTC) -> str:
    """Return a text cell for people, with names and local times."""
    text = cell_text(column, row)
    if column.name in _SENTENCES:
        return local_text(text, zone)
    if column.name == "figure":
        return figure_words(text)
    if column.name == "table":
        return _TITLES.get(text, text)
    if column.kind == "yes":
        return text.capitalize()
    return code_words(column.name, text) if column.name in CODE_WORDS and text else text


_SENTENCES: Final = frozenset({"sentence", "because"})

_TITLES: Final = {table.name: table.title for table in TABLES}


def moment(instant: instants.Instant, zone: tzinfo = UTC) -> str:
    """Format an instant as `2026-10-22 23:59`, or as a date."""
    instant = wall_clock(instant, zone)
    text = (
        instants.format_instant(instant - instant % instants.MINUTE)
        .replace("T", " ")
        .removesuffix(":00Z")
    )
    return text.removesuffix(" 00:00")


_EXPLAINED_CODES: Final = frozenset({"reason", "identity"})


def shown_columns(table: ReportTable) -> tuple[Column, ...]:
    return tuple(column for column in table.columns if column.name not in _EXPLAINED_CODES)


def heading_lines(column: Column) -> list[str]:
    """Return a column's heading in one or two lines."""
    words = column.heading
    if column.kind == "text" or len(words) <= 9 or " " not in words:
        return [words]
    middle = min(
        (place for place, sign in enumerate(words) if sign == " "),
        key=lambda place: abs(2 * place - len(words)),
    )
    return [words[:middle], words[middle + 1 :]]


# --- the report's scope ---------------------------------------------------------------------------


def period_words(scope: Scope) -> str:
    """Return a period's first and last day in words."""
    zone = zone_named(scope.zone)
    end = moment(scope.end, zone)
    if wall_clock(scope.end, zone) % instants.DAY == 0:
        end = Calendar(zone).day_of(scope.end - instants.TICK)
    return f"{moment(scope.start, zone)} to {end}"


def closed_words(scope: Scope) -> str:
    """Return the person and time of the closing."""
    if scope.closed_at is None:
        return "Not a closed report: its figures may still change"
    zone = zone_named(scope.zone)
    again = "" if scope.version == 1 else f", version {scope.version}"
    at = moment(scope.closed_at, zone)
    if scope.proposed_at is None:
        return f"Closed by {scope.closed_by}, {at}{again}"
    proposed = moment(scope.proposed_at, zone)
    return (
        f"Closed by {scope.closed_by}, proposed {proposed}, and {scope.approved_by}, approved "
        f"{at}{again}"
    )


_SANDBOX: Final = "Sandbox: no real money"


def masthead(scope: Scope) -> tuple[str, ...]:
    """Return the texts at the top of every page."""
    sandbox = (_SANDBOX,) if scope.environment == "sandbox" else ()
    named = (scope.merchant,) if scope.merchant else ()
    return (*named, f"Period {period_words(scope)}", closed_words(scope), *sandbox)


def fact_lines(scope: Scope) -> tuple[tuple[str, str], ...]:
    """Return the facts on the first page as (name, text)."""
    return (
        ("Period", period_words(scope)),
        ("Closing", closed_words(scope)),
        ("Known as of", moment(scope.as_of, zone_named(scope.zone))),
        ("Time zone", scope.zone),
        ("Money is dated", BASIS_WORDS[scope.basis]),
        ("Environment", _SANDBOX if scope.environment == "sandbox" else scope.environment),
    )


_MONEY: Final = re.compile(r"(?<!\w)([A-Z]{3} [-−]?[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+)?)(?!\w)")


def money_apart(text: str) -> list[str]:
    """Split a text into text and amounts in turn."""
    return _MONEY.split(text)


def scope_lines(scope: Scope) -> tuple[tuple[str, str], ...]:
    """Return the scope's facts for programs as (name, text)."""
    closed = scope.closed_at is not None and (
        ("closed by", scope.closed_by),
        ("closed at", instants.format_instant(scope.closed_at)),
        ("version", str(scope.version)),
    )
    approved = scope.proposed_at is not None and (
        ("approved by", scope.approved_by),
        ("proposed at", instants.format_instant(scope.proposed_at)),
    )
    return (
        ("from", instants.format_instant(scope.start)),
        ("to", instants.format_instant(scope.end)),
        ("as of", instants.format_instant(scope.as_of)),
        ("basis", scope.basis),
        ("environment", scope.environment),
        *((("zone", scope.zone),) if scope.zone != "UTC" else ()),
        *((("merchant", scope.merchant),) if scope.merchant else ()),
        *(closed or ()),
        *(approved or ()),
    )
