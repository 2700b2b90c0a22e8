"""What a cell of the report is, for a format that has no types of its own."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, tzinfo
from typing import Any, Final

from app.core.text import counted
from app.core.zones import wall_clock
from reconcile.instants import SECOND, Instant, format_duration, format_instant
from reconcile.money import Money, major_text
from reconcile.reporting.report import MISTAKES_OF_FILES, PeriodReport, Scope, Tie
from reconcile.reporting.tables import Column, Table


def headlines(report: PeriodReport) -> tuple[str, str]:
    """What stands above every table."""
    return verdict(report), at_risk(report)


def verdict(report: PeriodReport) -> str:
    """Whether all ties hold, else which do not."""
    broken = [_named(tie) for tie in report.ties if not tie.holds]
    if not broken:
        return f"All {len(report.ties)} ties hold: every order and every amount is accounted for."
    return f"{len(broken)} of {len(report.ties)} ties do not hold: {', '.join(broken)}."


def _named(tie: Tie) -> str:
    return tie.name if tie.currency is None else f"{tie.name} ({tie.currency})"


def at_risk(report: PeriodReport) -> str:
    """How many breaks nobody has accepted, and their money by currency: that which may be lost, and
    apart from it that of mistakes of unit."""
    risk, units, count = Counter[str](), Counter[str](), Counter[str]()
    for row in report.breaks:
        count["accepted" if row.state == "accepted" else "open"] += row.count
        if row.state != "accepted" and row.cause in MISTAKES_OF_FILES:
            units[row.currency] += row.sum
            count["units"] += row.count
        elif row.state != "accepted" and (lost := row.sum if row.at_risk is None else row.at_risk):
            risk[row.currency] += lost
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
    """One cell as text for programs: decimals without separators, RFC 3339, `yes` or `no`."""
    value = getattr(row, column.name)
    if value is None:
        return ""
    if column.kind == "money" and row.currency is not None:
        return major_text(Money(minor=value, currency=row.currency))
    if column.kind == "instant":
        return format_instant(value)
    if column.kind == "yes":
        return "yes" if value else "no"
    return ", ".join(value) if column.kind == "list" else str(value)


def cell_words(column: Column, row: Any, *, zone: tzinfo = UTC) -> str:
    """One cell as text for people: decimals in groups of three, durations and codes in words, times
    as the zone's clocks show them."""
    value = getattr(row, column.name)
    if column.kind == "duration":
        return "longer" if value is None else f"up to {format_duration(value)}"
    if value is None:
        return ""
    if column.kind == "money" and row.currency is not None:
        return str(Money(minor=value, currency=row.currency)).partition(" ")[2]
    if column.kind in ("count", "money"):
        return f"{value:,}"
    if column.kind == "instant":
        return moment(value, zone)
    if column.name in CODES:
        return str(value).replace("_", " ")
    return cell_text(column, row)


def moment(instant: Instant, zone: tzinfo = UTC) -> str:
    """For people: `2026-10-22 23:59:59`, to the second and in the zone; a day's first is its
    date."""
    instant = wall_clock(instant, zone)
    text = format_instant(instant - instant % SECOND).replace("T", " ").removesuffix("Z")
    return text.removesuffix(" 00:00:00")


CODES: Final = frozenset(
    """step bucket flow family side outcome group finding severity cause age kind before after state
    table""".split()  # noqa: SIM905  # the list would be a line for each word
)
"""Columns that hold words of a closed vocabulary, which people read without underscores."""

_FOR_PROGRAMS: Final = frozenset({"reason", "identity"})
"""Columns beside which the same stands in words."""


def shown_columns(table: Table) -> tuple[Column, ...]:
    """The columns that people read."""
    return tuple(column for column in table.columns if column.name not in _FOR_PROGRAMS)


def scope_lines(scope: Scope) -> tuple[tuple[str, str], ...]:
    """What the report is of, as names and texts."""
    return (
        ("from", format_instant(scope.start)),
        ("to", format_instant(scope.end)),
        ("as of", format_instant(scope.as_of)),
        ("basis", scope.basis),
        ("environment", scope.environment),
        *((("zone", scope.zone),) if scope.zone != "UTC" else ()),
    )
