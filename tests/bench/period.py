"""A report's workbook and PDF with many rows.

`python -m tests.bench.period FILE ROWS` writes those of a report with so many breaks, in a process
of its own, to measure its memory.
"""

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from python_calamine import CalamineWorkbook

from app.core.process import collect_garbage_rarely, freeze_objects
from app.finance.reports.render import ReportFormat, render
from reconcile.reporting.tally import PeriodTally
from tests.bench.processes import last_core, run
from tests.bench.report import Figure
from tests.bench.sizes import BARS, Sizes
from tests.finance.reports.samples import breaks, scope


def report_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Measure the workbook of a finished report, and compare its sheet with the breaks."""
    path, rows = folder / "report.xlsx", sizes.report_rows
    words = ["tests.bench.period", str(path), str(rows)]
    ran = run(words, log=folder / "log", env={}, cores={last_core()})
    took = json.loads(path.with_suffix(".json").read_text())
    table: list[list[Any]] = (
        CalamineWorkbook.from_path(str(path)).get_sheet_by_name("List of breaks").to_python()
    )
    header, *lines = table
    place, money = header.index("Amount"), header.index("Currency")
    exponents = {"KES": 100, "JPY": 1, "KWD": 1_000}
    minor = sum(round(line[place] * exponents[line[money]]) for line in lines)
    return [
        Figure(
            name=f"XLSX of {rows:,} rows",
            value=took["xlsx"],
            unit="s",
            bar=BARS["workbook"],
            checks={
                "every row is in the sheet": len(lines) == rows,
                "the sheet's sum is that of the breaks": minor
                == sum(each.found.money.minor for each in breaks(rows)),
            },
            details={"MiB, peak of the process": ran.peak_rss_mib, "bytes": path.stat().st_size},
        ),
        Figure(name=f"PDF of {rows:,} rows", value=took["pdf"], unit="s"),
    ]


def main(path: Path, rows: int) -> None:
    """Write the workbook, and beside it the seconds that it and the PDF took."""
    tally, took = PeriodTally(scope(), break_lines=rows), dict[str, float]()
    for each in breaks(rows):
        tally.found(each)
    report = tally.report()
    collect_garbage_rarely()
    freeze_objects()
    forms: tuple[ReportFormat, ...] = "xlsx", "pdf"
    for form in forms:
        started = perf_counter()
        path.with_suffix(f".{form}").write_bytes(render(report, form))
        took[form] = perf_counter() - started
    path.with_suffix(".json").write_text(json.dumps(took))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
