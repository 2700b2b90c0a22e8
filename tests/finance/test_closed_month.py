"""A month from the first webhook to the closed books, and what is learned of it afterwards."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.finance.reports.render import REPORT_FORMATS
from reconcile.instants import DAY, parse_instant
from reconcile.matching.books import match_key
from reconcile.matching.causes import BREAK_CAUSES
from reconcile.money import from_major
from tests.finance.month import DAYS, Month, Truth
from tests.finance.plots import pays, unsettled
from tests.finance.shop import LONG_AGO, Shop
from tests.reconcile.build import ORDER_CAUSES

OCTOBER, NOVEMBER = ("2024-10-01", "2024-10-31"), ("2024-11-01", "2024-11-30")


@pytest.mark.costly
@pytest.mark.slow
def test_a_month_of_some_orders_is_reconciled_closed_and_adjusted(tmp_path: Path) -> None:
    whole_month(Shop(tmp_path, Month(orders=120, undecided_every=3, starts=LONG_AGO)))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_the_same_of_a_hundred_thousand(tmp_path: Path) -> None:
    whole_month(Shop(tmp_path, Month(orders=100_000, undecided_every=250, starts=LONG_AGO)))


def test_what_is_not_settled_is_found_to_the_last_day(tmp_path: Path) -> None:
    """The statement reaches far enough to say so: what it only does not hold yet is no break."""
    shop = Shop(tmp_path, Month(orders=2 * DAYS, plots=(pays, unsettled), starts=LONG_AGO))
    shop.fill()
    found = shop.reconcile()["breaks"]
    truth = shop.month.truth()
    assert truth.count("not_settled") == DAYS
    assert {each["order"] for each in found} == {order for _, order in truth.gaps}


def test_on_the_basis_settled_a_report_is_what_the_statement_says(tmp_path: Path) -> None:
    """In the month, after it, and over both: of whatever the lines are, account fees among them."""
    shop = Shop(tmp_path, Month(orders=120, starts=LONG_AGO))
    shop.fill()
    shop.reconcile()
    for first, last in (OCTOBER, NOVEMBER, (OCTOBER[0], NOVEMBER[1])):
        report = shop.report(first, last, basis="settled")
        until = parse_instant(f"{last}T00:00:00Z") + DAY
        fees, net = shop.month.settled_between(parse_instant(f"{first}T00:00:00Z"), until)
        for flow, true in (("fees", fees), ("settled", net), ("net", net)):
            reported = summed([row for row in report["money"] if row["flow"] == flow], "sum")
            assert reported == +true, (first, last, flow)


def whole_month(shop: Shop) -> None:
    """Everything that finance does in a month, each step compared with the truth."""
    truth = shop.month.truth()
    shop.fill()
    every_break_is_found(shop.reconcile(), truth)
    shop.cover()
    shop.accept("not_settled")
    it_closes_once_the_blockers_are_dealt_with(shop, truth)
    closed = printed(shop)
    every_sum_is_the_truth(
        shop.did("period", "show", "2024-10", "--format", "json").document, truth
    )
    late = shop.hear_late()
    shop.did("reconcile", "run")
    adjusted = shop.report(*NOVEMBER)["adjustments"]
    late_money_is_an_adjustment(adjusted, truth, late=late)
    closed_and_adjusted_is_what_a_fresh_report_says(shop, adjusted)
    assert printed(shop) == closed
    verified = shop.did("period", "verify", "--format", "json").document
    assert [each["step"] for each in verified] == [
        "chain",
        "prints",
        "history",
        "figures",
        "journal",
    ]


def every_break_is_found(run: Any, truth: Truth) -> None:
    """Every cause in its number, each break with its order and its money, and no other."""
    found = {
        (each["cause"], match_key(each["order"])): minor(each["money"]) for each in run["breaks"]
    }
    true = {
        (gap.cause, match_key(gap.order)): (gap.minor, gap.currency) for gap in truth.gaps.values()
    }
    assert found == true
    assert len(run["breaks"]) == len(true)
    assert {cause for cause, _ in true} == ORDER_CAUSES
    assert run["ties"] is True


def minor(money: dict[str, str]) -> tuple[int, str]:
    """Return (minor units, currency) of money in JSON."""
    return from_major(money["amount"], money["currency"]).minor, money["currency"]


def it_closes_once_the_blockers_are_dealt_with(shop: Shop, truth: Truth) -> None:
    """Check that only undecided breaks are reported, and accept them."""
    refused = shop.run("period", "close", "2024-10", "--format", "json")
    causes = ("ambiguous", "payment_in_doubt", "unresolved")
    undecided = [truth.count(cause) for cause in causes]
    assert refused.code == 1
    assert [each["reason"] for each in refused.document] == ["breaks"] * len(causes)
    for count, each in zip(undecided, refused.document, strict=True):
        assert f": {count:,} (brk_" in each["sentence"]
    assert shop.accept(*causes) == sum(undecided)
    shop.did("period", "close", "2024-10", "--by", "Ann")


def printed(shop: Shop) -> dict[str, str]:
    """Return the SHA-256 of the closed report in every format."""
    return {
        form: hashlib.sha256(
            shop.did("period", "show", "2024-10", "--format", form, "-o", "-").out
        ).hexdigest()
        for form in REPORT_FORMATS
    }


def every_sum_is_the_truth(report: Any, truth: Truth) -> None:
    """Outcomes, captured, given back, fees and settled money, by currency; and the ties hold."""
    control = report["control"]
    assert report["ties_hold"] is True
    assert +Counter({(r["currency"], r["bucket"]): r["count"] for r in control}) == truth.outcomes
    assert summed(control, "captured") == truth.captured
    assert summed(control, "refunded") == truth.returned
    assert summed(control, "lost") == +truth.lost
    assert summed([r for r in report["money"] if r["flow"] == "fees"], "sum") == truth.fees
    assert summed([r for r in report["money"] if r["flow"] == "settled"], "sum") == truth.settled
    not_notified = [row for row in report["money"] if row["flow"] == "not_notified"]
    assert summed(not_notified, "sum") == +truth.not_notified
    for cause in BREAK_CAUSES:
        rows = [row for row in report["breaks"] if row["cause"] == cause]
        assert sum(row["count"] for row in rows) == truth.count(cause)
        assert summed(rows, "sum") == +truth.at_stake(cause)


def summed(rows: list[dict[str, Any]], name: str) -> Counter[str]:
    """Sum up a column of money by currency, without zeros."""
    found: Counter[str] = Counter()
    for row in rows:
        if row[name] and row["currency"]:
            found[row["currency"]] += minor(row[name])[0]
    return +found


def late_money_is_an_adjustment(adjusted: list[Any], truth: Truth, *, late: int) -> None:
    """Check the payments that were missed: number of orders, money, and no breaks left."""
    at_stake = truth.at_stake("settled_never_notified")
    captured = [each for each in adjusted if each["figure"] == "money/captured"]
    assert sum(each["count_change"] for each in captured) == late
    assert summed(captured, "sum_change") == at_stake
    assert summed(captured, "sum_original") == +truth.captured
    gone = [each for each in adjusted if each["figure"] == "breaks/settled_never_notified"]
    assert sum(each["count_change"] for each in gone) == -late
    assert {each["period"] for each in adjusted} == {"2024-10"}


def closed_and_adjusted_is_what_a_fresh_report_says(shop: Shop, adjusted: list[Any]) -> None:
    """Check that captured money by outcome, as closed, with the adjustments is what a report of
    October says now."""
    closed = shop.did("period", "show", "2024-10", "--format", "json").document
    fresh = shop.report(*OCTOBER)
    for what in ("captured", "refunded", "lost"):
        changes = [
            (each["currency"], each["figure"].split("/")[1], each["sum_change"])
            for each in adjusted
            if each["figure"].startswith("control/") and each["figure"].endswith(f"/{what}")
        ]
        assert by_bucket(closed, what) + by_bucket_of(changes) == by_bucket(fresh, what)


def by_bucket(report: Any, what: str) -> Counter[tuple[str, str]]:
    """Return a column of the control totals."""
    return by_bucket_of([(r["currency"], r["bucket"], r[what]) for r in report["control"]])


def by_bucket_of(rows: list[tuple[str, str, Any]]) -> Counter[tuple[str, str]]:
    """Return money by currency and outcome."""
    return Counter(
        {(currency, line): minor(money)[0] for currency, line, money in rows if money is not None}
    )
