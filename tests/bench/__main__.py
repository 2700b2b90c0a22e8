"""Measures, prints, writes `var/bench.json`.

`python -m tests.bench [--quick] [--output FILE] [NAME...]`; the names are those of PARTS. Exit
code 0: every bar holds; 1: one does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from tests.bench import figures
from tests.bench.beside import beside_figures, put_beside
from tests.bench.bundles import bundle_figures
from tests.bench.console import console_figures
from tests.bench.engine import SignedKilobyte, cost, crooked_history, fold_once, found_in
from tests.bench.flood import flood
from tests.bench.importing import import_book, import_figures
from tests.bench.ingest import run_rounds
from tests.bench.machine import machine
from tests.bench.many import many, many_figures
from tests.bench.matching import match_figures, match_month
from tests.bench.offered import offered, offered_figures
from tests.bench.order_trees import order_tree_figures
from tests.bench.period import adding_up_figure, workbook_figure
from tests.bench.rebuild import rebuild
from tests.bench.reconcile import reconcile_figures
from tests.bench.recovery import recover, recovery_figure
from tests.bench.report import Figure, print_facts, print_figures, write_json
from tests.bench.schemes import verify_each
from tests.bench.sealing_figures import sealing_figures
from tests.bench.shared import run_shared
from tests.bench.shared_figures import shared_figures
from tests.bench.sizes import FULL, QUICK, Sizes

VAR = Path(__file__).parents[2] / "var"
PARTS = (
    "evidence",
    "fold",
    "reading",
    "rebuild",
    "ingest",
    "flatness",
    "offered",
    "flood",
    "put_beside_burst",
    "postgresql",
    "recovery",
    "import",
    "match",
    "reconcile",
    "report",
    "sealing",
    "order_trees",
    "many",
    "console",
)


def bundling(folder: Path, _: Sizes) -> list[Figure]:
    """Evidence bundles."""
    return bundle_figures(folder)


def folding(_: Path, sizes: Sizes) -> list[Figure]:
    """One fold."""
    history = crooked_history()
    found = cost(lambda: fold_once(history), calls=sizes.folds, repeats=sizes.repeats)
    codes = found_in(fold_once(history))
    return [figures.fold_figure(found, codes, len(history.deliveries))]


def reading(_: Path, sizes: Sizes) -> list[Figure]:
    """One delivery through the provider engine."""
    delivery = SignedKilobyte.make()
    verifying = cost(delivery.verify, calls=sizes.folds, repeats=sizes.repeats)
    read = cost(delivery.read, calls=sizes.folds, repeats=sizes.repeats)
    genuine, size = delivery.verify() is None, len(delivery.request.body)
    found = figures.reading_figures(verifying, read, size=size, genuine=genuine)
    return [*found, *(figures.scheme_figure(each) for each in verify_each(sizes))]


def rebuilding(folder: Path, sizes: Sizes) -> list[Figure]:
    """All ledgers anew."""
    return figures.rebuild_figures(rebuild(folder, orders=sizes.rebuild_orders))


def offering(folder: Path, sizes: Sizes) -> list[Figure]:
    """Deliveries at rates that the sender chooses."""
    return offered_figures(offered(folder, sizes))


def flooding(folder: Path, sizes: Sizes) -> list[Figure]:
    """Genuine deliveries in a flood."""
    found = flood(
        folder, unsigned=sizes.flood_unsigned, slow=sizes.flood_slow, rate=sizes.flood_rate
    )
    return figures.flood_figures(found)


def calling_beside(folder: Path, sizes: Sizes) -> list[Figure]:
    """The shop's own calls beside other writers."""
    return beside_figures(put_beside(folder, sizes))


def sharing(folder: Path, sizes: Sizes) -> list[Figure]:
    """Receivers on PostgreSQL."""
    return shared_figures(run_shared(folder, sizes=sizes))


def importing(folder: Path, sizes: Sizes) -> list[Figure]:
    """An order book from a file."""
    return import_figures(import_book(folder, rows=sizes.import_rows))


def recovering(folder: Path, sizes: Sizes) -> list[Figure]:
    """From a kill to readiness."""
    return [recovery_figure(recover(folder, orders=sizes.recovery_orders))]


def matching(folder: Path, sizes: Sizes) -> list[Figure]:
    """Takings, book and statement side by side."""
    return match_figures(match_month(folder, orders=sizes.match_orders))


def reporting(folder: Path, sizes: Sizes) -> list[Figure]:
    """A report added up, and its workbook."""
    return [
        adding_up_figure(sizes.report_orders),
        workbook_figure(folder, rows=sizes.report_rows),
    ]


def holding_many(folder: Path, sizes: Sizes) -> list[Figure]:
    """What is asked of very many deliveries."""
    return many_figures(many(folder, sizes=sizes))


def loading(folder: Path, sizes: Sizes, *, names: Sequence[str]) -> list[Figure]:
    """Rounds of load: once, for whichever of the two figures are wanted."""
    flat = "flatness" in names
    rounds = run_rounds(folder, sizes=sizes, rounds=sizes.rounds if flat else sizes.ingest_rounds)
    found = figures.ingest_figures(rounds) if "ingest" in names else []
    return found + ([figures.flatness_figure(rounds)] if flat else [])


def measure(names: Sequence[str], sizes: Sizes) -> list[Figure]:
    """The figures of the named parts. Databases are made on the disk and removed afterwards."""
    parts: list[tuple[str, Callable[[Path, Sizes], list[Figure]]]] = [
        ("evidence", bundling),
        ("fold", folding),
        ("reading", reading),
        ("rebuild", rebuilding),
        ("offered", offering),
        ("flood", flooding),
        ("put_beside_burst", calling_beside),
        ("postgresql", sharing),
        ("recovery", recovering),
        ("import", importing),
        ("match", matching),
        ("reconcile", reconcile_figures),
        ("report", reporting),
        ("sealing", sealing_figures),
        ("order_trees", order_tree_figures),
        ("many", holding_many),
        ("console", console_figures),
    ]
    found: list[Figure] = []
    for name, part in parts:
        if name in names:
            found += _in_folder(part, sizes)
    if {"ingest", "flatness"} & set(names):
        found += _in_folder(lambda folder, size: loading(folder, size, names=names), sizes)
    return found


def _in_folder(part: Callable[[Path, Sizes], list[Figure]], sizes: Sizes) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=VAR) as folder:
        return part(Path(folder), sizes)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """What was asked for on the command line."""
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
    """Measure what was asked for; the exit code."""
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
