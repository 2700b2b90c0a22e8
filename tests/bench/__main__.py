"""The bench: it measures, prints a table and writes `var/bench.json`.

`python -m tests.bench [--quick] [--output FILE] [NAME...]`; the names are those of PARTS. Exit
code 0: every bar holds; 1: one does not.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.bench import engine
from tests.bench.beside import beside_figures
from tests.bench.bundles import bundle_figures
from tests.bench.console import console_figures
from tests.bench.flood import flood_figures
from tests.bench.importing import import_figures
from tests.bench.ingest import loading
from tests.bench.machine import machine
from tests.bench.many import many, many_figures
from tests.bench.matching import match_figures, match_month
from tests.bench.offered import offered_figures
from tests.bench.order_trees import order_tree_figures
from tests.bench.period import report_figures
from tests.bench.rebuild import rebuild, rebuild_figures
from tests.bench.reconcile import reconcile_figures
from tests.bench.recovery import recovery_figures
from tests.bench.report import Figure, print_facts, print_figures, write_json
from tests.bench.scaling import scaling_figures
from tests.bench.sealing import sealing_figures
from tests.bench.shared import run_shared, shared_figures
from tests.bench.sizes import FULL, QUICK, Sizes

VAR = Path(__file__).parents[2] / "var"
Part = Callable[[Path, Sizes], list[Figure]]
_PARTS: Mapping[str, Part] = {
    "evidence": bundle_figures,
    "fold": engine.folding,
    "reading": engine.reading,
    "rebuild": lambda folder, sizes: rebuild_figures(rebuild(folder, orders=sizes.rebuild_orders)),
    "offered": offered_figures,
    "flood": flood_figures,
    "put_beside_burst": beside_figures,
    "postgresql": lambda folder, sizes: shared_figures(run_shared(folder, sizes=sizes)),
    "scaling": scaling_figures,
    "recovery": recovery_figures,
    "import": import_figures,
    "match": lambda folder, sizes: match_figures(match_month(folder, orders=sizes.match_orders)),
    "reconcile": reconcile_figures,
    "report": report_figures,
    "sealing": sealing_figures,
    "order_trees": order_tree_figures,
    "many": lambda folder, sizes: many_figures(many(folder, sizes=sizes)),
    "console": console_figures,
}
_LOADING = ("ingest", "flatness")
"""Two figures of the same rounds of load."""

PARTS = (*_PARTS, *_LOADING)


def measure(names: Sequence[str], sizes: Sizes) -> list[Figure]:
    """Measure the named parts, each in a folder on the disk that is deleted afterwards."""
    parts = [part for name, part in _PARTS.items() if name in names]
    if set(_LOADING) & set(names):
        parts.append(partial(loading, names=names))
    found: list[Figure] = []
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=VAR) as folder:
            found += part(Path(folder), sizes)
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
