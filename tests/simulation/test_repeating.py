"""Repeatability: each planted defect is found, and a seed gives the same bytes everywhere."""

import os
import random
import subprocess
import sys
import warnings
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from tests.simulation.many import play
from tests.simulation.plants import PLANTS, Plant
from tests.simulation.world import run_seed
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

PLANT_SEEDS = 120
"""Worlds in which each planted defect must show; most show in the first five."""

SHOWN_IN = {
    "ack_before_commit": 4, "evidence_overtaken": 40, "first_body_wins": 8,
    "deadline_ignored": 7, "environment_not_checked": 5, "log_not_synced": 2,
    "signature_not_checked": 1, "dedupe_off": 1, "stored_not_asked": 1, "last_word_wins": 1,
}  # fmt: skip
"""The first world that shows a defect, unless it is 0. It is played first, to save time; after a
change of the worlds the others are searched too, and the number should be corrected."""

COSTLY = {
    "evidence_overtaken", "log_not_synced", "key_made_afresh", "stored_not_asked",
    "environment_not_checked", "ack_before_commit", "deadline_ignored",
}  # fmt: skip
"""Defects that show in long worlds, planted by the long form only."""

MEETING = 2
"""A world with many power cuts, and a kill during a commit, at which the driver warns."""

SEEDS = random.Random(20).sample(range(10**9), 2)
"""Further worlds of the long form."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(each, marks=pytest.mark.soak if each.__name__ in COSTLY else ())
        for each in PLANTS
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_defect_is_found(plant: Plant) -> None:
    """Some early world breaks an invariant, and the failure names the command that replays it."""
    for seed in (SHOWN_IN.get(plant.__name__, 0), *range(PLANT_SEEDS)):
        with plant():
            total = play([seed])
        if total.failures:
            assert f"python -m tests.simulation --seed {seed}\n" in total.text()
            return
    pytest.fail(f"{plant.__name__} was not noticed in {PLANT_SEEDS} worlds")


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [MEETING, *(pytest.param(n, marks=pytest.mark.soak) for n in SEEDS)]
)
def test_a_seed_gives_the_same_bytes_in_every_process(seed: int) -> None:
    """A process that hashes strings otherwise prints the same trace."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed)],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        here = _trace(seed)
        printed, said = other.communicate(timeout=PATIENCE_S)
    assert _difference(str(seed), here, printed) == ""
    assert " 0 problems\n" in said


def test_the_real_machine_has_no_part_in_a_world() -> None:
    """Neither a full disk nor warnings, which the suite raises, change a world."""
    plain = _trace(MEETING)
    with warnings.catch_warnings(), patch("os.statvfs", _full):
        warnings.simplefilter("ignore")
        assert _difference("on a full disk", plain, run_seed(MEETING).trace.text()) == ""


@cache
def _trace(seed: int) -> str:
    return run_seed(seed).trace.text()


def _full(_: object) -> SimpleNamespace:
    return SimpleNamespace(f_bavail=0, f_frsize=4_096)


def _difference(seed: str, one: str, other: str) -> str:
    """Return the first line in which two traces of a seed differ, or nothing."""
    lines = zip_longest(one.splitlines(), other.splitlines())
    return next((f"{seed}: {a!r}, elsewhere {b!r}\n" for a, b in lines if a != b), "")
