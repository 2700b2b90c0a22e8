"""Many worlds one after another, and what they came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.world import Run, run_seed


@dataclass(slots=True)
class Sum:
    """Of many runs: how much was lived through, and the seeds that broke an invariant."""

    seeds: int = 0
    steps: int = 0
    simulated_s: float = 0.0
    real_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Run] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """One run more."""
        self.seeds += 1
        self.steps += run.steps
        self.simulated_s += run.simulated_s
        self.real_s += run.real_s
        self.counts += run.trace.counts
        if run.problems:
            self.failures.append(run)

    @property
    def ratio(self) -> float:
        """Simulated seconds in a real one."""
        return self.simulated_s / self.real_s

    def text(self) -> str:
        """For a person: what failed, each with the command that plays it again, and the sum."""
        lines = [f"{run.command}\n    " + "\n    ".join(run.problems) for run in self.failures]
        days = self.simulated_s / 86_400
        lines.append(
            f"{self.seeds:,} worlds, {self.steps:,} steps, {days:,.0f} simulated days in "
            f"{self.real_s:.0f} s ({self.ratio:,.0f}x): {len(self.failures)} failed"
        )
        lines.append(", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items())))
        return "\n".join(lines)


def play(seeds: Iterable[int]) -> Sum:
    """Live through all of them."""
    total = Sum()
    for seed in seeds:
        total.add(run_seed(seed))
    return total
