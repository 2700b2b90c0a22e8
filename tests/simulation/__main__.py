"""The command `python -m tests.simulation --seed N` replays one world and prints its whole trace.

`--count N` plays as many worlds, from `--seed` on, and prints only failures and the sum.
"""

import argparse
import io
import sys

from app.core.logs import configure_logging
from tests.simulation.many import play
from tests.simulation.world import run_seed


def main() -> int:
    """Play, and return 1 if an invariant was broken."""
    reader = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    reader.add_argument("--seed", type=int, default=0, help="the world, or the first of them")
    reader.add_argument(
        "--count", type=int, default=0, help="how many worlds; their traces stay out"
    )
    given = reader.parse_args()
    configure_logging(format="json", stream=io.StringIO())
    if given.count:
        total = play(range(given.seed, given.seed + given.count))
        print(total.text())
        return 1 if total.failures else 0
    run = run_seed(given.seed)
    sys.stdout.write(run.trace.text())
    ratio = run.simulated_s / run.real_s
    print(
        f"seed {run.seed}: {run.steps} steps, {run.simulated_s / 3600:.0f} simulated hours in "
        f"{run.real_s:.3f} s ({ratio:,.0f}x), {len(run.problems)} problems",
        file=sys.stderr,
    )
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
