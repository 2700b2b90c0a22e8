"""A month reconciled: ledgers, book lines, statement lines and the bank in one SQLite file.

The command runs on two cores in a process of its own, to measure its memory; its breaks are
compared with the truth. `python -m tests.bench.reconcile DATABASE RESULT` is that process.
"""

import json
import resource
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from app.cli.running import processes, run_loop
from app.core.clock import SetClock
from app.finance.break_acts import breaks_of_run
from app.finance.reconcile_period import RunRequest, _Work, reconcile_period
from app.receiving.inbox import open_inbox
from reconcile.matching.decide import Decision, Match
from tests.bench.processes import last_two_cores, run
from tests.bench.reconciled import RULES, fill
from tests.bench.report import Figure
from tests.bench.sizes import BARS, Sizes
from tests.contexts import settings_of
from tests.reconcile.books_truth import AS_OF, Month

EACH = 400
"""Orders of each kind of trouble, and of each kind that is calm but not plain, in a million."""

Found = Counter[tuple[str, str | None, int]]
"""(cause, order, minor units at stake)"""


def reconcile_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Fill a database, reconcile it in a process of its own, and compare with the truth."""
    orders = sizes.reconcile_orders
    month = Month(orders=orders, each=max(1, orders * EACH // 1_000_000))
    path, told = folder / "month.db", folder / "month.json"
    fill(path, month)
    print("reconcile: running", file=sys.stderr)
    command = ("tests.bench.reconcile", str(path), str(told))
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


# --- the process that is measured ----------------------------------------------------------------


def _counted_matches() -> Counter[tuple[str, str | None]]:
    """Count the matches that are not by reference as (kind, order), while the run takes them.

    The run keeps only breaks and sums, and in sums a refund has no side of its own.
    """
    matches: Counter[tuple[str, str | None]] = Counter()
    take = _Work._take

    def taken(work: _Work, decision: Decision) -> bool:
        if isinstance(decision, Match):
            matches[decision.kind, decision.order] += 1
        return take(work, decision)

    _Work._take = taken  # type: ignore[assignment, method-assign]
    return matches


async def _measured(path: Path) -> dict[str, Any]:
    settings = settings_of(path)
    async with open_inbox(settings, purpose="writing") as inbox:
        context = inbox.context(clock=SetClock(AS_OF))
        matches, jobs = _counted_matches(), processes(None, most=2)
        began, cpu = perf_counter(), process_time()
        done = await reconcile_period(
            context,
            RunRequest(rules=RULES),
            progress=lambda _: None,
            jobs=jobs,
        )
        seconds, cpu = perf_counter() - began, process_time() - cpu
        others = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = Found()
        async for part in breaks_of_run(context, done.number):
            found.update((b.seen.cause, b.seen.order, b.seen.money.minor) for b in part)
    lines = done.control.lines
    return {
        "seconds": seconds,
        "cpu": cpu + others.ru_utime + others.ru_stime,
        "jobs": jobs,
        "others_mib": jobs * others.ru_maxrss / 1024,
        "rows": sum(each.count for each in done.control.read if each.side == "book"),
        "breaks": [(list(key), count) for key, count in found.items()],
        "matches": [(list(key), count) for key, count in matches.items()],
        "ties": done.control.holds,
        "in_bank": {line.bucket for line in lines if line.side == "payouts"} == {"by_reference"},
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(
        json.dumps(run_loop(_measured(Path(sys.argv[1])))), encoding="utf-8"
    )
