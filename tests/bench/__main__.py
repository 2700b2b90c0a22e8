"""The bench: it measures, prints a table and writes `var/bench.json`.

`python -m tests.bench [--quick] [--output FILE] [NAME...]`; the names are those of PARTS. Exit
code 0: every bar holds; 1: one does not.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from tests.bench.bundles import bundle_figures
from tests.bench.burst import burst_figures
from tests.bench.console import console_figures
from tests.bench.importing import import_figures
from tests.bench.machine import machine
from tests.bench.many import many_figures
from tests.bench.offered import offered_figures
from tests.bench.period import report_figures
from tests.bench.reconcile import reconcile_figures
from tests.bench.report import Figure, print_facts, print_figures, write_json
from tests.bench.scaling import scaling_figures
from tests.bench.shared import run_shared, shared_figures
from tests.bench.sizes import FULL, QUICK, Sizes
from tests.bench.start import start_figures
from tests.bench.stock import stock_figures

VAR = Path(__file__).parents[2] / "var"
PARTS: Mapping[str, Callable[[Path, Sizes], list[Figure]]] = {
    "burst": burst_figures,
    "offered": offered_figures,
    "start": start_figures,
    "stock": stock_figures,
    "many": many_figures,
    "postgresql": lambda folder, sizes: shared_figures(run_shared(folder, sizes=sizes)),
    "scaling": scaling_figures,
    "import": import_figures,
    "reconcile": reconcile_figures,
    "report": report_figures,
    "evidence": bundle_figures,
    "console": console_figures,
}


def measure(names: Sequence[str], sizes: Sizes) -> list[Figure]:
    """Measure the named parts, each in a folder on the disk that is deleted afterwards."""
    found: list[Figure] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=VAR) as folder:
            found += PARTS[name](Path(folder), sizes)
    return found


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the size")
    parser.add_argument("--output", type=Path, default=VAR / "bench.json", metavar="FILE")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(PARTS)}")
    asked = parser.parse_args(given)
    unknown = sorted(set(asked.names) - set(PARTS))
    if unknown:
        parser.error(f"there is no {unknown[0]!r}: name any of {', '.join(PARTS)}")
    asked.names = asked.names or list(PARTS)
    return asked


def main(given: Sequence[str]) -> int:
    """Measure what was asked for; return the exit code."""
    asked = arguments(given)
    sizes = QUICK if asked.quick else FULL
    VAR.mkdir(exist_ok=True)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    print_facts(console, "machine", machine(VAR))
    print_facts(console, "settings", {"parts": " ".join(asked.names), **asdict(sizes)})
    try:
        found = measure(asked.names, sizes)
    except (RuntimeError, OSError) as error:
        print(f"The bench could not finish: {error}", file=sys.stderr)
        return 1
    print_figures(console, found)
    write_json(asked.output, found)
    return 0 if all(figure.holds for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
