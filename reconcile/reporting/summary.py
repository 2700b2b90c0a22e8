"""Summary tables: totals by currency, breaks by cause and age."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.matching.causes import CAUSES
from reconcile.reporting.report import (
    AGES,
    BreakAgeRow,
    PeriodReport,
)
from reconcile.reporting.tables import ReportTable, table_of
from reconcile.reporting.words import AGE_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencyTotal:
    """Totals of one currency in the period, in minor units. `in_bank` and `in_wallet` are None
    without bank files."""

    currency: str
    orders: int
    captured: int
    refunded: int
    lost: int
    fees: int
    net: int
    settled: int
    in_bank: int | None
    in_wallet: int | None
    at_risk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseTotal:
    """Breaks of one cause in one currency; with `total`, breaks of all causes."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeTotal:
    """Breaks of one age in one currency."""

    currency: str
    breaks: str
    count: int
    accepted: int
    sum: int
    at_risk: int
    total: bool = False


def currency_totals(report: PeriodReport) -> tuple[CurrencyTotal, ...]:
    """Return the totals of every currency."""
    known = {row.currency for row in report.control}
    known |= {row.currency for row in report.money} | {row.currency for row in report.breaks}
    found = []
    for currency in sorted(filter(None, known)):
        money = {row.flow: row.sum for row in report.money if row.currency == currency}
        total = CurrencyTotal(
            currency=currency,
            orders=sum(row.count for row in report.control if row.currency == currency),
            captured=money.get("captured", 0),
            refunded=money.get("refunded", 0),
            lost=money.get("lost_in_disputes", 0),
            fees=money.get("fees", 0),
            net=money.get("net", 0),
            settled=money.get("settled", 0),
            in_bank=money.get("in_bank"),
            in_wallet=money.get("in_wallet"),
            at_risk=sum(row.at_risk for row in report.breaks if row.currency == currency),
        )
        found.append(total)
    return tuple(found)


def break_totals(report: PeriodReport) -> tuple[CauseTotal, ...]:
    """Return the number of breaks by currency and cause."""
    found = []
    for currency, rows in _by_currency(report.breaks):
        parts = [
            (cause.name, [r for r in rows if r.cause == code]) for code, cause in CAUSES.items()
        ]
        for cause, own in (*parts, (f"All breaks in {currency}", rows)):
            if own:
                ages = {age: sum(row.count for row in own if row.age == age) for age in AGES}
                total = CauseTotal(
                    currency=currency, breaks=cause, total=own is rows, **_sums(own), **ages
                )
                found.append(total)
    return tuple(found)


def age_totals(report: PeriodReport) -> tuple[AgeTotal, ...]:
    """Return the number of breaks by currency and age."""
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
            "settled:money in_bank:money in_wallet:money at_risk:money",
            about="Net is captured less refunds, lost disputes and fees. Money in a wallet "
            "reaches the bank by payouts, as the table of wallets shows. At risk is money that "
            "breaks not yet accepted may lose.",
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
            about="Open differences between ledgers, order book, statement and bank, and their "
            "ages. The sum is the amount concerned; at risk is the part that may be lost.",
        ),
        break_totals,
    ),
    (
        table_of(
            "age_totals",
            "Breaks by age",
            AgeTotal,
            "currency breaks count:count accepted:count sum:money at_risk:money",
            about="The same breaks by the age of the latest evidence that disagrees.",
        ),
        age_totals,
    ),
)
