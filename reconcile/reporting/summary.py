"""What the tables of a report come to: totals of each currency, and breaks by cause and by age with
their subtotals.

Leaves out: anything that the report does not have. JSON and CSV hold the rows these add up; the
forms for people begin with these tables, declared as the report's own are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from reconcile.matching.breaks import BREAK_CAUSES
from reconcile.reporting.report import (
    AGES,
    BreakAgeRow,
    Flow,
    MoneyRow,
    PeriodReport,
)
from reconcile.reporting.tables import ReportTable, table_of
from reconcile.reporting.words import AGE_WORDS, CAUSE_WORDS
from reconcile.values import frozen


@frozen
class CurrencyTotal:
    """A currency's month in one row; sums in minor units. None: not known, or none of the period.

    orders      of the period, by the currency that they cost
    at_risk     of breaks that nobody has accepted
    """

    currency: str
    orders: int
    captured: int
    refunded: int
    lost: int
    fees: int
    net: int
    settled: int
    in_bank: int | None
    at_risk: int


@frozen
class CauseTotal:
    """Breaks of one cause in one currency, or all of the currency (`total`).

    breaks    the cause in words
    accepted  how many of them were accepted
    up_to_1_day and so on   how many are of each age
    """

    currency: str
    breaks: str
    count: int
    accepted: int
    sum: int
    at_risk: int
    up_to_1_day: int
    up_to_7_days: int
    up_to_30_days: int
    up_to_90_days: int
    older: int
    total: bool = False


@frozen
class AgeTotal:
    """Breaks of one age in one currency, or all of the currency (`total`)."""

    currency: str
    breaks: str
    count: int
    accepted: int
    sum: int
    at_risk: int
    total: bool = False


def currency_totals(report: PeriodReport) -> tuple[CurrencyTotal, ...]:
    """Every currency that the report knows, by its code."""
    known = {row.currency for row in report.control}
    known |= {row.currency for row in report.money} | {row.currency for row in report.breaks}
    return tuple(_total_of(currency, report) for currency in sorted(filter(None, known)))


def _total_of(currency: str, report: PeriodReport) -> CurrencyTotal:
    money = {row.flow: row for row in report.money if row.currency == currency}
    risky = [row for row in report.breaks if row.currency == currency]
    return CurrencyTotal(
        currency=currency,
        orders=sum(row.count for row in report.control if row.currency == currency),
        captured=_sum(money, "captured"),
        refunded=_sum(money, "refunded"),
        lost=_sum(money, "lost_in_disputes"),
        fees=_sum(money, "fees"),
        net=_sum(money, "net"),
        settled=_sum(money, "settled"),
        in_bank=_sum(money, "in_bank") if "in_bank" in money else None,
        at_risk=sum(row.at_risk for row in risky),
    )


def _sum(money: dict[Flow, MoneyRow], flow: Flow) -> int:
    return money[flow].sum if flow in money else 0


def break_totals(report: PeriodReport) -> tuple[CauseTotal, ...]:
    """By currency: each cause that it has, in the order of the vocabulary, then all of them."""
    found = []
    for currency, rows in _by_currency(report.breaks):
        for cause in BREAK_CAUSES:
            if own := [row for row in rows if row.cause == cause]:
                found.append(_break_total(currency, CAUSE_WORDS[cause], own))
        found.append(_break_total(currency, f"All breaks in {currency}", rows, total=True))
    return tuple(found)


def _break_total(
    currency: str, cause: str, rows: Sequence[BreakAgeRow], *, total: bool = False
) -> CauseTotal:
    return CauseTotal(
        currency=currency,
        breaks=cause,
        total=total,
        **_sums(rows),
        **{age: sum(row.count for row in rows if row.age == age) for age in AGES},
    )


def age_totals(report: PeriodReport) -> tuple[AgeTotal, ...]:
    """By currency: each age, the youngest first, then all of them."""
    found = []
    for currency, rows in _by_currency(report.breaks):
        for age in AGES:
            own = [row for row in rows if row.age == age]
            found.append(AgeTotal(currency=currency, breaks=AGE_WORDS[age], **_sums(own)))
        all_of = f"All breaks in {currency}"
        found.append(AgeTotal(currency=currency, breaks=all_of, total=True, **_sums(rows)))
    return tuple(found)


def _by_currency(rows: Sequence[BreakAgeRow]) -> list[tuple[str, list[BreakAgeRow]]]:
    currencies = sorted({row.currency for row in rows})
    return [(each, [row for row in rows if row.currency == each]) for each in currencies]


def _sums(rows: Sequence[BreakAgeRow]) -> dict[str, Any]:
    return {
        "count": sum(row.count for row in rows),
        "accepted": sum(row.count for row in rows if row.state == "accepted"),
        "sum": sum(row.sum for row in rows),
        "at_risk": sum(row.at_risk for row in rows),
    }


SUMMARIES: Final[tuple[tuple[ReportTable, Callable[[PeriodReport], Sequence[Any]]], ...]] = (
    (
        table_of(
            "totals",
            "Totals by currency",
            CurrencyTotal,
            "currency orders:count captured:money refunded:money lost:money fees:money net:money "
            "settled:money in_bank:money at_risk:money",
            about="Net is captured less refunds, lost disputes and fees. At risk is what may be "
            "lost of the breaks that nobody has accepted.",
        ),
        currency_totals,
    ),
    (
        table_of(
            "break_totals",
            "Breaks by cause",
            CauseTotal,
            "currency breaks count:count accepted:count sum:money at_risk:money up_to_1_day:count "
            "up_to_7_days:count up_to_30_days:count up_to_90_days:count older:count",
            about="Differences between ledgers, order book, statement and bank that are still "
            "there, and how many are how old. The amount is what they are about; at risk is what "
            "of it may be lost.",
        ),
        break_totals,
    ),
    (
        table_of(
            "age_totals",
            "Breaks by age",
            AgeTotal,
            "currency breaks count:count accepted:count sum:money at_risk:money",
            about="The same breaks by how long ago the latest of what disagrees is dated.",
        ),
        age_totals,
    ),
)
"""With the rows that each has of a report."""
