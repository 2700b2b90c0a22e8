"""Twelve months side by side: sums per source and month, against a month whose truth is known."""

from collections import Counter
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from app.finance.coverage import Declaration, declare_coverage
from app.finance.imports import ImportRequest, import_statement
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.trends import trends, trends_document
from reconcile.instants import format_instant
from tests.database.builders import context as context_of
from tests.database.builders import opened, quiet
from tests.finance.loading import into_store
from tests.finance.month import ACCOUNT_FEE, CURRENCIES, Month
from tests.finance.plots import CYCLE


async def test_each_months_captures_are_settled_open_or_not_covered(tmp_path: Path) -> None:
    """Every sum is of the month's stories; what no file covers is in no rate."""
    url, month = f"sqlite+aiosqlite:///{tmp_path}/t.db", Month(orders=len(CYCLE) * len(CURRENCIES))
    await into_store(url, month)
    captured, paid, cost = month.truth().captured, Counter[str](), Counter[str]()
    for story in month.stories():
        for row in story.statement:
            if row.kind == "payment":
                paid[row.currency] += row.gross
                cost[row.currency] += row.fee
    async with opened(url) as inbox:
        context = context_of(inbox, at=600)
        await reconcile_period(context, RunRequest(), progress=quiet)
        before = trends_document(await trends(context))
        path = month.write_statement(tmp_path / "s.csv")
        await import_statement(context, ImportRequest(path=path), source="shop")
        await declare_coverage(
            context,
            Declaration(
                kind="statement", name="shop", first="2026-10-01", last="2026-11-10",
                reason="its pages say so",
            ),
        )  # fmt: skip
        after = trends_document(await trends(context))
    assert before["as_of"] == format_instant(context.clock.now())
    assert summed(before["settling"], "captured") == captured
    assert summed(before["settling"], "not_covered") == captured
    assert {row["match_rate"] for row in before["settling"]} == {None}
    assert summed(after["fees"], "gross") == paid
    assert summed(after["fees"], "fee") == cost + Counter(
        dict.fromkeys(CURRENCIES, 2 * ACCOUNT_FEE)
    )
    assert summed(after["settling"], "not_covered") == dict.fromkeys(CURRENCIES, 0)
    settled, left = (summed(after["settling"], name) for name in ("settled", "open"))
    assert settled + left == captured
    assert min(left.values()) > 0
    for row in after["settling"]:
        rate = Decimal(100) * settled[row["currency"]] / captured[row["currency"]]
        assert row["match_rate"] == str(rate.quantize(Decimal("0.01"), ROUND_HALF_UP))


def summed(rows: Iterable[dict[str, Any]], name: str) -> Counter[str]:
    found = Counter[str]()
    for row in rows:
        found[row["currency"]] += int(row[name]["amount"].replace(".", ""))
    return found
