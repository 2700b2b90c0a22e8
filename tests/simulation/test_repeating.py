"""Each planted defect is found, and a seed gives the same bytes wherever it is played."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import warnings
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Literal
from unittest.mock import patch

import pytest

from tests.simulation.many import play
from tests.simulation.plants import PLANTS, Plant
from tests.simulation.world import run_seed
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

PLANT_SEEDS = 120
"""Worlds among which each planted defect must show; most show in the first five."""

SHOWN_IN = {
    "ack_before_commit": 27, "evidence_overtaken": 15, "first_body_wins": 8,
    "environment_not_checked": 5, "deadline_ignored": 9, "log_not_synced": 2, "dedupe_off": 1,
    "stored_not_asked": 1, "last_word_wins": 1,
}  # fmt: skip
"""The first world that shows a defect, where it is not the first: played before all
others, since a search from 0 took most of the suite's simulated time. A change of the worlds makes
a number stale and no test fail: the others are searched then, and it should be corrected."""

MEETING = 2
"""A world in which a kill meets a commit, so that the driver warns."""

TRACES = """
import io, sys
from pathlib import Path
from app.core.logs import configure_logging
from tests.simulation.world import run_seed
configure_logging(format="json", stream=io.StringIO())
for seed in sys.argv[2:]:
    Path(sys.argv[1], seed).write_text(run_seed(int(seed)).trace.text())
"""


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(plant: Plant) -> None:
    """Some early world breaks an invariant, and the failure names the command that plays it."""
    for seed in (SHOWN_IN.get(plant.__name__, 0), *range(PLANT_SEEDS)):
        with plant():
            total = play([seed])
        if total.failures:
            assert f"python -m tests.simulation --seed {seed}\n" in total.text()
            return
    pytest.fail(f"{plant.__name__} was not noticed in {PLANT_SEEDS} worlds")


@pytest.mark.slow
def test_a_seed_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    """Two seeds, here and in another process that hashes strings otherwise."""
    seeds = [str(seed) for seed in random.Random(20).sample(range(10**9), 2)]
    with _elsewhere(tmp_path, seeds, hashing="1") as other:
        here = {seed: run_seed(int(seed)).trace.text() for seed in seeds}
        assert other.wait(PATIENCE_S) == 0
    differences = [_difference(seed, here[seed], (tmp_path / seed).read_text()) for seed in seeds]
    assert "".join(differences) == ""


@pytest.mark.parametrize("filter_", ["error", "ignore"])
def test_the_real_machine_has_no_part_in_a_world(filter_: Literal["error", "ignore"]) -> None:
    """A full disk, and warnings raised or not, in a world that warns."""
    plain = run_seed(MEETING).trace.text()
    with warnings.catch_warnings(), patch("os.statvfs", _full):
        warnings.simplefilter(filter_)
        assert _difference("", plain, run_seed(MEETING).trace.text()) == ""


def test_the_command_prints_the_whole_trace() -> None:
    """What is printed has the digest of the trace, and ends with the world."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "1"],
        cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    run = run_seed(1)
    assert hashlib.sha256(found.stdout).hexdigest() == run.trace.digest()
    assert b" 0 problems\n" in found.stderr


def _full(_: object) -> SimpleNamespace:
    return SimpleNamespace(f_bavail=0, f_frsize=4_096)


def _elsewhere(folder: Path, seeds: list[str], *, hashing: str) -> subprocess.Popen[bytes]:
    """Another process that writes each seed's trace to a file of that name, meanwhile."""
    return subprocess.Popen(
        [sys.executable, "-c", TRACES, str(folder), *seeds],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def _difference(seed: str, one: str, other: str) -> str:
    """Where two traces of a seed part; nothing where they are the same."""
    lines = zip_longest(one.splitlines(), other.splitlines())
    return next((f"{seed}: {a!r}, elsewhere {b!r}\n" for a, b in lines if a != b), "")
