"""Thousands of seeded worlds, and every promise kept in each of them."""

from __future__ import annotations

import io
import os

import pytest

from tests.simulation.many import play

GATE = 2_000
"""Worlds that every run of the suite lives through."""

AT_ONCE = 125
"""Worlds in one test: a failure shows while the others still run."""

HAPPENS = frozenset(
    (
        *("starts", "stops", "failed", "killed before", "killed after", "power cut"),
        *("power cut in the middle of a commit", "clock steps", "nobody there"),
        *("held", "lost", "gateway", "signature_invalid", "wrong_environment"),
        *("stored", "duplicate", "duplicate_with_different_body"),
    )
)
"""What must have happened in the worlds of the gate, or they would prove little."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, GATE // 2, AT_ONCE))
def test_every_promise_is_kept_in_every_world(first: int, log: io.StringIO) -> None:
    """Whatever is lost, doubled, delayed, killed or cut off: all ends as the provider knows it."""
    every_promise_is_kept(first, log)


def every_promise_is_kept(first: int, log: io.StringIO) -> None:
    """Play the worlds from `first` on, and look at each."""
    total = play(range(first, first + AT_ONCE))
    print(total.text())
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
