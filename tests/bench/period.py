"""Reports: the rate at which a period is added up, and the time of a workbook with many rows.

`python -m tests.bench.period FILE ROWS` writes the workbook of a report with so many breaks, in a
process of its own, to measure its memory.
"""

import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from python_calamine import CalamineWorkbook

from app.core.process import look_seldom, pass_over_start
from app.finance.reports.render import render
from reconcile.reporting.tally import PeriodTally
from tests.bench.processes import last_core, run
from tests.bench.report import Figure
from tests.bench.sizes import BARS, Sizes
from tests.finance.reports.samples import breaks, orders, scope


def report_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    return [adding_up_figure(sizes.report_orders), workbook_figure(folder, rows=sizes.report_rows)]


def adding_up_figure(count: int) -> Figure:
    """Add up orders with their statement lines, through every sum of the report."""
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


def workbook_figure(folder: Path, *, rows: int) -> Figure:
    """Measure the workbook of a finished report, and compare its sheet with the breaks."""
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
    """Write the workbook, and beside it the seconds that it took."""
    tally = PeriodTally(scope(), break_lines=rows)
    for each in breaks(rows):
        tally.found(each)
    report = tally.report()
    look_seldom()
    pass_over_start()
    started, busy = perf_counter(), process_time()
    made = render(report, "xlsx")
    seconds, busy = perf_counter() - started, process_time() - busy
    path.write_bytes(made)
    path.with_suffix(".seconds").write_text(f"{seconds} {busy}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
