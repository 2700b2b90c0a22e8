"""Totals in the merchant's own currency: at the rates of the days, and nothing hidden."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from reconcile.instants import DAY, TICK
from reconcile.reporting.inputs import OrderSeen
from reconcile.reporting.own_currency import Rates, UsedRate
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tally import PeriodTally
from tests.finance.reports.samples import START, line, orders, scope, taken, taking
from tests.rows import for_each

FIRST, THIRD = Fraction(1, 100), Fraction(1, 80)
BY_DAY = {"KES": (("2026-10-01", FIRST), ("2026-10-03", THIRD))}
RATES = Rates(own="USD", by_day=BY_DAY, statements={})


def added_up(*seen: OrderSeen, rates: Rates | None = RATES, **changes: Any) -> PeriodReport:
    tally = PeriodTally(scope(**changes), rates=rates)
    for each in seen:
        tally.order(each)
    return tally.report()


def paid(minor: int, day: int, *, settled: int | None = None, **changes: Any) -> OrderSeen:
    """Build an order that was captured on a day of October, and settled on another."""
    each = taken(minor, START + (day - 1) * DAY + TICK, order=f"O{day}", **changes)
    lines = () if settled is None else (line(each, START + (settled - 1) * DAY + TICK, fee=100),)
    return OrderSeen(taking=taking(f"O{day}", each.at, each), lines=lines)


@for_each(
    ("day", "found"),
    [
        ("2026-09-30", None),
        ("2026-10-01", ("2026-10-01", FIRST)),
        ("2026-10-02", ("2026-10-01", FIRST)),
        ("2026-10-10", ("2026-10-03", THIRD)),
        ("2026-10-11", None),
    ],
)
def test_a_day_has_its_rate_or_the_last_of_seven_days(
    day: str, found: tuple[str, Fraction] | None
) -> None:
    used = RATES.on("KES", day)
    assert (None if used is None else (used.day, used.rate)) == found


def test_money_is_converted_at_the_rate_of_its_day_and_the_rest_is_a_line() -> None:
    """Captured at 1/100, settled at 1/80: the difference is the residual, in no other flow."""
    report = added_up(paid(100_000, 1, settled=3))
    assert [(row.of, row.flow, row.sum) for row in report.own] == [
        (of, flow, minor)
        for of in ("KES", None)
        for flow, minor in (
            ("captured", 1_000),
            ("fees", 1),
            ("net", 999),
            ("settled", 1_249),
            ("residual", -250),
        )
    ]
    assert [(row.of, row.day, row.rate, row.origin) for row in report.rates] == [
        ("KES", "2026-10-01", "0.01", "file"),
        ("KES", "2026-10-03", "0.0125", "file"),
    ]


def test_without_a_rate_of_the_file_that_of_the_statements_is_used() -> None:
    each = taken(16_000, START + TICK, order="A", currency="JPY")
    settles = line(each, START + DAY, gross=9_600)
    seen = OrderSeen(taking=taking("A", each.at, each), lines=(replace(settles, currency="USD"),))
    open_ = OrderSeen(taking=taking("B", each.at, taken(500, each.at, order="B", currency="JPY")))
    report = added_up(seen, open_)
    assert [(row.of, row.day, row.rate, row.origin) for row in report.rates] == [
        ("JPY", None, "0.006", "statement")
    ]
    sums = {(row.of, row.flow): row.sum for row in report.own}
    assert sums[None, "captured"] == 9_600 + 300
    assert (sums[None, "settled"], sums[None, "not_settled"], sums[None, "residual"]) == (
        9_600,
        300,
        0,
    )


def test_money_without_any_rate_is_named() -> None:
    report = added_up(paid(100_000, 1), paid(5_000, 20))
    assert [row.sum for row in report.own if row.flow == "captured"] == [1_000, 1_000]
    assert [each.sentence for each in report.notes] == [
        "Money in KES is not in the totals in USD: neither the file of exchange rates nor a "
        "statement has a rate for that day."
    ]


def test_without_an_own_currency_there_are_no_totals() -> None:
    report = added_up(paid(100_000, 1), rates=None)
    assert (report.own, report.rates) == ((), ())


@for_each("basis", ["captured", "received", "settled"])
def test_the_own_currency_itself_is_never_changed(basis: str) -> None:
    """Every flow is the row of the money table, and nothing is left."""
    report = added_up(*orders(60), rates=Rates(own="KES", by_day={}, statements={}), basis=basis)
    own = {row.flow: row.sum for row in report.own if row.of == "KES" and row.sum}
    assert own == {row.flow: row.sum for row in report.money if row.currency == "KES" and row.sum}


def test_a_rate_is_written_with_ten_decimals() -> None:
    used = UsedRate(currency="KES", day=None, rate=Fraction(1, 150), origin="file")
    assert used.text == "0.0066666666"
