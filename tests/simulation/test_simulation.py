"""Thousands of seeded worlds keep every promise; planted defects show; a seed repeats itself."""

from __future__ import annotations

import hashlib
import io
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.logs import configure_logging
from tests.simulation.many import Sum, play
from tests.simulation.plants import PLANTS, Plant
from tests.simulation.world import run_seed

ROOT = Path(__file__).parents[2]

GATE = 2_000
"""Worlds that every run of the suite lives through."""

AT_ONCE = 250
"""Worlds in one test: short enough for the suite's limit on one test."""

PLANT_SEEDS = 120
"""Worlds among which each planted defect must show; most show in the first five."""

HAPPENS = frozenset(
    (
        *("starts", "stops", "failed", "killed before", "killed after", "power cut"),
        *("power cut in the middle of a commit", "clock steps", "nobody there"),
        *("held", "lost", "gateway", "not_stored", "signature_invalid", "wrong_environment"),
        *("stored", "duplicate", "duplicate_with_different_body"),
    )
)
"""What must have happened in the worlds of the gate, or they would prove little."""

DIGESTS = """
import io, sys
from app.logs import configure_logging
from tests.simulation.world import run_seed
configure_logging(format="json", stream=io.StringIO())
for seed in sys.argv[1:]:
    print(seed, run_seed(int(seed)).trace.digest())
"""


@pytest.fixture(autouse=True)
def log() -> io.StringIO:
    """The services' log goes nowhere; simulated traces are what is looked at."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream


@pytest.fixture(scope="module")
def gate() -> Iterator[Sum]:
    """What the worlds of the gate came to, all together."""
    total = Sum()
    yield total
    if total.seeds:
        print(total.text())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, GATE, AT_ONCE))
def test_every_promise_is_kept_in_every_world(first: int, gate: Sum, log: io.StringIO) -> None:
    """Whatever is lost, doubled, delayed, killed or cut off: all ends as the provider knows it."""
    total = play(range(first, first + AT_ONCE))
    gate.add_all(total)
    assert not total.failures, total.text()
    assert "an order cannot be folded" not in log.getvalue()
    assert total.counts.keys() >= HAPPENS


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_promise_is_kept_in_as_many_worlds_as_asked() -> None:
    """`SIMULATION_SEEDS` says how many, from the first that the gate leaves out."""
    total = play(range(GATE, GATE + int(os.environ.get("SIMULATION_SEEDS", "100000"))))
    print(total.text())
    assert not total.failures, total.text()


@pytest.mark.slow
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
def test_a_seed_gives_the_same_bytes_in_every_process() -> None:
    """Twenty seeds, here and in two other processes that hash strings otherwise."""
    seeds = [str(seed) for seed in random.Random(GATE).sample(range(10**9), 20)]
    here = "".join(f"{seed} {run_seed(int(seed)).trace.digest()}\n" for seed in seeds)
    assert _digests(seeds, hashing="1") == here
    assert _digests(seeds, hashing="2") == here


def test_the_command_prints_the_whole_trace() -> None:
    """What is printed has the digest of the trace, and ends with the world."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "1"],
        cwd=ROOT, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    run = run_seed(1)
    assert hashlib.sha256(found.stdout).hexdigest() == run.trace.digest()
    assert b" 0 problems\n" in found.stderr


def _digests(seeds: list[str], *, hashing: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", DIGESTS, *seeds],
        cwd=ROOT, capture_output=True, check=True, text=True, timeout=100,
        env={**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": str(ROOT)},
    ).stdout  # fmt: skip
