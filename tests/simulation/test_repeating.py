"""Each planted defect is found, and a seed gives the same bytes wherever it is played."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.many import play
from tests.simulation.plants import PLANTS, Plant
from tests.simulation.world import run_seed

ROOT = Path(__file__).parents[2]

PLANT_SEEDS = 120
"""Worlds among which each planted defect must show; most show in the first five."""

DIGESTS = """
import io, sys
from app.logs import configure_logging
from tests.simulation.world import run_seed
configure_logging(format="json", stream=io.StringIO())
for seed in sys.argv[1:]:
    print(seed, run_seed(int(seed)).trace.digest())
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(plant: Plant) -> None:
    """Some early world breaks an invariant, and the failure names the command that plays it."""
    for seed in range(PLANT_SEEDS):
        with plant():
            total = play([seed])
        if total.failures:
            assert f"python -m tests.simulation --seed {seed}\n" in total.text()
            return
    pytest.fail(f"{plant.__name__} was not noticed in {PLANT_SEEDS} worlds")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_seed_gives_the_same_bytes_in_every_process() -> None:
    """Twenty seeds, here and in another process that hashes strings otherwise."""
    seeds = [str(seed) for seed in random.Random(20).sample(range(10**9), 20)]
    here = "".join(f"{seed} {run_seed(int(seed)).trace.digest()}\n" for seed in seeds)
    assert _digests(seeds, hashing="1") == here


def test_the_command_prints_the_whole_trace() -> None:
    """What is printed has the digest of the trace, and ends with the world."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "1"],
        cwd=ROOT, capture_output=True, check=True, timeout=100,
    )  # fmt: skip
    run = run_seed(1)
    assert hashlib.sha256(found.stdout).hexdigest() == run.trace.digest()
    assert b" 0 problems\n" in found.stderr


def _digests(seeds: list[str], *, hashing: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", DIGESTS, *seeds],
        cwd=ROOT, capture_output=True, check=True, text=True, timeout=500,
        env={**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": str(ROOT)},
    ).stdout  # fmt: skip
