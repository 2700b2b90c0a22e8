"""Reports: how fast a period is added up, and how long a workbook of many rows takes.

`python -m tests.bench.period FILE ROWS` makes a report with so many breaks and writes its workbook:
a process of its own, so that its memory can be told.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from python_calamine import CalamineWorkbook

from app.core.process import look_seldom, pass_over_start
from app.finance.reports.render import render
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tally import PeriodTally
from tests.bench.processes import last_core, run
from tests.bench.report import Figure
from tests.bench.sizes import BARS
from tests.finance.reports.samples import breaks, orders, scope


def adding_up_figure(count: int) -> Figure:
    """Orders with their statement lines, through every sum of the report."""
    seen = list(orders(count))
    look_seldom()
    pass_over_start()
    tally = PeriodTally(scope())
    started = perf_counter()
    for each in seen:
        tally.order(each)
    report = tally.report()
    seconds = perf_counter() - started
    return Figure(
        name="orders added up to a report",
        value=count / seconds,
        unit="per second",
        checks={
            "every order is in one bucket": sum(row.count for row in report.control) == count,
            "every tie holds": report.ties_hold,
        },
    )


def report_of_breaks(rows: int) -> PeriodReport:
    """A report with so many breaks, each with its sentence, next step and evidence."""
    tally = PeriodTally(scope(), break_lines=rows)
    for each in breaks(rows):
        tally.found(each)
    return tally.report()


def workbook_figure(folder: Path, *, rows: int) -> Figure:
    """Seconds that the workbook takes, once the report is there."""
    path = folder / "report.xlsx"
    words = ["tests.bench.period", str(path), str(rows)]
    ran = run(words, log=folder / "log", env={}, cores={last_core()})
    seconds, busy = map(float, path.with_suffix(".seconds").read_text().split())
    table: list[list[Any]] = (
        CalamineWorkbook.from_path(str(path)).get_sheet_by_name("List of breaks").to_python()
    )
    header, *lines = table
    place, money = header.index("Amount"), header.index("Currency")
    exponents = {"KES": 100, "JPY": 1, "KWD": 1_000}
    minor = sum(round(line[place] * exponents[line[money]]) for line in lines)
    return Figure(
        name=f"XLSX of {rows:,} rows",
        value=seconds,
        unit="s",
        bar=BARS["workbook"],
        sense="at most",
        checks={
            "every row is in the sheet": len(lines) == rows,
            "the sheet's sum is that of the breaks": minor
            == sum(each.found.money.minor for each in breaks(rows)),
        },
        details={
            "seconds of the processor": busy,
            "MiB, peak of the process": ran.peak_rss_mib,
            "seconds, whole process": ran.seconds,
            "bytes": path.stat().st_size,
        },
    )


def main(path: Path, rows: int) -> None:
    """Write the workbook, and beside it how long it took."""
    report = report_of_breaks(rows)
    look_seldom()
    pass_over_start()
    started, busy = perf_counter(), process_time()
    made = render(report, "xlsx")
    seconds, busy = perf_counter() - started, process_time() - busy
    path.write_bytes(made)
    path.with_suffix(".seconds").write_text(f"{seconds} {busy}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
