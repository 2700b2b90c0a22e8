"""Reconcile a database in a process that is measured: `python -m tests.bench.reconciling DATABASE
RESULT`.

The processes that match import this module before they begin, as they import the command's: so it
imports by itself only what they need.
"""

import json
import resource
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from app.cli.running import processes, run_loop
from reconcile.matching.decide import Decision, Match

Found = Counter[tuple[str, str | None, int]]
"""(cause, order, minor units at stake)"""


def _counted_matches() -> Counter[tuple[str, str | None]]:
    """Count the matches that are not by reference as (kind, order), while the run takes them.

    The run keeps only breaks and sums, and in sums a refund has no side of its own.
    """
    from app.finance.reconcile_period import _Work

    matches: Counter[tuple[str, str | None]] = Counter()
    take = _Work._take

    def taken(work: _Work, decision: Decision) -> bool:
        if isinstance(decision, Match):
            matches[decision.kind, decision.order] += 1
        return take(work, decision)

    _Work._take = taken  # type: ignore[assignment, method-assign]
    return matches


async def _measured(path: Path) -> dict[str, Any]:
    from app.core.clock import SetClock
    from app.finance.break_acts import breaks_of_run
    from app.finance.reconcile_period import RunRequest, reconcile_period
    from app.receiving.inbox import open_inbox
    from tests.bench.reconciled import RULES
    from tests.contexts import settings_of
    from tests.reconcile.books_truth import AS_OF

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
