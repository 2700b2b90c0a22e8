"""What a report comes to, in one sentence each: whether it adds up, and what is at risk."""

from __future__ import annotations

from collections import Counter

from app.core.text import counted
from reconcile.money import Money
from reconcile.reporting.report import PeriodReport, Tie


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
    """How many breaks nobody has accepted, and their money by currency."""
    sums, count = Counter[str](), Counter[bool]()
    for row in report.breaks:
        accepted = row.state == "accepted"
        count[accepted] += row.count
        if not accepted:
            sums[row.currency] += row.sum
    rest = f" {counted(count[True], 'break')} accepted." if count[True] else ""
    if not count[False]:
        return f"No break is open.{rest}"
    moneys = [str(Money(minor=sums[each], currency=each)) for each in sorted(sums)]
    return f"{counted(count[False], 'break')} open, at risk: {', '.join(moneys)}.{rest}"
