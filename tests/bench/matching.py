"""The matcher alone: a million orders, book lines and statement lines, on one core.

The rows are prepared files of pickled tuples: reading them is measured, making them is not. The
breaks are compared with the known truth.

`python -m tests.bench.matching FOLDER` matches the prepared rows and writes `found.json`.
"""

import json
import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from app.core.process import look_seldom, pass_over_start
from reconcile.matching.breaks import Break
from reconcile.matching.causes import ORDER_CAUSES
from reconcile.matching.match import Matching
from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from tests.bench.processes import Ran, last_core, run
from tests.bench.report import Figure
from tests.bench.sizes import BARS
from tests.reconcile.books_truth import AS_OF, COVERAGE, RULES, Month

AT_ONCE = 5_000
"""Rows in one pickle, as many as are read from a database at a time."""

SHARE_OF_TROUBLE = 2_500
"""One order in so many for each kind of trouble: with all kinds, one in a hundred is not plain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Speed and memory of one matching; false and missed against the truth."""

    ran: Ran
    rows: dict[str, int]
    seconds: float
    cpu: float
    false: int
    missed: int
    breaks: int
    of_each: int
    ties: bool


def match_month(folder: Path, *, orders: int) -> Matched:
    """Make a month, match it in a process of its own, and compare with the truth."""
    month = Month(orders=orders, each=orders // SHARE_OF_TROUBLE)
    streams = {"takings": month.takings(), "book": month.book(), "statements": month.statements()}
    rows = {name: _write(folder / name, stream) for name, stream in streams.items()}
    print("match: the month is made", file=sys.stderr)
    ran = run(
        ("tests.bench.matching", str(folder)), log=folder / "match.log", env={}, cores={last_core()}
    )
    found = json.loads((folder / "found.json").read_text())
    truth = Counter(
        each
        for case in month.cases()
        for each in (*case.breaks, *((kind, order, 0) for kind, order in case.matches))
    )
    told = Counter(map(tuple, found["told"]))
    return Matched(
        ran=ran,
        rows=rows,
        seconds=found["seconds"],
        cpu=found["cpu"],
        false=(told - truth).total(),
        missed=(truth - told).total(),
        breaks=sum(count for (what, _, _), count in truth.items() if what in ORDER_CAUSES),
        of_each=month.each,
        ties=found["ties"],
    )


def match_figures(found: Matched) -> list[Figure]:
    speed = Figure(
        name="match: takings, book and statement",
        value=found.rows["book"] / found.seconds,
        unit="book rows per second",
        bar=BARS["match"],
        checks={
            "no break or match is false": found.false == 0,
            "none is missed": found.missed == 0,
            "the control totals tie": found.ties,
        },
        details={
            **{f"rows of {name}": count for name, count in found.rows.items()},
            "breaks": found.breaks,
            "of each cause": found.of_each,
            "seconds": found.seconds,
            "per second of processor time": found.rows["book"] / found.cpu,
            "µs of processor time for each book row": found.cpu / found.rows["book"] * 1e6,
        },
    )
    memory = Figure(
        name="match's peak memory",
        value=found.ran.peak_rss_mib,
        unit="MiB",
        bar=BARS["match memory"],
    )
    return [speed, memory]


def _write(path: Path, rows: Iterable[tuple[Any, ...]]) -> int:
    count, plain = 0, map(tuple, rows)
    with path.open("wb") as file:
        while batch := list(islice(plain, AT_ONCE)):
            pickle.dump(batch, file)
            count += len(batch)
    return count


def _read(path: Path) -> Iterator[tuple[Any, ...]]:
    with path.open("rb") as file:
        while True:
            try:
                batch = pickle.load(file)
            except EOFError:
                return
            yield from batch


def main(folder: Path) -> None:
    look_seldom()
    pass_over_start()
    started, cpu = perf_counter(), process_time()
    matching = Matching(rules=RULES, as_of=AS_OF, coverage=COVERAGE)
    decisions = matching.decide(
        takings=map(TakingRow._make, _read(folder / "takings")),
        book=map(BookRow._make, _read(folder / "book")),
        statements=map(StatementRow._make, _read(folder / "statements")),
    )
    told = [
        (each.cause, each.order, each.money.minor)
        if isinstance(each, Break)
        else (each.kind, each.order, 0)
        for each in decisions
    ]
    ties = matching.control().holds
    found = {
        "seconds": perf_counter() - started,
        "cpu": process_time() - cpu,
        "ties": ties,
        "told": told,
    }
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
