"""A month reconciled: ledgers, book lines, statement lines and the bank in one SQLite file.

The command runs on two cores in a process of its own (`reconciling`), to measure its memory; its
breaks are compared with the truth.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from tests.bench.processes import last_two_cores, run
from tests.bench.reconciled import fill
from tests.bench.reconciling import Found
from tests.bench.report import Figure
from tests.bench.sizes import BARS, Sizes
from tests.reconcile.books_truth import Month

EACH = 400
"""Orders of each kind of trouble, and of each kind that is calm but not plain, in a million."""


def reconcile_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Fill a database, reconcile it in a process of its own, and compare with the truth."""
    orders = sizes.reconcile_orders
    month = Month(orders=orders, each=max(1, orders * EACH // 1_000_000))
    path, told = folder / "month.db", folder / "month.json"
    fill(path, month)
    print("reconcile: running", file=sys.stderr)
    command = ("tests.bench.reconciling", str(path), str(told))
    ran = run(command, log=folder / "reconcile.log", env={}, cores=last_two_cores())
    result = json.loads(told.read_text(encoding="utf-8"))
    truth = Found(found for case in month.cases() for found in case.breaks)
    found = Found({tuple(key): count for key, count in result["breaks"]})
    matches = Counter(match for case in month.cases() for match in case.matches)
    speed = Figure(
        name="reconciliation",
        value=result["rows"] / result["seconds"],
        unit="book rows per second",
        bar=BARS["reconcile"],
        checks={
            "no break is missed": not truth - found,
            "no break is false": not found - truth,
            "what matched otherwise than by reference did so": (
                matches == {tuple(key): count for key, count in result["matches"]}
            ),
            "all sums tie": result["ties"],
            "every payout is found in the bank": result["in_bank"],
        },
        details={
            "book rows": result["rows"],
            "processes that match": result["jobs"],
            "seconds": result["seconds"],
            "seconds of processor time": result["cpu"],
            "book rows per second of processor time": result["rows"] / result["cpu"],
        },
    )
    memory = Figure(
        name="reconciliation's peak memory",
        value=ran.peak_rss_mib + result["others_mib"],
        unit="MiB",
        bar=BARS["reconcile memory"],
        details={"of all processes, each at its peak": True},
    )
    return [speed, memory]
