"""Many worlds in turn, and the sum of their results."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.world import Run, run_seed


@dataclass(slots=True)
class Sum:
    """Totals of many runs, and those that broke an invariant."""

    seeds: int = 0
    steps: int = 0
    simulated_s: float = 0.0
    real_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Run] = field(default_factory=list)

    def text(self) -> str:
        """Return the failures, each with the command that replays it, and the sum."""
        lines = [
            "\n    ".join((f"python -m tests.simulation --seed {run.seed}", *run.problems))
            for run in self.failures
        ]
        days, ratio = self.simulated_s / 86_400, self.simulated_s / self.real_s
        lines.append(
            f"{self.seeds:,} worlds, {self.steps:,} steps, {days:,.0f} simulated days in "
            f"{self.real_s:.0f} s ({ratio:,.0f}x): {len(self.failures)} failed"
        )
        lines.append(", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items())))
        return "\n".join(lines)


def play(seeds: Iterable[int]) -> Sum:
    total = Sum()
    for seed in seeds:
        run = run_seed(seed)
        total.seeds += 1
        total.steps += run.steps
        total.simulated_s += run.simulated_s
        total.real_s += run.real_s
        total.counts += run.trace.counts
        if run.problems:
            total.failures.append(run)
    return total
