"""The figures of a report that add up, and how two reports of one period differ in them.

Leaves out: what does not add up, such as ages, and what only describes. A figure keeps its name
whatever becomes of the tables of a report, so a closed period can be compared for ever.

The law of adjustments: the figures of a closed period, with every adjustment told of it since, are
the figures that a report of that period has now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from reconcile.periods import Month
from reconcile.reporting.report import AdjustmentRow, PeriodReport
from reconcile.values import frozen

SHOWN: Final = 12
"""Hex digits of a closing's digest that an adjustment cites: among some hundreds they are one."""

Name = tuple[str, str, str, str]
"""(table, currency or empty, line, what)"""


@frozen
class Figure:
    """One line of a report that adds up: `count` of things, `sum` in minor units of `currency`.

    table     of which table it is
    line      the row within it: an outcome, a flow, a cause
    what      what of the row: such as `captured`; empty where a row has one sum
    """

    table: str
    currency: str
    line: str
    what: str
    count: int
    sum: int

    @property
    def name(self) -> Name:
        """What makes two figures the same figure."""
        return (self.table, self.currency, self.line, self.what)

    def document(self) -> list[Any]:
        """As a JSON list."""
        return [*self.name, self.count, self.sum]


def figure_of(document: list[Any]) -> Figure:
    """The figure that `document` wrote."""
    table, currency, line, what, count, total = document
    return Figure(table=table, currency=currency, line=line, what=what, count=count, sum=total)


def figures(report: PeriodReport) -> tuple[Figure, ...]:
    """Every figure of a report that is not zero, sorted by name."""
    found = added(_rows(report))
    return tuple(sorted(found, key=lambda each: each.name))


def added(figures: Iterable[Figure]) -> list[Figure]:
    """Figures of equal name added up; those that come to nothing are left out."""
    sums: dict[Name, tuple[int, int]] = {}
    for each in figures:
        count, total = sums.get(each.name, (0, 0))
        sums[each.name] = (count + each.count, total + each.sum)
    return [
        Figure(table=name[0], currency=name[1], line=name[2], what=name[3], count=count, sum=total)
        for name, (count, total) in sums.items()
        if count or total
    ]


def difference(then: Iterable[Figure], now: Iterable[Figure]) -> tuple[Figure, ...]:
    """What must be added to the figures of then to get those of now, sorted by name."""
    found = added([*now, *(_negative(each) for each in then)])
    return tuple(sorted(found, key=lambda each: each.name))


def _negative(figure: Figure) -> Figure:
    return Figure(
        table=figure.table,
        currency=figure.currency,
        line=figure.line,
        what=figure.what,
        count=-figure.count,
        sum=-figure.sum,
    )


def _rows(report: PeriodReport) -> Iterator[Figure]:
    """Breaks are told without their ages: a break that grows older is no news of the period."""
    for step in report.flow:
        yield _figure("flow", step.currency, step.step, "", step.count, step.sum)
    for orders in report.control:
        currency, bucket = orders.currency, orders.bucket
        yield _figure("control", currency, bucket, "orders", orders.count, orders.sum)
        yield _figure("control", currency, bucket, "captured", 0, orders.captured)
        yield _figure("control", currency, bucket, "refunded", 0, orders.refunded)
        yield _figure("control", currency, bucket, "lost", 0, orders.lost)
    for money in report.money:
        yield _figure("money", money.currency, money.flow, "", money.count, money.sum)
    for row in report.matching:
        line = f"{row.side} {row.bucket}"
        yield _figure("matching", row.currency, line, "", row.count, row.sum)
        yield _figure("matching", row.currency, line, "fee", 0, row.fee)
        yield _figure("matching", row.currency, line, "net", 0, row.net)
    for fee in report.fees:
        yield _figure("fees", fee.currency, fee.kind, "gross", fee.count, fee.gross)
        yield _figure("fees", fee.currency, fee.kind, "fee", 0, fee.fee)
        yield _figure("fees", fee.currency, fee.kind, "net", 0, fee.net)
    for found in report.breaks:
        yield _figure("breaks", found.currency, found.cause, "", found.count, found.sum)


def _figure(
    table: str, currency: str | None, line: str, what: str, count: int, total: int
) -> Figure:
    return Figure(
        table=table, currency=currency or "", line=line, what=what, count=count, sum=total
    )


# --- adjustments ---------------------------------------------------------------------------------


@frozen
class Stated:
    """What has been said of a closed month: its figures, and what reports since have added.

    closing  the digest of its closing
    """

    month: Month
    closing: str
    original: tuple[Figure, ...]
    told: tuple[Figure, ...] = ()


def adjustments(stated: Stated, now: Iterable[Figure]) -> tuple[AdjustmentRow, ...]:
    """What a report must add to what was stated, so that it comes to the figures of now."""
    original = {each.name: each for each in stated.original}
    told = {each.name: each for each in added(stated.told)}
    changes = difference([*stated.original, *stated.told], now)
    return tuple(
        _row(stated, change, original=original.get(change.name), told=told.get(change.name))
        for change in changes
    )


def _row(
    stated: Stated, change: Figure, *, original: Figure | None, told: Figure | None
) -> AdjustmentRow:
    return AdjustmentRow(
        period=stated.month.name,
        figure="/".join([part for part in (change.table, change.line, change.what) if part]),
        currency=change.currency or None,
        count_change=change.count,
        sum_original=0 if original is None else original.sum,
        sum_told=0 if told is None else told.sum,
        sum_change=change.sum,
        closing=stated.closing.removeprefix("sha256:")[:SHOWN],
    )


def change_in(row: AdjustmentRow) -> Figure:
    """What an adjustment adds, as a figure of the month that it speaks of."""
    table, line, *what = row.figure.split("/")
    return Figure(
        table=table,
        currency=row.currency or "",
        line=line,
        what="".join(what),
        count=row.count_change,
        sum=row.sum_change,
    )
